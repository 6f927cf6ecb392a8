//! Every row of the patch operations, as tables.

use serde_json::{Value, json};

use super::Patch;
use crate::model::error::Result;
use crate::model::json::{JSON_DEPTH_MAX, parse_object};
use crate::model::path::PropertyPath;

/// Item, operations, outcome.
const OUTCOMES: &str = r##"
# add
{}  ->  [{"op":"add","path":"/a","value":1}]  ->  {"a":1}
{"a":1,"b":2}  ->  [{"op":"add","path":"/a","value":null}]  ->  {"a":null,"b":2}
{"a":[1,2]}  ->  [{"op":"add","path":"/a/0","value":0}]  ->  {"a":[0,1,2]}
{"a":[1,2]}  ->  [{"op":"add","path":"/a/2","value":3}]  ->  {"a":[1,2,3]}
{"a":[1,2]}  ->  [{"op":"add","path":"/a/-","value":3}]  ->  {"a":[1,2,3]}
{"a":[]}  ->  [{"op":"add","path":"/a/-","value":[]}]  ->  {"a":[[]]}
{"a":[{"b":{}}]}  ->  [{"op":"add","path":"/a/0/b/c","value":3.0}]  ->  {"a":[{"b":{"c":3}}]}
{"a":{}}  ->  [{"op":"add","path":"/a/-","value":1},{"op":"add","path":"/a/0","value":2}]  ->  {"a":{"-":1,"0":2}}
{}  ->  [{"op":"add","path":"/x~1y~0z","value":1}]  ->  {"x/y~z":1}
{}  ->  [{"op":"add","path":"/","value":1}]  ->  {"":1}
# set
{}  ->  [{"op":"set","path":"/a","value":1}]  ->  {"a":1}
{"a":1}  ->  [{"op":"set","path":"/a","value":{"b":2}}]  ->  {"a":{"b":2}}
{"a":[1,2]}  ->  [{"op":"set","path":"/a/0","value":0}]  ->  {"a":[0,2]}
{"a":[1,2]}  ->  [{"op":"set","path":"/a/2","value":3}]  ->  {"a":[1,2,3]}
{"a":[1,2]}  ->  [{"op":"set","path":"/a/-","value":3}]  ->  {"a":[1,2,3]}
{"id":"1"}  ->  [{"op":"set","path":"/ttl","value":30}]  ->  {"id":"1","ttl":30}
# replace
{"a":1,"b":2}  ->  [{"op":"replace","path":"/a","value":"x"}]  ->  {"a":"x","b":2}
{"a":null}  ->  [{"op":"replace","path":"/a","value":1}]  ->  {"a":1}
{"a":[1,[2]]}  ->  [{"op":"replace","path":"/a/1/0","value":3}]  ->  {"a":[1,[3]]}
# remove
{"a":1,"b":2,"c":3}  ->  [{"op":"remove","path":"/a"}]  ->  {"b":2,"c":3}
{"a":[1,2,3]}  ->  [{"op":"remove","path":"/a/1"}]  ->  {"a":[1,3]}
{"a":{"b":{"c":1}}}  ->  [{"op":"remove","path":"/a/b/c"}]  ->  {"a":{"b":{}}}
# incr
{"n":5}  ->  [{"op":"incr","path":"/n","value":2}]  ->  {"n":7}
{"n":5}  ->  [{"op":"incr","path":"/n","value":-7}]  ->  {"n":-2}
{"n":5}  ->  [{"op":"incr","path":"/n","value":0.5}]  ->  {"n":5.5}
{"n":0.5}  ->  [{"op":"incr","path":"/n","value":0.5}]  ->  {"n":1}
{}  ->  [{"op":"incr","path":"/n","value":-3}]  ->  {"n":-3}
{"a":[1,2]}  ->  [{"op":"incr","path":"/a/1","value":1}]  ->  {"a":[1,3]}
{"a":{}}  ->  [{"op":"incr","path":"/a/n","value":1.5}]  ->  {"a":{"n":1.5}}
{"n":9007199254740993}  ->  [{"op":"incr","path":"/n","value":2}]  ->  {"n":9007199254740995}
{"n":9223372036854775807}  ->  [{"op":"incr","path":"/n","value":1}]  ->  {"n":9223372036854775808}
{"n":18446744073709551615}  ->  [{"op":"incr","path":"/n","value":-1}]  ->  {"n":18446744073709551614}
{"n":18446744073709551615}  ->  [{"op":"incr","path":"/n","value":1}]  ->  {"n":1.8446744073709552e+19}
{"n":-9223372036854775808}  ->  [{"op":"incr","path":"/n","value":-4096}]  ->  {"n":-9.22337203685478e+18}
# move
{"x":1,"z":2}  ->  [{"op":"move","from":"/x","path":"/y"}]  ->  {"z":2,"y":1}
{"x":1,"y":2}  ->  [{"op":"move","from":"/x","path":"/y"}]  ->  {"y":1}
{"x":1}  ->  [{"op":"move","from":"/x","path":"/x"}]  ->  {"x":1}
{"a":{"b":{"c":1}}}  ->  [{"op":"move","from":"/a/b","path":"/a"}]  ->  {"a":{"c":1}}
{"a":[1,2,3]}  ->  [{"op":"move","from":"/a/0","path":"/a/2"}]  ->  {"a":[2,3,1]}
{"a":[1,2],"b":[3]}  ->  [{"op":"move","from":"/a/1","path":"/b/0"}]  ->  {"a":[1],"b":[2,3]}
{"a":[1,2],"b":[3]}  ->  [{"op":"move","from":"/a/0","path":"/b/-"}]  ->  {"a":[2],"b":[3,1]}
# in order
{"a":{}}  ->  [{"op":"add","path":"/a/l","value":[]},{"op":"add","path":"/a/l/-","value":1}, {"op":"incr","path":"/a/l/0","value":1},{"op":"move","from":"/a/l","path":"/m"},{"op":"remove","path":"/a"}]  ->  {"m":[2]}
"##;

/// Operation, what the message says.
const REFUSALS: &str = r##"
{"op":"add","path":"/no/x","value":1}  ->  parent of the patch path '/no/x'
{"op":"add","path":"/a/5/x","value":1}  ->  '/a/5/x'
{"op":"add","path":"/s/x","value":1}  ->  a string
{"op":"add","path":"/nul/x","value":1}  ->  null
{"op":"add","path":"/s/x/y","value":1}  ->  '/s/x/y'
{"op":"add","path":"/a/3","value":1}  ->  0 to 2
{"op":"add","path":"/a/01","value":1}  ->  '/a/01'
{"op":"add","path":"/a/x","value":1}  ->  '/a/x'
{"op":"add","path":"/a/-1","value":1}  ->  '/a/-1'
{"op":"add","path":"/a/-/x","value":1}  ->  '/a/-/x'
{"op":"set","path":"/a/3","value":1}  ->  '/a/3'
{"op":"set","path":"/no/x","value":1}  ->  '/no/x'
{"op":"replace","path":"/no","value":1}  ->  '/no' does not exist
{"op":"replace","path":"/a/2","value":1}  ->  '/a/2' does not exist
{"op":"replace","path":"/a/-","value":1}  ->  '/a/-' does not exist
{"op":"replace","path":"/n/x","value":1}  ->  a number
{"op":"remove","path":"/no"}  ->  '/no' does not exist
{"op":"remove","path":"/o/no"}  ->  '/o/no' does not exist
{"op":"remove","path":"/a/2"}  ->  '/a/2' does not exist
{"op":"remove","path":"/a/-"}  ->  '/a/-' does not exist
{"op":"incr","path":"/s","value":1}  ->  a string: "x"
{"op":"incr","path":"/nul","value":1}  ->  null
{"op":"incr","path":"/no/x","value":1}  ->  '/no/x'
{"op":"incr","path":"/a/2","value":1}  ->  '/a/2' does not exist
{"op":"incr","path":"/a/-","value":1}  ->  '/a/-' does not exist
{"op":"move","from":"/no","path":"/x"}  ->  '/no' does not exist
{"op":"move","from":"/no","path":"/no"}  ->  '/no' does not exist
{"op":"move","from":"/n","path":"/no/x"}  ->  '/no/x'
{"op":"move","from":"/n","path":"/a/9"}  ->  '/a/9'
{"op":"set","path":"/id","value":"1"}  ->  '/id'
{"op":"remove","path":"/id"}  ->  '/id'
{"op":"move","from":"/id","path":"/x"}  ->  '/id'
{"op":"move","from":"/s","path":"/id"}  ->  '/id'
{"op":"add","path":"/id/x","value":1}  ->  '/id/x'
{"op":"incr","path":"/_ts","value":1}  ->  '/_ts'
{"op":"set","path":"/_etag","value":"x"}  ->  '/_etag'
{"op":"add","path":"/_rid","value":"x"}  ->  '/_rid'
{"op":"add","path":"/_self","value":"x"}  ->  '/_self'
{"op":"add","path":"/_attachments","value":"x"}  ->  '/_attachments'
{"op":"add","path":"/_lsn","value":1}  ->  '/_lsn'
{"op":"set","path":"/pk","value":"q"}  ->  partition key at '/pk'
{"op":"remove","path":"/pk"}  ->  partition key at '/pk'
{"op":"move","from":"/pk","path":"/x"}  ->  partition key at '/pk'
{"op":"move","from":"/s","path":"/pk"}  ->  partition key at '/pk'
{"op":"set","path":"/o/k","value":"z"}  ->  partition key at '/o/k'
{"op":"set","path":"/o","value":{}}  ->  partition key at '/o/k'
{"op":"replace","path":"/o","value":5}  ->  partition key at '/o/k'
{"op":"add","path":"/absent","value":1}  ->  partition key at '/absent'
"##;

fn columns(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split("  ->  ").collect())
}

fn rows(table: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    columns(table).map(|columns| match columns[..] {
        [item, operations, outcome] => (item, operations, outcome),
        _ => panic!("not three columns: {columns:?}"),
    })
}

fn pairs(table: &str) -> impl Iterator<Item = (&str, &str)> {
    columns(table).map(|columns| match columns[..] {
        [operation, fragment] => (operation, fragment),
        _ => panic!("not two columns: {columns:?}"),
    })
}

fn patched(item: &str, operations: &str, protected: &[&str]) -> (Result<()>, String) {
    let mut item = parse_object(item.as_bytes()).expect("an item");
    let protected: Vec<PropertyPath> = protected
        .iter()
        .map(|path| PropertyPath::parse(path).expect("a path"))
        .collect();
    let outcome = Patch::from_json(operations.as_bytes())
        .expect("a valid patch")
        .apply(&mut item, &protected);
    (outcome, Value::Object(item).to_string())
}

#[test]
fn operations_do_what_the_table_says() {
    for (item, operations, expected) in rows(OUTCOMES) {
        let (outcome, after) = patched(item, operations, &[]);
        assert_eq!(outcome, Ok(()), "{item} {operations}");
        assert_eq!(after, expected, "{item} {operations}");
    }
}

#[test]
fn refused_operations_name_the_path_and_leave_no_trace() {
    let item = r#"{"id":"1","pk":"p","n":1,"s":"x","a":[1,2],"o":{"k":"q"},"nul":null,"_ts":5}"#;
    for (operation, fragment) in pairs(REFUSALS) {
        // A first operation that succeeds would show if a failure let it leak.
        let operations = format!(r#"[{{"op":"add","path":"/first","value":1}},{operation}]"#);
        let (outcome, after) = patched(item, &operations, &["/pk", "/o/k", "/absent"]);
        let error = outcome.expect_err(operation);
        assert_eq!(error.status(), 400, "{operation}");
        assert!(error.message.contains(fragment), "{operation}: {error}");
        assert_eq!(after, item, "{operation}");
    }
}

#[test]
fn what_leaves_the_partition_key_alone_is_allowed_around_it() {
    let item = r#"{"id":"1","o":{"k":"q","n":1}}"#;
    for (operation, expected) in [
        (
            r#"{"op":"incr","path":"/o/n","value":1}"#,
            r#"{"id":"1","o":{"k":"q","n":2}}"#,
        ),
        (
            r#"{"op":"set","path":"/o","value":{"k":"q"}}"#,
            r#"{"id":"1","o":{"k":"q"}}"#,
        ),
        (
            r#"{"op":"set","path":"/_own","value":1}"#,
            r#"{"id":"1","o":{"k":"q","n":1},"_own":1}"#,
        ),
        (
            r#"{"op":"set","path":"/o/id","value":1}"#,
            r#"{"id":"1","o":{"k":"q","n":1,"id":1}}"#,
        ),
    ] {
        let (outcome, after) = patched(item, &format!("[{operation}]"), &["/o/k"]);
        assert_eq!(outcome, Ok(()), "{operation}");
        assert_eq!(after, expected, "{operation}");
    }
}

#[test]
fn an_increment_beyond_all_doubles_is_refused() {
    let (outcome, after) = patched(
        r#"{"n":1.7e+308}"#,
        r#"[{"op":"incr","path":"/n","value":1.7e308}]"#,
        &[],
    );
    let error = outcome.expect_err("infinite");
    assert!(
        error.message.contains("1.7e+308") && error.message.contains("'/n'"),
        "{error}"
    );
    assert_eq!(after, r#"{"n":1.7e+308}"#);
}

#[test]
fn a_patch_cannot_nest_deeper_than_a_body() {
    let nest = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let mut item = json!({"a": nest(JSON_DEPTH_MAX - 1)})
        .as_object()
        .expect("an object")
        .clone();
    let before = item.clone();
    let deepest = "/a".to_owned() + &"/0".repeat(JSON_DEPTH_MAX - 1);
    let patch = |value: Value| {
        Patch::from_value(json!([{"op": "set", "path": deepest, "value": value}]))
            .expect("a valid patch")
    };
    let error = patch(json!({}))
        .apply(&mut item, &[])
        .expect_err("too deep");
    assert!(error.message.contains("limit of 128"), "{error}");
    assert_eq!(item, before);
    assert_eq!(patch(json!(2)).apply(&mut item, &[]), Ok(()));
}
