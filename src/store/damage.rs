//! Damage that an engine meets while it is read: counted, and logged with a bound on the lines.

use std::{
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::error;

use super::EngineError;

/// Every occurrence up to this one is logged, and after that each whose number is a power of two.
const LOGGED_FIRST: u64 = 8;

/// What an engine has met since it was opened.
#[derive(Debug)]
pub struct Damage {
    folder: PathBuf,
    count: AtomicU64,
    first: OnceLock<String>,
}

impl Damage {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            count: AtomicU64::new(0),
            first: OnceLock::new(),
        }
    }

    /// Times that damaged files were read.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns what was met first.
    pub fn first(&self) -> Option<&str> {
        self.first.get().map(String::as_str)
    }

    /// Notes a failure if it is damage, and hands it on.
    #[cold]
    pub fn note(&self, failure: impl Into<EngineError>) -> EngineError {
        let failure = failure.into();
        if let EngineError::Damaged(message) = &failure {
            self.record(message);
        }
        failure
    }

    fn record(&self, message: &str) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.first.set(message.to_owned());
        if count <= LOGGED_FIRST || count.is_power_of_two() {
            error!(folder = %self.folder.display(), count, message, "damaged files were read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_is_counted_and_the_first_is_kept() {
        let damage = Damage::new(PathBuf::from("shards/a-0"));
        damage.note(EngineError::Io("slow".to_owned()));
        assert_eq!((damage.count(), damage.first()), (0, None));
        damage.note(EngineError::Damaged("one".to_owned()));
        damage.note(EngineError::Damaged("two".to_owned()));
        assert_eq!((damage.count(), damage.first()), (2, Some("one")));
    }
}
