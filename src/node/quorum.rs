//! Says in the log when a node has lost the majority of its cluster, and when it is back: a first
//! node whose others are absent looks like any other from outside.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use crate::cluster::member::Member;

/// How often it is looked.
const TICK: Duration = Duration::from_secs(1);
/// Looks without a majority until it is said: nodes that start together need a moment.
const PATIENCE_TICKS: u32 = 5;

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Lost,
    Back,
}

/// What has been seen and said so far.
#[derive(Default)]
struct Watch {
    ticks_without: u32,
    said: bool,
}

impl Watch {
    /// What is to be said after a look.
    fn look(&mut self, majority: bool) -> Option<Change> {
        self.ticks_without = match majority {
            true => 0,
            false => self.ticks_without.saturating_add(1),
        };
        let lost = self.ticks_without >= PATIENCE_TICKS;
        match (self.said, majority) {
            (false, _) if lost => {
                self.said = true;
                Some(Change::Lost)
            }
            (true, true) => {
                self.said = false;
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
            tokio::time::sleep(TICK).await;
            match watch.look(member.driver.lease().holds()) {
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

/// The nodes without a connection, with their addresses.
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
    fn a_lost_majority_is_said_once_and_so_is_its_return() {
        let mut watch = Watch::default();
        for _ in 1..PATIENCE_TICKS {
            assert_eq!(watch.look(false), None);
        }
        assert_eq!(watch.look(false), Some(Change::Lost));
        assert_eq!(watch.look(false), None);
        assert_eq!(watch.look(true), Some(Change::Back));
        assert_eq!(watch.look(true), None);
        assert_eq!(watch.look(false), None, "patience begins anew");
    }
}
