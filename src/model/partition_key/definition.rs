//! How a container finds the partition keys of its items and hashes them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{KeyComponent, LEVELS_MAX, PartitionKey, shown};
use crate::model::epk::{Epk, epk_v1, hash_v2};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::path::PropertyPath;

/// The longest string in a key of a version 1 container, in bytes of UTF-8.
pub const KEY_BYTES_MAX_V1: usize = 101;
/// The longest string in a key of a version 2 container, in bytes of UTF-8.
pub const KEY_BYTES_MAX_V2: usize = 2_048;

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

    const fn key_bytes_max(self) -> usize {
        match self {
            Self::V1 => KEY_BYTES_MAX_V1,
            Self::V2 => KEY_BYTES_MAX_V2,
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

    /// The key of an item. A missing property is undefined; in a system-key container it makes the empty key.
    pub fn extract(&self, item: &Map<String, Value>) -> Result<PartitionKey> {
        let components = self.paths.iter().map(|path| match path.get(item) {
            None => Ok(KeyComponent::Undefined),
            Some(value) => KeyComponent::from_json(value).ok_or_else(|| {
                Error::bad_request(format!(
                    "the partition key property '{path}' holds {}; a key is a string, a number, a boolean or null",
                    if value.is_array() { "an array" } else { "an object" }
                ))
            }),
        });
        self.checked(PartitionKey(components.collect::<Result<_>>()?))
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
        let limit = self.version.key_bytes_max();
        for component in &key.0 {
            if let KeyComponent::String(text) = component
                && text.len() > limit
            {
                return Err(Error::bad_request(format!(
                    "the partition key value '{}…' has {} bytes; this container takes {limit} at the most",
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
mod tests {
    use super::*;

    fn definition(value: Value) -> PartitionKeyDefinition {
        PartitionKeyDefinition::from_json(&value).unwrap()
    }

    fn key(header: &str) -> PartitionKey {
        PartitionKey::parse_header(header).unwrap()
    }

    #[test]
    fn negative_zero_is_zero() {
        let hash = definition(json!({"paths": ["/n"], "version": 2}));
        let item = json!({"n": -0.0});
        assert_eq!(
            hash.epk(&hash.extract(item.as_object().unwrap()).unwrap()),
            hash.epk(&key("[0]"))
        );
    }

    #[test]
    fn definitions_are_read_with_their_defaults() {
        let cases = [
            (
                json!({"paths": ["/pk"]}),
                json!({"paths": ["/pk"], "kind": "Hash", "version": 1}),
            ),
            (
                json!({"paths": ["/pk"], "kind": null, "version": null}),
                json!({"paths": ["/pk"], "kind": "Hash", "version": 1}),
            ),
            (
                json!({"paths": ["/a/b"], "kind": "hash", "version": 2}),
                json!({"paths": ["/a/b"], "kind": "Hash", "version": 2}),
            ),
            (
                json!({"paths": ["/a", "/b", "/c"], "kind": "MultiHash", "version": 2}),
                json!({"paths": ["/a", "/b", "/c"], "kind": "MultiHash", "version": 2}),
            ),
            (
                json!({"paths": ["/a"], "kind": "MultiHash"}),
                json!({"paths": ["/a"], "kind": "MultiHash", "version": 2}),
            ),
            (
                json!({"paths": ["/_partitionKey"], "systemKey": true, "version": 2}),
                json!({"paths": ["/_partitionKey"], "kind": "Hash", "version": 2, "systemKey": true}),
            ),
        ];
        for (given, echoed) in cases {
            let definition = definition(given);
            assert_eq!(definition.to_json(), echoed);
            let bytes = rmp_serde::to_vec(&definition).unwrap();
            assert_eq!(
                rmp_serde::from_slice::<PartitionKeyDefinition>(&bytes).unwrap(),
                definition
            );
        }
    }

    #[test]
    fn bad_definitions_are_refused() {
        let cases = [
            (json!("/pk"), "must be an object"),
            (json!({}), "'paths' must be a list"),
            (json!({"paths": []}), "'paths' must be a list"),
            (json!({"paths": "/pk"}), "'paths' must be a list"),
            (json!({"paths": [1]}), "a path must be a string"),
            (
                json!({"paths": ["pk"]}),
                "component definition path 'pk' could not be accepted",
            ),
            (
                json!({"paths": ["/pk/"]}),
                "not contain a trailing slash or wildcard",
            ),
            (
                json!({"paths": ["/a", "/b"]}),
                "Too many partition key paths",
            ),
            (
                json!({"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash"}),
                "Too many partition key paths",
            ),
            (
                json!({"paths": ["/a", "/\"a\""], "kind": "MultiHash"}),
                "named only once",
            ),
            (
                json!({"paths": ["/a"], "kind": "MultiHash", "version": 1}),
                "needs 'version' 2",
            ),
            (json!({"paths": ["/a"], "kind": "Range"}), "\"Range\""),
            (json!({"paths": ["/a"], "version": 3}), "must be 1 or 2"),
            (json!({"paths": ["/a"], "version": "2"}), "must be 1 or 2"),
            (json!({"paths": ["/a"], "systemKey": 1}), "'systemKey'"),
        ];
        for (given, fragment) in cases {
            let error = PartitionKeyDefinition::from_json(&given).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.message.contains(fragment), "{given}: {error}");
        }
    }

    #[test]
    fn keys_are_extracted_from_items() {
        let hash = json!({"paths": ["/a/b"], "version": 2});
        let multi = json!({"paths": ["/t", "/u", "/v"], "kind": "MultiHash"});
        let system = json!({"paths": ["/_partitionKey"], "systemKey": true});
        let cases = [
            (&hash, json!({"a": {"b": "x"}}), "[\"x\"]"),
            (&hash, json!({"a": {"b": 5}}), "[5]"),
            (&hash, json!({"a": {"b": null}}), "[null]"),
            (&hash, json!({"a": {"b": false}}), "[false]"),
            (&hash, json!({"a": {}}), "[{}]"),
            (&hash, json!({"a": "b"}), "[{}]"),
            (&multi, json!({"t": "T", "v": 1}), "[\"T\",{},1]"),
            (&system, json!({"_partitionKey": "x"}), "[\"x\"]"),
            (&system, json!({}), "[]"),
        ];
        for (given, item, expected) in cases {
            let extracted = definition(given.clone())
                .extract(item.as_object().unwrap())
                .unwrap();
            assert_eq!(extracted, key(expected), "{item}");
        }
        for (value, named) in [(json!({}), "an object"), (json!([1]), "an array")] {
            let item = json!({"a": {"b": value}});
            let error = definition(hash.clone())
                .extract(item.as_object().unwrap())
                .unwrap_err();
            assert_eq!((error.status(), error.substatus()), (400, 0));
            assert!(
                error.message.contains("'/a/b'") && error.message.contains(named),
                "{error}"
            );
        }
    }

    #[test]
    fn keys_have_a_longest_length() {
        for (version, limit) in [(1, KEY_BYTES_MAX_V1), (2, KEY_BYTES_MAX_V2)] {
            let definition = definition(json!({"paths": ["/pk"], "version": version}));
            let item =
                |length| Map::from_iter([("pk".to_owned(), Value::from("k".repeat(length)))]);
            let longest = definition.extract(&item(limit)).unwrap();
            assert_eq!(definition.complete(longest.clone()).unwrap(), longest);
            let error = definition.extract(&item(limit + 1)).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(
                error.message.contains(&limit.to_string()) && error.message.len() < 300,
                "{error}"
            );
            assert!(
                definition
                    .complete(PartitionKey(vec![KeyComponent::String(
                        "k".repeat(limit + 1)
                    )]))
                    .is_err()
            );
        }
    }

    #[test]
    fn point_operations_need_all_levels() {
        let hash = definition(json!({"paths": ["/pk"]}));
        let multi = definition(json!({"paths": ["/t", "/u"], "kind": "MultiHash"}));
        let system = definition(json!({"paths": ["/_partitionKey"], "systemKey": true}));
        for (definition, header) in [
            (&hash, "[1]"),
            (&hash, "[{}]"),
            (&multi, "[1,2]"),
            (&system, "[]"),
        ] {
            assert_eq!(definition.complete(key(header)).unwrap(), key(header));
        }
        assert_eq!(system.complete(key("[{}]")).unwrap(), key("[]"));
        for (definition, header) in [
            (&hash, "[]"),
            (&hash, "[1,2]"),
            (&multi, "[1]"),
            (&multi, "[1,2,3]"),
        ] {
            let error = definition.complete(key(header)).unwrap_err();
            assert_eq!((error.status(), error.substatus()), (400, 1001), "{header}");
        }
    }

    #[test]
    fn hierarchical_keys_hash_level_by_level() {
        let multi = definition(json!({"paths": ["/t", "/u", "/v"], "kind": "MultiHash"}));
        let single = definition(json!({"paths": ["/t"], "version": 2}));
        let hash = |header: &str| single.epk(&key(header)).to_hex();
        let t = "017A5127EDEAEAFD8E3C9E8C0081CB34";
        let cases = [
            (r#"["T"]"#, t.to_owned()),
            (
                r#"["T","U"]"#,
                format!("{t}179BE6732892B835A99D02FFA3F050F5"),
            ),
            (
                r#"["tenant",1,true]"#,
                format!(
                    "3B67F777541374F849FC7793DE5DF915{}{}",
                    hash("[1]"),
                    hash("[true]")
                ),
            ),
            (
                r#"["partitionKey",null,false]"#,
                format!(
                    "013AEFCF77FA271571CF665A58C933F1{}{}",
                    hash("[null]"),
                    hash("[false]")
                ),
            ),
            ("[]", String::new()),
        ];
        for (header, expected) in cases {
            assert_eq!(multi.epk(&key(header)).to_hex(), expected, "{header}");
        }
    }

    #[test]
    fn prefixes_cover_their_keys() {
        let multi = definition(json!({"paths": ["/t", "/u"], "kind": "MultiHash"}));
        let (min, max) = multi.prefix_range(&key(r#"["T"]"#));
        assert_eq!(min.to_hex(), "017A5127EDEAEAFD8E3C9E8C0081CB34");
        assert_eq!(max.to_hex(), "017A5127EDEAEAFD8E3C9E8C0081CB34FF");
        let inside = multi.epk(&key(r#"["T","U"]"#));
        assert!(min <= inside && inside < max);
        assert_eq!(multi.prefix_range(&key("[]")), (Epk::min(), Epk::max()));
        assert_eq!(
            multi.prefix_range(&key(r#"["T","U"]"#)),
            (inside.clone(), inside.successor())
        );

        let v1 = definition(json!({"paths": ["/pk"]}));
        let (min, max) = v1.prefix_range(&key(r#"["a"]"#));
        assert_eq!(
            (min.to_hex(), max.to_hex()),
            ("05C1D78593652C086200".into(), "05C1D78593652C086201".into())
        );
    }

    #[test]
    fn definitions_are_compared_by_meaning() {
        let stored = definition(json!({"paths": ["/pk"], "kind": "Hash", "version": 1}));
        for (other, same) in [
            (json!({"paths": ["/pk"]}), true),
            (json!({"paths": ["/\"pk\""], "systemKey": false}), true),
            (json!({"paths": ["/pk"], "version": 2}), false),
            (json!({"paths": ["/other"]}), false),
            (json!({"paths": ["/pk"], "kind": "MultiHash"}), false),
        ] {
            assert_eq!(
                stored.same_definition(&definition(other.clone())),
                same,
                "{other}"
            );
        }
    }
}
