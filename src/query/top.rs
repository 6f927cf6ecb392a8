//! The first rows of many: as many as a page takes, whatever the number that is offered.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use serde_json::Value;

use super::position::{OrderedRow, RowOrder};

/// What a held row takes besides its JSON and its keys, in bytes.
const ROW_OVERHEAD_BYTES: usize = 96;

/// Keeps the rows that come first.
pub struct Top {
    order: Arc<RowOrder>,
    rows: BinaryHeap<HeldRow>,
    rows_max: usize,
    /// Rows behind the first so many bytes are of no use.
    bytes_max: usize,
    bytes: usize,
    held_bytes: usize,
    refused: bool,
}

struct HeldRow {
    order: Arc<RowOrder>,
    row: OrderedRow,
    held_bytes: usize,
}

impl Ord for HeldRow {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order.compare(&self.row, &other.row)
    }
}

impl PartialOrd for HeldRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeldRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HeldRow {}

impl Top {
    pub fn new(order: Arc<RowOrder>, rows_max: usize, bytes_max: usize) -> Self {
        Self {
            order,
            rows: BinaryHeap::new(),
            rows_max,
            bytes_max,
            bytes: 0,
            held_bytes: 0,
            refused: false,
        }
    }

    pub fn order(&self) -> &RowOrder {
        &self.order
    }

    /// Whether a row, without its JSON, is among the first so far. If not, no row after it is.
    pub fn admits(&mut self, row: &OrderedRow) -> bool {
        let full = self.rows.len() >= self.rows_max || self.bytes >= self.bytes_max;
        let admitted = !full
            || self
                .rows
                .peek()
                .is_some_and(|last| self.order.compare(row, &last.row).is_lt());
        self.refused |= !admitted;
        admitted
    }

    pub fn insert(&mut self, row: OrderedRow) {
        let held_bytes =
            ROW_OVERHEAD_BYTES + row.json.len() + row.keys.iter().map(key_bytes).sum::<usize>();
        self.bytes += row.json.len();
        self.held_bytes += held_bytes;
        self.rows.push(HeldRow {
            order: Arc::clone(&self.order),
            row,
            held_bytes,
        });
        while let Some(last) = self.rows.peek() {
            let dispensable = self.rows.len() > 1
                && (self.rows.len() > self.rows_max
                    || self.bytes - last.row.json.len() >= self.bytes_max);
            if !dispensable {
                break;
            }
            if let Some(last) = self.rows.pop() {
                self.bytes -= last.row.json.len();
                self.held_bytes -= last.held_bytes;
                self.refused = true;
            }
        }
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// The rows in order, and whether there were more.
    pub fn finish(self) -> (Vec<OrderedRow>, bool) {
        let sorted = self.rows.into_sorted_vec();
        (
            sorted.into_iter().map(|held| held.row).collect(),
            self.refused,
        )
    }
}

fn key_bytes(key: &Option<Value>) -> usize {
    match key {
        Some(Value::String(text)) => text.len() + size_of::<Value>(),
        _ => size_of::<Value>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(key: i64, bytes: usize) -> OrderedRow {
        OrderedRow {
            keys: vec![Some(json!(key))],
            tie: 0,
            within: 0,
            json: vec![b'0'; bytes],
            life: None,
        }
    }

    fn first(rows_max: usize, bytes_max: usize, keys: &[i64]) -> (Vec<i64>, bool) {
        let mut top = Top::new(Arc::new(RowOrder::new(vec![false])), rows_max, bytes_max);
        for key in keys {
            if top.admits(&row(*key, 0)) {
                top.insert(row(*key, 10));
            }
        }
        let (rows, more) = top.finish();
        let keys = rows
            .iter()
            .map(|row| row.keys[0].as_ref().and_then(Value::as_i64).unwrap());
        (keys.collect(), more)
    }

    #[test]
    fn keeps_the_first_rows_and_knows_of_more() {
        let keys = [5, 3, 9, 1, 7, 2];
        assert_eq!(first(10, 1_000, &keys), (vec![1, 2, 3, 5, 7, 9], false));
        assert_eq!(first(6, 1_000, &keys), (vec![1, 2, 3, 5, 7, 9], false));
        assert_eq!(first(3, 1_000, &keys), (vec![1, 2, 3], true));
        assert_eq!(first(1, 1_000, &keys), (vec![1], true));
        // Rows of 10 bytes: the third crosses the bound and is the last that can matter.
        assert_eq!(first(10, 25, &keys), (vec![1, 2, 3], true));
        assert_eq!(first(10, 5, &keys), (vec![1], true));
    }

    #[test]
    fn forgets_what_it_drops() {
        let mut top = Top::new(Arc::new(RowOrder::new(vec![true])), 2, usize::MAX);
        for key in 0..1_000 {
            assert!(top.admits(&row(key, 0)));
            top.insert(row(key, 100));
        }
        assert!(top.held_bytes() < 1_000, "{}", top.held_bytes());
    }
}
