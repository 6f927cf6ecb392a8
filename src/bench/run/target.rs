//! What a run loads: given endpoints, or a node that it starts itself.

use std::path::Path;

use crate::bench::account::Account;
use crate::bench::node::{Launcher, MeasuredNode};
use crate::bench::options::TargetFlags;
use crate::client::endpoint::{Endpoint, Trust};
use crate::client::{EMULATOR_KEY, Signer};
use crate::model::error::{Error, Result};

pub struct LoadTarget {
    pub account: Account,
    /// Where a node tells its metrics.
    pub health: Option<Endpoint>,
    /// The node is stopped, and then its folder removed, with the target.
    own: Option<(MeasuredNode, Launcher)>,
}

impl LoadTarget {
    pub async fn open(flags: &TargetFlags) -> Result<Self> {
        let trust = match (&flags.ca_file, flags.insecure) {
            (Some(path), _) => Trust::File(path),
            (None, true) => Trust::Any,
            (None, false) => Trust::Machine,
        };
        let health = flags.node_metrics.as_deref();
        let health = health.map(|url| Endpoint::parse(url, trust)).transpose()?;
        if flags.endpoint.is_empty() {
            let bench = Launcher::new(flags.data_path.as_deref())?;
            let node = bench.start_node("node").await?;
            return Ok(Self {
                account: (*node).clone(),
                health: Some(health.unwrap_or_else(|| node.health.clone())),
                own: Some((node, bench)),
            });
        }
        let key = match (&flags.key, &flags.key_file) {
            (Some(key), _) => key.clone(),
            (None, Some(path)) => key_of(path)?,
            (None, None) => EMULATOR_KEY.to_owned(),
        };
        let endpoints = flags.endpoint.iter();
        let endpoints = endpoints.map(|url| Endpoint::parse(url, trust));
        let endpoints = endpoints.collect::<Result<_>>()?;
        Ok(Self {
            account: Account::new(endpoints, Signer::new(key.trim())?),
            health,
            own: None,
        })
    }

    /// A server of this machine that takes the emulator's key, or any.
    pub fn of_port(port: u16) -> Self {
        let signer = Signer::new(EMULATOR_KEY).expect("the emulator's key is a key");
        Self {
            account: Account::new(vec![Endpoint::local(port)], signer),
            health: None,
            own: None,
        }
    }

    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Its endpoints, for people.
    pub fn shown(&self) -> String {
        let urls = self.account.endpoints.iter().map(Endpoint::to_string);
        let urls: Vec<String> = urls.collect();
        let note = if self.is_own() { " (its own node)" } else { "" };
        format!("{}{note}", urls.join(", "))
    }
}

fn key_of(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::bad_request(format!(
            "cannot read the key file '{}': {error}",
            path.display()
        ))
    })?;
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    // One line of base64, or the long form with a line for the primary key.
    let key = lines.find_map(|line| match line.split_once(" = ") {
        Some(("primary", key)) => Some(key.trim_matches(['"', '\''])),
        Some(_) => None,
        None => Some(line),
    });
    key.map(str::to_owned).ok_or_else(|| {
        Error::bad_request(format!("the key file '{}' holds no key", path.display()))
    })
}
