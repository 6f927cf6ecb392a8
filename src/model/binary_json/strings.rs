//! The many forms of strings in binary JSON.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::{Reader, Result, invalid, unsupported};

/// Strings that a single marker, `0x20` and up, stands for.
#[rustfmt::skip]
const SYSTEM_STRINGS: [&str; 32] = [
    "$s", "$t", "$v", "_attachments", "_etag", "_rid", "_self", "_ts",
    "attachments/", "coordinates", "geometry", "GeometryCollection", "id", "url", "Value", "label",
    "LineString", "link", "MultiLineString", "MultiPoint", "MultiPolygon", "name", "Name", "Type",
    "Point", "Polygon", "properties", "type", "value", "Feature", "FeatureCollection", "_id",
];

const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";
const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

impl Reader<'_> {
    /// The string whose marker was just read at `at`.
    pub(super) fn text(&mut self, at: usize, marker: u8) -> Result<String> {
        match marker {
            0xC3..=0xC6 => self.referenced(at, usize::from(marker - 0xC2)),
            _ => self.direct_text(at, marker),
        }
    }

    /// Any string but a reference.
    fn direct_text(&mut self, at: usize, marker: u8) -> Result<String> {
        match marker {
            0x20..=0x3F => {
                let text = SYSTEM_STRINGS.get(usize::from(marker - 0x20));
                text.map(|text| (*text).to_owned())
                    .ok_or_else(|| unsupported(at, marker))
            }
            0x40..=0x67 => Err(invalid(
                at,
                format!("the marker 0x{marker:02X} needs a dictionary that requests do not carry"),
            )),
            0x71 | 0x73 => self.base64(at, 1, marker == 0x73),
            0x72 | 0x74 => self.base64(at, 2, marker == 0x74),
            0x75 => self.guid(HEX_LOWER),
            0x76 => self.guid(HEX_UPPER),
            0x77 => Ok(format!("\"{}\"", self.guid(HEX_LOWER)?)),
            0x78 => self.text_of_set(HEX_LOWER),
            0x79 => self.text_of_set(HEX_UPPER),
            0x7A => self.text_of_set(DATE_TIME),
            0x7B => self.packed(at, 4),
            0x7C => self.packed(at, 5),
            0x7D => self.packed(at, 6),
            0x7E => {
                let length = self.unsigned(1)?;
                self.unpack(at, 7, length, 0)
            }
            0x7F => {
                let length = self.unsigned(2)?;
                self.unpack(at, 7, length, 0)
            }
            0x80..=0xBF => self.utf8(at, usize::from(marker & 0x3F)),
            0xC0 => self.counted_utf8(at, 1),
            0xC1 => self.counted_utf8(at, 2),
            0xC2 => self.counted_utf8(at, 4),
            _ => Err(unsupported(at, marker)),
        }
    }

    fn counted_utf8(&mut self, at: usize, width: usize) -> Result<String> {
        let length = self.unsigned(width)?;
        self.utf8(at, length)
    }

    fn utf8(&mut self, at: usize, length: usize) -> Result<String> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(str::to_owned)
            .map_err(|_| invalid(at, "the string is not utf-8"))
    }

    /// The string whose marker is at an earlier offset of the body. It is not a reference itself, so this ends.
    fn referenced(&mut self, at: usize, width: usize) -> Result<String> {
        let target = self.unsigned(width)?;
        if target == 0 || target >= at {
            return Err(invalid(
                at,
                format!("the reference to offset {target} does not point back into the body"),
            ));
        }
        let mut reader = Reader {
            bytes: self.bytes,
            at: target,
            end: at,
            values_left: 0,
            referenced_bytes_left: 0,
        };
        let marker = reader.byte()?;
        let text = reader.direct_text(target, marker)?;
        self.referenced_bytes_left = self
            .referenced_bytes_left
            .checked_sub(text.len())
            .ok_or_else(|| invalid(at, "references repeat too much text"))?;
        Ok(text)
    }

    /// Sixteen bytes as 32 hex digits with dashes; of each byte the low half is the first digit.
    fn guid(&mut self, digits: &[u8; 16]) -> Result<String> {
        let bytes: [u8; 16] = self.array()?;
        let mut text = String::with_capacity(36);
        for (index, byte) in bytes.into_iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.extend(halves(byte).map(|half| char::from(nth(digits, half))));
        }
        Ok(text)
    }

    /// Text of a set of sixteen characters, two in a byte, low half first.
    fn text_of_set(&mut self, set: &[u8; 16]) -> Result<String> {
        let length = self.unsigned(1)?;
        let bytes = self.take(length.div_ceil(2))?;
        Ok(bytes
            .iter()
            .flat_map(|byte| halves(*byte))
            .take(length)
            .map(|half| char::from(nth(set, half)))
            .collect())
    }

    fn packed(&mut self, at: usize, bits: usize) -> Result<String> {
        let length = self.unsigned(1)?;
        let base = self.byte()?;
        self.unpack(at, bits, length, base)
    }

    /// ASCII in groups of `bits`, lowest bits first, each counted from `base`.
    fn unpack(&mut self, at: usize, bits: usize, length: usize, base: u8) -> Result<String> {
        let mut bytes = self.take((length * bits).div_ceil(8))?.iter();
        let (mut held, mut held_bits) = (0u32, 0);
        let mut text = String::with_capacity(length);
        for _ in 0..length {
            if held_bits < bits {
                held |= bytes.next().map_or(0, |byte| u32::from(*byte)) << held_bits;
                held_bits += 8;
            }
            let offset = held & ((1 << bits) - 1);
            held >>= bits;
            held_bits -= bits;
            let character = char::from_u32(u32::from(base) + offset).filter(char::is_ascii);
            text.push(character.ok_or_else(|| invalid(at, "a packed character is not ascii"))?);
        }
        Ok(text)
    }

    /// Base64 text kept as the bytes it stands for: how many groups of three, and what became of the padding.
    ///
    /// The padding byte is the number of `=`, or its complement when the text leaves them out.
    fn base64(&mut self, at: usize, width: usize, url_safe: bool) -> Result<String> {
        let groups = self.unsigned(width)?;
        let padding = self.byte()?;
        let (missing, padded) = if padding <= 2 {
            (padding, true)
        } else {
            (!padding, false)
        };
        let length = if missing <= 2 {
            (groups * 3).checked_sub(usize::from(missing))
        } else {
            None
        };
        let length = length.ok_or_else(|| {
            invalid(
                at,
                format!("the padding 0x{padding:02X} of a base64 string is not possible"),
            )
        })?;
        let engine = match (url_safe, padded) {
            (false, true) => STANDARD,
            (false, false) => STANDARD_NO_PAD,
            (true, true) => URL_SAFE,
            (true, false) => URL_SAFE_NO_PAD,
        };
        Ok(engine.encode(self.take(length)?))
    }
}

fn halves(byte: u8) -> [u8; 2] {
    [byte & 0x0F, byte >> 4]
}

/// A character by the four bits that name it.
fn nth(set: &[u8; 16], half: u8) -> u8 {
    set.get(usize::from(half)).copied().unwrap_or_default()
}
