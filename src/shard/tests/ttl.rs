//! The rules of time to live, as a shard applies them to readers and writers.

use serde_json::{Value, json};

use super::bench::{Bench, START, Want, after, item, item_with_ttl};
use crate::model::ttl::DefaultTtl;

const DEFAULTS: [DefaultTtl; 3] = [
    DefaultTtl::Off,
    DefaultTtl::NoDefault,
    DefaultTtl::After(std::num::NonZeroU32::new(10).expect("not zero")),
];

/// Everything that can look at an item agrees on whether it is there.
fn assert_visible(bench: &mut Bench, id: &str, visible: bool, why: &str) {
    assert_eq!(bench.read(id).is_some(), visible, "point read: {why}");
    assert_eq!(
        bench.listed(3).contains(&id.to_owned()),
        visible,
        "page: {why}"
    );
    assert_eq!(
        bench.feed(3).contains(&id.to_owned()),
        visible,
        "feed: {why}"
    );
    let status = if visible { 200 } else { 404 };
    assert_eq!(
        bench.status(Want::Read(id.into())),
        status,
        "read in a batch: {why}"
    );
}

#[test]
fn the_matrix_of_container_and_item() {
    let items: [(&str, Value); 3] = [
        ("inherits", item("inherits")),
        ("never", item_with_ttl("never", -1)),
        ("own", item_with_ttl("own", 5)),
    ];
    let lifetimes = [
        [None, None, None],
        [None, None, Some(5)],
        [Some(10), None, Some(5)],
    ];
    for (default, row) in DEFAULTS.into_iter().zip(lifetimes) {
        let mut bench = Bench::new(default);
        for (_, body) in &items {
            assert_eq!(bench.status(Want::Create(body.clone())), 201);
        }
        for second in 0..=12 {
            for ((id, _), lifetime) in items.iter().zip(row) {
                let visible = lifetime.is_none_or(|lifetime| second < lifetime);
                assert_visible(
                    &mut bench,
                    id,
                    visible,
                    &format!("{default:?} {id} after {second} s"),
                );
            }
            bench.wait(1);
        }
        bench.purge();
        let left = row.iter().filter(|lifetime| lifetime.is_none()).count();
        assert_eq!(bench.view.state().documents, left as u64, "{default:?}");
        bench.check_accounts();
    }
}

#[test]
fn an_expired_item_is_missing_for_every_operation_purged_or_not() {
    for purged in [false, true] {
        for body in [item("x"), item_with_ttl("x", 3)] {
            let mut bench = Bench::new(after(3));
            let patch =
                || Want::Patch("x".into(), json!([{"op": "set", "path": "/n", "value": 1}]));
            let created = bench.run(Want::Create(body.clone())).expect("created");
            let etag = created.etag.expect("an etag").to_string();
            bench.wait(3);
            if purged {
                bench.purge();
                assert_eq!(bench.raw_counts(), [0; 4]);
            }
            for want in [
                Want::Read("x".into()),
                Want::Replace(body.clone()),
                Want::ReplaceIf(body.clone(), etag),
                patch(),
                Want::Delete("x".into()),
            ] {
                assert_eq!(
                    bench.status(want.clone()),
                    404,
                    "{want:?}, purged: {purged}"
                );
            }
            assert_eq!(
                bench.status(Want::Create(body.clone())),
                201,
                "purged: {purged}"
            );
            bench.wait(3);
            if purged {
                bench.purge();
            }
            assert_eq!(
                bench.status(Want::Upsert(body.clone())),
                201,
                "purged: {purged}"
            );
            assert_eq!(bench.status(Want::Upsert(body.clone())), 200);
            assert_eq!(bench.raw_counts()[..2], [1, 1], "one version is left");
            bench.check_accounts();
        }
    }
}

#[test]
fn an_item_made_again_after_its_expiry_is_a_new_one() {
    let mut bench = Bench::new(after(3));
    let first = super::bench::body(&bench.run(Want::Create(item("x"))).expect("created"));
    bench.wait(3);
    let second = super::bench::body(&bench.run(Want::Upsert(item("x"))).expect("created"));
    assert_ne!(first["_rid"], second["_rid"]);
    assert_ne!(first["_etag"], second["_etag"]);
    let third = super::bench::body(&bench.run(Want::Upsert(item("x"))).expect("replaced"));
    assert_eq!(second["_rid"], third["_rid"]);
}

#[test]
fn every_write_starts_the_countdown_again() {
    let mut bench = Bench::new(after(10));
    bench
        .run(Want::Create(item_with_ttl("x", 4)))
        .expect("created");
    for (want, lifetime) in [
        (Want::Upsert(item_with_ttl("x", 4)), 4),
        (Want::Replace(item_with_ttl("x", 7)), 7),
        (
            Want::Patch("x".into(), json!([{"op": "set", "path": "/n", "value": 1}])),
            7,
        ),
        (
            Want::Patch("x".into(), json!([{"op": "remove", "path": "/ttl"}])),
            10,
        ),
        (Want::Replace(item_with_ttl("x", 12)), 12),
        (Want::Replace(item("x")), 10),
        (
            Want::Patch(
                "x".into(),
                json!([{"op": "add", "path": "/ttl", "value": 2}]),
            ),
            2,
        ),
    ] {
        bench.wait(1);
        assert_eq!(bench.status(want.clone()), 200, "{want:?}");
        assert_eq!(bench.raw_counts()[..2], [1, 1], "{want:?}");
        let written = bench.clock.now();
        assert_eq!(
            bench.read("x").expect("alive")["_ts"],
            json!(written),
            "{want:?}"
        );
        // Judged at every second of its life, on a copy of the clock's time only.
        let state = bench.view.state();
        let ttl = bench
            .view
            .live(&crate::store::keys::document(&super::bench::epk(1), "x"))
            .unwrap()
            .unwrap()
            .header
            .ttl;
        assert!(
            !state.rules.is_expired(written, ttl, written + lifetime - 1),
            "{want:?}"
        );
        assert!(
            state.rules.is_expired(written, ttl, written + lifetime),
            "{want:?}"
        );
    }
    bench.wait(2);
    assert_eq!(bench.read("x"), None);
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4]);
}

#[test]
fn expiry_is_final_whatever_the_default_becomes_before_and_after_the_purge() {
    for purge_first in [false, true] {
        for next in [
            DefaultTtl::Off,
            DefaultTtl::NoDefault,
            after(1_000_000),
            after(1),
        ] {
            let mut bench = Bench::new(after(5));
            bench.run(Want::Create(item("inherits"))).expect("created");
            bench
                .run(Want::Create(item_with_ttl("own", 5)))
                .expect("created");
            bench
                .run(Want::Create(item_with_ttl("never", -1)))
                .expect("created");
            bench.wait(5);
            if purge_first {
                bench.purge();
            }
            bench.change_default(next);
            for back in [DefaultTtl::NoDefault, DefaultTtl::Off, after(2_000_000)] {
                for id in ["inherits", "own"] {
                    assert_visible(&mut bench, id, false, &format!("{next:?} {back:?} {id}"));
                }
                assert_visible(&mut bench, "never", true, "never expires");
                bench.change_default(back);
            }
            bench.purge();
            assert_eq!(
                bench.raw_counts(),
                [1, 1, 0, 0],
                "{next:?}: what is dead under no current rule goes all the same"
            );
            assert_eq!(bench.status(Want::Create(item("inherits"))), 201);
            bench.check_accounts();
        }
    }
}

#[test]
fn what_is_alive_when_the_default_is_raised_lives_by_the_new_one() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("x"))).expect("created");
    bench.wait(4);
    bench.change_default(after(20));
    bench.wait(15);
    assert!(bench.read("x").is_some());
    bench.wait(1);
    assert_eq!(bench.read("x"), None);
}

#[test]
fn turning_time_to_live_on_counts_from_the_second_of_the_last_write() {
    let mut bench = Bench::new(DefaultTtl::Off);
    bench.run(Want::Create(item("old"))).expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 7)))
        .expect("created");
    bench.wait(8);
    bench.run(Want::Create(item("young"))).expect("created");
    bench.purge();
    assert_eq!(bench.listed(9), ["old", "own", "young"]);
    bench.change_default(after(9));
    assert_eq!(
        bench.listed(9),
        ["old", "young"],
        "a ttl of its own counts, too"
    );
    bench.wait(1);
    assert_eq!(bench.listed(9), ["young"]);
    bench.purge();
    assert_eq!(bench.raw_counts(), [1, 1, 0, 0]);
}

#[test]
fn a_default_that_arrives_late_brings_nothing_back() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("x"))).expect("created");
    let decided_elsewhere = START + 4;
    bench.wait(5);
    assert_eq!(bench.read("x"), None);
    let mut answer = bench.send_default_at(after(1_000), decided_elsewhere);
    bench.settle();
    answer.now().expect("changed");
    assert_eq!(
        bench.read("x"),
        None,
        "an item that a reader had found expired came back"
    );
}

#[test]
fn no_reader_sees_an_item_expire_and_come_back_while_a_default_is_being_committed() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("kept"))).expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 5)))
        .expect("created");
    bench.wait(4);
    let mut raised = bench.send_default(after(1_000));
    // The commit takes a second, in which the old default would end the item.
    bench.wait(1);
    let seen = bench.read("kept").is_some();
    assert_eq!(
        bench.read("own"),
        None,
        "whatever becomes of the change, this one is gone"
    );
    bench.settle();
    raised.now().expect("changed");
    assert_eq!((seen, bench.read("kept").is_some()), (true, true));

    // The same with two changes on the way, the second of which ends the item.
    bench.wait(994);
    let mut longer = bench.send_default(after(2_000));
    let mut shorter = bench.send_default(after(10));
    bench.wait(1);
    assert!(bench.read("kept").is_some());
    bench.commit();
    longer.now().expect("changed");
    assert!(bench.read("kept").is_some());
    bench.settle();
    shorter.now().expect("changed");
    assert_eq!(bench.read("kept"), None);
}

#[test]
fn two_changes_in_one_group_that_end_where_they_began_leave_nothing_pending() {
    let mut bench = Bench::new(after(1));
    // In this second the watermarks come as far as they can: no later change of it moves them.
    bench.change_default(after(5));
    bench
        .run(Want::Create(item_with_ttl("own", 1)))
        .expect("created");
    // While a group is in flight, both changes gather in the next one.
    bench.send(0, &[Want::Create(item("other"))], true);
    let mut off = bench.send_default(DefaultTtl::Off);
    let mut on = bench.send_default(after(5));
    bench.settle();
    off.now().expect("changed");
    on.now().expect("changed");
    bench.wait(1);
    assert_eq!(bench.read("own"), None, "the off in between is past");
}

#[test]
fn a_default_that_could_not_be_committed_was_never_in_force() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("x"))).expect("created");
    bench.wait(4);
    let mut raised = bench.send_default(after(1_000));
    bench.fail_commit();
    assert!(raised.now().is_err());
    assert!(bench.read("x").is_some());
    bench.wait(1);
    assert_eq!(bench.read("x"), None);
    bench.view.set_shortage(None);
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4]);
}

#[test]
fn an_answer_that_rests_on_a_pending_default_waits_for_it() {
    let mut bench = Bench::new(DefaultTtl::Off);
    bench.run(Want::Create(item("x"))).expect("created");
    bench.wait(5);
    let mut shorter = bench.send_default(after(5));
    let mut delete = bench.send(1, &[Want::Delete("x".into())], true);
    assert!(
        delete.get().is_none(),
        "missing only if the new default is kept"
    );
    bench.settle();
    shorter.now().expect("changed");
    let reply = delete.now().expect("decided");
    assert_eq!(
        reply.results[0].as_ref().expect_err("expired").status(),
        404
    );
}

#[test]
fn rules_and_watermarks_survive_a_restart() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("inherits"))).expect("created");
    bench
        .run(Want::Create(item_with_ttl("own", 5)))
        .expect("created");
    bench.wait(5);
    bench.change_default(DefaultTtl::Off);
    let state = bench.view.state();
    let mut bench = bench.reopen();
    assert_eq!(bench.view.state(), state);
    assert_eq!(bench.listed(9), [] as [&str; 0]);
    bench.purge();
    assert_eq!(bench.raw_counts(), [0; 4]);
}

#[test]
fn a_suspect_time_sets_no_watermark_past_items_that_it_alone_has_let_expire() {
    let mut bench = Bench::new(after(100));
    bench.run(Want::Create(item("x"))).expect("created");
    let before = bench.view.state().rules;
    bench.clock.set_purging_paused(true);
    // Nothing has expired: there is nothing to be wrong about.
    bench.change_default(after(200));
    bench.change_default(after(100));
    assert_eq!(bench.view.state().rules.default, before.default);

    bench.wait(86_400);
    let unchanged = bench.view.state().rules;
    let mut held = bench.send_default(after(1_000_000));
    bench.settle();
    assert!(held.get().is_none(), "it waits for a time that is trusted");
    assert_eq!(bench.view.state().rules, unchanged);

    bench.clock.set_purging_paused(false);
    bench.change_held_defaults();
    bench.settle();
    held.now().expect("changed");
    assert_eq!(bench.read("x"), None, "expired by a time that was right");
}
