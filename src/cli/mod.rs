//! The command line of `bolide`: the tree of its commands and flags, and what they ask for. It
//! stands above all other modules: none of them knows it.

mod examples;
mod generated;
mod serve_flags;

use std::{ffi::OsString, path::PathBuf};

pub use self::generated::write_man_pages;

use clap::error::ErrorKind as ClapError;
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use self::{examples::with_examples, generated::completions, serve_flags::ServeFlags};
use crate::{
    bench::BenchTask,
    config::{DEFAULT_FILE, Settings, Sources, load},
    local_cluster::ClusterTask,
    model::error::{Error, Result},
    node::offline::OfflineTask,
    operator::{ClockTask, Configured, OperatorTask, Ready, SplitOrder},
};

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
    about = "A document database node with exact time to live that speaks the Azure Cosmos DB for \
        NoSQL protocol",
    after_help = "Without a command, bolide serves.\n\n\
        Settings come from built-in defaults, then the config file, then the environment\n\
        (BOLIDE_SERVER__PORT for server.port), then flags; the later ones win.\n\
        config/bolide.toml lists them all.\n\n\
        Exit codes: 0 clean, 1 failure, 2 configuration, 3 data folder in use, 4 data damaged,\n\
        10 disk full."
)]
struct CommandLine {
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
    Split(SplitOrder),
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
fn definition() -> clap::Command {
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
mod tests;
