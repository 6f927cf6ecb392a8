//! The settings of a node. Text enters (a file, the environment, flags); one checked [`Settings`]
//! leaves. Each setting is documented here, where it is defined, and listed with its
//! default in `config/bolide.toml`.

mod checks;
mod emulator;
mod layers;
mod regions;
mod together;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use layers::{Flag, Sources, load, setting_names};

use crate::model::consistency::Consistency;

/// The file that is read when no other is named, if it is there.
pub const DEFAULT_FILE: &str = "config/bolide.toml";

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub server: Server,
    pub storage: Storage,
    pub auth: Auth,
    pub tls: Tls,
    pub ttl: Ttl,
    pub limits: Limits,
    pub cluster: Cluster,
    pub log: Log,
    /// No setting: what the emulator's environment asks for in emulator mode and Bolide has not.
    #[serde(skip)]
    pub emulator_ignored: Vec<String>,
}

/// How clients reach the node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Address to listen on, for REST and health. Anything but loopback needs a key file.
    #[serde(deserialize_with = "checks::host")]
    pub host: String,
    /// Port of the REST protocol; 0 lets the system choose.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 65_535>")]
    pub port: u16,
    /// Port of `/alive`, `/ready`, `/status` and `/metrics`; 0 lets the system choose.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 65_535>")]
    pub health_port: u16,
    /// `http` or `https`. .NET and Java clients refuse plain http.
    pub protocol: Protocol,
    /// Whether the node stands in for the Cosmos DB emulator in tests: it reads the emulator's
    /// variables (`PORT`, `PROTOCOL`, …), and takes the well-known key on any address.
    pub emulator: bool,
    /// Threads that serve requests; 0 means one a core.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_024>")]
    pub workers: usize,
    /// Name of the account that clients are told.
    #[serde(deserialize_with = "checks::account")]
    pub account: String,
    /// Name of the region that clients are told; must be one that they know.
    #[serde(deserialize_with = "regions::known")]
    pub region: String,
    /// The account's consistency level; a request may ask for a weaker one.
    pub consistency: Consistency,
    /// Names by which clients may address this node, separated by commas: `db.example.org`. Counts
    /// for orders on the health port, and for REST while the well-known key is effective or
    /// authentication is off; IP addresses, `localhost` and names without dots always pass.
    #[serde(deserialize_with = "checks::host_names")]
    pub allowed_hosts: String,
    /// Whether `Forwarded` and `X-Forwarded-*` headers say how clients reach the node: only behind
    /// a proxy that sets them.
    pub trust_forwarded: bool,
    /// How long requests may still run after the node was told to stop.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 3_600>")]
    pub shutdown_seconds: u64,
    /// Connections of clients at a time; 0 means half of the file descriptors that the process may
    /// have. When there are more, one without a request is closed, or the newest gets 503.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_000_000>")]
    pub connections_max: usize,
    /// How long a client may take for its first byte, its TLS handshake, and the head of each
    /// request.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 3_600>")]
    pub header_seconds: u64,
    /// How long a client may take for the body of a request; a longer body must come with at least
    /// 16 KB a second.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 3_600>")]
    pub body_seconds: u64,
    /// How long a connection without a request is kept.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 86_400>")]
    pub idle_seconds: u64,
    /// How long a client may take nothing of its answer.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 3_600>")]
    pub write_seconds: u64,
}

/// Where data is kept and how much memory the engine takes for it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// The data folder, made if it is missing. One process at a time may use it.
    #[serde(deserialize_with = "checks::path")]
    pub data_path: PathBuf,
    /// Memory for blocks that were read, shared by all shards; 0 follows from the memory of the
    /// cgroup or machine: an eighth, 256 at most.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_048_576>")]
    pub block_cache_mb: u64,
    /// Memory for writes that are not in files yet, shared by all shards; 0 follows from the
    /// memory: a sixteenth, 128 at most.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_048_576>")]
    pub write_buffer_mb: u64,
    /// Size of a shard's WAL above which write buffers are flushed: bounds the time of a restart.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 1_048_576>")]
    pub journal_mb_max: u64,
    /// Disk space that is set aside so that expired items can be purged from a full disk; at most a
    /// sixteenth of the disk. 0: none.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_048_576>")]
    pub reserve_mb: u64,
}

/// Which clients may use the node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// Whether requests must be signed. Without it every client that reaches the port may do all.
    pub enabled: bool,
    /// File of the account's keys: one key in base64, or TOML with `primary`, `secondary`,
    /// `primary_readonly` and `secondary_readonly`. Empty: the emulator's well-known key, on
    /// loopback only.
    #[serde(with = "checks::optional_path")]
    pub key_file: Option<PathBuf>,
    /// Whether authentication may be off on an address that other machines reach.
    pub allow_open_network: bool,
    /// How often the key file is looked at for new keys.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 3_600>")]
    pub key_file_poll_seconds: u64,
}

/// The certificate for `protocol = "https"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Certificate chain, PEM. Empty: a development certificate, made at first start in the data
    /// folder.
    #[serde(with = "checks::optional_path")]
    pub cert: Option<PathBuf>,
    /// Private key of the certificate, PEM.
    #[serde(with = "checks::optional_path")]
    pub key: Option<PathBuf>,
}

/// Expiry: the clock and the purger.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ttl {
    /// A forward jump of the wall clock beyond this pauses purging: a broken clock must not
    /// destroy data.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 86_400>")]
    pub clock_jump_bound_seconds: u64,
    /// How long the clock must go on steadily after a jump until purging resumes.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 604_800>")]
    pub clock_jump_hold_seconds: u64,
}

/// Bounds that turn overload into 429 before memory grows.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Requests that may wait for or be at work in one shard.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 1_048_576>")]
    pub shard_queue_max: usize,
    /// Bytes of request bodies that the node holds at a time; 0 follows from the memory: a
    /// sixteenth, 256 MB at most.
    #[serde(deserialize_with = "checks::zero_or::<_, _, 4_194_304, 1_099_511_627_776>")]
    pub node_inflight_bytes_max: usize,
    /// Bytes of memory that one query may hold at a time; 0 means half of what all may hold,
    /// 128 MB at most.
    #[serde(deserialize_with = "checks::zero_or::<_, _, 1_048_576, 1_099_511_627_776>")]
    pub query_bytes_max: usize,
    /// Bytes of memory that all queries together may hold at a time; 0 follows from the memory:
    /// an eighth, 512 MB at most.
    #[serde(deserialize_with = "checks::zero_or::<_, _, 4_194_304, 1_099_511_627_776>")]
    pub queries_bytes_max: usize,
    /// Whether a container's provisioned throughput is enforced.
    pub enforce_throughput: bool,
    /// Shards of a new container; 0 follows its throughput, one for each 10,000 RU/s begun.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 256>")]
    pub shards_per_container: u32,
    /// Bytes of items beyond which a shard is split in two; 0 means never.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_099_511_627_776>")]
    pub shard_bytes_max: u64,
}

/// The nodes that work together as one.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// This node's number in the cluster; 0 means that it is standalone, or that the cluster it
    /// joins gives it one.
    #[serde(deserialize_with = "checks::whole::<_, _, 0, 1_000_000>")]
    pub node: u64,
    /// Where the other nodes reach this one, `10.0.0.4:8082`, if `members` does not say so.
    #[serde(deserialize_with = "checks::address")]
    pub address: String,
    /// A running node of the cluster that this node is to join, by the address at which the nodes
    /// reach each other.
    #[serde(deserialize_with = "checks::address")]
    pub join: String,
    /// All nodes that begin the cluster together and where they reach each other, the same for all
    /// of them: `1=10.0.0.1:8082,2=10.0.0.2:8082,3=10.0.0.3:8082`.
    #[serde(deserialize_with = "checks::members")]
    pub members: String,
    /// Name of the cluster; nodes of another one are refused.
    #[serde(deserialize_with = "checks::not_empty")]
    pub name: String,
    /// On how many nodes each shard of a new container has a replica.
    #[serde(deserialize_with = "checks::whole::<_, _, 1, 9>")]
    pub replication: usize,
    /// File with the secret that all nodes share, at least 32 bytes.
    #[serde(with = "checks::optional_path")]
    pub key_file: Option<PathBuf>,
}

impl Cluster {
    /// The nodes and their addresses.
    pub fn addresses(&self) -> BTreeMap<u64, String> {
        checks::parse_members(&self.members).unwrap_or_default()
    }
}

/// What is logged to standard error.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`, and after commas other levels for
    /// parts: `info,bolide::shard=debug`.
    #[serde(deserialize_with = "checks::log_filter")]
    pub level: String,
    /// `text` for people, `json` for machines.
    pub format: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Http,
    Https,
}

impl Protocol {
    /// As URLs begin.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Server {
    /// The host by which this machine reaches the node. One that listens on every address is also
    /// on loopback.
    pub fn reached_host(&self) -> &str {
        match self.host.parse() {
            Ok(IpAddr::V4(any)) if any.is_unspecified() => "127.0.0.1",
            Ok(IpAddr::V6(any)) if any.is_unspecified() => "::1",
            _ => &self.host,
        }
    }

    /// The address that clients on this machine use, when REST is served on `port`.
    pub fn endpoint(&self, port: u16) -> String {
        let scheme = self.protocol.scheme();
        let host = self.reached_host();
        match host.contains(':') {
            true => format!("{scheme}://[{host}]:{port}/"),
            false => format!("{scheme}://{host}:{port}/"),
        }
    }
}

impl Default for Server {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port: 8081,
            health_port: 8080,
            protocol: Protocol::Http,
            emulator: false,
            workers: 0,
            account: "bolide".to_owned(),
            region: "South Central US".to_owned(),
            consistency: Consistency::Session,
            allowed_hosts: String::new(),
            trust_forwarded: false,
            shutdown_seconds: 10,
            connections_max: 0,
            header_seconds: 30,
            body_seconds: 30,
            idle_seconds: 120,
            write_seconds: 30,
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            data_path: PathBuf::from("./data"),
            block_cache_mb: 0,
            write_buffer_mb: 0,
            journal_mb_max: 256,
            reserve_mb: 32,
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            enabled: true,
            key_file: None,
            allow_open_network: false,
            key_file_poll_seconds: 2,
        }
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self {
            clock_jump_bound_seconds: 60,
            clock_jump_hold_seconds: 300,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            shard_queue_max: 4_096,
            node_inflight_bytes_max: 0,
            query_bytes_max: 0,
            queries_bytes_max: 0,
            enforce_throughput: false,
            shards_per_container: 0,
            shard_bytes_max: 50 * 1024 * 1024 * 1024,
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            node: 0,
            address: String::new(),
            join: String::new(),
            members: String::new(),
            name: "bolide".to_owned(),
            replication: 3,
            key_file: None,
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../../config/bolide.toml");

    /// The file with its settings switched on: `# name = value` loses its mark, prose keeps it.
    fn uncommented() -> String {
        let setting = |line: &&str| {
            line.starts_with("# ")
                && line.split_once(" = ").is_some_and(|(name, _)| {
                    name[2..]
                        .chars()
                        .all(|c| c.is_ascii_lowercase() || c == '_')
                })
        };
        FILE.lines()
            .map(|line| if setting(&line) { &line[2..] } else { line })
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn loaded(text: &str) -> Settings {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bolide.toml");
        std::fs::write(&path, text).unwrap();
        load(Sources {
            file: Some(path),
            ..Sources::default()
        })
        .unwrap()
    }

    #[test]
    fn the_file_as_it_is_sets_nothing() {
        assert_eq!(loaded(FILE), Settings::default());
        assert!(
            FILE.lines()
                .all(|line| { line.is_empty() || line.starts_with('#') || line.starts_with('[') })
        );
    }

    #[test]
    fn the_file_lists_every_setting_with_its_default() {
        assert_eq!(loaded(&uncommented()), Settings::default());
        let mut section = String::new();
        let mut listed = Vec::new();
        for line in uncommented().lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            } else if let Some((name, _)) = line.split_once(" = ")
                && !line.starts_with('#')
            {
                listed.push(format!("{section}.{name}"));
            }
        }
        assert!(setting_names().len() > 20);
        listed.sort();
        assert_eq!(listed, setting_names());
    }

    #[test]
    fn the_endpoint_is_a_url_that_works_here() {
        let table = [
            ("127.0.0.1", "http://127.0.0.1:1/"),
            ("0.0.0.0", "http://127.0.0.1:1/"),
            ("::", "http://[::1]:1/"),
            ("::1", "http://[::1]:1/"),
            ("db.example.org", "http://db.example.org:1/"),
        ];
        for (host, expected) in table {
            let server = Server {
                host: host.to_owned(),
                ..Server::default()
            };
            assert_eq!(server.endpoint(1), expected);
        }
    }
}
