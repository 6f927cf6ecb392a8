//! The threads that rewrite files: what they leave out, and that they give way to those who answer.

use std::{ffi::CStr, sync::Arc};

use rocksdb::{
    CompactionDecision,
    compaction_filter::CompactionFilter,
    compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory},
};

use super::engine::ExpiryHorizon;

/// How much they give way. A thread of the usual priority that wants the same core gets about nine tenths of it; when nobody does, nothing changes.
/// The rest is left to them, because files that are never rewritten stop the writers in the end.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Makes a sweeper for each rewriting of files, on the thread that does it.
pub struct Sweepers(pub Arc<ExpiryHorizon>);

impl CompactionFilterFactory for Sweepers {
    type Filter = Sweeper;

    fn create(&mut self, _: CompactionFilterContext) -> Sweeper {
        give_way();
        Sweeper(Arc::clone(&self.0))
    }

    fn name(&self) -> &CStr {
        c"expired index entries"
    }
}

/// Leaves out the entries of dead items.
pub struct Sweeper(Arc<ExpiryHorizon>);

impl CompactionFilter for Sweeper {
    fn filter(&mut self, _: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        self.0.judge(key, value)
    }

    fn name(&self) -> &CStr {
        c"expired index entries"
    }
}

/// Lowers the priority of this thread. On Linux only: elsewhere priorities belong to processes.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        // Refused to nobody; and if it were, files would be rewritten all the same.
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}
