//! The document cache against what the shard holds: whatever is written, expires or is changed between two queries.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

use super::{
    bench::{Bench, Want, after},
    index_queries::{items, whole},
};
use crate::{
    model::{indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    query::{Candidates, ScanStep},
    shard::view::ShardView,
    sql::Query,
};

const SHARDS: u64 = 20;
const STEPS: usize = 200;
const IDS: u32 = 30;
/// Few, so that each is asked for again and again.
const NUMBERS: i64 = 4;

fn found(view: &ShardView, query: &Query) -> Vec<Value> {
    let mut candidates = Candidates::open(view, &whole(query)).expect("a selection");
    assert!(!candidates.used().utilized.is_empty(), "the index answers");
    let mut found = Vec::new();
    loop {
        match candidates.next().expect("readable") {
            ScanStep::Item(item) => {
                found.push(serde_json::from_slice(item.body).expect("JSON"));
            }
            ScanStep::Paused | ScanStep::End => return found,
        }
    }
}

fn by_number(number: i64) -> Query {
    let text = format!("SELECT * FROM c WHERE c.n = {number}");
    Query::parse(&text, &[]).expect("parses")
}

fn sorted(mut items: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = items.drain(..).map(|item| item.to_string()).collect();
    texts.sort_unstable();
    texts
}

fn want(random: &mut StdRng) -> Want {
    let id = random.random_range(0..IDS).to_string();
    let number = random.random_range(0..NUMBERS);
    let mut item = json!({"id": id, "n": number, "v": random.random_range(0..1_000)});
    match random.random_range(0..10) {
        0 | 1 => return Want::Delete(id),
        2 => item["ttl"] = json!(-1),
        3 | 4 => item["ttl"] = json!(random.random_range(1..30)),
        _ => {}
    }
    Want::Upsert(item)
}

#[test]
fn queries_see_what_is_there_whatever_they_saw_before() {
    for seed in 0..SHARDS {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bench = Bench::with_index(after(25), &IndexingPolicy::default());
        for _ in 0..STEPS {
            match random.random_range(0..40) {
                0 => {
                    let defaults = [DefaultTtl::Off, DefaultTtl::NoDefault, after(5), after(40)];
                    bench.change_default(*defaults.choose(&mut random).expect("some"));
                }
                1 => {
                    bench.purge();
                }
                2 => bench = bench.reopen(),
                3..=5 => bench.wait(random.random_range(1..6)),
                6..=20 => {
                    // What is not there is not deleted.
                    let _ = bench.run(want(&mut random));
                }
                // Decided, not committed.
                21 => {
                    let wants = [want(&mut random)];
                    bench.send(1, &wants, false);
                }
                _ => {
                    let number = random.random_range(0..NUMBERS);
                    let expected = items(&bench).into_iter().filter(|item| item["n"] == number);
                    let expected = sorted(expected.collect());
                    let query = by_number(number);
                    for again in [false, true] {
                        let seen = sorted(found(&bench.view, &query));
                        assert_eq!(seen, expected, "seed {seed}, again: {again}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_query_beside_writes_sees_no_version_older_than_what_was_acknowledged() {
    const VERSIONS: i64 = 3_000;
    let mut bench = Bench::with_index(DefaultTtl::Off, &IndexingPolicy::default());
    let version = |v: i64| json!({"id": "a", "n": 1, "v": v});
    bench.run(Want::Create(version(0))).expect("created");
    let acknowledged = Arc::new(AtomicI64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let view = Arc::clone(&bench.view);
            let (acknowledged, over) = (Arc::clone(&acknowledged), Arc::clone(&over));
            std::thread::spawn(move || {
                let (query, mut last) = (by_number(1), 0);
                while !over.load(Ordering::Acquire) {
                    let least = acknowledged.load(Ordering::Acquire).max(last);
                    let seen = found(&view, &query);
                    last = seen
                        .first()
                        .and_then(|item| item["v"].as_i64())
                        .unwrap_or(-1);
                    assert!(last >= least, "saw {last} after {least}");
                }
                last
            })
        })
        .collect();
    for v in 1..=VERSIONS {
        bench.run(Want::Replace(version(v))).expect("replaced");
        acknowledged.store(v, Ordering::Release);
    }
    over.store(true, Ordering::Release);
    for reader in readers {
        assert!(reader.join().expect("no old version was seen") > 0);
    }
}
