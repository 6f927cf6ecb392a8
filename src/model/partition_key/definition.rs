//! How a container finds the partition keys of its items and hashes them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{KeyComponent, LEVELS_MAX, PartitionKey, shown};
use crate::model::epk::{Epk, epk_v1, hash_v2};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::path::PropertyPath;

/// The longest string in a key, in bytes of UTF-8. Version 1 hashes only the beginning of long ones.
pub const KEY_BYTES_MAX: usize = 2_048;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyKind {
    /// One path.
    #[default]
    Hash,
    /// Hierarchical: up to three paths, each hashed by itself.
    MultiHash,
}

impl KeyKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hash => "Hash",
            Self::MultiHash => "MultiHash",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HashVersion {
    /// 32-bit hash with the (cut) key itself behind it.
    V1,
    /// 126-bit hash.
    V2,
}

impl HashVersion {
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }
}

/// How a container finds the partition key of an item and hashes it.
///
/// Invariant: `Hash` has one path; `MultiHash` has one to three different ones and version 2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionKeyDefinition {
    pub paths: Vec<PropertyPath>,
    pub kind: KeyKind,
    pub version: HashVersion,
    /// A key that the service made up for a container without one: items that lack it have the empty key.
    pub system_key: bool,
}

impl PartitionKeyDefinition {
    /// From the `partitionKey` property of a container.
    pub fn from_json(value: &Value) -> Result<Self> {
        let Value::Object(definition) = value else {
            return Err(invalid(value, "it must be an object with 'paths'"));
        };
        let kind = parse_kind(definition.get("kind"))?;
        let version = parse_version(definition.get("version"), kind)?;
        let paths = parse_paths(definition.get("paths"), kind)?;
        let system_key = match definition.get("systemKey") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(system_key)) => *system_key,
            Some(other) => return Err(invalid(other, "'systemKey' must be true or false")),
        };
        Ok(Self {
            paths,
            kind,
            version,
            system_key,
        })
    }

    /// Always with kind and version: clients hash by what they read here.
    pub fn to_json(&self) -> Value {
        let paths: Vec<&str> = self.paths.iter().map(PropertyPath::as_str).collect();
        let mut value =
            json!({"paths": paths, "kind": self.kind.as_str(), "version": self.version.number()});
        if let (true, Some(definition)) = (self.system_key, value.as_object_mut()) {
            definition.insert("systemKey".to_owned(), Value::Bool(true));
        }
        value
    }

    pub fn levels(&self) -> usize {
        self.paths.len()
    }

    /// The key of an item. A property that is missing, an object or an array is undefined; in a system-key container it makes the
    /// empty key.
    pub fn extract(&self, item: &Map<String, Value>) -> Result<PartitionKey> {
        let components = self.paths.iter().map(|path| {
            path.get(item)
                .and_then(KeyComponent::from_json)
                .unwrap_or(KeyComponent::Undefined)
        });
        self.checked(PartitionKey(components.collect()))
    }

    /// The key of a point operation from its header, in the form that [`Self::extract`] gives: all levels are there.
    pub fn complete(&self, header: PartitionKey) -> Result<PartitionKey> {
        let key = self.checked(header)?;
        if key.0.len() == self.levels() || (self.system_key && key.0.is_empty()) {
            Ok(key)
        } else {
            Err(mismatch())
        }
    }

    /// Refuses what no item can have as its key; gives the absent system key its one form.
    fn checked(&self, mut key: PartitionKey) -> Result<PartitionKey> {
        if key.0.len() > self.levels() {
            return Err(mismatch());
        }
        for component in &key.0 {
            if let KeyComponent::String(text) = component
                && text.len() > KEY_BYTES_MAX
            {
                return Err(Error::bad_request(format!(
                    "the partition key value '{}…' has {} bytes; {KEY_BYTES_MAX} is the most",
                    shown(text),
                    text.len()
                )));
            }
        }
        if self.system_key
            && key
                .0
                .iter()
                .all(|component| *component == KeyComponent::Undefined)
        {
            key.0.clear();
        }
        Ok(key)
    }

    /// The place of a key; of a prefix of a hierarchical key, where its range begins.
    pub fn epk(&self, key: &PartitionKey) -> Epk {
        let components = key.0.as_slice();
        match (self.kind, self.version) {
            _ if components.is_empty() => Epk::min(),
            (KeyKind::Hash, HashVersion::V1) => epk_v1(components),
            (KeyKind::Hash, HashVersion::V2) => Epk::from_bytes(&hash_v2(components)),
            (KeyKind::MultiHash, _) => {
                let mut bytes = [[0; 16]; LEVELS_MAX];
                for (place, component) in bytes.iter_mut().zip(components) {
                    *place = hash_v2(std::slice::from_ref(component));
                }
                let hashes = bytes.get(..components.len()).unwrap_or(&bytes);
                Epk::from_bytes(hashes.as_flattened())
            }
        }
    }

    /// The half-open range of everything under a key: one place when it is complete, a span when it is a prefix.
    pub fn prefix_range(&self, key: &PartitionKey) -> (Epk, Epk) {
        let min = self.epk(key);
        let max = if key.0.len() < self.levels() {
            min.with_suffix(0xFF)
        } else {
            min.successor()
        };
        (min, max)
    }

    /// Whether both find and hash keys in the same way, however they are written.
    pub fn same_definition(&self, other: &Self) -> bool {
        self.paths == other.paths && self.kind == other.kind && self.version == other.version
    }
}

/// The key of the request contradicts the container or the item; clients refresh what they know and retry once.
pub fn mismatch() -> Error {
    Error::new(
        ErrorKind::PartitionKeyMismatch,
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match partition \
         key field values specified in the document.",
    )
}

fn invalid(value: &Value, rule: &str) -> Error {
    Error::bad_request(format!(
        "the partition key definition {} is not valid: {rule}",
        shown(&value.to_string())
    ))
}

fn parse_kind(value: Option<&Value>) -> Result<KeyKind> {
    match value {
        None | Some(Value::Null) => Ok(KeyKind::default()),
        Some(Value::String(kind)) if kind.eq_ignore_ascii_case("Hash") => Ok(KeyKind::Hash),
        Some(Value::String(kind)) if kind.eq_ignore_ascii_case("MultiHash") => {
            Ok(KeyKind::MultiHash)
        }
        Some(other) => Err(invalid(
            other,
            "the kinds offered are 'Hash' and 'MultiHash'",
        )),
    }
}

fn parse_version(value: Option<&Value>, kind: KeyKind) -> Result<HashVersion> {
    let number = match value {
        None | Some(Value::Null) => None,
        Some(value) => Some(
            value
                .as_f64()
                .ok_or_else(|| invalid(value, "'version' must be 1 or 2"))?,
        ),
    };
    match (number, kind) {
        (None, KeyKind::Hash) => Ok(HashVersion::V1),
        (None, KeyKind::MultiHash) => Ok(HashVersion::V2),
        (Some(1.0), KeyKind::Hash) => Ok(HashVersion::V1),
        (Some(2.0), _) => Ok(HashVersion::V2),
        (Some(1.0), KeyKind::MultiHash) => Err(invalid(&json!(1), "'MultiHash' needs 'version' 2")),
        (Some(other), _) => Err(invalid(&json!(other), "'version' must be 1 or 2")),
    }
}

fn parse_paths(value: Option<&Value>, kind: KeyKind) -> Result<Vec<PropertyPath>> {
    let list = match value {
        Some(Value::Array(list)) if !list.is_empty() => list,
        other => {
            return Err(invalid(
                other.unwrap_or(&Value::Null),
                "'paths' must be a list with a path in it",
            ));
        }
    };
    let most = match kind {
        KeyKind::Hash => 1,
        KeyKind::MultiHash => LEVELS_MAX,
    };
    if list.len() > most {
        return Err(Error::bad_request(format!(
            "Too many partition key paths: {} given, a {} key takes {most} at the most",
            list.len(),
            kind.as_str()
        )));
    }
    let mut paths = Vec::with_capacity(list.len());
    for value in list {
        let text = value
            .as_str()
            .ok_or_else(|| invalid(value, "a path must be a string"))?;
        let path = PropertyPath::parse(text)?;
        if paths.contains(&path) {
            return Err(invalid(value, "a path may be named only once"));
        }
        paths.push(path);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests;
