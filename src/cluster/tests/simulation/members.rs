//! Members that come, and members that have lost what they had.

use super::*;

const PATIENCE: u64 = 3_000;

/// Three nodes of five, in a good network.
fn three_of_five() -> Simulation {
    let three = |seed: &u64| {
        let simulation = Simulation::new(*seed, SOUND);
        simulation.aims[&GroupId::META].voters.len() == 3
    };
    let seed = (0..100).find(three).expect("most seeds begin with three");
    let mut simulation = Simulation::new(seed, SOUND);
    simulation.network.weather = Weather::CALM;
    until(&mut simulation, |simulation| simulation.agree());
    simulation
}

fn until(simulation: &mut Simulation, holds: impl Fn(&Simulation) -> bool) {
    let deadline = simulation.now + PATIENCE;
    while !holds(simulation) {
        // A node may crash when it takes a snapshot over.
        simulation.restart_all();
        simulation.moment().unwrap();
        assert!(simulation.now < deadline, "{}", simulation.stand());
    }
}

fn members(simulation: &Simulation) -> Members {
    let leads = |node: &&Node| {
        node.roles
            .get(&GroupId::META)
            .is_some_and(|role| role.leads)
    };
    let leader = simulation.nodes.iter().find(leads).unwrap();
    let replicas = leader.replicas.as_ref().unwrap();
    replicas.group(GroupId::META).unwrap().members().clone()
}

#[test]
fn a_node_that_has_nothing_is_given_no_vote_however_short_the_log_is() {
    let mut simulation = three_of_five();
    let aim = simulation.aims.get_mut(&GroupId::META).unwrap();
    aim.voters.push(4);
    for _ in 0..PATIENCE {
        simulation.moment().unwrap();
        // It answers, and never gets the snapshot.
        simulation.nodes[3].fetches.clear();
        assert!(!members(&simulation).voters.contains(&4));
    }
    assert_eq!(members(&simulation).learners, [4]);
    until(&mut simulation, |simulation| {
        members(simulation).voters.contains(&4)
    });
}

#[test]
fn a_node_that_lost_its_disk_leaves_before_it_is_filled_and_votes_again() {
    let mut simulation = three_of_five();
    let leads = |node: &Node| {
        node.roles
            .get(&GroupId::META)
            .is_some_and(|role| role.leads)
    };
    let follower = (0..3).find(|at| !leads(&simulation.nodes[*at])).unwrap();
    let (id, before) = (simulation.nodes[follower].id, members(&simulation).since);
    simulation.nodes[follower].wipe();
    simulation.network.forget(id, None);
    simulation.start(follower);
    until(&mut simulation, |simulation| {
        let members = members(simulation);
        members.since > before && !members.voters.contains(&id)
    });
    until(&mut simulation, |simulation| {
        members(simulation).voters.contains(&id) && simulation.agree()
    });
}
