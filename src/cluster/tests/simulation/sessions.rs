//! Clients that read at any node and carry a token: the index that they have come to. The four
//! promises of a session, for each client and group: it sees what it has written, what it has seen
//! once it sees again, and its writes stand behind all that it had written and seen before them.

use std::collections::{BTreeMap, BTreeSet};

use super::node::Machine;
use crate::cluster::{GroupId, NodeId};

/// Few, so that each writes and reads often.
pub const CLIENTS: u64 = 4;

#[derive(Default)]
pub struct Sessions {
    sessions: BTreeMap<(u64, GroupId), Session>,
    /// Where a client was when it proposed a value.
    proposed: BTreeMap<u64, u64>,
    pub answered: u64,
}

#[derive(Default)]
struct Session {
    token: u64,
    /// What it has written, as far as it was told so, and what it has seen last.
    known: BTreeSet<u64>,
    seen: Option<u64>,
}

/// Whose write a value is.
fn client_of(value: u64) -> u64 {
    value % CLIENTS
}

impl Sessions {
    pub fn propose(&mut self, group: GroupId, value: u64) {
        let session = self.sessions.get(&(client_of(value), group));
        let token = session.map_or(0, |session| session.token);
        self.proposed.insert(value, token);
    }

    /// A client is told that its value is written.
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

    /// A client reads at a node. One that has not come as far as the client says so, unless it is
    /// `careless`.
    pub fn read(
        &mut self,
        client: u64,
        group: GroupId,
        (node, machine): (NodeId, &Machine),
        careless: bool,
    ) -> Result<(), String> {
        let session = self.sessions.entry((client, group)).or_default();
        if machine.shows() < session.token && !careless {
            // It is sent elsewhere.
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
