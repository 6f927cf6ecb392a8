//! Many containers with an item each: what they take, how soon they are made, opened and purged.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::SETTLE_TIMEOUT;
use super::few_due::{PURGE_TIMEOUT, PURGED};
use crate::bench::account;
use crate::bench::context::CaseContext;
use crate::bench::node::MeasuredNode;
use crate::bench::process::disk_bytes;
use crate::bench::report::Unit::{
    Count, Each, Kilobytes, Megabytes, PerSecond, Seconds, Share, Times,
};
use crate::bench::report::{CaseReport, megabytes};
use crate::bench::request::{CosmosRequest, DATABASE_LINK, container_link};
use crate::client::connection::Connection;
use crate::client::endpoint::Endpoint;
use crate::client::{Signer, unix_seconds};
use crate::clock;
use crate::model::error::{Error, Result};

const FOLDER: &str = "many";
/// The item of each container, and its partition key.
const ID: &str = "1";
/// What a megabyte has, for figures of each container.
const KILO: f64 = 1_024.0;
/// How long the node is left alone to see what containers cost at rest.
const REST: Duration = Duration::from_secs(5);
/// How often it is looked whether all shards are open, or all items purged.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How long all shards may take to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Items expire so long after the first of them is written, and a second more for so many of them.
const DUE_SECONDS: u64 = 4;
const WRITES_PER_SECOND_MIN: u32 = 50;

pub async fn run(context: &CaseContext<'_>, count: u32) -> Result<()> {
    let case = context.case("many containers");
    let node = context.bench.start_node(FOLDER).await?;
    node.create_database().await?;
    let empty = Taken::by(&node)?;
    let mut client = Client::of(context, &node).await?;
    create(case, &mut client, count).await?;
    Taken::by(&node)?.report(case, &empty, "without items");
    for number in 0..count {
        client.write(number, None).await?;
    }
    node.settle(SETTLE_TIMEOUT).await?;
    Taken::by(&node)?.report(case, &empty, "with an item");
    rest(case, &node).await?;
    expire(case, &node, &mut client, count).await?;
    drop(client);
    restart(context, case, node, count).await
}

/// Makes all containers, one after the other.
async fn create(case: CaseReport<'_>, client: &mut Client, count: u32) -> Result<()> {
    let tenth = count.div_ceil(10);
    let mut ends = vec![0.0];
    let begun = Instant::now();
    for number in 0..count {
        client.create(number).await?;
        ends.push(begun.elapsed().as_secs_f64());
    }
    let end = |number: u32| ends.get(number as usize).copied().unwrap_or(f64::NAN);
    let rate = |from: u32, to: u32| f64::from(to - from) / (end(to) - end(from));
    let (first, last) = (rate(0, tenth), rate(count - tenth, count));
    case.show("containers", f64::from(count), Count);
    case.show("creates, first tenth", first, PerSecond);
    case.show("creates, last tenth", last, PerSecond);
    let figure = "creates, last tenth, of the first's";
    case.at_least(figure, last / first, Times, 0.5);
    Ok(())
}

/// What a node has taken of the machine.
struct Taken {
    containers: u32,
    disk: u64,
    descriptors: u64,
    resident: u64,
}

impl Taken {
    fn by(node: &MeasuredNode) -> Result<Self> {
        let shards = std::fs::read_dir(node.data.join("shards"));
        Ok(Self {
            containers: shards.map_or(0, |shards| shards.count() as u32),
            disk: disk_bytes(&node.data),
            descriptors: node.server.descriptors()?,
            resident: node.server.resident_bytes()?.0,
        })
    }

    /// Adds what each container takes, beyond what the node took without any.
    fn report(&self, case: CaseReport<'_>, empty: &Self, which: &str) {
        let each = |all: f64, before: f64| (all - before) / f64::from(self.containers);
        let kilobytes = |all: u64, before: u64| each(megabytes(all), megabytes(before)) * KILO;
        let disk = kilobytes(self.disk, empty.disk);
        case.at_most(format!("{which}, disk of each"), disk, Kilobytes, KILO);
        let descriptors = each(self.descriptors as f64, empty.descriptors as f64);
        let figure = format!("{which}, descriptors of each");
        case.at_most(figure, descriptors, Each, 7.0);
        let memory = kilobytes(self.resident, empty.resident);
        case.show(format!("{which}, memory of each"), memory, Kilobytes);
        let memory = megabytes(self.resident);
        case.show(format!("{which}, resident memory"), memory, Megabytes);
    }
}

async fn rest(case: CaseReport<'_>, node: &MeasuredNode) -> Result<()> {
    let before = node.server.cpu()?;
    tokio::time::sleep(REST).await;
    let busy = node.server.cpu()?.saturating_sub(before);
    let share = busy.as_secs_f64() / REST.as_secs_f64();
    case.at_most("CPU at rest, of a core", share, Share, 0.02);
    Ok(())
}

/// Lets the items of all containers expire in one second.
async fn expire(
    case: CaseReport<'_>,
    node: &MeasuredNode,
    client: &mut Client,
    count: u32,
) -> Result<()> {
    let before = node.counter(PURGED).await?;
    let planned = unix_seconds() + DUE_SECONDS + u64::from(count / WRITES_PER_SECOND_MIN);
    let mut due = 0;
    for number in 0..count {
        let ttl = planned.saturating_sub(unix_seconds()).max(1);
        due = due.max(client.write(number, Some(ttl)).await? + ttl);
    }
    let last = Duration::from_secs(due);
    tokio::time::sleep(last.saturating_sub(clock::wall())).await;
    let mut seen = 0;
    for number in 0..count {
        seen += u32::from(client.read(number).await? == 200);
    }
    let figure = "items that a read saw after their second";
    case.at_most(figure, f64::from(seen), Count, 0.0);
    while node.counter(PURGED).await? < before + u64::from(count) {
        if clock::wall().saturating_sub(last) > PURGE_TIMEOUT {
            return Err(Error::unavailable("not all expired items were purged"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let lag = clock::wall().saturating_sub(last).as_secs_f64();
    let figure = "an item of each purged after their second";
    case.at_most(figure, lag, Seconds, 2.0);
    for number in 0..count {
        client.write(number, None).await?;
    }
    Ok(())
}

async fn restart(
    context: &CaseContext<'_>,
    case: CaseReport<'_>,
    node: MeasuredNode,
    count: u32,
) -> Result<()> {
    let stop = node.server.stop().await?;
    case.show("clean stop", stop.as_secs_f64(), Seconds);
    let data = context.bench.scratch.path().join(FOLDER);
    let stopped = megabytes(disk_bytes(&data)) * KILO / f64::from(count);
    let figure = "after a clean stop, disk of each";
    case.at_most(figure, stopped, Kilobytes, KILO);
    for start in ["restart", "restart after kill -9"] {
        let begun = Instant::now();
        // The last one in line.
        let read = read(count - 1);
        let node = context.bench.start_node_until(FOLDER, &read).await?;
        let figure = format!("{start} to first answered read");
        case.at_most(figure, node.start.as_secs_f64(), Seconds, 1.0);
        all_open(&node.health).await?;
        let open = begun.elapsed().as_secs_f64();
        case.show(format!("{start} until all are open"), open, Seconds);
        // Dropping a node kills it.
        drop(node);
    }
    Ok(())
}

async fn all_open(health: &Endpoint) -> Result<()> {
    let begun = Instant::now();
    while account::ready(health).await?["opening"] != 0 {
        if begun.elapsed() > OPEN_TIMEOUT {
            return Err(Error::unavailable("not all shards could be opened"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// One connection to the node.
struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    async fn of(context: &CaseContext<'_>, node: &MeasuredNode) -> Result<Self> {
        let endpoint = Endpoint::local(node.server.port);
        let connection = Connection::open_to(&endpoint).await.map_err(lost)?;
        let signer = context.bench.signer.for_host(&endpoint.authority());
        Ok(Self { connection, signer })
    }

    async fn send(&mut self, request: &CosmosRequest<'_>) -> Result<(u16, Value)> {
        let bytes = request.bytes(&self.signer);
        let answer = self.connection.exchange(&bytes).await.map_err(lost)?;
        let body = serde_json::from_slice(answer.body).unwrap_or_default();
        Ok((answer.status, body))
    }

    async fn create(&mut self, number: u32) -> Result<()> {
        let definition = json!({
            "id": name(number),
            "partitionKey": { "paths": ["/id"], "kind": "Hash", "version": 2 },
            "defaultTtl": -1,
        })
        .to_string();
        let request = CosmosRequest::below("POST", DATABASE_LINK, "colls");
        match self.send(&request.body(definition.as_bytes())).await? {
            (201, _) => Ok(()),
            refused => Err(unexpected("create of a container", &refused)),
        }
    }

    /// Writes the item of a container; its `_ts`.
    async fn write(&mut self, number: u32, ttl: Option<u64>) -> Result<u64> {
        let link = container_link(&name(number));
        let item = json!({ "id": ID, "ttl": ttl.map_or(json!(-1), Value::from) }).to_string();
        let request = CosmosRequest::upsert(&link, ID, item.as_bytes());
        let answer = self.send(&request).await?;
        let written = answer.1["_ts"].as_u64();
        written.ok_or_else(|| unexpected("write of an item", &answer))
    }

    /// Reads the item of a container; the status.
    async fn read(&mut self, number: u32) -> Result<u16> {
        let answer = self.send(&read(number)).await?;
        Ok(answer.0)
    }
}

/// Returns a read of the item of a container.
fn read(number: u32) -> CosmosRequest<'static> {
    let link = format!("{}/docs/{ID}", container_link(&name(number)));
    CosmosRequest::to("GET", "docs", &link).partition_key(ID)
}

fn name(number: u32) -> String {
    format!("c{number}")
}

fn lost(failure: std::io::Error) -> Error {
    Error::unavailable(format!("the node cannot be asked: {failure}"))
}

fn unexpected(what: &str, (status, body): &(u16, Value)) -> Error {
    Error::unavailable(format!("the {what} was answered with {status}: {body}"))
}
