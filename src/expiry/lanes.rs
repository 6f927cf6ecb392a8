//! The expiry queue of a shard: finds what has expired, a slice at a time.
//!
//! Two lanes, both in time order. Items that inherit their ttl are in the change feed itself: LSN
//! order is `_ts` order, so the feed is the inherit lane and costs no entry of its own. Items with
//! a ttl of their own have an entry in the own lane. Cursors make sure that what was passed is
//! never looked at again: the cost is in proportion to what expires, never to what is stored.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::rules::{ExpiryRules, Horizons};
use crate::model::{position::Position, ttl::ItemTtl};

/// Versions removed in one slice.
pub const SLICE_VERSIONS_MAX: usize = 512;
/// Entries of the inherit lane looked at in one slice; those with a ttl of their own are passed
/// over.
const SLICE_ENTRIES_MAX: usize = 4 * SLICE_VERSIONS_MAX;

/// An entry of the inherit lane: any version of an item.
pub struct InheritEntry {
    pub position: Position,
    pub ts: i64,
    pub ttl: ItemTtl,
}

/// An entry of the own lane: a version with a ttl of its own.
pub struct OwnEntry {
    pub expiry: i64,
    pub position: Position,
}

/// Reads the lanes of one shard. A visitor breaks when it has seen enough.
pub trait LaneReader {
    /// What an entry says of its version besides.
    type Version<'v>;
    type Error;

    /// Visits the inherit lane from a position on, in the order of `_ts`.
    fn visit_inherit(
        &self,
        from: Position,
        visit: impl FnMut(InheritEntry, Self::Version<'_>) -> Result<ControlFlow<()>, Self::Error>,
    ) -> Result<(), Self::Error>;

    /// Visits the own lane from a cursor on, in the order of expiry.
    fn visit_own(
        &self,
        from: OwnCursor,
        visit: impl FnMut(OwnEntry, Self::Version<'_>) -> Result<ControlFlow<()>, Self::Error>,
    ) -> Result<(), Self::Error>;
}

/// Where the purger goes on: everything that expired before these is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCursors {
    pub inherit: Position,
    pub own: OwnCursor,
}

/// A position in the own lane. New entries always sort behind it: they expire after the second in
/// which they were decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnCursor {
    #[serde(rename = "due")]
    pub expiry: i64,
    pub position: Position,
}

impl LaneCursors {
    pub const START: Self = Self {
        inherit: Position::START,
        own: OwnCursor {
            expiry: 0,
            position: Position::START,
        },
    };

    /// Returns whether neither cursor stands before its other one.
    pub fn is_at_least(&self, other: &Self) -> bool {
        self.inherit >= other.inherit && self.own >= other.own
    }
}

/// An expired version.
pub struct Expired {
    pub position: Position,
    /// Of a version with a ttl of its own: when it expired, which is its place in the own lane.
    pub own_expiry: Option<i64>,
}

/// What one slice has found.
pub struct Slice {
    /// Where the next one goes on.
    pub cursors: LaneCursors,
    /// Everything behind these is dead for ever.
    pub horizons: Horizons,
    /// How many versions expired in which second, in runs.
    pub expired: Vec<(i64, usize)>,
    /// More has expired than fits into the slice.
    pub more: bool,
    /// No item expires before this second; `None`: none does, by these rules.
    pub next_expiry: Option<i64>,
    /// By how many seconds the oldest item of the slice was overdue.
    pub lag_seconds: i64,
}

/// Finds what is expired at `now` and hands it to `take`, which returns whether it took the
/// version. `pending_since` is the second of the oldest command that is not committed.
pub fn slice<R: LaneReader>(
    lanes: &R,
    rules: &ExpiryRules,
    cursors: LaneCursors,
    now: i64,
    pending_since: Option<i64>,
    take: impl FnMut(Expired, R::Version<'_>) -> Result<bool, R::Error>,
) -> Result<Slice, R::Error> {
    let horizons = rules.horizons(now);
    let mut walk = Walk {
        rules,
        now,
        taken: 0,
        expired: Vec::new(),
        take,
    };
    let inherit = walk.inherit_lane(lanes, horizons, cursors.inherit)?;
    // A pending entry expires after the second in which it was decided, which may be long ago when
    // the disk is slow: no cursor may be ahead of that.
    let decided = Horizons {
        own: horizons.own.min(pending_since.unwrap_or(i64::MAX)),
        ..horizons
    };
    let own = walk.own_lane(lanes, decided, cursors.own)?;
    let expired = walk.expired;
    let oldest = expired.iter().map(|(second, _)| *second).min();
    Ok(Slice {
        cursors: LaneCursors {
            inherit: inherit.cursor,
            own: own.cursor,
        },
        horizons,
        expired,
        more: inherit.more || own.more,
        next_expiry: rules.next_expiry(inherit.head, own.head),
        lag_seconds: oldest.map_or(0, |oldest| (now - oldest).max(0)),
    })
}

/// Where a walk over a lane has ended.
struct LaneEnd<C> {
    cursor: C,
    /// The time of the first entry behind the cursor.
    head: Option<i64>,
    /// More has expired.
    more: bool,
}

impl<C> LaneEnd<C> {
    fn at(cursor: C) -> Self {
        Self {
            cursor,
            head: None,
            more: false,
        }
    }

    fn stop<E>(&mut self, head: i64, more: bool) -> Result<ControlFlow<()>, E> {
        (self.head, self.more) = (Some(head), more);
        Ok(ControlFlow::Break(()))
    }
}

struct Walk<'a, T> {
    rules: &'a ExpiryRules,
    now: i64,
    taken: usize,
    expired: Vec<(i64, usize)>,
    take: T,
}

impl<T> Walk<'_, T> {
    fn inherit_lane<R: LaneReader>(
        &mut self,
        lanes: &R,
        horizons: Horizons,
        cursor: Position,
    ) -> Result<LaneEnd<Position>, R::Error>
    where
        T: FnMut(Expired, R::Version<'_>) -> Result<bool, R::Error>,
    {
        let mut end = LaneEnd::at(cursor);
        let mut entries_left = SLICE_ENTRIES_MAX;
        lanes.visit_inherit(cursor, |entry, version| {
            if !horizons.has_inherit_passed(entry.ts) {
                return end.stop(entry.ts, false);
            }
            let inherits = entry.ttl == ItemTtl::Inherit;
            if entries_left == 0 || inherits && self.taken >= SLICE_VERSIONS_MAX {
                return end.stop(entry.ts, true);
            }
            entries_left -= 1;
            if inherits {
                let expired = Expired {
                    position: entry.position,
                    own_expiry: None,
                };
                if (self.take)(expired, version)? {
                    let expiry = self.rules.expiry_of(entry.ts, entry.ttl);
                    self.count(expiry.unwrap_or(self.now));
                }
            }
            end.cursor = entry.position.next();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(end)
    }

    fn own_lane<R: LaneReader>(
        &mut self,
        lanes: &R,
        horizons: Horizons,
        cursor: OwnCursor,
    ) -> Result<LaneEnd<OwnCursor>, R::Error>
    where
        T: FnMut(Expired, R::Version<'_>) -> Result<bool, R::Error>,
    {
        let mut end = LaneEnd::at(cursor);
        lanes.visit_own(cursor, |OwnEntry { expiry, position }, version| {
            if !horizons.has_own_passed(expiry) {
                return end.stop(expiry, false);
            }
            if self.taken >= SLICE_VERSIONS_MAX {
                return end.stop(expiry, true);
            }
            let expired = Expired {
                position,
                own_expiry: Some(expiry),
            };
            if (self.take)(expired, version)? {
                self.count(expiry);
            }
            end.cursor = OwnCursor {
                expiry,
                position: position.next(),
            };
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(end)
    }

    fn count(&mut self, expiry: i64) {
        self.taken += 1;
        match self.expired.last_mut() {
            Some((second, items)) if *second == expiry => *items += 1,
            _ => self.expired.push((expiry, 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        convert::Infallible,
        num::NonZeroU32,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{expiry::backlog, model::ttl::DefaultTtl};

    /// Lanes in memory.
    #[derive(Default)]
    struct MemoryLanes {
        lsn: u64,
        feed: BTreeMap<Position, (i64, ItemTtl)>,
        own: BTreeSet<OwnCursor>,
    }

    impl LaneReader for MemoryLanes {
        type Version<'v> = Position;
        type Error = Infallible;

        fn visit_inherit(
            &self,
            from: Position,
            mut visit: impl FnMut(InheritEntry, Position) -> Result<ControlFlow<()>, Infallible>,
        ) -> Result<(), Infallible> {
            for (&position, &(ts, ttl)) in self.feed.range(from..) {
                let entry = InheritEntry { position, ts, ttl };
                if visit(entry, position)?.is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn visit_own(
            &self,
            from: OwnCursor,
            mut visit: impl FnMut(OwnEntry, Position) -> Result<ControlFlow<()>, Infallible>,
        ) -> Result<(), Infallible> {
            for &OwnCursor { expiry, position } in self.own.range(from..) {
                if visit(OwnEntry { expiry, position }, position)?.is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    impl MemoryLanes {
        fn write(&mut self, ts: i64, ttl: ItemTtl) {
            self.lsn += 1;
            let position = Position {
                lsn: self.lsn,
                index: 0,
            };
            self.feed.insert(position, (ts, ttl));
            if let Some(expiry) = ttl.own_expiry(ts) {
                self.own.insert(OwnCursor { expiry, position });
            }
        }

        fn purge(&mut self, rules: &ExpiryRules, cursors: LaneCursors, now: i64) -> Slice {
            let mut taken = Vec::new();
            let found = slice(self, rules, cursors, now, None, |expired, version| {
                assert_eq!(expired.position, version);
                taken.push(expired);
                Ok(true)
            });
            let Ok(found) = found;
            for Expired {
                position,
                own_expiry,
            } in taken
            {
                assert!(self.feed.remove(&position).is_some(), "taken once");
                if let Some(expiry) = own_expiry {
                    assert!(self.own.remove(&OwnCursor { expiry, position }));
                }
            }
            found
        }

        fn expired(&self, rules: &ExpiryRules, now: i64) -> usize {
            let items = self.feed.values();
            items
                .filter(|(ts, ttl)| rules.is_expired(*ts, *ttl, now))
                .count()
        }

        fn next_expiry(&self, rules: &ExpiryRules) -> Option<i64> {
            let items = self.feed.values();
            items
                .filter_map(|(ts, ttl)| rules.expiry_of(*ts, *ttl))
                .min()
        }
    }

    fn after(seconds: u32) -> NonZeroU32 {
        NonZeroU32::new(seconds).expect("at least a second")
    }

    #[test]
    fn a_slice_is_bounded_and_the_next_goes_on_behind_it() {
        let rules = ExpiryRules::new(DefaultTtl::After(after(10)));
        let mut lanes = MemoryLanes::default();
        for _ in 0..SLICE_VERSIONS_MAX {
            lanes.write(100, ItemTtl::Inherit);
            lanes.write(100, ItemTtl::After(after(10)));
        }
        let first = lanes.purge(&rules, LaneCursors::START, 110);
        assert_eq!((first.expired, first.more), (vec![(110, 512)], true));
        let second = lanes.purge(&rules, first.cursors, 113);
        assert_eq!((second.expired, second.more), (vec![(110, 512)], false));
        assert_eq!((second.lag_seconds, second.next_expiry), (3, None));
        assert!(lanes.feed.is_empty());
    }

    #[test]
    fn no_cursor_passes_what_is_not_committed() {
        let rules = ExpiryRules::new(DefaultTtl::NoDefault);
        let mut lanes = MemoryLanes::default();
        lanes.write(100, ItemTtl::After(after(10)));
        let Ok(found) = slice(
            &lanes,
            &rules,
            LaneCursors::START,
            120,
            Some(109),
            |_, _| Ok(true),
        );
        assert_eq!(found.cursors, LaneCursors::START);
        assert_eq!(found.horizons.own, 120);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Wait(i64),
        Write(ItemTtl),
        Default(DefaultTtl),
        Purge,
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let seconds = || (1u32..12).prop_map(after);
        let ttl = prop_oneof![
            2 => Just(ItemTtl::Inherit),
            1 => Just(ItemTtl::Never),
            2 => seconds().prop_map(ItemTtl::After),
        ];
        let default = prop_oneof![
            1 => Just(DefaultTtl::Off),
            1 => Just(DefaultTtl::NoDefault),
            2 => seconds().prop_map(DefaultTtl::After),
        ];
        prop_oneof![
            3 => (0i64..8).prop_map(Event::Wait),
            4 => ttl.prop_map(Event::Write),
            2 => default.prop_map(Event::Default),
            2 => Just(Event::Purge),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn exactly_the_expired_are_found_and_cursors_never_go_back(
            events in proptest::collection::vec(any_event(), 1..80),
        ) {
            let (mut now, mut rules) = (1_000, ExpiryRules::new(DefaultTtl::Off));
            let (mut lanes, mut cursors) = (MemoryLanes::default(), LaneCursors::START);
            for event in events {
                match event {
                    Event::Wait(seconds) => now += seconds,
                    Event::Write(ttl) => lanes.write(now, ttl),
                    Event::Default(default) => rules = rules.with_default(default, now),
                    Event::Purge => {
                        let found = lanes.purge(&rules, cursors, now);
                        prop_assert!(found.cursors.is_at_least(&cursors));
                        prop_assert_eq!(lanes.expired(&rules, now), 0);
                        let next = lanes.next_expiry(&rules).unwrap_or(i64::MAX);
                        prop_assert!(found.next_expiry.unwrap_or(i64::MAX) <= next);
                        cursors = found.cursors;
                    }
                }
                let Ok(behind) = backlog(&lanes, &rules, cursors, now, usize::MAX);
                prop_assert_eq!(behind.items, lanes.expired(&rules, now));
            }
        }
    }
}
