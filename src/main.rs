//! The `bolide` program.

use std::{path::Path, process};

use bolide::{
    bench,
    cli::{self, Command},
    gateway::auth::keys,
    local_cluster,
    model::error::Result,
    node::{self, ExitCode, Failure},
    operator, output,
};
use rand::{TryRngCore, rngs::OsRng};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// libstdc++ seeds with glibc's function of this name, which came with glibc 2.36. The linker takes
/// this one instead, and the program runs with older versions.
// SAFETY: the name and the signature are those of arc4random(3), which nothing else here defines.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
extern "C" fn arc4random() -> u32 {
    OsRng
        .try_next_u32()
        .unwrap_or_else(|_| std::process::abort())
}

fn main() -> process::ExitCode {
    match cli::parse(std::env::args_os(), cli::environment()) {
        Ok(command) => run(command).unwrap_or_else(|failure| {
            output::warn(&format!("bolide: {}\n", failure.message));
            failure.code
        }),
        Err(error) => {
            output::warn(&format!("bolide: {}\n", error.message));
            ExitCode::Configuration
        }
    }
    .into()
}

/// Carries out a command. A failure's message is the last line of standard error.
fn run(command: Command) -> Result<ExitCode, Failure> {
    let failed = |message: String| Failure::new(ExitCode::Failure, message);
    match command {
        Command::Show(text) => output::show(&text),
        Command::Incomplete(text) => {
            output::warn(&text);
            return Ok(ExitCode::Configuration);
        }
        Command::ManPages(folder) => cli::write_man_pages(&folder).map_err(|failure| {
            let folder = folder.display();
            failed(format!("cannot write man pages into '{folder}': {failure}"))
        })?,
        Command::Key => {
            let key = keys::generate_key().map_err(|error| failed(error.message))?;
            output::show(&format!("{key}\n"));
        }
        Command::Bench(task) => {
            if !bench::run(&task)? {
                let message = "answers were wrong: the report has the evidence";
                return Err(failed(message.to_owned()));
            }
        }
        Command::Cluster(task) => {
            local_cluster::run(&task, &read_key).map_err(|error| failed(error.message))?;
        }
        Command::Operator(task) => {
            operator::run(&task, &read_key).map_err(|error| failed(error.message))?;
        }
        Command::Offline(task) => {
            if !node::offline::run(&task)? {
                return Ok(ExitCode::DataDamaged);
            }
        }
        Command::Serve(settings) => node::run(*settings)?,
    }
    Ok(ExitCode::Clean)
}

fn read_key(path: &Path) -> Result<String> {
    Ok(keys::primary_key(path)?.base64().to_owned())
}
