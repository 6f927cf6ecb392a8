//! A shard on a bench: the actor's code runs on the test's thread, groups are committed when the test says so, the clock is
//! moved by hand.

use std::{
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    sync::{Arc, Mutex},
};

use actix::{Context, Handler};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::shard::view::Page;
use crate::{
    clock::Clock,
    model::{
        epk::{Epk, EpkRange},
        error::Result,
        indexing_policy::IndexingPolicy,
        item::EtagCondition,
        patch::Patch,
        path::PropertyPath,
        rid::{ContainerRid, DatabaseRid},
        ttl::DefaultTtl,
    },
    shard::{
        actor::{ChangeDefaultTtl, ExitNotifier, Shard, check::BeginCheck, index::ChangeIndex},
        command::Command,
        commit::{self, CommitLog, Group, OnCommitted, Reply, write_queue::Perform},
        commit_error::{CommitError, CommitOutcome},
        decide::{conditions, guard::Guard},
        facts::ShardFacts,
        feed,
        state::ShardState,
        transaction::{self, Action, Done, Operation},
        view::ShardView,
    },
    store::{
        Batch, Engine, EngineError, EngineOptions, SharedResources, document::Stored,
        engine::Durability, keys, reserve::Reserve,
    },
};

/// The second at which every test begins.
pub const START: i64 = 1_790_000_000;

pub fn after(seconds: u32) -> DefaultTtl {
    DefaultTtl::After(NonZeroU32::new(seconds).expect("at least a second"))
}

/// A folder in memory where there is one: these tests are not about the disk.
pub fn temporary_folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

pub fn small_resources() -> SharedResources {
    SharedResources::new(EngineOptions {
        block_cache_mb: 8,
        write_buffer_mb: 8,
        wal_mb_max: 8,
    })
}

/// The partition key of a test, a small number.
pub fn epk(key: u8) -> Epk {
    assert!(key < 0x40, "hashes of version 2 begin with two zero bits");
    Epk::from_bytes(&[key; 16])
}

pub fn facts(range_id: u32, unique_paths: &[&str]) -> ShardFacts {
    let path = |text: &str| PropertyPath::parse(text).expect("a path");
    ShardFacts {
        container: ContainerRid {
            database: DatabaseRid(1),
            ordinal: 1,
        },
        range_id,
        range: EpkRange::full(),
        parents: Vec::new(),
        partition_key_paths: vec![path("/pk")],
        unique_keys: unique_paths.iter().map(|text| vec![path(text)]).collect(),
    }
}

fn draft(body: &Value, facts: &ShardFacts) -> transaction::Draft {
    transaction::draft(
        body.as_object().expect("an object"),
        &facts.unique_keys,
        None,
    )
    .expect("a legal item")
}

fn operation(id: &str, action: Action) -> Operation {
    Operation {
        id: id.to_owned(),
        action,
        if_match: None,
        if_none_match: None,
    }
}

/// What a test wants done to an item.
#[derive(Clone, Debug)]
pub enum Want {
    Create(Value),
    Upsert(Value),
    Replace(Value),
    Patch(String, Value),
    /// A patch on a condition.
    PatchIf(String, Value, String),
    Delete(String),
    Read(String),
    /// A replace on the condition that the etag is this one.
    ReplaceIf(Value, String),
}

impl Want {
    pub fn operation(&self, facts: &ShardFacts) -> Operation {
        let id = |body: &Value| body["id"].as_str().expect("an id").to_owned();
        match self {
            Self::Create(body) => operation(&id(body), Action::Create(draft(body, facts))),
            Self::Upsert(body) => operation(&id(body), Action::Upsert(draft(body, facts))),
            Self::Replace(body) => operation(&id(body), Action::Replace(draft(body, facts))),
            Self::Patch(id, operations) => {
                let patch = Patch::from_value(operations.clone()).expect("a legal patch");
                operation(id, Action::Patch { patch, guard: None })
            }
            Self::PatchIf(id, operations, condition) => {
                let patch = Patch::from_value(operations.clone()).expect("a legal patch");
                let guard = Guard::parse(condition).expect("a legal condition");
                let guard = Some(Box::new(guard));
                operation(id, Action::Patch { patch, guard })
            }
            Self::Delete(id) => operation(id, Action::Delete),
            Self::Read(id) => operation(id, Action::Read),
            Self::ReplaceIf(body, etag) => Operation {
                if_match: Some(EtagCondition::parse(etag)),
                ..Self::Replace(body.clone()).operation(facts)
            },
        }
    }
}

/// The log of the bench: keeps the group until the test lets it go.
struct Held(Arc<Mutex<VecDeque<Group>>>);

impl CommitLog for Held {
    fn submit(&self, group: Group, _: OnCommitted) {
        self.0.lock().expect("no test panicked").push_back(group);
    }
}

/// The answer to a request, once its group is committed.
pub struct Answer(oneshot::Receiver<Result<Reply>>);

impl Answer {
    /// `None` while it is not there.
    pub fn get(&mut self) -> Option<Result<Reply>> {
        match self.0.try_recv() {
            Ok(reply) => Some(reply),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => panic!("a request was dropped without an answer"),
        }
    }

    pub fn now(&mut self) -> Result<Reply> {
        self.get().expect("the answer is there")
    }
}

/// A group that is written, before the actor knows.
pub struct Written {
    number: u64,
    outcome: CommitOutcome,
}

pub struct Bench {
    /// The commands of every committed group, as they would go to another node.
    pub journal: Vec<Vec<u8>>,
    pub clock: Clock,
    pub view: Arc<ShardView>,
    pub shard: Shard,
    facts: ShardFacts,
    context: Context<Shard>,
    under_way: Arc<Mutex<VecDeque<Group>>>,
    epoch: u64,
    /// Timers of the actor need one; nothing runs on it.
    runtime: tokio::runtime::Runtime,
    shared: SharedResources,
    folder: Option<TempDir>,
}

/// What a page in key order holds.
pub struct Listed {
    pub items: Vec<Stored<Bytes>>,
    pub resume: Option<Vec<u8>>,
}

impl Bench {
    pub fn new(default: DefaultTtl) -> Self {
        Self::with_facts(default, facts(0, &[]))
    }

    /// With disk space set aside beside the engine's files.
    pub fn with_reserve(default: DefaultTtl) -> Self {
        let folder = temporary_folder();
        let reserve = Reserve::open(folder.path(), 64 * 1024);
        let shared = small_resources().with_reserve(reserve);
        let clock = Clock::manual(START);
        Self::open(default, facts(0, &[]), None, clock, shared, folder)
    }

    pub fn with_unique_keys(default: DefaultTtl, paths: &[&str]) -> Self {
        Self::with_facts(default, facts(0, paths))
    }

    fn with_facts(default: DefaultTtl, facts: ShardFacts) -> Self {
        let folder = temporary_folder();
        let clock = Clock::manual(START);
        Self::open(default, facts, None, clock, small_resources(), folder)
    }

    /// A shard with an index.
    pub fn with_index(default: DefaultTtl, policy: &IndexingPolicy) -> Self {
        let folder = temporary_folder();
        let clock = Clock::manual(START);
        let facts = facts(0, &[]);
        Self::open(
            default,
            facts,
            Some(policy),
            clock,
            small_resources(),
            folder,
        )
    }

    /// A part of a shard that was cut, in the folder that was made for it.
    pub fn of_part(facts: ShardFacts, clock: Clock, folder: TempDir) -> Self {
        Self::open(
            DefaultTtl::Off,
            facts,
            None,
            clock,
            small_resources(),
            folder,
        )
    }

    fn open(
        default: DefaultTtl,
        facts: ShardFacts,
        policy: Option<&IndexingPolicy>,
        clock: Clock,
        shared: SharedResources,
        folder: TempDir,
    ) -> Self {
        let engine = Engine::open(folder.path(), &shared).expect("the engine opens");
        let state = ShardState::load(&engine)
            .expect("the state is readable")
            .unwrap_or_else(|| {
                let state = ShardState::new(facts.first_ordinal(), default);
                let Some(policy) = policy else { return state };
                let mut batch = Batch::default();
                let state = state.with_index(policy, &mut batch);
                engine
                    .write(batch, Durability::Buffered)
                    .expect("the engine takes it");
                state
            });
        let view = Arc::new(ShardView::new(
            facts.clone(),
            Arc::new(engine),
            clock.clone(),
            state,
        ));
        let mut shard =
            Shard::open(Arc::clone(&view), ExitNotifier(None)).expect("the shard opens");
        let epoch = view.applied.lock().expect("no test panicked").epoch;
        let under_way = Arc::default();
        shard.log = Box::new(Held(Arc::clone(&under_way)));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        Self {
            journal: Vec::new(),
            clock,
            view,
            shard,
            facts,
            context: Context::new(),
            under_way,
            epoch,
            runtime,
            shared,
            folder: Some(folder),
        }
    }

    /// A page in key order, and the key to go on from.
    pub fn page(
        &self,
        range: &EpkRange,
        from: Option<&[u8]>,
        skip: impl Fn(&[u8]) -> bool,
        items_max: usize,
        bytes_max: usize,
    ) -> Result<Listed> {
        let mut page = Page::new(items_max, bytes_max);
        let resume = self.view.fill(&mut page, range, from, skip)?;
        let items = page.items.into_iter().map(|item| item.stored).collect();
        Ok(Listed { items, resume })
    }

    /// Opens the files again, as after a crash: what was not committed is lost.
    pub fn reopen(self) -> Self {
        let Self {
            journal,
            clock,
            view,
            shard,
            facts,
            context,
            under_way,
            shared,
            mut folder,
            ..
        } = self;
        let default = view.state().rules.default;
        drop((view, shard, context, under_way));
        let folder = folder.take().expect("a bench has a folder");
        Self {
            journal,
            ..Self::open(default, facts, None, clock, shared, folder)
        }
    }

    pub fn engine(&self) -> &Engine {
        &self.view.engine
    }

    pub fn wait(&self, seconds: i64) {
        self.clock.set(self.clock.now() + seconds);
    }

    /// Hands a request to the actor and commits nothing.
    pub fn send(&mut self, key: u8, wants: &[Want], atomic: bool) -> Answer {
        let operations = wants.iter().map(|want| want.operation(&self.facts));
        let operations = operations.collect();
        self.send_operations(key, operations, atomic, None)
    }

    /// The operations, with conditions that are judged against what is committed.
    pub fn judged(&self, key: u8, wants: &[Want]) -> Vec<Operation> {
        let operations = wants.iter().map(|want| want.operation(&self.facts));
        let mut operations: Vec<_> = operations.collect();
        let place = epk(key);
        let read = |id: &str| self.view.read(&place, id, None);
        conditions::evaluate(&mut operations, self.view.clock.now(), read);
        operations
    }

    /// Hands operations to the actor, which may give them back, and commits nothing.
    pub fn send_operations(
        &mut self,
        key: u8,
        operations: Vec<Operation>,
        atomic: bool,
        stale: Option<oneshot::Sender<Vec<Operation>>>,
    ) -> Answer {
        let (reply, answer) = oneshot::channel();
        let request = Perform {
            place: epk(key),
            operations,
            atomic,
            reply,
            stale,
            answer: None,
        };
        self.view.write_queue.push(request);
        self.shard.take_requests(&mut self.context);
        Answer(answer)
    }

    pub fn send_default(&mut self, default: DefaultTtl) -> Answer {
        let at = self.clock.now();
        self.send_default_at(default, at)
    }

    pub fn send_default_at(&mut self, default: DefaultTtl, at: i64) -> Answer {
        let (reply, answer) = oneshot::channel();
        self.shard
            .handle(ChangeDefaultTtl { default, at, reply }, &mut self.context);
        Answer(answer)
    }

    /// Commits an entry that asks all replicas for a digest.
    pub fn begin_check(&mut self, number: u64) {
        let (reply, _) = oneshot::channel();
        self.shard
            .handle(BeginCheck { number, reply }, &mut self.context);
        assert!(self.commit());
    }

    /// Makes changes of the default that have waited for a trusted time.
    pub fn change_held_defaults(&mut self) {
        self.shard.change_held_defaults(&mut self.context);
    }

    /// Commits the group under way; `false` when there is none.
    pub fn commit(&mut self) -> bool {
        let written = self.write();
        if let Some(written) = written {
            self.tell(written);
            return true;
        }
        false
    }

    /// Writes the group under way; the actor has not heard of it yet.
    pub fn write(&mut self) -> Option<Written> {
        let group = self
            .under_way
            .lock()
            .expect("no test panicked")
            .pop_front()?;
        let number = group.number;
        let commands =
            rmp_serde::to_vec(&group.commands).expect("commands have a MessagePack form");
        let bound: usize = group.commands.iter().map(Command::entry_bytes).sum();
        assert!(
            commands.len() <= bound + 64,
            "a log entry is longer than said"
        );
        let outcome = commit::commit(&self.view, self.epoch, group);
        if outcome.is_ok() {
            self.journal.push(commands);
        }
        Some(Written { number, outcome })
    }

    /// The actor hears that a group is written.
    pub fn tell(&mut self, Written { number, outcome }: Written) {
        let handle = self.runtime.handle().clone();
        let _inside = handle.enter();
        self.shard.committed(number, outcome, &mut self.context);
        // No timer runs here: nobody is waited for.
        self.shard.stop_gathering(&mut self.context);
    }

    /// Whether a group is under way.
    pub fn is_committing(&self) -> bool {
        !self.under_way.lock().expect("no test panicked").is_empty()
    }

    /// The group in flight fails because the disk is full.
    pub fn fail_commit(&mut self) {
        self.fail_commit_with(EngineError::Full("a test says so".into()).into());
    }

    /// The group in flight fails.
    pub fn fail_commit_with(&mut self, failure: CommitError) {
        let group = self
            .under_way
            .lock()
            .expect("no test panicked")
            .pop_front()
            .expect("a group is under way");
        for waiting in group.waiting {
            waiting.fail(failure.clone().into());
        }
        self.shard
            .committed(group.number, Err(failure), &mut self.context);
        self.shard.stop_gathering(&mut self.context);
    }

    /// Commits until nothing is left to commit.
    pub fn settle(&mut self) {
        while self.commit() {}
    }

    /// One look of the purger at the lanes; what it finds is staged, not committed.
    pub fn stage_purge(&mut self) {
        let handle = self.runtime.handle().clone();
        let _inside = handle.enter();
        self.shard.purge(&mut self.context);
    }

    /// Purges until nothing is due; the number of slices.
    pub fn purge(&mut self) -> usize {
        for slices in 1.. {
            self.stage_purge();
            self.settle();
            if !self.shard.purger.more {
                return slices;
            }
        }
        unreachable!("slices end")
    }

    /// Begins a new index.
    pub fn send_policy(&mut self, policy: &IndexingPolicy, rebuild: bool) -> Answer {
        let (reply, answer) = oneshot::channel();
        let request = ChangeIndex {
            policy: policy.clone(),
            rebuild,
            reply,
        };
        let handle = self.runtime.handle().clone();
        let _inside = handle.enter();
        self.shard.handle(request, &mut self.context);
        Answer(answer)
    }

    /// One step of the work on the index while users pause; `false` when there is nothing to do.
    pub fn index_step(&mut self) -> bool {
        self.index_step_while(true)
    }

    /// The same while they may be at work.
    pub fn index_step_while(&mut self, idle: bool) -> bool {
        let handle = self.runtime.handle().clone();
        {
            let _inside = handle.enter();
            self.shard.indexer.wake(idle);
            self.shard.look_after_index(&mut self.context);
        }
        self.commit()
    }

    /// One slice of clearing after a split; `false` when there is nothing to clear.
    pub fn clear(&mut self) -> bool {
        let handle = self.runtime.handle().clone();
        let _inside = handle.enter();
        self.shard.cleaner.wake();
        self.shard.clean_up(&mut self.context);
        self.commit()
    }

    /// Creates an item of a partition key that a test made itself.
    pub fn create_at(&mut self, place: Epk, body: Value) {
        let (reply, answer) = oneshot::channel();
        let request = Perform {
            place,
            operations: vec![Want::Create(body).operation(&self.facts)],
            atomic: true,
            reply,
            stale: None,
            answer: None,
        };
        self.view.write_queue.push(request);
        self.shard.take_requests(&mut self.context);
        self.settle();
        let created = Answer(answer).now().expect("the group was committed");
        created.results.into_iter().for_each(|one| {
            one.expect("created");
        });
    }

    pub fn batch(&mut self, key: u8, wants: &[Want]) -> Vec<Result<Done>> {
        let mut answer = self.send(key, wants, true);
        self.settle();
        answer.now().expect("the group was committed").results
    }

    pub fn run_in(&mut self, key: u8, want: Want) -> Result<Done> {
        let mut results = self.batch(key, &[want]);
        assert_eq!(results.len(), 1);
        results.remove(0)
    }

    pub fn run(&mut self, want: Want) -> Result<Done> {
        self.run_in(1, want)
    }

    /// The status of an operation, whether it was carried out or refused.
    pub fn status(&mut self, want: Want) -> u16 {
        self.run(want)
            .map_or_else(|error| error.status(), |done| done.status)
    }

    pub fn change_default(&mut self, default: DefaultTtl) {
        let mut answer = self.send_default(default);
        self.settle();
        answer.now().expect("the default is changed");
    }

    /// What a reader gets who does not pass through the actor.
    pub fn read_in(&self, key: u8, id: &str) -> Option<Value> {
        match self.view.read(&epk(key), id, None) {
            Ok(done) => Some(body(&done)),
            Err(error) => {
                assert_eq!(error.status(), 404, "{error}");
                None
            }
        }
    }

    pub fn read(&self, id: &str) -> Option<Value> {
        self.read_in(1, id)
    }

    /// Ids of all live items in key order, read a page at a time.
    pub fn listed(&self, page_items_max: usize) -> Vec<String> {
        let mut ids = Vec::new();
        let mut from = None;
        loop {
            let page = self
                .page(
                    &EpkRange::full(),
                    from.as_deref(),
                    |_| false,
                    page_items_max,
                    usize::MAX,
                )
                .expect("a page");
            assert!(page.items.len() <= page_items_max);
            ids.extend(page.items.iter().map(id_of));
            from = page.resume;
            if from.is_none() {
                return ids;
            }
        }
    }

    /// Ids of the change feed from the beginning, read a page at a time.
    pub fn feed(&self, page_items_max: usize) -> Vec<String> {
        let mut ids = Vec::new();
        let mut start = feed::Start::After(0);
        loop {
            let page = feed::page(
                &self.view,
                &EpkRange::full(),
                start,
                page_items_max,
                usize::MAX,
            )
            .expect("a page");
            ids.extend(page.items.iter().map(id_of));
            start = feed::Start::After(page.after);
            if !page.more {
                return ids;
            }
        }
    }

    /// Everything in the engine, except the state record.
    pub fn raw(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        raw(self.engine())
            .into_iter()
            .filter(|(key, _)| key != keys::STATE)
            .collect()
    }

    /// How many entries of a kind the engine holds: documents, feed, own lane, unique keys.
    pub fn raw_counts(&self) -> [usize; 4] {
        let raw = self.raw();
        let count = |kind: u8| raw.keys().filter(|key| key.first() == Some(&kind)).count();
        let counts = [b'd', b'f', b'o', b'u'].map(count);
        assert_eq!(
            counts.iter().sum::<usize>(),
            raw.len(),
            "an entry of no known kind"
        );
        counts
    }

    /// The counters of the state must be what is really there.
    pub fn check_accounts(&self) {
        let documents: Vec<usize> = self
            .raw()
            .iter()
            .filter(|(key, _)| key.first() == Some(&b'd'))
            .map(|(_, value)| value.len())
            .collect();
        let state = self.view.state();
        assert_eq!(state.documents, documents.len() as u64, "documents");
        assert_eq!(state.bytes, documents.iter().sum::<usize>() as u64, "bytes");
        assert_eq!(
            ShardState::load(self.engine()),
            Ok((state.lsn > 0).then_some(state)),
            "what is stored is what is shown"
        );
    }
}

/// Everything in an engine.
pub fn raw(engine: &Engine) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut scan = engine.scan(&[], &[0xff]);
    while let Some((key, value)) = scan.entry().expect("the engine is readable") {
        all.insert(key.to_vec(), value.to_vec());
        scan.advance();
    }
    all
}

pub fn body(done: &Done) -> Value {
    serde_json::from_slice(done.body.as_ref().expect("an item")).expect("JSON")
}

fn id_of(stored: &Stored<Bytes>) -> String {
    let item: Map<String, Value> = serde_json::from_slice(stored.body()).expect("JSON");
    item["id"].as_str().expect("an id").to_owned()
}

/// An item without a ttl of its own.
pub fn item(id: &str) -> Value {
    json!({"id": id, "pk": "p"})
}

pub fn item_with_ttl(id: &str, ttl: i64) -> Value {
    json!({"id": id, "pk": "p", "ttl": ttl})
}
