//! One keep-alive HTTP/1.1 connection that reads no more of an answer than it must.

use std::io::{self, ErrorKind};
use std::ops::Range;

use httparse::{EMPTY_HEADER, Status, parse_chunk_size};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::endpoint::Endpoint;

/// Room for an answer at first; it grows with the answers.
const BUFFER_BYTES: usize = 16 * 1024;
/// Largest answer that is taken: the status of a node with thousands of shards.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Headers of an answer, at most.
const HEADERS_MAX: usize = 128;

/// What carries the bytes.
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.write_all(bytes).await,
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    async fn receive(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(room).await,
            Self::Tls(stream) => stream.read(room).await,
        }
    }
}

/// A whole answer at the start of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerFrame {
    /// As a status of HTTP, whatever the protocol.
    pub status: u16,
    /// Where the body is.
    pub body: Range<usize>,
}

/// Finds the first answer in received bytes, once it is complete: for protocols other than HTTP.
pub type ReadFrame = fn(&[u8]) -> io::Result<Option<AnswerFrame>>;

pub struct Connection {
    stream: Stream,
    /// None: HTTP.
    read_frame: Option<ReadFrame>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawAnswer<'a> {
    pub status: u16,
    /// Status line and headers as they came.
    pub head: &'a [u8],
    pub body: &'a [u8],
}

impl<'a> RawAnswer<'a> {
    /// Returns the value of a header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        header_of(self.head, name)
    }
}

/// Returns the value of a header of this head by its name in lower case.
pub fn header_of<'h>(head: &'h [u8], name: &str) -> Option<&'h str> {
    let mut lines = head.split(|byte| *byte == b'\n');
    lines.find_map(|line| {
        let (start, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        let is_it = start.eq_ignore_ascii_case(name.as_bytes());
        let value = std::str::from_utf8(value).ok().map(str::trim);
        is_it.then_some(value)?
    })
}

impl Connection {
    pub async fn open_to(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await?;
        stream.set_nodelay(true)?;
        let stream = match endpoint.tls() {
            None => Stream::Plain(stream),
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await?;
                Stream::Tls(Box::new(stream))
            }
        };
        let mut connection = Self {
            stream,
            read_frame: endpoint.read_frame,
            buffer: vec![0; BUFFER_BYTES],
        };
        for greeting in endpoint.greetings.iter() {
            if connection.exchange(greeting).await?.status >= 400 {
                return Err(malformed("the server refuses the connection"));
            }
        }
        Ok(connection)
    }

    /// Sends one request and waits for the whole answer.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<RawAnswer<'_>> {
        self.stream.send(request).await?;
        let mut filled = 0;
        let mut head: Option<Head> = None;
        loop {
            let received = self.buffer.get(..filled).unwrap_or_default();
            let framed = self
                .read_frame
                .map(|read_frame| read_frame(received))
                .transpose()?;
            if let Some(frame) = framed.flatten() {
                return Ok(RawAnswer {
                    status: frame.status,
                    head: b"",
                    body: self.buffer.get(frame.body).unwrap_or_default(),
                });
            }
            if let Some(head) = &head
                && let Some(end) = self.body_end(head, filled)?
            {
                return Ok(RawAnswer {
                    status: head.status,
                    head: self.buffer.get(..head.length).unwrap_or_default(),
                    body: self.buffer.get(head.length..end).unwrap_or_default(),
                });
            }
            if filled == self.buffer.len() {
                if filled >= ANSWER_BYTES_MAX {
                    return Err(malformed("an answer is larger than the driver takes"));
                }
                self.buffer.resize(filled * 2, 0);
            }
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let read = self.stream.receive(room).await?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            if head.is_none() && self.read_frame.is_none() {
                head = Head::parse(self.buffer.get(..filled).unwrap_or_default())?;
            }
        }
    }

    /// Where the body ends in the buffer, once all of it is there. The pieces of a chunked body
    /// are then put together.
    fn body_end(&mut self, head: &Head, filled: usize) -> io::Result<Option<usize>> {
        match head.body {
            BodyLength::Sized(length) => {
                let end = head.length + length;
                Ok((filled >= end).then_some(end))
            }
            BodyLength::Chunked => {
                let received = self.buffer.get(head.length..filled).unwrap_or_default();
                let Some(pieces) = chunks(received)? else {
                    return Ok(None);
                };
                let mut end = head.length;
                for piece in pieces {
                    let from = head.length + piece.start;
                    let until = head.length + piece.end;
                    self.buffer.copy_within(from..until, end);
                    end += until - from;
                }
                Ok(Some(end))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLength {
    Sized(usize),
    Chunked,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    length: usize,
    body: BodyLength,
}

impl Head {
    /// Returns the head at the start of the bytes, once it is complete.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let mut headers = [EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(bytes);
        let Status::Complete(length) = parsed.map_err(|_| malformed("an answer is not HTTP"))?
        else {
            return Ok(None);
        };
        let (Some(1), Some(status)) = (response.version, response.code) else {
            return Err(malformed(
                "an answer does not begin with HTTP/1.1 and a status",
            ));
        };
        let mut body = None;
        for header in response.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                let text = std::str::from_utf8(header.value).unwrap_or_default();
                let length = text.trim().parse::<usize>();
                let length = length.map_err(|_| malformed("a content-length is no number"))?;
                body = Some(BodyLength::Sized(length));
            } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
                body = Some(BodyLength::Chunked);
            }
        }
        let body = match (status, body) {
            (204 | 304, _) => BodyLength::Sized(0),
            (_, Some(body)) => body,
            (_, None) => return Err(malformed("an answer has no content-length")),
        };
        Ok(Some(Self {
            status,
            length,
            body,
        }))
    }
}

/// Returns where the pieces of a chunked body are, once its last one is there. Trailers are not
/// read: no server of this protocol sends any.
fn chunks(bytes: &[u8]) -> io::Result<Option<Vec<Range<usize>>>> {
    let mut pieces = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let no_number = || malformed("the size of a chunk is no number");
        let Status::Complete((start, size)) = parse_chunk_size(rest).map_err(|_| no_number())?
        else {
            return Ok(None);
        };
        let size = usize::try_from(size)
            .ok()
            .filter(|size| *size <= ANSWER_BYTES_MAX);
        let (start, size) = (at + start, size.ok_or_else(no_number)?);
        let after = start + size + b"\r\n".len();
        if bytes.len() < after {
            return Ok(None);
        }
        if size == 0 {
            return Ok(Some(pieces));
        }
        pieces.push(start..start + size);
        at = after;
    }
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
            body: BodyLength::Sized(12),
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
            ("HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", None),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n", None),
            ("\r\n", None),
        ] {
            let head = Head::parse(text.as_bytes());
            let found = head.ok().flatten().map(|head| (head.status, head.body));
            let expected = expected.map(|(status, length)| (status, BodyLength::Sized(length)));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn chunks_are_found_once_the_last_is_there() {
        let text = b"4\r\nbody\r\nA;x=1\r\n0123456789\r\n0\r\n\r\n";
        for cut in 0..text.len() {
            assert_eq!(chunks(&text[..cut]).unwrap(), None, "{cut}");
        }
        let pieces = chunks(text).unwrap().unwrap();
        let pieces: Vec<&[u8]> = pieces.into_iter().map(|piece| &text[piece]).collect();
        assert_eq!(pieces, [b"body".as_slice(), b"0123456789"]);
        assert!(chunks(b"x\r\n").is_err());
    }

    #[test]
    fn headers_are_found_whatever_their_case() {
        let answer = RawAnswer {
            status: 200,
            head: b"HTTP/1.1 200 OK\r\nETag: \"7\"\r\nx-ms-session-token: 0:1#2\r\n\r\n",
            body: b"",
        };
        assert_eq!(answer.header("etag"), Some("\"7\""));
        assert_eq!(answer.header("x-ms-session-token"), Some("0:1#2"));
        assert_eq!(answer.header("x-ms-session"), None);
    }
}
