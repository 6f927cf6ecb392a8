//! Unique keys: held by live items only, and by nobody after their expiry.

use serde_json::{Value, json};

use super::bench::{Bench, Want, after};
use crate::model::ttl::DefaultTtl;

fn person(id: &str, email: &str) -> Value {
    json!({"id": id, "email": email})
}

fn bench() -> Bench {
    Bench::with_unique_keys(after(5), &["/email"])
}

#[test]
fn a_value_is_taken_within_its_partition_until_it_is_released() {
    let mut bench = bench();
    assert_eq!(bench.status(Want::Create(person("1", "a"))), 201);
    for want in [
        Want::Create(person("2", "a")),
        Want::Upsert(person("2", "a")),
    ] {
        assert_eq!(bench.status(want), 409);
    }
    assert_eq!(
        bench
            .run_in(2, Want::Create(person("2", "a")))
            .expect("another partition")
            .status,
        201
    );
    assert_eq!(bench.status(Want::Create(person("2", "b"))), 201);
    assert_eq!(bench.status(Want::Replace(person("2", "a"))), 409);
    let to_a = json!([{"op": "set", "path": "/email", "value": "a"}]);
    assert_eq!(bench.status(Want::Patch("2".into(), to_a.clone())), 409);
    assert_eq!(
        bench.status(Want::Replace(person("1", "a"))),
        200,
        "its own value is no conflict"
    );
    assert_eq!(bench.status(Want::Replace(person("1", "c"))), 200);
    assert_eq!(
        bench.status(Want::Patch("2".into(), to_a)),
        200,
        "released by the replace"
    );
    assert_eq!(bench.status(Want::Delete("2".into())), 204);
    assert_eq!(
        bench.status(Want::Create(person("3", "a"))),
        201,
        "released by the delete"
    );
    assert_eq!(bench.raw_counts()[3], 3);
    bench.check_accounts();
}

#[test]
fn a_value_moves_within_one_transaction() {
    let mut bench = bench();
    bench.run(Want::Create(person("1", "a"))).expect("created");
    let swap = [
        Want::Replace(person("1", "b")),
        Want::Create(person("2", "a")),
        Want::Delete("1".into()),
        Want::Create(person("3", "b")),
        Want::Replace(person("3", "b")),
    ];
    let results = bench.batch(1, &swap);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(bench.raw_counts(), [2, 2, 0, 2]);
    assert_eq!(bench.status(Want::Create(person("4", "a"))), 409);
    assert_eq!(bench.status(Want::Create(person("4", "b"))), 409);
    bench.check_accounts();
}

#[test]
fn a_refused_transaction_takes_and_releases_nothing() {
    let mut bench = bench();
    bench.run(Want::Create(person("1", "a"))).expect("created");
    let before = (bench.raw(), bench.view.state());
    let results = bench.batch(
        1,
        &[
            Want::Create(person("2", "b")),
            Want::Delete("1".into()),
            Want::Create(person("3", "b")),
            Want::Delete("2".into()),
        ],
    );
    assert_eq!(
        results.len(),
        3,
        "what comes after the refused operation is not tried"
    );
    assert_eq!(results[2].as_ref().expect_err("taken").status(), 409);
    assert_eq!((bench.raw(), bench.view.state()), before);
    assert_eq!(bench.status(Want::Create(person("4", "b"))), 201);
    assert_eq!(bench.status(Want::Create(person("5", "a"))), 409);
}

#[test]
fn an_expired_holder_has_lost_its_value_and_its_purge_does_not_free_it_again() {
    for purge_at in 0..4 {
        let mut bench = bench();
        let mut step = 0;
        let mut maybe_purge = |bench: &mut Bench| {
            if step == purge_at {
                bench.purge();
            }
            step += 1;
        };
        bench
            .run(Want::Create(person("old", "a")))
            .expect("created");
        bench.wait(5);
        maybe_purge(&mut bench);
        assert_eq!(
            bench.status(Want::Create(person("new", "a"))),
            201,
            "purge at {purge_at}"
        );
        maybe_purge(&mut bench);
        assert_eq!(
            bench.status(Want::Create(person("third", "a"))),
            409,
            "purge at {purge_at}"
        );
        // The old id comes back with another value, over its expired version.
        assert_eq!(
            bench.status(Want::Create(person("old", "b"))),
            201,
            "purge at {purge_at}"
        );
        maybe_purge(&mut bench);
        assert_eq!(
            bench.status(Want::Create(person("third", "a"))),
            409,
            "purge at {purge_at}"
        );
        assert_eq!(
            bench.status(Want::Create(person("third", "b"))),
            409,
            "purge at {purge_at}"
        );
        maybe_purge(&mut bench);
        assert_eq!(bench.raw_counts(), [2, 2, 0, 2], "purge at {purge_at}");
        bench.check_accounts();
        bench.wait(5);
        bench.purge();
        assert_eq!(bench.raw_counts(), [0; 4], "purge at {purge_at}");
    }
}

#[test]
fn a_value_taken_while_the_purge_of_its_expired_holder_is_pending_stays_taken() {
    for alone in [true, false] {
        let mut bench = bench();
        bench
            .run(Want::Create(person("old", "a")))
            .expect("created");
        bench.wait(5);
        let mut other =
            (!alone).then(|| bench.send(2, &[Want::Create(person("other", "a"))], true));
        bench.stage_purge();
        let mut new = bench.send(1, &[Want::Create(person("new", "a"))], true);
        bench.settle();
        new.now().expect("created");
        other.as_mut().map(|other| other.now().expect("created"));
        assert_eq!(bench.status(Want::Create(person("third", "a"))), 409);
        bench.check_accounts();
    }
}

#[test]
fn a_value_taken_from_an_expired_holder_before_its_purge_is_staged_stays_taken() {
    for committed in [true, false] {
        let mut bench = bench();
        bench
            .run(Want::Create(person("old", "a")))
            .expect("created");
        bench.wait(5);
        let mut new = bench.send(1, &[Want::Create(person("new", "a"))], true);
        if committed {
            bench.settle();
        }
        bench.stage_purge();
        bench.settle();
        new.now().expect("created");
        assert_eq!(bench.raw_counts(), [1, 1, 0, 1]);
        assert_eq!(bench.status(Want::Create(person("third", "a"))), 409);
        bench.check_accounts();
    }
}

#[test]
fn expiry_frees_a_value_for_good_whatever_the_default_becomes() {
    let mut bench = bench();
    bench
        .run(Want::Create(person("old", "a")))
        .expect("created");
    bench.wait(5);
    bench.change_default(DefaultTtl::Off);
    assert_eq!(bench.status(Want::Create(person("new", "a"))), 201);
    assert_eq!(bench.read("old"), None);
    bench.purge();
    assert_eq!(bench.listed(9), ["new"]);
    assert_eq!(bench.status(Want::Create(person("third", "a"))), 409);
}
