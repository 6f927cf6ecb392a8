//! Where an answer ends in the protocols of the peers. Their own codes are made into the statuses
//! of HTTP, so that one loop serves all.

use std::io;

use postgres_protocol::message::backend::Header;
use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;

use crate::client::connection::AnswerFrame;

const FOUND: u16 = 200;
const NOT_FOUND: u16 = 404;
const FAILED: u16 = 500;

/// Tags of PostgreSQL's messages.
const READY: u8 = b'Z';
const ERROR: u8 = b'E';
const DATA_ROW: u8 = b'D';
const ROW_DESCRIPTION: u8 = b'T';
/// The tag before the length of a message.
const TAG_BYTES: usize = 1;

/// Returns the answer of Redis at the start of the bytes, once it is complete.
pub fn redis(bytes: &[u8]) -> io::Result<Option<AnswerFrame>> {
    let decoded = decode_range(bytes).map_err(io::Error::other)?;
    Ok(decoded.map(|(frame, length)| {
        let (status, body) = match frame {
            RangeFrame::BulkString((from, to)) => (FOUND, from..to),
            RangeFrame::Null => (NOT_FOUND, 0..0),
            RangeFrame::Error((from, to)) => (FAILED, from..to),
            _ => (FOUND, 0..length),
        };
        AnswerFrame { status, body }
    }))
}

/// Returns all messages of PostgreSQL up to the one that says that the server is ready again.
pub fn postgres(bytes: &[u8]) -> io::Result<Option<AnswerFrame>> {
    let mut at = 0;
    let (mut has_row, mut asks_rows, mut failed) = (false, false, false);
    let mut body = 0..0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(header) = Header::parse(rest)? else {
            return Ok(None);
        };
        let end = at + TAG_BYTES + header.len() as usize;
        if end > bytes.len() {
            return Ok(None);
        }
        match header.tag() {
            DATA_ROW => {
                has_row = true;
                body = at..end;
            }
            ROW_DESCRIPTION => asks_rows = true,
            ERROR => {
                failed = true;
                body = at..end;
            }
            READY => {
                let status = match (failed, has_row, asks_rows) {
                    (true, _, _) => FAILED,
                    (_, false, true) => NOT_FOUND,
                    _ => FOUND,
                };
                return Ok(Some(AnswerFrame { status, body }));
            }
            _ => {}
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_redis_are_framed_once_they_are_whole() {
        let table: [(&[u8], u16, &[u8]); 5] = [
            (b"+OK\r\n", 200, b"+OK\r\n"),
            (b"$3\r\nabc\r\n", 200, b"abc"),
            (b"$-1\r\n", 404, b""),
            (b":5\r\n", 200, b":5\r\n"),
            (b"-ERR no\r\n", 500, b"ERR no"),
        ];
        for (bytes, status, body) in table {
            for cut in 0..bytes.len() {
                assert_eq!(redis(&bytes[..cut]).unwrap(), None);
            }
            let frame = redis(bytes).unwrap().unwrap();
            assert_eq!((frame.status, &bytes[frame.body]), (status, body));
        }
    }

    #[test]
    fn answers_of_postgres_end_when_it_is_ready() {
        let message = |tag: u8, body: &[u8]| {
            let mut bytes = vec![tag];
            bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
            bytes.extend_from_slice(body);
            bytes
        };
        let ready = message(READY, b"I");
        let row = [message(b'2', b""), message(DATA_ROW, b"\0\x01row")].concat();
        let none = [
            message(ROW_DESCRIPTION, b"\0\0"),
            message(b'C', b"SELECT 0\0"),
        ]
        .concat();
        let failed = message(ERROR, b"no\0");
        for (bytes, status) in [(row, 200), (none, 404), (failed, 500)] {
            assert_eq!(postgres(&bytes).unwrap(), None);
            let whole = [bytes, ready.clone()].concat();
            assert_eq!(postgres(&whole).unwrap().unwrap().status, status);
        }
    }
}
