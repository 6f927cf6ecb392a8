//! A split in a cluster is an entry of the parent's log, the last one that changes anything. Every
//! replica makes its parts when it comes to that entry, from exactly the same state, and takes part
//! in their groups from then on. What the catalog says of it comes later.
//!
//! The folder of a part has its name when the part is complete, durably, and only then may anybody
//! write to it: a crash before that makes it again, from the log or from the mark of the split, a
//! crash after it finds it. A replica that the log does not lead to the split any more is filled by
//! the parts' own snapshots.

use std::{
    slice,
    sync::{Arc, Weak},
};

use tracing::info;

use super::{ShardHandle, ShardHost};
use crate::{
    cluster::raft::log_disk::InitialState,
    model::{catalog::Cut, error::Result},
    shard::{
        actor::split::CommitSplit,
        commit::{self, view::ShardView},
        replica,
        state::{command::Command, facts::ShardFacts, split_mark},
    },
    store::{Engine, EngineError},
};

/// Returns how a replica begins: a child that was made here and has applied nothing yet begins with
/// the nodes that have made it, too.
pub(in crate::shard) fn beginning(
    engine: &Engine,
    begin: InitialState,
) -> Result<InitialState, EngineError> {
    match split_mark::origin(engine)?.filter(|_| begin == InitialState::Uninitialized) {
        Some(origin) if replica::applied(engine)? == 0 => Ok(InitialState::Bootstrap(origin)),
        _ => Ok(begin),
    }
}

/// Makes the parts of a shard if these commands, which were applied last, have split it.
pub(in crate::shard) fn follow(
    handle: &Weak<ShardHandle>,
    view: &ShardView,
    commands: &[Command],
) -> Result<(), EngineError> {
    match handle.upgrade() {
        Some(handle) if split_mark::is_asked_by(commands) => handle.part(view),
        _ => Ok(()),
    }
}

/// Returns what the parts of a shard know of themselves.
fn parts_of(parent: &ShardFacts, cut: &Cut) -> [ShardFacts; 2] {
    let [left, right] = parent.range.cut(&cut.at);
    let lineage = parent.parents.iter().copied().chain([parent.range_id]);
    let lineage: Vec<u32> = lineage.collect();
    let part = |range_id, range| ShardFacts {
        range_id,
        range,
        parents: lineage.clone(),
        ..parent.clone()
    };
    [part(cut.parts[0], left), part(cut.parts[1], right)]
}

/// Makes the parts of a shard where they are not there yet, and opens them.
fn open_parts(
    host: &Arc<ShardHost>,
    parent: &ShardFacts,
    view: &ShardView,
    cut: &Cut,
) -> Result<Vec<Arc<ShardHandle>>, EngineError> {
    let facts = parts_of(parent, cut);
    {
        // Nothing is purged meanwhile.
        let _still = commit::lock(view)?;
        for part in facts.iter().filter(|part| !host.has_folder(part)) {
            host.make_part(view, part, &cut.replicas)?;
        }
    }
    info!(container = %parent.container, range = parent.range_id, parts = ?cut.parts, "this replica is split");
    let parts = facts.into_iter().map(|part| {
        let begin = InitialState::Bootstrap(cut.replicas.clone());
        host.open_replica(part, begin, &cut.replicas)
    });
    Ok(parts.collect())
}

impl ShardHandle {
    /// Makes the parts, if that was not done before, and takes part in their groups. Nothing
    /// happens to a shard that is whole. Waits for the disk.
    pub(in crate::shard) fn part(&self, view: &ShardView) -> Result<(), EngineError> {
        let Some(cut) = split_mark::marked(&view.engine)? else {
            return Ok(());
        };
        // A node that has lost its disk may have had a say in the parts before: it gets them from
        // the others, like all that it has forgotten.
        if cut.version <= self.initialized_at() {
            return Ok(());
        }
        let mut outcome = Ok(());
        self.put_parts(|host| {
            let parts = open_parts(host, &self.facts, view, &cut);
            parts.unwrap_or_else(|failure| {
                outcome = Err(failure);
                Vec::new()
            })
        });
        outcome
    }

    /// From now on no parts are made of this replica: the catalog names them already, and they are
    /// filled by others. Waits for those that are being made.
    pub fn seal(&self) {
        self.put_parts(|_| Vec::new());
    }

    /// Returns the shard itself, its parts, and theirs.
    pub fn with_parts(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let parts = self.parts().iter().flat_map(Self::with_parts);
        slice::from_ref(self).iter().cloned().chain(parts).collect()
    }

    /// Has the shard split, if it is led here and takes writes. What it decides before is in both
    /// parts; nothing is decided after.
    pub fn cut(&self, cut: &Cut) {
        // A shard that is down is looked at again.
        let _ = self.send(CommitSplit { cut: cut.clone() });
    }

    /// Returns whether the shard takes nothing any more because it was split.
    pub fn is_cut(&self) -> bool {
        self.with_view(|view| Ok(view.is_cut())) == Ok(true)
    }
}
