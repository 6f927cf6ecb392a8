//! Looks through the WAL and the MANIFEST of an engine before RocksDB opens it: RocksDB drops what
//! it takes for a torn end without a word, and deletes the files that it does not know.

use std::{fs, io, path::Path, path::PathBuf};

use super::{EngineError, checked_file, log_format, manifest::Manifest};

/// Bytes of a write batch before its entries: sequence number (8) and count (4).
const BATCH_HEADER_BYTES: usize = 12;

/// What an engine must have at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The last sequence number that was recorded as durable; 0 when none was.
    pub sequence: u64,
    /// Writes behind that number are in the Raft log, too: the WAL may end anywhere behind it.
    pub has_raft_log: bool,
}

/// What the WAL and the MANIFEST hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Bytes of unfinished records at the end of the WAL.
    pub torn_bytes: u64,
    /// The last sequence number; `None` when the MANIFEST does not tell.
    pub sequence: Option<u64>,
}

/// Fails with [`EngineError::Damaged`] where something is missing or damaged.
pub fn check(folder: &Path, expected: Expected) -> Result<Found, EngineError> {
    let manifest = Manifest::read(folder)?;
    let mut last = manifest.map(|manifest| manifest.last_sequence);
    let first_log = manifest.map_or(0, |manifest| manifest.log_number);
    // The MANIFEST may be ahead of the WAL, so the order of batches is told from the WAL alone.
    let mut last_in_wal: Option<u64> = None;
    let mut torn: Option<(PathBuf, u64)> = None;
    for (_, path) in wals(folder)?.range(first_log..) {
        let bytes = checked_file::read_all(path)?;
        let (mut gap, mut seen) = (None, 0_u64);
        let end = log_format::read(&bytes, |record| {
            let Some((begin, count)) = batch_header(record) else {
                return;
            };
            seen += 1;
            match last {
                Some(before) if begin > before + 1 && gap.is_none() => gap = Some((before, begin)),
                _ => {}
            }
            let end = (begin + count).saturating_sub(1);
            last = Some(last.unwrap_or(0).max(end));
            last_in_wal = Some(end);
        });
        if let Some((before, begin)) = gap {
            return Err(EngineError::Damaged(format!(
                "{} goes on with sequence number {begin}, but what is there before it ends with {before}: a WAL is missing or short",
                path.display()
            )));
        }
        if let Some((torn, _)) = torn.filter(|_| seen > 0 && !expected.has_raft_log) {
            return Err(EngineError::Damaged(format!(
                "{} has an unfinished record, but {} goes on behind it",
                torn.display(),
                path.display()
            )));
        }
        let may_end_here = expected.has_raft_log && last.unwrap_or(0) >= expected.sequence;
        // A batch takes at least a byte for each of its entries, so what was lost bounds the
        // sequence number of the batch behind it.
        let follows = |record: &[u8], lost_bytes: usize| {
            let first = last_in_wal.map_or(0, |end| end + 1);
            let highest = last.unwrap_or(0).saturating_add(1 + lost_bytes as u64);
            let begins = batch_header(record).map(|(begin, _)| begin);
            begins.is_some_and(|begin| first < begin && begin <= highest)
        };
        let is_damage = |at: &usize| log_format::goes_on_behind(&bytes, *at, follows);
        if let Some(at) = end.bad_at.filter(|at| !may_end_here && is_damage(at)) {
            return Err(EngineError::Damaged(format!(
                "{} has a bad record at byte {at} and whole records behind it",
                path.display()
            )));
        }
        torn = (end.torn_bytes > 0).then(|| (path.clone(), end.torn_bytes as u64));
    }
    if let Some(found) = last.filter(|found| *found < expected.sequence) {
        return Err(short(found, expected.sequence));
    }
    Ok(Found {
        torn_bytes: torn.map_or(0, |(_, bytes)| bytes),
        sequence: last,
    })
}

/// That less is there than was recorded.
pub fn short(found: u64, recorded: u64) -> EngineError {
    EngineError::Damaged(format!(
        "sequence number {recorded} was recorded as durable, but only {found} is there: a WAL or an SST file is missing or short"
    ))
}

fn batch_header(record: &[u8]) -> Option<(u64, u64)> {
    let header = record.first_chunk::<BATCH_HEADER_BYTES>()?;
    let (sequence, count) = header.split_first_chunk::<8>()?;
    let count = count.first_chunk::<4>()?;
    Some((
        u64::from_le_bytes(*sequence),
        u64::from(u32::from_le_bytes(*count)),
    ))
}

/// Returns the WAL files of a folder by number.
pub fn wals(folder: &Path) -> io::Result<std::collections::BTreeMap<u64, PathBuf>> {
    let mut wals = std::collections::BTreeMap::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(wals),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        let is_wal = path.extension().is_some_and(|extension| extension == "log");
        let number = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(number) = number.filter(|_| is_wal) {
            wals.insert(number, path);
        }
    }
    Ok(wals)
}

#[cfg(test)]
mod tests {
    use super::{super::log_format::tests::record, *};

    fn batch(sequence: u64, count: u32) -> Vec<u8> {
        let header = [&sequence.to_le_bytes()[..], &count.to_le_bytes()].concat();
        record(1, &[&header[..], b"entries"].concat())
    }

    fn folder(wals: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in wals {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn expecting(sequence: u64) -> Expected {
        Expected {
            sequence,
            has_raft_log: false,
        }
    }

    #[test]
    fn wals_are_read_in_the_order_of_their_numbers() {
        let torn = batch(3, 1)[..9].to_vec();
        let folder = folder(&[
            ("999999.log", batch(1, 2)),
            ("1000000.log", torn),
            ("LOG", b"not a WAL".to_vec()),
        ]);
        let found = check(folder.path(), Expected::default()).unwrap();
        assert_eq!((found.torn_bytes, found.sequence), (9, Some(2)));
        let missing = folder.path().join("missing");
        assert_eq!(check(&missing, Expected::default()), Ok(Found::default()));
    }

    #[test]
    fn a_gap_between_sequence_numbers_is_damage() {
        let wals = [
            ("000004.log", batch(1, 2)),
            ("000009.log", batch(3, 4)),
            ("000012.log", batch(7, 1)),
        ];
        let whole = folder(&wals);
        assert_eq!(check(whole.path(), expecting(7)).unwrap().sequence, Some(7));
        fs::remove_file(whole.path().join("000009.log")).unwrap();
        let failure = check(whole.path(), Expected::default()).unwrap_err();
        assert!(
            failure.to_string().contains("missing or short"),
            "{failure}"
        );
    }

    #[test]
    fn less_than_was_recorded_is_damage() {
        let short = folder(&[("000004.log", batch(1, 2))]);
        assert!(check(short.path(), expecting(2)).is_ok());
        let failure = check(short.path(), expecting(3)).unwrap_err();
        assert!(
            failure.to_string().contains("number 3 was recorded"),
            "{failure}"
        );
    }

    #[test]
    fn a_torn_wal_before_another_one_is_damage() {
        let mut first = batch(1, 2);
        first.pop();
        let folder = folder(&[("000004.log", first), ("000009.log", batch(1, 1))]);
        let failure = check(folder.path(), Expected::default()).unwrap_err();
        assert!(
            failure.to_string().contains("unfinished record"),
            "{failure}"
        );
    }

    #[test]
    fn a_record_that_a_client_made_up_within_a_torn_one_is_no_damage() {
        // The bytes of a record may be the id of an item, with any sequence number.
        for made_up in [0, 1, 2, 3, 90_000, u64::MAX] {
            let header = [&3_u64.to_le_bytes()[..], &1_u32.to_le_bytes()].concat();
            let last = record(1, &[&header[..], &batch(made_up, 1), &[7; 40]].concat());
            let wal = [batch(1, 2), last].concat();
            let torn = folder(&[("000004.log", wal[..wal.len() - 1].to_vec())]);
            let found = check(torn.path(), expecting(2)).unwrap();
            assert_eq!(found.sequence, Some(2), "made up {made_up}");
            assert!(found.torn_bytes > 0, "made up {made_up}");
        }
    }

    #[test]
    fn a_batch_behind_a_bad_one_is_damage_wherever_the_manifest_is() {
        let whole = [batch(5, 2), batch(7, 1), batch(8, 1)];
        for bad in 0..2 {
            let mut wal = whole.concat();
            let at: usize = whole.iter().take(bad).map(Vec::len).sum();
            wal[at + 4] ^= 0x40;
            let folder = folder(&[("000004.log", wal)]);
            // Without a MANIFEST nothing is known of what comes before the WAL.
            let failure = check(folder.path(), Expected::default()).unwrap_err();
            assert!(failure.to_string().contains("bad record"), "{failure}");
        }
    }

    #[test]
    fn a_replica_may_lose_what_was_not_recorded() {
        let mut wal = [batch(1, 1), batch(2, 1), batch(3, 1)].concat();
        let at = batch(1, 1).len();
        wal[at..at + 7].fill(0);
        let folder = folder(&[("000004.log", wal)]);
        for (sequence, has_raft_log, fine) in [(1, true, true), (1, false, false), (2, true, false)]
        {
            let expected = Expected {
                sequence,
                has_raft_log,
            };
            let outcome = check(folder.path(), expected);
            assert_eq!(outcome.is_ok(), fine, "{expected:?}: {outcome:?}");
        }
    }
}
