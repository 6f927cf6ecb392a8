//! Failures of an engine.

use std::{fmt, io};

/// A failure of the engine, by what must be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The disk is full: heals when there is room.
    Full(String),
    /// The process or the system is out of file descriptors: heals when there are some.
    Exhausted(String),
    /// The disk or the file system failed: what was being written may or may not be there.
    Io(String),
    /// The files are damaged.
    Damaged(String),
    /// The folder is in use by another process.
    InUse(String),
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(message) => write!(f, "the disk is full: {message}"),
            Self::Exhausted(message) => write!(f, "no file descriptor is left: {message}"),
            Self::Io(message) => write!(f, "the disk failed: {message}"),
            Self::Damaged(message) => write!(f, "the files are damaged: {message}"),
            Self::InUse(message) => write!(f, "the data folder is in use: {message}"),
        }
    }
}

impl EngineError {
    /// Returns whether the engine was told before it wrote anything, so that it can go on when
    /// there is room, or a descriptor.
    pub fn heals(&self) -> bool {
        match self {
            Self::Full(_) | Self::Exhausted(_) => true,
            Self::Io(_) | Self::Damaged(_) | Self::InUse(_) => false,
        }
    }
}

impl std::error::Error for EngineError {}

type Failure = fn(String) -> EngineError;

/// What RocksDB's message says, where its error kind says too little: the crate passes no subcode
/// on. The text goes before the kind, because RocksDB may wrap what the system said in an error of
/// another kind.
const BY_TEXT: [(&str, Failure); 5] = [
    ("No space left on device", EngineError::Full),
    ("Disk quota exceeded", EngineError::Full),
    // Of the process, or of the whole system.
    ("Too many open files", EngineError::Exhausted),
    ("lock hold by current process", EngineError::InUse),
    ("While lock file", EngineError::InUse),
];

impl From<rocksdb::Error> for EngineError {
    fn from(error: rocksdb::Error) -> Self {
        let (kind, message) = (error.kind(), error.into_string());
        let by_text = BY_TEXT.iter().find(|(text, _)| message.contains(text));
        if let Some((_, failure)) = by_text {
            return failure(message);
        }
        match kind {
            rocksdb::ErrorKind::Corruption
            | rocksdb::ErrorKind::NotSupported
            | rocksdb::ErrorKind::InvalidArgument => Self::Damaged(message),
            _ => Self::Io(message),
        }
    }
}

impl From<io::Error> for EngineError {
    fn from(error: io::Error) -> Self {
        let exhausted = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        let is_exhausted = exhausted
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full(error.to_string())
            }
            _ if is_exhausted => Self::Exhausted(error.to_string()),
            _ => Self::Io(error.to_string()),
        }
    }
}
