//! Copies of state machines on their way between nodes. A leader offers a copy as a folder of files; a follower fetches them piece by piece, and takes the copy for its own
//! state when its log says so.
//!
//! | path below the folder | what |
//! | --- | --- |
//! | `out/<group>-<id>/` | a copy that others may fetch; gone after a restart |
//! | `in/<group>/files/` | a copy that is being fetched, or is to be installed |
//! | `in/<group>/complete` | the index that it is of, as text: there when all files are, durably |
//!
//! The log decides: it is restarted behind the copy's index only when the copy is complete, and from then on the copy is the state of the group, whether the node
//! lives to install it or does so at its next start.

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
    GroupId, NodeId,
    calls::Calls,
    group_log::{BEGINNING, LogDisk},
    links::Links,
    parcel::{Piece, Question},
};
use crate::store::EngineError;

/// What is fetched at a time.
const PIECE_BYTES: usize = 1024 * 1024;
/// A copy that nobody has read from for so long is removed.
const IDLE_MAX: Duration = Duration::from_secs(10);

pub struct Snapshots {
    folder: PathBuf,
    disk: Arc<dyn LogDisk>,
    /// When copies were last read.
    offered: Mutex<HashMap<(GroupId, u64), Instant>>,
}

/// A file of a copy and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Listed {
    name: String,
    bytes: u64,
}

impl Snapshots {
    /// What was offered before the start is forgotten.
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
            offered: Mutex::default(),
        })
    }

    fn offered(&self) -> MutexGuard<'_, HashMap<(GroupId, u64), Instant>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a copy that is offered lies.
    pub fn outgoing(&self, group: GroupId, id: u64) -> PathBuf {
        self.folder.join("out").join(format!("{group}-{id}"))
    }

    /// A copy lies there, for everybody who asks.
    pub fn offer(&self, group: GroupId, id: u64) {
        self.offered().insert((group, id), Instant::now());
    }

    /// Removes copies that nobody reads any more; which.
    pub fn take_idle(&self) -> Vec<(GroupId, u64)> {
        let mut offered = self.offered();
        let idle = offered.extract_if(|_, read| read.elapsed() > IDLE_MAX);
        let idle: Vec<_> = idle.map(|(copy, _)| copy).collect();
        for (group, id) in &idle {
            let _ = fs::remove_dir_all(self.outgoing(*group, *id));
        }
        idle
    }

    /// Answers a node that fetches. Waits for the disk. An empty answer: there is no such copy.
    pub fn answer(&self, piece: &Piece) -> Bytes {
        let Piece { group, id, file } = piece;
        match self.offered().get_mut(&(*group, *id)) {
            Some(read) => *read = Instant::now(),
            None => return Bytes::new(),
        }
        let folder = self.outgoing(*group, *id);
        let answered = match file {
            None => list(&folder),
            Some((name, offset)) => read(&folder, name, *offset),
        };
        let answer = answered.ok().and_then(|answer| match answer {
            Answer::Files(files) => rmp_serde::to_vec(&files).ok(),
            Answer::Piece(piece) => Some(piece),
        });
        answer.unwrap_or_default().into()
    }

    fn incoming(&self, group: GroupId) -> PathBuf {
        self.folder.join("in").join(group.to_string())
    }

    /// The files of a copy that was fetched.
    pub fn files(&self, group: GroupId) -> PathBuf {
        self.incoming(group).join("files")
    }

    /// Whether a copy of a group was fetched and not installed.
    pub fn has_fetched(&self, group: GroupId) -> bool {
        self.incoming(group).join("complete").exists()
    }

    /// Forgets what was fetched of a group.
    pub fn discard(&self, group: GroupId) {
        let _ = fs::remove_dir_all(self.incoming(group));
    }

    /// The files that a state machine must be replaced with before it takes part, because its log goes on from them.
    pub fn pending(&self, group: GroupId, applied: u64) -> Result<Option<PathBuf>, EngineError> {
        let kept = self.disk.load(group)?;
        let begins = kept.map_or(0, |kept| kept.truncated.index);
        if begins <= applied || begins <= BEGINNING.index {
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

    /// Fetches a copy from the node that offers it. Waits for that node and the disk.
    pub fn fetch(&self, from: &Source, group: GroupId, id: u64, index: u64) -> io::Result<()> {
        let files = self.files(group);
        self.discard(group);
        fs::create_dir_all(&files)?;
        let ask = |file| from.ask(Piece { group, id, file });
        let listed: Vec<Listed> = rmp_serde::from_slice(&ask(None)?).map_err(io::Error::other)?;
        for Listed { name, bytes } in listed {
            if name.contains(['/', '\\']) || name.starts_with("..") {
                return Err(io::Error::other(format!("a copy has a file '{name}'")));
            }
            let mut file = File::create(files.join(&name))?;
            let mut offset = 0;
            while offset < bytes {
                let piece = ask(Some((name.clone(), offset)))?;
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

/// The node that a copy is fetched from.
pub struct Source {
    pub node: NodeId,
    pub links: Arc<Links>,
    pub calls: Arc<Calls>,
}

impl Source {
    /// Asks and waits; for a thread of its own.
    fn ask(&self, piece: Piece) -> io::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let question = Question::Snapshot(piece);
        let asked = runtime.block_on(self.calls.ask(&self.links, self.node, question));
        let answer = asked.map_err(|_| io::Error::other("the node does not answer"))?;
        if answer.is_empty() {
            return Err(io::Error::other(
                "the node does not offer the copy any more",
            ));
        }
        Ok(answer)
    }
}

enum Answer {
    Files(Vec<Listed>),
    Piece(Vec<u8>),
}

fn list(folder: &Path) -> io::Result<Answer> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        files.push(Listed {
            name: entry.file_name().to_string_lossy().into_owned(),
            bytes: entry.metadata()?.len(),
        });
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Answer::Files(files))
}

fn read(folder: &Path, name: &str, offset: u64) -> io::Result<Answer> {
    if name.contains(['/', '\\']) || name.starts_with("..") {
        return Err(io::Error::other("a file elsewhere"));
    }
    let mut file = File::open(folder.join(name))?;
    file.seek(SeekFrom::Start(offset))?;
    let mut piece = Vec::new();
    file.take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
    Ok(Answer::Piece(piece))
}
