//! A shard actor as a member of a Raft group: it decides while it leads, and only cleans up after itself while it follows.

use std::sync::Arc;

use actix::prelude::*;
use tracing::info;

use super::{
    actor::Shard,
    commit::Group,
    replica::{Replica, ReplicatedLog},
};
use crate::{
    expiry::{self, ExpiryRules, PurgeClock, PurgeStep},
    model::error::{Error, Result},
};

/// What an actor may do.
pub(super) enum Place {
    /// The shard is on this node only.
    Alone,
    Leads(Arc<Replica>),
    Follows {
        replica: Arc<Replica>,
        leader: Option<u64>,
        /// The time of the log when expired items were last looked for.
        purged_through: i64,
    },
}

impl Place {
    pub fn follows(replica: Arc<Replica>) -> Self {
        Self::Follows {
            replica,
            leader: None,
            purged_through: i64::MIN,
        }
    }

    /// Whether decisions are made here.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Alone | Self::Leads(_) => Ok(()),
            Self::Follows { leader, .. } => Err(Error::not_leader(*leader)),
        }
    }

    /// Whether other nodes have the shard, too.
    pub fn is_replica(&self) -> bool {
        self.replica().is_some()
    }

    fn replica(&self) -> Option<&Arc<Replica>> {
        match self {
            Self::Alone => None,
            Self::Leads(replica) | Self::Follows { replica, .. } => Some(replica),
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
        let Some(replica) = self.place.replica().cloned() else {
            return;
        };
        info!(container = %self.view.facts.container, range = self.view.facts.range_id, term = message.term, "leads");
        self.log = Box::new(ReplicatedLog {
            replica: Arc::clone(&replica),
            term: message.term,
        });
        self.place = Place::Leads(replica);
        self.start_from_applied();
        self.hold_if_cut();
        self.take_requests(context);
    }
}

impl Handler<Follow> for Shard {
    type Result = ();

    fn handle(&mut self, message: Follow, context: &mut Self::Context) {
        let Some(replica) = self.place.replica().cloned() else {
            return;
        };
        if let Place::Follows { leader, .. } = &mut self.place {
            *leader = message.leader;
        } else {
            self.place = Place::follows(replica);
            self.start_from_applied();
        }
        if let Place::Follows { leader, .. } = &mut self.place {
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

    /// Returns the rules to purge by.
    pub(super) fn purge_rules(&self) -> ExpiryRules {
        let committed = self.view.state().rules;
        expiry::purge_rules(self.place.is_replica(), &self.decided.rules, &committed)
    }

    /// Returns the time up to which expired items may be removed; `None` when there is nothing to
    /// look for.
    pub(super) fn purge_time(&mut self, context: &mut Context<Self>) -> Option<i64> {
        let clock = PurgeClock {
            now: self.view.clock.now(),
            logged: self.view.state().ts,
            next_expiry: self.purger.next_expiry,
            more: self.purger.more,
        };
        let step = match &mut self.place {
            Place::Alone => clock.standalone(),
            Place::Leads(_) => clock.leader(),
            Place::Follows { purged_through, .. } => {
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
