//! Drives the Raft groups of a node: one thread that owns them all and waits for the log's disk, and a few that apply what is committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
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
use raft::eraftpb::{Message, MessageType};
use tokio::sync::oneshot;
use tracing::{error, warn};

use super::{
    GroupId, NodeId,
    applier::{self, Job, Task},
    calls::Calls,
    group::{self, Aim, Committed, NotProposed, ReadAt, Role},
    group_log::{Announced, Begin, LogDisk, Members},
    lease::Lease,
    links::Links,
    outbox::Outbox,
    parcel::{Letter, Parcel},
    reads::{Reader, Reads},
    replicas::Replicas,
    snapshots::{Snapshots, Source},
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
/// Snapshots that are fetched at a time.
const FETCHES_MAX: usize = 4;
/// How long to wait after a snapshot could not be had.
const FETCH_PAUSE: Duration = Duration::from_millis(500);
/// Ticks between two looks at who the members of the groups are, and at copies that nobody fetches any more.
const PURSUE_TICKS: u64 = 2;
/// Ticks for which it is waited to hear what became of proposals, after the node has ceased to lead.
const FATE_TICKS: u64 = 60;
/// How often the status is drawn up.
const STATUS_EVERY: Duration = Duration::from_millis(500);

/// What committed entries do.
pub trait StateMachine: Send + Sync {
    /// Applies entries in the order of the log; never called twice at a time. After a failure it is called no more.
    fn apply(&self, entries: Vec<Committed>) -> Result<(), EngineError>;
    /// The time by which it is judged here what is expired; never goes back.
    fn now(&self) -> i64;
    /// Makes durable what was applied.
    fn sync(&self) -> Result<(), EngineError>;
    /// The node's place in the group has changed. What it proposed while it led may still be applied.
    fn role(&self, role: Role);
    /// What was proposed in other terms than one that the node leads in now is not known to be kept or lost, and nobody waits any longer.
    fn give_up(&self);
    /// This node's replica takes no part in the group any more, for the reason given, until the node
    /// is restarted.
    fn halted(&self, why: &str);
    /// Puts a copy of all that was applied, as files, into a folder that is not there yet.
    fn copy_to(&self, folder: &Path) -> Result<(), EngineError>;
    /// Goes on from such a copy, which has the entries up to an index; what was applied before is gone. The files are moved or removed.
    fn install(&self, files: &Path, index: u64) -> Result<(), EngineError>;
}

/// Hears the index of a proposal before it can be committed, or why there is none.
pub type OnProposed = Box<dyn FnOnce(Result<u64, NotProposed>) + Send>;

pub(super) enum Input {
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
        begin: Begin,
        applied: u64,
    },
    Remove(GroupId),
    /// The connection to a node broke.
    Lost(NodeId),
    ReadIndex(GroupId, Reader),
    Aims(BTreeMap<GroupId, Aim>),
    /// A copy as of an index may be fetched.
    Copied(GroupId, u64, u64),
    /// A snapshot that was announced is there, or could not be had.
    Fetched(GroupId, Box<Message>, bool),
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
    pub members: Members,
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
    pub appliers: usize,
    pub snapshots: Arc<Snapshots>,
    pub calls: Arc<Calls>,
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
        let appliers = (0..plan.appliers.max(1))
            .map(|_| applier::start(self.inputs.clone(), Arc::clone(&plan.snapshots)));
        let mut work = Work {
            inputs: waiting.0,
            letters_bytes: Arc::clone(&self.letters_bytes),
            status: Arc::clone(&self.status),
            appliers: appliers.collect(),
            machines: BTreeMap::new(),
            young: BTreeMap::new(),
            reads: Reads::default(),
            aims: BTreeMap::new(),
            ticks: 0,
            fates: BTreeMap::new(),
            copies: 0,
            copying: BTreeSet::new(),
            fetching: BTreeMap::new(),
            fetched: BTreeSet::new(),
            answers: self.inputs.clone(),
            replicas: Replicas::new(plan.node, disk),
            outbox: Outbox::new(links, time),
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
    pub fn add(&self, group: GroupId, machine: Arc<dyn StateMachine>, begin: Begin, applied: u64) {
        self.tell(Input::Add {
            group,
            machine,
            begin,
            applied,
        });
    }

    /// Who is to have replicas of the groups; a group that is not named stays as it is.
    pub fn aim(&self, aims: BTreeMap<GroupId, Aim>) {
        self.tell(Input::Aims(aims));
    }

    /// Leaves a group that is no more, or has no replica here any more; its log goes.
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
    pub async fn read_index(&self, group: GroupId) -> Option<ReadAt> {
        let (reader, answer) = oneshot::channel();
        self.tell(Input::ReadIndex(group, reader));
        answer.await.ok()
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
    aims: BTreeMap<GroupId, Aim>,
    ticks: u64,
    /// Groups whose leader has changed, and the tick at which it is waited no longer for what became of proposals.
    fates: BTreeMap<GroupId, u64>,
    /// Counts the copies that were offered.
    copies: u64,
    /// Groups of which a copy is being made.
    copying: BTreeSet<GroupId>,
    /// Groups of which a snapshot is being fetched: from whom, and which one.
    fetching: BTreeMap<GroupId, (NodeId, u64)>,
    /// Groups of which one was fetched, before it is known whether it is of use.
    fetched: BTreeSet<GroupId>,
    answers: Sender<Input>,
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
                self.tell_time();
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
            machine.give_up();
        }
        while let Ok(input) = self.inputs.try_recv() {
            if let Input::Propose { proposed, .. } = input {
                proposed(Err(NotProposed::NotLeader));
            }
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
                    self.receive(group, message);
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
                begin,
                applied,
            } => self.add(group, machine, &begin, applied),
            Input::Remove(group) => {
                self.hand(group, Task::Forget);
                if let Some(machine) = self.machines.remove(&group) {
                    // Also for what was proposed since it was decided to leave.
                    machine.role(Role::default());
                    machine.give_up();
                }
                self.young.remove(&group);
                self.reads.remove(group);
                self.replicas.remove(group);
                self.outbox.time.set_groups(self.replicas.voters());
                self.plan.snapshots.discard(group);
            }
            Input::Aims(aims) => self.aims = aims,
            Input::Copied(group, index, id) => {
                self.copying.remove(&group);
                if id > 0 {
                    self.replicas.set_offer(group, index, id);
                }
            }
            Input::Fetched(group, message, there) => {
                self.fetching.remove(&group);
                if there {
                    self.fetched.insert(group);
                    self.replicas.step(group, *message);
                } else {
                    self.replicas.decline(group, &message);
                }
            }
            Input::Lost(node) => self.replicas.lost(node),
            Input::ReadIndex(group, reader) => {
                if self.replicas.group(group).is_some()
                    && let Some(number) = self.reads.add(group, reader)
                {
                    self.ask_index(group, number);
                }
            }
            Input::Applied(group, index) => self.replicas.applied(group, index),
            Input::Durable(group, index) => self.replicas.release(group, index),
            // Whoever takes inputs has looked for the end.
            Input::Stop => {}
        }
    }

    fn add(&mut self, group: GroupId, machine: Arc<dyn StateMachine>, begin: &Begin, applied: u64) {
        if let Err(failure) = self.replicas.add(group, begin, applied) {
            error!(%group, %failure, "this node's replica cannot take part");
            machine.halted(&format!("this node's replica cannot take part: {failure}"));
            return;
        }
        self.machines.insert(group, machine);
        self.outbox.time.set_groups(self.replicas.voters());
        let opened = self.replicas.group(group);
        let first = opened.filter(|group| group.is_fresh()).and_then(|opened| {
            let voters = &opened.members().voters;
            let wanted = self.aims.get(&group).and_then(|aim| aim.leader);
            let wanted = wanted.filter(|leader| voters.contains(leader));
            wanted.or_else(|| first_leader(group, voters))
        });
        if first == Some(self.plan.node) {
            let now = Instant::now();
            self.young.insert(group, (now + YOUNG, now + YOUNG_AGAIN));
            self.replicas.campaign(group);
        }
    }

    /// The time of a group, as this node judges by it.
    fn time(&self, group: GroupId) -> i64 {
        let machine = self.machines.get(&group);
        machine.map_or(i64::MIN, |machine| machine.now())
    }

    fn ask_index(&mut self, group: GroupId, number: u64) {
        let time = self.time(group);
        self.replicas.ask_index(group, number, time);
    }

    /// A snapshot is fetched before its group hears of it.
    fn receive(&mut self, group: GroupId, mut message: Message) {
        group::stamp(&mut message, || self.time(group));
        let announced = message.get_msg_type() == MessageType::MsgSnapshot;
        let known = self.replicas.group(group);
        if !announced || known.is_none_or(|group| !group.lacks(&message)) {
            return self.replicas.step(group, message);
        }
        let snapshot = message.get_snapshot();
        let index = snapshot.get_metadata().index;
        let Ok(Announced { id, .. }) = rmp_serde::from_slice(&snapshot.data) else {
            return;
        };
        let under_way = self.fetching.get(&group);
        if under_way == Some(&(message.from, id)) {
            return;
        }
        // Who offers another copy meanwhile, a new leader most likely, is to ask again.
        let busy = under_way.is_some() || self.fetched.contains(&group);
        if busy || self.fetching.len() >= FETCHES_MAX {
            return self.replicas.decline(group, &message);
        }
        let source = Source {
            node: message.from,
            links: Arc::clone(&self.outbox.links),
            calls: Arc::clone(&self.plan.calls),
        };
        let snapshots = Arc::clone(&self.plan.snapshots);
        let (answers, from) = (self.answers.clone(), message.from);
        let message = Box::new(message);
        let thread = std::thread::Builder::new().name("fetch".to_owned());
        let started = thread.spawn(move || {
            let fetched = snapshots.fetch(&source, group, id, index);
            if let Err(failure) = &fetched {
                warn!(%group, node = source.node, %failure, "a snapshot could not be fetched");
                snapshots.discard(group);
                std::thread::sleep(FETCH_PAUSE);
            }
            let _ = answers.send(Input::Fetched(group, message, fetched.is_ok()));
        });
        match started {
            Ok(_) => {
                self.fetching.insert(group, (from, id));
            }
            Err(failure) => error!(%failure, "a thread that fetches cannot be started"),
        }
    }

    fn tick(&mut self, now: Instant) {
        self.replicas.tick();
        for (group, number) in self.reads.tick() {
            self.ask_index(group, number);
        }
        self.ticks += 1;
        let (ticks, machines) = (self.ticks, &self.machines);
        self.fates.retain(|group, until| {
            let waits = *until > ticks;
            if let Some(machine) = machines.get(group).filter(|_| !waits) {
                machine.give_up();
            }
            waits
        });
        if self.ticks.is_multiple_of(PURSUE_TICKS) {
            for (group, aim) in &self.aims {
                self.replicas.pursue(*group, aim);
            }
            for (group, id) in self.plan.snapshots.take_idle() {
                let offered = self.replicas.group(group).and_then(|group| group.offer());
                if offered == Some(id) {
                    self.replicas.withdraw_offer(group);
                }
            }
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
        if round.members_changed {
            self.outbox.time.set_groups(self.replicas.voters());
        }
        // Who takes over waits for entries of its term: it must know its term before they are applied.
        for (group, role) in round.roles {
            if let Some(machine) = self.machines.get(&group) {
                machine.role(role);
                if !role.leads {
                    self.fates.entry(group).or_insert(self.ticks + FATE_TICKS);
                }
            }
        }
        for (group, read) in round.reads {
            if let Some(number) = self.reads.answered(group, read) {
                self.ask_index(group, number);
            }
        }
        for (group, index) in round.restored {
            self.fetched.remove(&group);
            self.hand(group, Task::Install(index));
        }
        // What was fetched and is of no use goes.
        for group in std::mem::take(&mut self.fetched) {
            self.plan.snapshots.discard(group);
        }
        for (group, entries) in round.committed {
            self.hand(group, Task::Apply(entries));
        }
        for group in round.wanted {
            if self.copying.insert(group) {
                self.copies += 1;
                self.hand(group, Task::Copy(self.copies));
            }
        }
        Ok(())
    }

    /// Gives a task to the thread that works for the group's state machine.
    fn hand(&self, group: GroupId, task: Task) {
        let Some(machine) = self.machines.get(&group) else {
            return;
        };
        let turn = group.container.wrapping_add(u64::from(group.range)) as usize;
        let job = Job {
            group,
            machine: Arc::clone(machine),
            task,
        };
        if let Some(applier) = self.appliers.get(turn % self.appliers.len().max(1)) {
            let _ = applier.send(job);
        }
    }

    /// Tells everybody what this node knows of the time: nodes that follow the same leader say nothing else to each other. A node that is alone in its cluster tells
    /// itself, so that time goes on all the same.
    fn tell_time(&self) {
        let Outbox { links, time, .. } = &self.outbox;
        time.tell(self.plan.node);
        for node in links.connected() {
            links.send(node, &Parcel::Raft(time.tell(node), Vec::new()));
        }
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
                members: group.members().clone(),
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

/// Leaders of new groups are spread over the nodes.
fn first_leader(group: GroupId, voters: &[NodeId]) -> Option<NodeId> {
    let turn = group.container.wrapping_add(u64::from(group.range));
    let at = turn % voters.len().max(1) as u64;
    voters.get(at as usize).copied()
}
