//! Partial updates: the patch document of a request, checked, and its effect on an item.

mod apply;
#[cfg(test)]
mod apply_tests;
mod pointer;

pub use pointer::Pointer;

use serde_json::{Map, Number, Value};

use super::error::{Error, Result};
use super::json::{kind_name, parse_value, show};

/// The most operations in one patch.
pub const PATCH_OPERATIONS_MAX: usize = 10;

/// A patch as the client means it.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// What follows `SELECT *` of the query that the item must satisfy (`from c where …`).
    pub condition: Option<String>,
    pub operations: Vec<PatchOperation>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PatchOperation {
    Add { path: Pointer, value: Value },
    Set { path: Pointer, value: Value },
    Replace { path: Pointer, value: Value },
    Remove { path: Pointer },
    Incr { path: Pointer, by: Number },
    Move { from: Pointer, path: Pointer },
}

impl Patch {
    /// From a request body: `{"operations": […], "condition": "…"}` or the bare array of operations.
    pub fn from_json(body: &[u8]) -> Result<Self> {
        Self::from_value(parse_value(body)?)
    }

    /// From a value that is parsed already, such as the `resourceBody` of a batch operation.
    pub fn from_value(value: Value) -> Result<Self> {
        let (condition, operations) = match value {
            Value::Array(operations) => (None, operations),
            Value::Object(mut object) => (
                condition(object.remove("condition"))?,
                operations(object.remove("operations"))?,
            ),
            other => {
                return Err(Error::bad_request(format!(
                    "a patch must be an object with 'operations', or their array, but it is {}: {}",
                    kind_name(&other),
                    show(&other)
                )));
            }
        };
        if operations.is_empty() || operations.len() > PATCH_OPERATIONS_MAX {
            return Err(Error::bad_request(format!(
                "the patch has {} operations: it must have 1 to {PATCH_OPERATIONS_MAX}",
                operations.len()
            )));
        }
        let operations = operations
            .into_iter()
            .map(PatchOperation::from_value)
            .collect::<Result<Vec<_>>>()?;
        Ok(Self {
            condition,
            operations,
        })
    }
}

fn condition(value: Option<Value>) -> Result<Option<String>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(condition)) => Ok(Some(condition)),
        Some(other) => Err(Error::bad_request(format!(
            "the 'condition' of a patch must be a string, but it is {}: {}",
            kind_name(&other),
            show(&other)
        ))),
    }
}

fn operations(value: Option<Value>) -> Result<Vec<Value>> {
    match value {
        Some(Value::Array(operations)) => Ok(operations),
        None => Err(Error::bad_request("the patch has no 'operations'")),
        Some(other) => Err(Error::bad_request(format!(
            "the 'operations' of a patch must be an array, but they are {}: {}",
            kind_name(&other),
            show(&other)
        ))),
    }
}

impl PatchOperation {
    fn from_value(value: Value) -> Result<Self> {
        let Value::Object(mut fields) = value else {
            return Err(Error::bad_request(format!(
                "a patch operation must be an object, but it is {}: {}",
                kind_name(&value),
                show(&value)
            )));
        };
        let path = pointer(&fields, "path")?;
        match fields.get("op").and_then(Value::as_str) {
            Some("add") => take_value(&mut fields, &path).map(|value| Self::Add { path, value }),
            Some("set") => take_value(&mut fields, &path).map(|value| Self::Set { path, value }),
            Some("replace") => {
                take_value(&mut fields, &path).map(|value| Self::Replace { path, value })
            }
            Some("remove") => Ok(Self::Remove { path }),
            Some("incr") => match take_value(&mut fields, &path)? {
                Value::Number(by) => Ok(Self::Incr { path, by }),
                other => Err(Error::bad_request(format!(
                    "the value {} of the patch operation 'incr' on '{path}' is not a number",
                    show(&other)
                ))),
            },
            Some("move") => {
                let from = pointer(&fields, "from")?;
                if path.is_inside(&from) {
                    return Err(Error::bad_request(format!(
                        "the patch operation 'move' cannot put '{from}' inside itself at '{path}'"
                    )));
                }
                Ok(Self::Move { from, path })
            }
            _ => Err(Error::bad_request(format!(
                "the patch operation 'op': {} is not one of add, set, replace, remove, incr, move",
                show(fields.get("op").unwrap_or(&Value::Null))
            ))),
        }
    }
}

fn pointer(fields: &Map<String, Value>, name: &str) -> Result<Pointer> {
    match fields.get(name) {
        Some(Value::String(text)) => Pointer::parse(text),
        Some(other) => Err(Error::bad_request(format!(
            "the '{name}' of a patch operation must be a string, but it is {}: {}",
            kind_name(other),
            show(other)
        ))),
        None => Err(Error::bad_request(format!(
            "a patch operation has no '{name}': {}",
            show(&Value::Object(fields.clone()))
        ))),
    }
}

fn take_value(fields: &mut Map<String, Value>, path: &Pointer) -> Result<Value> {
    fields.remove("value").ok_or_else(|| {
        Error::bad_request(format!("the patch operation on '{path}' has no 'value'"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Pointer {
        Pointer::parse(text).expect(text)
    }

    #[test]
    fn every_operation_is_read_in_both_forms() {
        let operations = r#"[
            {"op":"add","path":"/tags/-","value":"x"},{"op":"set","path":"/a/b","value":1},
            {"op":"replace","path":"/s","value":null},{"op":"remove","path":"/old"},
            {"op":"incr","path":"/n","value":2},{"op":"move","from":"/x","path":"/y"}]"#;
        let expected = vec![
            PatchOperation::Add {
                path: path("/tags/-"),
                value: json!("x"),
            },
            PatchOperation::Set {
                path: path("/a/b"),
                value: json!(1),
            },
            PatchOperation::Replace {
                path: path("/s"),
                value: json!(null),
            },
            PatchOperation::Remove { path: path("/old") },
            PatchOperation::Incr {
                path: path("/n"),
                by: 2.into(),
            },
            PatchOperation::Move {
                from: path("/x"),
                path: path("/y"),
            },
        ];
        for (body, condition) in [
            (operations.to_owned(), None),
            (format!(r#"{{"operations":{operations}}}"#), None),
            (
                format!(r#"{{"condition":null,"operations":{operations}}}"#),
                None,
            ),
            (
                format!(r#"{{"condition":"from c where c.n = 5","operations":{operations}}}"#),
                Some("from c where c.n = 5".to_owned()),
            ),
        ] {
            let patch = Patch::from_json(body.as_bytes()).expect("a valid patch");
            assert_eq!(
                patch,
                Patch {
                    condition,
                    operations: expected.clone()
                }
            );
        }
    }

    #[test]
    fn bad_patches_are_refused_by_name() {
        for (body, fragment) in [
            ("[]", "0 operations"),
            (r#"{"operations":[]}"#, "0 operations"),
            (r#"{"operations":{}}"#, "an object: {}"),
            (r#"{"condition":"x"}"#, "no 'operations'"),
            (
                r#"{"operations":[{"op":"remove","path":"/a"}],"condition":5}"#,
                "'condition'",
            ),
            ("5", "a number: 5"),
            ("[5]", "a number: 5"),
            ("{", "not valid JSON"),
            (r#"[{"path":"/a"}]"#, "'op': null"),
            (r#"[{"op":"test","path":"/a","value":1}]"#, "\"test\""),
            (r#"[{"op":"Add","path":"/a","value":1}]"#, "\"Add\""),
            (r#"[{"op":7,"path":"/a"}]"#, "'op': 7"),
            (r#"[{"op":"remove"}]"#, "no 'path'"),
            (r#"[{"op":"remove","path":3}]"#, "a number: 3"),
            (r#"[{"op":"remove","path":"a"}]"#, "'a'"),
            (r#"[{"op":"remove","path":""}]"#, "''"),
            (r#"[{"op":"add","path":"/a"}]"#, "'/a' has no 'value'"),
            (r#"[{"op":"set","path":"/a"}]"#, "'/a' has no 'value'"),
            (r#"[{"op":"replace","path":"/a"}]"#, "'/a' has no 'value'"),
            (r#"[{"op":"incr","path":"/a"}]"#, "'/a' has no 'value'"),
            (r#"[{"op":"incr","path":"/a","value":"1"}]"#, "\"1\""),
            (r#"[{"op":"incr","path":"/a","value":null}]"#, "null"),
            (r#"[{"op":"move","path":"/a"}]"#, "no 'from'"),
            (r#"[{"op":"move","path":"/a","from":[]}]"#, "'from'"),
            (r#"[{"op":"move","from":"/a","path":"/a/b"}]"#, "'/a/b'"),
        ] {
            let error = Patch::from_json(body.as_bytes()).expect_err(body);
            assert_eq!(error.status(), 400, "{body}");
            assert!(error.message.contains(fragment), "{body}: {error}");
        }
    }

    #[test]
    fn ten_operations_fit_and_eleven_do_not() {
        let patch = |count: usize| {
            let operations = vec![json!({"op": "remove", "path": "/a"}); count];
            Patch::from_json(json!(operations).to_string().as_bytes())
        };
        assert_eq!(patch(10).map(|patch| patch.operations.len()), Ok(10));
        let error = patch(11).expect_err("too many");
        assert!(error.message.contains("11 operations"), "{error}");
    }
}
