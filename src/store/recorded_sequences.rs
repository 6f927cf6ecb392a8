//! The last sequence numbers of the node's engines, recorded outside their folders: a WAL that is
//! missing or short at the next start is noticed. One small file for all engines, written once a
//! second while anything changes and at a clean stop. What it holds was durable before it was
//! written.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};
use tracing::error;

use super::{
    checked_file::{self, Magic},
    identity::Identity,
    shard_id::FolderId,
};

/// The name that the file has had from the first format on.
const FILE: &str = "watermarks";
const MAGIC: Magic = *b"BOLIDEW1";

/// As it is on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Recorded {
    /// The version of the catalog.
    catalog: u64,
    /// By folder, below the data folder.
    engines: BTreeMap<String, EngineMark>,
    /// The data folder that it was made in; none in files of earlier builds.
    #[serde(default)]
    data_folder: Option<FolderId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct EngineMark {
    incarnation: u64,
    /// The last sequence number that is durable.
    sequence: u64,
}

/// An engine that is open.
struct Followed {
    incarnation: u64,
    durable: Arc<AtomicU64>,
}

pub struct RecordedSequences {
    path: PathBuf,
    /// Why nothing is known at this start that was recorded before.
    lost: Option<String>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    recorded: Recorded,
    followed: BTreeMap<String, Followed>,
    /// Another write has failed already: it is said once.
    failing: bool,
}

impl RecordedSequences {
    /// Reads what was recorded. A file that cannot be read is no reason not to start: it holds
    /// nothing that cannot be told from the shards, if those are whole. See [`Self::lost`].
    pub fn open(data: &Path) -> Arc<Self> {
        let path = data.join(FILE);
        let (mut recorded, lost) = match find(data) {
            Ok(recorded) => (recorded, None),
            Err(failure) => {
                error!(%failure, "recorded sequence numbers are lost: a WAL that was cut since the last start cannot be noticed");
                (Recorded::default(), Some(failure.to_string()))
            }
        };
        recorded.data_folder = folder_id(data);
        Arc::new(Self {
            path,
            lost,
            inner: Mutex::new(Inner {
                recorded,
                ..Inner::default()
            }),
        })
    }

    /// Makes the file of a data folder that is about to get its identity.
    pub fn begin(data: &Path) -> io::Result<()> {
        let path = data.join(FILE);
        match path.exists() {
            true => Ok(()),
            false => store(&path, &Recorded::default()),
        }
    }

    /// Fails where [`Self::open`] only says so.
    pub fn verify(data: &Path) -> io::Result<()> {
        find(data).map(drop)
    }

    /// Returns why nothing was known at this start, if something should have been.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version of the catalog that was in effect at last.
    pub fn catalog(&self) -> u64 {
        self.inner().recorded.catalog
    }

    /// Returns the last sequence number that an engine is known to have had durably.
    pub fn sequence(&self, folder: &str, incarnation: u64) -> u64 {
        let inner = self.inner();
        let mark = inner.recorded.engines.get(folder);
        let mark = mark.filter(|mark| mark.incarnation == incarnation);
        mark.map_or(0, |mark| mark.sequence)
    }

    /// Records from now on how far an engine is.
    pub fn follow(&self, folder: &str, incarnation: u64, durable: Arc<AtomicU64>) {
        let followed = Followed {
            incarnation,
            durable,
        };
        self.inner().followed.insert(folder.to_owned(), followed);
    }

    /// Forgets an engine whose files go.
    pub fn forget(&self, folder: &str) {
        let mut inner = self.inner();
        inner.followed.remove(folder);
        inner.recorded.engines.remove(folder);
    }

    /// Records how far all engines are, if that has changed. Waits for the disk.
    pub fn record(&self, catalog: u64) {
        let mut inner = self.inner();
        let mut next = inner.recorded.clone();
        next.catalog = next.catalog.max(catalog);
        for (folder, followed) in &inner.followed {
            let mark = EngineMark {
                incarnation: followed.incarnation,
                sequence: followed.durable.load(Ordering::Acquire),
            };
            next.engines.insert(folder.clone(), mark);
        }
        if next == inner.recorded {
            return;
        }
        match store(&self.path, &next) {
            Ok(()) => {
                inner.recorded = next;
                inner.failing = false;
            }
            Err(failure) if !inner.failing => {
                error!(%failure, "sequence numbers cannot be recorded");
                inner.failing = true;
            }
            Err(_) => {}
        }
    }
}

/// Reads the file. Only a folder without an identity may be without it.
fn find(data: &Path) -> io::Result<Recorded> {
    let path = data.join(FILE);
    match checked_file::read(&path, &MAGIC)? {
        None if Identity::exists(data) => {
            let message = format!("{} is missing", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        }
        None => Ok(Recorded::default()),
        Some(contents) => {
            let recorded: Recorded = rmp_serde::from_slice(&contents)
                .map_err(|failure| checked_file::damaged(&path, &failure.to_string()))?;
            match (recorded.data_folder, folder_id(data)) {
                (Some(theirs), Some(ours)) if theirs != ours => Err(checked_file::damaged(
                    &path,
                    "it comes from another data folder",
                )),
                _ => Ok(recorded),
            }
        }
    }
}

/// Returns the id of the data folder; none where it has no identity that can be read.
fn folder_id(data: &Path) -> Option<FolderId> {
    let identity = Identity::read(data).ok().flatten();
    identity.map(|identity| identity.folder)
}

fn store(path: &Path, recorded: &Recorded) -> io::Result<()> {
    let contents = rmp_serde::to_vec(recorded).map_err(io::Error::other)?;
    checked_file::replace(path, &MAGIC, &contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_known_at_the_next_start_to_the_same_incarnation_only() {
        let data = tempfile::tempdir().unwrap();
        let marks = RecordedSequences::open(data.path());
        let durable = Arc::new(AtomicU64::new(5));
        marks.follow("shards/a-0", 7, Arc::clone(&durable));
        marks.record(3);
        durable.store(9, Ordering::Release);
        marks.record(2);
        let later = RecordedSequences::open(data.path());
        assert_eq!(later.catalog(), 3);
        assert_eq!(later.sequence("shards/a-0", 7), 9);
        assert_eq!(later.sequence("shards/a-0", 8), 0);
        assert_eq!(later.sequence("shards/a-1", 7), 0);
        later.forget("shards/a-0");
        later.record(4);
        assert_eq!(
            RecordedSequences::open(data.path()).sequence("shards/a-0", 7),
            0
        );
    }

    #[test]
    fn a_damaged_or_missing_file_is_no_reason_not_to_start_but_it_is_said() {
        let data = tempfile::tempdir().unwrap();
        let data = data.path();
        // A new folder has none.
        assert_eq!(RecordedSequences::open(data).lost(), None);
        RecordedSequences::begin(data).unwrap();
        let identity = Identity {
            format: 3,
            folder: [7; 16],
            member: None,
        };
        identity.write(data).unwrap();
        assert_eq!(RecordedSequences::open(data).lost(), None);
        RecordedSequences::open(data).record(3);
        // A start after a crash must not begin anew.
        RecordedSequences::begin(data).unwrap();
        assert_eq!(RecordedSequences::open(data).catalog(), 3);
        std::fs::write(data.join(FILE), b"garbage").unwrap();
        let is_lost = |why: &str| {
            let failure = RecordedSequences::verify(data).unwrap_err().to_string();
            assert!(failure.contains(why), "{failure}");
            let marks = RecordedSequences::open(data);
            assert_eq!((marks.catalog(), marks.lost()), (0, Some(&*failure)));
        };
        is_lost("too short");
        std::fs::remove_file(data.join(FILE)).unwrap();
        is_lost("is missing");
    }

    #[test]
    fn the_file_of_another_data_folder_is_not_believed() {
        let folders: Vec<_> = [1, 2].map(|_| tempfile::tempdir().unwrap()).into();
        for (number, folder) in folders.iter().enumerate() {
            RecordedSequences::begin(folder.path()).unwrap();
            let identity = Identity {
                format: 3,
                folder: [number as u8; 16],
                member: None,
            };
            identity.write(folder.path()).unwrap();
            RecordedSequences::open(folder.path()).record(5);
        }
        let [one, other] = [0, 1].map(|at| folders[at].path().join(FILE));
        std::fs::copy(other, one).unwrap();
        let lost = RecordedSequences::open(folders[0].path());
        assert!(
            lost.lost()
                .is_some_and(|why| why.contains("another data folder"))
        );
        assert_eq!(lost.catalog(), 0);
    }
}
