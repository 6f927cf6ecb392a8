//! The `bolide` program.

use std::{path::Path, process::ExitCode};

use bolide::{config, gateway::keys, model::error::Result, node, output};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

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
