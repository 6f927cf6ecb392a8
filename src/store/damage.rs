//! What is wrong with an engine's files while it is in use: damage, and a disk that fails. Counted, and logged with a bound on the
//! lines.

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
    /// Damaged files.
    pub damaged: Tally,
    /// Reads and writes that the disk has failed.
    pub failed: Tally,
}

/// How often something was met, and what was met first.
#[derive(Debug, Default)]
pub struct Tally {
    count: AtomicU64,
    first: OnceLock<String>,
}

impl Tally {
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub fn first(&self) -> Option<&str> {
        self.first.get().map(String::as_str)
    }

    /// Counts one more. Returns its number if it is to be logged.
    fn add(&self, message: &str) -> Option<u64> {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let _ = self.first.set(message.to_owned());
        (count <= LOGGED_FIRST || count.is_power_of_two()).then_some(count)
    }
}

impl Damage {
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            damaged: Tally::default(),
            failed: Tally::default(),
        }
    }

    /// Notes a failure if it is damage or one of the disk, and hands it on.
    #[cold]
    pub fn note(&self, failure: impl Into<EngineError>) -> EngineError {
        let failure = failure.into();
        let folder = self.folder.display();
        match &failure {
            EngineError::Damaged(message) => {
                if let Some(count) = self.damaged.add(message) {
                    error!(%folder, count, message, "damaged files were read");
                }
            }
            EngineError::Io(message) => {
                if let Some(count) = self.failed.add(message) {
                    error!(%folder, count, message, "the disk has failed a read or a write");
                }
            }
            EngineError::Full(_) | EngineError::Exhausted(_) | EngineError::InUse(_) => {}
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_and_failures_of_the_disk_are_counted_and_the_first_of_each_is_kept() {
        let damage = Damage::new(PathBuf::from("shards/a-0"));
        damage.note(EngineError::Full("no room".to_owned()));
        assert_eq!((damage.damaged.count(), damage.failed.count()), (0, 0));
        for message in ["one", "two"] {
            damage.note(EngineError::Damaged(message.to_owned()));
        }
        assert_eq!((damage.damaged.count(), damage.failed.count()), (2, 0));
        damage.note(EngineError::Io("slow".to_owned()));
        assert_eq!(damage.damaged.first(), Some("one"));
        assert_eq!(
            (damage.failed.count(), damage.failed.first()),
            (1, Some("slow"))
        );
    }
}
