//! A shard actor as a member of a Raft group: it decides while it leads, and only purges while it
//! follows.

use std::sync::Arc;

use actix::prelude::*;
use tracing::info;

use super::Shard;
use crate::{
    expiry::{self, ExpiryRules, PurgeClock, PurgeStep},
    model::error::{Error, Result},
    shard::commit::{Group, ReplicatedLogs},
};

/// The role of this node's replica of the shard.
pub(in crate::shard) enum ShardRole {
    /// The shard is on this node only.
    Standalone,
    Leader(Arc<dyn ReplicatedLogs>),
    Follower {
        replica: Arc<dyn ReplicatedLogs>,
        leader: Option<u64>,
        /// The time of the log at the last look for expired items.
        purged_through: i64,
    },
}

impl ShardRole {
    pub fn follower(replica: Arc<dyn ReplicatedLogs>) -> Self {
        Self::Follower {
            replica,
            leader: None,
            purged_through: i64::MIN,
        }
    }

    /// Fails unless decisions are made here.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Standalone | Self::Leader(_) => Ok(()),
            Self::Follower { leader, .. } => Err(Error::not_leader(*leader)),
        }
    }

    /// Returns whether other nodes have the shard, too.
    pub fn is_replica(&self) -> bool {
        self.replica().is_some()
    }

    fn replica(&self) -> Option<&Arc<dyn ReplicatedLogs>> {
        match self {
            Self::Standalone => None,
            Self::Leader(replica) | Self::Follower { replica, .. } => Some(replica),
        }
    }
}

/// This node leads, and all that earlier leaders have left is applied.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Lead {
    pub term: u64,
}

/// Another node leads, or none.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Follow {
    pub leader: Option<u64>,
}

impl Handler<Lead> for Shard {
    type Result = ();

    fn handle(&mut self, message: Lead, context: &mut Self::Context) {
        let Some(replica) = self.role.replica().cloned() else {
            return;
        };
        info!(container = %self.view.facts.container, range = self.view.facts.range_id, term = message.term, "leads");
        self.log = Arc::clone(&replica).log(message.term);
        self.role = ShardRole::Leader(replica);
        self.start_from_applied();
        self.end_split_commit();
        self.take_requests(context);
    }
}

impl Handler<Follow> for Shard {
    type Result = ();

    fn handle(&mut self, message: Follow, context: &mut Self::Context) {
        let Some(replica) = self.role.replica().cloned() else {
            return;
        };
        if let ShardRole::Follower { leader, .. } = &mut self.role {
            *leader = message.leader;
        } else {
            self.role = ShardRole::follower(replica);
            self.start_from_applied();
        }
        if let ShardRole::Follower { leader, .. } = &mut self.role {
            *leader = message.leader;
        }
        self.end_split_commit();
        self.take_requests(context);
    }
}

impl Shard {
    /// Drops what was decided and not committed; decisions start from what is applied.
    fn start_from_applied(&mut self) {
        let number = self.next.number;
        let dropped = std::mem::replace(
            &mut self.next,
            Group {
                number,
                ..Group::default()
            },
        );
        for waiting in dropped.waiting {
            waiting.fail(Error::not_leader(None));
        }
        self.forget_decisions();
        if let Err(failure) = self.view.load_indexes(&self.view.state()) {
            tracing::error!(range = self.view.facts.range_id, %failure, "the index cannot be read");
        }
    }

    /// Returns the rules to purge by.
    pub(in crate::shard) fn purge_rules(&self) -> ExpiryRules {
        let committed = self.view.state().rules;
        expiry::purge_rules(self.role.is_replica(), &self.decided.rules, &committed)
    }

    /// Returns the time up to which expired items may be removed; `None` when there is nothing to
    /// look for.
    pub(in crate::shard) fn purge_time(&mut self, context: &mut Context<Self>) -> Option<i64> {
        let clock = PurgeClock {
            now: self.view.clock.now(),
            logged: self.view.state().ts,
            next_expiry: self.purger.next_expiry,
            more: self.purger.more,
        };
        let step = match &mut self.role {
            ShardRole::Standalone => clock.standalone(),
            ShardRole::Leader(_) => clock.leader(),
            ShardRole::Follower { purged_through, .. } => {
                let step = clock.follower(*purged_through);
                if step != PurgeStep::Rest {
                    *purged_through = clock.logged;
                    self.decided = self.view.state().into();
                }
                step
            }
        };
        match step {
            PurgeStep::Rest => None,
            PurgeStep::Purge { until } => Some(until),
            PurgeStep::AdvanceLog => {
                if self.check_open().is_ok() && self.next.is_empty() {
                    self.stage(clock.now.max(self.decided.ts), Vec::new());
                    self.commit(context);
                }
                None
            }
        }
    }
}
