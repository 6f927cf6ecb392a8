//! Purging removes exactly what is expired, whatever else is being decided and committed at the same time.

use std::collections::BTreeSet;

use super::bench::{Bench, START, Want, after, epk, item, item_with_ttl};
use crate::{
    expiry::lanes::{LaneCursors, SLICE_VERSIONS_MAX},
    model::ttl::DefaultTtl,
    shard::{decide::purge, overlay::Overlay},
    store::{
        Batch,
        engine::Durability,
        keys::{self, Position},
    },
};

/// More than one slice removes.
const MANY: usize = SLICE_VERSIONS_MAX + 100;
const BATCH: usize = 100;

fn create_many(bench: &mut Bench, count: usize, make: impl Fn(&str) -> serde_json::Value) {
    let wants: Vec<Want> = (0..count)
        .map(|n| Want::Create(make(&format!("{n:05}"))))
        .collect();
    for batch in wants.chunks(BATCH) {
        assert!(bench.batch(1, batch).iter().all(Result::is_ok));
    }
}

pub(super) fn take_slice(bench: &Bench, cursors: LaneCursors) -> purge::Slice {
    let rules = bench.view.state().rules;
    purge::slice(
        bench.engine(),
        &Overlay::default(),
        &rules,
        cursors,
        bench.clock.now(),
        None,
    )
    .expect("a slice")
}

#[test]
fn exactly_the_expired_leave_with_all_their_traces() {
    let mut bench = Bench::with_unique_keys(after(10), &["/email", "/name"]);
    let person = |id: &str, ttl: Option<i64>| {
        let mut body = serde_json::json!({"id": id, "email": id, "name": id});
        if let Some(ttl) = ttl {
            body["ttl"] = ttl.into();
        }
        Want::Create(body)
    };
    let kept = [
        person("default", None),
        person("never", Some(-1)),
        person("long", Some(60)),
    ];
    let gone = [person("short", Some(5)), person("older", Some(9))];
    for want in kept.iter().chain(&gone) {
        bench.run(want.clone()).expect("created");
    }
    let only_kept = {
        let mut other = Bench::with_unique_keys(after(10), &["/email", "/name"]);
        kept.iter()
            .for_each(|want| drop(other.run(want.clone()).expect("created")));
        other.raw()
    };
    bench.wait(9);
    assert_eq!(bench.raw_counts(), [5, 5, 3, 10]);
    bench.purge();
    assert_eq!(bench.raw(), only_kept);
    bench.check_accounts();
    bench.wait(1);
    bench.purge();
    assert_eq!(
        bench.raw_counts(),
        [2, 2, 1, 4],
        "the one under the default"
    );
    bench.wait(50);
    bench.purge();
    assert_eq!(bench.listed(9), ["never"]);
    assert_eq!(bench.raw_counts(), [1, 1, 0, 2]);
    bench.check_accounts();
}

#[test]
fn a_slice_is_bounded_and_the_next_goes_on_behind_it() {
    for make in [item as fn(&str) -> serde_json::Value, |id| {
        item_with_ttl(id, 10)
    }] {
        let mut bench = Bench::new(after(10));
        create_many(&mut bench, MANY, make);
        bench.wait(10);
        let first = take_slice(&bench, LaneCursors::START);
        assert_eq!(
            (first.purge.versions.len(), first.more),
            (SLICE_VERSIONS_MAX, true)
        );
        let second = take_slice(&bench, first.purge.cursors.expect("it moved on"));
        assert_eq!(
            (second.purge.versions.len(), second.more),
            (MANY - SLICE_VERSIONS_MAX, false)
        );
        let keys = |slice: &purge::Slice| {
            slice
                .purge
                .versions
                .iter()
                .map(|version| version.key.clone())
                .collect::<BTreeSet<_>>()
        };
        assert!(keys(&first).is_disjoint(&keys(&second)));

        assert_eq!(bench.purge(), 2);
        assert_eq!(bench.raw_counts(), [0; 4]);
        assert_eq!(
            bench
                .view
                .counters
                .purged
                .load(std::sync::atomic::Ordering::Relaxed),
            MANY as u64
        );
        bench.check_accounts();
    }
}

#[test]
fn passing_over_what_stays_is_bounded_too() {
    let mut bench = Bench::new(after(10));
    let passed_max = 4 * SLICE_VERSIONS_MAX;
    create_many(&mut bench, passed_max + 1, |id| item_with_ttl(id, -1));
    bench.run(Want::Create(item("due"))).expect("created");
    bench.wait(10);
    let first = take_slice(&bench, LaneCursors::START);
    assert_eq!((first.purge.versions.len(), first.more), (0, true));
    let second = take_slice(&bench, first.purge.cursors.expect("it moved on"));
    assert_eq!((second.purge.versions.len(), second.more), (1, false));
    assert_eq!(bench.purge(), 2);
    assert_eq!(bench.listed(1_000).len(), passed_max + 1);
}

#[test]
fn what_was_passed_is_never_looked_at_again() {
    let mut bench = Bench::new(after(10));
    bench
        .run(Want::Create(item_with_ttl("never", -1)))
        .expect("created");
    bench.run(Want::Create(item("inherits"))).expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 10)))
        .expect("created");
    bench.wait(10);
    bench.purge();
    let cursors = bench.view.state().cursors;
    assert!(
        cursors.inherit > Position { lsn: 3, index: 0 },
        "{cursors:?}"
    );
    assert_eq!(cursors.own.expiry, START + 10);

    // Whoever reads these entries fails.
    let mut traps = Batch::default();
    traps.put(keys::feed(Position { lsn: 2, index: 0 }), b"trap");
    traps.put(keys::own_lane(START + 1, Position::START), b"trap");
    bench
        .engine()
        .write(traps, Durability::Buffered)
        .expect("written");
    let rules = bench.view.state().rules;
    let from_start = purge::slice(
        bench.engine(),
        &Overlay::default(),
        &rules,
        LaneCursors::START,
        bench.clock.now(),
        None,
    );
    assert!(from_start.is_err(), "the traps work");
    let mut bench = bench.reopen();
    assert_eq!(
        bench.view.state().cursors,
        cursors,
        "cursors survive a restart"
    );
    for _ in 0..3 {
        bench.run(Want::Create(item("later"))).expect("created");
        bench
            .run(Want::Create(item_with_ttl("later own", 3)))
            .expect("created");
        bench.wait(10);
        let before = bench.view.state().cursors;
        bench.purge();
        let after = bench.view.state().cursors;
        assert!(
            after.inherit > before.inherit
                && (after.own.expiry, after.own.position)
                    > (before.own.expiry, before.own.position)
        );
        assert_eq!(bench.listed(9), ["never"]);
    }
}

#[test]
fn the_purger_sleeps_until_the_second_when_the_next_item_falls_due() {
    let mut bench = Bench::new(after(100));
    bench.purge();
    assert_eq!(
        bench.shard.purger.next_expiry,
        i64::MAX,
        "nothing is stored"
    );
    bench.run(Want::Create(item("default"))).expect("created");
    assert_eq!(bench.shard.purger.next_expiry, START + 100);
    bench
        .run(Want::Create(item_with_ttl("never", -1)))
        .expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 70)))
        .expect("created");
    assert_eq!(bench.shard.purger.next_expiry, START + 70);
    bench.wait(69);
    bench.stage_purge();
    assert!(!bench.is_committing());
    bench.wait(1);
    bench.purge();
    assert_eq!(bench.listed(9), ["default", "never"]);
    assert_eq!(bench.shard.purger.next_expiry, START + 100);
    bench.change_default(after(80));
    assert!(bench.shard.purger.next_expiry <= START + 80);
    bench.wait(9);
    bench.purge();
    assert_eq!(bench.listed(9), ["default", "never"]);
    bench.wait(1);
    bench.purge();
    assert_eq!(bench.raw_counts(), [1, 1, 0, 0]);
}

#[test]
fn a_paused_clock_destroys_nothing_and_hides_everything() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("x"))).expect("created");
    bench.wait(5_000);
    bench.clock.set_purging_paused(true);
    bench.purge();
    assert_eq!(bench.read("x"), None);
    assert_eq!(bench.raw_counts(), [1, 1, 0, 0]);
    bench.clock.set_purging_paused(false);
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4]);
}

#[test]
fn a_full_disk_is_purged_with_the_space_that_is_set_aside_while_users_may_not_write() {
    let mut bench = Bench::with_reserve(after(5));
    bench.run(Want::Create(item("mortal"))).expect("created");
    bench.send(1, &[Want::Create(item("refused"))], true);
    bench.fail_commit();
    assert!(bench.view.engine.reserve.is_released());
    bench.wait(5);
    bench.purge();
    assert_eq!(bench.raw_counts(), [1, 1, 0, 0], "the engine is not open");

    // It was opened anew, with the space that was released.
    bench.view.set_shortage(None);
    let mut refused = bench.send(1, &[Want::Create(item("refused"))], true);
    let refused = refused.now().expect_err("the space is not for users");
    assert_eq!(refused.status(), 507, "{refused}");
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4]);

    bench.view.engine.reserve.restore();
    assert_eq!(bench.status(Want::Create(item("taken"))), 201);
}

/// How far the commit of the write has come when the slice is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reached {
    /// Decided, and waiting for the group under way.
    Staged,
    /// In the group under way.
    UnderWay,
    /// In the engine, but the actor has not heard of it.
    Written,
    /// Done.
    Told,
}

#[test]
fn an_item_written_over_at_any_time_around_a_purge_survives_it() {
    for reached in [
        Reached::Staged,
        Reached::UnderWay,
        Reached::Written,
        Reached::Told,
    ] {
        for body in [item("x"), item_with_ttl("x", 5)] {
            let mut bench = Bench::with_unique_keys(after(5), &["/id"]);
            bench.run(Want::Create(body.clone())).expect("created");
            bench.wait(5);
            let mut other = (reached == Reached::Staged)
                .then(|| bench.send(1, &[Want::Create(item("other"))], true));
            let mut over = bench.send(1, &[Want::Upsert(body)], true);
            let mut written = None;
            match reached {
                Reached::Staged | Reached::UnderWay => {}
                Reached::Written => written = bench.write(),
                Reached::Told => bench.settle(),
            }
            bench.stage_purge();
            if let Some(written) = written {
                bench.tell(written);
            }
            bench.settle();
            over.now().expect("committed");
            let others = other
                .as_mut()
                .map_or(0, |other| usize::from(other.now().is_ok()));
            assert!(bench.read("x").is_some(), "{reached:?}");
            let own = bench.raw_counts()[2];
            assert_eq!(
                bench.raw_counts(),
                [1 + others, 1 + others, own, 1 + others],
                "{reached:?}"
            );
            bench.check_accounts();
            bench.wait(5);
            bench.purge();
            assert_eq!(
                bench.raw_counts(),
                [0; 4],
                "{reached:?}: nothing is left behind"
            );
            bench.check_accounts();
        }
    }
}

#[test]
fn an_item_created_again_while_its_purge_is_pending_survives() {
    for alone in [true, false] {
        let mut bench = Bench::with_unique_keys(after(5), &["/id"]);
        bench.run(Want::Create(item("again"))).expect("created");
        bench.wait(5);
        // With a group under way, purge and create meet in the next one; without, the purge is the group under way.
        let mut other = (!alone).then(|| bench.send(1, &[Want::Create(item("other"))], true));
        bench.stage_purge();
        let mut again = bench.send(1, &[Want::Create(item("again"))], true);
        bench.settle();
        assert!(other.as_mut().is_none_or(|other| other.now().is_ok()));
        assert_eq!(
            again.now().expect("committed").results[0]
                .as_ref()
                .expect("created")
                .status,
            201
        );
        assert!(
            bench.read("again").is_some(),
            "an acknowledged item was purged"
        );
        let live = bench.listed(9).len();
        assert_eq!(bench.raw_counts(), [live, live, 0, live]);
        bench.check_accounts();
    }
}

#[test]
fn a_delete_and_a_purge_of_one_item_count_it_once() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("x"))).expect("created");
    bench.run(Want::Create(item("y"))).expect("created");
    bench.wait(4);
    let mut delete = bench.send(1, &[Want::Delete("x".into())], true);
    bench.wait(1);
    bench.stage_purge();
    bench.settle();
    delete.now().expect("deleted");
    assert_eq!(bench.raw_counts(), [0; 4]);
    bench.check_accounts();
    assert_eq!(bench.view.state().documents, 0);
}

#[test]
fn a_second_slice_before_the_first_is_committed_takes_nothing_twice() {
    let mut bench = Bench::new(after(5));
    create_many(&mut bench, MANY, item);
    bench.wait(5);
    // The end of an earlier group lets the purger go on while its slice is still on the way.
    let mut other = bench.send(2, &[Want::Create(item("other"))], true);
    bench.stage_purge();
    bench.commit();
    bench.stage_purge();
    bench.settle();
    other.now().expect("created");
    bench.purge();
    assert_eq!(
        bench
            .view
            .counters
            .purged
            .load(std::sync::atomic::Ordering::Relaxed),
        MANY as u64
    );
    assert!(bench.read_in(2, "other").is_some());
    bench.check_accounts();
}

#[test]
fn nothing_is_purged_while_time_to_live_is_off() {
    let mut bench = Bench::new(DefaultTtl::Off);
    bench.run(Want::Create(item("inherits"))).expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 1)))
        .expect("created");
    bench.wait(1_000_000);
    bench.purge();
    assert_eq!(bench.listed(9), ["inherits", "own"]);
    assert!(
        bench
            .view
            .live(&keys::document(&epk(1), "own"))
            .expect("readable")
            .is_some()
    );
}

#[test]
fn an_item_that_expires_before_the_actor_hears_of_its_commit_is_purged() {
    for body in [item("x"), item_with_ttl("x", 1)] {
        let mut bench = Bench::with_unique_keys(after(1), &["/id"]);
        let mut create = bench.send(1, &[Want::Create(body)], true);
        let written = bench.write().expect("a group is under way");
        bench.wait(1);
        bench.stage_purge();
        bench.tell(written);
        bench.settle();
        create.now().expect("created");
        bench.purge();
        assert_eq!(bench.raw_counts(), [0; 4], "the cursor passed it over");
        bench.check_accounts();
    }
}

#[test]
fn an_item_that_expires_while_the_disk_is_slow_is_purged() {
    let mut bench = Bench::new(DefaultTtl::NoDefault);
    bench
        .run(Want::Create(item_with_ttl("other", 5)))
        .expect("created");
    let mut create = bench.send(1, &[Want::Create(item_with_ttl("x", 2))], true);
    bench.wait(5);
    // What is due in the lane would lead the cursor behind the place where the pending entry will be.
    bench.stage_purge();
    bench.settle();
    create.now().expect("created");
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4], "the cursor was ahead of it");
}
