//! The command line: what to do, and the flags that are settings.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind as ClapError;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use super::emulator::EmulatorFlags;
use super::examples::with_examples;
use super::generated::completions;
use super::layers::{Flag, Sources, load};
use super::{DEFAULT_FILE, Settings};
use crate::bench::BenchTask;
use crate::local_cluster::ClusterTask;
use crate::model::error::{Error, Result};
use crate::operator::{ClockTask, Configured, OperatorTask, Ready, Split};

/// What was built: the version, the commit, the target and the profile.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("BUILD_COMMIT"),
    ", ",
    env!("BUILD_TARGET"),
    ", ",
    env!("BUILD_PROFILE"),
    ")"
);

/// How the process ends; the numbers are part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    Clean = 0,
    /// Anything that has no number of its own.
    Failure = 1,
    /// The command line, a setting, a key file or a certificate is wrong; or a port is taken.
    Configuration = 2,
    /// Another process uses the data folder.
    DataInUse = 3,
    /// The data folder is damaged.
    DataDamaged = 4,
    /// The disk is full.
    DiskFull = 10,
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Serve(Box<Settings>),
    /// Print a fresh account key.
    Key,
    /// Measure: the load driver.
    Bench(BenchTask),
    /// Try a cluster on this machine.
    Cluster(ClusterTask),
    /// Give a running node an order.
    Operator(OperatorTask),
    /// Look at a data folder that no node uses.
    Offline(OfflineTask),
    /// Write the man pages into this folder.
    ManPages(PathBuf),
    /// Print this text and end: the help, the version or shell completions.
    Show(String),
    /// A command was named without what it is to do: print its help as an error.
    Incomplete(String),
}

/// What to do with a data folder that no node uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfflineTask {
    Check {
        data_path: PathBuf,
    },
    RemovedList {
        data_path: PathBuf,
    },
    /// No names: all of them.
    RemovedDelete {
        data_path: PathBuf,
        names: Option<Vec<String>>,
    },
}

#[derive(Args, Clone, Debug)]
struct DataPath {
    /// The data folder
    #[arg(long, value_name = "DIR", default_value = "data")]
    data_path: PathBuf,
}

/// What is to happen to folders that a start has set aside.
#[derive(Subcommand)]
enum RemovedTask {
    /// List them, with their bytes and since when they are there
    List(DataPath),
    /// Delete some of them for good, or all
    Delete {
        #[command(flatten)]
        data: DataPath,
        /// Their names, as they are listed
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        names: Vec<String>,
        /// Delete all of them
        #[arg(long)]
        all: bool,
    },
}

impl RemovedTask {
    fn offline(self) -> OfflineTask {
        match self {
            Self::List(DataPath { data_path }) => OfflineTask::RemovedList { data_path },
            Self::Delete { data, names, all } => OfflineTask::RemovedDelete {
                data_path: data.data_path,
                names: (!all).then_some(names),
            },
        }
    }
}

#[derive(Parser)]
#[command(
    name = "bolide",
    version = VERSION,
    about = "A document database node with exact time to live that speaks the Azure Cosmos DB for NoSQL protocol",
    after_help = "Without a command, bolide serves.\n\n\
        Settings come from built-in defaults, then the config file, then the environment\n\
        (BOLIDE_SERVER__PORT for server.port), then flags; the later ones win.\n\
        config/bolide.toml lists them all.\n\n\
        Exit codes: 0 clean, 1 failure, 2 configuration, 3 data folder in use, 4 data damaged,\n\
        10 disk full."
)]
pub(super) struct CommandLine {
    #[command(subcommand)]
    task: Option<Task>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Subcommand)]
enum Task {
    /// Serve requests until Ctrl-C or SIGTERM [the default]
    Serve(Box<ServeFlags>),
    /// Print a fresh account key, for a key file
    Key,
    /// Measure a node of its own
    #[command(subcommand)]
    Bench(BenchTask),
    /// Try a cluster on this machine, or take a node out of any
    #[command(subcommand)]
    Cluster(ClusterTask),
    /// Confirm the time of a running node
    #[command(subcommand)]
    Clock(ClockTask),
    /// Ask whether a running node is ready; exit code 1 if it is not
    Ready(Ready),
    /// Split a shard of a running node in two
    Split(Split),
    /// Verify every file of a data folder that no node uses; exit code 4 if any is damaged
    Check(DataPath),
    /// List or delete folders that a start has set aside
    #[command(subcommand)]
    Removed(RemovedTask),
    /// Print the completions of commands and flags for a shell
    Completions {
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
    /// Write the man pages into a folder, which is made if it is missing
    Man {
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

// All values are text here: the settings check them, the same way for file, environment and flags.
#[derive(Args, Clone, Debug, Default)]
struct ServeFlags {
    /// Read settings from this file [default: config/bolide.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    /// Join the cluster of the node that other nodes reach at this address; needs cluster.address and cluster.key_file
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
    emulator: EmulatorFlags,
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
    fn settings(&self) -> Result<Vec<Flag>> {
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

/// Reads the command line (with the program's name first) and, to serve, all settings.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    environment: Vec<(String, String)>,
) -> Result<Command> {
    let matched = definition().try_get_matches_from(arguments);
    let line = match matched.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(line) => line,
        Err(error)
            if matches!(
                error.kind(),
                ClapError::DisplayHelp | ClapError::DisplayVersion
            ) =>
        {
            return Ok(Command::Show(error.render().to_string()));
        }
        Err(error) if error.kind() == ClapError::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Ok(Command::Incomplete(error.render().to_string()));
        }
        Err(error) => return Err(Error::bad_request(one_line(&error))),
    };
    match line.task {
        None => settings(&[&line.serve], environment),
        Some(Task::Serve(flags)) => settings(&[&line.serve, &flags], environment),
        Some(Task::Key) => alone(&line.serve, "key", Command::Key),
        Some(Task::Bench(task)) => alone(&line.serve, "bench", Command::Bench(task)),
        Some(Task::Cluster(mut task)) => {
            if task.wants_key() {
                let node = configured(&line.serve, environment)?;
                task.or_key(node.key_file);
            }
            alone(&line.serve, "cluster", Command::Cluster(task))
        }
        Some(Task::Clock(task)) => operator(&line.serve, OperatorTask::Clock(task), environment),
        Some(Task::Ready(ready)) => operator(&line.serve, OperatorTask::Ready(ready), environment),
        Some(Task::Split(split)) => operator(&line.serve, OperatorTask::Split(split), environment),
        Some(Task::Check(DataPath { data_path })) => {
            let task = OfflineTask::Check { data_path };
            alone(&line.serve, "check", Command::Offline(task))
        }
        Some(Task::Removed(task)) => {
            alone(&line.serve, "removed", Command::Offline(task.offline()))
        }
        Some(Task::Completions { shell }) => {
            let script = completions(shell);
            alone(&line.serve, "completions", Command::Show(script))
        }
        Some(Task::Man { folder }) => alone(&line.serve, "man", Command::ManPages(folder)),
    }
}

/// The command line as a value, for what is generated from it.
pub(super) fn definition() -> clap::Command {
    with_examples(CommandLine::command())
}

/// An order to a node, which is reached and signed for as the settings here say.
fn operator(
    flags: &ServeFlags,
    mut task: OperatorTask,
    environment: Vec<(String, String)>,
) -> Result<Command> {
    task.fill(configured(flags, environment)?);
    alone(flags, "orders", Command::Operator(task))
}

/// What the settings say of a node that is started here.
fn configured(flags: &ServeFlags, environment: Vec<(String, String)>) -> Result<Configured> {
    let settings = load(Sources {
        file: flags.config.clone().or_else(default_file),
        environment,
        ..Sources::default()
    })?;
    Ok(Configured {
        host: settings.server.reached_host().to_owned(),
        health_port: settings.server.health_port,
        key_file: settings.auth.key_file,
    })
}

fn default_file() -> Option<PathBuf> {
    Some(PathBuf::from(DEFAULT_FILE)).filter(|path| path.exists())
}

/// A command that takes none of the flags that serve.
fn alone(flags: &ServeFlags, name: &str, command: Command) -> Result<Command> {
    let named = flags.settings()?.into_iter().map(|flag| flag.shown);
    let emulators = flags.emulator.given().into_iter();
    match named
        .chain(emulators.map(|(flag, _)| flag.to_owned()))
        .next()
    {
        Some(flag) => Err(Error::bad_request(format!("flag {flag} is not for {name}"))),
        None => Ok(command),
    }
}

/// The environment of this process, with what is not Unicode made so: a value of ours that was not
/// is then refused by name.
pub fn environment() -> Vec<(String, String)> {
    let text = |text: OsString| text.to_string_lossy().into_owned();
    std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// The settings for these flags, the later ones over the earlier ones.
fn settings(flags: &[&ServeFlags], environment: Vec<(String, String)>) -> Result<Command> {
    let named = flags.iter().rev().find_map(|flags| flags.config.clone());
    let file = named.or_else(default_file);
    let mut all = Vec::new();
    for flags in flags {
        all.extend(flags.settings()?);
    }
    let settings = load(Sources {
        file,
        environment,
        flags: all,
        emulator_flags: flags
            .iter()
            .flat_map(|flags| flags.emulator.given())
            .collect(),
    })?;
    Ok(Command::Serve(Box::new(settings)))
}

/// clap explains over several lines; the first has the mistake, the indented ones tips.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let told: Vec<&str> = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .collect();
    let told = told.join("; ");
    format!(
        "{} (bolide --help explains)",
        in_plain_words(told.strip_prefix("error: ").unwrap_or(&told))
    )
}

/// The parser of numbers speaks of digits in strings and of target types.
fn in_plain_words(told: &str) -> String {
    let expected = "a whole number is expected";
    [
        "invalid digit found in string",
        "cannot parse integer from empty string",
        "number too large to fit in target type",
        "number too small to fit in target type",
    ]
    .iter()
    .fold(told.to_owned(), |told, words| told.replace(words, expected))
}

#[cfg(test)]
mod tests {
    use super::super::{LogFormat, Protocol};
    use super::*;
    use crate::bench::CaseName;

    fn parsed(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Command> {
        let arguments = ["bolide"].iter().chain(arguments).map(OsString::from);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        parse(arguments, environment.iter().map(owned).collect())
    }

    fn serving(arguments: &[&str], environment: &[(&str, &str)]) -> Settings {
        match parsed(arguments, environment) {
            Ok(Command::Serve(settings)) => *settings,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn no_command_serves_with_the_defaults() {
        assert_eq!(serving(&[], &[]), Settings::default());
        assert_eq!(serving(&["serve"], &[]), Settings::default());
        assert_eq!(serving(&["--host", "[::1]"], &[]).server.host, "::1");
    }

    #[test]
    fn flags_are_taken_at_the_top_and_after_serve() {
        let flags = [
            "--data-path",
            "/d",
            "--host",
            "::1",
            "--port",
            "1",
            "--health-port=2",
            "--protocol",
            "https",
            "--key-file",
            "k",
            "--tls-cert",
            "c",
            "--tls-key",
            "p",
            "--workers",
            "3",
            "--shards",
            "4",
            "--log-level",
            "debug",
            "--log-format",
            "json",
            "--set",
            "limits.enforce_throughput=true",
            "--set",
            "server.account=123",
        ];
        let top = serving(&flags, &[]);
        let after = serving(&[&["serve"], &flags[..]].concat(), &[]);
        let before = serving(&[&flags[..], &["serve"]].concat(), &[]);
        assert_eq!(top, after);
        assert_eq!(top, before);

        let mut expected = Settings::default();
        expected.storage.data_path = "/d".into();
        expected.server.host = "::1".into();
        expected.server.port = 1;
        expected.server.health_port = 2;
        expected.server.protocol = Protocol::Https;
        expected.server.workers = 3;
        expected.server.account = "123".into();
        expected.auth.key_file = Some("k".into());
        expected.tls.cert = Some("c".into());
        expected.tls.key = Some("p".into());
        expected.limits.shards_per_container = 4;
        expected.limits.enforce_throughput = true;
        expected.log.level = "debug".into();
        expected.log.format = LogFormat::Json;
        assert_eq!(top, expected);
    }

    #[test]
    fn later_layers_win() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.toml");
        std::fs::write(&path, "[server]\nport = 1\nhealth_port = 1\nworkers = 1\n").unwrap();
        let path = path.to_str().unwrap();
        let environment = [
            ("BOLIDE_SERVER__HEALTH_PORT", "2"),
            ("BOLIDE_SERVER__WORKERS", "2"),
            ("OTHER_SERVER__WORKERS", "x"),
        ];
        let settings = serving(&["--config", path, "serve", "--workers", "3"], &environment);
        let server = settings.server;
        assert_eq!((server.port, server.health_port, server.workers), (1, 2, 3));
        assert_eq!(settings.auth, Settings::default().auth);
    }

    #[test]
    fn a_flag_after_serve_goes_over_one_before_it_and_both_over_set() {
        assert_eq!(
            serving(&["--port", "1", "serve", "--port", "2"], &[])
                .server
                .port,
            2
        );
        assert_eq!(
            serving(&["--port", "1", "--set", "server.port=2"], &[])
                .server
                .port,
            1
        );
    }

    #[test]
    fn bad_values_get_one_line_that_names_them() {
        let table: [(&[&str], &[&str]); 30] = [
            (&["--port", "99999"], &["--port", "99999", "0 to 65535"]),
            (&["--port", "-1"], &["--port", "-1"]),
            (&["--port", "http"], &["--port", "'http'"]),
            (
                &["--port", "99999999999999999999"],
                &["--port", "99999999999999999999"],
            ),
            (
                &["--protocol", "ftp"],
                &["--protocol", "'ftp'", "http, https"],
            ),
            (&["--config", "no/such.toml"], &["no/such.toml"]),
            (&["--host", "a:80"], &["--host", "'a:80'"]),
            (&["--data-path", ""], &["--data-path", "''"]),
            (&["--log-level", "loud"], &["--log-level", "'loud'"]),
            (
                &["--log-level", "info,=debug"],
                &["--log-level", "'info,=debug'"],
            ),
            (
                &["--set", "server.prot=1"],
                &["server.prot", "did you mean server.port?"],
            ),
            (
                &["--set", "server.data_path=x"],
                &["did you mean storage.data_path?"],
            ),
            (&["--set", "zzz=1"], &["zzz", "server, storage"]),
            (&["--set", "server=1"], &["--set server", "no such setting"]),
            (
                &["--set", "server.port"],
                &["server.port", "SECTION.KEY=VALUE"],
            ),
            (
                &["--set", "auth.enabled=maybe"],
                &["auth.enabled", "'maybe'"],
            ),
            (
                &["--set", "server.account=localhost"],
                &["server.account", "'localhost'"],
            ),
            (&["--prot", "1"], &["'--prot'", "--port"]),
            (&["sevre"], &["'sevre'", "serve"]),
            (&["--port", "1", "key"], &["--port", "key"]),
            (&["--port", "1", "bench", "node"], &["--port", "bench"]),
            (
                &["bench", "node", "--only", "x"],
                &["--only", "'x'", "few-due"],
            ),
            (&["bench", "node", "--items", "9"], &["--items", "9"]),
            (&["bench", "node", "--seconds", "0"], &["--seconds", "'0'"]),
            (&["bench", "nodes"], &["'nodes'", "node"]),
            (
                &["cluster", "drain", "x"],
                &["'x'", "a whole number is expected"],
            ),
            (
                &["cluster", "drain", "1", "--health-port", "http"],
                &["--health-port", "'http'", "a whole number is expected"],
            ),
            (
                &["--set", "server.region=Mars"],
                &["server.region", "'Mars'", "the nearest is"],
            ),
            (
                &["--port", "8080"],
                &["server.port and server.health_port", "8080"],
            ),
            (
                &["--tls-cert", "c", "--protocol", "http"],
                &["--tls-cert", "--protocol https"],
            ),
        ];
        for (arguments, fragments) in table {
            let error = parsed(arguments, &[])
                .expect_err(&format!("{arguments:?}"))
                .message;
            assert!(!error.contains('\n'), "{arguments:?}: {error}");
            for fragment in fragments {
                assert!(
                    error.contains(fragment),
                    "{arguments:?}: no {fragment} in: {error}"
                );
            }
        }
    }

    #[test]
    fn bad_variables_are_named() {
        let table = [
            (
                "BOLIDE_SERVER__PORT",
                "x",
                "environment variable BOLIDE_SERVER__PORT: 'x' is not",
            ),
            (
                "BOLIDE_SERVER_PORT",
                "1",
                "did you mean BOLIDE_SERVER__PORT?",
            ),
            (
                "BOLIDE_SERVER__PROTOCOL",
                "ftp",
                "BOLIDE_SERVER__PROTOCOL: 'ftp' is not one of",
            ),
            (
                "BOLIDE_TTL__CLOCK_JUMP_BOUND",
                "1",
                "BOLIDE_TTL__CLOCK_JUMP_BOUND_SECONDS?",
            ),
        ];
        for (name, value, fragment) in table {
            let error = parsed(&[], &[(name, value)]).unwrap_err().message;
            assert!(error.contains(fragment), "{name}: {error}");
        }
    }

    #[test]
    fn a_certificate_alone_means_https() {
        let settings = serving(&["--tls-cert", "c", "--tls-key", "k"], &[]);
        assert_eq!(settings.server.protocol, Protocol::Https);
    }

    #[test]
    fn a_command_without_what_it_is_to_do_lists_its_commands() {
        for (name, commands) in [("bench", ["node", "run"]), ("cluster", ["drain", "status"])] {
            match parsed(&[name], &[]) {
                Ok(Command::Incomplete(text)) => {
                    for command in commands {
                        assert!(text.contains(&format!("\n  {command}")), "{text}");
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn help_version_and_key_are_commands() {
        match parsed(&["--help"], &[]) {
            Ok(Command::Show(text)) => {
                for flag in ["--data-path", "--key-file", "--set", "key", "Exit codes"] {
                    assert!(text.contains(flag), "{flag}: {text}");
                }
            }
            other => panic!("{other:?}"),
        }
        let version = format!("bolide {VERSION}\n");
        assert_eq!(parsed(&["--version"], &[]), Ok(Command::Show(version)));
        assert_eq!(parsed(&["key"], &[]), Ok(Command::Key));
        let data_path = || PathBuf::from("d");
        for (arguments, task) in [
            (
                &["check", "--data-path", "d"][..],
                OfflineTask::Check {
                    data_path: data_path(),
                },
            ),
            (
                &["removed", "list", "--data-path", "d"],
                OfflineTask::RemovedList {
                    data_path: data_path(),
                },
            ),
            (
                &["removed", "delete", "a", "--data-path", "d"],
                OfflineTask::RemovedDelete {
                    data_path: data_path(),
                    names: Some(vec!["a".to_owned()]),
                },
            ),
            (
                &["removed", "delete", "--all", "--data-path", "d"],
                OfflineTask::RemovedDelete {
                    data_path: data_path(),
                    names: None,
                },
            ),
        ] {
            assert_eq!(parsed(arguments, &[]), Ok(Command::Offline(task)));
        }
        assert!(parsed(&["removed", "delete"], &[]).is_err());
        match parsed(
            &["bench", "node", "--only", "create", "--items", "5000"],
            &[],
        ) {
            Ok(Command::Bench(BenchTask::Node(options))) => {
                assert_eq!(options.only, [CaseName::Create]);
                assert_eq!(options.items, 5_000);
                assert_eq!(options.connections, 64);
            }
            other => panic!("{other:?}"),
        }
    }
}
