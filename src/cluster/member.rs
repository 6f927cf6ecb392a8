//! A node as a member of its cluster: its Raft groups, its connections, and questions to the others.

use std::{collections::BTreeMap, io, net::TcpListener, sync::Arc};

use bytes::Bytes;

use super::{
    NodeId,
    calls::{Calls, NoAnswer},
    driver::{Driver, Plan},
    group_log::LogDisk,
    handshake::Identity,
    links::{Arrival, Counts, Links},
    parcel::Parcel,
    timekeeper::{Clocks, Timekeeper},
};

/// Answers a question of another node by calling back once.
pub type Answerer = Box<dyn Fn(NodeId, Bytes, Reply) + Send + Sync>;
pub type Reply = Box<dyn FnOnce(Bytes) + Send>;

pub struct Member {
    pub node: NodeId,
    /// All nodes, this one too, with their addresses.
    pub members: BTreeMap<NodeId, String>,
    pub driver: Driver,
    links: Arc<Links>,
    calls: Arc<Calls>,
}

impl Member {
    /// Listens, dials, and begins to drive the groups. Must be called on an event loop, which carries the connections.
    pub fn start(
        identity: Identity,
        members: BTreeMap<NodeId, String>,
        listener: TcpListener,
        disk: Arc<dyn LogDisk>,
        clocks: Box<dyn Clocks>,
        answerer: Answerer,
    ) -> io::Result<Self> {
        let node = identity.node;
        let (driver, waiting) = Driver::new();
        let calls = Arc::new(Calls::default());
        let time = Arc::new(Timekeeper::new(clocks, members.len()));
        let mut peers = members.clone();
        peers.remove(&node);
        let links = Arc::new_cyclic(|links: &std::sync::Weak<Links>| {
            let links = links.clone();
            let (driver, calls) = (driver.clone(), Arc::clone(&calls));
            let time = Arc::clone(&time);
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
                            links.send(from, &Parcel::Answer(number, answer));
                        }
                    };
                    answerer(from, question, Box::new(reply));
                }
                Arrival::Parcel(Parcel::Alive) => {}
                Arrival::Gone => {
                    calls.lost(from);
                    driver.lost(from);
                }
            };
            Links::new(identity, peers, Box::new(inbox))
        });
        links.start(listener)?;
        let plan = Plan {
            node,
            voters: members.keys().copied().collect(),
            appliers: std::thread::available_parallelism().map_or(1, usize::from),
        };
        driver.start(waiting, plan, disk, Arc::clone(&links), time);
        Ok(Self {
            node,
            members,
            driver,
            links,
            calls,
        })
    }

    pub async fn ask(&self, node: NodeId, question: Bytes) -> Result<Bytes, NoAnswer> {
        self.calls.ask(&self.links, node, question).await
    }

    pub fn is_connected(&self, node: NodeId) -> bool {
        self.links.is_connected(node)
    }

    pub fn counts(&self) -> &Counts {
        self.links.counts()
    }
}
