//! How many messages a strong read waits for, one after another.

use raft::eraftpb::{Message, MessageType};

use super::{
    SOUND,
    network::Weather,
    world::{GROUPS, STORM, Simulation},
};
use crate::cluster::{GroupId, NodeId, raft::transport::Transport};

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
    let seeds = (0..).filter(|seed| {
        Simulation::new(*seed, SOUND).targets[&GROUPS[1]]
            .voters
            .len()
            == 3
    });
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
            // A read across the end of a unit of time needs one more round trip.
            let usual = waited[waited.len() / 2];
            assert_eq!(usual, ROUND_TRIP, "node {} of seed {seed}", at + 1);
        }
    }
}

/// Returns the moments that a strong read takes.
fn wait(simulation: &mut Simulation, at: usize) -> u64 {
    let began = simulation.now + 1;
    let request_id = simulation.ask_at(at, GROUPS[1]).expect("the node is up");
    while simulation.readers.waits(request_id) {
        simulation.moment().unwrap();
        assert!(simulation.now < began + STORM, "nobody answers");
    }
    simulation.now - began
}

/// Records messages, to be delivered by hand.
#[derive(Default)]
struct Recorded(Vec<Message>);

impl Transport for Recorded {
    fn send(&mut self, group: GroupId, message: Message) {
        if group == GROUPS[1] {
            self.0.push(message);
        }
    }
}

#[test]
fn the_word_of_who_asked_first_does_not_count_for_those_who_asked_later() {
    for other_waits in [false, true] {
        let mut simulation = Simulation::new(0, SOUND);
        simulation.splitting.from = u64::MAX;
        simulation.network.weather = STEADY;
        while !simulation.agree() {
            simulation.moment().unwrap();
        }
        let leader = simulation.settled_leader(GROUPS[1]).unwrap().id;
        let other = leader % 3 + 1;
        let mut replicas = |node: NodeId| {
            let node = &mut simulation.nodes[(node - 1) as usize];
            node.replicas.take().unwrap()
        };
        let (mut leads, mut follows) = (replicas(leader), replicas(other));
        let mut question = Recorded::default();
        follows.request_read_index(GROUPS[1], 1, 0);
        follows.round(&mut question).unwrap();
        let [asked] = question.0.as_slice() else {
            panic!("{:?}", question.0);
        };
        let mut said = Recorded::default();
        if other_waits {
            leads.request_read_index(GROUPS[1], 2, 0);
            leads.round(&mut said).unwrap();
        }
        leads.step(GROUPS[1], asked.clone());
        let round = leads.round(&mut said).unwrap();
        assert!(
            round.read_indexes.is_empty(),
            "nobody has confirmed it since"
        );
        let answers = said.0.iter();
        let answers = answers.filter(|one| one.get_msg_type() == MessageType::MsgReadIndexResp);
        assert_eq!(answers.count(), usize::from(!other_waits));
    }
}
