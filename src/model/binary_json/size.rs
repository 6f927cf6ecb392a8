//! How much memory a binary body takes when it is read, told without making its values.

use serde_json::Value;

use super::{Reader, Result, reader};

/// An array may have room for twice its values.
const VALUE_BYTES: usize = 2 * size_of::<Value>();
/// What an array and an object take at least, with room for a few values.
const ARRAY_BYTES: usize = VALUE_BYTES + 4 * size_of::<Value>();
const OBJECT_BYTES: usize = VALUE_BYTES + 8 * (size_of::<Value>() + size_of::<String>());

/// Returns about how many bytes of memory the value of a body takes, at most. One that is not valid
/// is passed over up to its fault: nothing behind it is read.
pub fn parsed_size(bytes: &[u8]) -> usize {
    let mut reader = reader(bytes);
    let mut size = 0_usize;
    while reader.at < reader.end
        && let Ok(more) = reader.pass()
    {
        size = size.saturating_add(more);
    }
    size
}

impl Reader<'_> {
    /// Passes over the scalar or name at the cursor, or over the head of an array or object.
    fn pass(&mut self) -> Result<usize> {
        let at = self.at;
        let marker = self.byte()?;
        match marker {
            0x20..=0xC6 => Ok(VALUE_BYTES + self.text(at, marker)?.len()),
            0xD0..=0xD2 | 0xE0 | 0xE8 => Ok(VALUE_BYTES),
            0xE1 => Ok(ARRAY_BYTES),
            0xE9 => Ok(OBJECT_BYTES),
            0xE2..=0xE7 => self.pass_head(at, marker, 0xE2).map(|()| ARRAY_BYTES),
            0xEA..=0xEF => self.pass_head(at, marker, 0xEA).map(|()| OBJECT_BYTES),
            0xF0..=0xF3 => self.pass_uniform(marker),
            _ => self.number(at, marker).map(|_| VALUE_BYTES),
        }
    }

    fn pass_head(&mut self, at: usize, marker: u8, first: u8) -> Result<()> {
        let (_, enclosing) = self.open(at, marker, first)?;
        self.end = enclosing;
        Ok(())
    }

    fn pass_uniform(&mut self, marker: u8) -> Result<usize> {
        let width = usize::from(marker & 1) + 1;
        let is_nested = marker >= 0xF2;
        if is_nested {
            self.byte()?;
        }
        let item = self.byte()?;
        let count = self.unsigned(width)?;
        let lists = match is_nested {
            true => self.unsigned(width)?,
            false => 1,
        };
        for _ in 0..lists.saturating_mul(count) {
            self.number(self.at, item)?;
        }
        Ok(lists.saturating_mul(ARRAY_BYTES + count * VALUE_BYTES))
    }
}
