//! Whole queries over small sets of items: text in, rows out.

mod clauses;
mod expressions;
mod functions;
mod plans;
mod properties;

use super::Query;
use crate::model::error::Error;
use serde_json::{Value, json};

fn items(items: &Value) -> Vec<Value> {
    items
        .as_array()
        .expect("the items of a test are an array")
        .clone()
}

/// Runs a query and compares the rows, in order.
fn check(query: &str, on: &Value, expected: &Value) {
    check_with(query, &json!({}), on, expected);
}

fn check_with(query: &str, parameters: &Value, on: &Value, expected: &Value) {
    let parameters: Vec<(String, Value)> = parameters
        .as_object()
        .expect("parameters are an object")
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let parsed = match Query::parse(query, &parameters) {
        Ok(parsed) => parsed.at(1_700_000_000_123),
        Err(error) => panic!("{query}\n{error}"),
    };
    let rows = parsed
        .execute(items(on).into_iter())
        .unwrap_or_else(|e| panic!("{query}\n{e}"));
    assert_eq!(&Value::Array(rows.clone()), expected, "{query}");
    check_parts(&parsed, &items(on), &rows);
    if parsed.is_streaming() && parsed.top().is_none() && parsed.offset_limit().is_none() {
        let projected: Vec<Value> = items(on)
            .iter()
            .flat_map(|item| parsed.project(item).unwrap())
            .collect();
        assert_eq!(projected, rows, "streamed: {query}");
    }
}

/// Items that are spread over parts give the same rows, if the order does not depend on chance.
fn check_parts(query: &Query, items: &[Value], rows: &[Value]) {
    if !query.reads_items() {
        return;
    }
    for parts in 1..=3 {
        let mut whole = query.start();
        for part in items.chunks(items.len().div_ceil(parts).max(1)) {
            let mut execution = query.start();
            for item in part {
                execution.push(item).unwrap();
            }
            let text = serde_json::to_string(&execution.into_partial()).unwrap();
            whole.absorb(serde_json::from_str(&text).unwrap()).unwrap();
        }
        assert_eq!(
            whole.finish().unwrap(),
            rows,
            "in {parts} parts: {}",
            query.syntax()
        );
    }
}

/// The value of one expression without any item; undefined is the JSON text "undefined".
fn value_of(expression: &str) -> Value {
    let query = format!("SELECT VALUE {expression}");
    let parsed = Query::parse(&query, &[]).unwrap_or_else(|e| panic!("{query}\n{e}"));
    let rows = parsed.at(1_700_000_000_123).execute(std::iter::empty());
    match rows.unwrap_or_else(|e| panic!("{query}\n{e}")).pop() {
        Some(value) => value,
        None => json!("undefined"),
    }
}

/// Each line: expression, and what it gives.
fn check_values(table: &[(&str, Value)]) {
    for (expression, expected) in table {
        assert_eq!(&value_of(expression), expected, "{expression}");
    }
}

fn refusal(query: &str) -> Error {
    match Query::parse(query, &[]) {
        Ok(parsed) => parsed
            .execute([json!({"id": "1"})].into_iter())
            .expect_err(query),
        Err(error) => error,
    }
}
