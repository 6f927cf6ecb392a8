//! Checks of all replicas of a shard.

use tokio::sync::oneshot;

use super::ShardHandle;
use crate::{
    model::error::{Error, Result},
    shard::{actor::check::BeginCheck, check::Outcome},
};

impl ShardHandle {
    /// Begins a check of all replicas; only where the shard is led.
    pub async fn begin_check(&self, number: u64) -> Result<()> {
        let (reply, begun) = oneshot::channel();
        self.send(BeginCheck { number, reply })?;
        let gone = |_| Error::unavailable("the shard restarts; the check was not begun");
        begun.await.map_err(gone)??;
        Ok(())
    }

    /// Returns what a check has found in this node's replica.
    pub fn checked(&self, number: u64) -> Outcome {
        self.replica()
            .map_or(Outcome::Unknown, |replica| replica.checks.get(number))
    }
}

#[cfg(test)]
impl crate::shard::replica::Replica {
    pub fn checked(&self, number: u64) -> Outcome {
        self.checks.get(number)
    }
}
