//! The `bolide` program.

use std::{path::Path, process::ExitCode};

use bolide::{config, gateway::auth::keys, model::error::Result, node, output};
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

fn main() -> ExitCode {
    let command = match config::parse(std::env::args_os(), config::environment()) {
        Ok(command) => command,
        Err(error) => return fail(config::ExitCode::Configuration, &error.message),
    };
    match command {
        config::Command::Show(text) => {
            output::show(&text);
            ExitCode::SUCCESS
        }
        config::Command::ManPages(folder) => match config::write_man_pages(&folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => fail(
                config::ExitCode::Failure,
                &format!(
                    "cannot write man pages into '{}': {failure}",
                    folder.display()
                ),
            ),
        },
        config::Command::Incomplete(text) => {
            output::warn(&text);
            config::ExitCode::Configuration.into()
        }
        config::Command::Key => match keys::generate_key() {
            Ok(key) => {
                output::show(&format!("{key}\n"));
                ExitCode::SUCCESS
            }
            Err(error) => fail(config::ExitCode::Failure, &error.message),
        },
        config::Command::Bench(task) => match bolide::bench::run(&task) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => fail(
                config::ExitCode::Failure,
                "answers were wrong: the report has the evidence",
            ),
            Err(error) => fail(config::ExitCode::Configuration, &error.message),
        },
        config::Command::Cluster(task) => match bolide::local_cluster::run(&task, &read_key) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(config::ExitCode::Failure, &error.message),
        },
        config::Command::Operator(task) => match bolide::operator::run(&task, &read_key) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(config::ExitCode::Failure, &error.message),
        },
        config::Command::Offline(task) => match node::offline::run(&task) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => config::ExitCode::DataDamaged.into(),
            Err(failure) => fail(failure.code, &failure.message),
        },
        config::Command::Serve(settings) => match node::run(*settings) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => fail(failure.code, &failure.message),
        },
    }
}

fn read_key(path: &Path) -> Result<String> {
    Ok(keys::primary_key(path)?.base64().to_owned())
}

fn fail(code: config::ExitCode, message: &str) -> ExitCode {
    output::warn(&format!("bolide: {message}\n"));
    code.into()
}
