//! Many containers with an item each: what they take, how soon they are made, opened and purged.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::few_due::{PURGE_SECONDS_MAX, PURGED};
use super::{Context, SETTLE, megabytes};
use crate::bench::account;
use crate::bench::connection::Connection;
use crate::bench::endpoint::Endpoint;
use crate::bench::node::Node;
use crate::bench::process::disk_bytes;
use crate::bench::report::{Bar, Unit};
use crate::bench::request::{DATABASE, Request, container_link, partition_key_header};
use crate::client::signer::{Signer, unix_seconds};
use crate::clock;
use crate::model::error::{Error, Result};

const CASE: &str = "many containers";
const FOLDER: &str = "many";
/// The item of each container, and its partition key.
const ID: &str = "1";
/// What a megabyte has, for figures of each container.
const KILO: f64 = 1_024.0;
/// How long the node is left alone to see what containers cost at rest.
const REST: Duration = Duration::from_secs(5);
/// How often it is looked whether all shards are open, or all items purged.
const POLL: Duration = Duration::from_millis(10);
/// How long all shards may take to open.
const OPEN_SECONDS_MAX: u64 = 120;
/// Items fall due so long after the first of them is written, and a second more for so many of them.
const DUE_SECONDS: u64 = 4;
const WRITES_PER_SECOND_MIN: u32 = 50;

pub async fn run(context: &Context<'_>) -> Result<()> {
    let count = context.options.containers;
    let node = context.bench.start_node(FOLDER).await?;
    node.create_database().await?;
    let empty = Taken::by(&node)?;
    let mut client = Client::of(context, &node).await?;
    create(context, &mut client, count).await?;
    Taken::by(&node)?.report(context, &empty, "without items");
    for number in 0..count {
        client.write(number, None).await?;
    }
    node.settle(SETTLE).await?;
    Taken::by(&node)?.report(context, &empty, "with an item");
    rest(context, &node).await?;
    expire(context, &node, &mut client, count).await?;
    drop(client);
    restart(context, node, count).await
}

/// Makes all containers, one after the other.
async fn create(context: &Context<'_>, client: &mut Client, count: u32) -> Result<()> {
    let tenth = count.div_ceil(10);
    let mut ends = Vec::new();
    let begun = Instant::now();
    for number in 0..count {
        client.create(number).await?;
        ends.push(begun.elapsed().as_secs_f64());
    }
    let end = |number: u32| {
        number
            .checked_sub(1)
            .and_then(|last| ends.get(last as usize))
    };
    let between = |from: u32, to: u32| {
        let seconds = end(to).unwrap_or(&0.0) - end(from).unwrap_or(&0.0);
        f64::from(to - from) / seconds
    };
    let (first, last) = (between(0, tenth), between(count - tenth, count));
    let add = |figure, value, unit, bar| context.add(CASE, figure, value, unit, bar);
    add("containers", f64::from(count), Unit::Count, Bar::None);
    add("creates, first tenth", first, Unit::PerSecond, Bar::None);
    add("creates, last tenth", last, Unit::PerSecond, Bar::None);
    let figure = "creates, last tenth, of the first's";
    add(figure, last / first, Unit::Times, Bar::AtLeast(0.5));
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
    fn by(node: &Node) -> Result<Self> {
        let shards = std::fs::read_dir(node.data.join("shards"));
        Ok(Self {
            containers: shards.map_or(0, |shards| shards.count() as u32),
            disk: disk_bytes(&node.data),
            descriptors: node.server.descriptors()?,
            resident: node.server.resident_bytes()?.0,
        })
    }

    /// What each container takes, beyond what the node took without any.
    fn report(&self, context: &Context<'_>, empty: &Self, which: &str) {
        let each = |all: f64, before: f64| (all - before) / f64::from(self.containers);
        let add = |figure: &str, value, unit, bar| {
            context.add(CASE, &format!("{which}, {figure}"), value, unit, bar);
        };
        let disk = each(megabytes(self.disk), megabytes(empty.disk));
        add(
            "disk of each",
            disk * KILO,
            Unit::Kilobytes,
            Bar::AtMost(KILO),
        );
        let descriptors = each(self.descriptors as f64, empty.descriptors as f64);
        let bar = Bar::AtMost(7.0);
        add("descriptors of each", descriptors, Unit::Each, bar);
        let memory = each(megabytes(self.resident), megabytes(empty.resident));
        add("memory of each", memory * KILO, Unit::Kilobytes, Bar::None);
        let memory = megabytes(self.resident);
        add("resident memory", memory, Unit::Megabytes, Bar::None);
    }
}

async fn rest(context: &Context<'_>, node: &Node) -> Result<()> {
    let before = node.server.cpu()?;
    tokio::time::sleep(REST).await;
    let busy = node.server.cpu()?.saturating_sub(before);
    let share = busy.as_secs_f64() / REST.as_secs_f64();
    let figure = "CPU at rest, of a core";
    context.add(CASE, figure, share, Unit::Share, Bar::AtMost(0.02));
    Ok(())
}

/// The items of all containers fall due in one second.
async fn expire(context: &Context<'_>, node: &Node, client: &mut Client, count: u32) -> Result<()> {
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
    context.add(CASE, figure, f64::from(seen), Unit::Count, Bar::AtMost(0.0));
    while node.counter(PURGED).await? < before + u64::from(count) {
        if clock::wall().saturating_sub(last).as_secs() > PURGE_SECONDS_MAX {
            return Err(Error::unavailable(
                "not all items that fell due were purged",
            ));
        }
        tokio::time::sleep(POLL).await;
    }
    let lag = clock::wall().saturating_sub(last).as_secs_f64();
    let figure = "an item of each purged after their second";
    context.add(CASE, figure, lag, Unit::Seconds, Bar::AtMost(2.0));
    for number in 0..count {
        client.write(number, None).await?;
    }
    Ok(())
}

async fn restart(context: &Context<'_>, node: Node, count: u32) -> Result<()> {
    let add = |figure: &str, time: Duration, bar| {
        context.add(CASE, figure, time.as_secs_f64(), Unit::Seconds, bar);
    };
    add("clean stop", node.server.stop().await?, Bar::None);
    let data = context.bench.scratch.path().join(FOLDER);
    let stopped = megabytes(disk_bytes(&data)) * KILO / f64::from(count);
    let figure = "after a clean stop, disk of each";
    context.add(CASE, figure, stopped, Unit::Kilobytes, Bar::AtMost(KILO));
    // The last one in line.
    let item = Item::of(count - 1);
    let begun = Instant::now();
    let node = context.bench.start_node_until(FOLDER, &item.read()).await?;
    let bar = Bar::AtMost(1.0);
    add("restart to first answered read", node.start, bar);
    all_open(&node.health).await?;
    add("restart until all are open", begun.elapsed(), Bar::None);
    // Dropping a node kills it.
    drop(node);
    let begun = Instant::now();
    let node = context.bench.start_node_until(FOLDER, &item.read()).await?;
    add(
        "restart after kill -9 to first answered read",
        node.start,
        bar,
    );
    all_open(&node.health).await?;
    let figure = "restart after kill -9 until all are open";
    add(figure, begun.elapsed(), Bar::None);
    Ok(())
}

async fn all_open(health: &Endpoint) -> Result<()> {
    let begun = Instant::now();
    while account::ready(health).await?["opening"] != 0 {
        if begun.elapsed().as_secs() > OPEN_SECONDS_MAX {
            return Err(Error::unavailable("not all shards could be opened"));
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// One connection to the node.
struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    async fn of(context: &Context<'_>, node: &Node) -> Result<Self> {
        let endpoint = Endpoint::local(node.server.port);
        let connection = Connection::open_to(&endpoint).await.map_err(lost)?;
        let signer = context.bench.signer.for_host(&endpoint.authority());
        Ok(Self { connection, signer })
    }

    async fn send(&mut self, request: &Request<'_>) -> Result<(u16, Value)> {
        let mut bytes = Vec::new();
        request.write(&mut bytes, &self.signer, unix_seconds());
        let answer = self.connection.exchange(&bytes).await.map_err(lost)?;
        let body = serde_json::from_slice(answer.body).unwrap_or_default();
        Ok((answer.status, body))
    }

    async fn create(&mut self, number: u32) -> Result<()> {
        let link = format!("dbs/{DATABASE}");
        let definition = json!({
            "id": name(number),
            "partitionKey": { "paths": ["/id"], "kind": "Hash", "version": 2 },
            "defaultTtl": -1,
        })
        .to_string();
        let request = Request {
            verb: "POST",
            path: &format!("/{link}/colls"),
            resource_type: "colls",
            link: &link,
            headers: Vec::new(),
            body: definition.as_bytes(),
        };
        match self.send(&request).await? {
            (201, _) => Ok(()),
            refused => Err(unexpected("create of a container", &refused)),
        }
    }

    /// Writes the item of a container; its `_ts`.
    async fn write(&mut self, number: u32, ttl: Option<u64>) -> Result<u64> {
        let link = container_link(&name(number));
        let item = json!({ "id": ID, "ttl": ttl.map_or(json!(-1), Value::from) }).to_string();
        let key = partition_key_header(ID);
        let request = Request {
            verb: "POST",
            path: &format!("/{link}/docs"),
            resource_type: "docs",
            link: &link,
            headers: vec![
                ("x-ms-documentdb-partitionkey", &key),
                ("x-ms-documentdb-is-upsert", "True"),
            ],
            body: item.as_bytes(),
        };
        let answer = self.send(&request).await?;
        let written = answer.1["_ts"].as_u64();
        written.ok_or_else(|| unexpected("write of an item", &answer))
    }

    /// Reads the item of a container; the status.
    async fn read(&mut self, number: u32) -> Result<u16> {
        let answer = self.send(&Item::of(number).read()).await?;
        Ok(answer.0)
    }
}

/// The item of a container.
struct Item {
    path: String,
    key: String,
}

impl Item {
    fn of(number: u32) -> Self {
        Self {
            path: format!("/{}/docs/{ID}", container_link(&name(number))),
            key: partition_key_header(ID),
        }
    }

    fn read(&self) -> Request<'_> {
        Request {
            verb: "GET",
            path: &self.path,
            resource_type: "docs",
            link: self.path.trim_start_matches('/'),
            headers: vec![("x-ms-documentdb-partitionkey", &self.key)],
            body: b"",
        }
    }
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
