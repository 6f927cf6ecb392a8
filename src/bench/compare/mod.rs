//! `bolide bench compare`: the same work, alternately, against Bolide and its peers.
//!
//! Every peer is loaded by the same loop over as many connections; only the bytes differ. Servers
//! that are installed are started here and stopped at the end.

mod peer;
mod postgres;
mod redis;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::account::Account;
use super::connection::Connection;
use super::load::{Load, Plan};
use super::measure::median;
use super::node::Bench;
use super::options::{CompareBench, PeerName};
use super::pace::Pace;
use super::report::{aligned, grouped};
use super::request::container_link;
use super::run::Target;
use crate::client::{unix_seconds, unix_time};
use crate::model::error::{Error, Result};
use peer::{Doing, Host, Peer, Speaker, Work};

const CONTAINER: &str = "compare";
/// Items that are read and written live as long as the comparison.
const TTL_SECONDS: u64 = 86_400;
/// Share of a measurement's length that warms up before it.
const WARM_UP_SHARE: f64 = 0.2;
const FILL_SECONDS_MAX: u64 = 600;
/// How long the doomed items live, at most and at least: as long as writing them may take.
const DOOM_SECONDS_MAX: u64 = 10;
const DOOM_SECONDS_MIN: u64 = 3;
/// So many of them make it a second longer.
const DOOMED_PER_SECOND: u64 = 1_000;
/// After this they count as not removed.
const PURGE_SECONDS_MAX: f64 = 120.0;
const PURGE_POLL: Duration = Duration::from_millis(20);
const PURGED: &str = "bolide_expiry_purged_items_total";
const BOLIDE: &str = "Bolide";

/// What was measured of one peer, a value for each repetition.
#[derive(Clone, Default)]
struct Figures {
    rates: Vec<f64>,
    p99_millis: Vec<f64>,
    errors: u64,
}

#[derive(Default)]
struct Results {
    /// Peers with what they guarantee, in order.
    peers: Vec<(String, &'static str)>,
    /// By work and peer.
    figures: Vec<(&'static str, Vec<Figures>)>,
    /// Seconds until all expired items were removed, by peer.
    purges: Vec<Option<f64>>,
    missing: Vec<String>,
}

/// Runs the comparison to its end, or to Ctrl-C.
pub fn run(options: &CompareBench) -> Result<()> {
    if let Some(path) = &options.json {
        super::write_file(path, "")?;
    }
    let results = RefCell::new(Results::default());
    let outcome = super::event_loop()?.block_on(async {
        tokio::select! {
            outcome = compare(options, &results) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Error::unavailable("interrupted")),
        }
    });
    let results = results.into_inner();
    print!("{}", results.table());
    if let Some(path) = &options.json {
        super::write_file(path, &format!("{:#}\n", results.json()))?;
    }
    outcome
}

async fn compare(options: &CompareBench, results: &RefCell<Results>) -> Result<()> {
    let bench = Bench::new(options.target.data_path.as_deref())?;
    let peers = start_peers(options, &bench, results).await?;
    for peer in &peers {
        eprintln!("writing {} items to {}", options.items, peer.name);
        fill(peer, 0..u64::from(options.items), TTL_SECONDS).await?;
    }
    let items = u64::from(options.items);
    let works = [
        ("read", Work::Read { items }),
        (
            "write",
            Work::Write {
                items,
                ttl: TTL_SECONDS,
            },
        ),
    ];
    {
        let mut results = results.borrow_mut();
        results.peers = peers
            .iter()
            .map(|p| (p.name.clone(), p.guarantees))
            .collect();
        let none = vec![Figures::default(); peers.len()];
        results.figures = works
            .iter()
            .map(|(name, _)| (*name, none.clone()))
            .collect();
        results.purges = vec![None; peers.len()];
    }
    for repetition in 0..options.repetitions {
        for (work_index, (name, work)) in works.iter().enumerate() {
            // Each begins with another one, so that none always comes after the same.
            let count = peers.len();
            for turn in (0..count).map(|turn| (turn + repetition as usize) % count) {
                let Some(peer) = peers.get(turn) else {
                    continue;
                };
                let seed = u64::from(repetition) << 8 | work_index as u64;
                let measured = measure(options, peer, work, seed).await?;
                eprintln!("  {name}, {}: {} /s", peer.name, grouped(measured.0));
                let mut results = results.borrow_mut();
                if let Some((_, figures)) = results.figures.get_mut(work_index)
                    && let Some(figures) = figures.get_mut(turn)
                {
                    figures.rates.push(measured.0);
                    figures.p99_millis.push(measured.1);
                    figures.errors += measured.2;
                }
            }
        }
    }
    for (turn, peer) in peers.iter().enumerate() {
        let seconds = purge(options, peer).await?;
        if let Some(seconds) = seconds {
            eprintln!("  expiry, {}: {}", peer.name, removed(seconds));
        }
        if let Some(place) = results.borrow_mut().purges.get_mut(turn) {
            *place = seconds;
        }
    }
    for peer in peers {
        if let Host::Own(server) = peer.host {
            server.stop().await?;
        }
    }
    Ok(())
}

async fn start_peers(
    options: &CompareBench,
    bench: &Bench,
    results: &RefCell<Results>,
) -> Result<Vec<Peer>> {
    use postgres::SynchronousCommit;
    use redis::AppendFsync;
    let node = bench.start_node("bolide").await?;
    let mut peers = vec![bolide(node).await?];
    let mut take = |started: Result<Peer, String>| match started {
        Ok(peer) => peers.push(peer),
        Err(reason) => {
            let mut results = results.borrow_mut();
            if !results.missing.contains(&reason) {
                results.missing.push(reason);
            }
        }
    };
    if options.wants(PeerName::Redis) {
        for fsync in [AppendFsync::Always, AppendFsync::EverySecond] {
            take(redis::start(&bench.scratch, fsync).await?);
        }
    }
    if options.wants(PeerName::Postgres) {
        for commit in [SynchronousCommit::On, SynchronousCommit::Off] {
            take(postgres::start(&bench.scratch, commit).await?);
        }
    }
    if !options.target.endpoint.is_empty() {
        let target = Target::open(&options.target).await?;
        target.account.check().await?;
        peers.push(elsewhere(&target.account).await?);
    }
    Ok(peers)
}

async fn prepared(account: &Account, container: &str) -> Result<Speaker> {
    account.ensure_database().await?;
    let properties = json!({ "defaultTtl": -1 });
    account.create_container(container, &properties).await?;
    let endpoint = account.endpoints.first();
    let host = endpoint.map_or_else(String::new, |endpoint| endpoint.authority());
    Ok(Speaker::Cosmos {
        signer: account.signer.for_host(&host),
        link: container_link(container),
    })
}

async fn bolide(node: super::node::Node) -> Result<Peer> {
    let speaker = prepared(&node, CONTAINER).await?;
    let Some(endpoint) = node.endpoints.first().cloned() else {
        return Err(Error::internal("the node has no endpoint"));
    };
    Ok(Peer {
        name: BOLIDE.to_owned(),
        guarantees: "a write is on disk before its answer; an expired item is gone for every reader at its second, and purged behind it",
        endpoint,
        speaker,
        host: Host::Bolide(Box::new(node)),
    })
}

async fn elsewhere(account: &Account) -> Result<Peer> {
    let container = format!("{CONTAINER}-{:08x}", rand::random::<u32>());
    let speaker = prepared(account, &container).await?;
    let Some(endpoint) = account.endpoints.first().cloned() else {
        return Err(Error::internal("the account has no endpoint"));
    };
    Ok(Peer {
        name: endpoint.to_string(),
        guarantees: "as its maker says",
        endpoint,
        speaker,
        host: Host::Elsewhere,
    })
}

fn start(peer: &Peer, work: &Work, connections: u32, seed: u64) -> Result<Load> {
    Load::start_plan(Plan {
        endpoints: vec![peer.endpoint.clone()],
        scripts: Doing::spread(&peer.speaker, work, connections, seed),
        pace: Pace::AnswerByAnswer,
        operations: 1,
    })
}

/// Writes items that live this long; how many were refused must be none.
async fn fill(peer: &Peer, numbers: std::ops::Range<u64>, ttl: u64) -> Result<()> {
    let work = Work::Fill {
        next: Arc::new(AtomicU64::new(numbers.start)),
        end: numbers.end,
        due: unix_seconds() + ttl,
    };
    let load = start(peer, &work, FILL_CONNECTIONS, numbers.start)?;
    let tallies = load.ended(Duration::from_secs(FILL_SECONDS_MAX)).await?;
    let refused = tallies.iter().flat_map(|tally| &tally.unexpected).next();
    match refused {
        Some((status, _)) => Err(Error::unavailable(format!(
            "{} refused a write with status {status}",
            peer.name
        ))),
        None => Ok(()),
    }
}

/// Connections that write the items.
const FILL_CONNECTIONS: u32 = 32;

/// Rate, 99th percentile in milliseconds, and wrong answers.
async fn measure(
    options: &CompareBench,
    peer: &Peer,
    work: &Work,
    seed: u64,
) -> Result<(f64, f64, u64)> {
    let load = start(peer, work, options.connections, seed)?;
    let length = Duration::from_secs_f64(options.seconds);
    tokio::time::sleep(length.mul_f64(WARM_UP_SHARE)).await;
    load.enter_phase(1);
    let begun = Instant::now();
    tokio::time::sleep(length).await;
    let elapsed = begun.elapsed().as_secs_f64();
    load.enter_phase(2);
    let tallies = load.stop().await?;
    let tally = tallies.into_iter().nth(1).unwrap_or_default();
    let p99 = tally.latency.quantile(0.99).as_secs_f64() * 1e3;
    Ok((
        tally.operations as f64 / elapsed,
        p99,
        tally.unexpected.values().sum(),
    ))
}

/// Writes items that fall due together, and waits until the peer has removed them; how long after
/// the last one's second.
async fn purge(options: &CompareBench, peer: &Peer) -> Result<Option<f64>> {
    let (first, count) = (u64::from(options.items), u64::from(options.doomed));
    let before = match &peer.host {
        Host::Bolide(node) => node.counter(PURGED).await?,
        _ => 0,
    };
    let lifetime = (count / DOOMED_PER_SECOND).clamp(DOOM_SECONDS_MIN, DOOM_SECONDS_MAX);
    let due = unix_seconds() + lifetime;
    fill(peer, first..first + count, lifetime).await?;
    if unix_seconds() + 1 > due {
        return Err(Error::unavailable(format!(
            "{} took longer than {lifetime} s to write {count} items: lower --doomed",
            peer.name
        )));
    }
    let wait = due as f64 - unix_time();
    tokio::time::sleep(Duration::from_secs_f64(wait.max(0.0))).await;
    let mut connection = match &peer.host {
        Host::Elsewhere => return Ok(None),
        _ => Connection::open_to(&peer.endpoint)
            .await
            .map_err(|error| Error::unavailable(format!("cannot reach {}: {error}", peer.name)))?,
    };
    while unix_time() - (due as f64) < PURGE_SECONDS_MAX {
        let is_done = match &peer.host {
            Host::Bolide(node) => node.counter(PURGED).await? >= before + count,
            _ => is_purged(peer, &mut connection, first).await?,
        };
        if is_done {
            return Ok(Some(unix_time() - due as f64));
        }
        if matches!(peer.host, Host::Bolide(_)) {
            tokio::time::sleep(PURGE_POLL).await;
        }
    }
    Ok(None)
}

/// Whether only this many items are left. PostgreSQL removes none by itself, so a batch is deleted
/// first.
async fn is_purged(peer: &Peer, connection: &mut Connection, left: u64) -> Result<bool> {
    let failed = |error| Error::unavailable(format!("{} did not answer: {error}", peer.name));
    let mut request = Vec::new();
    if matches!(peer.speaker, Speaker::Postgres) {
        postgres::purge(&mut request);
        let answer = connection.exchange(&request).await.map_err(failed)?;
        // While there is something to delete it answers with rows.
        return Ok(answer.status == 404);
    }
    redis::count(&mut request);
    let answer = connection.exchange(&request).await.map_err(failed)?;
    let count = redis::counted(answer.body).unwrap_or(u64::MAX);
    tokio::time::sleep(PURGE_POLL).await;
    Ok(count <= left)
}

/// The median, and the lowest and the highest.
fn spread(values: &[f64]) -> (f64, f64, f64) {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(0.0, f64::max);
    (median(&mut values.to_vec()), low, high)
}

fn removed(seconds: f64) -> String {
    format!("all removed {seconds:.1} s after their second")
}

impl Results {
    /// Bolide's rate in that of a peer, repetition by repetition.
    fn ratios(figures: &[Figures], peer: usize) -> Vec<f64> {
        let rates = |index: usize| figures.get(index).map(|figures| figures.rates.as_slice());
        let (bolide, peer) = (
            rates(0).unwrap_or_default(),
            rates(peer).unwrap_or_default(),
        );
        bolide
            .iter()
            .zip(peer)
            .map(|(ours, theirs)| ours / theirs)
            .collect()
    }

    fn table(&self) -> String {
        let head = [
            "work",
            "peer",
            "rate /s",
            "p99 ms",
            "Bolide, of the peer's rate",
            "wrong answers",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        for (work, figures) in &self.figures {
            for (index, (peer, _)) in self.peers.iter().enumerate() {
                let Some(own) = figures.get(index).filter(|own| !own.rates.is_empty()) else {
                    continue;
                };
                let (ratio, low, high) = spread(&Self::ratios(figures, index));
                lines.push([
                    (*work).to_owned(),
                    peer.clone(),
                    grouped(median(&mut own.rates.clone())),
                    format!("{:.2}", median(&mut own.p99_millis.clone())),
                    match index {
                        0 => "–".to_owned(),
                        _ => format!("{ratio:.2} × ({low:.2} to {high:.2})"),
                    },
                    own.errors.to_string(),
                ]);
            }
        }
        for ((peer, _), purge) in self.peers.iter().zip(&self.purges) {
            if let Some(seconds) = purge {
                let cells = ["expiry", peer, "", "", &removed(*seconds), ""];
                lines.push(cells.map(str::to_owned));
            }
        }
        let mut text = aligned(&lines, &[2, 3]);
        text.push_str("\nwhat they guarantee, as they run here\n");
        for (peer, guarantees) in &self.peers {
            let _ = writeln!(text, "  {peer}: {guarantees}");
        }
        for missing in &self.missing {
            let _ = writeln!(text, "left out: {missing}");
        }
        text
    }

    fn json(&self) -> Value {
        let peers = self
            .peers
            .iter()
            .enumerate()
            .map(|(index, (name, guarantees))| {
                let works = self.figures.iter().map(|(work, figures)| {
                    let own = figures.get(index).cloned().unwrap_or_default();
                    json!({
                        "work": work,
                        "rates": own.rates,
                        "p99_ms": own.p99_millis,
                        "wrong_answers": own.errors,
                        "bolide_ratios": Self::ratios(figures, index),
                    })
                });
                json!({
                    "peer": name,
                    "guarantees": guarantees,
                    "works": works.collect::<Vec<_>>(),
                    "removed_after_seconds": self.purges.get(index).copied().flatten(),
                })
            });
        json!({ "peers": peers.collect::<Vec<_>>(), "left_out": self.missing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_formed_within_a_repetition_and_have_a_spread() {
        let figures = |rates: &[f64]| Figures {
            rates: rates.to_vec(),
            p99_millis: vec![1.0; rates.len()],
            errors: 0,
        };
        let results = Results {
            peers: vec![("Bolide".to_owned(), "a"), ("Other".to_owned(), "b")],
            figures: vec![(
                "read",
                vec![
                    figures(&[100.0, 50.0, 90.0]),
                    figures(&[200.0, 200.0, 60.0]),
                ],
            )],
            purges: vec![Some(0.5), None],
            missing: vec!["x is not installed: apt-get install x".to_owned()],
        };
        let table = results.table();
        for part in [
            "0.50 × (0.25 to 1.50)",
            "all removed 0.5 s",
            "Other: b",
            "apt-get install x",
        ] {
            assert!(table.contains(part), "no {part} in {table}");
        }
        assert_eq!(
            results.json()["peers"][1]["works"][0]["bolide_ratios"][0],
            0.5
        );
    }
}
