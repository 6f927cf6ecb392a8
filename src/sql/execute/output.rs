//! DISTINCT, ORDER BY, TOP and OFFSET LIMIT.

use super::FinishedRow;
use crate::model::error::Result;
use crate::sql::compare::{canonical_key, compare_ordering};
use crate::sql::eval::{Context, Flow, Scope, eval, memory_size};
use crate::sql::program::Program;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::HashSet;

/// About what a row takes besides its value and its keys.
const ROW_BYTES: usize = size_of::<Vec<Value>>();
/// About what a key of DISTINCT takes besides itself, in a table that is at least half full.
const SEEN_BYTES: usize = 3 * size_of::<Vec<u8>>();

/// Rows on their way out.
pub struct Output {
    pub rows: Vec<FinishedRow>,
    descending: Vec<bool>,
    seen: Option<HashSet<Vec<u8>>>,
    offset: u64,
    limit: u64,
    pub held_bytes: usize,
}

impl Output {
    /// Without `cut`, TOP and OFFSET LIMIT are left to the caller.
    pub fn new(program: &Program, cut: bool) -> Self {
        let (offset, limit) = program
            .window
            .filter(|_| cut)
            .map_or((0, u64::MAX), |w| (w.offset, w.limit));
        // TOP counts before OFFSET skips.
        let top = program.top.filter(|_| cut);
        let limit = limit.min(top.map_or(u64::MAX, |top| top.saturating_sub(offset)));
        Self {
            rows: Vec::new(),
            descending: program.order_by.iter().map(|key| key.descending).collect(),
            seen: program.distinct.then(HashSet::new),
            offset,
            limit,
            held_bytes: 0,
        }
    }

    /// How many rows matter, the skipped ones included.
    pub fn wanted(&self) -> usize {
        usize::try_from(self.offset.saturating_add(self.limit)).unwrap_or(usize::MAX)
    }

    pub fn is_full(&self) -> bool {
        self.limit == 0 || (self.descending.is_empty() && self.rows.len() >= self.wanted())
    }

    pub fn push(&mut self, program: &Program, row: &Scope<'_>, context: &Context) -> Result<Flow> {
        if self.is_full() {
            return Ok(Flow::Enough);
        }
        let Some(value) = eval(&program.projection, row, context)? else {
            return Ok(Flow::More);
        };
        if let Some(seen) = &self.seen {
            context.charge_key(memory_size(&value))?;
            context.reserve_growth(seen.len(), seen.capacity(), size_of::<Vec<u8>>() + 1)?;
        }
        if !self.is_new(&value) {
            return Ok(Flow::More);
        }
        let value = context.own(value)?;
        let row_bytes = size_of::<FinishedRow>();
        context.reserve_growth(self.rows.len(), self.rows.capacity(), row_bytes)?;
        let mut keys = Vec::with_capacity(program.order_by.len());
        for key in &program.order_by {
            let key = eval(&key.node, row, context)?;
            keys.push(key.map(|key| context.order_key(key)).transpose()?);
        }
        self.insert(keys, value);
        Ok(if self.is_full() {
            Flow::Enough
        } else {
            Flow::More
        })
    }

    /// Whether DISTINCT lets the value through.
    pub fn is_new(&mut self, value: &Value) -> bool {
        let Some(seen) = &mut self.seen else {
            return true;
        };
        let mut key = Vec::new();
        canonical_key(Some(value), &mut key);
        let bytes = SEEN_BYTES + key.len();
        let is_new = seen.insert(key);
        if is_new {
            self.held_bytes += bytes;
        }
        is_new
    }

    pub fn insert(&mut self, keys: Vec<Option<Value>>, value: Value) {
        let keys_bytes: usize = keys.iter().flatten().map(memory_size).sum();
        self.held_bytes += ROW_BYTES + memory_size(&value) + keys_bytes;
        self.rows.push(FinishedRow { keys, value });
        self.shrink();
    }

    /// Keeps no more than about twice the rows that matter, at a constant cost a row.
    pub fn shrink(&mut self) {
        const KEPT_AT_LEAST: usize = 1_000;
        let wanted = self.wanted();
        if !self.descending.is_empty() && self.rows.len() / 2 >= wanted.max(KEPT_AT_LEAST) {
            self.sort();
            self.rows.truncate(wanted);
            let keys = self.rows.iter().flat_map(|row| row.keys.iter().flatten());
            let bytes = keys
                .chain(self.rows.iter().map(|row| &row.value))
                .map(memory_size);
            self.held_bytes = bytes.sum::<usize>() + self.rows.len() * ROW_BYTES;
        }
    }

    pub fn sort(&mut self) {
        let Self {
            rows, descending, ..
        } = self;
        rows.sort_by(|a, b| compare_keys(&a.keys, &b.keys, descending));
    }

    pub fn finish(mut self) -> Vec<FinishedRow> {
        self.sort();
        let skip = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let take = usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.rows.into_iter().skip(skip).take(take).collect()
    }
}

/// The order of rows by the values of their ORDER BY columns.
pub fn compare_keys(a: &[Option<Value>], b: &[Option<Value>], descending: &[bool]) -> Ordering {
    a.iter()
        .zip(b)
        .zip(descending)
        .map(|((a, b), descending)| {
            let ordering = compare_ordering(a.as_ref(), b.as_ref());
            if *descending {
                ordering.reverse()
            } else {
                ordering
            }
        })
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}
