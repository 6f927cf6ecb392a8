//! `bolide bench compare`: the same work, alternately, against Bolide and its peers.
//!
//! Every peer is loaded by the same loop over as many connections; only the bytes differ. Servers
//! that are installed are started here and stopped at the end.

mod peer;
mod postgres;
mod redis;
mod wire;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::account::Account;
use super::load::Load;
use super::measure::Spread;
use super::node::{Launcher, MeasuredNode};
use super::options::{CompareBench, PeerName};
use super::report::{aligned, grouped};
use super::request::container_link;
use super::run::LoadTarget;
use crate::client::connection::Connection;
use crate::client::{unix_seconds, unix_time};
use crate::model::error::{Error, Result};
use peer::{ComparedPeer, Host, PeerScript, PeerWork, Speaker};

const CONTAINER: &str = "compare";
/// Items that are read and written live as long as the comparison.
const TTL_SECONDS: u64 = 86_400;
/// Share of a measurement's length that warms up before it.
const WARM_UP_SHARE: f64 = 0.2;
/// Connections that write the items.
const FILL_CONNECTIONS: u32 = 32;
const FILL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long the doomed items live, at most and at least: as long as writing them may take.
const DOOM_SECONDS_MAX: u64 = 10;
const DOOM_SECONDS_MIN: u64 = 3;
/// So many of them make it a second longer.
const DOOMED_PER_SECOND: u64 = 1_000;
/// After this they count as not removed.
const PURGE_SECONDS_MAX: f64 = 120.0;
const PURGE_POLL_INTERVAL: Duration = Duration::from_millis(20);
const PURGED: &str = "bolide_expiry_purged_items_total";

/// What was measured of one kind of work, a value for each repetition.
#[derive(Clone, Default)]
struct Figures {
    rates: Vec<f64>,
    p99_millis: Vec<f64>,
    errors: u64,
}

/// What was measured of one peer.
struct PeerResult {
    name: String,
    guarantees: &'static str,
    /// In the order of [`WORKS`].
    works: [Figures; WORKS.len()],
    /// Seconds until all expired items were removed.
    purge: Option<f64>,
}

/// The kinds of work, by their names.
const WORKS: [&str; 2] = ["read", "write"];

#[derive(Default)]
struct Results {
    /// Bolide first.
    peers: Vec<PeerResult>,
    missing: Vec<String>,
}

/// Runs the comparison to its end, or to Ctrl-C.
pub fn run(options: &CompareBench) -> Result<()> {
    let json = options.json.as_deref();
    super::show(json, "", "")?;
    let results = RefCell::new(Results::default());
    let outcome = super::until_interrupted(compare(options, &results));
    let results = results.into_inner();
    super::show(json, &results.table(), &format!("{:#}\n", results.json()))?;
    outcome
}

async fn compare(options: &CompareBench, results: &RefCell<Results>) -> Result<()> {
    let bench = Launcher::new(options.target.data_path.as_deref())?;
    let peers = start_peers(options, &bench, results).await?;
    let items = u64::from(options.items);
    for peer in &peers {
        eprintln!("writing {items} items to {}", peer.name);
        fill(peer, 0..items, TTL_SECONDS).await?;
        results.borrow_mut().peers.push(PeerResult {
            name: peer.name.clone(),
            guarantees: peer.guarantees,
            works: Default::default(),
            purge: None,
        });
    }
    let works = [
        PeerWork::Read { items },
        PeerWork::Write {
            items,
            ttl: TTL_SECONDS,
        },
    ];
    for repetition in 0..options.repetitions {
        for (at, (work, name)) in works.iter().zip(WORKS).enumerate() {
            let seed = u64::from(repetition) << 8 | at as u64;
            // Each begins with another one, so that none always comes after the same.
            let turns = peers.iter().enumerate().cycle();
            for (turn, peer) in turns.skip(repetition as usize).take(peers.len()) {
                let (rate, p99, errors) = measure(options, peer, work, seed).await?;
                eprintln!("  {name}, {}: {} /s", peer.name, grouped(rate));
                let mut results = results.borrow_mut();
                let result = results.peers.get_mut(turn);
                if let Some(figures) = result.and_then(|result| result.works.get_mut(at)) {
                    figures.rates.push(rate);
                    figures.p99_millis.push(p99);
                    figures.errors += errors;
                }
            }
        }
    }
    for (turn, peer) in peers.iter().enumerate() {
        let seconds = purge(options, peer).await?;
        if let Some(seconds) = seconds {
            eprintln!("  expiry, {}: {}", peer.name, removed(seconds));
        }
        if let Some(result) = results.borrow_mut().peers.get_mut(turn) {
            result.purge = seconds;
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
    bench: &Launcher,
    results: &RefCell<Results>,
) -> Result<Vec<ComparedPeer>> {
    let node = bench.start_node("bolide").await?;
    let mut peers = vec![bolide(node).await?];
    let mut take = |started: Result<ComparedPeer, String>| match started {
        Ok(peer) => peers.push(peer),
        Err(reason) => {
            let mut results = results.borrow_mut();
            if !results.missing.contains(&reason) {
                results.missing.push(reason);
            }
        }
    };
    if options.wants(PeerName::Redis) {
        for variant in &redis::VARIANTS {
            take(redis::start(&bench.scratch, variant).await?);
        }
    }
    if options.wants(PeerName::Postgres) {
        for variant in &postgres::VARIANTS {
            take(postgres::start(&bench.scratch, variant).await?);
        }
    }
    if !options.target.endpoint.is_empty() {
        let target = LoadTarget::open(&options.target).await?;
        target.account.check().await?;
        peers.push(elsewhere(&target.account).await?);
    }
    Ok(peers)
}

/// Makes a container at the first endpoint of an account.
async fn cosmos(
    account: &Account,
    container: &str,
    name: Option<&str>,
    guarantees: &'static str,
    host: Host,
) -> Result<ComparedPeer> {
    let Some(endpoint) = account.endpoints.first().cloned() else {
        return Err(Error::internal("the account has no endpoint"));
    };
    account.ensure_database().await?;
    let properties = json!({ "defaultTtl": -1 });
    account.create_container(container, &properties).await?;
    Ok(ComparedPeer {
        name: name.map_or_else(|| endpoint.to_string(), str::to_owned),
        guarantees,
        speaker: Speaker::Cosmos {
            signer: account.signer.for_host(&endpoint.authority()),
            link: container_link(container),
        },
        endpoint,
        host,
    })
}

async fn bolide(node: MeasuredNode) -> Result<ComparedPeer> {
    let guarantees = "a write is on disk before its answer; an expired item is gone for every \
        reader at its second, and purged behind it";
    let account = (*node).clone();
    let host = Host::Bolide(Box::new(node));
    cosmos(&account, CONTAINER, Some("Bolide"), guarantees, host).await
}

async fn elsewhere(account: &Account) -> Result<ComparedPeer> {
    let container = format!("{CONTAINER}-{:08x}", rand::random::<u32>());
    cosmos(
        account,
        &container,
        None,
        "as its maker says",
        Host::Elsewhere,
    )
    .await
}

fn start(peer: &ComparedPeer, work: &PeerWork, connections: u32, seed: u64) -> Result<Load> {
    let scripts = PeerScript::spread(&peer.speaker, work, connections, seed);
    Load::closed(vec![peer.endpoint.clone()], scripts)
}

/// Writes items that live this long.
async fn fill(peer: &ComparedPeer, numbers: Range<u64>, ttl: u64) -> Result<()> {
    let work = PeerWork::Fill {
        next: Arc::new(AtomicU64::new(numbers.start)),
        end: numbers.end,
        due: unix_seconds() + ttl,
    };
    let load = start(peer, &work, FILL_CONNECTIONS, numbers.start)?;
    load.accepted(FILL_TIMEOUT, &peer.name).await
}

/// Rate, 99th percentile in milliseconds, and wrong answers.
async fn measure(
    options: &CompareBench,
    peer: &ComparedPeer,
    work: &PeerWork,
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
async fn purge(options: &CompareBench, peer: &ComparedPeer) -> Result<Option<f64>> {
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
            tokio::time::sleep(PURGE_POLL_INTERVAL).await;
        }
    }
    Ok(None)
}

/// Whether only this many items are left. PostgreSQL removes none by itself, so a batch is deleted
/// first.
async fn is_purged(peer: &ComparedPeer, connection: &mut Connection, left: u64) -> Result<bool> {
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
    tokio::time::sleep(PURGE_POLL_INTERVAL).await;
    Ok(count <= left)
}

fn removed(seconds: f64) -> String {
    format!("all removed {seconds:.1} s after their second")
}

impl Results {
    /// Returns Bolide's rate in that of a peer, repetition by repetition.
    fn ratios(&self, peer: &PeerResult, work: usize) -> Vec<f64> {
        let rates = |result: &PeerResult| {
            let figures = result.works.get(work);
            figures
                .map(|figures| figures.rates.clone())
                .unwrap_or_default()
        };
        let bolide = self.peers.first().map(rates).unwrap_or_default();
        let pairs = bolide.into_iter().zip(rates(peer));
        pairs.map(|(ours, theirs)| ours / theirs).collect()
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
        for (at, work) in WORKS.into_iter().enumerate() {
            for (index, peer) in self.peers.iter().enumerate() {
                let own = peer.works.get(at).filter(|own| !own.rates.is_empty());
                let Some(own) = own else {
                    continue;
                };
                let ratio = Spread::of(&self.ratios(peer, at));
                lines.push([
                    work.to_owned(),
                    peer.name.clone(),
                    grouped(Spread::of(&own.rates).median),
                    format!("{:.2}", Spread::of(&own.p99_millis).median),
                    match index {
                        0 => "–".to_owned(),
                        _ => {
                            let (low, high) = (ratio.low, ratio.high);
                            format!("{:.2} × ({low:.2} to {high:.2})", ratio.median)
                        }
                    },
                    own.errors.to_string(),
                ]);
            }
        }
        for peer in &self.peers {
            if let Some(seconds) = peer.purge {
                let cells = ["expiry", &peer.name, "", "", &removed(seconds), ""];
                lines.push(cells.map(str::to_owned));
            }
        }
        let mut text = aligned(&lines, &[2, 3]);
        text.push_str("\nwhat they guarantee, as they run here\n");
        for PeerResult {
            name, guarantees, ..
        } in &self.peers
        {
            let _ = writeln!(text, "  {name}: {guarantees}");
        }
        for missing in &self.missing {
            let _ = writeln!(text, "left out: {missing}");
        }
        text
    }

    fn json(&self) -> Value {
        let peers = self.peers.iter().map(|peer| {
            let works = WORKS.into_iter().zip(&peer.works).enumerate();
            let works = works.map(|(at, (work, own))| {
                json!({
                    "work": work,
                    "rates": own.rates,
                    "p99_ms": own.p99_millis,
                    "wrong_answers": own.errors,
                    "bolide_ratios": self.ratios(peer, at),
                })
            });
            json!({
                "peer": peer.name,
                "guarantees": peer.guarantees,
                "works": works.collect::<Vec<_>>(),
                "removed_after_seconds": peer.purge,
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
        let peer = |name: &str, guarantees, rates: &[f64], purge| {
            let read = Figures {
                rates: rates.to_vec(),
                p99_millis: vec![1.0; rates.len()],
                errors: 0,
            };
            let works = [read, Figures::default()];
            let name = name.to_owned();
            PeerResult {
                name,
                guarantees,
                works,
                purge,
            }
        };
        let results = Results {
            peers: vec![
                peer("Bolide", "a", &[100.0, 50.0, 90.0], Some(0.5)),
                peer("Other", "b", &[200.0, 200.0, 60.0], None),
            ],
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
        let json = results.json();
        assert_eq!(json["peers"][1]["works"][0]["bolide_ratios"][0], 0.5);
    }
}
