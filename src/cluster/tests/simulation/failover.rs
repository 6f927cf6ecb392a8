//! How long a group is without a leader that commits, after its leader is gone.

use rand::Rng as _;

use super::{
    SOUND,
    network::Weather,
    node::Node,
    world::{GROUPS, NODES, Simulation},
};

/// A tick is 50 ms and has ten moments.
const MOMENTS_PER_SECOND: u64 = 200;
const RUNS: u64 = 200;
const LEADING_MAX: u64 = 3_000;

/// Returns the moments from the end of a leader to the first entry that another commits. `noticed`:
/// the connections break, as when a process is killed; else there is only silence.
fn failover(seed: u64, noticed: bool) -> u64 {
    let mut simulation = Simulation::new(seed, SOUND);
    simulation.splitting.from = u64::MAX;
    // A good network, and ticks that are late now and then.
    simulation.network.weather = Weather::CALM;
    let group = GROUPS[1];
    let leader = |simulation: &Simulation| {
        let led = |node: &Node| node.roles.get(&group).is_some_and(|role| role.is_leader);
        simulation.nodes.iter().position(led)
    };
    while !simulation.agree() {
        simulation.moment().unwrap();
        assert!(simulation.now < LEADING_MAX, "seed {seed}: nobody leads");
    }
    // At any moment between two heartbeats.
    for _ in 0..seed % 50 {
        simulation.moment().unwrap();
    }
    let old = leader(&simulation).unwrap();
    let term = simulation.nodes[old].roles[&group].term;
    simulation.crash(old);
    simulation.breaks.clear();
    let (gone, now) = (simulation.nodes[old].id, simulation.now);
    if noticed {
        for other in (1..=NODES).filter(|other| *other != gone) {
            // After all that it had sent.
            let notices = now + simulation.rng.random_range(3..12);
            simulation.breaks.insert((notices, other, gone));
        }
    }
    let committed = |node: &Node| {
        let machine = node.machines.get(&group);
        machine.is_some_and(|machine| machine.entries.last().is_some_and(|last| last.term > term))
    };
    while !simulation.nodes.iter().any(committed) {
        simulation.moment().unwrap();
        assert!(
            simulation.now < now + LEADING_MAX,
            "seed {seed}: nobody leads"
        );
    }
    simulation.now - now
}

fn distribution(noticed: bool) -> Vec<u64> {
    let mut moments: Vec<u64> = (0..RUNS).map(|seed| failover(seed, noticed)).collect();
    moments.sort_unstable();
    let at = |percent: usize| moments[(moments.len() - 1) * percent / 100] * 1_000;
    println!(
        "noticed: {noticed}; p50 {} ms, p90 {} ms, p99 {} ms, max {} ms",
        at(50) / MOMENTS_PER_SECOND,
        at(90) / MOMENTS_PER_SECOND,
        at(99) / MOMENTS_PER_SECOND,
        at(100) / MOMENTS_PER_SECOND
    );
    moments
}

#[test]
fn a_leader_whose_connections_break_is_followed_within_half_a_second() {
    let moments = distribution(true);
    assert!(moments[moments.len() / 2] < MOMENTS_PER_SECOND / 4);
    assert!(moments[moments.len() - 1] < MOMENTS_PER_SECOND);
}

#[test]
fn a_leader_that_falls_silent_is_followed_within_three_seconds() {
    let moments = distribution(false);
    assert!(moments[moments.len() / 2] < 2 * MOMENTS_PER_SECOND);
    assert!(moments[moments.len() - 1] < 3 * MOMENTS_PER_SECOND);
}
