//! Disk space that is set aside for purging: a file in the data folder, given back to the file
//! system when the disk is full.
//!
//! While the reserve is released users' writes are refused, so that purging and compaction alone
//! have the space.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tracing::{info, warn};

const FILE: &str = "reserve";
/// A disk that is small gives up no more than this share of its bytes.
const DISK_SHARE_MAX: u64 = 16;
/// Free bytes beyond the reserve that a disk must have before users may write again, as a share of
/// the reserve.
const MARGIN_SHARE: u64 = 4;

#[derive(Debug, Default)]
pub struct Reserve {
    /// `None`: nothing is set aside.
    place: Option<Place>,
    released: AtomicBool,
}

#[derive(Debug)]
struct Place {
    folder: PathBuf,
    bytes: u64,
}

impl Reserve {
    /// Sets up to `bytes_max` aside in a folder; 0: nothing. Where there is no space for it, it
    /// counts as released.
    pub fn open(folder: &Path, bytes_max: u64) -> Arc<Self> {
        let path = folder.join(FILE);
        if bytes_max == 0 {
            // An earlier start may have set something aside.
            let _ = fs::remove_file(path);
            return Arc::default();
        }
        let disk_bytes = disk_space(folder).map_or(u64::MAX, |space| space.total);
        let bytes = bytes_max.min(disk_bytes / DISK_SHARE_MAX);
        let place = Place {
            folder: folder.to_owned(),
            bytes,
        };
        let made = place.make();
        if let Err(failure) = &made
            && failure.kind() != io::ErrorKind::StorageFull
        {
            warn!(
                file = %path.display(), %failure,
                "no space can be set aside: expired items are not purged while the disk is full"
            );
            return Arc::default();
        }
        if made.is_err() {
            warn!(
                bytes,
                "the disk is full: writes are refused until there is room"
            );
        }
        Arc::new(Self {
            place: Some(place),
            released: AtomicBool::new(made.is_err()),
        })
    }

    /// Returns whether the space was given back because the disk is full, so that users may not
    /// write.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// Gives the space back to the file system: the disk is full.
    pub fn release(&self) {
        let Some(place) = &self.place else { return };
        if self.released.swap(true, Ordering::Relaxed) {
            return;
        }
        match fs::remove_file(place.path()) {
            Ok(()) => warn!(
                bytes = place.bytes,
                "the disk is full: writes are refused until there is room; the reserve is released for purging"
            ),
            Err(failure) => warn!(%failure, "the disk is full, and the reserve cannot be released"),
        }
    }

    /// Sets the space aside again if the disk has room. To be called about once a second, off the
    /// event loop.
    pub fn restore(&self) {
        let Some(place) = self.place.as_ref().filter(|_| self.is_released()) else {
            return;
        };
        let wanted = place.bytes + place.bytes / MARGIN_SHARE;
        if disk_space(&place.folder).is_some_and(|space| space.free < wanted) {
            return;
        }
        if place.make().is_ok() {
            self.released.store(false, Ordering::Relaxed);
            info!(
                bytes = place.bytes,
                "the disk has room again; the reserve is restored"
            );
        }
    }
}

impl Place {
    fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    fn make(&self) -> io::Result<()> {
        let path = self.path();
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        let made = allocate(&file, self.bytes);
        if made.is_err() {
            // Half of it would only be in the way.
            let _ = fs::remove_file(path);
        }
        made
    }
}

/// Makes sure that a file has its bytes on disk, and no more than these.
#[cfg(target_os = "linux")]
fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    file.set_len(bytes)?;
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn allocate(_: &File, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

struct DiskSpace {
    total: u64,
    /// For users other than root.
    free: u64,
}

/// `None`: the system does not say.
fn disk_space(folder: &Path) -> Option<DiskSpace> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(DiskSpace {
        total: about.f_blocks.saturating_mul(about.f_frsize),
        free: about.f_bavail.saturating_mul(about.f_frsize),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const BYTES: u64 = 1024 * 1024;

    fn disk_bytes(folder: &Path) -> Option<u64> {
        let about = fs::metadata(folder.join(FILE)).ok()?;
        Some(about.blocks() * 512)
    }

    #[test]
    fn what_is_set_aside_is_on_disk_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let reserve = Reserve::open(folder.path(), BYTES);
        assert!(!reserve.is_released());
        assert!(disk_bytes(folder.path()) >= Some(BYTES));
        reserve.release();
        assert!(reserve.is_released());
        assert_eq!(disk_bytes(folder.path()), None);
        reserve.restore();
        assert!(!reserve.is_released());
        assert!(disk_bytes(folder.path()) >= Some(BYTES));
        // A later start finds it, and keeps to what it is told.
        Reserve::open(folder.path(), BYTES / 2);
        assert_eq!(
            fs::metadata(folder.path().join(FILE)).unwrap().len(),
            BYTES / 2
        );
        assert!(!Reserve::open(folder.path(), 0).is_released());
        assert_eq!(disk_bytes(folder.path()), None);
    }

    #[test]
    fn without_a_reserve_nothing_is_refused() {
        let reserve = Reserve::default();
        reserve.release();
        assert!(!reserve.is_released());
    }
}
