//! Unique keys: sets of paths whose values together are unique within one logical partition.

use serde_json::{Value, json};

use crate::model::checks::{
    array_or_empty, expect_array, expect_object, invalid, missing, present,
};
use crate::model::error::{Error, Result};
use crate::model::path::PropertyPath;

/// The most unique keys of a container.
pub const UNIQUE_KEYS_MAX: usize = 10;
/// The most paths of one unique key.
pub const UNIQUE_KEY_PATHS_MAX: usize = 16;

/// From the `uniqueKeyPolicy` of a container.
pub(super) fn from_json(value: &Value) -> Result<Vec<Vec<PropertyPath>>> {
    let policy = expect_object("uniqueKeyPolicy", value)?;
    let mut keys: Vec<Vec<PropertyPath>> = Vec::new();
    for value in array_or_empty(policy, "uniqueKeys", UNIQUE_KEYS_MAX)? {
        let key = unique_key(value)?;
        if keys.iter().any(|other| same_paths(other, &key)) {
            return Err(invalid(
                "uniqueKeys",
                value,
                "different from every other one",
            ));
        }
        keys.push(key);
    }
    Ok(keys)
}

fn unique_key(value: &Value) -> Result<Vec<PropertyPath>> {
    let object = expect_object("uniqueKeys", value)?;
    let list = present(object, "paths").ok_or_else(|| missing("paths"))?;
    let mut paths = Vec::new();
    for value in expect_array("paths", list, UNIQUE_KEY_PATHS_MAX)? {
        let text = value
            .as_str()
            .ok_or_else(|| invalid("paths", value, "an array of strings"))?;
        let path = PropertyPath::parse(text)
            .map_err(|error| Error::bad_request(format!("a unique key is not valid: {error}")))?;
        if paths.contains(&path) {
            return Err(invalid("paths", list, "an array without duplicates"));
        }
        paths.push(path);
    }
    if paths.is_empty() {
        return Err(invalid("paths", list, "an array of at least one path"));
    }
    Ok(paths)
}

pub(super) fn to_json(keys: &[Vec<PropertyPath>]) -> Value {
    let key = |paths: &Vec<PropertyPath>| {
        let paths: Vec<_> = paths.iter().map(PropertyPath::to_string).collect();
        json!({"paths": paths})
    };
    json!({"uniqueKeys": keys.iter().map(key).collect::<Vec<_>>()})
}

/// Whether both say the same; neither the order of the keys nor that of their paths matters.
pub(super) fn same(one: &[Vec<PropertyPath>], other: &[Vec<PropertyPath>]) -> bool {
    one.len() == other.len() && one.iter().all(|a| other.iter().any(|b| same_paths(a, b)))
}

fn same_paths(one: &[PropertyPath], other: &[PropertyPath]) -> bool {
    one.len() == other.len() && one.iter().all(|path| other.contains(path))
}
