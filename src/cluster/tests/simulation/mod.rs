//! A whole cluster in one thread, from one seed: what one run does, every run with that seed does.
//!
//! `BOLIDE_SIMULATION_SEEDS=5000 cargo test --release --lib cluster::tests::simulation` runs more
//! seeds than usual, `BOLIDE_SIMULATION_SEED=17` one alone.

mod checks;
mod disk;
mod expiry;
mod failover;
mod members;
mod network;
mod node;
mod readers;
mod round_trips;
mod schedule;
mod sessions;
mod splits;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checks::Summary;
use world::Simulation;

const SEEDS_USUALLY: u64 = 100;

/// What is broken in a build on purpose, to see that the simulation finds it.
#[derive(Clone, Copy, Default)]
pub struct Broken {
    /// Disks acknowledge an fsync that they have not done.
    pub lying_disks: bool,
    /// Leaders answer strong reads without a read index.
    pub hasty_reads: bool,
    /// Nodes answer clients whose session token is ahead of them.
    pub careless_sessions: bool,
    /// Leaders use their own clocks.
    pub own_clocks: bool,
    /// Strong reads use the time of the node that answers them.
    pub hasty_times: bool,
    /// Nodes purge by their own clocks.
    pub hasty_purges: bool,
    /// Leaders go on deciding after the entry that splits their group.
    pub heedless_splits: bool,
}

pub const SOUND: Broken = Broken {
    lying_disks: false,
    hasty_reads: false,
    careless_sessions: false,
    own_clocks: false,
    hasty_times: false,
    hasty_purges: false,
    heedless_splits: false,
};

type Verdict = Result<Summary, String>;

fn run(seed: u64, broken: Broken) -> Verdict {
    Simulation::new(seed, broken).run()
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("BOLIDE_SIMULATION_SEED") {
        return seed..seed + 1;
    }
    0..number("BOLIDE_SIMULATION_SEEDS").unwrap_or(SEEDS_USUALLY)
}

#[test]
fn nothing_acknowledged_is_lost_and_all_replicas_agree_whatever_happens() {
    let (mut acknowledged, mut reads, mut session_reads) = (0, 0, 0);
    let (mut judgements, mut purged) = (0, 0);
    let (mut crashes, mut terms) = (0, 0);
    let (mut wipes, mut moves, mut installed, mut left_behind) = (0, 0, 0, 0);
    let seeds = seeds();
    for seed in seeds.clone() {
        match run(seed, SOUND) {
            Ok(summary) => {
                acknowledged += summary.acknowledged;
                reads += summary.reads;
                session_reads += summary.session_reads;
                purged += summary.purged;
                judgements += summary.judgements;
                crashes += summary.crashes;
                terms += summary.terms;
                wipes += summary.wipes;
                moves += summary.moves;
                installed += summary.installed;
                left_behind += summary.left_behind;
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    // A storm in which nothing happens proves nothing.
    let runs = seeds.count();
    assert!(
        acknowledged > 60 * runs,
        "{acknowledged} acknowledged in {runs} runs"
    );
    assert!(reads as usize > 100 * runs, "{reads} reads in {runs} runs");
    assert!(
        session_reads as usize > 100 * runs,
        "{session_reads} reads in sessions in {runs} runs"
    );
    assert!(
        purged as usize > 100 * runs,
        "{purged} purged in {runs} runs"
    );
    assert!(
        judgements as usize > 100 * runs,
        "{judgements} judgements in {runs} runs"
    );
    assert!(crashes as usize > runs, "{crashes} crashes in {runs} runs");
    assert!(terms as usize > 2 * runs, "{terms} terms in {runs} runs");
    assert!(moves as usize > 2 * runs, "{moves} moves in {runs} runs");
    assert!(
        installed as usize > 2 * runs,
        "{installed} snapshots in {runs} runs"
    );
    if runs >= SEEDS_USUALLY as usize {
        assert!(wipes > 0, "no node lost its disk in {runs} runs");
        assert!(left_behind > 0, "all made their parts in {runs} runs");
    }
}

#[test]
fn a_seed_tells_the_same_story_twice() {
    assert_eq!(run(3, SOUND), run(3, SOUND));
    assert_ne!(run(3, SOUND), run(4, SOUND));
}

/// One would do; a few more show that it was not chance.
const CAUGHT_MIN: usize = 3;
/// Runs of a broken build: in most of them the defect does not matter.
const BROKEN_SEEDS: u64 = 60;

/// Checks that the simulation finds a defect.
fn find_out(broken: Broken) {
    let caught = (0..BROKEN_SEEDS).filter(|seed| {
        // raft-rs itself panics when a log has lost what it had acknowledged.
        let verdict = catch_unwind(AssertUnwindSafe(|| run(*seed, broken)));
        verdict.is_err() || verdict.is_ok_and(|verdict| verdict.is_err())
    });
    let caught = caught.count();
    assert!(
        caught >= CAUGHT_MIN,
        "caught in {caught} of {BROKEN_SEEDS} runs"
    );
}

#[test]
fn a_disk_that_acknowledges_before_it_has_synced_is_found_out() {
    find_out(Broken {
        lying_disks: true,
        ..SOUND
    });
}

#[test]
fn nodes_that_answer_clients_who_have_come_further_are_found_out() {
    find_out(Broken {
        careless_sessions: true,
        ..SOUND
    });
}

#[test]
fn nodes_that_purge_by_their_own_clocks_are_found_out() {
    find_out(Broken {
        hasty_purges: true,
        ..SOUND
    });
}

#[test]
fn leaders_that_judge_by_their_own_clocks_are_found_out() {
    find_out(Broken {
        own_clocks: true,
        ..SOUND
    });
}

#[test]
fn nodes_that_judge_strong_reads_by_their_own_time_are_found_out() {
    find_out(Broken {
        hasty_times: true,
        ..SOUND
    });
}

#[test]
fn a_leader_that_answers_strong_reads_without_asking_is_found_out() {
    find_out(Broken {
        hasty_reads: true,
        ..SOUND
    });
}

#[test]
fn a_leader_that_decides_on_after_it_has_its_group_split_is_found_out() {
    find_out(Broken {
        heedless_splits: true,
        ..SOUND
    });
}
