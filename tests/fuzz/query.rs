//! Any text as a query. It must be refused with a reason, or else be planned and run over a few
//! items to its end within the bounds of its work. A panic, a stack overflow or a hang is a finding.

#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../src/model/mod.rs"]
mod model;
#[path = "../../src/sql/mod.rs"]
mod sql;

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use sql::{QUERY_TEXT_BYTES_MAX, Query, plan};

fn items() -> Vec<Value> {
    vec![
        json!({"id": "1", "pk": "a", "n": 1, "s": "text", "t": ["x", {"k": 1}], "o": {"a": null}, "_ts": 1_790_000_000}),
        json!({"id": "2", "pk": "b", "n": -2.5, "s": "", "t": [], "g": {"type": "Point", "coordinates": [4.9, 52.3]}}),
        json!({"id": "3", "pk": "a", "n": "3", "t": {"k": [true, false]}, "_ts": 1_790_000_001}),
    ]
}

fuzz_target!(|text: &str| {
    if text.len() > QUERY_TEXT_BYTES_MAX {
        return;
    }
    let parameters = [("@p".to_owned(), json!([1, "x", null]))];
    let query = match Query::parse(text, &parameters) {
        Ok(query) => query.at(1_790_000_000_000),
        Err(refused) => {
            assert_eq!(refused.status(), 400, "{refused}");
            return;
        }
    };
    if let Err(refused) = plan(text, &parameters, &["/pk".to_owned()]) {
        assert_eq!(refused.status(), 400, "{refused}");
    }
    // What is too much work is refused, too.
    if let Err(refused) = query.execute(items().into_iter()) {
        assert_eq!(refused.status(), 400, "{refused}");
    }
});
