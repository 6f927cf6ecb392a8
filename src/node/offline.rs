//! Commands that look at a data folder which no node uses: `bolide check` and `bolide removed`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{
    ExitCode, Failure,
    identity::{DataFolder, RAFT},
    membership,
};
use crate::{
    clock::{ClockKeeper, kept_floor::KeptFloor},
    coordinator::{catalog_file, meta},
    shard::host::folders,
    store::{
        recorded_sequences::RecordedSequences,
        removed::{self, Removed},
        verify,
    },
};

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

/// Carries out a command. Returns whether all is well.
pub fn run(task: &OfflineTask) -> Result<bool, Failure> {
    match task {
        OfflineTask::Check { data_path } => check(data_path),
        OfflineTask::RemovedList { data_path } => {
            let _lock = lock(data_path)?;
            for removed in list(data_path)? {
                println!("{}", describe(&removed));
            }
            Ok(true)
        }
        OfflineTask::RemovedDelete { data_path, names } => {
            let _lock = lock(data_path)?;
            delete(data_path, names.as_deref())
        }
    }
}

/// Takes the data folder without changing anything in it. A folder without a lock file has never
/// been in use.
fn lock(data: &Path) -> Result<Option<File>, Failure> {
    let failed = |failure| Failure::data("cannot use the data folder", data, &failure);
    if !data.is_dir() {
        let message = format!("there is no data folder '{}'", data.display());
        return Err(Failure::new(ExitCode::Configuration, message));
    }
    let file = match File::open(data.join("lock")) {
        Ok(file) => file,
        Err(failure) if failure.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(failure) => return Err(failed(failure)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Err(Failure::new(
            ExitCode::DataInUse,
            format!("the data folder '{}' is in use", data.display()),
        )),
        Err(fs::TryLockError::Error(failure)) => Err(failed(failure)),
    }
}

fn list(data: &Path) -> Result<Vec<Removed>, Failure> {
    removed::list(data)
        .map_err(|failure| Failure::data("cannot list what was set aside in", data, &failure))
}

fn describe(removed: &Removed) -> serde_json::Value {
    json!({"name": removed.name, "bytes": removed.bytes, "since": removed.since})
}

/// `None`: all of them.
fn delete(data: &Path, names: Option<&[String]>) -> Result<bool, Failure> {
    let listed = list(data)?;
    let known = |name: &String| listed.iter().any(|one| one.name == *name);
    if let Some(name) = names.into_iter().flatten().find(|name| !known(name)) {
        let message = format!("nothing called '{name}' was set aside: see bolide removed list");
        return Err(Failure::new(ExitCode::Configuration, message));
    }
    for one in &listed {
        if names.is_none_or(|names| names.contains(&one.name)) {
            removed::delete(data, one)
                .map_err(|failure| Failure::data("cannot delete from", data, &failure))?;
            println!("deleted {}", describe(one));
        }
    }
    Ok(true)
}

/// Verifies every file, and says what a start would refuse. Changes nothing.
fn check(data: &Path) -> Result<bool, Failure> {
    let _lock = lock(data)?;
    let mut sound = true;
    let mut say = |what: &str, outcome: Result<String, String>| match outcome {
        Ok(detail) => println!("ok       {what}: {detail}"),
        Err(wrong) => {
            sound = false;
            println!("damaged  {what}: {wrong}");
        }
    };
    say(
        "watermarks",
        RecordedSequences::verify(data)
            .map(|()| "readable".to_owned())
            .map_err(|failure| failure.to_string()),
    );
    let mut id = None;
    match DataFolder::read(data) {
        Ok(folder) => {
            id = folder.id();
            say("identity and catalog", Ok(folder.to_string()));
        }
        Err(failure) => say("identity and catalog", Err(failure.message)),
    }
    for (file, verified) in [
        ("clock", ClockKeeper::verify(data)),
        ("time", KeptFloor::verify(data)),
        ("node", membership::verify(data)),
        ("filled", meta::verify_initialized_at(data)),
    ] {
        match verified {
            Ok(true) => say(file, Ok("readable".to_owned())),
            Ok(false) => {}
            Err(wrong) => say(file, Err(wrong)),
        }
    }
    let scratch = scratch_folder()?;
    let sequences = RecordedSequences::open(data);
    if data.join(RAFT).exists() {
        let expected = sequences.sequence(RAFT, 0);
        let verified = verify::engine(&data.join(RAFT), &scratch, expected, false);
        say("Raft log", summary(verified));
    }
    if let Ok(catalog) = catalog_file::load(data) {
        for shard in folders::verify(data, id, &sequences, &catalog, &scratch) {
            let (name, outcome) = shard
                .map_err(|failure| Failure::data("cannot read the data folder", data, &failure))?;
            say(&name, outcome);
        }
    }
    let _ = fs::remove_dir_all(&scratch);
    let verdict = if sound {
        "nothing is damaged"
    } else {
        "damage was found"
    };
    println!("{verdict} in '{}'", data.display());
    Ok(sound)
}

fn summary(
    verified: Result<verify::Verified, crate::store::EngineError>,
) -> Result<String, String> {
    verified
        .map(|found| found.to_string())
        .map_err(|failure| failure.to_string())
}

/// Where RocksDB may write its own log: not into the data folder.
fn scratch_folder() -> Result<std::path::PathBuf, Failure> {
    let number: u64 = rand::random();
    let folder = std::env::temp_dir().join(format!("bolide-check-{number:016x}"));
    fs::create_dir_all(&folder)
        .map_err(|failure| Failure::data("cannot make a folder for", &folder, &failure))?;
    Ok(folder)
}
