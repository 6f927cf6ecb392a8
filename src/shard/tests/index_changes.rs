//! Changes of the index: new policies, modes, restarts, expiry.

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use super::{
    bench::{Bench, Want, after, item},
    index_queries::{items, selected, whole},
};
use crate::{
    model::{epk::EpkRange, indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    query::{Candidates, IndexUse, ScanRequest, aggregate_from_index},
    shard::decide::reindex::LAZY_LAG_TRANSACTIONS_MAX,
    sql::{ComputedProperties, Query},
};

fn policy(json: Value) -> IndexingPolicy {
    IndexingPolicy::from_json(Some(&json)).expect("a legal policy")
}

fn numbered(id: usize, n: i64) -> Want {
    Want::Upsert(json!({"id": id.to_string(), "pk": "p", "n": n, "g": n % 3}))
}

fn count(bench: &Bench, text: &str) -> Option<u64> {
    let query = Query::parse(text, &[]).expect("parses");
    let ask = whole(&query);
    let answer = aggregate_from_index(&bench.view, &ask).expect("readable")?;
    let mut execution = query.start();
    execution.absorb(answer.partial).expect("its own");
    execution.finish().expect("finishes")[0].as_u64()
}

fn used(bench: &Bench, text: &str) -> IndexUse {
    let query = Query::parse(text, &[]).expect("parses");
    let ask = whole(&query);
    let candidates = Candidates::open(&bench.view, &ask).expect("opens");
    candidates.used().clone()
}

fn found(bench: &Bench, text: &str) -> Vec<String> {
    let query = Query::parse(text, &[]).expect("parses");
    let mut random = StdRng::seed_from_u64(1);
    let (items, _) = selected(bench, &query, &EpkRange::full(), &mut random, false);
    let mut ids: Vec<String> = items
        .iter()
        .filter(|item| query.matches(item).expect("evaluates"))
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort();
    ids
}

/// Every entry of the index leads to an item that has it, and every item has all its entries.
fn check_entries(bench: &Bench, policy: &IndexingPolicy) {
    let fresh = {
        let mut fresh = Bench::with_index(DefaultTtl::Off, policy);
        for item in items(bench) {
            fresh.run(Want::Create(item)).expect("created");
        }
        fresh
    };
    let paths = ["n", "g", "id", "a.b"];
    for path in paths {
        let text = format!("SELECT VALUE COUNT(c.{path}) FROM c");
        assert_eq!(count(bench, &text), count(&fresh, &text), "{path}");
    }
    let all = "SELECT VALUE COUNT(1) FROM c";
    assert_eq!(count(bench, all), count(&fresh, all));
    assert_eq!(count(bench, all), Some(items(bench).len() as u64));
}

#[test]
fn a_count_from_the_index_forgets_items_at_their_second() {
    let mut bench = Bench::with_index(after(10), &IndexingPolicy::default());
    for id in 0..5 {
        bench.run(numbered(id, 7)).expect("created");
    }
    bench
        .run(Want::Create(json!({"id": "own", "n": 7, "ttl": 3})))
        .expect("created");
    bench
        .run(Want::Create(json!({"id": "never", "n": 7, "ttl": -1})))
        .expect("created");
    let text = "SELECT VALUE COUNT(1) FROM c WHERE c.n = 7";
    let expected = [7, 7, 7, 6, 6, 6, 6, 6, 6, 6, 1, 1];
    for (second, expected) in expected.into_iter().enumerate() {
        assert_eq!(count(&bench, text), Some(expected), "second {second}");
        assert_eq!(
            count(&bench, "SELECT VALUE COUNT(1) FROM c"),
            Some(expected),
            "second {second}"
        );
        assert_eq!(
            count(&bench, "SELECT VALUE COUNT(1) FROM c WHERE c.n > 3"),
            Some(expected)
        );
        assert_eq!(
            found(&bench, "SELECT * FROM c WHERE c.n = 7").len() as u64,
            expected
        );
        bench.wait(1);
    }
    bench.change_default(DefaultTtl::Off);
    assert_eq!(count(&bench, text), Some(1), "expiry is final");
}

#[test]
fn entries_of_dead_items_leave_with_the_files() {
    let mut bench = Bench::with_index(after(10), &IndexingPolicy::default());
    for id in 0..20 {
        bench.run(numbered(id, 1)).expect("created");
    }
    bench.wait(5);
    for id in 0..3 {
        bench.run(numbered(id, 2)).expect("renewed");
    }
    bench.wait(5);
    let entries = |bench: &Bench| {
        let raw = bench.raw();
        let of = |kind: u8| raw.keys().filter(|key| key.first() == Some(&kind)).count();
        (of(b'd'), of(b'i'), of(b'r'))
    };
    bench.purge();
    let (documents, before, _) = entries(&bench);
    assert_eq!(documents, 3);
    assert!(before > 100, "the purger leaves entries alone");
    bench.engine().flush().expect("flushes");
    bench.engine().compact(None, None).unwrap();
    // id, pk, n, g, _ts, and the shape.
    assert_eq!(entries(&bench), (3, 3 * 6, 3));
    assert_eq!(
        count(&bench, "SELECT VALUE COUNT(1) FROM c WHERE c.n = 2"),
        Some(3)
    );
    // The same ids again, as other items.
    bench.wait(5);
    for id in 0..3 {
        bench
            .run(Want::Create(item(&id.to_string())))
            .expect("created again");
    }
    bench.purge();
    assert_eq!(count(&bench, "SELECT VALUE COUNT(1) FROM c"), Some(3));
    assert_eq!(found(&bench, "SELECT * FROM c WHERE c.id = '1'"), ["1"]);
    assert_eq!(
        found(&bench, "SELECT * FROM c WHERE c.n = 2"),
        [] as [&str; 0]
    );
}

#[test]
fn a_new_policy_is_built_beside_the_old_one() {
    let narrow =
        policy(json!({"includedPaths": [{"path": "/g/?"}], "excludedPaths": [{"path": "/*"}]}));
    let mut bench = Bench::with_index(DefaultTtl::Off, &narrow);
    let mut random = StdRng::seed_from_u64(5);
    for id in 0..1_500 {
        bench
            .run(numbered(id, random.random_range(0..10)))
            .expect("created");
    }
    let by_n = "SELECT * FROM c WHERE c.n = 3";
    let by_g = "SELECT * FROM c WHERE c.g = 0 AND c.id = '30'";
    let expected = found(&bench, by_n);
    assert!(used(&bench, by_n).utilized.is_empty());
    assert_eq!(used(&bench, by_n).potential, ["/n/?"]);
    let wide = IndexingPolicy::default();
    let mut answer = bench.send_policy(&wide, false);
    bench.commit();
    answer.now().expect("begun");
    assert_eq!(bench.view.index_progress().0, 0);
    let mut steps = 0;
    let mut seen = vec![0];
    while bench.view.index_progress().0 < 100 {
        assert_eq!(found(&bench, by_n), expected, "right answers meanwhile");
        assert!(!used(&bench, by_n).utilized.contains(&"/n/?".to_owned()));
        // Writes go on, before and behind the cursor.
        for _ in 0..3 {
            let id = random.random_range(0..1_500);
            if !expected.contains(&id.to_string()) {
                bench.run(numbered(id, 99)).expect("replaced");
                bench.run(Want::Delete((id + 1).to_string())).ok();
                if expected.contains(&(id + 1).to_string()) {
                    bench.run(numbered(id + 1, 3)).expect("created again");
                }
            }
        }
        assert!(bench.index_step() || bench.view.index_progress().0 == 100);
        seen.push(bench.view.index_progress().0);
        steps += 1;
        if steps == 4 {
            let before = bench.view.state();
            bench = bench.reopen();
            assert_eq!(bench.view.state(), before, "goes on where it was");
        }
        assert!(steps < 100, "it comes to an end");
    }
    assert!(seen.is_sorted(), "{seen:?}");
    assert!(seen.len() > 8, "in slices: {seen:?}");
    assert_eq!(found(&bench, by_n), expected);
    assert_eq!(used(&bench, by_n).utilized, ["/n/?"]);
    assert_eq!(found(&bench, by_g).len(), found(&bench, by_g).len());
    while bench.index_step() {}
    check_entries(&bench, &wide);
    let state = bench.view.state().index;
    assert_eq!((state.building, state.retired), (None, None));
    let old = bench
        .raw()
        .keys()
        .filter(|key| matches!(key.as_slice(), [b'i' | b's' | b'p', 0, 1, ..]))
        .count();
    assert_eq!(old, 0, "nothing is left of the old one");
    let bench = bench.reopen();
    assert_eq!(used(&bench, by_n).utilized, ["/n/?"]);
    assert_eq!(found(&bench, by_n), expected);
    check_entries(&bench, &wide);
}

#[test]
fn without_an_index_a_client_must_allow_a_scan() {
    let none = policy(json!({"indexingMode": "none"}));
    let mut bench = Bench::with_index(DefaultTtl::Off, &none);
    bench.run(numbered(1, 1)).expect("created");
    assert!(
        bench
            .raw()
            .keys()
            .all(|key| !matches!(key.first(), Some(b'i' | b'r' | b's')))
    );
    let query = Query::parse("SELECT * FROM c", &[]).expect("parses");
    let mut ask = ScanRequest {
        scan_allowed: false,
        ..whole(&query)
    };
    let refused = Candidates::open(&bench.view, &ask)
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(refused.status(), 400);
    ask.scan_allowed = true;
    assert!(Candidates::open(&bench.view, &ask).is_ok());

    // From none to an index, and back.
    let mut answer = bench.send_policy(&IndexingPolicy::default(), false);
    bench.commit();
    answer.now().expect("begun");
    while bench.index_step() {}
    assert_eq!(
        count(&bench, "SELECT VALUE COUNT(1) FROM c WHERE c.n = 1"),
        Some(1)
    );
    bench.send_policy(&none, false);
    bench.settle();
    while bench.index_step() {}
    assert!(
        bench
            .raw()
            .keys()
            .all(|key| !matches!(key.first(), Some(b'i' | b'r' | b's' | b'p')))
    );
}

#[test]
fn a_lazy_index_lags_and_catches_up() {
    let lazy = policy(json!({"indexingMode": "lazy"}));
    let mut bench = Bench::with_index(after(100), &lazy);
    for id in 0..10 {
        bench.run(numbered(id, 1)).expect("created");
    }
    let by_n = "SELECT * FROM c WHERE c.n = 1";
    assert_eq!(
        found(&bench, by_n).len(),
        0,
        "the index has reached nothing"
    );
    assert_eq!(bench.view.index_progress().1, Some(9));
    while bench.index_step() {}
    assert_eq!(found(&bench, by_n).len(), 10);
    assert_eq!(bench.view.index_progress(), (100, Some(100)));
    assert!(!bench.index_step(), "nothing is left to do");
    bench.run(numbered(0, 2)).expect("replaced");
    bench.run(Want::Delete("1".into())).expect("deleted");
    assert_eq!(found(&bench, by_n).len(), 8, "what is gone is gone at once");
    assert_eq!(found(&bench, "SELECT * FROM c WHERE c.n = 2").len(), 0);
    bench = bench.reopen();
    while bench.index_step() {}
    assert_eq!(found(&bench, "SELECT * FROM c WHERE c.n = 2"), ["0"]);
    check_entries(&bench, &IndexingPolicy::default());
    // From nothing again.
    bench.send_policy(&lazy, true);
    bench.settle();
    assert_eq!(found(&bench, by_n).len(), 0);
    while bench.index_step() {}
    assert_eq!(found(&bench, by_n).len(), 8);
    check_entries(&bench, &IndexingPolicy::default());
}

#[test]
fn a_lazy_index_that_is_far_behind_no_longer_waits_for_a_pause() {
    let lazy = policy(json!({"indexingMode": "lazy"}));
    let mut bench = Bench::with_index(DefaultTtl::Off, &lazy);
    let far = usize::try_from(LAZY_LAG_TRANSACTIONS_MAX).expect("small");
    for id in 0..far {
        bench.run(numbered(id, 1)).expect("written");
    }
    assert!(!bench.index_step_while(false), "users are at work");
    for _ in 0..2 {
        bench.run(numbered(0, 1)).expect("written");
    }
    assert!(bench.index_step_while(false), "too far behind to wait");
    assert!(bench.view.index_progress().1 < Some(100));
    bench.run(numbered(1, 2)).expect("written");
    assert!(!bench.index_step_while(false), "near enough to wait again");
    while bench.index_step() {}
    assert_eq!(bench.view.index_progress(), (100, Some(100)));
    assert_eq!(found(&bench, "SELECT * FROM c WHERE c.n = 2"), ["1"]);
    assert_eq!(
        found(&bench, "SELECT * FROM c WHERE c.n = 1").len(),
        far - 1
    );
}

fn upper(query: &str) -> IndexingPolicy {
    let computed = json!([{"name": "upper", "query": query}]);
    policy(json!({
        "includedPaths": [{"path": "/*"}, {"path": "/upper/?"}],
        "compositeIndexes": [[{"path": "/upper"}, {"path": "/n"}]],
    }))
    .with_computed(Some(&computed))
}

fn ids_where(bench: &Bench, query: &str, condition: &str) -> (Vec<String>, IndexUse) {
    let definitions = [("upper", query)];
    let computed = ComputedProperties::parse(definitions).expect("legal");
    let text = format!("SELECT * FROM c WHERE {condition}");
    let query = Query::parse_with(&text, &[], &computed).expect("parses");
    let mut random = StdRng::seed_from_u64(1);
    let (items, _) = selected(bench, &query, &EpkRange::full(), &mut random, false);
    let matching = items
        .iter()
        .filter(|item| query.matches(item).expect("evaluates"));
    let mut ids: Vec<String> = matching
        .map(|item| item["id"].as_str().expect("an id").to_owned())
        .collect();
    ids.sort();
    let ask = whole(&query);
    let candidates = Candidates::open(&bench.view, &ask).expect("opens");
    (ids, candidates.used().clone())
}

#[test]
fn a_computed_property_that_the_policy_names_is_indexed() {
    let (old, new) = (
        "SELECT VALUE UPPER(c.name) FROM c",
        "SELECT VALUE CONCAT(UPPER(c.name), '!') FROM c",
    );
    let mut bench = Bench::with_index(DefaultTtl::Off, &upper(old));
    for (n, name) in ["ada", "bob", "carl", "bob"].into_iter().enumerate() {
        let item = json!({"id": n.to_string(), "name": name, "n": n});
        bench.run(Want::Create(item)).expect("created");
    }
    bench
        .run(Want::Create(
            json!({"id": "own", "name": "x", "upper": "BOB"}),
        ))
        .expect("created");
    bench
        .run(Want::Create(json!({"id": "none"})))
        .expect("created");
    let (ids, used) = ids_where(&bench, old, "c.upper = 'BOB'");
    assert_eq!(
        (ids.as_slice(), used.utilized.as_slice()),
        (
            ["1".to_owned(), "3".into(), "own".into()].as_slice(),
            ["/upper/?".to_owned()].as_slice()
        )
    );
    let (ids, used) = ids_where(&bench, old, "c.upper = 'BOB' AND c.n > 1");
    assert_eq!(ids, ["3"]);
    assert_eq!(used.utilized_composite.len(), 1, "{used:?}");
    assert_eq!(
        ids_where(&bench, old, "NOT IS_DEFINED(c.upper)").0,
        ["none"]
    );
    // A patch changes what it is computed from.
    let patch = json!([{"op": "set", "path": "/name", "value": "eve"}]);
    bench.run(Want::Patch("3".into(), patch)).expect("patched");
    assert_eq!(ids_where(&bench, old, "c.upper = 'BOB'").0, ["1", "own"]);
    assert_eq!(ids_where(&bench, old, "c.upper = 'EVE'").0, ["3"]);
    // Another meaning of the name: the entries of the old one are not used for it.
    let (ids, used) = ids_where(&bench, new, "c.upper = 'BOB!'");
    assert_eq!(
        (ids.as_slice(), used.utilized.len()),
        (["1".to_owned()].as_slice(), 0)
    );
    bench.send_policy(&upper(new), false);
    bench.settle();
    while bench.index_step() {}
    let bench = bench.reopen();
    let (ids, used) = ids_where(&bench, new, "c.upper = 'BOB!'");
    assert_eq!(
        (ids.as_slice(), used.utilized.as_slice()),
        (
            ["1".to_owned()].as_slice(),
            ["/upper/?".to_owned()].as_slice()
        )
    );
    // Without the property the name means what items have.
    assert_eq!(
        found(&bench, "SELECT * FROM c WHERE c.upper = 'BOB'"),
        ["own"]
    );
}

#[test]
fn what_the_server_sets_is_no_part_of_an_indexed_computed_property() {
    let query = "SELECT VALUE c._ts + 1 FROM c";
    let mut bench = Bench::with_index(DefaultTtl::Off, &upper(query));
    bench.run(numbered(1, 1)).expect("created");
    let (ids, used) = ids_where(&bench, query, "c.upper > 5");
    assert_eq!((ids.len(), used.utilized.len()), (1, 0));
}

#[test]
fn an_order_by_several_columns_needs_its_composite_index() {
    let mut bench = Bench::with_index(DefaultTtl::Off, &IndexingPolicy::default());
    bench.run(numbered(1, 1)).expect("created");
    let query = Query::parse("SELECT * FROM c ORDER BY c.g, c.n", &[]).expect("parses");
    let ask = ScanRequest {
        scan_allowed: false,
        ..whole(&query)
    };
    let refused = Candidates::open(&bench.view, &ask)
        .map(|_| ())
        .expect_err("refused");
    assert_eq!(refused.status(), 400);
    assert!(refused.message.contains("composite index"), "{refused}");
}

#[test]
fn a_failed_commit_leaves_no_trace_in_the_index() {
    let mut bench = Bench::with_index(DefaultTtl::Off, &IndexingPolicy::default());
    bench.run(numbered(1, 1)).expect("created");
    bench.send(
        1,
        &[Want::Create(
            json!({"id": "new", "shape": {"of": "its own"}}),
        )],
        true,
    );
    bench.fail_commit();
    bench.view.set_shortage(None);
    bench
        .run(Want::Create(
            json!({"id": "new", "shape": {"of": "its own"}}),
        ))
        .expect("created");
    let mut bench = bench.reopen();
    assert_eq!(
        found(&bench, "SELECT * FROM c WHERE NOT IS_DEFINED(c.shape)"),
        ["1"]
    );
    assert_eq!(
        found(&bench, "SELECT * FROM c WHERE c.shape.of = 'its own'"),
        ["new"]
    );
    bench.settle();
}
