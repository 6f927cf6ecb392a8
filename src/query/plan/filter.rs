//! What a query's filter says of terms. A condition is what must be true of an item's terms where the filter lets a row of the item through;
//! it is *exact* if that is all that must be true.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    condition::{Condition, IndexPath, Term, inexact, simplify_and, simplify_or},
    name_scope::{NameScope, scope_of},
};
use crate::{
    index::{
        Indexer, cells,
        value::{Precision, encode, encode_text_prefix, tag},
    },
    model::indexing_policy::Segment,
    query::access::{ValueRanges, successor},
    sql::{
        Geometry, Query,
        ast::{BinaryOp, Call, Expr, SelectQuery, SubqueryKind, UnaryOp},
    },
};

/// The filter of a query as a condition, and the paths that it asks for in vain.
pub struct Filter {
    pub condition: Condition,
    pub not_indexed: Vec<IndexPath>,
}

/// Reads the filter of a query.
pub fn filter(query: &Query, indexer: &Indexer) -> Filter {
    let mut reader = IndexReader {
        query,
        indexer,
        not_indexed: Vec::new(),
    };
    let condition = reader.query(query.syntax());
    Filter {
        condition,
        not_indexed: reader.not_indexed,
    }
}

struct IndexReader<'q> {
    query: &'q Query,
    indexer: &'q Indexer,
    not_indexed: Vec<IndexPath>,
}

impl<'q> IndexReader<'q> {
    fn query(&mut self, select: &'q SelectQuery) -> Condition {
        let scope = select
            .from
            .as_ref()
            .and_then(|from| scope_of(&NameScope::default(), from, true));
        match (scope, &select.filter) {
            (Some(scope), Some(filter)) => self.condition(filter, &scope),
            (Some(_), None) => Condition::All,
            (None, _) => Condition::Unknown,
        }
    }

    /// As deep as expressions nest, which is bounded.
    fn condition(&mut self, expr: &'q Expr, scope: &NameScope<'q>) -> Condition {
        if let Some(value) = self.query.constant(expr) {
            return match value.as_ref() {
                Value::Bool(true) => Condition::All,
                _ => Condition::Nothing,
            };
        }
        match expr {
            Expr::And(operands) => {
                let all = operands.iter().map(|one| self.condition(one, scope));
                simplify_and(all.collect())
            }
            Expr::Or(operands) => {
                let all = operands.iter().map(|one| self.condition(one, scope));
                simplify_or(all.collect())
            }
            Expr::Name(..) | Expr::Member(..) => self.equal(expr, scope, &Value::Bool(true)),
            Expr::Unary(UnaryOp::Not, operand) => self.negated(operand, scope),
            Expr::Binary(op, left, right) => self.comparison(*op, left, right, scope),
            Expr::Between {
                not: false,
                operands,
            } => {
                let [value, low, high] = operands.as_ref();
                let bounds = [
                    self.comparison(BinaryOp::GreaterOrEqual, value, low, scope),
                    self.comparison(BinaryOp::LessOrEqual, value, high, scope),
                ];
                simplify_and(bounds.into())
            }
            Expr::In {
                not: false,
                needle,
                items,
            } => {
                let all = items
                    .iter()
                    .map(|item| self.comparison(BinaryOp::Equal, needle, item, scope));
                simplify_or(all.collect())
            }
            Expr::Like {
                not: false,
                value,
                pattern,
                escape,
            } => self.like(value, pattern, *escape, scope),
            Expr::Call(call) if !call.user_defined => self.call(call, scope),
            Expr::Subquery(SubqueryKind::Exists, select) => self.exists(select, scope),
            _ => Condition::Unknown,
        }
    }

    fn path(&mut self, expr: &Expr, scope: &NameScope<'q>) -> Option<(IndexPath, bool)> {
        let (name, steps) = expr.as_path()?;
        let (path, exact) = scope.path(self.query, self.indexer, name, steps)?;
        if path.segments.is_empty() {
            return None;
        }
        if self.indexer.includes(&path.segments) {
            return Some((path, exact));
        }
        self.lacks(path);
        None
    }

    fn term(
        &mut self,
        expr: &Expr,
        scope: &NameScope<'q>,
        ranges: ValueRanges,
        exact: bool,
    ) -> Condition {
        match self.path(expr, scope) {
            Some((path, exact_path)) => Condition::Term(Term {
                path,
                ranges,
                exact: exact && exact_path,
            }),
            None => Condition::Unknown,
        }
    }

    fn equal(&mut self, expr: &Expr, scope: &NameScope<'q>, value: &Value) -> Condition {
        let Some((ranges, exact)) = comparison_ranges(BinaryOp::Equal, value) else {
            return Condition::Unknown;
        };
        self.term(expr, scope, ranges, exact)
    }

    /// That an expression is false: not merely that it is not true.
    fn negated(&mut self, operand: &'q Expr, scope: &NameScope<'q>) -> Condition {
        match operand {
            Expr::Name(..) | Expr::Member(..) => self.equal(operand, scope, &Value::Bool(false)),
            Expr::Unary(UnaryOp::Not, inner) => self.condition(inner, scope),
            Expr::And(operands) => {
                let all = operands.iter().map(|one| self.negated(one, scope));
                simplify_or(all.collect())
            }
            Expr::Or(operands) => {
                let all = operands.iter().map(|one| self.negated(one, scope));
                simplify_and(all.collect())
            }
            Expr::Binary(op, left, right) => match opposite(*op) {
                Some(op) => self.comparison(op, left, right, scope),
                None => Condition::Unknown,
            },
            Expr::Call(call) if is(call, "IS_DEFINED") => match call.arguments.as_slice() {
                [argument] => match self.path(argument, scope) {
                    Some((path, true)) => Condition::Missing(path),
                    _ => Condition::Unknown,
                },
                _ => Condition::Unknown,
            },
            _ => Condition::Unknown,
        }
    }

    fn constant(&self, expr: &Expr) -> Option<Value> {
        self.query.constant(expr).map(Cow::into_owned)
    }

    fn comparison(
        &mut self,
        op: BinaryOp,
        left: &'q Expr,
        right: &'q Expr,
        scope: &NameScope<'q>,
    ) -> Condition {
        let (path, op, value) = match (self.constant(left), self.constant(right)) {
            (None, Some(value)) => (left, op, value),
            (Some(value), None) => (right, mirrored(op), value),
            _ => return Condition::Unknown,
        };
        match path {
            Expr::Call(call) if is(call, "ST_DISTANCE") => self.near(call, op, &value, scope),
            _ => self.compared(op, path, &value, scope),
        }
    }

    /// A comparison of a path with a value.
    fn compared(
        &mut self,
        op: BinaryOp,
        path: &Expr,
        value: &Value,
        scope: &NameScope<'q>,
    ) -> Condition {
        match comparison_ranges(op, value) {
            Some((ranges, exact)) => self.term(path, scope, ranges, exact),
            None => Condition::Unknown,
        }
    }

    /// That something is nearer than a distance.
    fn near(
        &mut self,
        call: &'q Call,
        op: BinaryOp,
        metres: &Value,
        scope: &NameScope<'q>,
    ) -> Condition {
        match (op, metres.as_f64()) {
            (BinaryOp::Less | BinaryOp::LessOrEqual | BinaryOp::Equal, Some(metres)) => {
                self.around(call, metres, scope)
            }
            _ => Condition::Unknown,
        }
    }

    /// That the geometry at a path has a part within a distance of a given one.
    fn around(&mut self, call: &'q Call, metres: f64, scope: &NameScope<'q>) -> Condition {
        let [one, other] = call.arguments.as_slice() else {
            return Condition::Unknown;
        };
        let (path, geometry) = match (self.constant(one), self.constant(other)) {
            (None, Some(geometry)) => (one, geometry),
            (Some(geometry), None) => (other, geometry),
            _ => return Condition::Unknown,
        };
        let Ok(geometry) = Geometry::parse(&geometry) else {
            return Condition::Unknown;
        };
        let Some((name, steps)) = path.as_path() else {
            return Condition::Unknown;
        };
        let Some((path, _)) = scope.path(self.query, self.indexer, name, steps) else {
            return Condition::Unknown;
        };
        // The item itself has no terms.
        if path.segments.is_empty() {
            return Condition::Unknown;
        }
        let path = IndexPath::of_cells(&self.indexer.paths, path.segments);
        if !self.indexer.includes_geometry(&path.segments) {
            self.lacks(path);
            return Condition::Unknown;
        }
        let found = cells::covering(geometry.cap(metres), cells::CELLS_PER_QUERY_MAX);
        let ranges = found.into_iter().map(|cell| {
            let (from, to) = cell.descendants();
            let inside = ValueRanges::one(from.to_vec(), to.to_vec());
            let around = cell
                .ancestors()
                .map(|one| ValueRanges::prefix(one.to_vec()));
            ValueRanges::union(around.chain([inside]))
        });
        Condition::Term(Term {
            path,
            ranges: ValueRanges::union(ranges),
            exact: false,
        })
    }

    fn lacks(&mut self, path: IndexPath) {
        if !self.not_indexed.contains(&path) {
            self.not_indexed.push(path);
        }
    }

    fn call(&mut self, call: &'q Call, scope: &NameScope<'q>) -> Condition {
        let tags: &[u8] = match call.name.to_ascii_uppercase().as_str() {
            "IS_NULL" => &[tag::NULL],
            "IS_BOOL" => &[tag::FALSE, tag::TRUE],
            "IS_NUMBER" => &[tag::NUMBER],
            "IS_STRING" => &[tag::TEXT],
            "IS_PRIMITIVE" => &[tag::NULL, tag::FALSE, tag::TRUE, tag::NUMBER, tag::TEXT],
            "IS_DEFINED" => {
                return match call.arguments.as_slice() {
                    [argument] => match self.path(argument, scope) {
                        Some((path, true)) => Condition::Present(path),
                        _ => Condition::Unknown,
                    },
                    _ => Condition::Unknown,
                };
            }
            "STARTSWITH" => return self.starts_with(call, scope),
            "STRINGEQUALS" => return self.string_equals(call, scope),
            "ARRAY_CONTAINS" => return self.array_contains(call, scope),
            "ST_WITHIN" | "ST_INTERSECTS" => return self.around(call, 0.0, scope),
            _ => return Condition::Unknown,
        };
        match call.arguments.as_slice() {
            [argument] => {
                let ranges = ValueRanges::union(tags.iter().map(|tag| ValueRanges::of_tag(*tag)));
                self.term(argument, scope, ranges, true)
            }
            _ => Condition::Unknown,
        }
    }

    /// Path, text, and that upper and lower case differ.
    fn text_call(&self, call: &'q Call) -> Option<(&'q Expr, String)> {
        let (path, text) = match call.arguments.as_slice() {
            [path, text] => (path, text),
            [path, text, insensitive] => match self.constant(insensitive) {
                Some(Value::Bool(false)) => (path, text),
                _ => return None,
            },
            _ => return None,
        };
        match self.constant(text) {
            Some(Value::String(text)) => Some((path, text)),
            _ => None,
        }
    }

    fn starts_with(&mut self, call: &'q Call, scope: &NameScope<'q>) -> Condition {
        let Some((path, text)) = self.text_call(call) else {
            return Condition::Unknown;
        };
        let (ranges, exact) = prefix_ranges(&text);
        self.term(path, scope, ranges, exact)
    }

    fn string_equals(&mut self, call: &'q Call, scope: &NameScope<'q>) -> Condition {
        match self.text_call(call) {
            Some((path, text)) if path.as_path().is_some() => {
                self.equal(path, scope, &Value::String(text))
            }
            _ => Condition::Unknown,
        }
    }

    fn like(
        &mut self,
        value: &'q Expr,
        pattern: &'q Expr,
        escape: Option<char>,
        scope: &NameScope<'q>,
    ) -> Condition {
        let Some(Value::String(pattern)) = self.constant(pattern) else {
            return Condition::Unknown;
        };
        let special = |c: char| matches!(c, '%' | '_' | '[' | '^' | '\\') || Some(c) == escape;
        let end = pattern.find(special).unwrap_or(pattern.len());
        let (literal, rest) = pattern.split_at(end);
        if rest.is_empty() {
            return self.compared(BinaryOp::Equal, value, &literal.into(), scope);
        }
        let (ranges, exact) = prefix_ranges(literal);
        self.term(value, scope, ranges, exact && rest == "%")
    }

    fn array_contains(&mut self, call: &'q Call, scope: &NameScope<'q>) -> Condition {
        let (array, needle, partial) = match call.arguments.as_slice() {
            [array, needle] => (array, needle, false),
            [array, needle, partial] => {
                let whole = self.constant(partial) == Some(Value::Bool(false));
                (array, needle, !whole)
            }
            _ => return Condition::Unknown,
        };
        // A search in a given list is that of an IN list.
        if let Some(Value::Array(items)) = self.constant(array)
            && !partial
        {
            let all = items
                .iter()
                .map(|item| self.compared(BinaryOp::Equal, needle, item, scope));
            return simplify_or(all.collect());
        }
        let Some(needle) = self.constant(needle) else {
            return Condition::Unknown;
        };
        let Some((name, steps)) = array.as_path() else {
            return Condition::Unknown;
        };
        let Some((path, exact)) = scope.path(self.query, self.indexer, name, steps) else {
            return Condition::Unknown;
        };
        let mut segments = path.segments;
        segments.push(Segment::AnyElement);
        self.contains(segments, &needle, exact && !partial)
    }

    /// That an element equals a value, or has the properties of an object.
    fn contains(&mut self, segments: Vec<Segment>, needle: &Value, exact: bool) -> Condition {
        if let Value::Object(properties) = needle {
            let all = properties.iter().map(|(name, value)| {
                let mut segments = segments.clone();
                segments.push(Segment::Property(name.clone()));
                match value {
                    Value::Object(_) | Value::Array(_) => Condition::Unknown,
                    scalar => self.contains(segments, scalar, false),
                }
            });
            let all: Vec<_> = all.collect();
            return match all.is_empty() {
                true => Condition::Unknown,
                false => simplify_and(all),
            };
        }
        let path = IndexPath::new(&self.indexer.paths, segments);
        match comparison_ranges(BinaryOp::Equal, needle) {
            Some((ranges, exact_value)) if self.indexer.includes(&path.segments) => {
                Condition::Term(Term {
                    path,
                    ranges,
                    exact: exact && exact_value,
                })
            }
            Some(_) => {
                self.lacks(path);
                Condition::Unknown
            }
            None => Condition::Unknown,
        }
    }

    /// What must be true of the item for a subquery over its parts to have a row.
    fn exists(&mut self, select: &'q SelectQuery, scope: &NameScope<'q>) -> Condition {
        let plain = select.group_by.is_empty() && select.top.is_none() && select.window.is_none();
        let inner = select
            .from
            .as_ref()
            .and_then(|from| scope_of(scope, from, false));
        match (inner, &select.filter) {
            (Some(inner), Some(filter)) if plain => inexact(self.condition(filter, &inner)),
            _ => Condition::Unknown,
        }
    }
}
fn is(call: &Call, name: &str) -> bool {
    !call.user_defined && call.name.eq_ignore_ascii_case(name)
}

fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessOrEqual => BinaryOp::GreaterOrEqual,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterOrEqual => BinaryOp::LessOrEqual,
        other => other,
    }
}

/// The comparison that is true exactly where this one is false. What is not equal may be anything.
fn opposite(op: BinaryOp) -> Option<BinaryOp> {
    match op {
        BinaryOp::Less => Some(BinaryOp::GreaterOrEqual),
        BinaryOp::LessOrEqual => Some(BinaryOp::Greater),
        BinaryOp::Greater => Some(BinaryOp::LessOrEqual),
        BinaryOp::GreaterOrEqual => Some(BinaryOp::Less),
        BinaryOp::NotEqual => Some(BinaryOp::Equal),
        _ => None,
    }
}

fn prefix_ranges(text: &str) -> (ValueRanges, bool) {
    let mut bytes = Vec::new();
    let precision = encode_text_prefix(&mut bytes, text);
    (ValueRanges::prefix(bytes), precision == Precision::Exact)
}

/// The encoded values for which a comparison with a value is true, and whether it is so for all of them; `None` when the index does
/// not tell.
fn comparison_ranges(op: BinaryOp, value: &Value) -> Option<(ValueRanges, bool)> {
    if value.is_array() || value.is_object() {
        return None;
    }
    let mut bytes = Vec::new();
    let exact = encode(&mut bytes, Some(value)) == Precision::Exact;
    // Values of other types are neither less nor greater.
    let (first, last) = match value {
        Value::Null => (tag::NULL, tag::NULL),
        Value::Bool(_) => (tag::FALSE, tag::TRUE),
        Value::Number(_) => (tag::NUMBER, tag::NUMBER),
        _ => (tag::TEXT, tag::TEXT),
    };
    let (start, end) = (vec![first], successor(&[last]));
    let ranges = match op {
        BinaryOp::Equal => ValueRanges::prefix(bytes),
        // A value that was cut stands for greater and smaller ones.
        BinaryOp::Less if exact => ValueRanges::one(start, bytes),
        BinaryOp::Less | BinaryOp::LessOrEqual => ValueRanges::one(start, successor(&bytes)),
        BinaryOp::Greater if exact => ValueRanges::one(successor(&bytes), end),
        BinaryOp::Greater | BinaryOp::GreaterOrEqual => ValueRanges::one(bytes, end),
        _ => return None,
    };
    Some((ranges, exact))
}
