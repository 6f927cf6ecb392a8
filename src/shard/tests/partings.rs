//! A replica that is split by an entry of its log: all replicas get the same parts, and a crash at any moment leaves them or lets them be made again.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use bytes::Bytes;
use serde_json::json;

use super::{
    bench::{Bench, Want, after, epk, facts, small_resources},
    node::{Node, in_memory, run},
};
use crate::{
    cluster::{
        GroupId,
        driver::{Driver, state_machine::StateMachine as _},
        raft::{group::Committed, log_disk::InitialState},
    },
    model::{catalog::Cut, ttl::DefaultTtl},
    shard::{
        check::{Digest, Outcome},
        command::{Change, Command},
        decide::purge,
        host::{ShardHandle, folders},
        overlay::Overlay,
        replica::Replica,
        state::ShardState,
        view::ShardView,
    },
    store::{Engine, shard_id::FolderId},
};

/// The first key of the second part.
const AT: u8 = 6;
const CHECK: u64 = 7;

/// Items under several keys, every other one expired by now; in the end the shard is split.
fn leader() -> Bench {
    let mut leader = Bench::new(DefaultTtl::Off);
    leader.change_default(after(50));
    for number in 0..60_u8 {
        let ttl = if number % 2 == 0 { 1 } else { 40 };
        let item = json!({"id": format!("{number}"), "ttl": ttl});
        let created = leader.run_in(number % 12, Want::Create(item));
        created.expect("created");
    }
    leader.wait(2);
    let cut = Cut {
        at: epk(AT),
        parts: [1, 2],
        replicas: vec![1, 2, 3],
        version: 1,
    };
    let state = leader.view.state();
    let split = Command {
        lsn: state.lsn + 1,
        ts: leader.clock.now(),
        changes: vec![Change::Split(cut)],
    };
    leader
        .journal
        .push(rmp_serde::to_vec(&[split]).expect("a command has a MessagePack form"));
    leader
}

/// The leader's log.
fn entries(leader: &Bench) -> Vec<Committed> {
    let entries = leader.journal.iter().zip(1..);
    entries
        .map(|(data, index)| Committed {
            index,
            term: 1,
            data: Bytes::from(data.clone()),
        })
        .collect()
}

fn open(node: &Node) -> Arc<ShardHandle> {
    node.host.open_replica(
        facts(0, &[]),
        InitialState::Bootstrap(vec![1, 2, 3]),
        &[1, 2, 3],
    )
}

fn replica(shard: &ShardHandle) -> Arc<Replica> {
    shard.replica().expect("the node is in a cluster")
}

fn purge(shard: &ShardHandle) {
    let view = shard.view().expect("open");
    let state = view.state();
    let slice = purge::slice(
        &view.engine,
        &Overlay::default(),
        &state.rules,
        state.cursors,
        state.ts,
        None,
    );
    let slice = slice.expect("readable");
    replica(shard).purge(slice.purge).expect("purged");
}

/// What is alive in a part, as a check of replicas sees it.
fn digest(part: &ShardHandle, index: u64) -> Digest {
    let state = part.view().expect("open").state();
    let check = Command {
        lsn: state.lsn + 1,
        ts: state.ts,
        changes: vec![Change::Check(CHECK)],
    };
    let entry = Committed {
        index,
        term: 1,
        data: Bytes::from(rmp_serde::to_vec(&[check]).expect("a command has a MessagePack form")),
    };
    replica(part).apply(vec![entry]).expect("applied");
    loop {
        match replica(part).checked(CHECK) {
            Outcome::Done(digest) => return digest,
            Outcome::Running => std::thread::yield_now(),
            other => panic!("{other:?}"),
        }
    }
}

fn digests(shard: &ShardHandle) -> Vec<Digest> {
    let parts = shard.parts().iter();
    let digests: Vec<Digest> = parts.map(|part| digest(part, 1)).collect();
    let items: Vec<u64> = digests.iter().map(|digest| digest.items).collect();
    assert_eq!(items, [15, 15], "what is alive is in one part each");
    digests
}

async fn close(shard: &Arc<ShardHandle>) {
    for one in shard.with_parts() {
        one.close().await.unwrap();
    }
}

#[test]
fn replicas_get_the_same_parts_whatever_they_have_purged() {
    let leader = leader();
    run(async {
        let folders = [in_memory(), in_memory()];
        let nodes = folders
            .each_ref()
            .map(|folder| Node::in_cluster(folder.path()));
        let [one, other] = nodes.each_ref().map(open);
        replica(&one).apply(entries(&leader)).expect("applied");
        for entry in entries(&leader) {
            replica(&other).apply(vec![entry]).expect("applied");
            if !other.is_cut() {
                purge(&other);
            }
        }
        assert!(one.is_cut() && other.is_cut());
        for part in one.parts() {
            let (state, parent) = (
                part.view().expect("open").state(),
                one.view().expect("open"),
            );
            assert_eq!(state.lsn, parent.lsn(), "session tokens stay meaningful");
            assert_eq!(state.rules, parent.state().rules, "and so does expiry");
        }
        assert_eq!(digests(&one), digests(&other));
        close(&one).await;
        close(&other).await;
    });
}

#[test]
fn nothing_is_written_after_a_split() {
    let mut leader = leader();
    let mut log = entries(&leader);
    leader
        .run_in(1, Want::Create(json!({"id": "late"})))
        .expect("created");
    let late = entries(&leader).pop().expect("an entry");
    run(async {
        let folder = in_memory();
        let node = Node::in_cluster(folder.path());
        let shard = open(&node);
        // A new leader begins its term with nothing; that is all that may come.
        log.push(Committed {
            index: log.len() as u64 + 1,
            term: 2,
            data: Bytes::new(),
        });
        replica(&shard).apply(log).expect("applied");
        let lsn = shard.view().expect("open").lsn();
        let refused = replica(&shard).apply(vec![late]);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(shard.view().expect("open").lsn(), lsn);
        close(&shard).await;
    });
}

fn shard_folder(folder: &Path, range: u32) -> PathBuf {
    let container = facts(0, &[]).container.to_text();
    let name = format!("{}-{range}", container.trim_end_matches('='));
    folder.join("shards").join(name)
}

#[test]
fn parts_that_a_crash_has_left_out_are_made_at_the_next_start() {
    let leader = leader();
    run(async {
        let folder = in_memory();
        // What was applied is there, what follows from it is not: a part that is not complete at most.
        let engine = Engine::open(&shard_folder(folder.path(), 0), &small_resources());
        let engine = engine.expect("opened");
        let facts = facts(0, &[]);
        let state = ShardState::new(facts.first_ordinal(), DefaultTtl::Off);
        let view = ShardView::new(facts, Arc::new(engine), leader.clock.clone(), state);
        let (driver, _) = Driver::new();
        let alone = Replica::new(GroupId::META, driver, Arc::new(view), Weak::new());
        alone.apply(entries(&leader)).expect("applied");
        alone.sync().expect("durable");
        drop(alone);
        folders::upgrade(folder.path(), FolderId::default()).expect("marked");
        std::fs::create_dir_all(shard_folder(folder.path(), 2).with_extension("new"))
            .expect("made");

        let node = Node::in_cluster(folder.path());
        let shard = open(&node);
        assert!(shard.is_cut());
        digests(&shard);
        close(&shard).await;
    });
}

#[test]
fn parts_that_are_made_are_never_made_again() {
    let leader = leader();
    run(async {
        let folder = in_memory();
        let node = Node::in_cluster(folder.path());
        let shard = open(&node);
        replica(&shard).apply(entries(&leader)).expect("applied");
        let part = Arc::clone(&shard.parts()[0]);
        let written = Command {
            lsn: part.view().expect("open").lsn() + 1,
            ts: leader.clock.now(),
            changes: Vec::new(),
        };
        let entry = Committed {
            index: 1,
            term: 1,
            data: Bytes::from(rmp_serde::to_vec(&[&written]).expect("a form")),
        };
        replica(&part).apply(vec![entry]).expect("applied");
        close(&shard).await;
        drop((shard, part, node));

        let node = Node::in_cluster(folder.path());
        let shard = open(&node);
        let lsns: Vec<u64> = shard
            .parts()
            .iter()
            .map(|part| part.view().expect("open").lsn())
            .collect();
        assert_eq!(lsns, [written.lsn, written.lsn - 1]);
        close(&shard).await;
    });
}

#[test]
fn a_part_whose_log_a_crash_has_lost_begins_with_those_that_have_made_it_too() {
    let leader = leader();
    run(async {
        let folder = in_memory();
        let node = Node::in_cluster(folder.path());
        let shard = open(&node);
        replica(&shard).apply(entries(&leader)).expect("applied");
        let part = shard.parts()[1].facts.clone();
        close(&shard).await;
        drop((shard, node));

        // The catalog names the part meanwhile, so nobody comes by its parent.
        let node = Node::in_cluster(folder.path());
        let part = node
            .host
            .open_replica(part, InitialState::Uninitialized, &[1, 2, 3]);
        assert!(replica(&part).is_initialized());
        let blank = node
            .host
            .open_replica(facts(7, &[]), InitialState::Uninitialized, &[1, 2, 3]);
        assert!(
            !replica(&blank).is_initialized(),
            "one that has nothing is no beginning"
        );
        close(&part).await;
        close(&blank).await;
    });
}

#[test]
fn a_node_that_may_have_forgotten_its_parts_makes_none() {
    let leader = leader();
    run(async {
        let folder = in_memory();
        let node = Node::initialized_in_cluster(folder.path(), 1);
        let shard = open(&node);
        replica(&shard).apply(entries(&leader)).expect("applied");
        assert!(shard.is_cut() && shard.parts().is_empty());
        close(&shard).await;
    });
}
