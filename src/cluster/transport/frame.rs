//! Frames between nodes, as bytes. Integers are big-endian.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | length of what follows |
//! | 1 | version of the protocol |
//! | 8 | id of the cluster |
//! | 16 | seal: truncated HMAC-SHA-256 over the frame's number on its connection and the body |
//! | rest | body, MessagePack |
//!
//! Until both sides have proved that they know the cluster's key, the key of the seal is public, so
//! that the seal is a checksum. After that each direction of a connection has a key of its own: no
//! third party can insert, drop or replay a frame.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::cluster::FRAME_BYTES_MAX;

/// Increases with every incompatible change.
pub const PROTOCOL_VERSION: u8 = 4;
/// The longest frame of a peer that is not authenticated yet.
pub const HANDSHAKE_BYTES_MAX: usize = 1024;
/// Bytes that give the length.
pub const LENGTH_BYTES: usize = 4;

const VERSION_AT: usize = 0;
const CLUSTER_AT: usize = 1;
const SEAL_AT: usize = 9;
const SEAL_BYTES: usize = 16;
const BODY_AT: usize = SEAL_AT + SEAL_BYTES;

/// Why a frame was refused. Its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    TooLong(usize),
    TooShort(usize),
    Version(u8),
    Cluster(u64),
    Seal,
    /// The other side speaks another protocol.
    Foreign(&'static str),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(bytes) => write!(f, "a frame of {bytes} bytes is too long"),
            Self::TooShort(bytes) => write!(f, "a frame of {bytes} bytes is too short"),
            Self::Version(theirs) => write!(
                f,
                "the other node speaks version {theirs} of the protocol, not {PROTOCOL_VERSION}"
            ),
            Self::Cluster(theirs) => {
                write!(f, "the other node belongs to the cluster {theirs:016x}")
            }
            Self::Seal => f.write_str("the seal of a frame does not match"),
            Self::Foreign(protocol) => write!(
                f,
                "it speaks {protocol}: this is a REST or health port; name the address at which \
                 nodes reach each other (cluster.address or cluster.members of that node)"
            ),
        }
    }
}

impl std::error::Error for FrameError {}

type Seal = Hmac<Sha256>;

/// Returns the protocol whose first bytes these are. As a length each is far above what is allowed.
fn foreign(beginning: [u8; LENGTH_BYTES]) -> Option<&'static str> {
    const TLS_ALERT: u8 = 21;
    match beginning {
        [b'H', b'T', b'T', b'P'] => Some("HTTP"),
        [TLS_ALERT, 3, _, _] => Some("TLS"),
        _ => None,
    }
}

/// One direction of a connection: seals frames at one end, opens them at the other.
pub struct Sealed {
    cluster: u64,
    seal: Seal,
    frames: u64,
    bytes_max: usize,
}

impl Sealed {
    /// Returns the codec of the handshake, when neither side is authenticated yet.
    pub fn handshake(cluster: u64) -> Self {
        Self::with(cluster, &cluster.to_be_bytes(), HANDSHAKE_BYTES_MAX)
    }

    /// Returns the codec of an authenticated connection.
    pub fn session(cluster: u64, key: &[u8; 32]) -> Self {
        Self::with(cluster, key, FRAME_BYTES_MAX)
    }

    fn with(cluster: u64, key: &[u8], bytes_max: usize) -> Self {
        Self {
            cluster,
            seal: Seal::new_from_slice(key).expect("an HMAC takes a key of any length"),
            frames: 0,
            bytes_max,
        }
    }

    /// Appends the frame of a body.
    pub fn seal(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
        let length = BODY_AT + body.len();
        if length > self.bytes_max {
            return Err(FrameError::TooLong(length));
        }
        let seal = self.next_seal(body);
        // Checked above: it fits into 32 bits.
        out.extend_from_slice(&(length as u32).to_be_bytes());
        out.push(PROTOCOL_VERSION);
        out.extend_from_slice(&self.cluster.to_be_bytes());
        out.extend_from_slice(&seal);
        out.extend_from_slice(body);
        Ok(())
    }

    /// Returns how many bytes follow the length. Refuses a length over the bound before any memory
    /// is allocated.
    pub fn length(&self, length: [u8; LENGTH_BYTES]) -> Result<usize, FrameError> {
        if let Some(protocol) = foreign(length) {
            return Err(FrameError::Foreign(protocol));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.bytes_max {
            return Err(FrameError::TooLong(length));
        }
        if length < BODY_AT {
            return Err(FrameError::TooShort(length));
        }
        Ok(length)
    }

    /// Returns the body of a frame, given without its length.
    pub fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], FrameError> {
        let (head, body) = frame
            .split_first_chunk::<BODY_AT>()
            .ok_or(FrameError::TooShort(frame.len()))?;
        if head[VERSION_AT] != PROTOCOL_VERSION {
            return Err(FrameError::Version(head[VERSION_AT]));
        }
        let mut cluster = [0; SEAL_AT - CLUSTER_AT];
        cluster.copy_from_slice(&head[CLUSTER_AT..SEAL_AT]);
        let cluster = u64::from_be_bytes(cluster);
        if cluster != self.cluster {
            return Err(FrameError::Cluster(cluster));
        }
        let expected = self.next_seal(body);
        if !bool::from(expected.as_slice().ct_eq(&head[SEAL_AT..])) {
            return Err(FrameError::Seal);
        }
        Ok(body)
    }

    fn next_seal(&mut self, body: &[u8]) -> [u8; SEAL_BYTES] {
        let mut seal = self.seal.clone();
        seal.update(&self.frames.to_be_bytes());
        seal.update(body);
        self.frames += 1;
        let whole = seal.finalize().into_bytes();
        let mut beginning = [0; SEAL_BYTES];
        beginning.copy_from_slice(&whole[..SEAL_BYTES]);
        beginning
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: u64 = 0x0123_4567_89ab_cdef;
    const KEY: [u8; 32] = [7; 32];

    fn session() -> Sealed {
        Sealed::session(CLUSTER, &KEY)
    }

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        session().seal(body, &mut out).unwrap();
        out
    }

    /// What a receiver that expects its first frame makes of these bytes.
    fn open(bytes: &[u8]) -> Result<Vec<u8>, FrameError> {
        let mut receiver = session();
        let (length, frame) = bytes.split_first_chunk::<LENGTH_BYTES>().unwrap();
        let length = receiver.length(*length)?;
        let frame = frame
            .get(..length)
            .ok_or(FrameError::TooShort(frame.len()))?;
        receiver.open(frame).map(<[u8]>::to_vec)
    }

    proptest! {
        #[test]
        fn what_is_sealed_is_opened_in_order(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8)) {
            let (mut sender, mut receiver) = (session(), session());
            for body in bodies {
                let mut out = Vec::new();
                sender.seal(&body, &mut out).unwrap();
                prop_assert_eq!(receiver.open(&out[LENGTH_BYTES..]).unwrap(), body.as_slice());
            }
        }

        #[test]
        fn any_changed_bit_is_refused(body in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let mut bytes = sealed(&body);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(open(&bytes).is_err());
        }

        #[test]
        fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), 4..200)) {
            prop_assert!(open(&bytes).is_err());
        }

        #[test]
        fn a_frame_that_was_cut_short_is_refused(body in prop::collection::vec(any::<u8>(), 1..100), cut in 1usize..100) {
            let bytes = sealed(&body);
            let kept = bytes.len().saturating_sub(cut).max(LENGTH_BYTES);
            prop_assert!(open(&bytes[..kept]).is_err());
        }
    }

    #[test]
    fn a_frame_is_good_once_and_in_its_place() {
        let (mut sender, mut receiver) = (session(), session());
        let [mut first, mut second] = [Vec::new(), Vec::new()];
        sender.seal(b"first", &mut first).unwrap();
        sender.seal(b"second", &mut second).unwrap();
        assert_eq!(receiver.open(&first[LENGTH_BYTES..]), Ok(&b"first"[..]));
        assert_eq!(receiver.open(&first[LENGTH_BYTES..]), Err(FrameError::Seal));
        assert_eq!(
            session().open(&second[LENGTH_BYTES..]),
            Err(FrameError::Seal)
        );
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let mut bytes = sealed(b"x");
        bytes[LENGTH_BYTES] = 9;
        assert_eq!(open(&bytes), Err(FrameError::Version(9)));
        let mut bytes = sealed(b"x");
        bytes[LENGTH_BYTES + CLUSTER_AT] = 0xff;
        assert_eq!(
            open(&bytes),
            Err(FrameError::Cluster(0xff23_4567_89ab_cdef))
        );
        let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_be_bytes();
        assert_eq!(
            session().length(length),
            Err(FrameError::TooLong(FRAME_BYTES_MAX + 1))
        );
        assert_eq!(session().length([0; 4]), Err(FrameError::TooShort(0)));
        assert_eq!(session().length(*b"HTTP"), Err(FrameError::Foreign("HTTP")));
        assert_eq!(
            session().length([21, 3, 3, 0]),
            Err(FrameError::Foreign("TLS"))
        );
        let mut other = Sealed::session(CLUSTER, &[8; 32]);
        assert_eq!(
            other.open(&sealed(b"x")[LENGTH_BYTES..]),
            Err(FrameError::Seal)
        );
    }

    #[test]
    fn an_unauthenticated_peer_gets_short_frames_only() {
        let length = u32::try_from(HANDSHAKE_BYTES_MAX + 1)
            .unwrap()
            .to_be_bytes();
        assert!(Sealed::handshake(CLUSTER).length(length).is_err());
        assert!(
            Sealed::handshake(CLUSTER)
                .seal(&[0; HANDSHAKE_BYTES_MAX], &mut Vec::new())
                .is_err()
        );
    }
}
