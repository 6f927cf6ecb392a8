//! The loops: every connection sends its next request as soon as the last is answered, or at the
//! moment that a schedule says.
//!
//! The connections are spread over a few threads of this process, each with an event loop of its
//! own. Operations are counted in the phase in which they end; the caller turns the phases.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::time::Sleep;

use super::histogram::Histogram;
use super::pace::{Alarm, Pace};
use crate::client::connection::{Connection, RawAnswer};
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

/// Phases of a load: warm-up and up to this many less one that are looked at.
const PHASES_MAX: usize = 4;
/// How long the connections may take to end after they were told to.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a load that should end is looked at.
const END_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long a server may take to answer; then the connection is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a connection waits before it is opened again after it broke.
const REOPEN_PAUSE: Duration = Duration::from_millis(50);
/// The longest wait for a turn without a look at whether the load should end.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Stands for the status of a request that got no answer.
pub const NO_ANSWER: u16 = 0;
/// What the server says of requests that it does not offer.
pub const NOT_IMPLEMENTED: u16 = 501;

/// What one connection sends, and what it makes of the answers.
pub trait Script: Send {
    /// The next request; `None` ends the connection.
    fn next(&mut self) -> Option<&[u8]>;
    /// Whether the answer to the last request is the one that has to come.
    fn accepts(&mut self, answer: RawAnswer<'_>) -> bool;
    /// Which of the load's operations the last request belongs to.
    fn operation(&self) -> usize {
        0
    }
    /// Whether the operation needs another request: its time goes on.
    fn goes_on(&self) -> bool {
        false
    }
    /// How long to wait before the next request.
    fn pause(&mut self) -> Option<Duration> {
        None
    }
    /// The last request got no answer. Whether to go on, over a new connection.
    fn unanswered(&mut self) -> bool {
        false
    }
}

/// One script for each connection of a load.
pub type Scripts = Vec<Box<dyn Script>>;

/// Makes a script for each of these.
pub fn scripts<T, S: Script + 'static>(
    of: impl IntoIterator<Item = T>,
    mut script: impl FnMut(T) -> S,
) -> Scripts {
    let boxed = of
        .into_iter()
        .map(|one| Box::new(script(one)) as Box<dyn Script>);
    boxed.collect()
}

/// What a load consists of.
pub struct LoadPlan {
    /// The connections are spread over them in turn.
    pub endpoints: Vec<Endpoint>,
    /// One for each connection.
    pub scripts: Scripts,
    pub pace: Pace,
    /// How many operations the scripts tell apart.
    pub operations: usize,
}

/// What happened in one phase.
#[derive(Clone, Default)]
pub struct LoadTally {
    pub operations: u64,
    pub latency: Histogram,
    /// Answers that were not accepted, by status.
    pub unexpected: BTreeMap<u16, u64>,
}

impl LoadTally {
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.latency.add(&other.latency);
        for (status, count) in &other.unexpected {
            *self.unexpected.entry(*status).or_default() += count;
        }
    }

    /// Returns the answers that are errors of the service, by status. 501 is none: the server does
    /// not offer what was asked for.
    pub fn errors(&self) -> impl Iterator<Item = (u16, u64)> {
        let all = self.unexpected.iter();
        all.map(|(status, count)| (*status, *count))
            .filter(|(status, _)| *status != NOT_IMPLEMENTED)
    }

    pub fn errors_total(&self) -> u64 {
        self.errors().map(|(_, count)| count).sum()
    }

    pub fn not_implemented(&self) -> u64 {
        self.unexpected.get(&NOT_IMPLEMENTED).copied().unwrap_or(0)
    }
}

#[derive(Default)]
struct Control {
    stop: AtomicBool,
    phase: AtomicUsize,
}

/// Tallies by phase and operation.
type Tallies = Vec<Vec<LoadTally>>;

struct Driver {
    /// Only its own thread takes the lock while the load runs, but for a glance now and then.
    tallies: Arc<Mutex<Tallies>>,
    thread: JoinHandle<io::Result<()>>,
}

/// A load that runs until it is told to stop, or its scripts end. Dropping it stops it too.
pub struct Load {
    control: Arc<Control>,
    drivers: Vec<Driver>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.control.stop.store(true, Ordering::Relaxed);
    }
}

impl Load {
    /// Starts a closed loop of one kind of operation: one connection for each script.
    pub fn closed(endpoints: Vec<Endpoint>, scripts: Scripts) -> Result<Self> {
        Self::start(LoadPlan {
            endpoints,
            scripts,
            pace: Pace::AnswerByAnswer,
            operations: 1,
        })
    }

    /// Starts a load on as many threads as there are cores.
    pub fn start(plan: LoadPlan) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(plan.scripts.len()).max(1);
        let mut shares: Vec<Vec<Lane>> = (0..threads).map(|_| Vec::new()).collect();
        let endpoints = plan.endpoints.iter().cycle();
        for (index, (script, endpoint)) in plan.scripts.into_iter().zip(endpoints).enumerate() {
            let lane = Lane {
                endpoint: endpoint.clone(),
                script,
                pace: plan.pace.clone(),
            };
            if let Some(share) = shares.get_mut(index % threads) {
                share.push(lane);
            }
        }
        let control = Arc::new(Control::default());
        let drivers = shares.into_iter().map(|share| {
            let phase = vec![LoadTally::default(); plan.operations];
            let tallies = Arc::new(Mutex::new(vec![phase; PHASES_MAX]));
            let (control, shared) = (Arc::clone(&control), Arc::clone(&tallies));
            let thread = std::thread::Builder::new()
                .name("bench-driver".to_owned())
                .spawn(move || drive(share, &control, &shared))
                .map_err(|error| Error::internal(format!("cannot start a thread: {error}")))?;
            Ok(Driver { tallies, thread })
        });
        let drivers = drivers.collect::<Result<_>>()?;
        Ok(Self { control, drivers })
    }

    /// From now on operations count for this phase.
    pub fn enter_phase(&self, phase: usize) {
        debug_assert!(phase < PHASES_MAX);
        self.control.phase.store(phase, Ordering::Relaxed);
    }

    /// Operations that ended in this phase so far.
    pub fn operations(&self, phase: usize) -> u64 {
        let count = |driver: &Driver| {
            let tallies = locked(&driver.tallies);
            let phase = tallies.get(phase).into_iter().flatten();
            phase.map(|tally| tally.operations).sum::<u64>()
        };
        self.drivers.iter().map(count).sum()
    }

    /// Takes out what happened in this phase since the last time, by operation.
    pub fn take(&self, phase: usize) -> Vec<LoadTally> {
        let mut sums: Vec<LoadTally> = Vec::new();
        for driver in &self.drivers {
            let mut tallies = locked(&driver.tallies);
            let Some(phase) = tallies.get_mut(phase) else {
                continue;
            };
            let taken = std::mem::replace(phase, vec![LoadTally::default(); phase.len()]);
            drop(tallies);
            sums.resize(taken.len(), LoadTally::default());
            for (sum, tally) in sums.iter_mut().zip(&taken) {
                sum.add(tally);
            }
        }
        sums
    }

    /// Whether a thread has ended, by itself or with an error.
    pub fn has_ended(&self) -> bool {
        self.drivers
            .iter()
            .any(|driver| driver.thread.is_finished())
    }

    /// Ends all connections after their current request; what happened, by phase.
    pub async fn stop(self) -> Result<Vec<LoadTally>> {
        self.halt().await?;
        self.finish()
    }

    /// Ends all connections after their current request. What happened can still be taken.
    pub async fn halt(&self) -> Result<()> {
        self.control.stop.store(true, Ordering::Relaxed);
        self.wait(END_TIMEOUT, "the server left a request unanswered for")
            .await
    }

    /// Waits until all scripts have ended; fails if that takes longer than `timeout`.
    pub async fn ended(self, timeout: Duration) -> Result<Vec<LoadTally>> {
        self.wait(timeout, "the server did not take the load within")
            .await?;
        self.finish()
    }

    /// The same for scripts whose every answer has to be accepted.
    pub async fn accepted(self, timeout: Duration, server: &str) -> Result<()> {
        let tallies = self.ended(timeout).await?;
        match tallies.iter().flat_map(|tally| &tally.unexpected).next() {
            None => Ok(()),
            Some((status, _)) => Err(Error::unavailable(format!(
                "{server} refused a request of the load with status {status}"
            ))),
        }
    }

    async fn wait(&self, timeout: Duration, failure: &str) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let is_over = |driver: &Driver| driver.thread.is_finished();
        while !self.drivers.iter().all(is_over) {
            if Instant::now() > deadline {
                let seconds = timeout.as_secs();
                return Err(Error::unavailable(format!("{failure} {seconds} s")));
            }
            tokio::time::sleep(END_POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<LoadTally>> {
        let mut sums = vec![LoadTally::default(); PHASES_MAX];
        for driver in self.drivers.drain(..) {
            match driver.thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    return Err(Error::unavailable(format!("a connection failed: {error}")));
                }
                Err(_) => return Err(Error::internal("a thread of the driver panicked")),
            }
            for (sum, phase) in sums.iter_mut().zip(locked(&driver.tallies).iter()) {
                phase.iter().for_each(|tally| sum.add(tally));
            }
        }
        Ok(sums)
    }
}

fn locked(tallies: &Mutex<Tallies>) -> MutexGuard<'_, Tallies> {
    tallies.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection's part of a load.
struct Lane {
    endpoint: Endpoint,
    script: Box<dyn Script>,
    pace: Pace,
}

fn drive(
    lanes: Vec<Lane>,
    control: &Arc<Control>,
    tallies: &Arc<Mutex<Tallies>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connections: Vec<_> = lanes
            .into_iter()
            .map(|lane| {
                let (control, tallies) = (Arc::clone(control), Arc::clone(tallies));
                tokio::spawn(async move { lane.follow(&control, &tallies).await })
            })
            .collect();
        for connection in connections {
            connection.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

impl Lane {
    async fn follow(mut self, control: &Control, tallies: &Mutex<Tallies>) -> io::Result<()> {
        let mut alarm = Alarm::new()?;
        let mut timeout = pin!(tokio::time::sleep(ANSWER_TIMEOUT));
        let mut connection = Some(Connection::open_to(&self.endpoint).await?);
        while let Some(due) = turn(&self.pace, &mut alarm, control).await? {
            let status = loop {
                let Some(request) = self.script.next() else {
                    return Ok(());
                };
                if matches!(self.pace, Pace::AnswerByAnswer) {
                    behind_the_others().await;
                }
                let server = (&mut connection, &self.endpoint);
                let status = match exchange(server, request, timeout.as_mut()).await {
                    Ok(answer) => {
                        let status = answer.status;
                        (!self.script.accepts(answer)).then_some(status)
                    }
                    Err(error) => {
                        connection = None;
                        if !self.script.unanswered() {
                            return Err(error);
                        }
                        Some(NO_ANSWER)
                    }
                };
                if status.is_some() || !self.script.goes_on() {
                    break status;
                }
                if let Some(pause) = self.script.pause() {
                    tokio::time::sleep(pause).await;
                }
            };
            let latency = due.elapsed();
            let phase = control.phase.load(Ordering::Relaxed);
            let operation = self.script.operation();
            if let Some(tally) = locked(tallies)
                .get_mut(phase)
                .and_then(|phase| phase.get_mut(operation))
            {
                tally.operations += 1;
                tally.latency.record(latency);
                if let Some(status) = status {
                    *tally.unexpected.entry(status).or_default() += 1;
                }
            }
            if let Some(pause) = self.script.pause() {
                tokio::time::sleep(pause).await;
            }
            if connection.is_none() {
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
        }
        Ok(())
    }
}

/// Waits for the moment to send the next operation and answers from when its latency counts;
/// nothing, if the load should end.
async fn turn(pace: &Pace, alarm: &mut Alarm, control: &Control) -> io::Result<Option<Instant>> {
    let has_ended = || control.stop.load(Ordering::Relaxed);
    if has_ended() {
        return Ok(None);
    }
    let Pace::Scheduled(schedule) = pace else {
        return Ok(Some(Instant::now()));
    };
    let due = schedule.take();
    loop {
        let wait = due.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(Some(due));
        }
        alarm.sleep(wait.min(WAIT_MAX)).await?;
        if has_ended() {
            return Ok(None);
        }
    }
}

/// Lets the other connections of this thread that have an answer take it in first. What they send
/// next then leaves together, which wakes the server less often.
async fn behind_the_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Sends one request, over a new connection if the last one broke. The timer is the connection's
/// own and is set anew only when it rings: that is cheaper than one for each request.
async fn exchange<'c>(
    (connection, endpoint): (&'c mut Option<Connection>, &Endpoint),
    request: &[u8],
    timeout: Pin<&mut Sleep>,
) -> io::Result<RawAnswer<'c>> {
    let until = tokio::time::Instant::now() + ANSWER_TIMEOUT;
    let answered = async {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(Connection::open_to(endpoint).await?),
        };
        connection.exchange(request).await
    };
    tokio::select! {
        biased;
        answer = answered => answer,
        () = reached(timeout, until) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn reached(mut timer: Pin<&mut Sleep>, moment: tokio::time::Instant) {
    loop {
        timer.as_mut().await;
        if timer.deadline() >= moment {
            return;
        }
        timer.as_mut().reset(moment);
    }
}
