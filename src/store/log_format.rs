//! Reads files in RocksDB's log format, WAL and MANIFEST: blocks of 32 KiB with records of masked
//! CRC-32C (4), length (2), type (1) and data. A record that does not fit into its block is cut
//! into fragments. The last six bytes or fewer of a block are padding.
//!
//! RocksDB takes a record that seems to reach beyond the file, or a header of zeroes, for the end
//! of the file, and drops all that follows. [`goes_on_behind`] looks behind the first bad record:
//! where a record begins that follows those before, the file is damaged, not torn.

const BLOCK_BYTES: usize = 32 * 1024;
const HEADER_BYTES: usize = 7;
/// Records of a recycled WAL carry the number of the WAL, too.
const RECYCLED_HEADER_BYTES: usize = HEADER_BYTES + 4;
const CRC_MASK_DELTA: u32 = 0xa282_ead8;

/// What a record is, as far as reading needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    First,
    Middle,
    Last,
    /// Says something of the WAL itself: compression, its predecessor, time stamp sizes.
    Other,
}

fn kind_of(byte: u8) -> Option<(Kind, usize)> {
    Some(match byte {
        1 => (Kind::Full, HEADER_BYTES),
        2 => (Kind::First, HEADER_BYTES),
        3 => (Kind::Middle, HEADER_BYTES),
        4 => (Kind::Last, HEADER_BYTES),
        5 => (Kind::Full, RECYCLED_HEADER_BYTES),
        6 => (Kind::First, RECYCLED_HEADER_BYTES),
        7 => (Kind::Middle, RECYCLED_HEADER_BYTES),
        8 => (Kind::Last, RECYCLED_HEADER_BYTES),
        9 | 10 | 130 => (Kind::Other, HEADER_BYTES),
        11 | 131 => (Kind::Other, RECYCLED_HEADER_BYTES),
        _ => return None,
    })
}

/// How a file ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Bytes behind the last whole record that hold something.
    pub torn_bytes: usize,
    /// Where the first bad record begins, if the file does not simply end within one.
    pub bad_at: Option<usize>,
}

/// Calls back with every whole record in order, fragments put together, up to the first bad one.
pub fn read(file: &[u8], mut each: impl FnMut(&[u8])) -> End {
    let mut pending: Option<Vec<u8>> = None;
    let (mut at, mut whole) = (0, 0);
    loop {
        at = skip_padding(at);
        if at >= file.len() {
            return ended(file, whole);
        }
        let Some((kind, data, end)) = record_at(file, at) else {
            return bad(file, at, whole);
        };
        match (kind, pending.take()) {
            (Kind::Full, None) => each(data),
            (Kind::First, None) => pending = Some(data.to_vec()),
            (Kind::Middle, Some(mut before)) => {
                before.extend_from_slice(data);
                pending = Some(before);
            }
            (Kind::Last, Some(mut before)) => {
                before.extend_from_slice(data);
                each(&before);
            }
            (Kind::Other, before) => pending = before,
            // A fragment without its beginning, or a record within another.
            _ => return bad(file, at, whole),
        }
        at = end;
        if pending.is_none() {
            whole = end;
        }
    }
}

fn skip_padding(at: usize) -> usize {
    let left = BLOCK_BYTES - at % BLOCK_BYTES;
    if left < HEADER_BYTES { at + left } else { at }
}

/// Returns the record at an offset: its kind, its data and where it ends. `None` if there is no
/// whole one.
fn record_at(file: &[u8], at: usize) -> Option<(Kind, &[u8], usize)> {
    let header = file.get(at..)?.first_chunk::<HEADER_BYTES>()?;
    let &[c0, c1, c2, c3, low, high, type_byte] = header;
    let (kind, header_bytes) = kind_of(type_byte)?;
    let start = at + header_bytes;
    let end = start + usize::from(u16::from_le_bytes([low, high]));
    let block_end = at - at % BLOCK_BYTES + BLOCK_BYTES;
    if end > block_end {
        return None;
    }
    let summed = file.get(at + HEADER_BYTES - 1..end)?;
    let masked = u32::from_le_bytes([c0, c1, c2, c3]);
    let crc = masked.wrapping_sub(CRC_MASK_DELTA).rotate_left(15);
    (crc32c::crc32c(summed) == crc).then_some((kind, file.get(start..end)?, end))
}

/// The file ends between records; a record may be unfinished.
fn ended(file: &[u8], whole: usize) -> End {
    End {
        torn_bytes: file.len().saturating_sub(skip_padding(whole)),
        bad_at: None,
    }
}

/// Something is wrong at an offset: the torn end of the file, or damage.
fn bad(file: &[u8], at: usize, whole: usize) -> End {
    let rest = file.get(at..).unwrap_or_default();
    if whole == at && rest.iter().all(|byte| *byte == 0) {
        // Space that was laid out in advance and never written.
        return End::default();
    }
    End {
        torn_bytes: file.len() - whole,
        bad_at: Some(at),
    }
}

/// Returns whether a whole record begins behind the bad one at an offset. `follows` says whether
/// the data of a record may come that many bytes behind the bad one: the bytes of a torn record
/// are a client's, which can make them look like a record.
pub fn goes_on_behind(file: &[u8], bad: usize, follows: impl Fn(&[u8], usize) -> bool) -> bool {
    (bad + 1..file.len()).any(|offset| match record_at(file, offset) {
        Some((Kind::Full | Kind::First, data, _)) => follows(data, offset - bad),
        _ => false,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a record as RocksDB writes it.
    pub fn record(kind: u8, data: &[u8]) -> Vec<u8> {
        let summed = [&[kind], data].concat();
        let crc = crc32c::crc32c(&summed);
        let masked = crc.rotate_right(15).wrapping_add(CRC_MASK_DELTA);
        let length = u16::try_from(data.len()).unwrap().to_le_bytes();
        [&masked.to_le_bytes()[..], &length[..], &summed].concat()
    }

    fn read_all(file: &[u8]) -> (Vec<Vec<u8>>, End) {
        let mut records = Vec::new();
        let end = read(file, |record| records.push(record.to_vec()));
        (records, end)
    }

    fn torn(torn_bytes: usize) -> End {
        End {
            torn_bytes,
            bad_at: None,
        }
    }

    /// Returns where a file is damaged, if all but empty records follow each other.
    fn damaged_at(file: &[u8]) -> Option<usize> {
        let bad = read_all(file).1.bad_at;
        bad.filter(|at| goes_on_behind(file, *at, |data, _| !data.is_empty()))
    }

    #[test]
    fn a_whole_file_has_no_torn_end() {
        assert_eq!(read_all(&[]), (vec![], torn(0)));
        let file = [record(1, b"one"), record(130, b"info"), record(1, b"two")].concat();
        let whole = (vec![b"one".to_vec(), b"two".to_vec()], torn(0));
        assert_eq!(read_all(&file), whole);
        let laid_out = [file, vec![0; 100_000]].concat();
        assert_eq!(read_all(&laid_out), whole);
    }

    #[test]
    fn fragments_are_put_together_and_an_unfinished_record_is_torn() {
        let first = record(2, &vec![7; BLOCK_BYTES - HEADER_BYTES]);
        let file = [first.clone(), record(4, b"end")].concat();
        let (records, end) = read_all(&file);
        assert_eq!(end, torn(0));
        assert_eq!(records[0].len(), BLOCK_BYTES - HEADER_BYTES + 3);
        for cut in 1..10 {
            let rest = &file[..file.len() - cut];
            let (records, end) = read_all(rest);
            assert_eq!(
                (records.len(), end.torn_bytes),
                (0, rest.len()),
                "cut {cut}"
            );
            assert_eq!(damaged_at(rest), None, "cut {cut}");
        }
        assert_eq!(read_all(&first), (vec![], torn(first.len())));
    }

    #[test]
    fn a_cut_last_record_is_torn_from_its_header_on() {
        let file = [record(1, &[1; 100]), record(1, &[2; 50])].concat();
        for cut in 1..57 {
            let rest = &file[..file.len() - cut];
            let (records, end) = read_all(rest);
            assert_eq!((records.len(), end.torn_bytes), (1, 57 - cut), "cut {cut}");
            assert_eq!(damaged_at(rest), None, "cut {cut}");
        }
    }

    #[test]
    fn any_damaged_bit_before_a_whole_record_is_damage() {
        let before = record(1, b"before");
        let bad = record(1, b"what will be damaged");
        let file = [before.clone(), bad.clone(), record(1, b"behind")].concat();
        for at in before.len()..before.len() + bad.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                let (records, _) = read_all(&damaged);
                assert_eq!(records, [b"before"], "byte {at} bit {bit}");
                let found = damaged_at(&damaged);
                assert_eq!(found, Some(before.len()), "byte {at} bit {bit}");
            }
        }
        let mut zeroed = file.clone();
        zeroed[before.len()..before.len() + HEADER_BYTES].fill(0);
        assert_eq!(damaged_at(&zeroed), Some(before.len()));
    }

    #[test]
    fn a_damaged_last_record_cannot_be_told_from_a_torn_one() {
        let before = record(1, b"before");
        let mut file = [before.clone(), record(1, b"last")].concat();
        *file.last_mut().unwrap() ^= 1;
        assert_eq!(read_all(&file).1.torn_bytes, file.len() - before.len());
        assert_eq!(damaged_at(&file), None);
    }
}
