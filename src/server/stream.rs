//! A socket that notes what happens on it, and whose first bytes can be looked at before they are
//! read.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::activity::Activity;

/// What every HTTP/2 connection begins with.
const HTTP2_PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// Bytes that a peer may send after the connection was closed for it, at most.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The protocol that the first bytes of a connection are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    Tls,
    Http2,
    /// HTTP/1.1, or nothing that is known: its parser says so.
    Other,
}

impl FirstBytes {
    /// Returns the protocol, or `None` while these bytes can still be of two.
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [TLS_HANDSHAKE, ..] => Some(Self::Tls),
            [] => None,
            bytes if bytes.len() == HTTP2_PREFACE.len() && bytes == HTTP2_PREFACE => {
                Some(Self::Http2)
            }
            bytes if HTTP2_PREFACE.starts_with(bytes) => None,
            _ => Some(Self::Other),
        }
    }
}

pub struct WatchedStream {
    socket: TcpStream,
    activity: Rc<Activity>,
    first: [u8; HTTP2_PREFACE.len()],
    first_read: usize,
    first_filled: usize,
    /// Bytes that were read and dropped after the connection was closed.
    lingered: Option<usize>,
    at_end: bool,
}

impl WatchedStream {
    pub fn new(socket: TcpStream, activity: Rc<Activity>) -> Self {
        Self {
            socket,
            activity,
            first: [0; HTTP2_PREFACE.len()],
            first_read: 0,
            first_filled: 0,
            lingered: None,
            at_end: false,
        }
    }

    /// Waits for the first bytes and says what they are of; whoever reads gets them. `None`: the
    /// peer has closed the connection before.
    pub async fn first_bytes(&mut self) -> io::Result<Option<FirstBytes>> {
        loop {
            let space = self.first.get_mut(self.first_filled..).unwrap_or_default();
            let count = self.socket.read(space).await?;
            if count == 0 {
                return Ok(None);
            }
            self.first_filled += count;
            let filled = self.first.get(..self.first_filled).unwrap_or_default();
            if let Some(found) = FirstBytes::of(filled) {
                return Ok(Some(found));
            }
        }
    }

    /// Reads what the peer still sends, until it closes.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut dropped = [0; 16 * 1024];
        loop {
            let mut buffer = ReadBuf::new(&mut dropped);
            match ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    let total = self.lingered.unwrap_or_default() + buffer.filled().len();
                    self.lingered = Some(total);
                    if total > LINGER_BYTES_MAX {
                        return Poll::Ready(());
                    }
                }
                _ => return Poll::Ready(()),
            }
        }
    }

    fn note<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.wrote(written.is_pending());
        written
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first_read < self.first_filled {
            let first = self.first.get(self.first_read..self.first_filled);
            let first = first.unwrap_or_default();
            let count = first.len().min(buffer.remaining());
            buffer.put_slice(first.get(..count).unwrap_or_default());
            self.first_read += count;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            match buffer.filled().len() > before {
                true => self.activity.received(),
                false => self.at_end = true,
            }
        }
        read
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingered.is_none() {
            let must_linger = self.activity.close() && !self.at_end;
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
            if !must_linger {
                return Poll::Ready(Ok(()));
            }
            self.lingered = Some(0);
        }
        self.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_protocol_as_soon_as_they_can() {
        for (bytes, expected) in [
            (&b""[..], None),
            (b"P", None),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", None),
            (HTTP2_PREFACE, Some(FirstBytes::Http2)),
            (b"PO", Some(FirstBytes::Other)),
            (b"GET / HTTP/1.1\r\n", Some(FirstBytes::Other)),
            (b"\x16\x03\x01", Some(FirstBytes::Tls)),
            (b"\0", Some(FirstBytes::Other)),
        ] {
            assert_eq!(FirstBytes::of(bytes), expected, "{bytes:?}");
        }
    }
}
