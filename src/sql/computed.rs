//! Computed properties of a container: a name and a query over one item. They read like
//! properties of the item in every query, but `SELECT *` leaves them out.

use super::ast::{Call, Collection, Expr, SelectQuery, Selection};
use super::bind::{aggregates, bind};
use super::error::{Checked, Fault, Span, UNSUPPORTED, shorten};
use super::parser;
use super::program::Program;
use crate::model::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// As many as a container may have.
const COMPUTED_PROPERTIES_MAX: usize = 20;

/// System properties, which cannot be computed.
const RESERVED: [&str; 6] = ["id", "_rid", "_ts", "_etag", "_self", "_attachments"];

/// Functions that may answer differently the next time.
const UNSTABLE: [&str; 9] = [
    "GETCURRENTDATETIME",
    "GETCURRENTDATETIMESTATIC",
    "GETCURRENTTICKS",
    "GETCURRENTTICKSSTATIC",
    "GETCURRENTTIMESTAMP",
    "GETCURRENTTIMESTAMPSTATIC",
    "NOW",
    "AGO",
    "RAND",
];

/// The computed properties of a container, ready to run.
#[derive(Clone, Debug, Default)]
pub struct ComputedProperties(BTreeMap<String, Definition>);

#[derive(Clone, Debug)]
struct Definition {
    text: String,
    program: Arc<Program>,
}

impl ComputedProperties {
    /// Checks and prepares definitions: name and query.
    pub fn parse<'d>(definitions: impl IntoIterator<Item = (&'d str, &'d str)>) -> Result<Self> {
        let mut properties = BTreeMap::new();
        for (name, query) in definitions {
            if name.is_empty() || RESERVED.contains(&name) {
                return Err(Error::bad_request(format!(
                    "the computed property name '{}' is empty or reserved",
                    shorten(name)
                )));
            }
            let program = compile(query).map_err(|fault| fault.into_error(query))?;
            let definition = Definition {
                text: query.to_owned(),
                program: Arc::new(program),
            };
            if properties.insert(name.to_owned(), definition).is_some() {
                return Err(Error::bad_request(format!(
                    "the computed property name '{}' is used twice",
                    shorten(name)
                )));
            }
        }
        if properties.len() > COMPUTED_PROPERTIES_MAX {
            return Err(Error::bad_request(format!(
                "a container can have {COMPUTED_PROPERTIES_MAX} computed properties at most, not {}",
                properties.len()
            )));
        }
        Ok(Self(properties))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names and queries.
    pub(super) fn definitions(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.0.iter();
        all.map(|(name, definition)| (name.clone(), definition.text.clone()))
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Program>> {
        let definition = self.0.get(name)?;
        Some(Arc::clone(&definition.program))
    }
}

fn compile(text: &str) -> Checked<Program> {
    let query = parser::parse(text)?;
    if let Some(what) = refused(&query) {
        let message = format!("The query of a computed property cannot have {what}.");
        return Err(Fault::new(UNSUPPORTED, Span::new(0, text.len()), message));
    }
    let mut stages = bind(&query, &[], &ComputedProperties::default())?;
    stages
        .pop()
        .ok_or_else(|| Fault::new(UNSUPPORTED, Span::default(), "a query without stages"))
}

/// What the query has (or lacks) against the rules.
fn refused(query: &SelectQuery) -> Option<&'static str> {
    let Some(from) = &query.from else {
        return Some("no FROM clause");
    };
    let root = matches!(&from.first.collection, Collection::Path { steps, .. } if steps.is_empty());
    if !root || from.first.iterate || !from.joins.is_empty() {
        return Some("a FROM clause other than the item");
    }
    let clauses = query.filter.is_some()
        || !query.group_by.is_empty()
        || !query.order_by.is_empty()
        || query.top.is_some()
        || query.distinct
        || query.window.is_some();
    if clauses {
        return Some("WHERE, GROUP BY, ORDER BY, TOP, DISTINCT or OFFSET");
    }
    let Selection::Value(expr) = &query.selection else {
        return Some("a projection without VALUE");
    };
    if aggregates(expr) {
        return Some("an aggregate");
    }
    contains(expr, &|expr| match expr {
        Expr::Subquery(..) => Some("a subquery"),
        Expr::Call(call) => refused_call(call),
        _ => None,
    })
}

fn refused_call(call: &Call) -> Option<&'static str> {
    let name = call.name.to_ascii_uppercase();
    if call.user_defined {
        Some("a user-defined function")
    } else if name.starts_with("ST_") {
        Some("a spatial function")
    } else if UNSTABLE.contains(&name.as_str()) {
        Some("a function that is not deterministic")
    } else {
        None
    }
}

/// The first finding in an expression and its parts.
fn contains<T>(expr: &Expr, find: &dyn Fn(&Expr) -> Option<T>) -> Option<T> {
    find(expr).or_else(|| {
        expr.parts()
            .into_iter()
            .find_map(|part| contains(part, find))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Query;
    use serde_json::{Value, json};

    fn rows(query: &str) -> Vec<Value> {
        let computed = ComputedProperties::parse([
            ("cp_lower", "SELECT VALUE LOWER(c.name) FROM c"),
            (
                "cp_parts",
                "SELECT VALUE {a: r.n * 2, b: [r.n]} FROM root r",
            ),
            ("own", "SELECT VALUE 'computed' FROM c"),
        ])
        .unwrap();
        let items = [
            json!({"id": "1", "name": "Zoë", "n": 2, "own": "stored"}),
            json!({"id": "2", "name": "ada", "n": 1}),
            json!({"id": "3"}),
        ];
        let query = Query::parse_with(query, &[], &computed).unwrap();
        query.execute(items.into_iter()).unwrap()
    }

    #[test]
    fn they_read_like_properties() {
        for (query, expected) in [
            (
                "SELECT VALUE c.id FROM c WHERE c.cp_lower = 'zoë'",
                json!(["1"]),
            ),
            ("SELECT VALUE x.cp_parts.b[0] FROM c AS x", json!([2, 1])),
            (
                "SELECT VALUE c.id FROM c ORDER BY c.cp_lower",
                json!(["3", "2", "1"]),
            ),
            (
                "SELECT c.cp_lower FROM c WHERE c.id = '2'",
                json!([{"cp_lower": "ada"}]),
            ),
            (
                "SELECT VALUE c.own FROM c",
                json!(["stored", "computed", "computed"]),
            ),
            (
                "SELECT * FROM c WHERE c.cp_parts.a = 2",
                json!([{"id": "2", "name": "ada", "n": 1}]),
            ),
            (
                "SELECT c.cp_lower AS l, COUNT(1) AS k FROM c WHERE c.n > 1 GROUP BY c.cp_lower",
                json!([{"l": "zoë", "k": 1}]),
            ),
            (
                "SELECT VALUE p FROM c JOIN p IN c.cp_parts.b",
                json!([2, 1]),
            ),
            (
                "SELECT VALUE (SELECT VALUE c.cp_lower FROM c) FROM c",
                json!(["zoë", "ada"]),
            ),
        ] {
            assert_eq!(json!(rows(query)), expected, "{query}");
        }
    }

    #[test]
    fn definitions_are_checked() {
        for (name, query, why) in [
            ("id", "SELECT VALUE 1 FROM c", "reserved"),
            ("x", "SELECT VALUE 1", "no FROM"),
            ("x", "SELECT c.a FROM c", "VALUE"),
            ("x", "SELECT VALUE 1 FROM c WHERE true", "WHERE"),
            (
                "x",
                "SELECT VALUE t FROM c JOIN t IN c.t",
                "FROM clause other",
            ),
            ("x", "SELECT VALUE [RAND()] FROM c", "deterministic"),
            ("x", "SELECT VALUE ST_AREA(c.a) FROM c", "spatial"),
            ("x", "SELECT VALUE COUNT(1) FROM c", "aggregate"),
            ("x", "SELECT VALUE (SELECT VALUE 1) FROM c", "subquery"),
            ("x", "SELECT VALUE FROM c", "SC1001"),
        ] {
            let error = ComputedProperties::parse([(name, query)]).unwrap_err();
            assert!(error.message.contains(why), "{query}: {error}");
        }
        let twice = [
            ("x", "SELECT VALUE 1 FROM c"),
            ("x", "SELECT VALUE 2 FROM c"),
        ];
        assert!(
            ComputedProperties::parse(twice)
                .unwrap_err()
                .message
                .contains("twice")
        );
    }
}
