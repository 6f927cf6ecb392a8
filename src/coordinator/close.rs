//! The end of all shards of a node, and what could not be written then.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::prelude::*;
use futures_util::future::join_all;
use tracing::warn;

use super::Coordinator;
use crate::shard::host::ShardHandle;

/// Finishes what every shard has accepted and lets go of the files.
#[derive(Message)]
#[rtype(result = "()")]
pub struct CloseAll {
    pub report: Arc<CloseReport>,
}

/// How far the shards have come that were open when the node was told to stop.
#[derive(Default)]
pub struct CloseReport(Mutex<BTreeMap<PathBuf, Progress>>);

enum Progress {
    /// In-flight commits, or the flush of the memtable, have not ended.
    Closing,
    Closed,
    /// The memtable could not be flushed.
    Unflushed(String),
}

impl CloseReport {
    fn shards(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Progress>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, folder: PathBuf, progress: Progress) {
        self.shards().insert(folder, progress);
    }

    /// Logs the shards whose memtable was not flushed, and what that means. Those that are gone are worse off.
    pub fn log_unfinished(&self, gone: &[PathBuf]) {
        let shards = self.shards();
        for (folder, progress) in shards.iter().filter(|(folder, _)| !gone.contains(folder)) {
            let reason = match progress {
                Progress::Closed => continue,
                Progress::Closing => "the disk has not answered in time",
                Progress::Unflushed(failure) => failure,
            };
            warn!(
                shard = %folder.display(), reason,
                "the memtable was not flushed; the journal has every acknowledged write, and the next start replays it"
            );
        }
    }

    /// Returns the folders that are not there any more.
    pub fn gone(&self) -> Vec<PathBuf> {
        let folders: Vec<PathBuf> = self.shards().keys().cloned().collect();
        let is_gone = |folder: &PathBuf| matches!(folder.join("CURRENT").try_exists(), Ok(false));
        folders.into_iter().filter(is_gone).collect()
    }
}

impl Handler<CloseAll> for Coordinator {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, request: CloseAll, _: &mut Self::Context) -> Self::Result {
        self.host.openings().stop();
        let shards = self.shards.drain().flat_map(|(_, shards)| shards);
        let shards: Vec<_> = shards.flat_map(|shard| shard.with_parts()).collect();
        Box::pin(async move {
            let report = &request.report;
            join_all(shards.iter().map(|shard| close(shard, report))).await;
        })
    }
}

async fn close(shard: &ShardHandle, report: &CloseReport) {
    shard.end_opening().await;
    let folder = shard
        .view()
        .ok()
        .map(|view| view.engine.folder().to_owned());
    if let Some(folder) = &folder {
        report.set(folder.clone(), Progress::Closing);
    }
    let closed = shard.close().await;
    if let Some(folder) = folder {
        let progress = match closed {
            Ok(()) => Progress::Closed,
            Err(failure) => Progress::Unflushed(failure.to_string()),
        };
        report.set(folder, progress);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_are_gone_are_named_whatever_has_become_of_their_shards() {
        let there = tempfile::tempdir().unwrap();
        std::fs::write(there.path().join("CURRENT"), "").unwrap();
        let gone = tempfile::tempdir().unwrap();
        let report = CloseReport::default();
        report.set(there.path().to_owned(), Progress::Closing);
        assert_eq!(report.gone(), Vec::<PathBuf>::new());
        for progress in [Progress::Closed, Progress::Unflushed("no room".to_owned())] {
            report.set(gone.path().to_owned(), progress);
            assert_eq!(report.gone(), [gone.path()]);
        }
    }
}
