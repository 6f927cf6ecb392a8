//! Conditions of patches: who evaluates them, and for how long.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    bench::{Bench, Want},
    node::{self, Node},
};
use crate::{
    model::{
        error::{ErrorKind, Result},
        ttl::DefaultTtl,
    },
    shard::{
        decide::guard::{ACTOR_CONDITION_STEPS_MAX, CONDITION_STEPS_MAX},
        transaction::{Done, Operation},
    },
};

const KEY: u8 = 1;

/// A condition that holds, after about as many steps as the square of the numbers in the item.
const SLOW: &str = "FROM c WHERE NOT EXISTS(SELECT VALUE a FROM a IN c.numbers JOIN b IN c.numbers WHERE a + b = -1)";

/// An item for which the slow condition takes more than `steps`, but less than four times as many.
fn slow_item(steps: u64) -> Value {
    let numbers: Vec<u64> = (0..steps.isqrt() + 1).collect();
    json!({"id": "1", "pk": "p", "n": 1, "numbers": numbers})
}

fn bench_with(item: Value) -> Bench {
    let mut bench = Bench::new(DefaultTtl::Off);
    bench.run_in(KEY, Want::Create(item)).expect("created");
    bench
}

fn incr() -> Value {
    json!([{"op": "incr", "path": "/n", "value": 1}])
}

fn patch_if(condition: &str) -> Want {
    Want::PatchIf("1".to_owned(), incr(), condition.to_owned())
}

fn run(bench: &mut Bench, operations: Vec<Operation>) -> Vec<Result<Done>> {
    let mut answer = bench.send_operations(KEY, operations, true, None);
    bench.settle();
    answer.now().expect("an answer").results
}

fn n_of(bench: &mut Bench) -> Value {
    let read = bench.run_in(KEY, Want::Read("1".to_owned())).expect("read");
    let body: Value = serde_json::from_slice(&read.body.expect("a body")).expect("JSON");
    body["n"].clone()
}

#[test]
fn an_expensive_condition_is_judged_before_the_actor_which_takes_the_verdict() {
    let mut bench = bench_with(slow_item(2 * ACTOR_CONDITION_STEPS_MAX));
    let operations = bench.judged(KEY, &[patch_if(SLOW)]);
    let results = run(&mut bench, operations);
    assert_eq!(results[0].as_ref().expect("it holds").status, 200);
    // Not judged, it is not evaluated: the actor has steps for a small one only.
    let mut answer = bench.send(KEY, &[patch_if(SLOW)], true);
    bench.settle();
    let error = answer.now().expect("an answer").results.remove(0);
    assert_eq!(error.expect_err("too expensive").kind, ErrorKind::RetryWith);
    assert_eq!(n_of(&mut bench), 2);
}

#[test]
fn a_verdict_about_an_older_version_goes_back_to_be_judged_again() {
    let mut bench = bench_with(slow_item(2 * ACTOR_CONDITION_STEPS_MAX));
    let operations = bench.judged(KEY, &[patch_if(SLOW)]);
    let unguarded = Want::Patch("1".to_owned(), incr());
    // Written, but not committed: the newest version counts.
    let mut written = bench.send(KEY, &[unguarded], true);
    let (stale, mut back) = oneshot::channel();
    drop(bench.send_operations(KEY, operations, true, Some(stale)));
    let returned = back.try_recv().expect("the operations");
    bench.settle();
    written.now().expect("written");
    assert_eq!(n_of(&mut bench), 2, "the guarded one was not carried out");
    // Judged by now, they are: not by the verdict of then.
    let results = run(&mut bench, returned);
    assert_eq!(
        results[0].as_ref().expect_err("stale").kind,
        ErrorKind::RetryWith
    );
    let operations = bench.judged(KEY, &[patch_if(SLOW)]);
    assert_eq!(
        run(&mut bench, operations)[0]
            .as_ref()
            .expect("holds")
            .status,
        200
    );
}

#[test]
fn a_cheap_condition_is_evaluated_again_for_the_newest_version() {
    let mut bench = bench_with(slow_item(10));
    let condition = "FROM c WHERE c.n = 1";
    let operations = bench.judged(KEY, &[patch_if(condition)]);
    let late = bench.judged(KEY, &[patch_if(condition)]);
    assert_eq!(
        run(&mut bench, operations)[0]
            .as_ref()
            .expect("holds")
            .status,
        200
    );
    let (stale, mut back) = oneshot::channel();
    let mut answer = bench.send_operations(KEY, late, true, Some(stale));
    bench.settle();
    assert!(back.try_recv().is_err(), "no need to judge it again");
    let result = answer.now().expect("an answer").results.remove(0);
    assert_eq!(result.expect_err("it does not hold any more").status(), 412);
}

#[test]
fn a_condition_sees_what_the_same_batch_has_written_before() {
    let mut bench = bench_with(slow_item(2 * ACTOR_CONDITION_STEPS_MAX));
    let second = patch_if("FROM c WHERE c.n = 2");
    let operations = bench.judged(KEY, &[patch_if("FROM c WHERE c.n = 1"), second]);
    let results = run(&mut bench, operations);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(n_of(&mut bench), 3);
    // An expensive one would be evaluated by the actor.
    let unguarded = Want::Patch("1".to_owned(), incr());
    let operations = bench.judged(KEY, &[unguarded, patch_if(SLOW)]);
    let results = run(&mut bench, operations);
    assert_eq!(
        results[1].as_ref().expect_err("too expensive").status(),
        400
    );
    assert_eq!(n_of(&mut bench), 3, "nothing of the batch was written");
}

#[test]
fn conditions_have_a_bound_of_steps_alone_and_together() {
    let mut bench = bench_with(slow_item(CONDITION_STEPS_MAX));
    let operations = bench.judged(KEY, &[patch_if(SLOW)]);
    let error = run(&mut bench, operations).remove(0).expect_err("too many");
    assert_eq!(error.status(), 400);
    assert!(error.message.contains("steps"), "{error}");

    let mut bench = Bench::new(DefaultTtl::Off);
    let mut patches = Vec::new();
    for id in 0..20 {
        let mut item = slow_item(CONDITION_STEPS_MAX / 4);
        item["id"] = json!(id.to_string());
        bench.run_in(KEY, Want::Create(item)).expect("created");
        patches.push(Want::PatchIf(id.to_string(), incr(), SLOW.to_owned()));
    }
    let operations = bench.judged(KEY, &patches[..2]);
    assert!(run(&mut bench, operations).iter().all(Result::is_ok));
    let operations = bench.judged(KEY, &patches);
    let results = run(&mut bench, operations);
    let error = results.last().unwrap().as_ref().expect_err("too many");
    assert_eq!(error.status(), 400, "{error}");
    assert!(results.len() > 2, "some of them were within the bound");
}

#[test]
fn expensive_conditional_patches_of_one_item_at_a_time_are_each_carried_out_or_to_be_tried_again() {
    let folder = node::in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        let item = slow_item(2 * ACTOR_CONDITION_STEPS_MAX);
        assert_eq!(node::status(&shard, Want::Create(item)).await, 201);
        let patches = (0..12).map(|_| node::status(&shard, patch_if(SLOW)));
        let statuses = join_all(patches).await;
        let carried_out = statuses.iter().filter(|status| **status == 200).count();
        let to_try_again = statuses.iter().filter(|status| **status == 449).count();
        assert_eq!(carried_out + to_try_again, 12, "{statuses:?}");
        assert!(carried_out > 0);
        assert_eq!(node::items(&shard)[0]["n"], json!(1 + carried_out));
        // Cheap ones are never to be tried again.
        let cheap = (0..12).map(|_| node::status(&shard, patch_if("FROM c WHERE c.n > 0")));
        assert_eq!(join_all(cheap).await, [200; 12]);
        let missing = Want::PatchIf("2".to_owned(), incr(), SLOW.to_owned());
        assert_eq!(node::status(&shard, missing).await, 404);
    });
}
