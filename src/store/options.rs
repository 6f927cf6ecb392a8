//! How an engine is tuned, and what all engines of a node share.

use std::{path::Path, sync::Arc};

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, DataBlockIndexType, InfoLogger,
    LogLevel, Options, WriteBufferManager,
};
use tracing::warn;

use super::reserve::Reserve;

/// Bits a key in the bloom filters: about one false positive in a hundred.
const BLOOM_BITS_PER_KEY: f64 = 10.0;
/// The filter's share of a write buffer, of a shard that has grown.
pub(super) const MEMTABLE_BLOOM_SHARE: f64 = 0.02;
/// The same of a small shard: the filter is there before the first entry is, in every shard.
const MEMTABLE_BLOOM_SHARE_SMALL: f64 = 0.002;
/// Memory that a write buffer takes at a time. The buffers of all shards count against one bound,
/// and above it every write would be followed by a flush: with the engine's default of 1 MB from
/// about a hundred idle shards on.
const ARENA_BLOCK_BYTES: usize = 32 * 1024;
/// Disk space that a WAL takes at a time. The engine's default is more than a whole write buffer,
/// which a shard with one item has for nothing; an fsync takes as long with either.
const WAL_BLOCK_BYTES: usize = 256 * 1024;
/// The same of a MANIFEST, which the engine gives 4 MB.
const MANIFEST_BLOCK_BYTES: usize = 32 * 1024;
/// Small blocks: a point read decompresses one.
const BLOCK_BYTES: usize = 8 * 1024;
/// Every so many entries of a block a whole key is stored: a lookup steps over fewer than that.
/// Documents are few in a block, and with the engine's default of 16 a lookup would step over half
/// of them.
const RESTART_ENTRIES: i32 = 4;
/// A file in which half of any stretch of this many entries are deletions is compacted without
/// waiting for its turn.
const DELETION_WINDOW_ENTRIES: usize = 4096;

/// The block cache of the Raft log, as a part of that of the shards.
pub const RAFT_LOG_CACHE_PART: u64 = 8;
/// The block cache and the write buffers of an engine that is opened without a node around it.
const BLOCK_CACHE_MB_MIN: u64 = 16;
const WRITE_BUFFER_MB_MIN: u64 = 16;

/// The engine's only column family.
pub(super) const FAMILY: &str = "default";
/// Levels of SST files, the engine's default.
const LEVELS: usize = 7;
/// Full write buffers are written out while the next ones fill. Many small ones: where an entry
/// belongs in a buffer is found by jumps through all of it, and most of them stay within the
/// processor's caches. A create with twenty indexed properties takes a tenth less than with four
/// large ones.
const WRITE_BUFFERS_PER_SHARD: usize = 16;
/// Full write buffers that are written out as one file, so that there are few files.
const WRITE_BUFFERS_PER_FILE: i32 = 4;
/// L0 files are merged into all of the next one: the more at a time, the less often. Filters keep
/// lookups away from most of them.
const FIRST_LEVEL_FILES: i32 = 8;

fn mebibytes(count: u64) -> usize {
    usize::try_from(count.saturating_mul(1024 * 1024)).unwrap_or(usize::MAX)
}

/// How much the engines of a node may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for blocks that were read, shared by all engines; 0: little.
    pub block_cache_mb: u64,
    /// Memory for writes that are not in files yet, shared by all engines; 0: little.
    pub write_buffer_mb: u64,
    /// Size of a WAL above which write buffers are flushed: bounds the time of a restart.
    pub wal_mb_max: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            block_cache_mb: 0,
            write_buffer_mb: 0,
            wal_mb_max: 256,
        }
    }
}

/// What all engines of a node share: one block cache and one bound on write buffers.
#[derive(Clone)]
pub struct SharedResources {
    cache: Cache,
    write_buffers: WriteBufferManager,
    options: EngineOptions,
    reserve: Arc<Reserve>,
}

impl SharedResources {
    /// Sizes that are 0 follow from the memory; where nobody has worked that out, as in offline
    /// commands and tests, they are small.
    pub fn new(mut options: EngineOptions) -> Self {
        if options.block_cache_mb == 0 {
            options.block_cache_mb = BLOCK_CACHE_MB_MIN;
        }
        if options.write_buffer_mb == 0 {
            options.write_buffer_mb = WRITE_BUFFER_MB_MIN;
        }
        Self {
            // Lookups take no lock.
            cache: Cache::new_hyper_clock_cache(mebibytes(options.block_cache_mb), 0),
            write_buffers: WriteBufferManager::new_write_buffer_manager(
                mebibytes(options.write_buffer_mb),
                false,
            ),
            options,
            reserve: Arc::default(),
        }
    }

    /// For the Raft log, which is seldom read: most of its memory are write buffers.
    pub fn of_raft_log(options: EngineOptions) -> Self {
        Self::new(EngineOptions {
            block_cache_mb: (options.block_cache_mb / RAFT_LOG_CACHE_PART).max(1),
            ..options
        })
    }

    /// Adds disk space that is set aside for purging.
    pub fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        Self { reserve, ..self }
    }

    pub fn reserve(&self) -> &Arc<Reserve> {
        &self.reserve
    }

    /// Returns the options of an engine in a folder; `grown`: of one that is not small any more.
    pub(super) fn options(&self, folder: &Path, grown: bool) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_block_size(BLOCK_BYTES);
        table.set_block_restart_interval(RESTART_ENTRIES);
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        // Index and filters stay in memory beside the cache, about two bytes a key: a point read
        // looks the cache up once, not three times a file.
        table.set_cache_index_and_filter_blocks(false);
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_format_version(5);
        table.set_optimize_filters_for_memory(true);

        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_manager(&self.write_buffers);
        options.set_write_buffer_size(
            mebibytes(self.options.write_buffer_mb) / WRITE_BUFFERS_PER_SHARD,
        );
        options.set_max_write_buffer_number(WRITE_BUFFERS_PER_SHARD as i32);
        options.set_min_write_buffer_number_to_merge(WRITE_BUFFERS_PER_FILE);
        options.set_level_zero_file_num_compaction_trigger(FIRST_LEVEL_FILES);
        // Most creates ask for a key that is not there: the filter saves the search.
        options.set_memtable_prefix_bloom_ratio(match grown {
            true => MEMTABLE_BLOOM_SHARE,
            false => MEMTABLE_BLOOM_SHARE_SMALL,
        });
        options.set_arena_block_size(ARENA_BLOCK_BYTES);
        options.set_memtable_whole_key_filtering(true);
        // A shard has one writer at a time.
        options.set_allow_concurrent_memtable_write(false);
        options.set_max_total_wal_size(self.options.wal_mb_max * 1024 * 1024);
        // What is flushed first is compacted soon: compressing it would be done twice.
        let mut compression = [DBCompressionType::Lz4; LEVELS];
        compression[0] = DBCompressionType::None;
        options.set_compression_per_level(&compression);
        options.set_bottommost_compression_type(DBCompressionType::Lz4);
        options.set_max_background_jobs(2);
        options.set_bytes_per_sync(1024 * 1024);
        // The first bad record ends the WAL. `wal_check` has made sure that it is the tail which a
        // crash leaves: cut, or of full length with zeroes in it, because a file system may know a
        // file's size before it has its contents.
        options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
        // Whatever is purged leaves the disk soon: files full of deletions are compacted first.
        options.add_compact_on_deletion_collector_factory(
            DELETION_WINDOW_ENTRIES,
            DELETION_WINDOW_ENTRIES / 2,
            0.5,
        );
        // Beside a write buffer manager this bounds nothing but how much a WAL takes at a time.
        options.set_db_write_buffer_size(WAL_BLOCK_BYTES);
        options.set_manifest_preallocation_size(MANIFEST_BLOCK_BYTES);
        options.set_info_logger(logger(folder));
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }
}

/// Hands the warnings of an engine to the node's log: a file of its own for each would be a
/// descriptor more.
fn logger(folder: &Path) -> InfoLogger {
    let folder = folder.to_owned();
    InfoLogger::new_callback_logger(LogLevel::Warn, move |level, message| match level {
        LogLevel::Warn | LogLevel::Error | LogLevel::Fatal => {
            warn!(folder = %folder.display(), said = message.trim_end(), "the engine warns");
        }
        // Headers come whatever level is asked for: every option, at every opening.
        LogLevel::Debug | LogLevel::Info | LogLevel::Header => {}
    })
}
