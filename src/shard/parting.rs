//! A split in a cluster is an entry of the parent's log, the last one that changes anything. Every replica makes its parts when it comes to that entry, from exactly the
//! same state, and takes part in their groups from then on. What the catalog says of it comes later.
//!
//! The mark of the split is in the same write as the entry. Parts are made after it and noted with a durable write, before anybody may write to them: a crash before that
//! makes them again, a crash after it finds them.

use std::{
    slice,
    sync::{Arc, Weak},
};

use actix::prelude::*;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{
    actor::Shard,
    command::{Change, Command},
    commit,
    facts::ShardFacts,
    host::ShardHandle,
    split_work::Holding,
    view::ShardView,
};
use crate::{
    model::{catalog::Cut, error::Result},
    store::{Batch, Engine, EngineError, engine::Durability, keys},
};

/// What a replica remembers of the split of its shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    cut: Cut,
    /// The parts are there, durably.
    made: bool,
}

impl Mark {
    fn load(engine: &Engine) -> Result<Option<Self>, EngineError> {
        let Some(bytes) = engine.get(keys::CUT)? else {
            return Ok(None);
        };
        let mark = rmp_serde::from_slice(&bytes);
        mark.map(Some)
            .map_err(|failure| EngineError::Damaged(format!("the mark of a split: {failure}")))
    }

    fn store(&self, batch: &mut Batch) {
        let bytes = rmp_serde::to_vec(self).expect("a struct of numbers has a MessagePack form");
        batch.put(keys::CUT, bytes);
    }
}

/// Notes that the shard is split here; its parts are not made yet.
pub(super) fn mark(cut: &Cut, batch: &mut Batch) {
    let mark = Mark {
        cut: cut.clone(),
        made: false,
    };
    mark.store(batch);
}

/// Whether an engine is that of a shard that was split.
pub(super) fn is_marked(engine: &Engine) -> Result<bool, EngineError> {
    Ok(engine.get(keys::CUT)?.is_some())
}

/// Whether one of these commands splits the shard.
pub(super) fn asks(commands: &[Command]) -> bool {
    let mut changes = commands.iter().flat_map(|command| &command.changes);
    changes.any(|change| matches!(change, Change::Split(_)))
}

/// Makes the parts of a shard if these commands, which were applied last, have split it.
pub(super) fn follow(
    handle: &Weak<ShardHandle>,
    view: &ShardView,
    commands: &[Command],
) -> Result<(), EngineError> {
    match handle.upgrade() {
        Some(handle) if asks(commands) => handle.part(view),
        _ => Ok(()),
    }
}

/// What the parts of a shard know of themselves.
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

impl ShardHandle {
    /// Makes the parts, if that was not done before, and takes part in their groups. Nothing happens to a shard that is whole. Waits for the disk.
    pub(super) fn part(&self, view: &ShardView) -> Result<(), EngineError> {
        let Some(mark) = Mark::load(&view.engine)? else {
            return Ok(());
        };
        let facts = parts_of(&self.facts, &mark.cut);
        if !mark.made {
            // Nothing is purged meanwhile.
            let _still = commit::lock(view)?;
            for part in &facts {
                self.host().make_part(view, part)?;
            }
            let mut batch = Batch::default();
            Mark { made: true, ..mark }.store(&mut batch);
            view.engine.write(batch, Durability::Synced)?;
        }
        let ids = facts.each_ref().map(|part| part.range_id);
        self.put_parts(|host| facts.map(|part| host.open_part(part)).into());
        info!(container = %self.facts.container, range = self.facts.range_id, parts = ?ids, "this replica is split");
        Ok(())
    }

    /// The shard itself, its parts, and theirs.
    pub fn with_parts(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let parts = self.parts().iter().flat_map(Self::with_parts);
        slice::from_ref(self).iter().cloned().chain(parts).collect()
    }

    /// Has the shard split, if it is led here and takes writes. What it decides before is in both parts; nothing is decided after.
    pub fn cut(&self, cut: &Cut) {
        // A shard that is down is looked at again.
        let _ = self.send(Part { cut: cut.clone() });
    }

    /// Whether the shard takes nothing any more because it was split.
    pub fn is_cut(&self) -> bool {
        self.with_view(|view| Ok(view.is_cut())) == Ok(true)
    }
}

/// The catalog wants the shard split.
#[derive(Message)]
#[rtype(result = "()")]
struct Part {
    cut: Cut,
}

impl Handler<Part> for Shard {
    type Result = ();

    fn handle(&mut self, Part { cut }: Part, context: &mut Self::Context) {
        if self.check_writable().is_err() {
            return;
        }
        self.stop_gathering(context);
        let at = self.view.clock.now().max(self.decided.ts);
        self.stage(at, vec![Change::Split(cut)]);
        self.holding = Holding::Parting;
        self.commit(context);
    }
}

impl Shard {
    /// Who leads a shard that was split decides nothing. A split that a leader before had in mind only is none.
    pub(super) fn hold_if_cut(&mut self) {
        match self.holding {
            Holding::No | Holding::Parting | Holding::Still => {
                self.holding = if self.view.is_cut() {
                    Holding::Still
                } else {
                    Holding::No
                };
            }
            Holding::Settling(_) | Holding::Over(_) => {}
        }
    }
}
