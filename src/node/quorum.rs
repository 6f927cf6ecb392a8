//! Logs when a node has lost the quorum of its cluster, and when it is back. From outside, a first
//! node without the others looks like any other.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use crate::cluster::member::Member;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Checks without a quorum before it is logged: nodes that start together need a moment.
const LOST_CHECKS: u32 = 5;

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    Back,
}

/// What was observed and logged so far.
#[derive(Default)]
struct Watch {
    checks_without: u32,
    is_logged: bool,
}

impl Watch {
    /// Returns what to log after a check.
    fn check(&mut self, has_quorum: bool) -> Option<Change> {
        self.checks_without = match has_quorum {
            true => 0,
            false => self.checks_without.saturating_add(1),
        };
        let lost = self.checks_without >= LOST_CHECKS;
        match (self.is_logged, has_quorum) {
            (false, _) if lost => {
                self.is_logged = true;
                Some(Change::Lost)
            }
            (true, true) => {
                self.is_logged = false;
                Some(Change::Back)
            }
            _ => None,
        }
    }
}

/// Watches for as long as the node runs.
pub fn watch(member: Arc<Member>) {
    actix::spawn(async move {
        let mut watch = Watch::default();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            match watch.check(member.driver.lease().holds()) {
                None => {}
                Some(Change::Lost) => warn!(
                    missing = missing(&member),
                    "no majority of the cluster answers: requests get 503 until it does"
                ),
                Some(Change::Back) => info!("a majority of the cluster answers again"),
            }
        }
    });
}

/// Returns the nodes without a connection, with their addresses.
fn missing(member: &Member) -> String {
    let members = member.members();
    let missing = members
        .iter()
        .filter(|(node, _)| **node != member.node && !member.is_connected(**node))
        .map(|(node, address)| format!("node {node} at {address}"));
    missing.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_quorum_is_logged_once_and_so_is_its_return() {
        let mut watch = Watch::default();
        for _ in 1..LOST_CHECKS {
            assert_eq!(watch.check(false), None);
        }
        assert_eq!(watch.check(false), Some(Change::Lost));
        assert_eq!(watch.check(false), None);
        assert_eq!(watch.check(true), Some(Change::Back));
        assert_eq!(watch.check(true), None);
        assert_eq!(watch.check(false), None, "the count begins anew");
    }
}
