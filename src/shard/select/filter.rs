//! What a query's filter says of terms. A condition is what must be true of an item's terms where the filter lets a row of the item through;
//! it is *exact* if that is all that must be true.

use serde_json::{Number, Value};

use super::ranges::{Ranges, successor};
use crate::{
    index::{
        Indexer, PathId,
        value::{Precision, encode, encode_text_prefix, tag},
    },
    model::indexing_policy::Segment,
    sql::{
        Query,
        ast::{
            BinaryOp, Call, Collection, Expr, From, SelectQuery, Source, Step, SubqueryKind,
            UnaryOp,
        },
    },
};

/// A path of the index.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub segments: Vec<Segment>,
    pub id: PathId,
}

impl Path {
    pub fn new(segments: Vec<Segment>) -> Self {
        let id = segments
            .iter()
            .fold(PathId::ROOT, |id, segment| id.step(segment));
        Self { segments, id }
    }

    /// Whether an item may have several terms at this path.
    pub fn is_multiple(&self) -> bool {
        self.segments.contains(&Segment::AnyElement)
    }

    /// As a policy writes it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            text.push('/');
            match segment {
                Segment::AnyElement => text.push_str("[]"),
                Segment::Property(name) if is_plain(name) => text.push_str(name),
                Segment::Property(name) => {
                    text.push('"');
                    text.push_str(&name.replace('\\', "\\\\").replace('"', "\\\""));
                    text.push('"');
                }
            }
        }
        text.push_str("/?");
        text
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Every item.
    All,
    Nothing,
    /// A value at the path is in one of the ranges.
    Term(Term),
    /// There is a value at the path.
    Present(Path),
    /// There is none.
    Missing(Path),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    /// The index does not tell.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    pub path: Path,
    pub ranges: Ranges,
    pub exact: bool,
}

impl Condition {
    pub fn is_exact(&self) -> bool {
        match self {
            Self::All | Self::Nothing | Self::Present(_) | Self::Missing(_) => true,
            Self::Term(term) => term.exact,
            Self::And(all) | Self::Or(all) => all.iter().all(Self::is_exact),
            Self::Unknown => false,
        }
    }
}

/// The filter of a query as a condition, and the paths that it asks for in vain.
pub struct Filter {
    pub condition: Condition,
    pub not_indexed: Vec<Path>,
}

/// Reads the filter of a query.
pub fn filter(query: &Query, indexer: &Indexer) -> Filter {
    let mut reader = Reader {
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

/// The path that an expression is, from the item; for ORDER BY and aggregates.
pub fn item_path(query: &Query, expr: &Expr) -> Option<Path> {
    let scope = scope_of(&Scope::default(), query.syntax().from.as_ref()?, true)?;
    let (name, steps) = expr.as_path()?;
    if query.syntax().item_name() != Some(name) {
        return None;
    }
    let (path, exact) = scope.path(query, name, steps)?;
    (exact && !path.segments.is_empty()).then_some(path)
}

/// What names stand for: places in the item.
#[derive(Clone, Default)]
struct Scope<'q> {
    names: Vec<Name<'q>>,
}

#[derive(Clone)]
struct Name<'q> {
    name: &'q str,
    segments: Vec<Segment>,
    /// It is the whole item, and not one of its parts.
    is_item: bool,
}

impl<'q> Scope<'q> {
    /// The path behind a name and steps, and whether the value at it is the value meant.
    fn path(&self, query: &Query, name: &str, steps: &[Step]) -> Option<(Path, bool)> {
        let known = self.names.iter().rev().find(|known| known.name == name)?;
        let mut segments = known.segments.clone();
        let mut exact = known.is_item;
        for step in steps {
            match step {
                Step::Property(property) => segments.push(Segment::Property(property.clone())),
                Step::Index(_) => {
                    segments.push(Segment::AnyElement);
                    exact = false;
                }
                Step::Computed(_) => return None,
            }
        }
        // What the container computes is not in the item.
        if let Some(Segment::Property(first)) = segments.first()
            && query.is_computed(first)
        {
            return None;
        }
        Some((Path::new(segments), exact))
    }
}

/// The names that a FROM clause adds; `None` if its first source is not of the item.
fn scope_of<'q>(outer: &Scope<'q>, from: &'q From, outermost: bool) -> Option<Scope<'q>> {
    let mut scope = outer.clone();
    let first = std::iter::once((&from.first, outermost));
    for (source, of_item) in first.chain(from.joins.iter().map(|join| (join, false))) {
        match name_of(&scope, source, of_item) {
            Some(name) => scope.names.push(name),
            None if of_item => return None,
            // Something that is not of the item hides a name that may be.
            None => scope
                .names
                .retain(|known| Some(known.name) != hidden_name(source)),
        }
    }
    Some(scope)
}

fn hidden_name(source: &Source) -> Option<&str> {
    match (&source.alias, &source.collection) {
        (Some(alias), _) => Some(alias),
        (None, Collection::Path { root, steps, .. }) if steps.is_empty() => Some(root),
        _ => None,
    }
}

fn name_of<'q>(scope: &Scope<'q>, source: &'q Source, of_item: bool) -> Option<Name<'q>> {
    let Collection::Path { root, steps, .. } = &source.collection else {
        return None;
    };
    let mut segments = if of_item {
        Vec::new()
    } else {
        let known = scope.names.iter().rev().find(|known| known.name == root)?;
        known.segments.clone()
    };
    for step in steps {
        let Step::Property(name) = step else {
            return None;
        };
        segments.push(Segment::Property(name.clone()));
    }
    if source.iterate {
        segments.push(Segment::AnyElement);
    }
    let last = steps.last().and_then(|step| match step {
        Step::Property(name) => Some(name.as_str()),
        _ => None,
    });
    let name = source.alias.as_deref().or(last).unwrap_or(root);
    let is_item = segments.is_empty();
    Some(Name {
        name,
        segments,
        is_item,
    })
}

struct Reader<'q> {
    query: &'q Query,
    indexer: &'q Indexer,
    not_indexed: Vec<Path>,
}

impl<'q> Reader<'q> {
    fn query(&mut self, select: &'q SelectQuery) -> Condition {
        let scope = select
            .from
            .as_ref()
            .and_then(|from| scope_of(&Scope::default(), from, true));
        match (scope, &select.filter) {
            (Some(scope), Some(filter)) => self.condition(filter, &scope),
            (Some(_), None) => Condition::All,
            (None, _) => Condition::Unknown,
        }
    }

    /// As deep as expressions nest, which is bounded.
    fn condition(&mut self, expr: &'q Expr, scope: &Scope<'q>) -> Condition {
        match expr {
            Expr::Literal(value) => match value {
                Value::Bool(true) => Condition::All,
                _ => Condition::Nothing,
            },
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

    fn path(&mut self, expr: &Expr, scope: &Scope<'q>) -> Option<(Path, bool)> {
        let (name, steps) = expr.as_path()?;
        let (path, exact) = scope.path(self.query, name, steps)?;
        if path.segments.is_empty() {
            return None;
        }
        if self.indexer.includes(&path.segments) {
            return Some((path, exact));
        }
        if !self.not_indexed.contains(&path) {
            self.not_indexed.push(path);
        }
        None
    }

    fn term(&mut self, expr: &Expr, scope: &Scope<'q>, ranges: Ranges, exact: bool) -> Condition {
        match self.path(expr, scope) {
            Some((path, exact_path)) => Condition::Term(Term {
                path,
                ranges,
                exact: exact && exact_path,
            }),
            None => Condition::Unknown,
        }
    }

    fn equal(&mut self, expr: &Expr, scope: &Scope<'q>, value: &Value) -> Condition {
        let Some((ranges, exact)) = comparison_ranges(BinaryOp::Equal, value) else {
            return Condition::Unknown;
        };
        self.term(expr, scope, ranges, exact)
    }

    fn negated(&mut self, operand: &'q Expr, scope: &Scope<'q>) -> Condition {
        match operand {
            Expr::Name(..) | Expr::Member(..) => self.equal(operand, scope, &Value::Bool(false)),
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
        match expr {
            Expr::Unary(UnaryOp::Minus, operand) => {
                let number = self.constant(operand)?.as_f64()?;
                Number::from_f64(-number).map(Value::Number)
            }
            _ => self.query.constant(expr).cloned(),
        }
    }

    fn comparison(
        &mut self,
        op: BinaryOp,
        left: &'q Expr,
        right: &'q Expr,
        scope: &Scope<'q>,
    ) -> Condition {
        let (path, op, value) = match (self.constant(left), self.constant(right)) {
            (None, Some(value)) => (left, op, value),
            (Some(value), None) => (right, mirrored(op), value),
            _ => return Condition::Unknown,
        };
        match comparison_ranges(op, &value) {
            Some((ranges, exact)) => self.term(path, scope, ranges, exact),
            None => Condition::Unknown,
        }
    }

    fn call(&mut self, call: &'q Call, scope: &Scope<'q>) -> Condition {
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
            _ => return Condition::Unknown,
        };
        match call.arguments.as_slice() {
            [argument] => {
                let ranges = Ranges::union(tags.iter().map(|tag| Ranges::of_tag(*tag)));
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

    fn starts_with(&mut self, call: &'q Call, scope: &Scope<'q>) -> Condition {
        let Some((path, text)) = self.text_call(call) else {
            return Condition::Unknown;
        };
        let (ranges, exact) = prefix_ranges(&text);
        self.term(path, scope, ranges, exact)
    }

    fn string_equals(&mut self, call: &'q Call, scope: &Scope<'q>) -> Condition {
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
        scope: &Scope<'q>,
    ) -> Condition {
        let Some(Value::String(pattern)) = self.constant(pattern) else {
            return Condition::Unknown;
        };
        let special = |c: char| matches!(c, '%' | '_' | '[' | '^' | '\\') || Some(c) == escape;
        let end = pattern.find(special).unwrap_or(pattern.len());
        let literal = pattern.get(..end).unwrap_or_default();
        let (ranges, _) = prefix_ranges(literal);
        self.term(value, scope, ranges, false)
    }

    fn array_contains(&mut self, call: &'q Call, scope: &Scope<'q>) -> Condition {
        let (array, needle, partial) = match call.arguments.as_slice() {
            [array, needle] => (array, needle, false),
            [array, needle, _] => (array, needle, true),
            _ => return Condition::Unknown,
        };
        let Some(needle) = self.constant(needle) else {
            return Condition::Unknown;
        };
        let Some((name, steps)) = array.as_path() else {
            return Condition::Unknown;
        };
        let Some((path, exact)) = scope.path(self.query, name, steps) else {
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
        let path = Path::new(segments);
        match comparison_ranges(BinaryOp::Equal, needle) {
            Some((ranges, exact_value)) if self.indexer.includes(&path.segments) => {
                Condition::Term(Term {
                    path,
                    ranges,
                    exact: exact && exact_value,
                })
            }
            Some(_) => {
                self.not_indexed.push(path);
                Condition::Unknown
            }
            None => Condition::Unknown,
        }
    }

    /// What must be true of the item for a subquery over its parts to have a row.
    fn exists(&mut self, select: &'q SelectQuery, scope: &Scope<'q>) -> Condition {
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

/// The same condition, for something that asks for more.
fn inexact(condition: Condition) -> Condition {
    match condition {
        Condition::Term(term) => Condition::Term(Term {
            exact: false,
            ..term
        }),
        Condition::And(all) => Condition::And(all.into_iter().map(inexact).collect()),
        Condition::Or(all) => Condition::Or(all.into_iter().map(inexact).collect()),
        // Whether there is anything at all to look at is not known.
        Condition::All | Condition::Present(_) | Condition::Missing(_) | Condition::Unknown => {
            Condition::Unknown
        }
        Condition::Nothing => Condition::Nothing,
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

fn prefix_ranges(text: &str) -> (Ranges, bool) {
    let mut bytes = Vec::new();
    let precision = encode_text_prefix(&mut bytes, text);
    (Ranges::prefix(bytes), precision == Precision::Exact)
}

/// The encoded values for which a comparison with a value is true, and whether it is so for all of them; `None` when the index does
/// not tell.
fn comparison_ranges(op: BinaryOp, value: &Value) -> Option<(Ranges, bool)> {
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
        BinaryOp::Equal => Ranges::prefix(bytes),
        // A value that was cut stands for greater and smaller ones.
        BinaryOp::Less if exact => Ranges::one(start, bytes),
        BinaryOp::Less | BinaryOp::LessOrEqual => Ranges::one(start, successor(&bytes)),
        BinaryOp::Greater if exact => Ranges::one(successor(&bytes), end),
        BinaryOp::Greater | BinaryOp::GreaterOrEqual => Ranges::one(bytes, end),
        _ => return None,
    };
    Some((ranges, exact))
}

pub(super) fn simplify_and(all: Vec<Condition>) -> Condition {
    let mut kept: Vec<Condition> = Vec::with_capacity(all.len());
    let mut unknown = false;
    for condition in flatten(all, |one| matches!(one, Condition::And(_))) {
        match condition {
            Condition::All => {}
            Condition::Nothing => return Condition::Nothing,
            Condition::Unknown => unknown = true,
            Condition::Term(term) if !term.path.is_multiple() => {
                let known = kept.iter_mut().find_map(|one| match one {
                    Condition::Term(known) if known.path.id == term.path.id => Some(known),
                    _ => None,
                });
                match known {
                    Some(known) => {
                        known.ranges = known.ranges.intersection(&term.ranges);
                        known.exact &= term.exact;
                        if known.ranges.is_empty() {
                            return Condition::Nothing;
                        }
                    }
                    None if term.ranges.is_empty() => return Condition::Nothing,
                    None => kept.push(Condition::Term(term)),
                }
            }
            other => kept.push(other),
        }
    }
    if unknown {
        kept.push(Condition::Unknown);
    }
    match kept.len() {
        0 => Condition::All,
        1 => kept.swap_remove(0),
        _ => Condition::And(kept),
    }
}

pub(super) fn simplify_or(all: Vec<Condition>) -> Condition {
    let mut kept: Vec<Condition> = Vec::with_capacity(all.len());
    let mut ranges: Vec<Vec<Ranges>> = Vec::new();
    for condition in flatten(all, |one| matches!(one, Condition::Or(_))) {
        match condition {
            Condition::Nothing => {}
            Condition::All => return Condition::All,
            // One alternative that may be anything makes the whole anything.
            Condition::Unknown => return Condition::Unknown,
            Condition::Term(mut term) => {
                let own = std::mem::take(&mut term.ranges);
                let known = kept
                    .iter_mut()
                    .zip(&mut ranges)
                    .find_map(|(one, ranges)| match one {
                        Condition::Term(known) if known.path.id == term.path.id => {
                            Some((known, ranges))
                        }
                        _ => None,
                    });
                match known {
                    Some((known, ranges)) => {
                        known.exact &= term.exact;
                        ranges.push(own);
                    }
                    None => {
                        kept.push(Condition::Term(term));
                        ranges.push(vec![own]);
                    }
                }
            }
            other => {
                kept.push(other);
                ranges.push(Vec::new());
            }
        }
    }
    for (condition, ranges) in kept.iter_mut().zip(ranges) {
        if let Condition::Term(term) = condition {
            term.ranges = Ranges::union(ranges);
        }
    }
    kept.retain(|one| !matches!(one, Condition::Term(term) if term.ranges.is_empty()));
    match kept.len() {
        0 => Condition::Nothing,
        1 => kept.swap_remove(0),
        _ => Condition::Or(kept),
    }
}

/// Takes lists of the same kind apart, one level: deeper ones were taken apart before.
fn flatten(all: Vec<Condition>, same: impl Fn(&Condition) -> bool) -> Vec<Condition> {
    let mut flat = Vec::with_capacity(all.len());
    for condition in all {
        match condition {
            Condition::And(inner) | Condition::Or(inner) if inner.is_empty() => {}
            condition if same(&condition) => {
                if let Condition::And(inner) | Condition::Or(inner) = condition {
                    flat.extend(inner);
                }
            }
            condition => flat.push(condition),
        }
    }
    flat
}
