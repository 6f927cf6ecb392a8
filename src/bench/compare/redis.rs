//! Redis as a peer: values with a time to live, made durable as its settings say.

use std::process::Command;

use bytes::BytesMut;
use redis_protocol::resp2::encode::extend_encode_borrowed;
use redis_protocol::resp2::types::BorrowedFrame;

use super::peer::{ComparedPeer, Host, Speaker, Variant, missing};
use super::wire;
use crate::bench::item;
use crate::bench::process::{Scratch, ServerProcess, find_binary, free_port};
use crate::client::endpoint::Endpoint;
use crate::model::error::Result;

const PACKAGE: &str = "redis-server";

/// How often Redis syncs its append-only file: setting, name and guarantees.
pub const VARIANTS: [Variant; 2] = [
    Variant {
        setting: "always",
        name: "Redis, appendfsync always",
        guarantees: "a write is on disk before its answer; an expired value is gone to the \
            millisecond",
    },
    Variant {
        setting: "everysec",
        name: "Redis, appendfsync everysec",
        guarantees: "a crash of the machine loses up to a second or two of acknowledged writes; \
            an expired value is gone to the millisecond",
    },
];

/// Starts a Redis of its own; an explanation where it is not installed.
pub async fn start(scratch: &Scratch, variant: &Variant) -> Result<Result<ComparedPeer, String>> {
    let Some(binary) = find_binary("redis-server", &[]) else {
        return Ok(Err(missing("redis-server", PACKAGE)));
    };
    let folder = scratch.folder(&format!("redis-{}", variant.setting))?;
    let port = free_port()?;
    let mut command = Command::new(binary);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--dir".as_ref(), folder.as_os_str()]);
    command.args(["--appendonly", "yes", "--appendfsync", variant.setting]);
    command.args(["--save", "", "--daemonize", "no"]);
    let mut server = ServerProcess::spawn_command(variant.name, &folder, command, port)?;
    let endpoint = Endpoint::speaking(wire::redis, port, Vec::new());
    let mut ping = Vec::new();
    write(&mut ping, &[b"PING"]);
    server.answering_at(&endpoint, &ping).await?;
    Ok(Ok(ComparedPeer {
        name: variant.name.to_owned(),
        guarantees: variant.guarantees,
        endpoint,
        speaker: Speaker::Redis,
        host: Host::Own(server),
    }))
}

/// Appends a command.
fn write(target: &mut Vec<u8>, parts: &[&[u8]]) {
    let parts: Vec<BorrowedFrame<'_>> = parts
        .iter()
        .map(|part| BorrowedFrame::BulkString(part))
        .collect();
    let mut bytes = BytesMut::new();
    // Encoding to memory cannot fail.
    let _ = extend_encode_borrowed(&mut bytes, &BorrowedFrame::Array(&parts), false);
    target.extend_from_slice(&bytes);
}

pub fn read(target: &mut Vec<u8>, number: u64) {
    write(target, &[b"GET", item::id(number).as_bytes()]);
}

/// A value with a time to live in seconds.
pub fn set(target: &mut Vec<u8>, number: u64, body: &[u8], ttl: u64) {
    let (id, ttl) = (item::id(number), ttl.to_string());
    write(
        target,
        &[b"SET", id.as_bytes(), body, b"EX", ttl.as_bytes()],
    );
}

/// How many values there are.
pub fn count(target: &mut Vec<u8>) {
    write(target, &[b"DBSIZE"]);
}

/// The number in an answer.
pub fn counted(body: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(body).ok()?;
    text.trim().strip_prefix(':')?.parse().ok()
}
