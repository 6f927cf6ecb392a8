//! Mutual authentication of two nodes: each proves that it knows the cluster's key without sending
//! it. Both send a nonce and answer the other's with an HMAC over the whole conversation. Pure: no
//! socket and no random source.
//!
//! ```text
//! dialing                                  accepting
//!    ── Hello { from, to, nonce } ────────────▶
//!    ◀──────────── Challenge { nonce, proof } ──
//!    ── Proof ────────────────────────────────▶
//! ```

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::cluster::NodeId;

/// The id of a node that has none yet, and of the node that it dials.
pub const UNKNOWN_NODE: NodeId = 0;
pub const NONCE_BYTES: usize = 32;
/// The shortest key that is accepted.
pub const KEY_BYTES_MIN: usize = 32;

pub type Nonce = [u8; NONCE_BYTES];
type Secret = [u8; 32];

/// What the nodes of a cluster share.
#[derive(Clone)]
pub struct ClusterKey(Secret);

impl ClusterKey {
    /// Makes a key of the contents of a key file; `None` if they are too short.
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= KEY_BYTES_MIN).then(|| Self(Sha256::digest(secret).into()))
    }

    fn derive(&self, purpose: &str, conversation: &[u8]) -> Secret {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length");
        // The length keeps purposes apart, whatever follows them.
        mac.update(&[purpose.len() as u8]);
        mac.update(purpose.as_bytes());
        mac.update(conversation);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(…)")
    }
}

/// Returns the id of the cluster of that name.
pub fn cluster_id(name: &str) -> u64 {
    let digest: Secret = Sha256::digest(name).into();
    let (id, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    u64::from_be_bytes(*id)
}

/// The identity of a node.
#[derive(Clone, Debug)]
pub struct Identity {
    pub cluster: u64,
    pub node: NodeId,
    pub key: ClusterKey,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    from: NodeId,
    to: NodeId,
    nonce: Nonce,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Challenge {
    nonce: Nonce,
    proof: Secret,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proof(Secret);

/// What both sides have after the handshake: the id of the peer, and a key for each direction.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    pub peer: NodeId,
    pub send: Secret,
    pub receive: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthError {
    /// The peer is another node than expected, or takes this node for another.
    Misdirected { from: NodeId, to: NodeId },
    /// The peer does not know the key.
    Proof,
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misdirected { from, to } => {
                write!(f, "node {from} wants to speak to node {to}")
            }
            Self::Proof => f.write_str("the other node does not know the cluster's key"),
        }
    }
}

impl std::error::Error for AuthError {}

/// The side that opened the connection.
pub struct Dialing<'a> {
    identity: &'a Identity,
    hello: Hello,
}

impl<'a> Dialing<'a> {
    pub fn begin(identity: &'a Identity, to: NodeId, nonce: Nonce) -> (Self, Hello) {
        let hello = Hello {
            from: identity.node,
            to,
            nonce,
        };
        let dialing = Self {
            identity,
            hello: hello.clone(),
        };
        (dialing, hello)
    }

    pub fn finish(self, challenge: &Challenge) -> Result<(Proof, Session), AuthError> {
        let key = &self.identity.key;
        let conversation = conversation(self.identity.cluster, &self.hello, &challenge.nonce);
        check(&key.derive("accepting", &conversation), &challenge.proof)?;
        let session = Session {
            peer: self.hello.to,
            send: key.derive("from dialing", &conversation),
            receive: key.derive("from accepting", &conversation),
        };
        Ok((Proof(key.derive("dialing", &conversation)), session))
    }
}

/// The side that accepted the connection.
pub struct Accepting<'a> {
    identity: &'a Identity,
    peer: NodeId,
    conversation: Vec<u8>,
}

impl<'a> Accepting<'a> {
    pub fn begin(
        identity: &'a Identity,
        hello: &Hello,
        nonce: Nonce,
    ) -> Result<(Self, Challenge), AuthError> {
        let Hello { from, to, .. } = *hello;
        let is_join = from == UNKNOWN_NODE && to == UNKNOWN_NODE;
        if !is_join && (to != identity.node || from == identity.node) {
            return Err(AuthError::Misdirected { from, to });
        }
        let conversation = conversation(identity.cluster, hello, &nonce);
        let proof = identity.key.derive("accepting", &conversation);
        let accepting = Self {
            identity,
            peer: from,
            conversation,
        };
        Ok((accepting, Challenge { nonce, proof }))
    }

    pub fn finish(self, proof: &Proof) -> Result<Session, AuthError> {
        let key = &self.identity.key;
        check(&key.derive("dialing", &self.conversation), &proof.0)?;
        Ok(Session {
            peer: self.peer,
            send: key.derive("from accepting", &self.conversation),
            receive: key.derive("from dialing", &self.conversation),
        })
    }
}

fn conversation(cluster: u64, hello: &Hello, answer: &Nonce) -> Vec<u8> {
    let Hello { from, to, nonce } = hello;
    let numbers = [cluster, *from, *to].map(u64::to_be_bytes).concat();
    [numbers.as_slice(), nonce, answer].concat()
}

fn check(expected: &Secret, given: &Secret) -> Result<(), AuthError> {
    if bool::from(expected.ct_eq(given)) {
        Ok(())
    } else {
        Err(AuthError::Proof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: NodeId, secret: u8) -> Identity {
        Identity {
            cluster: 5,
            node,
            key: ClusterKey::new(&[secret; KEY_BYTES_MIN]).unwrap(),
        }
    }

    #[test]
    fn nodes_that_share_the_key_trust_each_other() {
        let (one, two) = (node(1, 9), node(2, 9));
        let (dialing, hello) = Dialing::begin(&one, 2, [1; 32]);
        let (accepting, challenge) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
        let (proof, ours) = dialing.finish(&challenge).unwrap();
        let theirs = accepting.finish(&proof).unwrap();
        assert_eq!((ours.peer, theirs.peer), (2, 1));
        assert_eq!((&ours.send, &ours.receive), (&theirs.receive, &theirs.send));
        assert_ne!(ours.send, ours.receive);
    }

    #[test]
    fn a_node_with_another_key_is_trusted_by_neither_side() {
        let (one, stranger) = (node(1, 9), node(2, 8));
        let (dialing, hello) = Dialing::begin(&one, 2, [1; 32]);
        let (_, challenge) = Accepting::begin(&stranger, &hello, [2; 32]).unwrap();
        assert_eq!(dialing.finish(&challenge).err(), Some(AuthError::Proof));

        let two = node(2, 9);
        let (_, hello) = Dialing::begin(&one, 2, [1; 32]);
        let (accepting, challenge) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
        // All that an eavesdropper has heard is of no use as an answer.
        for guess in [challenge.proof, [0; 32]] {
            let (again, _) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
            assert_eq!(again.finish(&Proof(guess)).err(), Some(AuthError::Proof));
        }
        drop(accepting);
    }

    #[test]
    fn a_proof_is_good_for_one_conversation() {
        let (one, two) = (node(1, 9), node(2, 9));
        let (dialing, hello) = Dialing::begin(&one, 2, [1; 32]);
        let (_, challenge) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
        let (proof, _) = dialing.finish(&challenge).unwrap();
        let (replayed, _) = Accepting::begin(&two, &hello, [3; 32]).unwrap();
        assert_eq!(replayed.finish(&proof).err(), Some(AuthError::Proof));
    }

    #[test]
    fn a_connection_for_another_node_is_refused() {
        let (one, two) = (node(1, 9), node(2, 9));
        let (_, hello) = Dialing::begin(&one, 3, [1; 32]);
        let refused = Accepting::begin(&two, &hello, [2; 32]).err();
        assert_eq!(refused, Some(AuthError::Misdirected { from: 1, to: 3 }));
    }

    #[test]
    fn a_node_without_an_id_proves_the_key_to_any_node() {
        let (joins, two) = (node(UNKNOWN_NODE, 9), node(2, 9));
        let (dialing, hello) = Dialing::begin(&joins, UNKNOWN_NODE, [1; 32]);
        let (accepting, challenge) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
        let (proof, _) = dialing.finish(&challenge).unwrap();
        assert_eq!(accepting.finish(&proof).unwrap().peer, UNKNOWN_NODE);
        let stranger = node(UNKNOWN_NODE, 8);
        let (dialing, hello) = Dialing::begin(&stranger, UNKNOWN_NODE, [1; 32]);
        let (_, challenge) = Accepting::begin(&two, &hello, [2; 32]).unwrap();
        assert_eq!(dialing.finish(&challenge).err(), Some(AuthError::Proof));
        let (_, hello) = Dialing::begin(&joins, 3, [1; 32]);
        assert!(Accepting::begin(&two, &hello, [2; 32]).is_err());
    }

    #[test]
    fn short_keys_are_refused_and_none_is_printed() {
        assert!(ClusterKey::new(&[1; KEY_BYTES_MIN - 1]).is_none());
        let key = ClusterKey::new(b"a long enough secret of the cluster").unwrap();
        assert!(!format!("{key:?}").contains("secret"));
    }
}
