//! Flags that are settings of the node.

use std::path::PathBuf;

use clap::Args;

use crate::{
    config::Flag,
    model::error::{Error, Result},
};

// All values are text here: the settings check them, the same way for file, environment and flags.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeFlags {
    /// Read settings from this file [default: config/bolide.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Keep the data in this folder [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_path: Option<String>,
    /// Listen on this address [default: 127.0.0.1]; any but loopback needs --key-file
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Serve REST on this port [default: 8081]; 0 lets the system choose
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    port: Option<String>,
    /// Serve health and metrics on this port [default: 8080]; 0 lets the system choose
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    health_port: Option<String>,
    /// Speak http or https [default: http]
    #[arg(long, value_name = "http|https")]
    protocol: Option<String>,
    /// Use this certificate chain (PEM) for https [default: a self-signed one, made at first start]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Use this private key (PEM) for https
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Take the account's keys from this file [default: the emulator's key, on loopback only]
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Join the cluster of the node that other nodes reach at this address; needs cluster.address
    /// and cluster.key_file
    #[arg(long, value_name = "ADDRESS")]
    join: Option<String>,
    /// Serve requests with this many threads [default: 0, one a core]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    workers: Option<String>,
    /// Give new containers this many shards [default: 0, one for each 10,000 RU/s begun]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    shards: Option<String>,
    /// Log at this level [default: info], and parts at others: info,bolide::shard=debug
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log as text or json [default: text]
    #[arg(long, value_name = "text|json")]
    log_format: Option<String>,
    /// Change any setting of config/bolide.toml; can be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    pub(super) emulator: EmulatorFlags,
}

impl ServeFlags {
    /// The named flags as settings.
    fn named(&self) -> Vec<Flag> {
        let table = [
            ("--data-path", "storage.data_path", &self.data_path),
            ("--host", "server.host", &self.host),
            ("--port", "server.port", &self.port),
            ("--health-port", "server.health_port", &self.health_port),
            ("--protocol", "server.protocol", &self.protocol),
            ("--tls-cert", "tls.cert", &self.tls_cert),
            ("--tls-key", "tls.key", &self.tls_key),
            ("--key-file", "auth.key_file", &self.key_file),
            ("--join", "cluster.join", &self.join),
            ("--workers", "server.workers", &self.workers),
            ("--shards", "limits.shards_per_container", &self.shards),
            ("--log-level", "log.level", &self.log_level),
            ("--log-format", "log.format", &self.log_format),
        ];
        table
            .into_iter()
            .filter_map(|(shown, setting, value)| {
                let value = value.clone()?;
                Some(Flag {
                    shown: shown.to_owned(),
                    setting: setting.to_owned(),
                    value,
                })
            })
            .chain(self.emulator.switch())
            .collect()
    }

    /// All flags as settings; a named flag goes over `--set`.
    pub fn settings(&self) -> Result<Vec<Flag>> {
        let mut flags = Vec::new();
        for text in &self.set {
            let Some((setting, value)) = text.split_once('=') else {
                return Err(Error::bad_request(format!(
                    "flag --set {text}: SECTION.KEY=VALUE is expected"
                )));
            };
            let (setting, value) = (setting.trim().to_owned(), value.to_owned());
            flags.push(Flag {
                shown: format!("--set {setting}"),
                setting,
                value,
            });
        }
        flags.extend(self.named());
        Ok(flags)
    }
}

/// Flags that the emulator has and we have not, so that a command line for its image is taken by
/// ours.
#[derive(Args, Clone, Debug, Default)]
pub struct EmulatorFlags {
    /// Take the variables of the Cosmos DB emulator (PORT, PROTOCOL, …), and its key on any address
    #[arg(long)]
    emulator: bool,
    #[arg(long, hide = true, value_name = "FILE")]
    cert_path: Option<String>,
    #[arg(long, hide = true, value_name = "HOST")]
    gateway_endpoint: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_explorer: Option<String>,
    #[arg(long, hide = true)]
    explorer_port: Option<String>,
    #[arg(long, hide = true)]
    explorer_protocol: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    enable_otlp: Option<String>,
    #[arg(long, hide = true)]
    query_buffer_size: Option<String>,
}

impl EmulatorFlags {
    /// The switch, if it is set, as the setting it is.
    pub fn switch(&self) -> Option<Flag> {
        self.emulator.then(|| Flag {
            shown: "--emulator".to_owned(),
            setting: "server.emulator".to_owned(),
            value: "true".to_owned(),
        })
    }

    /// The emulator's own flags, each with its value.
    pub fn given(&self) -> Vec<(&'static str, String)> {
        let table = [
            ("--cert-path", &self.cert_path),
            ("--gateway-endpoint", &self.gateway_endpoint),
            ("--enable-explorer", &self.enable_explorer),
            ("--explorer-port", &self.explorer_port),
            ("--explorer-protocol", &self.explorer_protocol),
            ("--enable-otlp", &self.enable_otlp),
            ("--query-buffer-size", &self.query_buffer_size),
        ];
        table
            .into_iter()
            .filter_map(|(flag, value)| Some((flag, value.clone()?)))
            .collect()
    }
}
