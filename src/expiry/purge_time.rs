//! Up to which time expired items may be removed.
//!
//! A standalone shard goes by its clock. A replica goes no further than the time of the Raft log:
//! what is expired by then cannot change any more, whichever node leads next.

use super::rules::ExpiryRules;

/// The times that a shard knows of.
#[derive(Clone, Copy, Debug)]
pub struct PurgeClock {
    /// By the shard's clock.
    pub now: i64,
    /// The `_ts` of the last committed command.
    pub logged: i64,
    /// Nothing expires before this second.
    pub next_expiry: i64,
    /// The last slice has left expired items behind.
    pub more: bool,
}

/// What a shard does about expired items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeStep {
    /// Nothing has expired.
    Rest,
    /// Removes what has expired up to this second.
    Purge { until: i64 },
    /// Something has expired, but the log does not say so yet: commits an empty transaction.
    AdvanceLog,
}

impl PurgeClock {
    /// Returns what a shard does that is on this node only.
    pub fn standalone(&self) -> PurgeStep {
        match self.now >= self.next_expiry {
            true => PurgeStep::Purge { until: self.now },
            false => PurgeStep::Rest,
        }
    }

    /// Returns what a leader does.
    pub fn leader(&self) -> PurgeStep {
        if self.logged >= self.next_expiry {
            self.up_to_log()
        } else if self.now >= self.next_expiry {
            PurgeStep::AdvanceLog
        } else {
            PurgeStep::Rest
        }
    }

    /// Returns what a follower does that has looked for expired items up to `purged_through`. It
    /// does not know what expires next, so it looks whenever the log has moved.
    pub fn follower(&self, purged_through: i64) -> PurgeStep {
        match purged_through == self.logged && !self.more {
            true => PurgeStep::Rest,
            false => self.up_to_log(),
        }
    }

    fn up_to_log(&self) -> PurgeStep {
        PurgeStep::Purge {
            until: self.logged.min(self.now),
        }
    }
}

/// Returns the rules to purge by. A replica removes nothing by rules that may never be committed.
pub fn purge_rules(
    is_replica: bool,
    decided: &ExpiryRules,
    committed: &ExpiryRules,
) -> ExpiryRules {
    match is_replica {
        true => *committed,
        false => *decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(now: i64, logged: i64, next_expiry: i64) -> PurgeClock {
        PurgeClock {
            now,
            logged,
            next_expiry,
            more: false,
        }
    }

    #[test]
    fn a_standalone_shard_goes_by_its_clock() {
        assert_eq!(clock(9, 3, 10).standalone(), PurgeStep::Rest);
        let purge = PurgeStep::Purge { until: 10 };
        assert_eq!(clock(10, 3, 10).standalone(), purge);
    }

    #[test]
    fn a_leader_advances_the_log_before_it_purges() {
        assert_eq!(clock(9, 3, 10).leader(), PurgeStep::Rest);
        assert_eq!(clock(10, 3, 10).leader(), PurgeStep::AdvanceLog);
        let purge = PurgeStep::Purge { until: 10 };
        assert_eq!(clock(12, 10, 10).leader(), purge);
        // The log of another leader may be ahead of this node's clock.
        assert_eq!(clock(10, 12, 10).leader(), purge);
    }

    #[test]
    fn a_follower_looks_again_when_the_log_has_moved_or_more_is_left() {
        let at = clock(12, 10, 0);
        let purge = PurgeStep::Purge { until: 10 };
        assert_eq!(at.follower(9), purge);
        assert_eq!(at.follower(10), PurgeStep::Rest);
        assert_eq!(PurgeClock { more: true, ..at }.follower(10), purge);
    }
}
