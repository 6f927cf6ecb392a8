//! One keep-alive HTTP/1.1 connection that reads no more of an answer than it must.

use std::io::{self, BufRead as _, ErrorKind};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Room for an answer at first; it grows with the answers.
const BUFFER_BYTES: usize = 16 * 1024;
/// Largest answer that is taken: a page of the protocol has 4 MB.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    pub status: u16,
    /// Status line and header lines.
    pub head: &'a [u8],
    pub body: &'a [u8],
}

/// The value of a header of this head, by its name in lower case.
pub fn header_of<'h>(head: &'h [u8], name: &str) -> Option<&'h str> {
    let name = format!("{name}:");
    head.split(|byte| *byte == b'\n')
        .find_map(|line| header(line, name.as_bytes()))
        .and_then(|value| std::str::from_utf8(value).ok())
        .map(str::trim)
}

impl Connection {
    pub async fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    /// Sends one request and waits for the whole answer.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let mut head: Option<Head> = None;
        loop {
            if let Some(head) = &head
                && filled >= head.length + head.body_length
            {
                let body = head.length..head.length + head.body_length;
                return Ok(Answer {
                    status: head.status,
                    head: self.buffer.get(..head.length).unwrap_or_default(),
                    body: self.buffer.get(body).unwrap_or_default(),
                });
            }
            if filled == self.buffer.len() {
                if filled >= ANSWER_BYTES_MAX {
                    return Err(malformed("an answer is larger than the driver takes"));
                }
                self.buffer.resize(filled * 2, 0);
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let read = self.stream.read(room).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if head.is_none() {
                head = Head::parse(self.buffer.get(..filled).unwrap_or_default())?;
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: usize,
    body_length: usize,
}

impl Head {
    /// The head at the start of the bytes, once it is complete.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut rest = bytes;
        let mut length = 0;
        let mut status = None;
        let mut body_length = None;
        loop {
            let before = rest;
            let taken = rest.skip_until(b'\n')?;
            let line = match before
                .get(..taken)
                .and_then(|line| line.strip_suffix(b"\n"))
            {
                Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
                None => return Ok(None),
            };
            length += taken;
            if line.is_empty() {
                break;
            }
            if status.is_none() {
                status = Some(status_of(line)?);
            } else if let Some(value) = header(line, b"content-length:") {
                let text = std::str::from_utf8(value).unwrap_or_default();
                let value = text.trim().parse::<usize>();
                body_length = Some(value.map_err(|_| malformed("a content-length is no number"))?);
            } else if header(line, b"transfer-encoding:").is_some() {
                return Err(malformed(
                    "an answer is chunked, which the driver does not read",
                ));
            }
        }
        let status = status.ok_or_else(|| malformed("an answer has no status line"))?;
        let body_length = match (status, body_length) {
            (204 | 304, _) => 0,
            (_, Some(body_length)) => body_length,
            (_, None) => return Err(malformed("an answer has no content-length")),
        };
        Ok(Some(Self {
            status,
            length,
            body_length,
        }))
    }
}

fn status_of(line: &[u8]) -> io::Result<u16> {
    let text = line
        .strip_prefix(b"HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    text.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .ok_or_else(|| malformed("an answer does not begin with HTTP/1.1 and a status"))
}

/// The value of this line if it is the header with this name (lower case, with its colon).
fn header<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

fn malformed(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\netag: \"1\"\r\n\r\nbody";
        let whole = text.len() - 4;
        for cut in 0..whole {
            assert_eq!(Head::parse(&text[..cut]).unwrap(), None, "{cut}");
        }
        let head = Head {
            status: 200,
            length: whole,
            body_length: 12,
        };
        assert_eq!(Head::parse(text).unwrap(), Some(head));
        assert_eq!(header_of(text, "etag"), Some("\"1\""));
        assert_eq!(header_of(text, "content-length"), Some("12"));
        assert_eq!(header_of(text, "body"), None);
    }

    #[test]
    fn answers_without_a_body_need_no_length() {
        for (text, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", Some((204, 0))),
            (
                "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n",
                Some((304, 0)),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", None),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                None,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", None),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n", None),
            ("\r\n", None),
        ] {
            let head = Head::parse(text.as_bytes());
            let found = head
                .ok()
                .flatten()
                .map(|head| (head.status, head.body_length));
            assert_eq!(found, expected, "{text}");
        }
    }
}
