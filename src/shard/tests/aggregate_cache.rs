//! Counts by the aggregate cache against the naive evaluator: under writes, expiry, changed defaults, new indexes and restarts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};

use super::{
    bench::{Bench, Want, after},
    index_queries::{items, whole},
};
use crate::{
    model::{indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    query::{ScanBudget, ScanRequest, aggregate_from_index},
    shard::view::ShardView,
    sql::Query,
};

const SHARDS: u64 = 30;
const STEPS: usize = 150;
const IDS: u32 = 60;
const NUMBERS: i64 = 40;

fn counted(view: &ShardView, query: &Query, entries_max: usize) -> Vec<Value> {
    let mut execution = query.start();
    let mut resume = None;
    loop {
        let ask = ScanRequest {
            resume: resume.as_ref(),
            budget: ScanBudget {
                entries_max,
                deadline: None,
            },
            ..whole(query)
        };
        let answer = aggregate_from_index(view, &ask).expect("readable");
        let answer = answer.expect("the index counts");
        execution.absorb(answer.partial).expect("its own");
        match answer.resume {
            Some(point) => resume = Some(point),
            None => return execution.finish().expect("finishes"),
        }
    }
}

fn number(random: &mut StdRng) -> i64 {
    random.random_range(0..NUMBERS)
}

fn item(random: &mut StdRng) -> Value {
    let id = random.random_range(0..IDS).to_string();
    let mut item = json!({"id": id, "n": number(random)});
    match random.random_range(0..8) {
        0 => item["ttl"] = json!(-1),
        1 | 2 => item["ttl"] = json!(random.random_range(1..30)),
        3 => item["n"] = json!(["a", "b", "c"][random.random_range(0..3)]),
        _ => {}
    }
    item
}

fn query(random: &mut StdRng) -> Query {
    let (low, high) = (number(random), number(random));
    let text = match random.random_range(0..7) {
        0 => "SELECT VALUE COUNT(1) FROM c".to_owned(),
        1 => "SELECT VALUE COUNT(c.n) FROM c".to_owned(),
        2 => "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0".to_owned(),
        3 => format!("SELECT VALUE COUNT(1) FROM c WHERE c.n > {low}"),
        4 => format!("SELECT VALUE COUNT(1) FROM c WHERE c.n < {high}"),
        5 => format!("SELECT VALUE COUNT(1) FROM c WHERE c.n IN ({low}, {high}, 'a')"),
        _ => format!("SELECT VALUE COUNT(1) FROM c WHERE c.n >= {low} AND c.n <= {high}"),
    };
    Query::parse(&text, &[]).expect("parses")
}

fn change(bench: &mut Bench, random: &mut StdRng) {
    let want = match random.random_range(0..10) {
        0 | 1 => Want::Delete(random.random_range(0..IDS).to_string()),
        2..=5 => Want::Create(item(random)),
        _ => Want::Upsert(item(random)),
    };
    // What is not there or there already is refused, and that is fine.
    let _ = bench.run(want);
}

fn check(bench: &Bench, random: &mut StdRng) {
    let query = query(random);
    let expected = {
        let mut naive = query.start();
        for item in items(bench) {
            naive.push(&item).expect("evaluates");
        }
        naive.finish().expect("finishes")
    };
    let entries_max = [usize::MAX, usize::MAX, random.random_range(1..9)];
    let entries_max = *entries_max.choose(random).expect("some");
    for again in [false, true] {
        let found = counted(&bench.view, &query, entries_max);
        assert_eq!(found, expected, "{:?}, again: {again}", query.syntax());
    }
}

#[test]
fn counts_are_those_of_the_naive_evaluator_whatever_happens_between_them() {
    let mut by_cache = 0;
    for seed in 0..SHARDS {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bench = Bench::with_index(after(25), &IndexingPolicy::default());
        for _ in 0..IDS {
            change(&mut bench, &mut random);
        }
        for _ in 0..STEPS {
            match random.random_range(0..40) {
                0 => {
                    let defaults = [DefaultTtl::Off, DefaultTtl::NoDefault, after(5), after(40)];
                    bench.change_default(*defaults.choose(&mut random).expect("some"));
                }
                1 => {
                    bench.purge();
                }
                2 => bench.engine().compact(None, None).unwrap(),
                3 => {
                    by_cache += bench.view.aggregate_cache.used();
                    bench = bench.reopen();
                }
                4 => {
                    bench.send_policy(&IndexingPolicy::default(), true);
                    bench.settle();
                }
                5 => while bench.index_step() {},
                6..=8 => bench.wait(random.random_range(1..6)),
                9..=19 => change(&mut bench, &mut random),
                // Decided, not committed.
                20..=22 => {
                    let wants = [Want::Upsert(item(&mut random))];
                    bench.send(1, &wants, false);
                }
                _ => check(&bench, &mut random),
            }
        }
        bench.settle();
        check(&bench, &mut random);
        by_cache += bench.view.aggregate_cache.used();
    }
    assert!(by_cache > 1_000, "only {by_cache} blocks were used");
}

#[test]
fn a_count_beside_writes_is_of_one_moment() {
    let mut bench = Bench::with_index(DefaultTtl::Off, &IndexingPolicy::default());
    for id in 0..IDS {
        let item = json!({"id": id.to_string(), "n": id % 40});
        bench.run(Want::Create(item)).expect("created");
    }
    let over = Arc::new(AtomicBool::new(false));
    let counters: Vec<_> = (0..2)
        .map(|_| {
            let (view, over) = (Arc::clone(&bench.view), Arc::clone(&over));
            std::thread::spawn(move || {
                let text = "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0";
                let query = Query::parse(text, &[]).expect("parses");
                let mut counts = 0;
                while !over.load(Ordering::Relaxed) {
                    let found = counted(&view, &query, usize::MAX);
                    assert_eq!(found, [json!(IDS)], "items move, none comes or goes");
                    counts += 1;
                }
                counts
            })
        })
        .collect();
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..3_000 {
        let id = random.random_range(0..IDS).to_string();
        let item = json!({"id": id, "n": number(&mut random)});
        bench.run(Want::Replace(item)).expect("replaced");
    }
    over.store(true, Ordering::Relaxed);
    for counter in counters {
        assert!(counter.join().expect("counts are right") > 0);
    }
    assert!(bench.view.aggregate_cache.used() > 0);
}
