//! Members that join, and members that have lost their disk.

use std::sync::Arc;

use raft::eraftpb::{Message, MessageType};

use super::{
    SOUND,
    disk::SimulatedDisk,
    network::Weather,
    node::Node,
    world::{GROUPS, Simulation},
};
use crate::cluster::{
    GroupId,
    raft::{log_disk::InitialState, membership::Members, replicas::Replicas, transport::Transport},
};

/// Moments within which something must happen.
const TIMEOUT: u64 = 3_000;

/// Three nodes of five, in a good network.
fn three_of_five() -> Simulation {
    let three = |seed: &u64| {
        let simulation = Simulation::new(*seed, SOUND);
        simulation.targets[&GroupId::META].voters.len() == 3
    };
    let seed = (0..100).find(three).expect("most seeds begin with three");
    let mut simulation = Simulation::new(seed, SOUND);
    simulation.splitting.from = u64::MAX;
    simulation.network.weather = Weather::CALM;
    until(&mut simulation, |simulation| simulation.agree());
    simulation
}

fn until(simulation: &mut Simulation, holds: impl Fn(&Simulation) -> bool) {
    let deadline = simulation.now + TIMEOUT;
    while !holds(simulation) {
        // A node may crash when it installs a snapshot.
        simulation.restart_all();
        simulation.moment().unwrap();
        assert!(simulation.now < deadline, "{}", simulation.stand());
    }
}

fn members(simulation: &Simulation) -> Members {
    let leads = |node: &&Node| {
        node.roles
            .get(&GroupId::META)
            .is_some_and(|role| role.is_leader)
    };
    let leader = simulation.nodes.iter().find(leads).unwrap();
    let replicas = leader.replicas.as_ref().unwrap();
    replicas.group(GroupId::META).unwrap().members().clone()
}

#[test]
fn a_node_that_has_nothing_is_given_no_vote_however_short_the_log_is() {
    let mut simulation = three_of_five();
    let target = simulation.targets.get_mut(&GroupId::META).unwrap();
    target.voters.push(4);
    for _ in 0..TIMEOUT {
        simulation.moment().unwrap();
        // It responds, and never gets the snapshot.
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
            .is_some_and(|role| role.is_leader)
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

#[test]
fn nobody_leaves_while_those_who_stay_could_elect_nobody() {
    let mut simulation = three_of_five();
    let leads = |at: &usize| {
        let role = simulation.nodes[*at].roles.get(&GroupId::META);
        role.is_some_and(|role| role.is_leader)
    };
    let leader = (0..3).find(leads).unwrap();
    let (away, leaving) = ((leader + 1) % 3, (leader + 2) % 3);
    let ids = [leader, away, leaving].map(|at| simulation.nodes[at].id);
    simulation.crash(away);
    // Until the leader has noticed.
    for _ in 0..TIMEOUT / 2 {
        simulation.moment().unwrap();
    }
    simulation.targets.get_mut(&GroupId::META).unwrap().voters = ids[..2].to_vec();
    for _ in 0..TIMEOUT / 2 {
        simulation.moment().unwrap();
        assert!(members(&simulation).voters.contains(&ids[2]));
    }
    until(&mut simulation, |simulation| {
        !members(simulation).voters.contains(&ids[2])
    });
}

/// Drops all messages.
struct Nowhere;

impl Transport for Nowhere {
    fn send(&mut self, _: GroupId, _: Message) {}
}

#[test]
fn who_is_given_the_lead_before_it_has_installed_its_snapshot_does_not_stand() {
    let mut replicas = Replicas::new(3, Arc::new(SimulatedDisk::new(false)));
    replicas
        .add(GROUPS[1], &InitialState::Uninitialized, 0)
        .unwrap();
    let message = |kind| {
        let mut message = Message::default();
        message.set_msg_type(kind);
        (message.from, message.to, message.term) = (1, 3, 2);
        message
    };
    let mut announced = message(MessageType::MsgSnapshot);
    let snapshot = announced.mut_snapshot().mut_metadata();
    (snapshot.index, snapshot.term) = (16, 2);
    snapshot.mut_conf_state().voters = vec![1, 2, 3];
    replicas.step(GROUPS[1], announced);
    // Both before the log is restarted behind the snapshot, and before the state machine has
    // installed it.
    replicas.step(GROUPS[1], message(MessageType::MsgTimeoutNow));
    let round = replicas.round(&mut Nowhere).unwrap();
    assert_eq!(round.restored, [(GROUPS[1], 16)]);
    replicas.step(GROUPS[1], message(MessageType::MsgTimeoutNow));
    (0..200).for_each(|_| replicas.tick());
    replicas.campaign(GROUPS[1]);
    replicas.round(&mut Nowhere).unwrap();
    assert_eq!(replicas.group(GROUPS[1]).unwrap().role().term, 2);
    replicas.applied(GROUPS[1], 16);
    replicas.step(GROUPS[1], message(MessageType::MsgTimeoutNow));
    replicas.round(&mut Nowhere).unwrap();
    assert_eq!(
        replicas.group(GROUPS[1]).unwrap().role().term,
        3,
        "it stands"
    );
}
