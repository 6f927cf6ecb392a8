//! Reads the end of an engine's journal after a crash and says how many bytes of it belong to no whole record.
//!
//! The engine drops such a torn tail silently; an operator wants to hear of it. The format is RocksDB's: blocks of 32 KiB,
//! in them records of checksum (4), length (2), type (1) and data; a block's last six bytes or fewer are padding.

use std::{fs, io, path::Path};

const BLOCK_BYTES: usize = 32 * 1024;
const HEADER_BYTES: usize = 7;
/// Records of a recycled journal carry four more bytes: the number of the journal.
const RECYCLED_TYPES: std::ops::RangeInclusive<u8> = 5..=8;
/// Record types that are the middle of a longer record: first, middle and their recycled twins.
const UNFINISHED_TYPES: [u8; 4] = [2, 3, 6, 7];

/// Bytes at the end of the newest journal in `folder` that a crash left behind unfinished.
pub fn torn_bytes(folder: &Path) -> io::Result<u64> {
    let mut journals: Vec<_> = match fs::read_dir(folder) {
        Ok(entries) => entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    journals.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    // Numbers have six digits or more.
    journals.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    match journals.last() {
        Some(newest) => Ok(torn_tail(&fs::read(newest)?) as u64),
        None => Ok(0),
    }
}

fn torn_tail(journal: &[u8]) -> usize {
    let mut whole = 0;
    for (number, block) in journal.chunks(BLOCK_BYTES).enumerate() {
        let start = number * BLOCK_BYTES;
        let mut at = 0;
        while let Some(&[_, _, _, _, low, high, kind]) = block
            .get(at..at + HEADER_BYTES)
            .and_then(|h| h.first_chunk())
        {
            if kind == 0 {
                // Zeroes laid out in advance, never written.
                return 0;
            }
            let header = if RECYCLED_TYPES.contains(&kind) {
                HEADER_BYTES + 4
            } else {
                HEADER_BYTES
            };
            let end = at + header + usize::from(u16::from_le_bytes([low, high]));
            if end > block.len() {
                return journal.len() - whole;
            }
            at = end;
            if !UNFINISHED_TYPES.contains(&kind) {
                whole = start + at;
            }
        }
        if block.len() < BLOCK_BYTES {
            return journal.len() - whole;
        }
    }
    // The last block is full: what is too short for a header is padding.
    let rest = journal.len() - whole;
    if rest < HEADER_BYTES { 0 } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, data: usize) -> Vec<u8> {
        let mut bytes = vec![0xaa; 4];
        bytes.extend_from_slice(&(data as u16).to_le_bytes());
        bytes.push(kind);
        bytes.extend(std::iter::repeat_n(0x55, data));
        bytes
    }

    #[test]
    fn a_whole_journal_has_no_torn_tail() {
        assert_eq!(torn_tail(&[]), 0);
        let journal = [record(1, 100), record(1, 5)].concat();
        assert_eq!(torn_tail(&journal), 0);
    }

    #[test]
    fn the_newest_journal_counts_whatever_the_length_of_its_number() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("999999.log"), record(1, 5)).unwrap();
        fs::write(folder.path().join("1000000.log"), &record(1, 5)[..9]).unwrap();
        fs::write(folder.path().join("LOG"), "not a journal").unwrap();
        assert_eq!(torn_bytes(folder.path()).unwrap(), 9);
        assert_eq!(torn_bytes(&folder.path().join("missing")).unwrap(), 0);
    }

    #[test]
    fn a_cut_record_is_torn_from_its_header_on() {
        let journal = [record(1, 100), record(1, 50)].concat();
        for cut in 1..57 {
            assert_eq!(
                torn_tail(&journal[..journal.len() - cut]),
                57 - cut,
                "cut {cut}"
            );
        }
    }

    #[test]
    fn a_record_over_two_blocks_is_torn_from_its_first_part_on() {
        let first = record(2, BLOCK_BYTES - HEADER_BYTES);
        let journal = [first.clone(), record(4, 10)].concat();
        assert_eq!(torn_tail(&journal), 0);
        assert_eq!(torn_tail(&journal[..journal.len() - 1]), journal.len() - 1);
        assert_eq!(torn_tail(&first), first.len());
    }
}
