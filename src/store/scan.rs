//! Reading an engine as it is at one moment, and walking over a range of it.

use rocksdb::{DB, DBPinnableSlice, DBRawIterator, ReadOptions};

use super::{damage::Damage, error::EngineError, options::FAMILY};

/// A value where the engine holds it, without a copy.
pub type Pinned<'a> = DBPinnableSlice<'a>;

/// The engine at one moment.
pub struct Snapshot<'a> {
    pub(super) db: &'a DB,
    pub(super) damage: &'a Damage,
    pub(super) options: ReadOptions,
    /// Kept for as long as it is read from.
    pub(super) moment: rocksdb::Snapshot<'a>,
}

impl<'a> Snapshot<'a> {
    pub fn get(&self, key: &[u8]) -> Result<Option<DBPinnableSlice<'a>>, EngineError> {
        let found = self.db.get_pinned_opt(key, &self.options);
        found.map_err(|failure| self.damage.note(failure))
    }

    /// Returns the values of several keys, in their order: the lookups share work.
    pub fn get_all<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<DBPinnableSlice<'a>>>, EngineError> {
        match (keys, self.db.cf_handle(FAMILY)) {
            ([], _) => Ok(Vec::new()),
            ([_, _, ..], Some(family)) => {
                let found = self
                    .db
                    .batched_multi_get_cf_opt(family, keys, false, &self.options);
                let found: Result<_, _> = found.into_iter().collect();
                found.map_err(|failure| self.damage.note(failure))
            }
            _ => keys.iter().map(|key| self.get(key.as_ref())).collect(),
        }
    }

    /// Returns a cursor over `from <= key < to`; it stands nowhere until it is sent somewhere.
    pub fn cursor(&self, from: &[u8], to: &[u8]) -> Scan<'a> {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.moment);
        options.set_iterate_lower_bound(from);
        options.set_iterate_upper_bound(to);
        Scan {
            iterator: self.db.raw_iterator_opt(options),
            damage: self.damage,
        }
    }
}

/// A key and its value.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// A walk over a range of the engine.
pub struct Scan<'a> {
    pub(super) iterator: DBRawIterator<'a>,
    pub(super) damage: &'a Damage,
}

impl Scan<'_> {
    /// Returns the entry under the cursor; `None` at the end of the range.
    pub fn entry(&self) -> Result<Option<Entry<'_>>, EngineError> {
        match self.iterator.item() {
            Some(entry) => Ok(Some(entry)),
            None => self.status().map(|()| None),
        }
    }

    /// Returns the value under the cursor; `None` at the end of the range.
    pub fn value(&self) -> Result<Option<&[u8]>, EngineError> {
        match self.iterator.value() {
            Some(value) => Ok(Some(value)),
            None => self.status().map(|()| None),
        }
    }

    fn status(&self) -> Result<(), EngineError> {
        let status = self.iterator.status();
        status.map_err(|failure| self.damage.note(failure))
    }

    pub fn advance(&mut self) {
        if self.iterator.valid() {
            self.iterator.next();
        }
    }

    /// One entry back.
    pub fn retreat(&mut self) {
        if self.iterator.valid() {
            self.iterator.prev();
        }
    }

    /// To the first entry at or behind a key.
    pub fn seek(&mut self, key: &[u8]) {
        self.iterator.seek(key);
    }

    /// To the last entry at or before a key.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.iterator.seek_for_prev(key);
    }

    pub fn seek_to_last(&mut self) {
        self.iterator.seek_to_last();
    }
}
