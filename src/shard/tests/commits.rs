//! The commit log: who may write, what a failure leaves behind, and that everybody hears.

use std::{
    sync::{Arc, mpsc},
    task::{Context, Wake, Waker},
    time::Duration,
};

use tokio::sync::oneshot;

use super::bench::{Bench, Want, after, item};
use crate::{
    model::ttl::DefaultTtl,
    shard::{
        commit::{CommitLog, Group, Standalone, Waiting},
        state::command::{Change, Command, IndexChanges},
    },
    store::keys,
};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(10);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}

#[test]
fn a_group_of_the_owner_before_a_rebuild_is_refused_and_the_next_owner_writes_on() {
    let bench = Bench::new(DefaultTtl::Off);
    let (before, _) = Standalone::open(Arc::clone(&bench.view)).expect("opens");
    let (next, _) = Standalone::open(Arc::clone(&bench.view)).expect("opens again");
    let runtime = runtime();
    let _inside = runtime.enter();
    let (reply, answer) = oneshot::channel();
    let waiting = Waiting {
        range_id: 0,
        reply,
        results: Vec::new(),
        lsn: 0,
    };
    let (done, outcome) = mpsc::channel();
    let group = Group {
        number: 7,
        waiting: vec![waiting],
        ..Group::default()
    };
    before.submit(
        group,
        Box::new(move |number, outcome| {
            let _ = done.send((number, outcome.is_ok()));
        }),
    );
    assert_eq!(outcome.recv_timeout(PATIENCE), Ok((7, false)));
    let error = answer
        .blocking_recv()
        .expect("an answer")
        .expect_err("refused");
    assert_eq!(error.status(), 503);
    assert_eq!(
        bench.view.poisoned(),
        None,
        "one late group must not stop the writes of the shard"
    );

    drop((before, next));
    let mut bench = bench.reopen();
    assert_eq!(bench.status(Want::Create(item("1"))), 201);
}

#[test]
fn a_command_that_does_not_decode_stops_the_shard_instead_of_dropping_a_write() {
    let mut bench = Bench::new(DefaultTtl::Off);
    assert_eq!(bench.status(Want::Create(item("1"))), 201);
    let (log, state) = Standalone::open(Arc::clone(&bench.view)).expect("opens");
    let runtime = runtime();
    let _inside = runtime.enter();
    let (reply, answer) = oneshot::channel();
    let (done, outcome) = mpsc::channel();
    let put = Change::Put {
        key: keys::document(b"place", "2").into(),
        place_bytes: 5,
        value: "no stored document".into(),
        previous: None,
        index: IndexChanges::default(),
    };
    let group = Group {
        commands: vec![Command {
            lsn: state.lsn + 1,
            ts: state.ts,
            changes: vec![put],
        }],
        waiting: vec![Waiting {
            range_id: 0,
            reply,
            results: Vec::new(),
            lsn: state.lsn + 1,
        }],
        ..Group::default()
    };
    log.submit(
        group,
        Box::new(move |_, outcome| {
            let _ = done.send(outcome.is_ok());
        }),
    );
    assert_eq!(outcome.recv_timeout(PATIENCE), Ok(false));
    let error = answer
        .blocking_recv()
        .expect("an answer")
        .expect_err("refused");
    assert_eq!(error.status(), 503);
    assert!(bench.view.poisoned().is_some(), "nothing more is written");
    assert_eq!(bench.view.state(), state, "nothing of it is visible");
}

/// A client whose waker panics: the nearest thing to a bug in the middle of a commit.
struct Explosive;

impl Wake for Explosive {
    fn wake(self: Arc<Self>) {
        panic!("a test asked for it");
    }
}

#[test]
fn a_commit_that_panics_is_reported_so_that_nobody_waits_for_ever() {
    let bench = Bench::new(after(5));
    let (log, _) = Standalone::open(Arc::clone(&bench.view)).expect("opens");
    let runtime = runtime();
    let _inside = runtime.enter();
    let (reply, mut answer) = oneshot::channel();
    let waker = Waker::from(Arc::new(Explosive));
    assert!(
        Future::poll(
            std::pin::Pin::new(&mut answer),
            &mut Context::from_waker(&waker)
        )
        .is_pending()
    );
    let (done, outcome) = mpsc::channel();
    let group = Group {
        number: 3,
        waiting: vec![Waiting {
            range_id: 0,
            reply,
            results: Vec::new(),
            lsn: 0,
        }],
        ..Group::default()
    };
    log.submit(
        group,
        Box::new(move |number, outcome| {
            let _ = done.send((number, outcome.is_ok()));
        }),
    );
    assert_eq!(outcome.recv_timeout(PATIENCE), Ok((3, false)));
    assert!(
        bench.view.check_writable().is_err(),
        "nobody knows what the cut-off commit did"
    );
}

#[test]
fn what_was_decided_on_top_of_a_failed_group_falls_with_it() {
    let mut bench = Bench::with_unique_keys(after(5), &["/email"]);
    let person = |id: &str| serde_json::json!({"id": id, "email": "a@b"});
    bench.run(Want::Create(person("old"))).expect("created");
    let before = bench.view.state();
    bench.wait(5);

    let mut first = bench.send(1, &[Want::Create(person("new"))], true);
    bench.stage_purge();
    let mut second = bench.send(1, &[Want::Upsert(person("new"))], true);
    let mut third = bench.send_default(DefaultTtl::Off);
    bench.fail_commit();
    for answer in [&mut first, &mut second, &mut third] {
        let error = answer.now().expect_err("not kept");
        assert_eq!(error.status(), 507, "{error}");
    }
    assert_eq!(bench.view.state(), before);
    assert_eq!(bench.shard.decided.lsn, before.lsn);
    assert_eq!(bench.shard.decided.cursors, before.cursors);
    assert_eq!(bench.shard.decided.rules, before.rules);
    assert_eq!(bench.raw_counts(), [1, 1, 0, 1]);

    // The disk has room again: the same requests succeed, and the purge is repeated.
    assert_eq!(
        bench.view.check_writable().map_err(|error| error.status()),
        Err(507)
    );
    bench.view.set_shortage(None);
    assert_eq!(bench.status(Want::Create(person("new"))), 201);
    bench.purge();
    assert_eq!(bench.listed(10), ["new"]);
    assert_eq!(bench.raw_counts(), [1, 1, 0, 1]);
    assert_eq!(bench.view.state().next_ordinal, before.next_ordinal + 1);
    bench.check_accounts();
}
