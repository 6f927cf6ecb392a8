//! The order of rows, and places in it that fit into a continuation token.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    model::ttl::ItemTtl,
    sql::{compare_keys, compare_ordering},
};

/// Bytes of column values that a position carries: a token is 1,024 characters at most.
const COLUMN_BYTES_MAX: usize = 560;
/// What a column takes besides its value, in bytes.
const COLUMN_OVERHEAD_BYTES: usize = 8;

/// A row in its place: by its keys, then by `tie`, then by `within`.
#[derive(Clone, Debug)]
pub struct OrderedRow {
    pub keys: Vec<Option<Value>>,
    /// The ordinal of the item's resource id; of rows that are made of many items, a digest.
    pub tie: u64,
    /// Of the rows with the same tie, which one.
    pub within: u64,
    pub json: Vec<u8>,
    /// Of rows that are made of one item.
    pub life: Option<RowExpiry>,
}

/// What decides whether a row is still alive when it is handed out.
#[derive(Clone, Copy, Debug)]
pub struct RowExpiry {
    /// The part of the scope in which the item is.
    pub part: usize,
    pub ts: i64,
    pub ttl: ItemTtl,
}

/// The directions of an ORDER BY. Ties are in the order of resource ids, reversed when the first column is descending: clients that resume by
/// resource id count on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowOrder {
    descending: Vec<bool>,
}

impl RowOrder {
    pub fn new(descending: Vec<bool>) -> Self {
        Self { descending }
    }

    pub fn compare(&self, a: &OrderedRow, b: &OrderedRow) -> Ordering {
        compare_keys(&a.keys, &b.keys, &self.descending)
            .then_with(|| self.compare_ties(a.tie, b.tie))
            .then_with(|| a.within.cmp(&b.within))
    }

    /// Whether only `within` can tell the rows apart.
    pub fn is_same_place(&self, a: &OrderedRow, b: &OrderedRow) -> bool {
        a.tie == b.tie && compare_keys(&a.keys, &b.keys, &self.descending).is_eq()
    }

    pub fn reverses_ties(&self) -> bool {
        self.descending.first() == Some(&true)
    }

    fn compare_ties(&self, a: u64, b: u64) -> Ordering {
        if self.reverses_ties() {
            b.cmp(&a)
        } else {
            a.cmp(&b)
        }
    }
}

/// A place between two rows. What was handed out is before it; rows that are written or expire do not move it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowPosition {
    columns: Vec<Column>,
    tie: Tie,
}

/// The value of a column, as much of it as fits. Only the last one may be cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Column {
    Undefined,
    Exactly(Value),
    /// A text that begins so.
    Beginning(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Tie {
    /// Before all rows with these keys.
    Before,
    /// Behind all rows with these keys.
    Behind,
    /// At the first row with this tie.
    At(u64),
    /// Behind this row.
    After(u64, u64),
    /// Behind so many of the rows that the cut columns do not tell apart.
    AfterSome(u64),
}

/// Where a row stands to a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowStanding {
    Before,
    /// One of those that the position does not tell apart: some of them were handed out.
    Among,
    After,
}

impl RowPosition {
    /// The place where a client resumes: its values, and the ordinal of the item's resource id.
    pub fn resume(keys: Vec<Option<Value>>, ordinal: Option<u64>, exclude: bool) -> Self {
        let exactly = |key: Option<Value>| key.map_or(Column::Undefined, Column::Exactly);
        Self {
            columns: keys.into_iter().map(exactly).collect(),
            tie: match (ordinal, exclude) {
                (None, false) => Tie::Before,
                (None, true) => Tie::Behind,
                (Some(ordinal), false) => Tie::At(ordinal),
                (Some(ordinal), true) => Tie::After(ordinal, u64::MAX),
            },
        }
    }

    /// The place behind the last of `consumed`, of which `earlier` was known before.
    pub fn behind(
        consumed: &[OrderedRow],
        earlier: Option<&Self>,
        order: &RowOrder,
    ) -> Option<Self> {
        let last = consumed.last()?;
        let (columns, whole) = columns(&last.keys);
        let mut position = Self {
            columns,
            tie: Tie::After(last.tie, last.within),
        };
        if !whole {
            position.tie = Tie::AfterSome(0);
            let among = consumed
                .iter()
                .filter(|row| position.standing(row, order) == RowStanding::Among)
                .count() as u64;
            let before = match earlier {
                Some(Self {
                    columns,
                    tie: Tie::AfterSome(count),
                }) if *columns == position.columns => *count,
                _ => 0,
            };
            position.tie = Tie::AfterSome(before + among);
        }
        Some(position)
    }

    /// How many of the rows [among](RowStanding::Among) it were handed out.
    pub fn handed_out_among(&self) -> u64 {
        match self.tie {
            Tie::AfterSome(count) => count,
            _ => 0,
        }
    }

    pub fn standing(&self, row: &OrderedRow, order: &RowOrder) -> RowStanding {
        for ((column, key), descending) in self.columns.iter().zip(&row.keys).zip(&order.descending)
        {
            let Some(mut ordering) = column.compare(key.as_ref()) else {
                return RowStanding::Among;
            };
            if *descending {
                ordering = ordering.reverse();
            }
            match ordering {
                Ordering::Less => return RowStanding::Before,
                Ordering::Greater => return RowStanding::After,
                Ordering::Equal => {}
            }
        }
        let ordering = match self.tie {
            Tie::Before => Ordering::Greater,
            Tie::Behind => Ordering::Less,
            Tie::At(tie) => order.compare_ties(row.tie, tie).then(Ordering::Greater),
            Tie::After(tie, within) => order
                .compare_ties(row.tie, tie)
                .then_with(|| row.within.cmp(&within)),
            Tie::AfterSome(_) => return RowStanding::Among,
        };
        match ordering {
            Ordering::Greater => RowStanding::After,
            _ => RowStanding::Before,
        }
    }
}

impl Column {
    /// The order of a value to this one; `None` when it cannot be told.
    fn compare(&self, key: Option<&Value>) -> Option<Ordering> {
        match (self, key) {
            (Self::Undefined, key) => Some(compare_ordering(key, None)),
            (Self::Exactly(value), key) => Some(compare_ordering(key, Some(value))),
            (Self::Beginning(begin), Some(Value::String(text))) => {
                (!text.starts_with(begin.as_str())).then(|| text.as_str().cmp(begin))
            }
            (Self::Beginning(begin), key) => {
                Some(compare_ordering(key, Some(&Value::String(begin.clone()))))
            }
        }
    }
}

/// As many whole characters as fit.
fn beginning(text: &str, bytes_max: usize) -> &str {
    (0..=bytes_max)
        .rev()
        .find_map(|end| text.get(..end))
        .unwrap_or_default()
}

/// The columns as far as they fit, and whether they do.
fn columns(keys: &[Option<Value>]) -> (Vec<Column>, bool) {
    let mut left = COLUMN_BYTES_MAX;
    let mut columns = Vec::with_capacity(keys.len());
    for key in keys {
        let Some(room) = left.checked_sub(COLUMN_OVERHEAD_BYTES) else {
            return (columns, false);
        };
        let Some(value) = key else {
            columns.push(Column::Undefined);
            left = room;
            continue;
        };
        let bytes = match value {
            Value::String(text) => text.len(),
            _ => COLUMN_OVERHEAD_BYTES,
        };
        if bytes > room {
            if let Value::String(text) = value {
                columns.push(Column::Beginning(beginning(text, room).to_owned()));
            }
            return (columns, false);
        }
        columns.push(Column::Exactly(value.clone()));
        left = room - bytes;
    }
    (columns, true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(keys: &[Value], tie: u64, within: u64) -> OrderedRow {
        let undefined = json!("undefined");
        OrderedRow {
            keys: keys
                .iter()
                .map(|key| (*key != undefined).then(|| key.clone()))
                .collect(),
            tie,
            within,
            json: Vec::new(),
            life: None,
        }
    }

    /// Resuming behind every row of a sorted list gives exactly the rows after it.
    fn check_every_place(rows: &mut [OrderedRow], descending: &[bool]) {
        let order = RowOrder::new(descending.to_vec());
        rows.sort_by(|a, b| order.compare(a, b));
        let mut earlier: Option<RowPosition> = None;
        for at in 0..rows.len() {
            let consumed = &rows[at..=at];
            let position = RowPosition::behind(consumed, earlier.as_ref(), &order).unwrap();
            let wire = rmp_serde::to_vec(&position).unwrap();
            assert!(wire.len() < 640, "{} bytes", wire.len());
            let position: RowPosition = rmp_serde::from_slice(&wire).unwrap();
            let mut to_skip = position.handed_out_among();
            let mut left = Vec::new();
            for row in &*rows {
                match position.standing(row, &order) {
                    RowStanding::Before => {}
                    RowStanding::Among if to_skip > 0 => to_skip -= 1,
                    RowStanding::Among | RowStanding::After => left.push((row.tie, row.within)),
                }
            }
            let expected: Vec<_> = rows[at + 1..].iter().map(|r| (r.tie, r.within)).collect();
            assert_eq!(left, expected, "behind {:?}", rows[at].keys);
            earlier = Some(position);
        }
    }

    #[test]
    fn resumes_behind_any_row() {
        let values = [
            json!("undefined"),
            json!(null),
            json!(false),
            json!(true),
            json!(-5),
            json!(2.5),
            json!(9_007_199_254_740_993_i64),
            json!(""),
            json!("a"),
            json!("é".repeat(700)),
            json!(format!("{}x", "é".repeat(700))),
            json!([]),
            json!({}),
        ];
        let mut tie = 0;
        let mut one = Vec::new();
        let mut two = Vec::new();
        for a in &values {
            for within in 0..3 {
                tie += within % 2;
                one.push(row(std::slice::from_ref(a), tie, within));
            }
            for b in &values {
                tie += 1;
                two.push(row(&[a.clone(), b.clone()], tie, 0));
            }
        }
        check_every_place(&mut one, &[false]);
        check_every_place(&mut one, &[true]);
        check_every_place(&mut two, &[false, false]);
        check_every_place(&mut two, &[true, false]);
        check_every_place(&mut two, &[false, true]);
    }

    #[test]
    fn resumes_where_a_client_says() {
        let ascending = RowOrder::new(vec![false]);
        let descending = RowOrder::new(vec![true]);
        let five = || vec![Some(json!(5))];
        for (position, order, expected) in [
            (
                RowPosition::resume(five(), None, false),
                &ascending,
                [
                    RowStanding::Before,
                    RowStanding::After,
                    RowStanding::After,
                    RowStanding::After,
                ],
            ),
            (
                RowPosition::resume(five(), None, true),
                &ascending,
                [
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::After,
                ],
            ),
            (
                RowPosition::resume(five(), Some(2), false),
                &ascending,
                [
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::After,
                    RowStanding::After,
                ],
            ),
            (
                RowPosition::resume(five(), Some(2), true),
                &ascending,
                [
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::After,
                ],
            ),
            (
                RowPosition::resume(five(), Some(1), true),
                &descending,
                [
                    RowStanding::After,
                    RowStanding::Before,
                    RowStanding::Before,
                    RowStanding::Before,
                ],
            ),
        ] {
            let rows = [
                row(&[json!(4)], 9, 0),
                row(&[json!(5)], 1, 0),
                row(&[json!(5)], 2, 0),
                row(&[json!(6)], 0, 0),
            ];
            let found = rows.map(|row| position.standing(&row, order));
            assert_eq!(found, expected, "{position:?}");
        }
    }
}
