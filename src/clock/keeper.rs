//! Keeps a node's highest issued second in its data folder, in the file `clock`: one line of text with a checksum.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tracing::{error, info, warn};

use super::{Clock, Start, checked_line, date, wall_seconds};

const FILE: &str = "clock";
/// A folder with this file has been served from before.
const CATALOG: &str = "catalog";
const MAGIC: &str = "bolide-clock 1";
/// What the file of a new folder holds.
const NOTHING_ISSUED: i64 = 0;

/// Keeps a node's highest issued time on disk.
pub struct ClockKeeper {
    clock: Clock,
    folder: PathBuf,
    stored: AtomicI64,
    /// Why the file could not be read at start.
    damage: Option<String>,
    /// Whether the last attempt to store failed.
    failing: AtomicBool,
}

impl ClockKeeper {
    /// Opens the clock of a data folder: it starts no earlier than the highest second that was ever issued there.
    ///
    /// A file that cannot be read is no reason not to start: the highest `_ts` of the shards stands in for it, and the time
    /// is suspect.
    pub fn open(folder: &Path, bound: Duration, hold: Duration) -> Self {
        let (start, damage) = match load(folder) {
            Ok(Some(NOTHING_ISSUED) | None) => (Start::New, None),
            Ok(Some(second)) => (Start::At(second), None),
            Err(damage) => (Start::Lost, Some(damage)),
        };
        let wall = wall_seconds();
        let clock = Clock::system(start, bound, hold);
        let stored = match start {
            Start::At(second) => second,
            Start::New | Start::Lost => NOTHING_ISSUED,
        };
        if let Some(damage) = &damage {
            warn!(
                file = %folder.join(FILE).display(), %damage, now = %date(wall),
                "the stored time is lost; the newest write stands in for it, and purging is paused: \
                 check the machine's clock, then wait or confirm it (bolide clock confirm)"
            );
        } else if clock.purging_paused_at_start() {
            let (stored, now) = (date(stored), date(wall));
            if clock.issued() > wall {
                warn!(
                    %stored, %now,
                    "the machine's clock is behind the time already issued: time stands still there and purging is \
                     paused until the clock has caught up; if the clock is wrong, set it right"
                );
            } else {
                warn!(
                    %stored, %now, hold_seconds = hold.as_secs(),
                    "the machine's clock is far ahead of the stored time: the node was stopped for long, or the clock is \
                     wrong. Purging is paused until the time has lasted or is confirmed (bolide clock confirm); if the \
                     clock is wrong, set it right and restart: nothing was destroyed"
                );
            }
        } else if stored > wall {
            warn!(
                behind_seconds = stored - wall,
                "the machine's clock is behind the time already issued; waiting for it there"
            );
        }
        let keeper = Self {
            clock,
            folder: folder.to_owned(),
            stored: AtomicI64::new(stored),
            damage,
            failing: AtomicBool::new(false),
        };
        if start == Start::New {
            // A folder that has a catalog has a clock, whenever the process is killed. It does not bind the node to its own
            // clock: a cluster may know better.
            keeper.replace(NOTHING_ISSUED);
        }
        keeper
    }

    pub fn clock(&self) -> Clock {
        self.clock.clone()
    }

    /// Returns why the file could not be read at start, if so.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns what an operator asks about the time.
    pub fn status(&self) -> Value {
        let suspicion = self.clock.suspicion();
        json!({
            "wall": self.clock.wall_seconds(),
            "stored": self.stored.load(Ordering::Relaxed),
            "suspect": suspicion.map(|suspicion| suspicion.to_string()),
            "trustedInSeconds": suspicion.and_then(|suspicion| suspicion.trusted_in_seconds()),
            "fileDamaged": self.damage(),
        })
    }

    /// Keeps the highest issued time, so that the next start does not go back behind it. To be called about once a second, off the event
    /// loop because it waits for the disk. A suspect time is not kept: a restart with a mended clock brings everything back.
    pub fn store(&self) {
        let issued = self.clock.issued();
        if issued <= self.stored.load(Ordering::Relaxed) || self.clock.purging_paused() {
            return;
        }
        self.replace(issued);
    }

    fn replace(&self, second: i64) {
        match replace(&self.folder, second) {
            Ok(()) => {
                self.stored.store(second, Ordering::Relaxed);
                if self.failing.swap(false, Ordering::Relaxed) {
                    info!("the highest issued time is stored again");
                }
            }
            // Said once, not every second.
            Err(error) if !self.failing.swap(true, Ordering::Relaxed) => {
                error!(%error, "the highest issued time cannot be stored; tried again every second");
            }
            Err(_) => {}
        }
    }
}

impl ClockKeeper {
    /// Returns whether a data folder has a stored second. Fails with what is wrong with it.
    pub fn verify(folder: &Path) -> Result<bool, String> {
        load(folder).map(|second| second.is_some())
    }
}

/// Reads the stored second; `None` in a new folder. Fails with what is wrong.
fn load(folder: &Path) -> Result<Option<i64>, String> {
    let bytes = match fs::read(folder.join(FILE)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match folder.join(CATALOG).exists() {
                true => Err("it is missing".to_owned()),
                false => Ok(None),
            };
        }
        Err(error) => return Err(error.to_string()),
    };
    decode(&bytes).map(Some)
}

fn encode(second: i64) -> String {
    checked_line(&format!("{MAGIC} {second}"))
}

fn decode(bytes: &[u8]) -> Result<i64, String> {
    let shown = || format!("it holds {:?}", String::from_utf8_lossy(bytes));
    let text = std::str::from_utf8(bytes).map_err(|_| shown())?;
    // As earlier versions wrote it.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map_err(|_| shown());
    }
    let second = text
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.trim_start().split_once(' '))
        .and_then(|(second, _)| second.parse().ok())
        .ok_or_else(shown)?;
    match encode(second) == text {
        true => Ok(second),
        false => Err(format!("{}, and its checksum does not match", shown())),
    }
}

/// Replaces the file; after a power cut either the old or the new one is there.
fn replace(folder: &Path, second: i64) -> io::Result<()> {
    let next = folder.join("clock.next");
    let mut file = File::create(&next)?;
    file.write_all(encode(second).as_bytes())?;
    file.sync_all()?;
    fs::rename(&next, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(60);
    const HOLD: Duration = Duration::from_secs(300);

    fn open(folder: &Path) -> ClockKeeper {
        ClockKeeper::open(folder, BOUND, HOLD)
    }

    fn with_clock(content: impl AsRef<[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), content).unwrap();
        folder
    }

    #[test]
    fn starts_no_earlier_than_the_time_issued_before_a_restart() {
        let ahead = wall_seconds() + 1_000;
        for content in [ahead.to_string(), encode(ahead)] {
            let folder = with_clock(content);
            let keeper = open(folder.path());
            assert_eq!(keeper.clock().now(), ahead);
            assert!(keeper.clock().purging_paused(), "the clock is far behind");
        }
    }

    #[test]
    fn a_start_long_after_the_stored_second_is_suspect_and_stores_nothing() {
        let stored = wall_seconds() - 86_400;
        let folder = with_clock(encode(stored));
        let keeper = open(folder.path());
        assert!(keeper.clock().purging_paused());
        assert!(keeper.clock().now() > stored + 80_000, "readers go by it");
        keeper.store();
        assert_eq!(load(folder.path()), Ok(Some(stored)));
        assert!(keeper.status()["suspect"].is_string());
        keeper.clock().confirm();
        assert!(!keeper.clock().purging_paused());
        keeper.store();
        assert!(load(folder.path()).unwrap().unwrap() > stored + 80_000);
        assert!(!open(folder.path()).clock().purging_paused());
    }

    #[test]
    fn a_new_folder_has_a_clock_at_once_and_is_not_suspect() {
        let folder = tempfile::tempdir().unwrap();
        let keeper = open(folder.path());
        assert!(!keeper.clock().purging_paused());
        assert_eq!(load(folder.path()), Ok(Some(NOTHING_ISSUED)));
        assert_eq!(keeper.damage(), None);
        assert!(!open(folder.path()).clock().purging_paused());
        let now = keeper.clock().now();
        keeper.store();
        assert_eq!(load(folder.path()), Ok(Some(now)));
    }

    #[test]
    fn every_damaged_bit_of_the_file_is_noticed_and_none_keeps_the_node_from_starting() {
        let whole = encode(wall_seconds()).into_bytes();
        let mut damaged: Vec<Vec<u8>> = (0..whole.len() * 8)
            .map(|bit| {
                let mut damaged = whole.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                damaged
            })
            .collect();
        damaged.extend((0..whole.len()).map(|length| whole[..length].to_vec()));
        damaged.push(b"yesterday".to_vec());
        damaged.push(b"99999999999999999999".to_vec());
        for content in damaged {
            assert!(decode(&content).is_err(), "{content:?}");
        }
        for content in ["", "yesterday", "bolide-clock 1 5 0000000000000000\n"] {
            let folder = with_clock(content);
            let keeper = open(folder.path());
            assert!(keeper.damage().is_some());
            assert!(keeper.clock().purging_paused());
        }
    }

    #[test]
    fn a_clock_that_is_missing_beside_a_catalog_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(CATALOG), "any").unwrap();
        let keeper = open(folder.path());
        assert_eq!(keeper.damage(), Some("it is missing"));
        let clock = keeper.clock();
        assert!(clock.has_lost_floor() && clock.purging_paused());
        let newest = wall_seconds() + 10;
        clock.raise(newest);
        assert_eq!(clock.now(), newest, "the newest write is the floor");
    }
}
