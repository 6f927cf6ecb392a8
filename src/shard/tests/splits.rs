//! A shard cut in two: its parts together hold exactly what it held, and each ends with nothing but its own.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::bench::{
    Bench, Want, after, epk, facts, item, item_with_ttl, small_resources, temporary_folder,
};
use crate::{
    model::{
        epk::EpkRange, indexing_policy::IndexingPolicy, partition_key::PartitionKeyDefinition,
        ttl::DefaultTtl,
    },
    shard::{facts::ShardFacts, split},
    store::keys,
};

/// The parts of a shard, cut at a key.
fn cut(bench: &Bench, at: u8) -> [(TempDir, ShardFacts); 2] {
    let full = EpkRange::full();
    let ranges = [
        EpkRange::new(full.min, epk(at)),
        EpkRange::new(epk(at), full.max),
    ];
    let mut id = 0;
    ranges.map(|range| {
        id += 1;
        let part = ShardFacts {
            range_id: id,
            range,
            parents: vec![0],
            unique_keys: bench.view.facts.unique_keys.clone(),
            ..facts(0, &[])
        };
        let folder = temporary_folder();
        let unmarked = |_: &std::path::Path| Ok(());
        let resources = small_resources();
        split::make_part(&bench.view, &part, folder.path(), &resources, &[], unmarked)
            .expect("the part is made");
        (folder, part)
    })
}

fn open_parts(bench: &Bench, at: u8) -> Vec<Bench> {
    let parts = cut(bench, at).into_iter();
    parts
        .map(|(folder, part)| Bench::of_part(part, bench.clock.clone(), folder))
        .collect()
}

/// All that is stored for items of a range, apart from state and policy.
fn entries(bench: &Bench) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut raw = bench.raw();
    raw.retain(|key, _| !matches!(key.first(), Some(b'm' | b'p' | b'a' | b'h' | b's')));
    raw
}

fn indexed(default: DefaultTtl) -> Bench {
    Bench::with_index(default, &IndexingPolicy::default())
}

#[test]
fn parts_together_hold_what_the_whole_held_and_nothing_twice() {
    let mut bench = indexed(DefaultTtl::NoDefault);
    for number in 0..200_u32 {
        let key = (number % 40) as u8;
        let ttl = i64::from(number % 3) * 100 - 1;
        let body = match number % 3 {
            0 => item(&format!("item{number}")),
            _ => item_with_ttl(&format!("item{number}"), ttl.max(1)),
        };
        bench.run_in(key, Want::Create(body)).expect("created");
    }
    let whole = entries(&bench);
    let mut parts = open_parts(&bench, 17);
    let mut together = BTreeMap::new();
    for part in &mut parts {
        assert!(part.view.has_foreign());
        while part.clear() {}
        assert!(!part.view.has_foreign());
        assert!(!part.raw().contains_key(keys::CLEANUP));
        part.check_accounts();
        for (key, value) in entries(part) {
            assert_eq!(
                together.insert(key, value),
                None,
                "nothing is in both parts"
            );
        }
    }
    assert_eq!(together, whole);
    assert!(
        parts
            .iter()
            .all(|part| part.view.state().lsn == bench.view.state().lsn)
    );
}

#[test]
fn clearing_goes_on_after_a_crash_and_is_the_same_twice() {
    let mut bench = indexed(DefaultTtl::Off);
    for number in 0..700_u32 {
        let want = Want::Create(item(&format!("item{number}")));
        bench.run_in((number % 40) as u8, want).expect("created");
    }
    let mut without = open_parts(&bench, 3).remove(0);
    while without.clear() {}
    let mut with = open_parts(&bench, 3).remove(0);
    let mut crashes = 0;
    while with.clear() {
        with = with.reopen();
        crashes += 1;
    }
    assert!(crashes > 2, "it took several slices");
    assert_eq!(with.raw(), without.raw());
}

#[test]
fn new_items_of_the_parts_have_ids_of_their_own() {
    let mut bench = Bench::new(DefaultTtl::Off);
    bench.run_in(1, Want::Create(item("a"))).expect("created");
    let mut parts = open_parts(&bench, 2);
    let mut rid = |part: usize, key| {
        let done = parts[part]
            .run_in(key, Want::Create(item("b")))
            .expect("created");
        super::bench::body(&done)["_rid"].clone()
    };
    assert_ne!(rid(0, 1), rid(1, 3));
}

#[test]
fn what_expires_before_it_is_cleared_goes_once() {
    let mut bench = indexed(after(10));
    for number in 0..300_u32 {
        let want = Want::Create(item(&format!("item{number}")));
        bench.run_in((number % 40) as u8, want).expect("created");
    }
    for mut part in open_parts(&bench, 20) {
        assert!(part.clear());
        part.wait(10);
        part.purge();
        while part.clear() {}
        part.purge();
        part.check_accounts();
        let state = part.view.state();
        assert_eq!((state.documents, state.bytes), (0, 0));
    }
}

#[test]
fn unique_keys_of_the_other_part_go_with_their_items() {
    let mut bench = Bench::with_unique_keys(DefaultTtl::Off, &["/code"]);
    for key in 0..10 {
        let body = json!({"id": "x", "code": key});
        bench.run_in(key, Want::Create(body)).expect("created");
    }
    for mut part in open_parts(&bench, 5) {
        while part.clear() {}
        part.check_accounts();
        let held = part
            .raw()
            .keys()
            .filter(|key| key.first() == Some(&b'u'))
            .count();
        assert_eq!(held, 5);
    }
}

#[test]
fn the_middle_is_between_two_partition_keys() {
    let definition =
        PartitionKeyDefinition::from_json(&json!({"paths": ["/pk"], "kind": "Hash", "version": 2}))
            .expect("a definition");
    let mut bench = Bench::new(DefaultTtl::Off);
    let empty =
        split::middle(&bench.view, &definition).expect("an empty range is cut by its hashes");
    assert_eq!(empty.to_hex(), "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF");
    let key = |name: &str| {
        let item = json!({"pk": name});
        let item = item.as_object().expect("an object");
        let key = definition.extract(item).expect("a key");
        (definition.epk(&key), definition.place(&key))
    };
    let mut names: Vec<String> = (0..9).map(|number| format!("key{number}")).collect();
    names.sort_by_key(|name| key(name).0);
    let create = |bench: &mut Bench, name: &str, id: &str| {
        let body = json!({"id": id, "pk": name, "text": "x".repeat(300)});
        bench.create_at(key(name).1, body);
    };
    for id in ["a", "b"] {
        create(&mut bench, &names[0], id);
    }
    let refused = split::middle(&bench.view, &definition).expect_err("there is one key only");
    assert!(
        refused.message.contains("single partition key"),
        "{refused}"
    );
    for name in &names[1..] {
        create(&mut bench, name, "a");
    }
    let middle = split::middle(&bench.view, &definition).expect("there are several keys");
    assert!(names.iter().any(|name| key(name).0 == middle));
    assert!(key(&names[3]).0 <= middle && middle <= key(&names[5]).0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Writes, expiry and clearing in any order: the parts have exactly what a shard would have that was never cut.
    #[test]
    fn parts_are_what_the_whole_would_be(
        before in prop::collection::vec((0_u8..12, 0_u8..8, 0_u8..4), 0..60),
        after_cut in prop::collection::vec((0_u8..12, 0_u8..8, 0_u8..6), 0..60),
        at in 1_u8..12,
    ) {
        let mut whole = indexed(after(50));
        for step in before {
            act(&mut whole, step);
        }
        let mut parts = open_parts(&whole, at);
        for step in after_cut {
            let part = &mut parts[usize::from(step.0 >= at)];
            match step.2 {
                4 => {
                    part.clear();
                }
                5 => {
                    whole.wait(20);
                    whole.purge();
                    parts.iter_mut().for_each(|part| { part.purge(); });
                }
                _ => {
                    act(part, step);
                    act(&mut whole, step);
                }
            }
        }
        let mut items = Vec::new();
        for part in &mut parts {
            while part.clear() {}
            part.purge();
            if part.view.state().lsn > 0 {
                part.check_accounts();
            }
            let range = &part.view.facts.range;
            let is_foreign =
                |key: &Vec<u8>| key.first() == Some(&b'd') && !range.contains(&key[1..]);
            prop_assert!(!part.raw().keys().any(is_foreign));
            items.extend(part.listed(7));
        }
        prop_assert_eq!(items, whole.listed(7));
    }
}

fn act(bench: &mut Bench, (key, id, what): (u8, u8, u8)) {
    let id = format!("item{id}");
    let _ = match what {
        0 => bench.run_in(key, Want::Upsert(item(&id))),
        1 => bench.run_in(key, Want::Upsert(item_with_ttl(&id, 30))),
        2 => bench.run_in(key, Want::Delete(id)),
        _ => bench.run_in(key, Want::Upsert(item_with_ttl(&id, -1))),
    };
}
