//! PostgreSQL as a peer: jsonb rows with the second in which they are due.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use bytes::{BufMut as _, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use super::peer::{ComparedPeer, Host, Speaker, Variant, missing};
use super::wire;
use crate::bench::item;
use crate::bench::process::{Scratch, ServerProcess, find_binary, free_port};
use crate::client::endpoint::Endpoint;
use crate::model::error::{Error, Result};

const PACKAGE: &str = "postgresql";
/// Where Debian puts the server's programs, a folder for each version.
const FOLDERS: &str = "/usr/lib/postgresql";
/// Rows that one statement of the purge deletes.
const PURGE_ROWS: u32 = 1_000;
const READ: &str = "read";
const WRITE: &str = "write";
const PURGE: &str = "purge";
/// The parameters are sent as text.
const TEXT: i16 = 0;

/// Values of `synchronous_commit`.
pub const VARIANTS: [Variant; 2] = [
    Variant {
        setting: "on",
        name: "PostgreSQL, synchronous_commit on",
        guarantees: "a write is on disk before its answer; expiry is what the queries make of a \
            column, rows go by batched DELETE",
    },
    Variant {
        setting: "off",
        name: "PostgreSQL, synchronous_commit off",
        guarantees: "a crash loses up to 0.6 s of acknowledged writes; expiry is what the queries \
            make of a column, rows go by batched DELETE",
    },
];

/// Starts a PostgreSQL of its own; an explanation where it is not installed.
pub async fn start(scratch: &Scratch, variant: &Variant) -> Result<Result<ComparedPeer, String>> {
    let folders = version_folders();
    let (Some(postgres), Some(initdb)) = (
        find_binary("postgres", &folders),
        find_binary("initdb", &folders),
    ) else {
        return Ok(Err(missing("postgres", PACKAGE)));
    };
    let data = scratch.folder(&format!("postgres-{}", variant.setting))?;
    let user = server_user();
    if let Some((uid, gid)) = user {
        let owned = std::os::unix::fs::chown(&data, Some(uid), Some(gid));
        owned.map_err(|error| {
            Error::unavailable(format!("cannot hand '{}' over: {error}", data.display()))
        })?;
    }
    let mut init = Command::new(initdb);
    init.args(["-D".as_ref(), data.as_os_str()]);
    init.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]);
    init.current_dir(&data);
    as_user(&mut init, user);
    let made = init.output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        let told = made.map(|made| String::from_utf8_lossy(&made.stderr).into_owned());
        let told = told.unwrap_or_else(|error| error.to_string());
        return Err(Error::unavailable(format!(
            "initdb failed: {}",
            told.trim()
        )));
    }
    let port = free_port()?;
    let mut command = Command::new(postgres);
    command.args(["-D".as_ref(), data.as_os_str()]);
    let settings = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("synchronous_commit={}", variant.setting),
        "max_connections=300".to_owned(),
        "shared_buffers=256MB".to_owned(),
    ];
    for setting in &settings {
        command.args(["-c", setting]);
    }
    as_user(&mut command, user);
    let mut server = ServerProcess::spawn_command(variant.name, &data, command, port)?;
    let plain = Endpoint::speaking(wire::postgres, port, vec![startup()]);
    server.answering_at(&plain, &simple("SELECT 1")).await?;
    let table = "CREATE TABLE items (id text PRIMARY KEY, body jsonb NOT NULL, \
        due timestamptz NOT NULL); CREATE INDEX items_due ON items (due)";
    server.answering_at(&plain, &simple(table)).await?;
    Ok(Ok(ComparedPeer {
        name: variant.name.to_owned(),
        guarantees: variant.guarantees,
        endpoint: Endpoint::speaking(wire::postgres, port, vec![startup(), statements()]),
        speaker: Speaker::Postgres,
        host: Host::Own(server),
    }))
}

/// The newest version first.
fn version_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDERS).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders
}

/// The server refuses to run as root; Debian's package brings a user for it.
fn server_user() -> Option<(u32, u32)> {
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = users.lines().find(|line| line.starts_with("postgres:"))?;
    let mut fields = line.split(':').skip(2);
    let uid = fields.next()?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    is_root.then_some((uid, gid))
}

fn as_user(command: &mut Command, user: Option<(u32, u32)>) {
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
}

fn startup() -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let parameters = [("user", "postgres"), ("database", "postgres")];
    // Encoding to memory fails only for texts with a zero byte.
    let _ = frontend::startup_message(parameters, &mut bytes);
    bytes.to_vec()
}

fn simple(query: &str) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let _ = frontend::query(query, &mut bytes);
    bytes.to_vec()
}

/// Prepares what a connection sends again and again.
fn statements() -> Vec<u8> {
    let purge = format!(
        "DELETE FROM items WHERE id IN \
         (SELECT id FROM items WHERE due <= now() LIMIT {PURGE_ROWS}) RETURNING 1"
    );
    let table = [
        (
            READ,
            "SELECT body FROM items WHERE id = $1::text AND due > now()",
        ),
        (
            WRITE,
            "INSERT INTO items VALUES ($1::text, $2::text::jsonb, \
             date_trunc('second', now()) + make_interval(secs => $3::text::int)) \
             ON CONFLICT (id) DO UPDATE SET body = EXCLUDED.body, due = EXCLUDED.due",
        ),
        (PURGE, &purge),
    ];
    let mut bytes = BytesMut::new();
    for (name, query) in table {
        let _ = frontend::parse(name, query, [], &mut bytes);
    }
    frontend::sync(&mut bytes);
    bytes.to_vec()
}

fn run(target: &mut Vec<u8>, statement: &str, parameters: &[&[u8]]) {
    let mut bytes = BytesMut::new();
    let write = |parameter: &[u8], bytes: &mut BytesMut| {
        bytes.put_slice(parameter);
        Ok(IsNull::No)
    };
    let _ = frontend::bind(
        "",
        statement,
        [TEXT],
        parameters.iter().copied(),
        write,
        [TEXT],
        &mut bytes,
    );
    let _ = frontend::describe(b'P', "", &mut bytes);
    let _ = frontend::execute("", 0, &mut bytes);
    frontend::sync(&mut bytes);
    target.extend_from_slice(&bytes);
}

pub fn read(target: &mut Vec<u8>, number: u64) {
    run(target, READ, &[item::id(number).as_bytes()]);
}

pub fn set(target: &mut Vec<u8>, number: u64, body: &[u8], ttl: u64) {
    let (id, ttl) = (item::id(number), ttl.to_string());
    run(target, WRITE, &[id.as_bytes(), body, ttl.as_bytes()]);
}

/// Deletes some of the rows that are due; without any it finds nothing.
pub fn purge(target: &mut Vec<u8>) {
    run(target, PURGE, &[]);
}
