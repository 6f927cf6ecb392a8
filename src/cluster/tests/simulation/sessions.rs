//! Sessions: clients that read at any node and carry a token, the index that they have seen. The
//! four guarantees of a session hold for each client and group: read your writes, monotonic reads,
//! monotonic writes, and writes follow reads.

use std::collections::{BTreeMap, BTreeSet};

use super::node::Machine;
use crate::cluster::{GroupId, NodeId};

/// Few, so that each writes and reads often.
pub const CLIENTS: u64 = 4;

#[derive(Default)]
pub struct Sessions {
    sessions: BTreeMap<(u64, GroupId), Session>,
    /// The token of a client when it proposed a value.
    proposed: BTreeMap<u64, u64>,
    pub answered: u64,
}

#[derive(Default)]
struct Session {
    token: u64,
    /// Its acknowledged writes, and the last value that it has seen.
    known: BTreeSet<u64>,
    seen: Option<u64>,
}

/// Returns the client that writes a value.
fn client_of(value: u64) -> u64 {
    value % CLIENTS
}

impl Sessions {
    pub fn propose(&mut self, group: GroupId, value: u64) {
        let session = self.sessions.get(&(client_of(value), group));
        let token = session.map_or(0, |session| session.token);
        self.proposed.insert(value, token);
    }

    /// Acknowledges a write to its client.
    pub fn wrote(&mut self, group: GroupId, index: u64, value: u64) -> Result<(), String> {
        let client = client_of(value);
        let before = self.proposed.remove(&value).unwrap_or(0);
        if index <= before {
            return Err(format!(
                "client {client} writes {value} at {index} of {group}, after it had come to {before}"
            ));
        }
        let session = self.sessions.entry((client, group)).or_default();
        session.token = session.token.max(index);
        session.known.insert(value);
        Ok(())
    }

    /// Reads at a node. A node that is behind the token does not answer, unless it is `careless`.
    pub fn read(
        &mut self,
        client: u64,
        group: GroupId,
        (node, machine): (NodeId, &Machine),
        careless: bool,
    ) -> Result<(), String> {
        let session = self.sessions.entry((client, group)).or_default();
        if machine.shows() < session.token && !careless {
            // It is redirected.
            return Ok(());
        }
        let values: BTreeSet<u64> = machine.values().collect();
        let mut known = session.known.iter().chain(&session.seen);
        if let Some(missed) = known.find(|value| !values.contains(value)) {
            return Err(format!(
                "client {client}, who has come to {} of {group}, does not see {missed} at node {node}, which has come to {}",
                session.token,
                machine.shows()
            ));
        }
        session.token = session.token.max(machine.shows());
        session.seen = machine.values().last().or(session.seen);
        self.answered += 1;
        Ok(())
    }
}
