//! Container definitions: what a client may say about a container, validated and with defaults filled in.

mod full_text;
mod policies;
mod system;
#[cfg(test)]
mod tests;
mod unique_keys;
mod vector;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use full_text::FULL_TEXT_PATHS_MAX;
pub use policies::{
    CHANGE_FEED_RETENTION_MINUTES_MAX, COMPUTED_PROPERTIES_MAX, COMPUTED_QUERY_BYTES_MAX,
    ENCRYPTED_PATHS_MAX,
};
pub use system::{Owner, with_system_properties};
pub use unique_keys::{UNIQUE_KEY_PATHS_MAX, UNIQUE_KEYS_MAX};
pub use vector::{
    FLAT_INDEX_DIMENSIONS_MAX, QUANTIZATION_BYTES_MAX, SEARCH_LIST_MAX, SEARCH_LIST_MIN,
    VECTOR_DIMENSIONS_MAX, VECTOR_EMBEDDINGS_MAX,
};

use self::policies::{POLICIES, Replacement};
use super::checks::{expect_object, missing, present, shown_text, text_of};
use super::error::{Error, ErrorKind, Result};
use super::indexing_policy::{IndexingMode, IndexingPolicy};
use super::names::check_resource_name;
use super::partition_key::PartitionKeyDefinition;
use super::path::PropertyPath;
use super::ttl::DefaultTtl;

/// The properties of a definition that have a field of their own here.
const OWN_PROPERTIES: [&str; 5] = [
    "id",
    "partitionKey",
    "indexingPolicy",
    "uniqueKeyPolicy",
    "defaultTtl",
];

/// A validated container definition.
///
/// Invariant: with `indexing_policy.mode` none, `default_ttl` is off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerDefinition {
    pub id: String,
    pub partition_key: PartitionKeyDefinition,
    pub default_ttl: DefaultTtl,
    pub indexing_policy: IndexingPolicy,
    pub unique_keys: Vec<Vec<PropertyPath>>,
    /// Policies that are stored and returned: see `policies.rs`.
    pub other: Map<String, Value>,
}

impl ContainerDefinition {
    /// From the body of a create.
    ///
    /// Unknown properties, the system's among them, are dropped: clients send back what they read, and newer ones
    /// send what is not known yet. One that differs from a known name in case only is a mistake, and refused.
    pub fn from_json(body: &Map<String, Value>) -> Result<Self> {
        check_spelling(body)?;
        let id = text_of(body, "id")?;
        check_resource_name("container", id)?;
        let partition_key = present(body, "partitionKey").ok_or_else(|| missing("partitionKey"))?;
        let unique_keys = match present(body, "uniqueKeyPolicy") {
            Some(policy) => unique_keys::from_json(policy)?,
            None => Vec::new(),
        };
        let policy = IndexingPolicy::from_json(body.get("indexingPolicy"))?;
        let definition = Self {
            id: id.to_owned(),
            partition_key: PartitionKeyDefinition::from_json(partition_key)?,
            default_ttl: DefaultTtl::from_json(body.get("defaultTtl"))?,
            indexing_policy: policy.with_computed(body.get("computedProperties")),
            unique_keys,
            other: policies::read(body)?,
        };
        definition.check_together()?;
        Ok(definition)
    }

    /// The definition after a PUT, which carries the whole definition: what it leaves out is reset.
    ///
    /// Partition key, unique keys and the policies that are set at creation stay when left out and cannot change.
    pub fn replaced_by(&self, body: &Map<String, Value>) -> Result<Self> {
        check_spelling(body)?;
        let id = text_of(body, "id")?;
        if id != self.id {
            return Err(Error::bad_request(format!(
                "the id '{}' in the body is not that of the container '{}'",
                shown_text(id),
                self.id
            )));
        }
        self.check_partition_key(body)?;
        self.check_unique_keys(body)?;
        let policy = IndexingPolicy::from_json(body.get("indexingPolicy"))?;
        let replacement = Self {
            id: self.id.clone(),
            partition_key: self.partition_key.clone(),
            default_ttl: DefaultTtl::from_json(body.get("defaultTtl"))?,
            indexing_policy: IndexingPolicy {
                path_key: self.indexing_policy.path_key,
                ..policy.with_computed(body.get("computedProperties"))
            },
            unique_keys: self.unique_keys.clone(),
            other: self.replaced_policies(body)?,
        };
        replacement.check_together()?;
        vector::check_replacement(self.vectors(), replacement.vectors())?;
        Ok(replacement)
    }

    /// As the server returns it, without the system properties.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut json = Map::new();
        json.insert("id".to_owned(), self.id.as_str().into());
        json.insert("indexingPolicy".to_owned(), self.indexing_policy.to_json());
        json.insert("partitionKey".to_owned(), self.partition_key.to_json());
        json.insert(
            "uniqueKeyPolicy".to_owned(),
            unique_keys::to_json(&self.unique_keys),
        );
        json.extend(self.other.clone());
        if let Some(seconds) = self.default_ttl.to_json() {
            json.insert("defaultTtl".to_owned(), seconds);
        }
        json
    }

    /// What no property says alone.
    fn check_together(&self) -> Result<()> {
        let ttl_on = self.default_ttl != DefaultTtl::Off;
        if ttl_on && self.indexing_policy.mode == IndexingMode::None {
            let seconds = self.default_ttl.to_json().unwrap_or_default();
            return Err(Error::bad_request(format!(
                "Indexing mode value cannot be 'none' when 'defaultTtl' is set (to {seconds}): time to live needs an \
                 index; leave 'defaultTtl' out or choose 'consistent' or 'lazy'"
            )));
        }
        if let Some(path) = self.other.get("ttlPropertyPath")
            && !ttl_on
        {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: 'ttlPropertyPath' {path} needs a 'defaultTtl'"
            )));
        }
        let geometry = self
            .other
            .get("geospatialConfig")
            .and_then(|config| config.get("type"));
        if geometry.and_then(Value::as_str) == Some("Geometry")
            && let Some(index) = self
                .indexing_policy
                .spatial
                .iter()
                .find(|i| i.bounding_box.is_none())
        {
            return Err(Error::bad_request(format!(
                "the spatial index on '{}' needs a 'boundingBox' because 'geospatialConfig' is 'Geometry'",
                index.path
            )));
        }
        let (indexes, embeddings) = self.vectors();
        vector::check_indexes(indexes, embeddings)?;
        full_text::check_indexes(
            &self.indexing_policy.full_text,
            self.other.get("fullTextPolicy"),
        )
    }

    fn vectors(&self) -> (&[Map<String, Value>], Option<&Value>) {
        (
            &self.indexing_policy.vector,
            self.other.get("vectorEmbeddingPolicy"),
        )
    }

    /// Clients send back the partition key that they hold, with or without `kind` and `version`.
    fn check_partition_key(&self, body: &Map<String, Value>) -> Result<()> {
        let Some(value) = present(body, "partitionKey") else {
            return Ok(());
        };
        let mut sent = expect_object("partitionKey", value)?.clone();
        let stored = self.partition_key.to_json();
        for name in ["kind", "version"] {
            if present(&sent, name).is_none()
                && let Some(known) = stored.get(name)
            {
                sent.insert(name.to_owned(), known.clone());
            }
        }
        let sent = PartitionKeyDefinition::from_json(&Value::Object(sent))?;
        if sent.same_definition(&self.partition_key) {
            return Ok(());
        }
        Err(Error::bad_request(format!(
            "the partition key of the container '{}' cannot be changed from {} to {}",
            self.id,
            shown_text(&stored.to_string()),
            shown_text(&sent.to_json().to_string())
        )))
    }

    fn check_unique_keys(&self, body: &Map<String, Value>) -> Result<()> {
        let Some(value) = present(body, "uniqueKeyPolicy") else {
            return Ok(());
        };
        let sent = unique_keys::from_json(value)?;
        if unique_keys::same(&sent, &self.unique_keys) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Forbidden,
            format!(
                "the unique keys of the container '{}' cannot be changed to {}",
                self.id,
                shown_text(&value.to_string())
            ),
        ))
    }

    fn replaced_policies(&self, body: &Map<String, Value>) -> Result<Map<String, Value>> {
        let mut replaced = policies::read(body)?;
        for (name, _, replacement) in POLICIES {
            if replacement == Replacement::Free {
                continue;
            }
            let stored = self.other.get(name);
            if present(body, name).is_some() && replaced.get(name) != stored {
                return Err(Error::bad_request(format!(
                    "'{name}' of the container '{}' is set when it is created and cannot be changed",
                    self.id
                )));
            }
            if let Some(stored) = stored {
                replaced.insert(name.to_owned(), stored.clone());
            }
        }
        Ok(replaced)
    }
}

/// `defaultTTL` would silently keep items for ever.
fn check_spelling(body: &Map<String, Value>) -> Result<()> {
    let known = || {
        OWN_PROPERTIES
            .into_iter()
            .chain(POLICIES.into_iter().map(|(name, ..)| name))
    };
    for name in body.keys() {
        let near = known().find(|right| right.eq_ignore_ascii_case(name) && right != name);
        if let Some(right) = near {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: the property '{name}' is written '{right}'"
            )));
        }
    }
    Ok(())
}
