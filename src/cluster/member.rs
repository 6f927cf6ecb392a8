//! A node as a member of its cluster: its Raft groups, its connections, and questions to the others.

use std::{collections::BTreeMap, io, net::TcpListener, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{
    GroupId, NodeId,
    calls::{Calls, NoAnswer},
    driver::{Driver, Plan},
    group_log::{BEGINNING, Begin, LogDisk, Members},
    handshake::Identity,
    join::Door,
    links::{Arrival, Counts, Links},
    parcel::{Parcel, Question},
    snapshots::Snapshots,
    timekeeper::Timekeeper,
};
use crate::store::EngineError;

/// Answers a question of another node by calling back once.
pub type Answerer = Box<dyn Fn(NodeId, Bytes, Reply) + Send + Sync>;
pub type Reply = Box<dyn FnOnce(Bytes) + Send>;

/// Who a node is, and what it has.
pub struct Place {
    pub identity: Identity,
    /// The nodes that begin the cluster together, with their addresses; none where this one came later.
    pub founders: BTreeMap<NodeId, String>,
    /// All nodes, this one too, with their addresses, as far as they are known.
    pub members: BTreeMap<NodeId, String>,
    pub listener: TcpListener,
    pub disk: Arc<dyn LogDisk>,
    pub snapshots: Arc<Snapshots>,
    pub time: Arc<Timekeeper>,
}

/// Who answers other nodes.
pub struct Answers {
    pub requests: Answerer,
    pub orders: Answerer,
    pub door: Door,
}

/// How often the others are asked whether there is a cluster.
const BEGIN_POLL: Duration = Duration::from_millis(50);
/// Nodes that have left are connected for so long, to hear of it.
const FORGET_AFTER: Duration = Duration::from_secs(10);
const BEGUN: &[u8] = b"begun";
const NEW: &[u8] = b"new";

fn members_of(driver: &Driver) -> Bytes {
    let status = driver.status();
    let members = status.iter().map(|group| (group.group, &group.members));
    rmp_serde::to_vec(&members.collect::<Vec<_>>())
        .expect("a list of numbers has a MessagePack form")
        .into()
}

/// The newest members of a group that a majority of themselves knows of. A change that only the leader knows to be committed could be forgotten with its disk, and the
/// others would go on to wait for those who left.
fn known_to_most(told: &BTreeMap<NodeId, Members>) -> Option<Members> {
    let known = told.values().filter(|members| {
        let knows = |voter: &&NodeId| {
            let theirs = told.get(voter);
            theirs.is_some_and(|theirs| theirs.since >= members.since)
        };
        members.voters.iter().filter(knows).count() > members.voters.len() / 2
    });
    known.max_by_key(|members| members.since).cloned()
}

/// Whether anything was ever written to the catalog's log.
fn begun(log: &dyn LogDisk) -> Bytes {
    let answer = match log.load(GroupId::META) {
        Ok(None) => NEW,
        Ok(Some(kept)) if kept.last == BEGINNING => NEW,
        Ok(Some(kept)) if kept.last.index == 0 => NEW,
        Ok(Some(_)) => BEGUN,
        Err(_) => b"",
    };
    Bytes::from_static(answer)
}

pub struct Member {
    pub node: NodeId,
    /// The nodes that begin the cluster together, with their addresses; none where this one came later.
    founders: BTreeMap<NodeId, String>,
    /// All nodes, this one too, with their addresses.
    members: ArcSwap<BTreeMap<NodeId, String>>,
    pub driver: Driver,
    links: Arc<Links>,
    calls: Arc<Calls>,
}

impl Member {
    /// Listens, dials, and begins to drive the groups. Must be called on an event loop, which carries the connections.
    pub fn start(place: Place, answers: Answers) -> io::Result<Self> {
        let Place {
            identity,
            founders,
            members,
            listener,
            disk,
            snapshots,
            time,
        } = place;
        let Answers {
            requests,
            orders,
            door,
        } = answers;
        let node = identity.node;
        let (driver, waiting) = Driver::new();
        let calls = Arc::new(Calls::default());
        let links = Arc::new_cyclic(|links: &std::sync::Weak<Links>| {
            let links = links.clone();
            let (driver, calls) = (driver.clone(), Arc::clone(&calls));
            let time = Arc::clone(&time);
            let (offered, log) = (Arc::clone(&snapshots), Arc::clone(&disk));
            let inbox = move |from, arrival| match arrival {
                Arrival::Parcel(Parcel::Raft(times, letters)) => {
                    time.hear(from, times);
                    driver.receive(letters);
                }
                Arrival::Parcel(Parcel::Answer(number, answer)) => {
                    calls.answered(from, number, answer)
                }
                Arrival::Parcel(Parcel::Question(number, question)) => {
                    let links = links.clone();
                    let reply = move |answer| {
                        if let Some(links) = links.upgrade() {
                            links.send_together(from, &Parcel::Answer(number, answer));
                        }
                    };
                    match question {
                        Question::Request(request) => requests(from, request, Box::new(reply)),
                        Question::Order(order) => orders(from, order, Box::new(reply)),
                        Question::Members => reply(members_of(&driver)),
                        // Both wait for the disk.
                        Question::Snapshot(piece) => {
                            let snapshots = Arc::clone(&offered);
                            tokio::task::spawn_blocking(move || reply(snapshots.answer(&piece)));
                        }
                        Question::Begun => {
                            let log = Arc::clone(&log);
                            tokio::task::spawn_blocking(move || reply(begun(&*log)));
                        }
                    }
                }
                Arrival::Parcel(Parcel::Alive) => {}
                Arrival::Gone => {
                    calls.lost(from);
                    driver.lost(from);
                }
            };
            Links::new(identity, &members, Box::new(inbox), door)
        });
        links.start(listener)?;
        let plan = Plan {
            node,
            appliers: std::thread::available_parallelism().map_or(1, usize::from),
            snapshots,
            calls: Arc::clone(&calls),
        };
        driver.start(waiting, plan, disk, Arc::clone(&links), time);
        Ok(Self {
            node,
            founders,
            members: ArcSwap::from_pointee(members),
            driver,
            links,
            calls,
        })
    }

    /// All nodes, this one too, with their addresses.
    pub fn members(&self) -> Arc<BTreeMap<NodeId, String>> {
        self.members.load_full()
    }

    /// From now on these are the nodes. Those that are gone are forgotten a while later, so that they hear of it. Must be called on an event loop.
    pub fn set_members(self: &Arc<Self>, members: BTreeMap<NodeId, String>) {
        let before = self.members.load_full();
        if *before == members {
            return;
        }
        let mut all = BTreeMap::clone(&before);
        all.extend(members.clone());
        self.links.set_peers(&all);
        self.members.store(Arc::new(members));
        let member = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(FORGET_AFTER).await;
            member.links.set_peers(&member.members());
        });
    }

    pub async fn ask(&self, node: NodeId, question: Question) -> Result<Bytes, NoAnswer> {
        self.calls.ask(&self.links, node, question).await
    }

    /// Asks what the other node's answerer answers.
    pub async fn request(&self, node: NodeId, request: Bytes) -> Result<Bytes, NoAnswer> {
        self.ask(node, Question::Request(request)).await
    }

    /// How this node's replica of the catalog begins. A node that has nothing may be new like all the others, or may have lost all it had: only in the first case it
    /// may begin the cluster with them. So it waits until somebody knows a cluster, or until a majority knows none.
    pub async fn beginning(&self, disk: &dyn LogDisk) -> Result<Begin, EngineError> {
        let voters: Vec<NodeId> = self.founders.keys().copied().collect();
        if !voters.contains(&self.node) {
            return Ok(Begin::Blank);
        }
        if disk.load(GroupId::META)?.is_some() {
            return Ok(Begin::With(voters));
        }
        loop {
            let others = voters.iter().filter(|node| **node != self.node);
            let asked = others.map(|node| self.ask(*node, Question::Begun));
            let answers = futures_util::future::join_all(asked).await;
            let answers: Vec<Bytes> = answers.into_iter().flatten().collect();
            if answers.iter().any(|answer| answer.as_ref() == BEGUN) {
                return Ok(Begin::Blank);
            }
            let new = answers.iter().filter(|answer| answer.as_ref() == NEW);
            if 1 + new.count() > voters.len() / 2 {
                return Ok(Begin::With(voters));
            }
            tokio::time::sleep(BEGIN_POLL).await;
        }
    }

    /// Who the members of all groups are, as far as a majority of them knows it.
    pub async fn group_members(&self) -> BTreeMap<GroupId, Members> {
        let nodes: Vec<NodeId> = self.members().keys().copied().collect();
        let asked = nodes.iter().map(|&node| async move {
            match node == self.node {
                true => Ok(members_of(&self.driver)),
                false => self.ask(node, Question::Members).await,
            }
        });
        let answers = futures_util::future::join_all(asked).await;
        let mut told: BTreeMap<GroupId, BTreeMap<NodeId, Members>> = BTreeMap::new();
        for (node, answer) in nodes.into_iter().zip(answers) {
            let answer = answer.unwrap_or_default();
            let groups = rmp_serde::from_slice::<Vec<(GroupId, Members)>>(&answer);
            for (group, members) in groups.unwrap_or_default() {
                told.entry(group).or_default().insert(node, members);
            }
        }
        let settled = told
            .into_iter()
            .filter_map(|(group, told)| Some((group, known_to_most(&told)?)));
        settled.collect()
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        self.links.is_connected(node)
    }

    pub fn counts(&self) -> &Counts {
        self.links.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_count_when_a_majority_of_them_knows_of_the_change() {
        let members = |since, voters: &[NodeId]| Members {
            since,
            voters: voters.to_vec(),
            learners: Vec::new(),
        };
        let (old, new) = (members(5, &[1, 2, 3, 4]), members(9, &[1, 2, 3]));
        let told = |reports: &[(NodeId, &Members)]| {
            let reports = reports.iter();
            reports
                .map(|(node, members)| (*node, (*members).clone()))
                .collect()
        };
        let one = told(&[(1, &new), (2, &old), (3, &old), (4, &old)]);
        assert_eq!(known_to_most(&one), Some(old.clone()));
        let two = told(&[(1, &new), (2, &new), (3, &old), (4, &old)]);
        assert_eq!(known_to_most(&two), Some(new.clone()));
        assert_eq!(
            known_to_most(&told(&[(1, &new)])),
            None,
            "one is no majority"
        );
    }
}
