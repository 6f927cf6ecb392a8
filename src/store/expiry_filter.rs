//! The compaction filter: index entries of dead items leave when files are compacted.

use std::{ffi::CStr, sync::Arc};

use rocksdb::{
    CompactionDecision,
    compaction_filter::CompactionFilter,
    compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory},
};

use super::{index_entry, keys};
use crate::expiry::ExpiryHorizon;

/// How much compaction threads give way. A thread of the usual priority that wants the same core
/// gets about nine tenths of it; when none does, nothing changes. The rest is left to them, because
/// files that are never compacted stop the writers in the end.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Makes a filter for each compaction, on the thread that does it.
pub struct ExpiryFilterFactory(pub Arc<ExpiryHorizon>);

impl CompactionFilterFactory for ExpiryFilterFactory {
    type Filter = ExpiryFilter;

    fn create(&mut self, _: CompactionFilterContext) -> ExpiryFilter {
        give_way();
        ExpiryFilter(Arc::clone(&self.0))
    }

    fn name(&self) -> &CStr {
        c"expired index entries"
    }
}

/// Leaves out the entries of dead items.
pub struct ExpiryFilter(Arc<ExpiryHorizon>);

impl CompactionFilter for ExpiryFilter {
    fn filter(&mut self, _: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        let dead = keys::expiry_bytes(key, value)
            .and_then(index_entry::decode)
            .is_some_and(|(ts, ttl)| self.0.is_dead(ts, ttl));
        match dead {
            true => CompactionDecision::Remove,
            false => CompactionDecision::Keep,
        }
    }

    fn name(&self) -> &CStr {
        c"expired index entries"
    }
}

/// Lowers the priority of this thread. On Linux only: elsewhere priorities belong to processes.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        // Refused to nobody; and if it were, files would be compacted all the same.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}
