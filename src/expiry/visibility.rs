//! Which rules readers use while the default changes.

use std::sync::Arc;

use super::rules::ExpiryRules;
use crate::model::ttl::ItemTtl;

/// The rules that readers use. While a change of the default is committing, an item is expired for
/// them only if the rules before and after the change both say so. Otherwise an item could
/// disappear and then come back.
#[derive(Clone)]
pub struct EffectiveRules {
    committed: ExpiryRules,
    /// Decided but not committed, with the LSNs of their commands, oldest first; nearly always
    /// empty.
    pending: Vec<(u64, ExpiryRules)>,
}

impl From<ExpiryRules> for EffectiveRules {
    fn from(committed: ExpiryRules) -> Self {
        Self {
            committed,
            pending: Vec::new(),
        }
    }
}

impl EffectiveRules {
    /// Returns whether an item that was written at `ts` is expired for readers at `now`.
    pub fn is_expired(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        self.committed.is_expired(ts, ttl, now)
            && self
                .pending
                .iter()
                .all(|(_, rules)| rules.is_expired(ts, ttl, now))
    }

    /// Returns the second at which an item expires; `None`: never, or not certain while a change
    /// is in flight.
    pub fn expiry_of(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        self.settled()?.expiry_of(ts, ttl)
    }

    /// Returns the rules, unless a change of them is in flight.
    pub fn settled(&self) -> Option<&ExpiryRules> {
        self.pending.is_empty().then_some(&self.committed)
    }

    /// Returns the rules of readers once a change is decided that the command `lsn` will commit.
    #[must_use]
    pub fn with_pending(&self, lsn: u64, rules: ExpiryRules) -> Self {
        let mut next = self.clone();
        next.pending.push((lsn, rules));
        next
    }

    /// Returns whether a commit up to this LSN changes the rules of readers. The rules alone do not
    /// tell: two changes in one group may end with the rules that they began with.
    pub fn is_changed_by(&self, committed: &ExpiryRules, lsn: u64) -> bool {
        self.committed != *committed || self.pending.first().is_some_and(|(first, _)| *first <= lsn)
    }

    /// Returns the rules of readers once these are committed up to this LSN; what was pending up
    /// to there is past.
    ///
    /// # Panics
    ///
    /// If a watermark goes back: items that readers have seen expire would come back.
    #[must_use]
    pub fn with_committed(&self, committed: ExpiryRules, lsn: u64) -> Self {
        assert!(
            committed
                .watermarks()
                .is_at_least(&self.committed.watermarks()),
            "expiry watermarks go back from {:?} to {committed:?}",
            self.committed
        );
        let pending = self.pending.iter().filter(|(pending, _)| *pending > lsn);
        Self {
            committed,
            pending: pending.copied().collect(),
        }
    }

    /// Returns the rules of readers once it is known that nothing pending will be committed.
    #[must_use]
    pub fn without_pending(&self) -> Self {
        self.committed.into()
    }
}

/// Checks expiry as of one second and by the rules of that moment, for a whole page of items.
pub struct ExpiryCheck {
    rules: Arc<EffectiveRules>,
    now: i64,
}

impl ExpiryCheck {
    pub fn new(rules: Arc<EffectiveRules>, now: i64) -> Self {
        Self { rules, now }
    }

    /// Returns whether an item that was written at `ts` is visible.
    pub fn is_live(&self, ts: i64, ttl: ItemTtl) -> bool {
        !self.rules.is_expired(ts, ttl, self.now)
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    /// Returns the rules, unless a change of them is in flight.
    pub fn rules(&self) -> Option<ExpiryRules> {
        self.rules.settled().copied()
    }

    /// Returns the second at which an item expires; `None`: never, or not certain while a change
    /// is in flight.
    pub fn expiry_of(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        self.rules.expiry_of(ts, ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::model::ttl::DefaultTtl;

    fn after(seconds: u32) -> DefaultTtl {
        DefaultTtl::After(NonZeroU32::new(seconds).unwrap())
    }

    #[test]
    fn an_item_is_gone_only_if_it_is_so_before_and_after_a_pending_change() {
        let long = ExpiryRules::new(after(100));
        let readers = EffectiveRules::from(long);
        let shorter = long.with_default(after(10), 1_000);
        let changing = readers.with_pending(7, shorter);
        let gone = |rules: &EffectiveRules| rules.is_expired(990, ItemTtl::Inherit, 1_000);
        assert!(shorter.is_expired(990, ItemTtl::Inherit, 1_000));
        assert_eq!((gone(&readers), gone(&changing)), (false, false));
        assert_eq!(changing.expiry_of(990, ItemTtl::Inherit), None);
        assert!(!changing.is_changed_by(&long, 6));
        assert!(changing.is_changed_by(&long, 7));
        assert!(!gone(&changing.without_pending()));
        let changed = changing.with_committed(shorter, 7);
        assert!(gone(&changed));
        assert_eq!(changed.expiry_of(990, ItemTtl::Inherit), Some(1_000));
        assert_eq!(changed.settled(), Some(&shorter));
    }

    #[test]
    #[should_panic(expected = "watermarks go back")]
    fn a_commit_whose_watermarks_go_back_is_refused() {
        let before = ExpiryRules::new(after(10));
        let readers = EffectiveRules::from(before.with_default(DefaultTtl::Off, 1_000));
        let _ = readers.with_committed(before, 1);
    }
}
