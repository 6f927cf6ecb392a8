//! Aggregates: a state that rows are added to.

use crate::model::error::Result;
use crate::sql::compare::{canonical_key, compare_defined};
use crate::sql::eval::Context;
use crate::sql::number;
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
pub enum Accumulator {
    Count(u64),
    CountIf(u64),
    /// Sum and count; none once a value was no number.
    Sum(Option<f64>),
    Average(Option<(f64, u64)>),
    /// The least (or greatest) so far; none once a value was an array or an object.
    Extreme {
        wanted: Ordering,
        best: Option<Option<Value>>,
    },
    List(Vec<Value>),
    Set {
        seen: HashSet<Vec<u8>>,
        values: Vec<Value>,
    },
}

impl Accumulator {
    pub fn new(aggregate: Aggregate) -> Self {
        match aggregate {
            Aggregate::Average => Self::Average(Some((0.0, 0))),
            Aggregate::Count => Self::Count(0),
            Aggregate::CountIf => Self::CountIf(0),
            Aggregate::MakeList => Self::List(Vec::new()),
            Aggregate::MakeSet => Self::Set {
                seen: HashSet::new(),
                values: Vec::new(),
            },
            Aggregate::Max => Self::Extreme {
                wanted: Ordering::Greater,
                best: Some(None),
            },
            Aggregate::Min => Self::Extreme {
                wanted: Ordering::Less,
                best: Some(None),
            },
            Aggregate::Sum => Self::Sum(Some(0.0)),
        }
    }

    pub fn add(&mut self, value: Cow<'_, Value>, context: &Context) -> Result<()> {
        let as_number = |value: &Value| match value {
            Value::Number(number) => Some(number::to_f64(number)),
            _ => None,
        };
        match self {
            Self::Count(count) => *count += 1,
            Self::CountIf(count) => *count += u64::from(value.as_bool() == Some(true)),
            Self::Sum(sum) => *sum = sum.zip(as_number(&value)).map(|(sum, n)| sum + n),
            Self::Average(average) => {
                *average = average
                    .zip(as_number(&value))
                    .map(|((sum, count), n)| (sum + n, count + 1));
            }
            Self::Extreme { wanted, best } => {
                if value.is_array() || value.is_object() {
                    *best = None;
                } else if let Some(best) = best {
                    let better = best
                        .as_ref()
                        .is_none_or(|best| compare_defined(&value, best) == *wanted);
                    if better {
                        *best = Some(value.into_owned());
                    }
                }
            }
            Self::List(values) => values.push(context.own(value)?),
            Self::Set { seen, values } => {
                let mut key = Vec::new();
                canonical_key(Some(&value), &mut key);
                if seen.insert(key) {
                    values.push(context.own(value)?);
                }
            }
        }
        Ok(())
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
            Self::Extreme { best, .. } => best?,
            Self::List(values) | Self::Set { values, .. } => Some(Value::Array(values)),
        }
    }
}
