//! Verifies an engine's files without changing any of them.

use std::{fmt, path::Path};

use rocksdb::{ColumnFamilyDescriptor, DB, IteratorMode, LogLevel, Options, ReadOptions};

use super::{
    EngineError, engine, seal,
    wal_check::{self, Expected},
};

/// What was found in an engine that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    pub sealed: bool,
    pub torn_bytes: u64,
    pub entries: u64,
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stop = if self.sealed {
            "a clean stop"
        } else {
            "a crash"
        };
        write!(f, "{} entries, after {stop}", self.entries)?;
        if self.torn_bytes > 0 {
            write!(f, ", {} bytes of unfinished writes", self.torn_bytes)?;
        }
        Ok(())
    }
}

/// Does what an opening does before it changes anything, then reads every block of every file.
/// RocksDB writes its log into `scratch`.
pub fn engine(
    folder: &Path,
    scratch: &Path,
    sequence: u64,
    has_raft_log: bool,
) -> Result<Verified, EngineError> {
    engine::check_exists(folder)?;
    let sealed = seal::verify(folder)?;
    let expected = Expected {
        sequence,
        has_raft_log,
    };
    let found = wal_check::check(folder, expected)?;
    let mut options = Options::default();
    options.set_db_log_dir(scratch);
    options.set_log_level(LogLevel::Fatal);
    options.set_max_open_files(256);
    let family = ColumnFamilyDescriptor::new("default", options.clone());
    let db = DB::open_cf_descriptors_read_only(&options, folder, [family], false)?;
    if db.latest_sequence_number() < sequence {
        return Err(wal_check::short(db.latest_sequence_number(), sequence));
    }
    let mut reading = ReadOptions::default();
    reading.set_verify_checksums(true);
    reading.fill_cache(false);
    reading.set_readahead_size(2 * 1024 * 1024);
    let mut entries = 0;
    for entry in db.iterator_opt(IteratorMode::Start, reading) {
        entry?;
        entries += 1;
    }
    Ok(Verified {
        sealed,
        torn_bytes: found.torn_bytes,
        entries,
    })
}
