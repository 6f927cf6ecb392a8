//! What the MANIFEST of an engine says of its WAL: where it begins, and how far the SST files
//! reach. Only the first fields of its edits are read; RocksDB checks the rest.

use std::{fs, io, path::Path};

use super::{EngineError, checked_file, log_format};

/// Tags of the fields that come before all others in an edit.
const COMPARATOR: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const PREVIOUS_LOG: u64 = 9;
const MIN_LOG_TO_KEEP: u64 = 10;
const MAX_COLUMN_FAMILY: u64 = 203;
/// A field that older readers may skip; its length follows.
const SAFE_IGNORE_MASK: u64 = 1 << 13;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// WAL files with lower numbers are not needed any more.
    pub log_number: u64,
    pub last_sequence: u64,
    /// The number of the next file: no edit lowers it.
    next_file: u64,
}

impl Manifest {
    /// `None`: there is none, or it cannot be understood.
    pub fn read(folder: &Path) -> Result<Option<Self>, EngineError> {
        let Some(name) = current(folder)? else {
            return Ok(None);
        };
        let path = folder.join(&name);
        let bytes = match checked_file::read_all(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(EngineError::Damaged(format!(
                    "CURRENT names {name}, which is missing"
                )));
            }
            Err(error) => return Err(error.into()),
        };
        let mut manifest = Self::default();
        let end = log_format::read(&bytes, |edit| manifest.apply(edit));
        let is_damage = |at: &usize| {
            log_format::goes_on_behind(&bytes, *at, |edit, _| manifest.is_followed_by(edit))
        };
        if let Some(at) = end.bad_at.filter(is_damage) {
            return Err(EngineError::Damaged(format!(
                "{} has a bad record at byte {at} and whole records behind it",
                path.display()
            )));
        }
        Ok(Some(manifest))
    }

    /// Returns whether an edit may come behind those that were read: every edit names the next
    /// file and the last sequence number.
    fn is_followed_by(&self, edit: &[u8]) -> bool {
        let mut one = Self::default();
        one.apply(edit);
        one.next_file > 0
            && one.next_file >= self.next_file
            && one.last_sequence >= self.last_sequence
    }

    fn apply(&mut self, mut edit: &[u8]) {
        while let Some(tag) = varint(&mut edit) {
            match tag {
                COMPARATOR => drop(length_prefixed(&mut edit)),
                tag if tag & SAFE_IGNORE_MASK != 0 => drop(length_prefixed(&mut edit)),
                LOG_NUMBER | NEXT_FILE | LAST_SEQUENCE | PREVIOUS_LOG | MIN_LOG_TO_KEEP
                | MAX_COLUMN_FAMILY => {
                    let Some(number) = varint(&mut edit) else {
                        return;
                    };
                    match tag {
                        LOG_NUMBER | MIN_LOG_TO_KEEP => {
                            self.log_number = self.log_number.max(number);
                        }
                        NEXT_FILE => self.next_file = self.next_file.max(number),
                        LAST_SEQUENCE => self.last_sequence = self.last_sequence.max(number),
                        _ => {}
                    }
                }
                // Files and all that belongs to them.
                _ => return,
            }
        }
    }
}

/// Returns the current MANIFEST.
pub fn current(folder: &Path) -> Result<Option<String>, EngineError> {
    let path = folder.join("CURRENT");
    match fs::read_to_string(&path) {
        Ok(name) => {
            let name = name.trim_end().to_owned();
            let is_one = name.strip_prefix("MANIFEST-").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            if is_one {
                return Ok(Some(name));
            }
            Err(EngineError::Damaged(format!("CURRENT holds {name:?}")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Err(EngineError::Damaged("CURRENT is not text".to_owned()))
        }
        Err(error) => Err(checked_file::name_file(&path, error).into()),
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn length_prefixed<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    let (data, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(data)
}
