//! Drives the Raft groups of a node: one thread that owns them all and waits for the log's disk, and a few that apply what is committed.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use raft::eraftpb::Message;
use tokio::sync::oneshot;
use tracing::error;

use super::{
    GroupId, NodeId,
    group::{Committed, NotProposed, Role},
    group_log::LogDisk,
    lease::Lease,
    links::{Links, PARCEL_BYTES_MAX},
    parcel::{Letter, Parcel},
    reads::{Reader, Reads},
    replicas::{Post, Replicas},
    timekeeper::Timekeeper,
};
use crate::store::EngineError;

/// Time of the groups: a leader shows itself every sixth tick, and is missed after twenty.
pub const TICK: Duration = Duration::from_millis(50);
/// Ticks that are made up for at once when the disk took long; more are let go, so that a node that was stopped misses nobody.
const TICKS_AT_ONCE_MAX: u32 = 2;
/// A group that was just begun is given a leader by one node, which tries for so long, before chance decides.
const YOUNG: Duration = Duration::from_secs(2);
/// It stands again after so long.
const YOUNG_AGAIN: Duration = Duration::from_millis(200);
/// What is taken in before a round.
const INPUTS_PER_ROUND_MAX: usize = 4096;
/// Letters that wait to be taken in; above it they are dropped, and said again.
const LETTERS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Letters for one node are sent together up to this size.
const PARCEL_BYTES: usize = 1024 * 1024;
/// After so many applied entries the state machine is made durable and the log given free.
const RELEASE_ENTRIES: u64 = 4096;
/// How often the status is drawn up.
const STATUS_EVERY: Duration = Duration::from_millis(500);

/// What committed entries do.
pub trait StateMachine: Send + Sync {
    /// Applies entries in the order of the log; never called twice at a time. After a failure it is called no more.
    fn apply(&self, entries: Vec<Committed>) -> Result<(), EngineError>;
    /// Makes durable what was applied.
    fn sync(&self) -> Result<(), EngineError>;
    /// The node's place in the group has changed.
    fn role(&self, role: Role);
}

/// Hears the index of a proposal before it can be committed, or why there is none.
pub type OnProposed = Box<dyn FnOnce(Result<u64, NotProposed>) + Send>;

enum Input {
    Letters(Vec<Letter>, usize),
    Propose {
        group: GroupId,
        term: u64,
        data: Bytes,
        proposed: OnProposed,
    },
    Add {
        group: GroupId,
        machine: Arc<dyn StateMachine>,
        applied: u64,
    },
    Remove(GroupId),
    /// The connection to a node broke.
    Lost(NodeId),
    ReadIndex(GroupId, Reader),
    Applied(GroupId, u64),
    Durable(GroupId, u64),
    Stop,
}

/// How a group stands, as this node knows it.
#[derive(Clone, Debug)]
pub struct GroupStatus {
    pub group: GroupId,
    pub role: Role,
    pub commit: u64,
    /// How many entries each replica lacks; only the leader knows.
    pub lag: Vec<(NodeId, u64)>,
}

/// The way to the thread that owns the groups.
#[derive(Clone)]
pub struct Driver {
    inputs: Sender<Input>,
    letters_bytes: Arc<AtomicUsize>,
    status: Arc<ArcSwap<Vec<GroupStatus>>>,
    lease: Arc<Lease>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// What a driver is to be.
pub struct Plan {
    pub node: NodeId,
    /// All nodes, this one too; each has a replica of every group.
    pub voters: Vec<NodeId>,
    pub appliers: usize,
}

/// A driver whose thread has not begun: what arrives waits for it.
pub struct Waiting(Receiver<Input>);

impl Driver {
    pub fn new() -> (Self, Waiting) {
        let (inputs, waiting) = channel();
        let driver = Self {
            inputs,
            letters_bytes: Arc::default(),
            status: Arc::default(),
            lease: Arc::default(),
            thread: Arc::default(),
        };
        (driver, Waiting(waiting))
    }

    pub fn start(
        &self,
        waiting: Waiting,
        plan: Plan,
        disk: Arc<dyn LogDisk>,
        links: Arc<Links>,
        time: Arc<Timekeeper>,
    ) {
        let appliers = (0..plan.appliers.max(1)).map(|_| start_applier(self.inputs.clone()));
        let mut work = Work {
            inputs: waiting.0,
            letters_bytes: Arc::clone(&self.letters_bytes),
            status: Arc::clone(&self.status),
            appliers: appliers.collect(),
            machines: BTreeMap::new(),
            young: BTreeMap::new(),
            reads: Reads::default(),
            replicas: Replicas::new(plan.node, disk),
            outbox: Outbox {
                links,
                time,
                letters: BTreeMap::new(),
                unreachable: BTreeSet::new(),
            },
            plan,
        };
        let thread = std::thread::Builder::new()
            .name("raft".to_owned())
            .spawn(move || work.run());
        match thread {
            Ok(thread) => *self.lock() = Some(thread),
            Err(failure) => error!(%failure, "the thread of the Raft groups cannot be started"),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, input: Input) {
        // After the end of the thread nobody listens, and nothing is promised.
        let _ = self.inputs.send(input);
    }

    /// Letters from other nodes.
    pub fn receive(&self, letters: Vec<Letter>) {
        let bytes = letters.iter().map(Letter::bytes).sum();
        let waiting = self.letters_bytes.fetch_add(bytes, Ordering::Relaxed);
        if waiting + bytes > LETTERS_BYTES_MAX {
            self.letters_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return;
        }
        self.tell(Input::Letters(letters, bytes));
    }

    /// Takes part in a group whose state machine has applied the entries up to `applied`.
    pub fn add(&self, group: GroupId, machine: Arc<dyn StateMachine>, applied: u64) {
        self.tell(Input::Add {
            group,
            machine,
            applied,
        });
    }

    /// Leaves a group that is no more; its log goes.
    pub fn remove(&self, group: GroupId) {
        self.tell(Input::Remove(group));
    }

    /// Adds an entry to the log of a group, if this node leads it in this term.
    pub fn propose(&self, group: GroupId, term: u64, data: Bytes, proposed: OnProposed) {
        let input = Input::Propose {
            group,
            term,
            data,
            proposed,
        };
        if let Err(unheard) = self.inputs.send(input)
            && let Input::Propose { proposed, .. } = unheard.0
        {
            proposed(Err(NotProposed::NotLeader));
        }
    }

    /// This node's right to answer.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// The connection to a node broke; its groups are missed at once.
    pub fn lost(&self, node: NodeId) {
        self.tell(Input::Lost(node));
    }

    /// The last committed index of a group at some moment after this call, confirmed by a majority. What has applied it is as new as anything that anybody was told of
    /// before. It is waited for while there is no majority: for how long is the caller's decision.
    pub async fn read_index(&self, group: GroupId) -> Option<u64> {
        let (reader, index) = oneshot::channel();
        self.tell(Input::ReadIndex(group, reader));
        index.await.ok()
    }

    pub fn status(&self) -> Arc<Vec<GroupStatus>> {
        self.status.load_full()
    }

    /// Ends the thread. Every state machine hears that the node leads no more.
    pub fn stop(&self) {
        self.tell(Input::Stop);
        if let Some(thread) = self.lock().take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    plan: Plan,
    inputs: Receiver<Input>,
    letters_bytes: Arc<AtomicUsize>,
    status: Arc<ArcSwap<Vec<GroupStatus>>>,
    appliers: Vec<Sender<Job>>,
    machines: BTreeMap<GroupId, Arc<dyn StateMachine>>,
    /// Groups that this node is to lead: until when it tries, and when it tries again.
    young: BTreeMap<GroupId, (Instant, Instant)>,
    reads: Reads,
    replicas: Replicas,
    outbox: Outbox,
}

impl Work {
    fn run(&mut self) {
        let mut next_tick = Instant::now() + TICK;
        let mut next_status = Instant::now();
        loop {
            if !self.take_inputs(next_tick) {
                break;
            }
            let now = Instant::now();
            for _ in 0..TICKS_AT_ONCE_MAX {
                if now >= next_tick {
                    next_tick += TICK;
                    self.tick(now);
                }
            }
            next_tick = next_tick.max(now);
            if now >= next_status {
                next_status = now + STATUS_EVERY;
                // A node that is alone in its cluster sends nothing, and time goes on all the same.
                self.outbox.time.tell(self.plan.node);
                self.draw_up_status();
            }
            if self.replicas.is_busy()
                && let Err(failure) = self.round()
            {
                error!(%failure, "the Raft log takes no writes until the node is restarted");
                break;
            }
        }
        for machine in self.machines.values() {
            machine.role(Role::default());
        }
        self.status.store(Arc::default());
    }

    /// Waits until there is something to do. `false`: it is the end.
    fn take_inputs(&mut self, until: Instant) -> bool {
        let patience = if self.replicas.is_busy() {
            Duration::ZERO
        } else {
            until.saturating_duration_since(Instant::now())
        };
        let mut input = match self.inputs.recv_timeout(patience) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return false,
        };
        for _ in 0..INPUTS_PER_ROUND_MAX {
            match input.take() {
                None => break,
                Some(Input::Stop) => return false,
                Some(input) => self.take(input),
            }
            input = self.inputs.try_recv().ok();
        }
        // The last one that was received is never lost.
        match input {
            Some(Input::Stop) => return false,
            Some(input) => self.take(input),
            None => {}
        }
        true
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Letters(letters, bytes) => {
                self.letters_bytes.fetch_sub(bytes, Ordering::Relaxed);
                for (group, message) in letters.into_iter().filter_map(Letter::open) {
                    self.replicas.step(group, message);
                }
            }
            Input::Propose {
                group,
                term,
                data,
                proposed,
            } => proposed(self.replicas.propose(group, term, data)),
            Input::Add {
                group,
                machine,
                applied,
            } => self.add(group, machine, applied),
            Input::Remove(group) => {
                self.machines.remove(&group);
                self.young.remove(&group);
                self.reads.remove(group);
                self.replicas.remove(group);
            }
            Input::Lost(node) => self.replicas.lost(node),
            Input::ReadIndex(group, reader) => {
                if self.replicas.group(group).is_some()
                    && let Some(number) = self.reads.add(group, reader)
                {
                    self.replicas.ask_index(group, number);
                }
            }
            Input::Applied(group, index) => self.replicas.applied(group, index),
            Input::Durable(group, index) => self.replicas.release(group, index),
            // Whoever takes inputs has looked for the end.
            Input::Stop => {}
        }
    }

    fn add(&mut self, group: GroupId, machine: Arc<dyn StateMachine>, applied: u64) {
        if let Err(failure) = self.replicas.add(group, &self.plan.voters, applied) {
            error!(%group, %failure, "this node's replica cannot take part");
            return;
        }
        self.machines.insert(group, machine);
        let fresh = self
            .replicas
            .group(group)
            .is_some_and(|group| group.commit_index() == 0);
        if fresh && self.first_leader(group) == Some(self.plan.node) {
            let now = Instant::now();
            self.young.insert(group, (now + YOUNG, now + YOUNG_AGAIN));
            self.replicas.campaign(group);
        }
    }

    /// Leaders of new groups are spread over the nodes.
    fn first_leader(&self, group: GroupId) -> Option<NodeId> {
        let turn = group.container.wrapping_add(u64::from(group.range));
        let at = turn % self.plan.voters.len().max(1) as u64;
        self.plan.voters.get(at as usize).copied()
    }

    fn tick(&mut self, now: Instant) {
        self.replicas.tick();
        for (group, number) in self.reads.tick() {
            self.replicas.ask_index(group, number);
        }
        let replicas = &mut self.replicas;
        self.young.retain(|group, (until, again)| {
            let led = replicas
                .group(*group)
                .is_none_or(|group| group.role().leader.is_some());
            if !led && now >= *again {
                *again = now + YOUNG_AGAIN;
                replicas.campaign(*group);
            }
            !led && now < *until
        });
    }

    fn round(&mut self) -> Result<(), EngineError> {
        let round = self.replicas.round(&mut self.outbox)?;
        for node in std::mem::take(&mut self.outbox.unreachable) {
            self.replicas.unreachable_everywhere(node);
        }
        // Who takes over waits for entries of its term: it must know its term before they are applied.
        for (group, role) in round.roles {
            if let Some(machine) = self.machines.get(&group) {
                machine.role(role);
            }
        }
        for (group, read) in round.reads {
            if let Some(number) = self.reads.answered(group, read) {
                self.replicas.ask_index(group, number);
            }
        }
        for (group, entries) in round.committed {
            if let Some(machine) = self.machines.get(&group) {
                let turn = group.container.wrapping_add(u64::from(group.range)) as usize;
                let job = Job {
                    group,
                    machine: Arc::clone(machine),
                    entries,
                };
                if let Some(applier) = self.appliers.get(turn % self.appliers.len().max(1)) {
                    let _ = applier.send(job);
                }
            }
        }
        Ok(())
    }

    fn draw_up_status(&self) {
        let status = self.replicas.groups().map(|(id, group)| {
            let role = group.role();
            let last = group.last_index();
            let lag = group
                .matched()
                .map(|(node, matched)| (node, last.saturating_sub(matched)));
            GroupStatus {
                group: id,
                role,
                commit: group.commit_index(),
                lag: if role.leads {
                    lag.collect()
                } else {
                    Vec::new()
                },
            }
        });
        self.status.store(Arc::new(status.collect()));
    }
}

/// Letters on their way to other nodes.
struct Outbox {
    links: Arc<Links>,
    time: Arc<Timekeeper>,
    letters: BTreeMap<NodeId, (Vec<Letter>, usize)>,
    unreachable: BTreeSet<NodeId>,
}

impl Outbox {
    fn post(&mut self, to: NodeId, letters: Vec<Letter>) {
        if !letters.is_empty() {
            let parcel = Parcel::Raft(self.time.tell(to), letters);
            if !self.links.send(to, &parcel) {
                self.unreachable.insert(to);
            }
        }
    }
}

impl Post for Outbox {
    fn send(&mut self, group: GroupId, message: Message) {
        let to = message.to;
        let letter = Letter::new(group, message);
        let bytes = letter.bytes();
        let (letters, waiting) = self.letters.entry(to).or_default();
        let full = if *waiting > 0 && *waiting + bytes > PARCEL_BYTES.min(PARCEL_BYTES_MAX) {
            *waiting = 0;
            std::mem::take(letters)
        } else {
            Vec::new()
        };
        letters.push(letter);
        *waiting += bytes;
        self.post(to, full);
    }

    fn flush(&mut self) {
        for (to, (letters, _)) in std::mem::take(&mut self.letters) {
            self.post(to, letters);
        }
    }
}

/// Committed entries of a group.
struct Job {
    group: GroupId,
    machine: Arc<dyn StateMachine>,
    entries: Vec<Committed>,
}

fn start_applier(inputs: Sender<Input>) -> Sender<Job> {
    let (jobs, waiting) = channel::<Job>();
    let thread = std::thread::Builder::new().name("apply".to_owned());
    let started = thread.spawn(move || {
        let mut failed = HashSet::new();
        let mut unreleased: BTreeMap<GroupId, u64> = BTreeMap::new();
        for Job {
            group,
            machine,
            entries,
        } in waiting
        {
            let Some(last) = entries.last().map(|entry| entry.index) else {
                continue;
            };
            // What follows an entry that could not be applied cannot be applied either.
            if failed.contains(&group) {
                continue;
            }
            let count = unreleased.entry(group).or_default();
            *count += entries.len() as u64;
            let release = *count >= RELEASE_ENTRIES;
            let applied = machine.apply(entries).and_then(|()| {
                let _ = inputs.send(Input::Applied(group, last));
                if release {
                    *count = 0;
                    machine.sync()?;
                    let _ = inputs.send(Input::Durable(group, last));
                }
                Ok(())
            });
            if let Err(failure) = applied {
                error!(%group, %failure, "this node's replica stands still until the node is restarted");
                failed.insert(group);
            }
        }
    });
    if let Err(failure) = started {
        error!(%failure, "a thread that applies entries cannot be started");
    }
    jobs
}
