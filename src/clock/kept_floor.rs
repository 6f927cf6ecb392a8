//! What a node of a cluster has heard of the time, kept for its next life: a process that was killed comes back within a second or two, and must not elect anybody who is
//! behind what it had heard.
//!
//! It is kept against the machine's monotonic clock, which runs on while there is no process and which nobody sets. After a restart of the machine that clock has begun
//! anew, and what was kept means nothing.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use tracing::warn;

use super::{Clock, checked_line, checksum};

pub struct KeptFloor {
    file: File,
    /// Names the time since the machine was started.
    boot: String,
    /// When the node's clock was made, by the machine's monotonic clock.
    start_millis: i64,
}

impl KeptFloor {
    /// Opens the file `time` of a data folder. `None` when it cannot be opened, which is logged, or when the system does not say
    /// when it was started.
    pub fn open(folder: &Path, clock: &Clock) -> Option<Self> {
        let path = folder.join("time");
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let opened = options.open(&path).inspect_err(|failure| {
            warn!(
                file = %path.display(), %failure,
                "what other nodes say of the time cannot be kept for the next start; the stored second stands in for it"
            );
        });
        let file = opened.ok()?;
        // Both clocks are read with nothing slow in between.
        since_boot().map(|(boot, now)| Self {
            file,
            boot,
            start_millis: now - clock.monotonic_millis(),
        })
    }

    /// What was kept, as milliseconds to add to the clock's monotonic ones.
    pub fn load(&self) -> Option<i64> {
        let mut bytes = [0; 128];
        let length = self.file.read_at(&mut bytes, 0).ok()?;
        let bytes = bytes.get(..length)?;
        let kept = parse(bytes);
        if kept.is_none() && !bytes.is_empty() {
            warn!(
                content = %String::from_utf8_lossy(bytes),
                "what was kept of the time is damaged; the stored second stands in for it"
            );
        }
        let (boot, offset) = kept?;
        (boot == self.boot).then(|| offset.saturating_add(self.start_millis))
    }

    /// Returns whether a data folder has something kept. Fails with what is wrong with it.
    pub fn verify(folder: &Path) -> Result<bool, String> {
        let bytes = match std::fs::read(folder.join("time")) {
            Ok(bytes) => bytes,
            Err(failure) if failure.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(failure) => return Err(failure.to_string()),
        };
        match parse(&bytes) {
            Some(_) => Ok(true),
            // Nothing was heard yet.
            None if bytes.is_empty() => Ok(true),
            None => Err(format!("it holds {:?}", String::from_utf8_lossy(&bytes))),
        }
    }

    /// In one write, which a process that is killed has made or has not.
    pub fn keep(&self, offset: i64) -> io::Result<()> {
        let offset = offset.saturating_sub(self.start_millis);
        let line = checked_line(&format!("{} {offset:>20}", self.boot));
        self.file.write_all_at(line.as_bytes(), 0)
    }
}

/// The boot and the offset of a line, if it is whole. Earlier versions wrote no checksum.
fn parse(bytes: &[u8]) -> Option<(&str, i64)> {
    let line = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
    let mut words = line.split_ascii_whitespace();
    let (boot, offset) = (words.next()?, words.next()?.parse().ok()?);
    if let Some(sum) = words.next() {
        let text = line.strip_suffix(sum)?.strip_suffix(' ')?;
        if words.next().is_some() || checksum(text) != sum {
            return None;
        }
    }
    Some((boot, offset))
}

/// The name of this life of the machine, and its monotonic clock in milliseconds.
#[cfg(target_os = "linux")]
fn since_boot() -> Option<(String, i64)> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let millis = now.tv_sec * 1_000 + now.tv_nsec / 1_000_000;
    Some((boot.trim().to_owned(), millis))
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<(String, i64)> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs;

    fn open(folder: &Path, clock: &Clock) -> KeptFloor {
        KeptFloor::open(folder, clock).unwrap()
    }

    #[test]
    fn a_later_clock_of_the_same_machine_finds_the_time_where_it_would_be_by_now() {
        let folder = tempfile::tempdir().unwrap();
        let first = Clock::manual(0);
        let kept = open(folder.path(), &first);
        assert_eq!(kept.load(), None);
        kept.keep(5_000).unwrap();
        kept.keep(7_000).unwrap();
        assert_eq!(kept.load(), Some(7_000));
        std::thread::sleep(std::time::Duration::from_millis(30));
        let second = Clock::manual(0);
        let later = open(folder.path(), &second).load().unwrap() + second.monotonic_millis();
        let there = 7_000 + first.monotonic_millis();
        assert!((there - 3..=there + 3).contains(&later), "{later} {there}");
    }

    #[test]
    fn what_was_kept_before_the_machine_was_started_means_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let text = "00000000-0000-0000-0000-000000000000 5000\n";
        fs::write(folder.path().join("time"), text).unwrap();
        assert_eq!(open(folder.path(), &Clock::manual(0)).load(), None);
        fs::write(folder.path().join("time"), [0xff; 40]).unwrap();
        assert_eq!(open(folder.path(), &Clock::manual(0)).load(), None);
    }

    #[test]
    fn every_damaged_byte_of_what_was_kept_is_noticed_and_none_keeps_a_node_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::manual(0);
        open(folder.path(), &clock).keep(7_000).unwrap();
        let path = folder.path().join("time");
        let whole = fs::read(&path).unwrap();
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            assert_eq!(open(folder.path(), &clock).load(), None, "bit {bit}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(KeptFloor::open(folder.path(), &clock).is_none());
    }
}
