//! The seal of an engine's folder: which files it had at a clean stop, with their sizes and
//! checksums. RocksDB deletes the files that it does not know and takes some that are cut for
//! whole, so the seal is compared before RocksDB looks at the folder, and then broken.
//!
//! SST files can be large. The checksums of their blocks guard their contents, so the seal holds
//! their size and the checksum of their last bytes, where no block checksum reaches (the footer).

use std::{
    fs::{self, File},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{
    EngineError,
    checked_file::{self, Magic},
    manifest, wal_check,
};

const FILE: &str = "seal";
const MAGIC: Magic = *b"BOLIDEL1";
/// Of larger files only so many last bytes are summed.
const SUMMED_BYTES_MAX: u64 = 4 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Sealed {
    name: String,
    bytes: u64,
    crc: u32,
}

impl Sealed {
    /// `whole`: all of the file is summed.
    fn of(folder: &Path, name: &str, whole: bool) -> io::Result<Self> {
        let path = folder.join(name);
        let mut file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        if !whole {
            file.seek(SeekFrom::Start(bytes.saturating_sub(SUMMED_BYTES_MAX)))?;
        }
        let mut summed = Vec::new();
        file.read_to_end(&mut summed)
            .map_err(|error| checked_file::name_file(&path, error))?;
        Ok(Self {
            name: name.to_owned(),
            bytes,
            crc: crc32c::crc32c(&summed),
        })
    }
}

fn is_sst(name: &str) -> bool {
    name.ends_with(".sst")
}

/// Seals a folder whose engine writes nothing any more. `tables` are the live SST files.
pub fn write(folder: &Path, tables: &[String]) -> Result<(), EngineError> {
    let mut names = vec!["CURRENT".to_owned()];
    names.extend(manifest::current(folder)?);
    let first_wal = manifest::Manifest::read(folder)?.map_or(0, |manifest| manifest.log_number);
    let wals = wal_check::wals(folder)?;
    let wals = wals
        .range(first_wal..)
        .filter_map(|(_, path)| path.file_name());
    names.extend(wals.map(|name| name.to_string_lossy().into_owned()));
    names.extend(tables.iter().cloned());
    names.extend(others(folder)?);
    let sealed = names
        .iter()
        .map(|name| Sealed::of(folder, name, !is_sst(name)))
        .collect::<io::Result<Vec<_>>>()?;
    let contents = rmp_serde::to_vec(&sealed).map_err(io::Error::other)?;
    Ok(checked_file::replace(
        &folder.join(FILE),
        &MAGIC,
        &contents,
    )?)
}

/// Returns the database's id and the newest options.
fn others(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut options = None;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        match name.as_str() {
            "IDENTITY" => names.push(name),
            _ if name.starts_with("OPTIONS-") && !name.ends_with(".dbtmp") => {
                options = options.max(Some(name));
            }
            _ => {}
        }
    }
    names.extend(options);
    names.sort();
    Ok(names)
}

/// Compares a folder with its seal, if there is one. Changes nothing.
pub fn verify(folder: &Path) -> Result<bool, EngineError> {
    let contents = match checked_file::read(&folder.join(FILE), &MAGIC) {
        Ok(Some(contents)) => contents,
        Ok(None) => return Ok(false),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(EngineError::Damaged(error.to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let sealed: Vec<Sealed> = rmp_serde::from_slice(&contents)
        .map_err(|failure| EngineError::Damaged(format!("the seal cannot be read: {failure}")))?;
    for before in &sealed {
        let name = &before.name;
        let differs = match Sealed::of(folder, name, !is_sst(name)) {
            Ok(now) if now == *before => continue,
            Ok(now) if now.bytes != before.bytes => {
                format!("{name} has {} bytes, not {}", now.bytes, before.bytes)
            }
            Ok(_) => format!("{name} has another checksum"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => format!("{name} is missing"),
            Err(error) => return Err(error.into()),
        };
        return Err(EngineError::Damaged(format!(
            "a file is not as it was at the last clean stop: {differs}"
        )));
    }
    let is_known = |name: &str| sealed.iter().any(|one| one.name == name);
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let counts = name.starts_with("MANIFEST-") || name.ends_with(".log");
        if counts && !is_known(&name) && is_newer(&name, &sealed) {
            return Err(EngineError::Damaged(format!(
                "{name} was not there at the last clean stop"
            )));
        }
    }
    Ok(true)
}

/// Returns whether RocksDB would take a file into account: its number is above those that are
/// sealed.
fn is_newer(name: &str, sealed: &[Sealed]) -> bool {
    let number = |name: &str| -> Option<u64> {
        let digits: String = name.chars().filter(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let highest = sealed.iter().filter_map(|one| number(&one.name)).max();
    number(name) > highest
}

/// Compares a folder with its seal, if there is one, and breaks it: from now on files change.
pub fn break_open(folder: &Path) -> Result<(), EngineError> {
    if verify(folder)? {
        fs::remove_file(folder.join(FILE))?;
        checked_file::sync_folder(folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Batch, Engine, EngineOptions, SharedResources, engine::Durability, wal_check::Expected,
    };

    fn resources() -> SharedResources {
        SharedResources::new(EngineOptions {
            block_cache_mb: 8,
            write_buffer_mb: 16,
            ..EngineOptions::default()
        })
    }

    fn write_some(engine: &Engine) {
        for number in 0..50_u8 {
            let mut batch = Batch::default();
            batch.put([number], [number; 100]);
            engine.write(batch, Durability::Synced).unwrap();
        }
    }

    /// Returns an engine after a clean stop.
    fn sealed() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        write_some(&engine);
        engine.seal().unwrap();
        let refused = engine.write(Batch::default(), Durability::Buffered);
        assert!(refused.is_err(), "nothing is written behind the seal");
        drop(engine);
        folder
    }

    #[test]
    fn a_sealed_engine_opens_and_its_seal_is_broken() {
        let folder = sealed();
        assert_eq!(verify(folder.path()), Ok(true));
        let expected = Expected {
            sequence: 50,
            has_raft_log: false,
        };
        let engine = Engine::open_existing(folder.path(), &resources(), expected).unwrap();
        assert_eq!(engine.get(&[7]).unwrap().unwrap().as_ref(), [7; 100]);
        assert_eq!(verify(folder.path()), Ok(false));
    }

    #[test]
    fn any_change_of_a_sealed_file_is_noticed() {
        let folder = sealed();
        let contents = checked_file::read(&folder.path().join(FILE), &MAGIC);
        let files: Vec<Sealed> = rmp_serde::from_slice(&contents.unwrap().unwrap()).unwrap();
        assert!(files.iter().any(|one| is_sst(&one.name)), "{files:?}");
        for Sealed { name, .. } in files {
            let path = folder.path().join(&name);
            let whole = fs::read(&path).unwrap();
            let mut flipped = whole.clone();
            if let Some(last) = flipped.last_mut() {
                *last ^= 1;
            }
            let longer = [&whole[..], &[0]].concat();
            for damaged in [&flipped[..], &longer, &whole[..whole.len() / 2]] {
                fs::write(&path, damaged).unwrap();
                let differs = damaged != whole;
                assert_eq!(verify(folder.path()).is_err(), differs, "{name}");
            }
            fs::remove_file(&path).unwrap();
            let missing = verify(folder.path()).unwrap_err().to_string();
            assert!(missing.contains(&name), "{missing}");
            fs::write(&path, whole).unwrap();
        }
        assert_eq!(verify(folder.path()), Ok(true));
    }

    #[test]
    fn a_wal_that_was_not_there_is_noticed() {
        let folder = sealed();
        fs::write(folder.path().join("999999.log"), b"").unwrap();
        assert!(verify(folder.path()).is_err());
    }

    #[test]
    fn a_crash_leaves_no_seal_and_all_that_was_synced() {
        let folder = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        let engine = Engine::open(folder.path(), &resources()).unwrap();
        write_some(&engine);
        for entry in fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let durable = engine.durable().load(std::sync::atomic::Ordering::Acquire);
        assert_eq!(durable, 50);
        let expecting = |sequence| Expected {
            sequence,
            has_raft_log: false,
        };
        let more = Engine::open_existing(copy.path(), &resources(), expecting(durable + 1));
        assert!(matches!(more, Err(EngineError::Damaged(_))));
        assert!(Engine::open_existing(copy.path(), &resources(), expecting(durable)).is_ok());
    }
}
