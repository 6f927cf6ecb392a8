//! Binary JSON, the form in which the Rust client sends bodies: `0x80`, then one value.
//!
//! Everything that can be read without a side dictionary is read. A marker byte opens each value; numbers and lengths
//! are little-endian; lengths are checked against what encloses them, so hostile input costs no more than its size.

use serde_json::{Map, Number, Value};

use super::error::{Error, Result};

mod size;
mod strings;

pub use size::parsed_size;

/// The first byte of a binary body; no JSON text begins with it.
const FORMAT_BYTE: u8 = 0x80;
/// The deepest nesting of arrays and objects, in levels.
pub const BINARY_DEPTH_MAX: usize = 128;
/// Values that a body may hold for each of its bytes; only arrays of tiny number arrays come near it.
const VALUES_PER_BYTE_MAX: usize = 2;
/// Bytes of text that references to earlier strings may add to a body.
const REFERENCED_BYTES_MAX: usize = 8 << 20;

/// Whether a body is binary rather than text.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.first() == Some(&FORMAT_BYTE)
}

/// Reads a whole body; whatever is wrong with it is a bad request that names the offset.
pub fn decode(bytes: &[u8]) -> Result<Value> {
    if !is_binary(bytes) {
        return Err(Error::bad_request(
            "the body is not binary json: it must begin with the byte 0x80",
        ));
    }
    let mut reader = reader(bytes);
    let value = reader.value(0)?;
    match reader.end - reader.at {
        0 => Ok(value),
        rest => Err(invalid(reader.at, format!("{rest} bytes follow the value"))),
    }
}

/// Reads a body from behind its first byte.
fn reader(bytes: &[u8]) -> Reader<'_> {
    Reader {
        bytes,
        at: bytes.len().min(1),
        end: bytes.len(),
        values_left: bytes.len().saturating_mul(VALUES_PER_BYTE_MAX),
        referenced_bytes_left: REFERENCED_BYTES_MAX,
    }
}

fn invalid(at: usize, what: impl std::fmt::Display) -> Error {
    Error::bad_request(format!(
        "the binary json body is not valid at offset {at}: {what}"
    ))
}

fn unsupported(at: usize, marker: u8) -> Error {
    invalid(
        at,
        format!("the marker 0x{marker:02X} is not supported here"),
    )
}

/// Invariant: `at <= end <= bytes.len()`.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the innermost array or object with a length ends.
    end: usize,
    values_left: usize,
    referenced_bytes_left: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.end);
        let taken = end.and_then(|end| Some((end, self.bytes.get(self.at..end)?)));
        let (end, taken) = taken.ok_or_else(|| {
            invalid(
                self.at,
                format!("{length} bytes are needed, {} are left", self.end - self.at),
            )
        })?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array().map(|[byte]| byte)
    }

    /// A length, count or offset of one to four bytes.
    fn unsigned(&mut self, width: usize) -> Result<usize> {
        Ok(self
            .take(width)?
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// Counts values before they are made, so that none come from nothing.
    fn charge(&mut self, at: usize, values: usize) -> Result<()> {
        self.values_left = self
            .values_left
            .checked_sub(values)
            .ok_or_else(|| invalid(at, "it holds more values than bytes"))?;
        Ok(())
    }

    /// The value at the cursor, inside `depth` arrays and objects.
    fn value(&mut self, depth: usize) -> Result<Value> {
        let at = self.at;
        self.charge(at, 1)?;
        let marker = self.byte()?;
        if marker >= 0xE0 && depth >= BINARY_DEPTH_MAX {
            return Err(invalid(
                at,
                format!("it is nested deeper than {BINARY_DEPTH_MAX} levels"),
            ));
        }
        match marker {
            0x20..=0xC6 => self.text(at, marker).map(Value::String),
            0xD0 => Ok(Value::Null),
            0xD1 => Ok(Value::Bool(false)),
            0xD2 => Ok(Value::Bool(true)),
            0xE0 => Ok(Value::Array(Vec::new())),
            0xE1 => Ok(Value::Array(vec![self.value(depth + 1)?])),
            0xE2..=0xE7 => self.list(at, marker, depth),
            0xE8 => Ok(Value::Object(Map::new())),
            0xE9 => {
                let mut map = Map::new();
                self.property(&mut map, depth)?;
                Ok(Value::Object(map))
            }
            0xEA..=0xEF => self.object(at, marker, depth),
            0xF0..=0xF3 => self.uniform(at, marker, depth),
            _ => self.number(at, marker).map(Value::Number),
        }
    }

    fn number(&mut self, at: usize, marker: u8) -> Result<Number> {
        let float = match marker {
            0x00..=0x1F => return Ok(marker.into()),
            0xC7 => return Ok(u64::from_le_bytes(self.array()?).into()),
            0xC8 | 0xD7 => return Ok(self.byte()?.into()),
            0xD8 => return Ok(i8::from_le_bytes(self.array()?).into()),
            0xC9 | 0xD9 => return Ok(i16::from_le_bytes(self.array()?).into()),
            0xCA | 0xDA => return Ok(i32::from_le_bytes(self.array()?).into()),
            0xCB | 0xDB => return Ok(i64::from_le_bytes(self.array()?).into()),
            0xDC => return Ok(u32::from_le_bytes(self.array()?).into()),
            0xCC | 0xCE => f64::from_le_bytes(self.array()?),
            0xCD => f64::from(f32::from_le_bytes(self.array()?)),
            0xCF => half(u16::from_le_bytes(self.array()?)),
            _ => return Err(unsupported(at, marker)),
        };
        Number::from_f64(float).ok_or_else(|| invalid(at, format!("{float} is not a json number")))
    }

    /// Opens a container: its length, its count where the marker has one, and where the enclosing one ends.
    ///
    /// `first` is the marker of the one-byte length; three widths without a count follow, then three with one.
    fn open(&mut self, at: usize, marker: u8, first: u8) -> Result<(Option<usize>, usize)> {
        let (width, counted) = match marker - first {
            0 => (1, false),
            1 => (2, false),
            2 => (4, false),
            3 => (1, true),
            4 => (2, true),
            _ => (4, true),
        };
        let length = self.unsigned(width)?;
        let count = if counted {
            Some(self.unsigned(width)?)
        } else {
            None
        };
        let enclosing = self.end;
        let end = self.at.checked_add(length).filter(|end| *end <= enclosing);
        self.end = end.ok_or_else(|| {
            invalid(
                at,
                format!("its length {length} is more than what encloses it has left"),
            )
        })?;
        Ok((count, enclosing))
    }

    fn close(
        &mut self,
        at: usize,
        found: usize,
        (count, enclosing): (Option<usize>, usize),
    ) -> Result<()> {
        self.end = enclosing;
        match count {
            Some(count) if count != found => Err(invalid(
                at,
                format!("it announces {count} members and has {found}"),
            )),
            _ => Ok(()),
        }
    }

    fn list(&mut self, at: usize, marker: u8, depth: usize) -> Result<Value> {
        let opened = self.open(at, marker, 0xE2)?;
        let mut list = Vec::new();
        while self.at < self.end {
            list.push(self.value(depth + 1)?);
        }
        self.close(at, list.len(), opened)?;
        Ok(Value::Array(list))
    }

    fn object(&mut self, at: usize, marker: u8, depth: usize) -> Result<Value> {
        let opened = self.open(at, marker, 0xEA)?;
        let mut map = Map::new();
        while self.at < self.end {
            self.property(&mut map, depth)?;
        }
        self.close(at, map.len(), opened)?;
        Ok(Value::Object(map))
    }

    fn property(&mut self, map: &mut Map<String, Value>, depth: usize) -> Result<()> {
        let at = self.at;
        let marker = self.byte()?;
        let name = self.text(at, marker)?;
        if map.contains_key(&name) {
            let shown: String = name.chars().take(100).collect();
            return Err(invalid(at, format!("the property '{shown}' occurs twice")));
        }
        let value = self.value(depth + 1)?;
        map.insert(name, value);
        Ok(())
    }

    /// Numbers of one type without their markers, or lists of such lists of one length.
    fn uniform(&mut self, at: usize, marker: u8, depth: usize) -> Result<Value> {
        let (width, nested) = match marker {
            0xF0 => (1, None),
            0xF1 => (2, None),
            0xF2 => (1, Some(0xF0)),
            _ => (2, Some(0xF1)),
        };
        if let Some(expected) = nested {
            let inner = self.byte()?;
            if inner != expected || depth + 1 >= BINARY_DEPTH_MAX {
                return Err(unsupported(at, marker));
            }
        }
        let item = self.byte()?;
        let count = self.unsigned(width)?;
        if nested.is_none() {
            return self.numbers(at, item, count);
        }
        let lists = self.unsigned(width)?;
        self.charge(at, lists)?;
        let lists: Result<Vec<Value>> = (0..lists).map(|_| self.numbers(at, item, count)).collect();
        lists.map(Value::Array)
    }

    fn numbers(&mut self, at: usize, item: u8, count: usize) -> Result<Value> {
        if item <= 0x1F {
            // A literal has no bytes of its own, so nothing would bound the count.
            return Err(unsupported(at, item));
        }
        self.charge(at, count)?;
        let numbers: Result<Vec<Value>> = (0..count)
            .map(|_| self.number(self.at, item).map(Value::Number))
            .collect();
        numbers.map(Value::Array)
    }
}

/// A half-precision float: 1 bit of sign, 5 of exponent, 10 of fraction.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let fraction = f64::from(bits & 0x03FF);
    let magnitude = match (bits >> 10) & 0x1F {
        0 => fraction * 2f64.powi(-24),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        exponent => (1.0 + fraction / 1_024.0) * 2f64.powi(i32::from(exponent) - 15),
    };
    sign * magnitude
}

#[cfg(test)]
mod tests;
