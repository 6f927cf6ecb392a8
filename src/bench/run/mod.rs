//! `bolide bench run`: a workload against a node of its own or against given endpoints.
//!
//! A workload and a target go in; a container is made, loaded, put under load, checked and removed;
//! a [`RunSummary`] comes out.

mod audit;
mod feed;
mod html;
mod loader;
mod metrics;
mod plot;
mod progress;
mod recorder;
mod shared;
mod summary;
mod target;
mod worker;

#[cfg(test)]
mod lying_server_tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

pub use target::LoadTarget;

use super::account::Account;
use super::check::{Checker, Exchange, ServerClock};
use super::load::{Load, LoadPlan};
use super::options::RunBench;
use super::pace::Pace;
use super::request::container_link;
use super::workload::{self, PARTITION_ITEMS, Workload};
use crate::client::connection::RawAnswer;
use crate::client::{Signer, unix_seconds, unix_time};
use crate::model::error::{Error, Result};
use recorder::{HdrLog, Outlets, Recorder};
use shared::RunState;
use summary::RunSummary;

/// Connections that load the items: batches are large, so few keep a node busy.
const LOAD_CONNECTIONS: u32 = 8;
const LOAD_TIMEOUT: Duration = Duration::from_secs(1_800);
/// How long the readers of the change feed may take to come to its end after the last write.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
const AUDIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Warm-up of a peak, in relation to its length.
const WARM_UP_SHARE: f64 = 0.2;
/// Phases of a load.
const WARM_UP: usize = 0;
const MEASURED: usize = 1;

/// What a run is: the workload with what the command line changes.
#[derive(Clone)]
pub struct RunJob {
    pub name: String,
    pub workload: Workload,
    pub connections: u32,
    pub warm_up: Duration,
    pub length: Duration,
    pub rate: Option<f64>,
    pub seed: u64,
    pub is_checked: bool,
}

impl RunJob {
    fn new(options: &RunBench) -> Result<Self> {
        let (name, mut workload) = workload::find(&options.workload)?;
        if let Some(items) = options.items {
            workload.items.count = items;
        }
        let run = &workload.run;
        let seconds = options.seconds.unwrap_or(f64::from(run.seconds));
        let warm_up = options.warm_up.unwrap_or(f64::from(run.warm_up_seconds));
        Ok(Self {
            name,
            connections: options.connections.unwrap_or(run.connections),
            length: Duration::from_secs_f64(seconds),
            warm_up: Duration::from_secs_f64(warm_up),
            rate: options.rate.or(run.rate.map(f64::from)),
            seed: options.seed,
            is_checked: !options.no_check,
            workload,
        })
    }
}

/// Point reads as fast as they are answered, from a server that only answers; how many a second.
pub async fn peak_of_reads(port: u16, connections: u32, length: Duration) -> Result<f64> {
    let (name, mut workload) = workload::find("ycsb-c")?;
    workload.items.count = PARTITION_ITEMS as u32;
    let job = RunJob {
        name,
        workload,
        connections,
        warm_up: length.mul_f64(WARM_UP_SHARE),
        length,
        rate: None,
        seed: 1,
        is_checked: false,
    };
    let summary = execute(&job, &LoadTarget::of_port(port), Outlets::default()).await?;
    Ok(summary.all.rate)
}

/// Runs a workload to its end, or to Ctrl-C; whether no answer was wrong.
pub fn run(options: &RunBench) -> Result<bool> {
    let job = RunJob::new(options)?;
    // Before the work, not after it, a file that cannot be written is found.
    for path in [&options.json, &options.html, &options.hdr]
        .into_iter()
        .flatten()
    {
        super::write_file(path, "")?;
    }
    let runtime = super::event_loop()?;
    let summary = runtime.block_on(async {
        let target = LoadTarget::open(&options.target).await?;
        target.account.check().await?;
        let outlets = Outlets {
            hdr: options.hdr.as_deref().map(HdrLog::create).transpose()?,
            exporter: metrics::serve(options.metrics_port)?,
        };
        execute(&job, &target, outlets).await
    })?;
    print!("{}", summary.table());
    if let Some(path) = &options.json {
        super::write_file(path, &summary.json())?;
    }
    if let Some(path) = &options.html {
        super::write_file(path, &html::page(&summary))?;
    }
    for evidence in summary.evidence.iter().skip(1).take(2) {
        eprintln!("{}", evidence.shown());
    }
    Ok(summary.violations_total() == 0)
}

/// Loads, measures, checks.
pub async fn execute(job: &RunJob, target: &LoadTarget, outlets: Outlets) -> Result<RunSummary> {
    let account = &target.account;
    account.ensure_database().await?;
    let container = format!("{}-{:08x}", job.name, rand::random::<u32>());
    let part = &job.workload.container;
    let properties = match part.default_ttl {
        Some(default_ttl) => json!({ "defaultTtl": default_ttl }),
        None => json!({}),
    };
    account
        .create_container_with(&container, &properties, part.throughput)
        .await?;
    let outcome = in_container(job, target, &container, outlets).await;
    if !target.is_own() {
        // The outcome matters more than a container that stays; its name tells the workload.
        let _ = account.delete_container(&container).await;
    }
    outcome
}

async fn in_container(
    job: &RunJob,
    target: &LoadTarget,
    container: &str,
    outlets: Outlets,
) -> Result<RunSummary> {
    let account = &target.account;
    let own: Vec<bool> = account.endpoints.iter().map(|e| e.is_loopback()).collect();
    let default = job.workload.container.default_ttl;
    let default = default.and_then(|seconds| u64::try_from(seconds).ok());
    let checker = Checker::new(ServerClock::new(&own), default, job.workload.items.bytes);
    let link = container_link(container);
    let mut shared = RunState::new(job.workload.clone(), link, checker, job.is_checked);
    let due_together = job.workload.items.due_together_seconds;
    shared.due_second = due_together.map(|seconds| unix_seconds() + u64::from(seconds));
    let shared = Arc::new(shared);
    tokio::select! {
        outcome = load_items(job, account, &shared) => outcome?,
        _ = tokio::signal::ctrl_c() => {
            return Err(Error::unavailable("interrupted before anything was measured"));
        }
    }

    let signers = endpoint_signers(account, job.connections);
    let scripts = worker::RunWorker::spread(&shared, &signers, job.seed);
    let pace = Pace::new(job.rate);
    let load = Load::start(LoadPlan {
        endpoints: account.endpoints.clone(),
        scripts,
        pace: pace.clone(),
        operations: shared.operations.len(),
    })?;
    let feed = start_feed(job, account, &shared, container).await?;
    let mut recorder = Recorder::new(job, &shared, target.health.clone(), outlets).await?;
    let is_interrupted = {
        let work = recorder.follow(job, &load, &shared);
        let changes = change_defaults(job, account, &shared, container);
        tokio::select! {
            outcome = work => { outcome?; false }
            () = changes => false,
            _ = tokio::signal::ctrl_c() => true,
        }
    };
    let unsent = match &pace {
        Pace::Scheduled(schedule) => schedule.unsent(Instant::now()),
        Pace::AnswerByAnswer => 0,
    };
    load.halt().await?;
    recorder.finish(&load, &shared).await?;
    let afterwards = async {
        drain(&shared, feed).await?;
        audit(job, account, &shared).await
    };
    if !is_interrupted {
        tokio::select! {
            outcome = afterwards => outcome?,
            _ = tokio::signal::ctrl_c() => {
                eprintln!("interrupted: not everything was looked at again");
            }
        }
    }
    Ok(recorder.summary(job, target, &shared, unsent, is_interrupted))
}

/// For each connection which endpoint it goes to, and a signer for it.
fn endpoint_signers(account: &Account, connections: u32) -> Vec<(usize, Signer)> {
    let endpoints = account.endpoints.iter().enumerate().cycle();
    endpoints
        .take(connections as usize)
        .map(|(index, endpoint)| (index, account.signer.for_host(&endpoint.authority())))
        .collect()
}

fn signers(account: &Account, connections: u32) -> Vec<Signer> {
    let signers = endpoint_signers(account, connections).into_iter();
    signers.map(|(_, signer)| signer).collect()
}

async fn load_items(job: &RunJob, account: &Account, shared: &Arc<RunState>) -> Result<()> {
    eprintln!("loading {} items", job.workload.items.count);
    let begun = Instant::now();
    let scripts = loader::Loader::spread(shared, &signers(account, LOAD_CONNECTIONS));
    let load = Load::closed(account.endpoints.clone(), scripts)?;
    load.ended(LOAD_TIMEOUT).await?;
    if let Some(refusal) = shared.refusal() {
        return Err(Error::unavailable(refusal));
    }
    shared.inserted.start(u64::from(job.workload.items.count));
    eprintln!("loaded in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

async fn start_feed(
    job: &RunJob,
    account: &Account,
    shared: &Arc<RunState>,
    container: &str,
) -> Result<Option<Load>> {
    let readers = job.workload.change_feed.readers;
    if readers == 0 {
        return Ok(None);
    }
    let ranges = account.range_ids(container).await?;
    let scripts = feed::FeedReader::spread(shared, &signers(account, readers), &ranges);
    Load::closed(account.endpoints.clone(), scripts).map(Some)
}

/// Changes the container's default again and again; ends only with the run.
async fn change_defaults(job: &RunJob, account: &Account, shared: &RunState, container: &str) {
    let Some(changes) = &job.workload.default_ttl_changes else {
        return std::future::pending().await;
    };
    let pause = Duration::from_secs(u64::from(changes.every_seconds));
    for value in changes.values.iter().cycle() {
        tokio::time::sleep(pause).await;
        shared
            .checker
            .default_sent(u64::try_from(*value).ok(), unix_time());
        let properties = json!({ "defaultTtl": value });
        match account.replace_container(container, &properties).await {
            Ok(_) => shared.checker.default_answered(unix_time()),
            Err(error) => eprintln!("a change of defaultTtl failed: {}", error.message),
        }
    }
}

/// Lets the readers of the change feed come to its end, and looks what they have not seen.
async fn drain(shared: &RunState, feed: Option<Load>) -> Result<()> {
    let Some(feed) = feed else {
        return Ok(());
    };
    shared.drains.store(true, Ordering::Release);
    feed.ended(DRAIN_TIMEOUT).await?;
    if shared.is_checked {
        let exchange = Exchange {
            request: b"GET docs (change feed, to its end)",
            answer: RawAnswer::default(),
            answered: unix_time(),
        };
        shared.checker.unfed(unix_time(), &exchange);
    }
    Ok(())
}

async fn audit(job: &RunJob, account: &Account, shared: &Arc<RunState>) -> Result<()> {
    if !job.is_checked {
        return Ok(());
    }
    let scripts = audit::Audit::spread(shared, &signers(account, LOAD_CONNECTIONS));
    let load = Load::closed(account.endpoints.clone(), scripts)?;
    load.ended(AUDIT_TIMEOUT).await?;
    Ok(())
}
