//! Time to live, exactly: which values are legal, and when an item is gone.
//!
//! Times are whole seconds since the epoch in 64 bits, so `_ts + ttl` cannot overflow.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{Error, Result};
use super::json::show;

/// The largest ttl that the protocol allows, in seconds.
pub const TTL_SECONDS_MAX: u32 = i32::MAX as u32;

/// A container's `defaultTtl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefaultTtl {
    /// Absent: time to live is off and items' own ttl is not interpreted.
    #[default]
    Off,
    /// -1: on, but items without a ttl of their own live for ever.
    NoDefault,
    /// n: items without a ttl of their own live n seconds.
    After(NonZeroU32),
}

/// An item's `ttl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemTtl {
    /// Absent: the container's default counts.
    #[default]
    Inherit,
    /// -1: never expires.
    Never,
    /// n: n seconds after the last write.
    After(NonZeroU32),
}

/// Reads a `-1` or `1..=2147483647`; `60.0` equals 60.
fn seconds(value: &Value) -> Option<Option<NonZeroU32>> {
    let number = value.as_f64()?;
    if number == -1.0 {
        return Some(None);
    }
    let whole = number.fract() == 0.0 && number >= 1.0 && number <= f64::from(TTL_SECONDS_MAX);
    whole.then(|| NonZeroU32::new(number as u32))
}

impl DefaultTtl {
    /// From the `defaultTtl` property of a container; absent and null are off.
    pub fn from_json(value: Option<&Value>) -> Result<Self> {
        match value {
            None | Some(Value::Null) => Ok(Self::Off),
            Some(value) => match seconds(value) {
                Some(Some(n)) => Ok(Self::After(n)),
                Some(None) => Ok(Self::NoDefault),
                None => Err(Error::bad_request(format!(
                    "the value {} of 'defaultTtl' is not valid: it must be -1 or a whole number of seconds \
                     from 1 to {TTL_SECONDS_MAX}, or be left out to switch time to live off",
                    show(value)
                ))),
            },
        }
    }

    pub fn to_json(self) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::NoDefault => Some(Value::from(-1)),
            Self::After(n) => Some(Value::from(n.get())),
        }
    }
}

impl ItemTtl {
    /// From the `ttl` property of an item; only absence inherits, null is refused.
    pub fn from_json(value: Option<&Value>) -> Result<Self> {
        match value {
            None => Ok(Self::Inherit),
            Some(value) => match seconds(value) {
                Some(Some(n)) => Ok(Self::After(n)),
                Some(None) => Ok(Self::Never),
                None => Err(Error::bad_request(format!(
                    "the value {} of 'ttl' is not valid: it must be -1 or a whole number of seconds from 1 to \
                     {TTL_SECONDS_MAX}, or be left out to take the container's default",
                    show(value)
                ))),
            },
        }
    }

    /// The second at which an item with this ttl of its own falls due; `None` when it has none.
    pub fn own_due(self, ts: i64) -> Option<i64> {
        match self {
            Self::After(n) => Some(ts + i64::from(n.get())),
            Self::Inherit | Self::Never => None,
        }
    }
}

/// What decides expiry in one shard: the container's default and two watermarks that make expiry final.
///
/// Invariant: the watermarks never go down, so an item that was once expired stays expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryRules {
    pub default: DefaultTtl,
    /// Items that inherit and have `_ts <=` this are dead for ever.
    pub inherit_dead_through: i64,
    /// Items with a ttl of their own that fell due `<=` this are dead for ever.
    pub own_dead_through: i64,
}

impl ExpiryRules {
    pub fn new(default: DefaultTtl) -> Self {
        Self {
            default,
            inherit_dead_through: i64::MIN,
            own_dead_through: i64::MIN,
        }
    }

    /// Inheriting items with `_ts <=` the answer are expired at `now`.
    pub fn inherit_horizon(&self, now: i64) -> i64 {
        match self.default {
            DefaultTtl::After(n) => self.inherit_dead_through.max(now - i64::from(n.get())),
            DefaultTtl::Off | DefaultTtl::NoDefault => self.inherit_dead_through,
        }
    }

    /// Items with a ttl of their own that fall due `<=` the answer are expired at `now`.
    pub fn own_horizon(&self, now: i64) -> i64 {
        match self.default {
            DefaultTtl::Off => self.own_dead_through,
            DefaultTtl::NoDefault | DefaultTtl::After(_) => self.own_dead_through.max(now),
        }
    }

    pub fn is_expired(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        match ttl {
            ItemTtl::Never => false,
            ItemTtl::Inherit => ts <= self.inherit_horizon(now),
            ItemTtl::After(n) => ts + i64::from(n.get()) <= self.own_horizon(now),
        }
    }

    /// The rules after the default changed at `now`. O(1): nothing is moved, the watermarks keep what was already dead.
    pub fn with_default(self, default: DefaultTtl, now: i64) -> Self {
        Self {
            default,
            inherit_dead_through: self.inherit_horizon(now),
            own_dead_through: self.own_horizon(now),
        }
    }

    /// When the first of the two heads falls due: the oldest inheriting item by its `_ts`, the first own one by its
    /// due second. A head that a watermark has killed is due in the past, whatever the default says now.
    pub fn next_due(
        &self,
        oldest_inherit_ts: Option<i64>,
        first_own_due: Option<i64>,
    ) -> Option<i64> {
        let inherit = oldest_inherit_ts.and_then(|ts| match self.default {
            _ if ts <= self.inherit_dead_through => Some(ts),
            DefaultTtl::After(n) => Some(ts + i64::from(n.get())),
            DefaultTtl::Off | DefaultTtl::NoDefault => None,
        });
        let own = first_own_due
            .filter(|due| *due <= self.own_dead_through || self.default != DefaultTtl::Off);
        match (inherit, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn default(seconds: i64) -> DefaultTtl {
        DefaultTtl::from_json(Some(&json!(seconds))).expect("a legal defaultTtl")
    }

    fn own(seconds: i64) -> ItemTtl {
        ItemTtl::from_json(Some(&json!(seconds))).expect("a legal ttl")
    }

    /// The first second at which a fresh item is gone.
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
        let largest = i64::from(TTL_SECONDS_MAX);
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
                assert_eq!(own(seconds).own_due(ts), Some(ts + seconds));
            }
        }
        assert_eq!(ItemTtl::Inherit.own_due(5), None);
        assert_eq!(ItemTtl::Never.own_due(5), None);
    }

    #[test]
    fn legal_values_are_read_and_written_back() {
        for (given, kept) in [
            (-1.0, -1),
            (1.0, 1),
            (60.0, 60),
            (2_147_483_647.0, 2_147_483_647),
        ] {
            for value in [json!(given), json!(given as i64)] {
                let read = DefaultTtl::from_json(Some(&value)).expect("legal");
                assert_eq!(read.to_json(), Some(json!(kept)));
                assert_eq!(ItemTtl::from_json(Some(&value)).expect("legal"), own(kept));
            }
        }
        assert_eq!(DefaultTtl::from_json(None), Ok(DefaultTtl::Off));
        assert_eq!(
            DefaultTtl::from_json(Some(&Value::Null)),
            Ok(DefaultTtl::Off)
        );
        assert_eq!(DefaultTtl::Off.to_json(), None);
        assert_eq!(ItemTtl::from_json(None), Ok(ItemTtl::Inherit));
    }

    #[test]
    fn illegal_values_are_refused_by_name() {
        for value in [
            json!(0),
            json!(-0.0),
            json!(-2),
            json!(-10),
            json!(1.5),
            json!(-1.5),
            json!(0.999),
            json!(2_147_483_648_u64),
            json!(2_147_483_647.5),
            json!(4_294_967_297_u64),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!("60"),
            json!(true),
            json!([60]),
            json!({"seconds": 60}),
        ] {
            let container = DefaultTtl::from_json(Some(&value)).expect_err("illegal");
            let item = ItemTtl::from_json(Some(&value)).expect_err("illegal");
            for (error, name) in [(container, "'defaultTtl'"), (item, "'ttl'")] {
                assert_eq!((error.status(), error.substatus()), (400, 0));
                for part in [value.to_string().as_str(), name, "2147483647"] {
                    assert!(error.message.contains(part), "{error} lacks {part}");
                }
            }
        }
        let error = ItemTtl::from_json(Some(&Value::Null)).expect_err("null is no ttl of an item");
        assert!(error.message.contains("the value null of 'ttl'"), "{error}");
        let error = ItemTtl::from_json(Some(&json!("x".repeat(10_000)))).expect_err("long");
        assert!(error.message.len() < 400, "{error}");
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
                    .next_due(Some(1_000), None)
                    .is_some_and(|due| due <= 1_010),
                "{after:?}"
            );
            assert!(
                rules
                    .next_due(None, Some(1_010))
                    .is_some_and(|due| due <= 1_010),
                "{after:?}"
            );
        }
        let off = ExpiryRules::new(default(10)).with_default(DefaultTtl::Off, 1_010);
        assert_eq!(
            off.next_due(Some(1_001), Some(1_011)),
            None,
            "what lived then lives on"
        );
        assert_eq!(off.next_due(None, None), None);
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
                check_next_due(&rules, &items, now)?;
            }
        }
    }

    /// The purger must be awake exactly when there is a dead item.
    fn check_next_due(
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
            .filter_map(|item| item.ttl.own_due(item.ts))
            .min();
        let awake = rules.next_due(inherit, own).is_some_and(|due| due <= now);
        prop_assert_eq!(awake, items.iter().any(|item| item.dead));
        Ok(())
    }
}
