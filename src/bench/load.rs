//! The closed loop: every connection sends its next request as soon as the last is answered.
//!
//! The connections are spread over a few threads of this process, each with an event loop of its
//! own. Operations are counted in the phase in which they end; the caller turns the phases.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::{Answer, Connection};
use super::histogram::Histogram;
use crate::model::error::{Error, Result};

/// Phases of a load: warm-up and up to this many less one that are looked at.
const PHASES_MAX: usize = 4;
/// How long the connections may take to end after they were told to.
const END_SECONDS_MAX: u64 = 30;
/// How often a load that should end is looked at.
const END_POLL: Duration = Duration::from_millis(2);

/// What one connection sends, and what it makes of the answers.
pub trait Script: Send {
    /// The next request; `None` ends the connection.
    fn next(&mut self) -> Option<&[u8]>;
    /// Whether the answer to the last request is the one that has to come.
    fn accepts(&mut self, answer: Answer<'_>) -> bool;
}

/// What happened in one phase.
#[derive(Clone, Default)]
pub struct Tally {
    pub operations: u64,
    pub latency: Histogram,
    /// Answers that were not accepted, by status.
    pub unexpected: BTreeMap<u16, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.latency.add(&other.latency);
        for (status, count) in &other.unexpected {
            *self.unexpected.entry(*status).or_default() += count;
        }
    }
}

#[derive(Default)]
struct Control {
    stop: AtomicBool,
    phase: AtomicUsize,
}

struct Driver {
    /// One for each phase. Only its own thread takes the lock while the load runs, but for a
    /// glance now and then.
    tallies: Arc<Mutex<Vec<Tally>>>,
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
    /// Starts one connection for each script, on as many threads as there are cores.
    pub fn start(port: u16, scripts: Vec<Box<dyn Script>>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(scripts.len()).max(1);
        let mut shares: Vec<Vec<Box<dyn Script>>> = (0..threads).map(|_| Vec::new()).collect();
        for (index, script) in scripts.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(index % threads) {
                share.push(script);
            }
        }
        let control = Arc::new(Control::default());
        let drivers = shares.into_iter().map(|share| {
            let tallies = Arc::new(Mutex::new(vec![Tally::default(); PHASES_MAX]));
            let (control, shared) = (Arc::clone(&control), Arc::clone(&tallies));
            let thread = std::thread::Builder::new()
                .name("bench-driver".to_owned())
                .spawn(move || drive(port, share, &control, &shared))
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
            tallies.get(phase).map_or(0, |tally| tally.operations)
        };
        self.drivers.iter().map(count).sum()
    }

    /// Whether a thread has ended, by itself or with an error.
    pub fn has_ended(&self) -> bool {
        self.drivers
            .iter()
            .any(|driver| driver.thread.is_finished())
    }

    /// Ends all connections after their current request; what happened, by phase.
    pub async fn stop(self) -> Result<Vec<Tally>> {
        self.control.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs(END_SECONDS_MAX);
        while !self
            .drivers
            .iter()
            .all(|driver| driver.thread.is_finished())
        {
            if Instant::now() > until {
                return Err(Error::unavailable(format!(
                    "the server left a request unanswered for {END_SECONDS_MAX} s"
                )));
            }
            tokio::time::sleep(END_POLL).await;
        }
        self.finish()
    }

    /// Waits until all scripts have ended; fails if that takes longer than `limit`.
    pub async fn ended(self, limit: Duration) -> Result<Vec<Tally>> {
        let until = Instant::now() + limit;
        while !self
            .drivers
            .iter()
            .all(|driver| driver.thread.is_finished())
        {
            if Instant::now() > until {
                return Err(Error::unavailable(format!(
                    "the server did not take the load within {} s",
                    limit.as_secs()
                )));
            }
            tokio::time::sleep(END_POLL).await;
        }
        self.finish()
    }

    fn finish(mut self) -> Result<Vec<Tally>> {
        let mut sums = vec![Tally::default(); PHASES_MAX];
        for driver in self.drivers.drain(..) {
            match driver.thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    return Err(Error::unavailable(format!("a connection failed: {error}")));
                }
                Err(_) => return Err(Error::internal("a thread of the driver panicked")),
            }
            for (sum, tally) in sums.iter_mut().zip(locked(&driver.tallies).iter()) {
                sum.add(tally);
            }
        }
        Ok(sums)
    }
}

fn locked(tallies: &Mutex<Vec<Tally>>) -> MutexGuard<'_, Vec<Tally>> {
    tallies.lock().unwrap_or_else(PoisonError::into_inner)
}

fn drive(
    port: u16,
    scripts: Vec<Box<dyn Script>>,
    control: &Arc<Control>,
    tallies: &Arc<Mutex<Vec<Tally>>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connections: Vec<_> = scripts
            .into_iter()
            .map(|script| {
                let (control, tallies) = (Arc::clone(control), Arc::clone(tallies));
                tokio::spawn(async move { follow(port, script, &control, &tallies).await })
            })
            .collect();
        for connection in connections {
            connection.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

async fn follow(
    port: u16,
    mut script: Box<dyn Script>,
    control: &Control,
    tallies: &Mutex<Vec<Tally>>,
) -> io::Result<()> {
    let mut connection = Connection::open(port).await?;
    while !control.stop.load(Ordering::Relaxed) {
        let Some(request) = script.next() else {
            break;
        };
        let sent = Instant::now();
        let answer = connection.exchange(request).await?;
        let latency = sent.elapsed();
        let status = answer.status;
        let accepted = script.accepts(answer);
        let phase = control.phase.load(Ordering::Relaxed);
        if let Some(tally) = locked(tallies).get_mut(phase) {
            tally.operations += 1;
            tally.latency.record(latency);
            if !accepted {
                *tally.unexpected.entry(status).or_default() += 1;
            }
        }
    }
    Ok(())
}
