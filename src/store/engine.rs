//! The engine of one shard: RocksDB behind a small interface.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use rocksdb::{
    ColumnFamilyDescriptor, DB, DBPinnableSlice, ReadOptions, WriteBatch, WriteOptions,
    checkpoint::Checkpoint,
};
use tracing::warn;

pub use super::scan::{Entry, Pinned, Scan, Snapshot};
use super::{
    damage::Damage,
    error::EngineError,
    expiry_filter::ExpiryFilterFactory,
    options::{FAMILY, MEMTABLE_BLOOM_SHARE, SharedResources},
    reserve::Reserve,
    seal,
    wal_check::{self, Expected},
};
use crate::expiry::ExpiryHorizon;

/// SST files of a small shard above which they become one when it is opened: each is a descriptor.
const SMALL_FILES_MAX: usize = 2;
/// How far the engine reads ahead when a lane or a feed is walked.
const SCAN_READAHEAD_BYTES: usize = 128 * 1024;
/// Room that a disk must have before it is trusted again.
const PROBE_BYTES: usize = 4 * 1024 * 1024;
/// A shard with more than this in its files, or written since it was opened, has grown.
const GROWN_BYTES: u64 = 1024 * 1024;

/// Returns whether a folder holds more than a small shard does.
fn has_grown(folder: &Path) -> io::Result<bool> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|one| one == "sst") {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes > GROWN_BYTES)
}

/// Changes that become visible and durable together.
#[derive(Default)]
pub struct Batch(WriteBatch);

impl Batch {
    /// With room for about this many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(WriteBatch::with_capacity_bytes(bytes))
    }

    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.0.put(key, value);
    }

    pub fn delete(&mut self, key: impl AsRef<[u8]>) {
        self.0.delete(key);
    }

    /// Removes all keys with `from <= key < to`.
    pub fn delete_range(&mut self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        self.0.delete_range(from.as_ref(), to.as_ref());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

/// When a write returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After the fsync of the WAL.
    Synced,
    /// At once; the next synced write makes it durable too.
    Buffered,
}

/// The engine of one shard.
pub struct Engine {
    db: DB,
    folder: PathBuf,
    torn_bytes: u64,
    /// The last sequence number that is durable, as far as is known.
    durable: Arc<AtomicU64>,
    /// Bytes that are still to be written until the shard is not small any more.
    small_bytes_left: AtomicU64,
    /// The folder is sealed: nothing is written any more.
    sealed: AtomicBool,
    damage: Damage,
    synced: WriteOptions,
    buffered: WriteOptions,
    /// Made once: a point read is short.
    reading: ReadOptions,
    /// What compaction drops.
    pub horizon: Arc<ExpiryHorizon>,
    /// What is set aside on the disk for purging.
    pub reserve: Arc<Reserve>,
}

impl Engine {
    /// Opens an engine, or makes it.
    pub fn open(folder: &Path, shared: &SharedResources) -> Result<Self, EngineError> {
        fs::create_dir_all(folder)?;
        check_complete(folder)?;
        Self::verify_and_open(folder, shared, Expected::default())
    }

    /// Opens an engine that is there, and has what is expected of it.
    pub fn open_existing(
        folder: &Path,
        shared: &SharedResources,
        expected: Expected,
    ) -> Result<Self, EngineError> {
        check_exists(folder)?;
        Self::verify_and_open(folder, shared, expected)
    }

    fn verify_and_open(
        folder: &Path,
        shared: &SharedResources,
        expected: Expected,
    ) -> Result<Self, EngineError> {
        // RocksDB deletes files that it does not know: whatever is to be noticed is noticed before.
        seal::break_open(folder)?;
        let found = wal_check::check(folder, expected)?;
        let horizon = Arc::new(ExpiryHorizon::default());
        let grown = has_grown(folder)?;
        let mut options = shared.options(folder, grown);
        // A folder without CURRENT has no data: `check_complete`, `check_exists`.
        options.create_if_missing(true);
        options.set_compaction_filter_factory(ExpiryFilterFactory(Arc::clone(&horizon)));
        // Named, because lookups of several keys ask for it.
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let db = DB::open_cf_descriptors(&options, folder, [family])?;
        let recovered = db.latest_sequence_number();
        if recovered < expected.sequence {
            return Err(wal_check::short(recovered, expected.sequence));
        }
        let files = db.live_files()?.len();
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let engine = Self {
            db,
            folder: folder.to_owned(),
            torn_bytes: found.torn_bytes,
            durable: Arc::new(AtomicU64::new(expected.sequence)),
            small_bytes_left: AtomicU64::new(if grown { 0 } else { GROWN_BYTES }),
            sealed: AtomicBool::new(false),
            damage: Damage::new(folder.to_owned()),
            synced,
            buffered: WriteOptions::default(),
            reading: ReadOptions::default(),
            horizon,
            reserve: Arc::clone(shared.reserve()),
        };
        if !grown
            && files > SMALL_FILES_MAX
            && let Err(failure) = engine.compact(None, None)
        {
            // What can be read is read all the same.
            warn!(folder = %folder.display(), %failure, "the files of a small shard do not become one");
        }
        Ok(engine)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the bytes of an unfinished record that a crash left at the WAL's end and that were
    /// dropped.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Damage that was met since the engine was opened.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// Returns the last sequence number that is durable, as far as is known; it only goes up.
    pub fn durable(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.durable)
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'_>>, EngineError> {
        let found = self.db.get_pinned_opt(key, &self.reading);
        found.map_err(|failure| self.damage.note(failure))
    }

    pub fn write(&self, batch: Batch, durability: Durability) -> Result<(), EngineError> {
        if self.sealed.load(Ordering::Relaxed) {
            return Err(EngineError::Io("the engine is closed".into()));
        }
        self.note_growth(batch.bytes() as u64);
        let note = |failure| self.damage.note(failure);
        match durability {
            Durability::Buffered => self.db.write_opt(batch.0, &self.buffered).map_err(note),
            Durability::Synced => {
                // Whatever has a number up to this one is in the WAL before the sync, whoever else
                // writes meanwhile: this batch, or others before it.
                let last = self.db.latest_sequence_number() + batch.0.len() as u64;
                self.db.write_opt(batch.0, &self.synced).map_err(note)?;
                self.durable.fetch_max(last, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Counts what a small shard is written until it has grown: its next write buffers get a larger
    /// filter.
    fn note_growth(&self, bytes: u64) {
        let left = self.small_bytes_left.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        let after = left.saturating_sub(bytes);
        self.small_bytes_left.store(after, Ordering::Relaxed);
        if after > 0 {
            return;
        }
        let share = MEMTABLE_BLOOM_SHARE.to_string();
        let set = [("memtable_prefix_bloom_size_ratio", share.as_str())];
        if let Err(failure) = self.db.set_options(&set) {
            warn!(folder = %self.folder.display(), %failure, "write buffers keep a small filter");
        }
    }

    /// Returns the entries with `from <= key < to`, in key order, as of now.
    pub fn scan(&self, from: &[u8], to: &[u8]) -> Scan<'_> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(to);
        options.set_readahead_size(SCAN_READAHEAD_BYTES);
        let mut iterator = self.db.raw_iterator_opt(options);
        iterator.seek(from);
        Scan {
            iterator,
            damage: &self.damage,
        }
    }

    /// Returns all that is committed, as of now.
    pub fn snapshot(&self) -> Snapshot<'_> {
        let moment = self.db.snapshot();
        let mut options = ReadOptions::default();
        options.set_snapshot(&moment);
        Snapshot {
            db: &self.db,
            damage: &self.damage,
            options,
            moment,
        }
    }

    /// Makes an engine of its own in a folder that is not there yet, with all that is in this one
    /// now. Files are shared by hard links.
    pub fn checkpoint(&self, folder: &Path) -> Result<(), EngineError> {
        Ok(Checkpoint::new(&self.db)?.create_checkpoint(folder)?)
    }

    /// Returns about how many bytes of SST files a range of keys takes.
    pub fn approximate_bytes(&self, from: &[u8], to: &[u8]) -> u64 {
        let sizes = self
            .db
            .get_approximate_sizes(&[rocksdb::Range::new(from, to)]);
        sizes.first().copied().unwrap_or(0)
    }

    /// Rewrites the files of a range so that what was deleted leaves the disk; `None`: without a bound.
    pub fn compact(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> Result<(), EngineError> {
        let errors = || self.property("rocksdb.background-errors");
        let before = errors();
        self.db.compact_range(from, to);
        if errors() == before {
            return Ok(());
        }
        // RocksDB keeps the outcome to itself, but says to whoever flushes why it takes no writes any more. From a full disk alone it
        // recovers without a word.
        self.flush()?;
        Err(EngineError::Full("files could not be rewritten".to_owned()))
    }

    /// Hands the write buffer to the disk, so that the next start has no WAL to replay.
    pub fn flush(&self) -> Result<(), EngineError> {
        let last = self.db.latest_sequence_number();
        self.db
            .flush()
            .map_err(|failure| self.damage.note(failure))?;
        self.durable.fetch_max(last, Ordering::Release);
        Ok(())
    }

    /// Hands all to the disk, ends background work and seals the folder: nothing is written any
    /// more, and the next start compares the files with what they were.
    pub fn seal(&self) -> Result<(), EngineError> {
        self.sealed.store(true, Ordering::SeqCst);
        let flushed = self.flush();
        // The end of the node waits for no compaction.
        self.halt();
        flushed?;
        let tables = self.db.live_files()?;
        let name = |path: &str| path.trim_start_matches('/').to_owned();
        let tables: Vec<String> = tables.iter().map(|file| name(&file.name)).collect();
        seal::write(&self.folder, &tables)
    }

    /// Ends compaction and whatever else the engine does on its own. Nothing can be flushed after
    /// that.
    pub fn halt(&self) {
        self.db.cancel_all_background_work(true);
    }

    /// Tries whether the disk has room, with a file of its own: an engine that met a full disk
    /// takes no writes until it is reopened.
    pub fn probe(&self) -> Result<(), EngineError> {
        let path = self.folder.join("probe");
        let mut file = fs::File::create(&path)?;
        let written = file
            .write_all(&vec![0; PROBE_BYTES])
            .and_then(|()| file.sync_all());
        fs::remove_file(&path)?;
        Ok(written?)
    }

    /// Returns the bytes on disk in SST files.
    pub fn disk_bytes(&self) -> u64 {
        self.property("rocksdb.total-sst-files-size")
    }

    /// Returns the bytes of the write buffers in memory.
    pub fn buffer_bytes(&self) -> u64 {
        self.property("rocksdb.cur-size-all-mem-tables")
    }

    fn property(&self, name: &str) -> u64 {
        let value = self.db.property_int_value(name);
        value.ok().flatten().unwrap_or(0)
    }

    /// Returns the bytes of the WAL on disk; files that go while they are counted do not count.
    pub fn wal_bytes(&self) -> u64 {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return 0;
        };
        let wals = entries.flatten().filter(|entry| {
            let path = entry.path();
            path.extension().is_some_and(|extension| extension == "log")
        });
        wals.filter_map(|wal| Some(wal.metadata().ok()?.len()))
            .sum()
    }
}

/// RocksDB takes a folder without `CURRENT` for a new one, and removes what else is in it. That
/// file is the first of a new folder that data can depend on, so where there is data without it, it
/// was lost.
pub fn check_complete(folder: &Path) -> Result<(), EngineError> {
    if folder.join("CURRENT").try_exists()? {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "sst" || extension == "log")
        {
            return Err(EngineError::Damaged(format!(
                "there is {} but no file CURRENT",
                path.display()
            )));
        }
    }
    Ok(())
}

/// An engine is only made with its container or its part: one that should be there and is not was
/// lost.
pub fn check_exists(folder: &Path) -> Result<(), EngineError> {
    if is_blank(folder)? {
        return Err(EngineError::Damaged(format!(
            "the folder {} is missing or empty",
            folder.display()
        )));
    }
    Ok(())
}

/// Returns whether a folder has no engine: it is not there, or was never filled.
pub fn is_blank(folder: &Path) -> Result<bool, EngineError> {
    // What cannot be looked at may be there.
    if !folder.try_exists()? {
        return Ok(true);
    }
    check_complete(folder)?;
    Ok(!folder.join("CURRENT").try_exists()?)
}

#[cfg(test)]
mod tests {
    use super::{super::log_format::tests::record, *};
    use crate::store::EngineOptions;

    fn resources() -> SharedResources {
        SharedResources::new(EngineOptions {
            block_cache_mb: 8,
            write_buffer_mb: 16,
            ..EngineOptions::default()
        })
    }

    fn put(engine: &Engine, key: u8, bytes: usize) {
        let mut batch = Batch::default();
        batch.put([key], vec![key; bytes]);
        engine.write(batch, Durability::Synced).unwrap();
    }

    /// Returns the bytes of disk blocks that the files of a folder take.
    fn disk_bytes(folder: &Path) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let entries = fs::read_dir(folder).unwrap();
        let blocks = entries.map(|entry| entry.unwrap().metadata().unwrap().blocks());
        blocks.sum::<u64>() * 512
    }

    #[test]
    fn a_small_engine_takes_less_than_a_megabyte_and_keeps_no_log_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        put(&engine, 1, 1_000);
        let bytes = disk_bytes(folder.path());
        assert!(bytes < 512 * 1024, "{bytes} bytes");
        assert!(!folder.path().join("LOG").exists());
    }

    #[test]
    fn many_idle_engines_do_not_make_each_other_flush() {
        let folder = tempfile::tempdir().unwrap();
        let shared = resources();
        let engines: Vec<_> = (0..150)
            .map(|number| Engine::open(&folder.path().join(number.to_string()), &shared).unwrap())
            .collect();
        for _ in 0..2 {
            engines.iter().for_each(|engine| put(engine, 1, 100));
        }
        let flushed = engines.iter().filter(|engine| engine.disk_bytes() > 0);
        assert_eq!(flushed.count(), 0);
    }

    #[test]
    fn a_last_record_of_full_length_whose_contents_a_power_cut_has_taken_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        put(&engine, 1, 1_000);
        drop(engine);
        let wals = wal_check::wals(folder.path()).unwrap();
        let (_, wal) = wals.last_key_value().unwrap();
        let mut contents = fs::read(wal).unwrap();
        let mut last = record(1, &[7; 600]);
        last[40..].fill(0);
        contents.extend_from_slice(&last);
        fs::write(wal, contents).unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        assert_eq!(engine.torn_bytes(), last.len() as u64);
        assert_eq!(engine.get(&[1]).unwrap().unwrap().as_ref(), [1; 1_000]);
    }

    #[test]
    fn stops_leave_a_small_engine_with_few_files() {
        let folder = tempfile::tempdir().unwrap();
        for round in 1..=6 {
            let engine = Engine::open(folder.path(), &resources()).unwrap();
            let files = engine.db.live_files().unwrap().len();
            assert!(files <= SMALL_FILES_MAX, "{files} files in round {round}");
            put(&engine, round, 1_000);
            engine.seal().unwrap();
        }
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        for round in 1..=6 {
            assert_eq!(
                engine.get(&[round]).unwrap().unwrap().as_ref(),
                [round; 1_000]
            );
        }
    }

    #[test]
    fn damage_that_is_met_when_the_files_of_a_small_engine_become_one_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let files = u8::try_from(SMALL_FILES_MAX).unwrap() + 1;
        for round in 1..=files {
            let engine = Engine::open(folder.path(), &resources()).unwrap();
            put(&engine, round, 20_000);
            engine.seal().unwrap();
        }
        let entries = fs::read_dir(folder.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let ssts = paths.filter(|path| path.extension().is_some_and(|one| one == "sst"));
        let oldest = ssts.min().unwrap();
        let mut contents = fs::read(&oldest).unwrap();
        contents[10_000] ^= 1;
        fs::write(&oldest, contents).unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        assert_eq!(engine.damage().damaged.count(), 1);
        assert_eq!(engine.get(&[files]).unwrap().unwrap().len(), 20_000);
        assert!(engine.get(&[1]).is_err());
    }

    #[test]
    fn an_engine_that_grows_gets_a_larger_filter_and_keeps_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        put(&engine, 1, 600 * 1024);
        assert!(engine.small_bytes_left.load(Ordering::Relaxed) > 0);
        put(&engine, 2, 600 * 1024);
        assert_eq!(engine.small_bytes_left.load(Ordering::Relaxed), 0);
        put(&engine, 3, 1_000);
        engine.seal().unwrap();
        drop(engine);
        assert!(has_grown(folder.path()).unwrap());
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        assert_eq!(engine.get(&[1]).unwrap().unwrap().len(), 600 * 1024);
    }
}
