//! Asks a node whether it is ready: the health check of a container that has no shell.

use clap::Args;

use super::{Configured, HealthFlags};
use crate::model::error::{Error, Result};

#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    #[command(flatten)]
    health: HealthFlags,
    /// Not ready, too, while any shard cannot serve or has no leader
    #[arg(long)]
    strict: bool,
}

impl Ready {
    pub(super) fn fill(&mut self, node: &Configured) {
        self.health.or_else(&node.host, node.health_port);
    }

    /// Prints that the node is ready, or fails with the reason why it is not.
    pub(super) fn ask(&self) -> Result<()> {
        let port = self.health.port()?;
        let path = match self.strict {
            true => "/ready?strict",
            false => "/ready",
        };
        let not = |why: String| Err(Error::unavailable(format!("not ready: {why}")));
        match port.ask(path) {
            None => not(format!("nobody answers on the health port {port}")),
            Some((200, answer)) if answer["ready"] == true => {
                println!("ready");
                Ok(())
            }
            Some((status, answer)) => match (answer["state"].as_str(), &answer["reason"]) {
                (Some(state), reason) => not(format!("{state}: {}", reason.as_str().unwrap_or(""))),
                (None, _) => not(format!(
                    "{port} answers {status} and no state: is it the health port of a node?"
                )),
            },
        }
    }
}
