//! What is overdue is what has expired and is not purged, from either lane, whatever the default was meanwhile.

use super::bench::{Bench, Want, after, item, item_with_ttl};
use crate::{expiry::Backlog, model::ttl::DefaultTtl};

/// How many are overdue, and since how many seconds.
fn told(bench: &Bench) -> (usize, Option<i64>) {
    let Backlog {
        items,
        oldest_expiry,
    } = bench.view.expiry_backlog().expect("a count");
    (items, oldest_expiry.map(|due| bench.clock.now() - due))
}

fn create(bench: &mut Bench, body: serde_json::Value) {
    bench.run(Want::Create(body)).expect("created");
}

#[test]
fn items_of_both_lanes_are_overdue_from_their_second_until_they_are_purged() {
    let mut bench = Bench::new(after(10));
    create(&mut bench, item("by default"));
    create(&mut bench, item_with_ttl("earlier", 4));
    create(&mut bench, item_with_ttl("later", 30));
    create(&mut bench, item_with_ttl("never", -1));
    assert_eq!(told(&bench), (0, None));
    bench.wait(3);
    assert_eq!(told(&bench), (0, None));
    bench.wait(1);
    assert_eq!(told(&bench), (1, Some(0)));
    bench.wait(8);
    assert_eq!(told(&bench), (2, Some(8)));
    bench.purge();
    assert_eq!(told(&bench), (0, None));
    bench.wait(20);
    assert_eq!(told(&bench), (1, Some(2)));
}

#[test]
fn nothing_is_overdue_without_time_to_live() {
    let mut bench = Bench::new(DefaultTtl::Off);
    create(&mut bench, item("one"));
    create(&mut bench, item_with_ttl("two", 1));
    bench.wait(1_000);
    assert_eq!(told(&bench), (0, None));
}

#[test]
fn a_slice_tells_how_many_fell_due_in_which_second() {
    let mut bench = Bench::new(after(10));
    create(&mut bench, item("first"));
    create(&mut bench, item("second"));
    bench.wait(2);
    create(&mut bench, item("third"));
    create(&mut bench, item_with_ttl("fourth", 3));
    bench.wait(20);
    let slice = super::purging::take_slice(&bench, crate::expiry::lanes::LaneCursors::START);
    let now = bench.clock.now();
    let ago: Vec<(i64, usize)> = slice
        .purge
        .expired
        .iter()
        .map(|(due, items)| (now - due, *items))
        .collect();
    assert_eq!(ago, [(12, 2), (10, 1), (17, 1)]);
    assert_eq!(slice.lag_seconds, 17);
}
