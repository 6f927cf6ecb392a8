//! How many messages a strong read waits for, one after the other.

use super::*;

/// Every message takes a moment, so a round trip takes two.
const STEADY: Weather = Weather {
    lost_percent: 0,
    doubled_percent: 0,
    delay_max: 1,
};
const ROUND_TRIP: u64 = 2;
const TRIES: u64 = 30;

#[test]
fn a_strong_read_takes_one_round_trip_between_nodes_at_the_leader_and_elsewhere() {
    let seeds =
        (0..).filter(|seed| Simulation::new(*seed, SOUND).aims[&GROUPS[1]].voters.len() == 3);
    for seed in seeds.take(5) {
        let mut simulation = Simulation::new(seed, SOUND);
        simulation.splitting.from = u64::MAX;
        simulation.network.weather = STEADY;
        while !simulation.agree() {
            simulation.moment().unwrap();
        }
        for at in 0..3 {
            let mut waited: Vec<u64> = (0..TRIES).map(|_| wait(&mut simulation, at)).collect();
            waited.sort_unstable();
            // A read that meets the end of a unit of time asks once more.
            let usual = waited[waited.len() / 2];
            assert_eq!(usual, ROUND_TRIP, "node {} of seed {seed}", at + 1);
        }
    }
}

/// Moments from the one at which a node sends the question of a strong read to the one at which it is answered.
fn wait(simulation: &mut Simulation, at: usize) -> u64 {
    let began = simulation.now + 1;
    let number = simulation.ask_at(at, GROUPS[1]).expect("the node is up");
    while simulation.readers.waits(number) {
        simulation.moment().unwrap();
        assert!(simulation.now < began + STORM, "nobody answers");
    }
    simulation.now - began
}
