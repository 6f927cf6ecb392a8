//! The send queue of one connection.
//!
//! A sender writes to the socket itself as long as that takes bytes: waking another thread would
//! cost more than the write. What the socket does not take waits here, up to a bound, for the task
//! of the connection. So do messages that are written together with others.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{net::tcp::OwnedWriteHalf, sync::Notify, time::timeout};

use super::{
    frame::Sealed,
    message::PeerMessage,
    wire::{BUFFER_BYTES_KEPT_MAX, DisconnectReason, PEER_TIMEOUT},
};
use crate::cluster::FRAME_BYTES_MAX;

/// Bytes that may be queued for one node.
const QUEUED_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// An idle connection carries a heartbeat this often.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

pub struct SendQueue {
    writer: OwnedWriteHalf,
    sending: Mutex<Sending>,
    /// Notified when the socket did not take all bytes.
    backlog: Notify,
    /// Notified when the connection is replaced or must end.
    pub closed: Notify,
}

struct Sending {
    sealing: Sealed,
    /// Frames, of which `sent` bytes are sent.
    frames: Vec<u8>,
    sent: usize,
    /// Whether a message was queued since the last heartbeat was due.
    is_active: bool,
}

impl Sending {
    /// Drops sent bytes. Moving the rest pays only when there are many of them.
    fn drop_sent(&mut self) {
        if self.sent > BUFFER_BYTES_KEPT_MAX {
            self.frames.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Writes what the socket takes. Returns whether nothing is left.
    fn write(&mut self, writer: &OwnedWriteHalf) -> io::Result<bool> {
        while let Some(rest) = self.frames.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match writer.try_write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => {
                    self.drop_sent();
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.sent = 0;
        self.frames.clear();
        if self.frames.capacity() > BUFFER_BYTES_KEPT_MAX {
            self.frames = Vec::new();
        }
        Ok(true)
    }
}

impl SendQueue {
    pub fn new(writer: OwnedWriteHalf, sealing: Sealed) -> Self {
        Self {
            writer,
            sending: Mutex::new(Sending {
                sealing,
                frames: Vec::new(),
                sent: 0,
                is_active: false,
            }),
            backlog: Notify::new(),
            closed: Notify::new(),
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an encoded message, to be flushed. Returns `false` if the queue is full.
    pub fn put(&self, message: &[u8]) -> bool {
        let mut sending = self.sending();
        let Sending {
            sealing, frames, ..
        } = &mut *sending;
        if frames.len() + message.len() > QUEUED_BYTES_MAX || sealing.seal(message, frames).is_err()
        {
            return false;
        }
        sending.is_active = true;
        true
    }

    /// Sends what is queued.
    pub fn flush(&self) {
        // The task of the connection meets a failure, too.
        if !self.write().unwrap_or(false) {
            self.backlog.notify_one();
        }
    }

    fn write(&self) -> io::Result<bool> {
        self.sending().write(&self.writer)
    }

    /// Sends what is queued, and heartbeats, until the connection fails.
    pub async fn keep_sending(&self) -> DisconnectReason {
        loop {
            let backlog = timeout(HEARTBEAT_INTERVAL, self.backlog.notified());
            if backlog.await.is_err() {
                let is_active = std::mem::take(&mut self.sending().is_active);
                if !is_active {
                    self.put(&PeerMessage::Heartbeat.encode());
                }
            }
            loop {
                match self.write() {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(failure) => return failure.into(),
                }
                match timeout(PEER_TIMEOUT, self.writer.writable()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => return failure.into(),
                    Err(silence) => return silence.into(),
                }
            }
        }
    }
}
