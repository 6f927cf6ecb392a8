//! A shard actor as a member of a Raft group: it decides while it leads, and only cleans up after itself while it follows.

use std::sync::Arc;

use actix::prelude::*;
use tracing::info;

use super::{
    actor::Shard,
    commit::Group,
    replica::{Replica, ReplicatedLog},
};
use crate::model::{
    error::{Error, Result},
    ttl::ExpiryRules,
};

/// What an actor may do.
pub(super) enum ShardRole {
    /// The shard is on this node only.
    Standalone,
    Leader(Arc<Replica>),
    Follower {
        replica: Arc<Replica>,
        leader: Option<u64>,
        /// The time of the log when expired items were last looked for.
        purged_through: i64,
    },
}

impl ShardRole {
    pub fn follower(replica: Arc<Replica>) -> Self {
        Self::Follower {
            replica,
            leader: None,
            purged_through: i64::MIN,
        }
    }

    /// Whether decisions are made here.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Standalone | Self::Leader(_) => Ok(()),
            Self::Follower { leader, .. } => Err(Error::not_leader(*leader)),
        }
    }

    /// Whether other nodes have the shard, too.
    pub fn is_replica(&self) -> bool {
        self.replica().is_some()
    }

    fn replica(&self) -> Option<&Arc<Replica>> {
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
        self.log = Box::new(ReplicatedLog {
            replica: Arc::clone(&replica),
            term: message.term,
        });
        self.role = ShardRole::Leader(replica);
        self.start_from_applied();
        self.hold_if_cut();
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
        self.hold_if_cut();
        self.take_requests(context);
    }
}

impl Shard {
    /// Nothing that was decided and not committed can stand; what is applied is where decisions start.
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

    /// By what it is judged what is expired. A replica removes nothing by rules that may not come about.
    pub(super) fn purge_rules(&self) -> ExpiryRules {
        match self.role {
            ShardRole::Standalone => self.decided.rules,
            ShardRole::Leader(_) | ShardRole::Follower { .. } => self.view.state().rules,
        }
    }

    /// The time by which expired items may be removed; `None` when there is nothing to look for. A replica goes no further than the log: the leader, whose
    /// clock decides, cannot change its mind about what is expired by then.
    pub(super) fn purge_time(&mut self, context: &mut Context<Self>) -> Option<i64> {
        let now = self.view.clock.now();
        if matches!(self.role, ShardRole::Standalone) {
            return (now >= self.purger.next_due).then_some(now);
        }
        let logged = self.view.state().ts;
        if let ShardRole::Follower { purged_through, .. } = &mut self.role {
            if *purged_through == logged && !self.purger.more {
                return None;
            }
            *purged_through = logged;
            self.decided = self.view.state().into();
            return Some(logged.min(now));
        }
        if logged >= self.purger.next_due {
            return Some(logged.min(now));
        }
        // Something is due, but the log does not say so yet: an empty transaction does.
        if now >= self.purger.next_due && self.check_open().is_ok() && self.next.is_empty() {
            self.stage(now.max(self.decided.ts), Vec::new());
            self.commit(context);
        }
        None
    }
}
