//! Small questions to a health port.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::Value;

const TIME_MAX: Duration = Duration::from_secs(2);
/// The status of thousands of shards.
const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// `GET` of a JSON document from this machine; `None` when there is none to be had.
pub fn get(port: u16, path: &str) -> Option<Value> {
    get_within(port, path, TIME_MAX)
}

/// The same, for an answer that takes long.
pub fn get_within(port: u16, path: &str, time_max: Duration) -> Option<Value> {
    ask(port, "GET", path, time_max).map(|(_, answer)| answer)
}

/// `POST` without a body: the status and what is answered.
pub fn post(port: u16, path: &str) -> Option<(u16, Value)> {
    ask(port, "POST", path, TIME_MAX)
}

fn ask(port: u16, method: &str, path: &str, time_max: Duration) -> Option<(u16, Value)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, TIME_MAX).ok()?;
    stream.set_read_timeout(Some(time_max)).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut answer)
        .ok()?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let status = answer
        .get(9..12)
        .and_then(|digits| std::str::from_utf8(digits).ok());
    let answered = serde_json::from_slice(answer.get(end + 4..)?).ok()?;
    Some((status?.parse().ok()?, answered))
}
