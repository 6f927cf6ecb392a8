//! The stop of a node: in order, and within a bound whatever the disk does.

use std::{future::Future, io, sync::Arc, thread, time::Duration};

use actix::Addr;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};
use tracing::{error, info, warn};

use super::{ExitCode, Failure};
use crate::{
    clock::ClockKeeper,
    cluster::driver::Driver,
    coordinator::{
        Coordinator,
        close::{CloseAll, CloseReport},
    },
};

/// How long the disk may take, once requests had their time.
const DISK_TIME_MAX: Duration = Duration::from_secs(5);
/// How long the rest of the process may take to end after that: destructors wait for threads.
const END_TIME_MAX: Duration = Duration::from_secs(3);

/// SIGTERM and SIGINT.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits until the process is told to end.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What is closed when requests have ended.
pub struct Closing {
    pub driver: Option<Driver>,
    pub coordinator: Addr<Coordinator>,
    pub clock: Arc<ClockKeeper>,
    /// Runs when all shards are closed; may wait for the disk.
    pub record: Box<dyn FnOnce() + Send>,
    /// How long requests may still run; the listeners end them a moment before.
    pub shutdown: Duration,
}

/// Waits for `requests` to end, then closes everything. Whatever does not end in time is logged, and the process ends; a second
/// signal ends it at once. Fails when files with acknowledged writes are gone.
pub async fn stop(
    requests: impl Future<Output = ()>,
    closing: Closing,
    mut signals: Signals,
) -> Result<(), Failure> {
    end_after(closing.shutdown + DISK_TIME_MAX + END_TIME_MAX);
    let report = Arc::new(CloseReport::default());
    let closed = close(requests, closing, Arc::clone(&report));
    let in_time = tokio::select! {
        in_time = closed => in_time,
        () = signals.next() => {
            warn!("told to stop again: the process ends at once; the next start replays the journals");
            exit(ExitCode::Failure);
        }
    };
    let concluded = conclude(&report).await;
    if !in_time {
        warn!("the stop has taken too long; the process ends now");
        let code = concluded.map_or_else(|failure| failure.code, |()| ExitCode::Clean);
        exit(code);
    }
    concluded?;
    info!("stopped");
    Ok(())
}

/// Returns whether all was closed in time.
async fn close(
    requests: impl Future<Output = ()>,
    closing: Closing,
    report: Arc<CloseReport>,
) -> bool {
    if timeout(closing.shutdown, requests).await.is_err() {
        warn!("requests are still in flight; they are cut off");
    }
    let closed = async move {
        if let Some(driver) = closing.driver {
            // Nothing is applied any more, and nobody waits for what is in flight.
            let _ = tokio::task::spawn_blocking(move || driver.stop()).await;
        }
        if closing.coordinator.send(CloseAll { report }).await.is_err() {
            warn!("the coordinator was gone before its shards were closed; the journals have all");
        }
        let (clock, record) = (closing.clock, closing.record);
        let recorded = tokio::task::spawn_blocking(move || {
            clock.store();
            record();
        });
        let _ = recorded.await;
    };
    timeout(DISK_TIME_MAX, closed).await.is_ok()
}

/// Logs what was not written. Fails when files with acknowledged writes are gone.
async fn conclude(report: &Arc<CloseReport>) -> Result<(), Failure> {
    let looked_at = Arc::clone(report);
    let looking = tokio::task::spawn_blocking(move || looked_at.gone());
    // A disk that does not answer has lost nothing, as far as is known.
    let gone = match timeout(END_TIME_MAX / 3, looking).await {
        Ok(Ok(gone)) => gone,
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    report.log_unfinished(&gone);
    if gone.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = gone.iter().map(|one| one.display().to_string()).collect();
    let message = format!(
        "files are gone that were in use, and acknowledged writes with them: {}",
        names.join(", ")
    );
    error!("{message}");
    Err(Failure::new(ExitCode::Failure, message))
}

/// Ends the process after this time, should it still be there: a destructor of the engine may wait for a disk that never answers.
fn end_after(bound: Duration) {
    let started = thread::Builder::new()
        .name("stop".to_owned())
        .spawn(move || {
            thread::sleep(bound);
            warn!("the process does not end by itself; it is ended");
            exit(ExitCode::Clean);
        });
    if let Err(failure) = started {
        warn!(%failure, "the stop is not watched");
    }
}

/// Ends the process without destructors, which may wait for the disk.
fn exit(code: ExitCode) -> ! {
    use std::io::Write as _;
    let _ = io::stdout().flush();
    // SAFETY: `_exit` takes any number, touches no memory of the process and does not return.
    unsafe { libc::_exit(i32::from(code as u8)) }
}
