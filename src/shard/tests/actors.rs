//! The actor and its host: group commit, panics, admission, closing.

use std::time::Duration;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::future::join;

use super::{
    bench::{Want, after, body, epk, item},
    node::{self, Node, ROOMY, create_all, ids, in_memory, perform, status},
};
use crate::{
    model::{
        error::{Error, ErrorKind},
        ttl::DefaultTtl,
    },
    shard::{
        actor::Panic,
        host::{Admission, ShardHandle},
        view::ShardView,
    },
};

fn names(range: std::ops::Range<u32>) -> impl Iterator<Item = String> {
    range.map(|n| format!("{n:04}"))
}

/// Lets everything else that is ready run.
async fn let_others_run() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

fn view(shard: &ShardHandle) -> Arc<ShardView> {
    shard.view().expect("the shard is up")
}

#[test]
fn writes_that_arrive_together_share_an_fsync() {
    let folder = node::folder();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        let replies = create_all(&shard, names(0..500)).await;
        assert!(
            replies
                .iter()
                .all(|reply| reply.as_ref().is_ok_and(|reply| reply.results[0].is_ok()))
        );
        let lsns: HashSet<u64> = replies
            .iter()
            .map(|reply| reply.as_ref().expect("created").lsn)
            .collect();
        assert_eq!(lsns.len(), 500, "each write is a transaction of its own");
        let view = view(&shard);
        let fsyncs = view.counters.fsyncs.load(Ordering::Relaxed);
        assert_eq!(view.counters.commands.load(Ordering::Relaxed), 500);
        assert!((1..100).contains(&fsyncs), "{fsyncs} fsyncs for 500 writes");
        assert_eq!(view.state().documents, 500);
        assert_eq!(shard.requests_under_way(), 0);
    });
}

#[test]
fn a_shard_that_panics_is_rebuilt_with_all_it_acknowledged_and_its_neighbour_does_not_notice() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let (shard, neighbour) = (node.open(0, DefaultTtl::Off), node.open(1, DefaultTtl::Off));
        assert_eq!(status(&neighbour, Want::Create(item("quiet"))).await, 201);
        let mut kept = HashSet::new();
        let mut etags = HashSet::new();
        let mut rids = HashSet::new();
        for round in 0..5 {
            let bomb = async {
                let_others_run().await;
                shard.send(Panic).expect("the shard is up");
            };
            let first = round * 100;
            let (mut replies, ()) = join(create_all(&shard, names(first..first + 50)), bomb).await;
            replies.extend(create_all(&shard, names(first + 50..first + 100)).await);
            for (id, reply) in names(first..first + 100).zip(replies) {
                match reply {
                    Ok(reply) => {
                        let item = body(reply.results[0].as_ref().expect("created"));
                        assert!(
                            etags.insert(item["_etag"].to_string()),
                            "an etag was given twice"
                        );
                        assert!(
                            rids.insert(item["_rid"].to_string()),
                            "a resource id was given twice"
                        );
                        kept.insert(id);
                    }
                    Err(error) => assert_eq!(error.kind, ErrorKind::Unavailable, "{error}"),
                }
            }
            let there: HashSet<String> = ids(&shard).into_iter().collect();
            let lost: Vec<_> = kept.difference(&there).collect();
            assert!(lost.is_empty(), "acknowledged, but lost: {lost:?}");
            assert_eq!(
                status(&shard, Want::Upsert(item("after"))).await,
                if round == 0 { 201 } else { 200 }
            );
        }
        let view = view(&shard);
        assert_eq!(view.counters.restarts.load(Ordering::Relaxed), 5);
        assert_eq!(view.poisoned(), None);
        assert_eq!(view.state().documents, ids(&shard).len() as u64);
        let quiet = neighbour.view().expect("up");
        assert_eq!(quiet.counters.restarts.load(Ordering::Relaxed), 0);
        assert_eq!(status(&neighbour, Want::Read("quiet".into())).await, 200);
        assert_eq!(quiet.lsn(), 1);
    });
}

#[test]
fn a_write_that_was_under_way_when_the_actor_panicked_is_kept_whole_or_refused() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        assert_eq!(status(&shard, Want::Create(item("before"))).await, 201);
        let view = view(&shard);
        // The group is under way, and cannot end, when the actor panics.
        let held = view.applied.lock().expect("nobody panicked in a commit");
        let write = perform(&shard, Want::Create(item("under way")));
        let bomb = async {
            let_others_run().await;
            shard.send(Panic).expect("up");
            let_others_run().await;
            drop(held);
        };
        let (reply, ()) = join(write, bomb).await;
        assert_eq!(status(&shard, Want::Create(item("after"))).await, 201);
        let kept = ids(&shard).contains(&"under way".to_owned());
        assert_eq!(reply.is_ok(), kept, "{reply:?}");
        assert_eq!(view.poisoned(), None);
    });
}

fn assert_overloaded(error: &Error) {
    assert_eq!(
        (error.kind, error.status()),
        (ErrorKind::Overloaded, 429),
        "{error}"
    );
    assert!(error.retry_after_ms.is_some_and(|ms| ms > 0), "{error}");
}

#[test]
fn more_requests_than_may_wait_are_refused_at_once() {
    let folder = in_memory();
    let admission = Admission {
        shard_requests_max: 4,
        ..ROOMY
    };
    node::run(async {
        let node = Node::with_admission(folder.path(), admission);
        let (shard, neighbour) = (node.open(0, DefaultTtl::Off), node.open(1, DefaultTtl::Off));
        let view = view(&shard);
        let held = view.applied.lock().expect("nobody panicked in a commit");
        let waiting = create_all(&shard, names(0..4));
        let more = async {
            let_others_run().await;
            assert_eq!(shard.requests_under_way(), 4);
            let error = perform(&shard, Want::Create(item("fifth")))
                .await
                .expect_err("refused");
            assert_overloaded(&error);
            assert!(error.message.contains("range 0"), "{error}");
            assert_eq!(
                status(&neighbour, Want::Create(item("x"))).await,
                201,
                "another shard has room"
            );
            drop(held);
        };
        let (replies, ()) = join(waiting, more).await;
        assert!(replies.iter().all(Result::is_ok));
        assert_eq!(shard.requests_under_way(), 0);
        assert_eq!(status(&shard, Want::Create(item("fifth"))).await, 201);
    });
}

#[test]
fn more_bytes_than_the_node_holds_are_refused_on_every_shard() {
    let folder = in_memory();
    let admission = Admission {
        node_bytes_max: 250,
        ..ROOMY
    };
    node::run(async {
        let node = Node::with_admission(folder.path(), admission);
        let (shard, neighbour) = (node.open(0, DefaultTtl::Off), node.open(1, DefaultTtl::Off));
        let view = view(&shard);
        let held = view.applied.lock().expect("nobody panicked in a commit");
        // Each counts as a hundred bytes.
        let waiting = create_all(&shard, names(0..2));
        let more = async {
            let_others_run().await;
            for shard in [&shard, &neighbour] {
                assert_overloaded(
                    &perform(shard, Want::Create(item("x")))
                        .await
                        .expect_err("refused"),
                );
            }
            drop(held);
        };
        let (replies, ()) = join(waiting, more).await;
        assert!(replies.iter().all(Result::is_ok));
        assert_eq!(
            status(&neighbour, Want::Create(item("x"))).await,
            201,
            "what was refused holds no place"
        );
    });
}

#[test]
fn a_new_default_is_in_force_when_its_answer_arrives() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        assert_eq!(status(&shard, Want::Create(item("x"))).await, 201);
        node.clock.set(node.clock.now() + 5);
        assert_eq!(ids(&shard), ["x"]);
        shard
            .change_default_ttl(after(5), node.clock.now())
            .await
            .expect("changed");
        assert_eq!(ids(&shard), [] as [&str; 0]);
        assert_eq!(status(&shard, Want::Delete("x".into())).await, 404);
        shard
            .change_default_ttl(DefaultTtl::Off, node.clock.now())
            .await
            .expect("changed");
        assert_eq!(ids(&shard), [] as [&str; 0], "expiry is final");
        // The same default again is no change.
        let lsn = view(&shard).lsn();
        shard
            .change_default_ttl(DefaultTtl::Off, node.clock.now())
            .await
            .expect("nothing to do");
        assert_eq!(view(&shard).lsn(), lsn);
    });
}

#[test]
fn a_shard_catches_up_with_the_default_of_the_catalog() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        let behind = Arc::clone(&shard);
        let catching_up =
            tokio::task::spawn_blocking(move || behind.catch_up_default_ttl(after(7)));
        catching_up.await.expect("no panic");
        assert_eq!(view(&shard).state().rules.default, after(7));
    });
}

#[test]
fn closing_finishes_what_was_accepted_and_refuses_the_rest() {
    let folder = node::folder();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, after(100));
        let held_view = view(&shard);
        let held = held_view
            .applied
            .lock()
            .expect("nobody panicked in a commit");
        let accepted = create_all(&shard, names(0..50));
        let close = async {
            let_others_run().await;
            let refused = async {
                let_others_run().await;
                let error = perform(&shard, Want::Create(item("late")))
                    .await
                    .expect_err("refused");
                assert_eq!(error.status(), 503, "{error}");
            };
            let release = async {
                refused.await;
                drop(held);
            };
            let (closed, ()) = join(shard.close(), release).await;
            closed.unwrap();
        };
        let (replies, ()) = join(accepted, close).await;
        assert!(
            replies
                .iter()
                .all(|reply| reply.as_ref().is_ok_and(|reply| reply.results[0].is_ok()))
        );
        for error in [
            perform(&shard, Want::Read("0000".into()))
                .await
                .expect_err("closed"),
            shard.view().err().expect("closed"),
        ] {
            assert_eq!(
                (error.status(), error.message.as_str()),
                (503, "the shard is closed")
            );
        }

        drop(held_view);
        let again = node.open(0, DefaultTtl::Off);
        assert_eq!(ids(&again), names(0..50).collect::<Vec<_>>());
        let state = view(&again).state();
        assert_eq!((state.lsn, state.documents), (50, 50));
        assert_eq!(state.rules.default, after(100), "what the shard holds wins");
        assert_eq!(status(&again, Want::Create(item("0000"))).await, 409);
        assert_eq!(status(&again, Want::Create(item("more"))).await, 201);
    });
}

#[test]
fn a_shard_that_is_closed_while_it_panics_stays_closed() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        for _ in 0..20 {
            // The files are free once the last thread that worked on the shard has let go of them.
            let mut shard = node.open(0, DefaultTtl::Off);
            while shard.view().is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                shard = node.open(0, DefaultTtl::Off);
            }
            shard.send(Panic).expect("up");
            shard.close().await.unwrap();
            node.arbiters_idle().await;
            node.arbiters_idle().await;
            let error = shard.view().err().expect("closed for good");
            assert_eq!(error.message, "the shard is closed");
        }
    });
}

#[test]
fn a_destroyed_shard_leaves_no_files_even_with_writes_under_way() {
    let folder = node::folder();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, DefaultTtl::Off);
        let (replies, destroyed) = join(create_all(&shard, names(0..200)), async {
            let_others_run().await;
            shard.destroy().await
        })
        .await;
        destroyed.expect("removed");
        assert_eq!(replies.len(), 200, "everybody has an answer");
        let left = std::fs::read_dir(folder.path().join("shards"))
            .expect("readable")
            .count();
        assert_eq!(left, 0);
        assert!(shard.view().is_err());
        // A new shard in the same place begins from nothing.
        let again = node.open(0, DefaultTtl::Off);
        assert_eq!(ids(&again), [] as [&str; 0]);
        assert_eq!(status(&again, Want::Create(item("x"))).await, 201);
    });
}

#[test]
fn the_purger_of_a_running_shard_removes_what_expires() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, after(5));
        create_all(&shard, names(0..1_500)).await;
        node.clock.set(node.clock.now() + 5);
        let view = view(&shard);
        // The purger has a timer of its own; there is nothing else to wait for.
        while view.state().documents > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(view.counters.purged.load(Ordering::Relaxed), 1_500);
        assert_eq!(view.state().bytes, 0);
    });
}

/// Rounds of the race below.
const RACES: u32 = 150;

#[test]
fn readers_on_other_threads_never_see_an_expired_item_again() {
    let folder = in_memory();
    node::run(async {
        let node = Node::start(folder.path());
        let shard = node.open(0, after(3));
        let view = view(&shard);
        let stop = Arc::new(AtomicBool::new(false));
        // A second of this clock takes a fraction of a millisecond, so that items fall due while the default is being changed.
        let ticker = {
            let (clock, stop) = (node.clock.clone(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    clock.set(clock.now() + 1);
                    std::thread::sleep(std::time::Duration::from_micros(300));
                }
            })
        };
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (view, stop) = (Arc::clone(&view), Arc::clone(&stop));
                std::thread::spawn(move || {
                    let (mut last, mut gone, mut misses) = (None, HashSet::new(), 0_u32);
                    while !stop.load(Ordering::Relaxed) {
                        match view.read(&epk(1), "x", None) {
                            Ok(done) => {
                                let etag = done.etag.expect("an etag").to_bytes();
                                assert!(
                                    !gone.contains(&etag),
                                    "an item came back after it had expired"
                                );
                                last = Some(etag);
                            }
                            Err(_) => {
                                misses += 1;
                                gone.extend(last.take());
                            }
                        }
                    }
                    misses
                })
            })
            .collect();
        for _ in 0..RACES {
            status(&shard, Want::Upsert(item("x"))).await;
            shard
                .change_default_ttl(after(3), node.clock.now())
                .await
                .expect("changed");
            // The second of a change is chosen before the shard hears of it.
            let chosen = node.clock.now();
            tokio::task::yield_now().await;
            shard
                .change_default_ttl(after(1_000_000), chosen)
                .await
                .expect("changed");
            tokio::task::yield_now().await;
        }
        stop.store(true, Ordering::Relaxed);
        ticker.join().expect("no panic");
        for reader in readers {
            assert!(
                reader.join().expect("no reader saw it come back") > 0,
                "the race was run"
            );
        }
    });
}
