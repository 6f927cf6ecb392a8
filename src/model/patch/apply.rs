//! The effect of a patch on an item: all of its operations in order, or none.

use serde_json::{Map, Number, Value};

use super::pointer::{array_index, descend};
use super::{Patch, PatchOperation, Pointer};
use crate::model::error::{Error, Result};
use crate::model::item::is_system_property;
use crate::model::json::{JSON_DEPTH_MAX, kind_name, normal_number, show, too_deep};
use crate::model::path::PropertyPath;

/// What a value that is put at an array index does to the one that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtIndex {
    Insert,
    Overwrite,
}

impl Patch {
    /// Applies all operations, or leaves the item as it was and says which one failed.
    ///
    /// `protected` are the paths of the partition key: their values must come out as they went in. The id and the
    /// system properties may not be named at all. The outcome still has to pass the checks of a new item.
    pub fn apply(&self, item: &mut Map<String, Value>, protected: &[PropertyPath]) -> Result<()> {
        let mut patched = Value::Object(item.clone());
        for operation in &self.operations {
            operation.check_names()?;
            operation.apply(&mut patched)?;
            if let Some(path) = protected.iter().find(|path| {
                patched.as_object().and_then(|patched| path.get(patched)) != path.get(item)
            }) {
                return Err(Error::bad_request(format!(
                    "the patch operation on '{}' changes the partition key at '{path}', which cannot be changed",
                    operation.path()
                )));
            }
        }
        if too_deep(&patched) {
            return Err(Error::bad_request(format!(
                "the patched item is nested deeper than the limit of {JSON_DEPTH_MAX} levels"
            )));
        }
        if let Value::Object(patched) = patched {
            *item = patched;
        }
        Ok(())
    }
}

impl PatchOperation {
    /// The place that the operation writes to.
    pub fn path(&self) -> &Pointer {
        match self {
            Self::Add { path, .. }
            | Self::Set { path, .. }
            | Self::Replace { path, .. }
            | Self::Remove { path }
            | Self::Incr { path, .. }
            | Self::Move { path, .. } => path,
        }
    }

    fn check_names(&self) -> Result<()> {
        let from = match self {
            Self::Move { from, .. } => Some(from),
            _ => None,
        };
        match from
            .into_iter()
            .chain([self.path()])
            .find(|path| path.first() == "id" || is_system_property(path.first()))
        {
            None => Ok(()),
            Some(path) => Err(Error::bad_request(format!(
                "the patch path '{path}' is not allowed: the id and the system properties cannot be patched"
            ))),
        }
    }

    fn apply(&self, root: &mut Value) -> Result<()> {
        match self {
            Self::Add { path, value } => put(root, path, value.clone(), AtIndex::Insert),
            Self::Set { path, value } => put(root, path, value.clone(), AtIndex::Overwrite),
            Self::Replace { path, value } => {
                *existing(root, path)? = value.clone();
                Ok(())
            }
            Self::Remove { path } => take(root, path).map(drop),
            Self::Incr { path, by } => increment(root, path, by),
            Self::Move { from, path } if from == path => existing(root, from).map(drop),
            Self::Move { from, path } => {
                let value = take(root, from)?;
                put(root, path, value, AtIndex::Insert)
            }
        }
    }
}

fn parent<'a>(root: &'a mut Value, path: &Pointer) -> Result<&'a mut Value> {
    descend(root, path.split_last().0).ok_or_else(|| {
        Error::bad_request(format!(
            "the parent of the patch path '{path}' does not exist"
        ))
    })
}

fn missing(path: &Pointer) -> Error {
    Error::bad_request(format!(
        "the patch path '{path}' does not exist in the item"
    ))
}

fn no_container(path: &Pointer, parent: &Value) -> Error {
    Error::bad_request(format!(
        "the parent of the patch path '{path}' is {}: it must be an object or an array",
        kind_name(parent)
    ))
}

fn existing<'a>(root: &'a mut Value, path: &Pointer) -> Result<&'a mut Value> {
    let (_, last) = path.split_last();
    match parent(root, path)? {
        Value::Object(object) => object.get_mut(last),
        Value::Array(items) => array_index(last).and_then(|index| items.get_mut(index)),
        other => return Err(no_container(path, other)),
    }
    .ok_or_else(|| missing(path))
}

fn put(root: &mut Value, path: &Pointer, value: Value, at_index: AtIndex) -> Result<()> {
    let (_, last) = path.split_last();
    match parent(root, path)? {
        Value::Object(object) => {
            object.insert(last.to_owned(), value);
        }
        Value::Array(items) => {
            let index = if last == "-" {
                Some(items.len())
            } else {
                array_index(last)
            };
            match index {
                Some(index) if index < items.len() && at_index == AtIndex::Overwrite => {
                    if let Some(place) = items.get_mut(index) {
                        *place = value;
                    }
                }
                Some(index) if index <= items.len() => items.insert(index, value),
                _ => {
                    return Err(Error::bad_request(format!(
                        "the patch path '{path}' does not end in '-' or an index from 0 to {}, the length of the array",
                        items.len()
                    )));
                }
            }
        }
        other => return Err(no_container(path, other)),
    }
    Ok(())
}

fn take(root: &mut Value, path: &Pointer) -> Result<Value> {
    let (_, last) = path.split_last();
    match parent(root, path)? {
        // Shifting keeps the order in which the client wrote the other properties.
        Value::Object(object) => object.shift_remove(last),
        Value::Array(items) => array_index(last)
            .filter(|index| *index < items.len())
            .map(|index| items.remove(index)),
        other => return Err(no_container(path, other)),
    }
    .ok_or_else(|| missing(path))
}

fn increment(root: &mut Value, path: &Pointer, by: &Number) -> Result<()> {
    let (_, last) = path.split_last();
    if let Value::Object(object) = parent(root, path)?
        && !object.contains_key(last)
    {
        object.insert(last.to_owned(), Value::Number(by.clone()));
        return Ok(());
    }
    let place = existing(root, path)?;
    let Value::Number(number) = place else {
        return Err(Error::bad_request(format!(
            "the patch operation 'incr' needs a number at '{path}', but it is {}: {}",
            kind_name(place),
            show(place)
        )));
    };
    *number = plus(number, by).ok_or_else(|| {
        Error::bad_request(format!(
            "the patch operation 'incr' by {by} on '{path}' leaves the range of numbers: the value is {number}"
        ))
    })?;
    Ok(())
}

/// Exact as long as the sum is an integer of 64 bits, else a double; `None` when that is not finite.
fn plus(left: &Number, right: &Number) -> Option<Number> {
    if let (Some(left), Some(right)) = (left.as_i128(), right.as_i128()) {
        // Two numbers of 64 bits cannot overflow 128.
        let sum = left + right;
        return match (i64::try_from(sum), u64::try_from(sum)) {
            (Ok(sum), _) => Some(sum.into()),
            (_, Ok(sum)) => Some(sum.into()),
            _ => normal_number(sum as f64),
        };
    }
    normal_number(left.as_f64()? + right.as_f64()?)
}
