//! Opens the shards of a standalone node behind its start, those that requests ask for first.

use std::{
    collections::VecDeque,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tracing::{error, info};

use super::{Link, ShardHandle, ShardHost, reopen::Afterwards, start_opened};
use crate::{
    cluster::raft::log_disk::InitialState,
    model::{
        error::{Error, Result},
        indexing_policy::IndexingPolicy,
        ttl::DefaultTtl,
    },
    shard::facts::ShardFacts,
    store::EngineError,
};

/// Most of an opening is waiting for the disk, so there are a few at a time even on one core.
const OPENERS_MIN: usize = 2;
const OPENERS_MAX: usize = 8;
/// How long a request waits for its shard, which may have a long WAL to replay.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// When a client whose shard took longer should try again.
const RETRY_MS: u32 = 1_000;

/// The shards that are still to be opened.
#[derive(Default)]
pub struct Openings {
    queue: Mutex<Queue>,
    /// Those that wait, and those that are being opened.
    left: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    /// Requests wait for these.
    asked: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
}

/// A shard that nobody has begun to open.
struct Waiting {
    handle: Arc<ShardHandle>,
    default: DefaultTtl,
    policy: IndexingPolicy,
    afterwards: Afterwards,
}

impl Openings {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many shards are still to be opened.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    fn next(&self) -> Option<Waiting> {
        let mut queue = self.queue();
        let asked = queue.asked.pop_front();
        asked.or_else(|| queue.others.pop_front())
    }

    /// Waits until shards that a request needs are open or known to be broken, ahead of all others.
    /// Fails when that takes too long.
    pub async fn wait_for(&self, shards: &[Arc<ShardHandle>]) -> Result<()> {
        let opening: Vec<_> = shards.iter().filter(|shard| shard.is_opening()).collect();
        for shard in &opening {
            let mut queue = self.queue();
            let waits = |one: &Waiting| Arc::ptr_eq(&one.handle, shard);
            if let Some(waiting) = remove(&mut queue.others, waits) {
                queue.asked.push_back(waiting);
            }
        }
        let all = async {
            for shard in &opening {
                shard.opened().await;
            }
        };
        tokio::time::timeout(WAIT_MAX, all).await.map_err(|_| {
            let mut error = still_opening();
            error.retry_after_ms = Some(RETRY_MS);
            error
        })
    }

    /// Takes a shard out that nobody has begun to open. Returns whether it was one.
    fn withdraw(&self, shard: &ShardHandle) -> bool {
        let waits = |one: &Waiting| std::ptr::eq(&*one.handle, shard);
        let mut queue = self.queue();
        let Queue { asked, others } = &mut *queue;
        let found = remove(asked, waits).or_else(|| remove(others, waits));
        drop(queue);
        found.map(|waiting| self.end(&waiting.handle)).is_some()
    }

    /// Begins to open no shard any more: the node stops.
    pub fn stop(&self) {
        let Queue { asked, others } = std::mem::take(&mut *self.queue());
        for waiting in asked.into_iter().chain(others) {
            let stopping = Error::unavailable("the node is stopping");
            waiting.handle.link.store(Arc::new(Link::Down(stopping)));
            self.end(&waiting.handle);
        }
    }

    fn end(&self, handle: &ShardHandle) {
        handle.is_opening.send_replace(false);
        self.left.fetch_sub(1, Ordering::AcqRel);
    }
}

fn remove(queue: &mut VecDeque<Waiting>, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
    let at = queue.iter().position(is_it)?;
    queue.remove(at)
}

fn still_opening() -> Error {
    Error::unavailable("the shard is still being opened after the start of the node; try again")
}

/// Says that a shard is opened, even if opening it has panicked.
struct Ending<'a>(&'a ShardHandle);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.host.openings.end(self.0);
    }
}

impl ShardHost {
    pub fn openings(&self) -> &Arc<Openings> {
        &self.openings
    }

    /// Has a shard that was made before opened by [`Self::open_waiting`], and something done with
    /// it then.
    pub fn open_later(
        self: &Arc<Self>,
        facts: ShardFacts,
        default: DefaultTtl,
        policy: &IndexingPolicy,
        afterwards: Afterwards,
    ) -> Arc<ShardHandle> {
        let handle = self.handle(
            facts,
            InitialState::Uninitialized,
            &[],
            Link::Down(still_opening()),
        );
        handle.is_opening.send_replace(true);
        self.openings.left.fetch_add(1, Ordering::AcqRel);
        self.openings.queue().others.push_back(Waiting {
            handle: Arc::clone(&handle),
            default,
            policy: policy.clone(),
            afterwards,
        });
        handle
    }

    /// Opens the shards that wait for it, on threads of its own.
    pub fn open_waiting(self: &Arc<Self>) {
        let shards = self.openings.left();
        if shards == 0 {
            return;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let openers = cores.clamp(OPENERS_MIN, OPENERS_MAX).min(shards);
        info!(shards, openers, "opening shards");
        for _ in 0..openers {
            let host = Arc::clone(self);
            let opener = thread::Builder::new().name("opener".to_owned());
            let started = opener.spawn(move || {
                while let Some(waiting) = host.openings.next() {
                    open(&host, waiting);
                }
            });
            if let Err(failure) = started {
                error!(%failure, "a thread that opens shards cannot be started");
            }
        }
    }
}

/// Opens a shard. One that cannot be opened answers every request with what is wrong.
fn open(host: &Arc<ShardHost>, waiting: Waiting) {
    let Waiting {
        handle,
        default,
        policy,
        afterwards,
    } = waiting;
    let _ending = Ending(&handle);
    // A shard that makes the engine panic must not keep the others from being opened.
    let opened = panic::catch_unwind(AssertUnwindSafe(|| {
        match host.open_view(&handle.facts, default, Some(&policy)) {
            Ok(view) => start_opened(&handle, view),
            Err(failure) => handle.fail(&failure),
        }
        handle.go_on_with(default, &policy, afterwards);
    }));
    if opened.is_err() {
        handle.fail(&EngineError::Io("opening it has panicked".to_owned()));
    }
}

impl ShardHandle {
    /// Returns whether the shard is one of those that are opened behind the start of the node.
    pub fn is_opening(&self) -> bool {
        *self.is_opening.borrow()
    }

    /// Waits until the shard is open, or known to be broken.
    pub async fn opened(&self) {
        // Fails when the sender is gone, which this shard has.
        let _ = self
            .is_opening
            .subscribe()
            .wait_for(|opening| !opening)
            .await;
    }

    /// Sees to it that nobody opens the shard any more: takes it out of the queue, or waits.
    pub async fn end_opening(&self) {
        if self.is_opening() && !self.host.openings.withdraw(self) {
            self.opened().await;
        }
    }

    /// Does what is to be done with a shard that was opened: now, or when there is room for it.
    pub fn go_on_with(
        self: &Arc<Self>,
        default: DefaultTtl,
        policy: &IndexingPolicy,
        afterwards: Afterwards,
    ) {
        match self.view() {
            Ok(_) => afterwards(self),
            Err(_) => self.open_when_possible(default, Some(policy), afterwards),
        }
    }
}
