//! Sizes of the engines of one node.

/// Block cache and write buffers of an engine that is opened without a node around it.
const BLOCK_CACHE_MB: u64 = 16;
const WRITE_BUFFER_MB: u64 = 16;
const WAL_MB_MAX: u64 = 256;

/// Memory and disk space of all engines of a node together. The node fills it from its settings;
/// the defaults are small, for offline commands and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for blocks that were read.
    pub block_cache_mb: u64,
    /// Memory for writes that are in no SST file yet.
    pub write_buffer_mb: u64,
    /// Size of a WAL above which write buffers are flushed.
    pub wal_mb_max: u64,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            block_cache_mb: BLOCK_CACHE_MB,
            write_buffer_mb: WRITE_BUFFER_MB,
            wal_mb_max: WAL_MB_MAX,
        }
    }
}
