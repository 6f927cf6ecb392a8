//! What one transaction and one group may weigh.

use serde_json::{Value, json};

use super::bench::{Bench, Want};
use crate::{
    cluster::ENTRY_BYTES_MAX,
    model::{
        error::ErrorKind, indexing_policy::IndexingPolicy, item::ITEM_BYTES_MAX, ttl::DefaultTtl,
    },
};

/// Nearly as large as an item may be.
const LARGE: usize = 1_900_000;
const KEY: u8 = 1;

fn large(id: usize) -> Value {
    json!({"id": id.to_string(), "pk": "p", "text": "x".repeat(LARGE)})
}

fn bench_with_large_items(count: usize) -> Bench {
    let mut bench = Bench::new(DefaultTtl::Off);
    for id in 0..count {
        bench.run_in(KEY, Want::Create(large(id))).expect("created");
    }
    bench
}

fn set(id: usize) -> Want {
    Want::Patch(
        id.to_string(),
        json!([{"op": "set", "path": "/z", "value": 1}]),
    )
}

#[test]
fn a_batch_of_patches_that_makes_more_than_a_request_may_hold_is_413_and_writes_nothing() {
    let mut bench = bench_with_large_items(3);
    let before = bench.view.state();
    let results = bench.batch(KEY, &[set(0), set(1), set(2)]);
    let [Ok(_), Err(error)] = results.as_slice() else {
        panic!("the second patch fails, and the third is not tried: {results:?}");
    };
    assert_eq!(error.status(), 413, "{error}");
    assert_eq!(bench.view.state(), before, "nothing is written");
    // One at a time they pass, and so does all that comes later.
    for id in 0..3 {
        assert_eq!(bench.run_in(KEY, set(id)).expect("patched").status, 200);
    }
}

#[test]
fn an_item_that_a_patch_makes_too_large_is_413() {
    let mut bench = bench_with_large_items(1);
    let more = "y".repeat(ITEM_BYTES_MAX - LARGE);
    let patch = json!([{"op": "set", "path": "/more", "value": more}]);
    let error = bench
        .run_in(KEY, Want::Patch("0".to_owned(), patch))
        .expect_err("too large");
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
}

#[test]
fn a_batch_that_meets_too_many_bytes_of_stored_items_is_413_and_deletes_nothing() {
    let mut bench = bench_with_large_items(10);
    let deletes: Vec<_> = (0..10).map(|id| Want::Delete(id.to_string())).collect();
    let results = bench.batch(KEY, &deletes);
    let error = results.last().unwrap().as_ref().expect_err("too many");
    assert_eq!(error.status(), 413, "{error}");
    assert_eq!(bench.view.state().documents, 10);
    for delete in deletes {
        bench.run_in(KEY, delete).expect("one at a time");
    }
    assert_eq!(bench.view.state().documents, 0);
}

#[test]
fn a_transaction_whose_index_terms_no_log_entry_carries_is_413() {
    const ITEMS: usize = 20;
    let everything = IndexingPolicy::from_json(None).expect("the policy of a new container");
    let mut bench = Bench::with_index(DefaultTtl::Off, &everything);
    // Short numbers weigh more as terms than as text.
    let numbers: Vec<u32> = (10_000..100_000).collect();
    for id in 0..ITEMS {
        let item = json!({"id": id.to_string(), "pk": "p", "numbers": numbers});
        bench.run_in(KEY, Want::Create(item)).expect("created");
    }
    let deletes: Vec<_> = (0..ITEMS).map(|id| Want::Delete(id.to_string())).collect();
    let results = bench.batch(KEY, &deletes);
    let error = results.last().unwrap().as_ref().expect_err("too long");
    assert_eq!(error.status(), 413, "{error}");
    assert!(error.message.contains("index terms"), "{error}");
    assert_eq!(bench.view.state().documents, ITEMS as u64);
    let (some, others) = deletes.split_at(ITEMS / 2);
    for part in [some, others] {
        let results = bench.batch(KEY, part);
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    let longest = bench.journal.iter().map(Vec::len).max();
    assert!(longest.unwrap() <= ENTRY_BYTES_MAX);
}

#[test]
fn a_group_is_cut_while_the_one_before_is_committed_and_everybody_is_answered() {
    let mut bench = Bench::new(DefaultTtl::Off);
    let mut answers: Vec<_> = (0..40)
        .map(|id| bench.send(KEY, &[Want::Create(large(id))], true))
        .collect();
    // The first went alone; the next group is full, and the others wait where they are counted.
    assert!(
        bench.view.write_queue.len() > 20,
        "{}",
        bench.view.write_queue.len()
    );
    bench.settle();
    for answer in &mut answers {
        let reply = answer.now().expect("committed");
        assert_eq!(reply.results[0].as_ref().expect("created").status, 201);
    }
    assert_eq!(bench.view.state().documents, 40);
    assert_eq!(bench.view.write_queue.len(), 0);
}
