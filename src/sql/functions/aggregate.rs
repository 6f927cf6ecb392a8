//! Aggregates: a state that rows are added to.

use crate::model::error::Result;
use crate::sql::compare::{canonical_key, compare_defined};
use crate::sql::eval::Context;
use crate::sql::number;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    Average,
    Count,
    CountIf,
    MakeList,
    MakeSet,
    Max,
    Min,
    Sum,
}

impl Aggregate {
    pub fn from_name(name: &str) -> Option<Self> {
        const NAMES: [(&str, Aggregate); 8] = [
            ("AVG", Aggregate::Average),
            ("COUNT", Aggregate::Count),
            ("COUNTIF", Aggregate::CountIf),
            ("MAKELIST", Aggregate::MakeList),
            ("MAKESET", Aggregate::MakeSet),
            ("MAX", Aggregate::Max),
            ("MIN", Aggregate::Min),
            ("SUM", Aggregate::Sum),
        ];
        NAMES
            .into_iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, aggregate)| aggregate)
    }
}

impl Aggregate {
    /// Whether its state grows with the values.
    pub const fn keeps_values(self) -> bool {
        matches!(self, Self::MakeList | Self::MakeSet)
    }

    /// Its name in query plans.
    pub const fn plan_name(self) -> &'static str {
        match self {
            Self::Average => "Average",
            Self::Count => "Count",
            Self::CountIf => "CountIf",
            Self::MakeList => "MakeList",
            Self::MakeSet => "MakeSet",
            Self::Max => "Max",
            Self::Min => "Min",
            Self::Sum => "Sum",
        }
    }
}

/// The state of an aggregate. Undefined values are never added: rows without a value do not count.
/// States of the same aggregate can be merged, also after a way over the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Accumulator {
    Count(u64),
    CountIf(u64),
    /// None once a value was no number.
    Sum(Option<f64>),
    /// Sum and count; none once a value was no number.
    Average(Option<(f64, u64)>),
    Min(Extreme),
    Max(Extreme),
    List(Vec<Value>),
    Set(DistinctValues),
}

/// The least or greatest value so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Extreme {
    Nothing,
    Best(Value),
    /// A value was an array or an object, which have no order here.
    Undefined,
}

impl Extreme {
    fn add(&mut self, value: Cow<'_, Value>, wanted: Ordering) {
        match self {
            Self::Undefined => {}
            _ if value.is_array() || value.is_object() => *self = Self::Undefined,
            Self::Best(best) if compare_defined(&value, best) != wanted => {}
            _ => *self = Self::Best(value.into_owned()),
        }
    }

    fn merge(&mut self, other: Self, wanted: Ordering) {
        match other {
            Self::Nothing => {}
            Self::Best(value) => self.add(Cow::Owned(value), wanted),
            Self::Undefined => *self = Self::Undefined,
        }
    }

    fn finish(self) -> Option<Value> {
        match self {
            Self::Best(value) => Some(value),
            Self::Nothing | Self::Undefined => None,
        }
    }
}

/// Values without repetition, in the order of first sight; the keys stay at home.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DistinctValues {
    values: Vec<Value>,
    #[serde(skip)]
    seen: HashSet<Vec<u8>>,
}

impl PartialEq for DistinctValues {
    fn eq(&self, other: &Self) -> bool {
        self.values == other.values
    }
}

impl DistinctValues {
    fn is_new(&mut self, value: &Value) -> bool {
        let mut key = Vec::new();
        canonical_key(Some(value), &mut key);
        self.seen.insert(key)
    }
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number::to_f64(number)),
        _ => None,
    }
}

impl Accumulator {
    pub fn new(aggregate: Aggregate) -> Self {
        match aggregate {
            Aggregate::Average => Self::Average(Some((0.0, 0))),
            Aggregate::Count => Self::Count(0),
            Aggregate::CountIf => Self::CountIf(0),
            Aggregate::MakeList => Self::List(Vec::new()),
            Aggregate::MakeSet => Self::Set(DistinctValues::default()),
            Aggregate::Max => Self::Max(Extreme::Nothing),
            Aggregate::Min => Self::Min(Extreme::Nothing),
            Aggregate::Sum => Self::Sum(Some(0.0)),
        }
    }

    pub fn add(&mut self, value: Cow<'_, Value>, context: &Context) -> Result<()> {
        match self {
            Self::Count(count) => *count += 1,
            Self::CountIf(count) => *count += u64::from(value.as_bool() == Some(true)),
            Self::Sum(sum) => *sum = sum.zip(as_number(&value)).map(|(sum, n)| sum + n),
            Self::Average(average) => {
                *average = average
                    .zip(as_number(&value))
                    .map(|((sum, count), n)| (sum + n, count + 1));
            }
            Self::Min(extreme) => extreme.add(value, Ordering::Less),
            Self::Max(extreme) => extreme.add(value, Ordering::Greater),
            Self::List(values) => values.push(context.own(value)?),
            Self::Set(set) => {
                if set.is_new(&value) {
                    set.values.push(context.own(value)?);
                }
            }
        }
        Ok(())
    }

    /// Takes in another state; false if it is one of another aggregate.
    pub fn merge(&mut self, other: Self) -> bool {
        match (self, other) {
            (Self::Count(one), Self::Count(other)) | (Self::CountIf(one), Self::CountIf(other)) => {
                *one = one.saturating_add(other);
            }
            (Self::Sum(one), Self::Sum(other)) => {
                *one = one.zip(other).map(|(one, other)| one + other);
            }
            (Self::Average(one), Self::Average(other)) => {
                *one = one.zip(other).map(|((sum, count), (more, others))| {
                    (sum + more, count.saturating_add(others))
                });
            }
            (Self::Min(one), Self::Min(other)) => one.merge(other, Ordering::Less),
            (Self::Max(one), Self::Max(other)) => one.merge(other, Ordering::Greater),
            (Self::List(one), Self::List(other)) => one.extend(other),
            (Self::Set(one), Self::Set(other)) => {
                for value in other.values {
                    if one.is_new(&value) {
                        one.values.push(value);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    /// The aggregate; undefined for an average or an extreme of nothing.
    pub fn finish(self) -> Option<Value> {
        match self {
            Self::Count(count) | Self::CountIf(count) => Some(Value::from(count)),
            Self::Sum(sum) => number::value(sum?),
            Self::Average(average) => {
                let (sum, count) = average?;
                #[expect(clippy::cast_precision_loss, reason = "a count is far below 2^53")]
                number::value(sum / count as f64)
            }
            Self::Min(extreme) | Self::Max(extreme) => extreme.finish(),
            Self::List(values) => Some(Value::Array(values)),
            Self::Set(set) => Some(Value::Array(set.values)),
        }
    }
}
