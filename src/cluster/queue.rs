//! What is to be sent over one connection. Whoever sends writes to the connection itself, as long as that takes it: to wake another thread for it would cost more than the
//! write. What the connection does not take waits here, up to a bound, for the task that keeps the connection; so does what is put here to be written together with more.

use std::{
    io,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{net::tcp::OwnedWriteHalf, sync::Notify, time::timeout};

use super::{
    frame::{FRAME_BYTES_MAX, Sealed},
    links::{Ended, KEPT_BUFFER_BYTES_MAX, SILENCE_MAX},
    parcel::Parcel,
};

/// Bytes that may wait for one node.
const WAITING_BYTES_MAX: usize = 2 * FRAME_BYTES_MAX;
/// A node that has nothing to say says that it is there.
const ALIVE_EVERY: Duration = Duration::from_secs(1);

pub struct Queue {
    writer: OwnedWriteHalf,
    sending: Mutex<Sending>,
    /// Something waits that the connection did not take.
    waiting: Notify,
    /// Another connection is in the place of this one, or none.
    pub closed: Notify,
}

struct Sending {
    sealing: Sealed,
    /// Frames, of which so many bytes are sent.
    frames: Vec<u8>,
    sent: usize,
    /// Whether there was something to say since somebody looked.
    spoke: bool,
}

impl Sending {
    /// What is sent counts no more for what waits; moving the rest pays when there is much of it.
    fn forget_sent(&mut self) {
        if self.sent > KEPT_BUFFER_BYTES_MAX {
            self.frames.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Gives the connection what it takes. Whether nothing waits any more.
    fn write(&mut self, writer: &OwnedWriteHalf) -> io::Result<bool> {
        while let Some(rest) = self.frames.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match writer.try_write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent += bytes,
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => {
                    self.forget_sent();
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        }
        self.sent = 0;
        self.frames.clear();
        if self.frames.capacity() > KEPT_BUFFER_BYTES_MAX {
            self.frames = Vec::new();
        }
        Ok(true)
    }
}

impl Queue {
    pub fn new(writer: OwnedWriteHalf, sealing: Sealed) -> Self {
        Self {
            writer,
            sending: Mutex::new(Sending {
                sealing,
                frames: Vec::new(),
                sent: 0,
                spoke: false,
            }),
            waiting: Notify::new(),
            closed: Notify::new(),
        }
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a parcel behind those that wait. `false`: too much does. Somebody must flush it.
    pub fn put(&self, parcel: &[u8]) -> bool {
        let mut sending = self.sending();
        let Sending {
            sealing, frames, ..
        } = &mut *sending;
        if frames.len() + parcel.len() > WAITING_BYTES_MAX || sealing.seal(parcel, frames).is_err()
        {
            return false;
        }
        sending.spoke = true;
        true
    }

    /// Sends what waits.
    pub fn flush(&self) {
        // A failure shows itself to whoever keeps the connection, too.
        if !self.write().unwrap_or(false) {
            self.waiting.notify_one();
        }
    }

    fn write(&self) -> io::Result<bool> {
        self.sending().write(&self.writer)
    }

    /// Sends what waits, and signs of life, until something is wrong.
    pub async fn keep_sending(&self) -> Ended {
        loop {
            if timeout(ALIVE_EVERY, self.waiting.notified()).await.is_err() {
                let spoke = std::mem::take(&mut self.sending().spoke);
                if !spoke {
                    self.put(&Parcel::Alive.encode());
                }
            }
            loop {
                match self.write() {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(failure) => return failure.into(),
                }
                match timeout(SILENCE_MAX, self.writer.writable()).await {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => return failure.into(),
                    Err(silence) => return silence.into(),
                }
            }
        }
    }
}
