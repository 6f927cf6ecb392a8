//! Groups of commands that are committed together, and the clients that wait for them.

use tokio::sync::oneshot;

use crate::{
    model::error::{Error, Result},
    shard::{
        decide::transaction::Done,
        state::command::{Command, Purge},
    },
};

/// Everything that arrived while the last group was being committed.
#[derive(Default)]
pub struct Group {
    pub number: u64,
    pub commands: Vec<Command>,
    pub purge: Purge,
    pub waiting: Vec<Waiting>,
    /// Of the commands in log entries.
    pub(in crate::shard) bytes: usize,
}

/// Bytes of commands in one group. Requests beyond it stay in the write queue, which is
/// bounded, until the group before is committed.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Group {
    pub fn push(&mut self, command: Command) {
        self.bytes += command.entry_bytes();
        self.commands.push(command);
    }

    /// Returns whether no more requests are decided for it.
    pub fn is_full(&self) -> bool {
        self.bytes >= GROUP_BYTES_MAX
    }

    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.purge.is_empty() && self.waiting.is_empty()
    }
}

/// A client that is told when its group is durable.
pub struct Waiting {
    pub reply: oneshot::Sender<Result<Reply>>,
    pub results: Vec<Result<Done>>,
    pub lsn: u64,
    pub range_id: u32,
}

/// The answer to a request for changes.
#[derive(Debug)]
pub struct Reply {
    pub results: Vec<Result<Done>>,
    /// The LSN of the transaction, or of the last one when nothing was changed.
    pub lsn: u64,
    /// The range that decided: another than the one that was asked when that was split meanwhile.
    pub range_id: u32,
}

impl Waiting {
    pub fn succeed(self) {
        // A client that has gone away does not need its answer.
        let _ = self.reply.send(Ok(Reply {
            results: self.results,
            lsn: self.lsn,
            range_id: self.range_id,
        }));
    }

    pub fn fail(self, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}
