//! What was found against the server, with the evidence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Violations that are kept with their evidence; the others are counted.
const KEPT_MAX: usize = 20;
/// Characters of a request or an answer that are kept.
const SHOWN_CHARS_MAX: usize = 1_500;

/// In the order in which they are reported.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// An item was seen at or after its second.
    ExpiredSeen,
    /// An item that must be there was not.
    LiveMissing,
    /// An acknowledged write is not there, and does not come back.
    LostWrite,
    /// An answer was older than the session token that was sent with its request.
    StaleRead,
    /// An item holds what was never written.
    WrongContent,
}

impl ViolationKind {
    pub const ALL: [Self; 5] = [
        Self::ExpiredSeen,
        Self::LiveMissing,
        Self::LostWrite,
        Self::StaleRead,
        Self::WrongContent,
    ];

    /// As reports and metrics spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ExpiredSeen => "expired_seen",
            Self::LiveMissing => "live_missing",
            Self::LostWrite => "lost_write",
            Self::StaleRead => "stale_read",
            Self::WrongContent => "wrong_content",
        }
    }
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    pub kind: ViolationKind,
    /// What was expected, and what came instead.
    pub what: String,
    /// When the request was sent, on this machine's clock.
    pub sent_unix_seconds: f64,
    pub answered_unix_seconds: f64,
    pub request: String,
    pub answer: String,
}

impl Evidence {
    /// For the person at the terminal.
    pub fn shown(&self) -> String {
        let second = std::time::Duration::from_secs(self.sent_unix_seconds as u64);
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + second);
        format!(
            "VIOLATION {}: {}\n  sent {:.3} ({date}), answered {:.3}\n  request:\n{}\n  \
             answer:\n{}\n",
            self.kind.name(),
            self.what,
            self.sent_unix_seconds,
            self.answered_unix_seconds,
            indented(&self.request),
            indented(&self.answer),
        )
    }
}

fn indented(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.map(|line| format!("    {line}")).collect();
    lines.join("\n")
}

/// The readable part of a request or an answer. Signatures are left out.
pub fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines = text
        .lines()
        .filter(|line| !line.to_ascii_lowercase().starts_with("authorization:"));
    let text = lines.collect::<Vec<_>>().join("\n");
    text.chars().take(SHOWN_CHARS_MAX).collect()
}

/// All violations of a run.
#[derive(Debug, Default)]
pub struct Violations {
    counts: [AtomicU64; ViolationKind::ALL.len()],
    kept: Mutex<Vec<Evidence>>,
}

impl Violations {
    /// The first ones are told at once: a run may take long.
    pub fn add(&self, evidence: Evidence) {
        if let Some(count) = self.counts.get(evidence.kind as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            eprintln!("\n{}", evidence.shown());
        }
        if kept.len() < KEPT_MAX {
            kept.push(evidence);
        }
    }

    pub fn count(&self, kind: ViolationKind) -> u64 {
        self.counts
            .get(kind as usize)
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub fn total(&self) -> u64 {
        ViolationKind::ALL
            .iter()
            .map(|kind| self.count(*kind))
            .sum()
    }

    pub fn kept(&self) -> Vec<Evidence> {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_kept_within_bounds_and_without_signatures() {
        let violations = Violations::default();
        let request = b"GET /x HTTP/1.1\r\nAuthorization: secret\r\nx-ms-date: now\r\n\r\n";
        for number in 0..2 * KEPT_MAX {
            violations.add(Evidence {
                kind: ViolationKind::LostWrite,
                what: format!("item {number}"),
                sent_unix_seconds: 1.0,
                answered_unix_seconds: 2.0,
                request: readable(request),
                answer: String::new(),
            });
        }
        assert_eq!(
            violations.count(ViolationKind::LostWrite),
            2 * KEPT_MAX as u64
        );
        assert_eq!(violations.count(ViolationKind::StaleRead), 0);
        assert_eq!(violations.total(), 2 * KEPT_MAX as u64);
        let kept = violations.kept();
        assert_eq!(kept.len(), KEPT_MAX);
        let shown = kept[0].shown();
        assert!(
            shown.contains("GET /x") && shown.contains("x-ms-date"),
            "{shown}"
        );
        assert!(!shown.contains("secret"), "{shown}");
    }
}
