//! A follower that purges at other times than its leader holds the same items all the same.

use std::{
    io::Write,
    sync::{Arc, Mutex, Weak, mpsc},
    time::Duration,
};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::json;

use super::bench::{Bench, Want, after, item, raw, small_resources, temporary_folder};
use crate::{
    cluster::{
        GroupId,
        driver::{Driver, state_machine::StateMachine as _},
        raft::group::Committed,
    },
    model::ttl::DefaultTtl,
    shard::{
        check::{Digest, Outcome},
        commit::{CommitLog as _, Group},
        commit_error::CommitError,
        decide::purge,
        overlay::Overlay,
        replica::{Replica, ReplicatedLog},
        state::ShardState,
        view::ShardView,
    },
    store::{Batch, Engine, EngineError, engine::Durability, keys},
};

struct Follower {
    replica: Arc<Replica>,
    view: Arc<ShardView>,
    applied: usize,
    _folder: tempfile::TempDir,
}

impl Follower {
    fn of(leader: &Bench, default: DefaultTtl) -> Self {
        let folder = temporary_folder();
        let engine = Engine::open(folder.path(), &small_resources()).unwrap();
        let facts = leader.view.facts.clone();
        let state = ShardState::new(facts.first_ordinal(), default);
        let view = ShardView::new(facts, Arc::new(engine), leader.clock.clone(), state);
        let view = Arc::new(view);
        let (driver, _) = Driver::new();
        let replica = Replica::new(GroupId::META, driver, Arc::clone(&view), Weak::new());
        Self {
            replica,
            view,
            applied: 0,
            _folder: folder,
        }
    }

    /// Applies what the leader has committed, several entries at a time.
    fn catch_up(&mut self, leader: &Bench, entries_max: usize) {
        let next = leader.journal.iter().enumerate().skip(self.applied);
        let entries: Vec<Committed> = next
            .take(entries_max)
            .map(|(index, data)| Committed {
                index: index as u64 + 1,
                term: 1,
                data: Bytes::from(data.clone()),
            })
            .collect();
        self.applied += entries.len();
        self.replica.apply(entries).unwrap();
    }

    /// Purges one slice by the time that the log has reached.
    fn purge(&self) -> bool {
        let state = self.view.state();
        let slice = purge::slice(
            &self.view.engine,
            &Overlay::default(),
            &state.rules,
            state.cursors,
            state.ts,
            None,
        );
        let slice = slice.unwrap();
        self.replica.purge(slice.purge).unwrap();
        slice.more
    }

    fn check_accounts(&self) {
        let raw = raw(&self.view.engine);
        let documents = raw.iter().filter(|(key, _)| key.first() == Some(&b'd'));
        let sizes: Vec<u64> = documents.map(|(_, value)| value.len() as u64).collect();
        let state = self.view.state();
        assert_eq!(state.documents, sizes.len() as u64, "documents");
        assert_eq!(state.bytes, sizes.iter().sum::<u64>(), "bytes");
    }
}

#[derive(Clone, Debug)]
enum Event {
    Put { id: u8, ttl: Option<i64>, code: u8 },
    Delete(u8),
    Default(u32),
    Wait(i64),
    LeaderPurges,
    FollowerPurges,
    FollowerApplies(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let ttl = prop_oneof![2 => Just(None), 1 => Just(Some(-1)), 4 => (1i64..6).prop_map(Some)];
    prop_oneof![
        8 => (0u8..5, ttl, 0u8..4).prop_map(|(id, ttl, code)| Event::Put { id, ttl, code }),
        1 => (0u8..5).prop_map(Event::Delete),
        1 => (1u32..8).prop_map(Event::Default),
        4 => (1i64..4).prop_map(Event::Wait),
        2 => Just(Event::LeaderPurges),
        3 => Just(Event::FollowerPurges),
        4 => (1usize..5).prop_map(Event::FollowerApplies),
    ]
}

/// Documents, feed, own lane and unique keys.
fn contents(engine: &Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let kinds = [b'd', b'f', b'o', b'u'];
    let all = raw(engine).into_iter();
    all.filter(|(key, _)| key.first().is_some_and(|kind| kinds.contains(kind)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn replicas_that_purge_at_different_times_come_to_hold_the_same(events in prop::collection::vec(event(), 1..80)) {
        let mut leader = Bench::with_unique_keys(after(5), &["/code"]);
        let mut follower = Follower::of(&leader, after(5));
        for event in events {
            match event {
                Event::Put { id, ttl, code } => {
                    let mut item = json!({"id": format!("{id}"), "pk": "p", "code": code});
                    if let Some(ttl) = ttl {
                        item["ttl"] = json!(ttl);
                    }
                    // A unique key may be taken; that is an answer like any other.
                    let _ = leader.run(Want::Upsert(item));
                }
                Event::Delete(id) => {
                    let _ = leader.run(Want::Delete(format!("{id}")));
                }
                Event::Default(seconds) => leader.change_default(after(seconds)),
                Event::Wait(seconds) => leader.wait(seconds),
                Event::LeaderPurges => {
                    leader.purge();
                }
                Event::FollowerPurges => {
                    follower.purge();
                }
                Event::FollowerApplies(entries) => follower.catch_up(&leader, entries),
            }
        }
        let _ = leader.run(Want::Upsert(json!({"id": "last", "pk": "p", "code": 9, "ttl": -1})));
        while leader.purge() > 1 {}
        follower.catch_up(&leader, usize::MAX);
        while follower.purge() {}
        prop_assert_eq!(contents(&follower.view.engine), contents(leader.engine()));
        let (ours, theirs) = (follower.view.state(), leader.view.state());
        prop_assert_eq!((ours.lsn, ours.ts, ours.rules), (theirs.lsn, theirs.ts, theirs.rules));
        follower.check_accounts();
        leader.check_accounts();
    }
}

#[test]
fn a_purge_that_an_entry_has_overtaken_takes_nothing() {
    let mut leader = Bench::with_unique_keys(after(5), &["/code"]);
    let mut follower = Follower::of(&leader, after(5));
    leader
        .run(Want::Upsert(
            json!({"id": "a", "pk": "p", "code": 1, "ttl": 1}),
        ))
        .unwrap();
    leader.wait(2);
    leader
        .run(Want::Upsert(json!({"id": "b", "pk": "p"})))
        .unwrap();
    follower.catch_up(&leader, usize::MAX);
    let state = follower.view.state();
    let slice = purge::slice(
        &follower.view.engine,
        &Overlay::default(),
        &state.rules,
        state.cursors,
        state.ts,
        None,
    );
    let purge = slice.unwrap().purge;
    assert_eq!(purge.versions.len(), 1);
    // Before it is carried out, the item is there again and another one has its unique key.
    leader
        .run(Want::Upsert(json!({"id": "c", "pk": "p", "code": 1})))
        .unwrap();
    leader
        .run(Want::Upsert(json!({"id": "a", "pk": "p", "code": 2})))
        .unwrap();
    follower.catch_up(&leader, usize::MAX);
    follower.replica.purge(purge).unwrap();
    let ids: Vec<String> = ["a", "b", "c"]
        .into_iter()
        .filter(|id| {
            let key = keys::document(&super::bench::epk(1), id);
            follower.view.live(&key).unwrap().is_some()
        })
        .map(str::to_owned)
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    leader.purge();
    assert_eq!(contents(&follower.view.engine), contents(leader.engine()));
    follower.check_accounts();
}

/// Adds an entry to the leader's log after which replicas are compared.
fn checked(follower: &Follower, number: u64) -> Digest {
    loop {
        match follower.replica.checked(number) {
            Outcome::Done(digest) => return digest,
            Outcome::Running => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_check_finds_replicas_equal_whatever_they_have_purged_and_a_damaged_one_different() {
    let mut leader = Bench::new(after(50));
    let [mut one, mut other] = [(); 2].map(|()| Follower::of(&leader, after(50)));
    for number in 0..20 {
        let ttl = if number % 2 == 0 { 1 } else { 40 };
        let item = json!({"id": format!("{number}"), "pk": "p", "ttl": ttl});
        leader.run(Want::Upsert(item)).unwrap();
    }
    leader.wait(2);
    leader.begin_check(7);
    // What follows does not count, even where it is applied together with the check.
    leader
        .run(Want::Upsert(json!({"id": "later", "pk": "p"})))
        .unwrap();
    one.catch_up(&leader, usize::MAX);
    while one.purge() {}
    while other.applied < leader.journal.len() {
        other.catch_up(&leader, 1);
    }
    let digest = checked(&one, 7);
    assert_eq!(digest.items, 10, "the live ones");
    assert_eq!(checked(&other, 7), digest);
    leader.begin_check(8);
    let key = keys::document(&super::bench::epk(1), "3");
    let mut damaged = other.view.engine.get(&key).unwrap().unwrap().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut batch = Batch::default();
    batch.put(&key, &damaged);
    let engine = &other.view.engine;
    engine.write(batch, Durability::Buffered).unwrap();
    one.catch_up(&leader, usize::MAX);
    other.catch_up(&leader, usize::MAX);
    let (sound, damaged) = (checked(&one, 8), checked(&other, 8));
    assert_eq!((sound.items, damaged.items), (11, 11));
    assert_ne!(sound.sha256, damaged.sha256);
}

/// How long a test waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(10);

#[test]
fn a_commit_of_a_node_that_lost_its_leadership_is_not_leader_and_no_failure_of_the_disk() {
    let mut leader = Bench::new(DefaultTtl::Off);
    leader.run(Want::Create(item("1"))).unwrap();
    let commands = rmp_serde::from_slice(&leader.journal[0]).unwrap();
    // Its driver is gone, so nothing leads.
    let follower = Follower::of(&leader, DefaultTtl::Off);
    let log = ReplicatedLog {
        replica: Arc::clone(&follower.replica),
        term: 5,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let (done, outcome) = mpsc::channel();
    let group = Group {
        number: 7,
        commands,
        ..Group::default()
    };
    log.submit(
        group,
        Box::new(move |number, outcome| done.send((number, outcome)).unwrap()),
    );
    let (number, outcome) = outcome.recv_timeout(TIMEOUT).unwrap();
    assert_eq!((number, outcome), (7, Err(CommitError::NotLeader(None))));
    assert_eq!(follower.view.poisoned(), None);
}

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_lost_leadership_is_never_logged_as_a_failure_of_the_disk() {
    for (failure, is_disk) in [
        (CommitError::NotLeader(Some(2)), false),
        (CommitError::OutcomeUnknown, false),
        (CommitError::Superseded, false),
        (CommitError::Overloaded, false),
        (EngineError::Io("cable pulled".into()).into(), true),
    ] {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut bench = Bench::new(DefaultTtl::Off);
            let mut answer = bench.send(1, &[Want::Create(item("1"))], true);
            bench.fail_commit_with(failure.clone());
            assert!(answer.now().is_err());
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let refused = text.contains("commit refused") && !text.contains("ERROR");
        let failed = text.contains("commit failed") && text.contains("the disk failed");
        assert_eq!(
            (refused, failed),
            (!is_disk, is_disk),
            "{failure:?}: {text}"
        );
    }
}
