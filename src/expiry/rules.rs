//! The rules of one shard: its container's default and two watermarks.

use serde::{Deserialize, Serialize};

use super::earlier;
use crate::model::ttl::{DefaultTtl, ItemTtl};

/// Two seconds, one for each lane: what lies at or before its own has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizons {
    /// For items that inherit their ttl, by `_ts`.
    pub inherit: i64,
    /// For items with a ttl of their own, by `_ts + ttl`.
    pub own: i64,
}

impl Horizons {
    /// Nothing has expired.
    pub const NONE: Self = Self {
        inherit: i64::MIN,
        own: i64::MIN,
    };

    /// Returns whether an item that was written at `ts` is expired.
    pub fn is_expired(&self, ts: i64, ttl: ItemTtl) -> bool {
        match ttl {
            ItemTtl::Never => false,
            ItemTtl::Inherit => self.has_inherit_passed(ts),
            ItemTtl::After(n) => self.has_own_passed(ts + i64::from(n.get())),
        }
    }

    /// Returns whether items that inherit their ttl and were written at `ts` are expired.
    pub fn has_inherit_passed(&self, ts: i64) -> bool {
        ts <= self.inherit
    }

    /// Returns whether items whose own ttl ends at `expiry` are expired.
    pub fn has_own_passed(&self, expiry: i64) -> bool {
        expiry <= self.own
    }

    /// Returns whether neither horizon lies before its other one.
    pub fn is_at_least(&self, other: &Self) -> bool {
        self.inherit >= other.inherit && self.own >= other.own
    }
}

/// Decides expiry in one shard: the container's default and two watermarks that make expiry final.
///
/// Invariant: the watermarks never go down, so an item that was once expired stays expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryRules {
    pub default: DefaultTtl,
    /// Items that inherit and have `_ts <=` this are dead for ever.
    inherit_dead_through: i64,
    /// Items with a ttl of their own that expired `<=` this are dead for ever.
    own_dead_through: i64,
}

impl ExpiryRules {
    pub fn new(default: DefaultTtl) -> Self {
        Self::with_watermarks(default, Horizons::NONE)
    }

    fn with_watermarks(default: DefaultTtl, watermarks: Horizons) -> Self {
        Self {
            default,
            inherit_dead_through: watermarks.inherit,
            own_dead_through: watermarks.own,
        }
    }

    /// Returns the horizons behind which items are dead for ever, whatever the default becomes.
    pub fn watermarks(&self) -> Horizons {
        Horizons {
            inherit: self.inherit_dead_through,
            own: self.own_dead_through,
        }
    }

    /// Returns the horizons behind which items are expired at `now`.
    pub fn horizons(&self, now: i64) -> Horizons {
        let Horizons { inherit, own } = self.watermarks();
        match self.default {
            DefaultTtl::Off => Horizons { inherit, own },
            DefaultTtl::NoDefault => Horizons {
                inherit,
                own: own.max(now),
            },
            DefaultTtl::After(n) => Horizons {
                inherit: inherit.max(now - i64::from(n.get())),
                own: own.max(now),
            },
        }
    }

    /// Returns whether an item that was written at `ts` is expired at `now`.
    pub fn is_expired(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        self.horizons(now).is_expired(ts, ttl)
    }

    /// Returns the rules after the default changed at `now`. O(1): nothing is moved, the watermarks
    /// keep what was already dead.
    pub fn with_default(self, default: DefaultTtl, now: i64) -> Self {
        Self::with_watermarks(default, self.horizons(now))
    }

    /// Returns the second at which an item that was written at `ts` expires; `None`: never, by
    /// these rules. An item that a watermark has killed has expired in the past.
    pub fn expiry_of(&self, ts: i64, ttl: ItemTtl) -> Option<i64> {
        match ttl {
            ItemTtl::Inherit => self.inherit_expiry(ts),
            ItemTtl::After(_) | ItemTtl::Never => self.own_expiry(ttl.own_expiry(ts)?),
        }
    }

    /// Returns when the first of the two lanes' heads expires: the oldest inheriting item by its
    /// `_ts`, the first with a ttl of its own by its expiry.
    pub fn next_expiry(
        &self,
        oldest_inherit_ts: Option<i64>,
        first_own_expiry: Option<i64>,
    ) -> Option<i64> {
        earlier(
            oldest_inherit_ts.and_then(|ts| self.inherit_expiry(ts)),
            first_own_expiry.and_then(|expiry| self.own_expiry(expiry)),
        )
    }

    fn inherit_expiry(&self, ts: i64) -> Option<i64> {
        match self.default {
            _ if self.watermarks().has_inherit_passed(ts) => Some(ts),
            DefaultTtl::After(n) => Some(ts + i64::from(n.get())),
            DefaultTtl::Off | DefaultTtl::NoDefault => None,
        }
    }

    fn own_expiry(&self, expiry: i64) -> Option<i64> {
        let counts = self.default != DefaultTtl::Off || self.watermarks().has_own_passed(expiry);
        counts.then_some(expiry)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn default(seconds: i64) -> DefaultTtl {
        DefaultTtl::from_json(Some(&json!(seconds))).expect("a legal defaultTtl")
    }

    fn own(seconds: i64) -> ItemTtl {
        ItemTtl::from_json(Some(&json!(seconds))).expect("a legal ttl")
    }

    /// Returns the first second at which a fresh item is gone.
    fn lifetime(rules: &ExpiryRules, ttl: ItemTtl) -> Option<i64> {
        const TS: i64 = 1_790_000_000;
        (0..=100).find(|age| rules.is_expired(TS, ttl, TS + age))
    }

    #[test]
    fn the_matrix_of_container_and_item() {
        let containers = [DefaultTtl::Off, default(-1), default(10)];
        let items = [ItemTtl::Inherit, own(-1), own(5)];
        let expected = [
            [None, None, None],
            [None, None, Some(5)],
            [Some(10), None, Some(5)],
        ];
        for (container, row) in containers.into_iter().zip(expected) {
            for (item, seconds) in items.into_iter().zip(row) {
                let rules = ExpiryRules::new(container);
                assert_eq!(lifetime(&rules, item), seconds, "{container:?} {item:?}");
            }
        }
        let longer = ExpiryRules::new(default(10));
        assert_eq!(
            lifetime(&longer, own(20)),
            Some(20),
            "an item may outlive the default"
        );
    }

    #[test]
    fn expiry_is_exact_to_the_second_up_to_the_largest_ttl() {
        let largest = i64::from(crate::model::ttl::TTL_SECONDS_MAX);
        for ts in [0, 1, 1_790_000_000, i64::from(i32::MAX), 1 << 40] {
            for seconds in [1, 2, 60, largest] {
                let inherit = ExpiryRules::new(default(seconds));
                let by_item = ExpiryRules::new(DefaultTtl::NoDefault);
                for (now, gone) in [
                    (ts, false),
                    (ts + seconds - 1, false),
                    (ts + seconds, true),
                    (ts + seconds + 1, true),
                ] {
                    assert_eq!(
                        inherit.is_expired(ts, ItemTtl::Inherit, now),
                        gone,
                        "{ts} {seconds} {now}"
                    );
                    assert_eq!(
                        by_item.is_expired(ts, own(seconds), now),
                        gone,
                        "{ts} {seconds} {now}"
                    );
                }
                assert_eq!(own(seconds).own_expiry(ts), Some(ts + seconds));
            }
        }
        assert_eq!(ItemTtl::Inherit.own_expiry(5), None);
        assert_eq!(ItemTtl::Never.own_expiry(5), None);
    }

    #[test]
    fn what_expired_before_a_change_of_the_default_stays_expired() {
        let (ts, changed) = (1_000, 1_010);
        for (before, ttl) in [(10, ItemTtl::Inherit), (10, own(7)), (-1, own(10))] {
            for after in [DefaultTtl::Off, default(-1), default(1_000_000)] {
                let rules = ExpiryRules::new(default(before)).with_default(after, changed);
                for now in [changed, changed + 1, changed + 1_000_000] {
                    assert!(
                        rules.is_expired(ts, ttl, now),
                        "{before} {ttl:?} {after:?} {now}"
                    );
                }
                assert!(
                    !rules.is_expired(changed, ttl, changed),
                    "a new write lives"
                );
            }
        }
    }

    #[test]
    fn turning_time_to_live_on_counts_from_the_old_second() {
        let off = ExpiryRules::new(DefaultTtl::Off);
        for (after, ttl) in [(default(10), ItemTtl::Inherit), (default(-1), own(10))] {
            let on = off.with_default(after, 1_000);
            assert!(
                on.is_expired(990, ttl, 1_000),
                "due before it was turned on"
            );
            assert!(!on.is_expired(991, ttl, 1_000));
            assert!(on.is_expired(991, ttl, 1_001));
        }
    }

    #[test]
    fn a_dead_item_is_due_for_purging_whatever_the_default_is_now() {
        for after in [DefaultTtl::Off, default(-1), default(1_000_000)] {
            let rules = ExpiryRules::new(default(10)).with_default(after, 1_010);
            assert!(
                rules
                    .next_expiry(Some(1_000), None)
                    .is_some_and(|due| due <= 1_010),
                "{after:?}"
            );
            assert!(
                rules
                    .next_expiry(None, Some(1_010))
                    .is_some_and(|due| due <= 1_010),
                "{after:?}"
            );
        }
        let off = ExpiryRules::new(default(10)).with_default(DefaultTtl::Off, 1_010);
        assert_eq!(
            off.next_expiry(Some(1_001), Some(1_011)),
            None,
            "what lived then lives on"
        );
        assert_eq!(off.next_expiry(None, None), None);
    }

    /// One thing that happens to a container; seconds are small so that the cases meet.
    #[derive(Clone, Debug)]
    enum Event {
        Wait(i64),
        Write(ItemTtl),
        Rewrite(usize, ItemTtl),
        Default(DefaultTtl),
    }

    fn seconds_small() -> impl Strategy<Value = NonZeroU32> {
        (1u32..12).prop_map(|n| NonZeroU32::new(n).expect("at least 1"))
    }

    fn any_ttl() -> impl Strategy<Value = ItemTtl> {
        prop_oneof![
            2 => Just(ItemTtl::Inherit),
            1 => Just(ItemTtl::Never),
            2 => seconds_small().prop_map(ItemTtl::After),
        ]
    }

    fn any_default() -> impl Strategy<Value = DefaultTtl> {
        prop_oneof![
            1 => Just(DefaultTtl::Off),
            1 => Just(DefaultTtl::NoDefault),
            2 => seconds_small().prop_map(DefaultTtl::After),
        ]
    }

    fn any_event() -> impl Strategy<Value = Event> {
        prop_oneof![
            3 => (0i64..8).prop_map(Event::Wait),
            2 => any_ttl().prop_map(Event::Write),
            1 => (0usize..8, any_ttl()).prop_map(|(item, ttl)| Event::Rewrite(item, ttl)),
            3 => any_default().prop_map(Event::Default),
        ]
    }

    /// An item of the naive model, which remembers whether it ever was dead.
    struct Witness {
        ts: i64,
        ttl: ItemTtl,
        dead: bool,
    }

    impl Witness {
        fn new(ts: i64, ttl: ItemTtl) -> Self {
            Self {
                ts,
                ttl,
                dead: false,
            }
        }

        /// The plain rule, without watermarks: the item's ttl, else the default.
        fn look(&mut self, default: DefaultTtl, now: i64) {
            let seconds = match (default, self.ttl) {
                (DefaultTtl::Off, _) | (_, ItemTtl::Never) => None,
                (_, ItemTtl::After(n)) | (DefaultTtl::After(n), ItemTtl::Inherit) => Some(n),
                (DefaultTtl::NoDefault, ItemTtl::Inherit) => None,
            };
            self.dead |= seconds.is_some_and(|n| self.ts + i64::from(n.get()) <= now);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn expiry_is_final_under_every_sequence_of_changes(
            first in any_default(),
            events in proptest::collection::vec(any_event(), 1..60),
        ) {
            let mut now = 1_000;
            let mut rules = ExpiryRules::new(first);
            let mut items: Vec<Witness> = Vec::new();
            for event in events {
                match event {
                    Event::Wait(seconds) => now += seconds,
                    Event::Write(ttl) => items.push(Witness::new(now, ttl)),
                    Event::Rewrite(index, ttl) => {
                        if let Some(item) = items.get_mut(index) {
                            *item = Witness::new(now, ttl);
                        }
                    }
                    Event::Default(default) => rules = rules.with_default(default, now),
                }
                for item in &mut items {
                    item.look(rules.default, now);
                    prop_assert_eq!(rules.is_expired(item.ts, item.ttl, now), item.dead);
                }
                check_next_expiry(&rules, &items, now)?;
            }
        }
    }

    /// The purger must be awake exactly when there is a dead item.
    fn check_next_expiry(
        rules: &ExpiryRules,
        items: &[Witness],
        now: i64,
    ) -> Result<(), TestCaseError> {
        let inherit = items
            .iter()
            .filter(|item| item.ttl == ItemTtl::Inherit)
            .map(|item| item.ts)
            .min();
        let own = items
            .iter()
            .filter_map(|item| item.ttl.own_expiry(item.ts))
            .min();
        let awake = rules
            .next_expiry(inherit, own)
            .is_some_and(|due| due <= now);
        prop_assert_eq!(awake, items.iter().any(|item| item.dead));
        Ok(())
    }
}
