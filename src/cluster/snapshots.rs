//! Snapshots on their way between nodes. A leader publishes a snapshot as a folder of files; a
//! follower fetches them in chunks, and installs the snapshot when its log says so.
//!
//! | path below the folder | what |
//! | --- | --- |
//! | `out/<group>-<id>/` | a snapshot that others may fetch; gone after a restart |
//! | `in/<group>/files/` | a snapshot that is being fetched, or is to be installed |
//! | `in/<group>/complete` | its index, as text: there when all files are, durably |
//!
//! The log decides: it is restarted behind the snapshot's index only when the snapshot is complete.
//! From then on the snapshot is the state of the group, whether the node installs it now or at its
//! next start.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{
    GroupId,
    raft::log_disk::{INITIAL_POSITION, LogDisk},
    transport::message::SnapshotChunk,
};
use crate::store::EngineError;

const CHUNK_BYTES: usize = 1024 * 1024;
/// A snapshot that was not read for so long is removed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Snapshots {
    folder: PathBuf,
    disk: Arc<dyn LogDisk>,
    /// When published snapshots were last read.
    published: Mutex<HashMap<(GroupId, u64), Instant>>,
}

/// A file of a snapshot and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SnapshotFile {
    name: String,
    bytes: u64,
}

impl Snapshots {
    /// Opens the folder. Removes what was published before the start.
    pub fn open(folder: &Path, disk: Arc<dyn LogDisk>) -> io::Result<Self> {
        let out = folder.join("out");
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        fs::create_dir_all(&out)?;
        fs::create_dir_all(folder.join("in"))?;
        Ok(Self {
            folder: folder.to_owned(),
            disk,
            published: Mutex::default(),
        })
    }

    fn published(&self) -> MutexGuard<'_, HashMap<(GroupId, u64), Instant>> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the folder of a published snapshot.
    pub fn outgoing(&self, group: GroupId, id: u64) -> PathBuf {
        self.folder.join("out").join(format!("{group}-{id}"))
    }

    /// Lets other nodes fetch a snapshot.
    pub fn publish(&self, group: GroupId, id: u64) {
        self.published().insert((group, id), Instant::now());
    }

    /// Removes snapshots that are no longer read, and returns them.
    pub fn remove_idle(&self) -> Vec<(GroupId, u64)> {
        let mut published = self.published();
        let idle = published.extract_if(|_, read| read.elapsed() > IDLE_TIMEOUT);
        let idle: Vec<_> = idle.map(|(snapshot, _)| snapshot).collect();
        for (group, id) in &idle {
            let _ = fs::remove_dir_all(self.outgoing(*group, *id));
        }
        idle
    }

    /// Returns a chunk for a node that fetches; empty if there is no such snapshot. Waits for the
    /// disk.
    pub fn chunk(&self, chunk: &SnapshotChunk) -> Bytes {
        let SnapshotChunk { group, id, file } = chunk;
        match self.published().get_mut(&(*group, *id)) {
            Some(read) => *read = Instant::now(),
            None => return Bytes::new(),
        }
        let folder = self.outgoing(*group, *id);
        let bytes = match file {
            None => list(&folder),
            Some((name, offset)) => read(&folder, name, *offset),
        };
        bytes.unwrap_or_default().into()
    }

    fn incoming(&self, group: GroupId) -> PathBuf {
        self.folder.join("in").join(group.to_string())
    }

    /// Returns the files of a fetched snapshot.
    pub fn files(&self, group: GroupId) -> PathBuf {
        self.incoming(group).join("files")
    }

    /// Returns whether a snapshot of a group was fetched and not installed.
    pub fn has_fetched(&self, group: GroupId) -> bool {
        self.incoming(group).join("complete").exists()
    }

    /// Removes what was fetched of a group.
    pub fn discard(&self, group: GroupId) {
        let _ = fs::remove_dir_all(self.incoming(group));
    }

    /// Returns the files of the snapshot that a state machine must install before it takes part,
    /// because its log goes on from there.
    pub fn pending(&self, group: GroupId, applied: u64) -> Result<Option<PathBuf>, EngineError> {
        let persisted = self.disk.load(group)?;
        let begins = persisted.map_or(0, |persisted| persisted.truncated.index);
        if begins <= applied || begins <= INITIAL_POSITION.index {
            return Ok(None);
        }
        let complete = fs::read_to_string(self.incoming(group).join("complete"));
        let complete = complete.ok().and_then(|text| text.parse::<u64>().ok());
        if complete == Some(begins) {
            return Ok(Some(self.files(group)));
        }
        Err(EngineError::Damaged(format!(
            "the log of group {group} begins at {begins}, but only {applied} entries are applied"
        )))
    }

    /// Fetches a snapshot of an index, chunk by chunk: of a file from an offset on, or the list of
    /// files.
    pub fn fetch(
        &self,
        group: GroupId,
        index: u64,
        chunk: impl Fn(Option<(String, u64)>) -> io::Result<Bytes>,
    ) -> io::Result<()> {
        let files = self.files(group);
        self.discard(group);
        fs::create_dir_all(&files)?;
        let listed: Vec<SnapshotFile> =
            rmp_serde::from_slice(&chunk(None)?).map_err(io::Error::other)?;
        for SnapshotFile { name, bytes } in listed {
            check_name(&name)?;
            let mut file = File::create(files.join(&name))?;
            let mut offset = 0;
            while offset < bytes {
                let piece = chunk(Some((name.clone(), offset)))?;
                if piece.is_empty() || piece.len() as u64 > bytes - offset {
                    return Err(io::Error::other(format!(
                        "'{name}' is not as long as it was"
                    )));
                }
                file.write_all(&piece)?;
                offset += piece.len() as u64;
            }
            file.sync_all()?;
        }
        File::open(&files)?.sync_all()?;
        let incoming = self.incoming(group);
        let mut complete = File::create(incoming.join("complete"))?;
        complete.write_all(index.to_string().as_bytes())?;
        complete.sync_all()?;
        File::open(&incoming)?.sync_all()?;
        File::open(self.folder.join("in"))?.sync_all()
    }
}

/// Fails if a name leads out of the folder.
fn check_name(name: &str) -> io::Result<()> {
    if name.contains(['/', '\\']) || name.starts_with("..") {
        return Err(io::Error::other(format!(
            "a snapshot has no file of the name '{name}'"
        )));
    }
    Ok(())
}

/// Returns the encoded list of the files.
fn list(folder: &Path) -> io::Result<Vec<u8>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push(SnapshotFile {
            name: entry.file_name().to_string_lossy().into_owned(),
            bytes: entry.metadata()?.len(),
        });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    rmp_serde::to_vec(&files).map_err(io::Error::other)
}

fn read(folder: &Path, name: &str, offset: u64) -> io::Result<Vec<u8>> {
    check_name(name)?;
    let mut file = File::open(folder.join(name))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut chunk = Vec::new();
    file.take(CHUNK_BYTES as u64).read_to_end(&mut chunk)?;
    Ok(chunk)
}
