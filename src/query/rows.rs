//! The rows of one page, as JSON.

use serde_json::Value;

use super::{position::RowExpiry, scope::ScopePart};
use crate::{
    expiry::{ExpiryCheck, earlier},
    model::error::{Error, Result},
};

/// With the first row, room is made for so many like it, as long as they are few bytes: most pages are small, and to grow in steps would be to
/// copy them again and again.
const ROWS_AT_FIRST: usize = 16;
const ROW_BYTES_AT_FIRST_MAX: usize = 64 * 1024;

/// Rows one behind the other, ready to be sent.
#[derive(Debug, Default)]
pub struct Rows {
    json: Vec<u8>,
    ends: Vec<End>,
}

#[derive(Clone, Copy, Debug)]
struct End {
    end: usize,
    life: Option<RowExpiry>,
}

impl Rows {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.json.len()
    }

    pub fn push(&mut self, json: &[u8], life: Option<RowExpiry>) {
        if self.ends.is_empty() {
            let expected = json.len().saturating_mul(ROWS_AT_FIRST);
            self.json.reserve(expected.min(ROW_BYTES_AT_FIRST_MAX));
            self.ends.reserve(ROWS_AT_FIRST);
        }
        self.json.extend_from_slice(json);
        self.close(life);
    }

    /// Adds a value, unless the page would then have more than `bytes_max`; a first row always fits.
    pub fn push_value(
        &mut self,
        value: &Value,
        life: Option<RowExpiry>,
        bytes_max: usize,
    ) -> Result<bool> {
        let before = self.json.len();
        serde_json::to_writer(&mut self.json, value)
            .map_err(|failure| Error::internal(format!("a row is not JSON: {failure}")))?;
        if !self.is_empty() && self.json.len() > bytes_max {
            self.json.truncate(before);
            return Ok(false);
        }
        self.close(life);
        Ok(true)
    }

    fn close(&mut self, life: Option<RowExpiry>) {
        self.ends.push(End {
            end: self.json.len(),
            life,
        });
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        let mut begin = 0;
        self.ends.iter().map(move |row| {
            let json = self.json.get(begin..row.end).unwrap_or_default();
            begin = row.end;
            json
        })
    }

    /// When the first of the rows' items falls due.
    pub fn first_due(&self, parts: &[ScopePart]) -> Result<Option<i64>> {
        let mut checks = ExpiryChecks::new(parts);
        let mut first = None;
        for life in self.ends.iter().filter_map(|row| row.life) {
            first = earlier(first, checks.of(life)?.expiry_of(life.ts, life.ttl));
        }
        Ok(first)
    }

    /// Drops the rows of items that have expired since they were read.
    pub fn drop_expired(&mut self, parts: &[ScopePart]) -> Result<()> {
        let mut checks = ExpiryChecks::new(parts);
        let mut live = Self::default();
        for (json, row) in self.iter().zip(&self.ends) {
            let is_live = match row.life {
                None => true,
                Some(life) => checks.of(life)?.is_live(life.ts, life.ttl),
            };
            if is_live {
                live.push(json, row.life);
            }
        }
        if live.len() < self.len() {
            *self = live;
        }
        Ok(())
    }
}

/// One expiry check for each part of the scope that rows come from.
struct ExpiryChecks<'a> {
    parts: &'a [ScopePart],
    /// Of each part, once it was asked for.
    known: Vec<Option<ExpiryCheck>>,
}

impl<'a> ExpiryChecks<'a> {
    fn new(parts: &'a [ScopePart]) -> Self {
        let known = parts.iter().map(|_| None).collect();
        Self { parts, known }
    }

    fn of(&mut self, life: RowExpiry) -> Result<&ExpiryCheck> {
        let part = self.parts.get(life.part);
        let (part, known) = part
            .zip(self.known.get_mut(life.part))
            .ok_or_else(|| Error::internal("a row comes from no part of the scope"))?;
        match known {
            Some(check) => Ok(check),
            unknown => Ok(unknown.insert(part.shard.view()?.expiry_check())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_come_back_one_by_one() {
        let mut rows = Rows::default();
        rows.push(b"{\"a\":1}", None);
        assert!(rows.push_value(&json!("x"), None, 100).unwrap());
        assert!(!rows.push_value(&json!("too long"), None, 12).unwrap());
        assert!(rows.push_value(&json!(7), None, 11).unwrap());
        let all: Vec<&[u8]> = rows.iter().collect();
        assert_eq!(all, [&b"{\"a\":1}"[..], b"\"x\"", b"7"]);
        assert_eq!((rows.len(), rows.bytes()), (3, 11));
    }

    #[test]
    fn a_first_row_always_fits() {
        let mut rows = Rows::default();
        assert!(rows.push_value(&json!("long"), None, 1).unwrap());
        assert!(!rows.push_value(&json!(1), None, 1).unwrap());
    }
}
