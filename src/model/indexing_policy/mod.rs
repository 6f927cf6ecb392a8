//! Indexing policies: which paths of the items of a container are indexed, and when.

mod entries;
mod path;
mod path_key;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use entries::{
    BoundingBox, COMPOSITE_PATHS_MAX, COMPOSITE_PATHS_MIN, CompositePath, Order, SpatialIndex,
    SpatialType,
};
pub use path::{IndexPath, Segment, Tail};
pub use path_key::PathKey;

use super::checks::{array_or_empty, expect_object, expect_text, invalid, present, text_of};
use super::error::{Error, Result};
use super::path::PropertyPath;

/// The most included paths, and the most excluded ones.
pub const INDEX_PATHS_MAX: usize = 1_500;
/// The most composite indexes of a container.
pub const COMPOSITE_INDEXES_MAX: usize = 100;
/// The most spatial, vector or full-text indexes of a container, of each kind.
pub const SPECIAL_INDEXES_MAX: usize = 100;

/// When index entries are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IndexingMode {
    /// With the item, in the same batch.
    #[default]
    Consistent,
    /// After the item, when the shard is idle.
    Lazy,
    /// Never.
    None,
}

impl IndexingMode {
    fn from_json(value: &Value) -> Result<Self> {
        match expect_text("indexingMode", value)? {
            text if text.eq_ignore_ascii_case("consistent") => Ok(Self::Consistent),
            text if text.eq_ignore_ascii_case("lazy") => Ok(Self::Lazy),
            text if text.eq_ignore_ascii_case("none") => Ok(Self::None),
            _ => Err(invalid(
                "indexingMode",
                value,
                "'consistent', 'lazy' or 'none'",
            )),
        }
    }

    /// Lower case, as clients compare it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Consistent => "consistent",
            Self::Lazy => "lazy",
            Self::None => "none",
        }
    }
}

/// A validated indexing policy with its defaults filled in.
///
/// Invariant: unless the mode is none, the root is in exactly one of `included` and `excluded`; no path is in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexingPolicy {
    pub mode: IndexingMode,
    pub automatic: bool,
    pub included: Vec<IndexPath>,
    pub excluded: Vec<IndexPath>,
    pub composite: Vec<Vec<CompositePath>>,
    pub spatial: Vec<SpatialIndex>,
    /// As sent, with path and type checked; the numbers are checked against the container's embeddings.
    pub vector: Vec<Map<String, Value>>,
    pub full_text: Vec<PropertyPath>,
    /// The container's computed properties that the policy names; no others are indexed. Not part of a policy as clients see it.
    #[serde(default)]
    pub computed: Vec<ComputedProperty>,
    /// The key under which the container's paths are hashed; none for containers that were made before there were
    /// keys. Not part of a policy as clients see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_key: Option<PathKey>,
}

/// A property of items that a query works out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComputedProperty {
    pub name: String,
    pub query: String,
}

impl Default for IndexingPolicy {
    fn default() -> Self {
        Self {
            mode: IndexingMode::Consistent,
            automatic: true,
            included: vec![IndexPath::root()],
            excluded: vec![IndexPath::etag()],
            composite: Vec::new(),
            spatial: Vec::new(),
            vector: Vec::new(),
            full_text: Vec::new(),
            computed: Vec::new(),
            path_key: None,
        }
    }
}

impl IndexingPolicy {
    /// From the `indexingPolicy` of a container; absent and null give the default policy.
    ///
    /// The old `indexes` of a path (kind, data type, precision) are dropped: there is one kind of index.
    pub fn from_json(value: Option<&Value>) -> Result<Self> {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return Ok(Self::default());
        };
        let object = expect_object("indexingPolicy", value)?;
        let mode = match present(object, "indexingMode") {
            Some(value) => IndexingMode::from_json(value)?,
            None => IndexingMode::default(),
        };
        let automatic = match present(object, "automatic") {
            Some(value) => value
                .as_bool()
                .ok_or_else(|| invalid("automatic", value, "true or false"))?,
            None => true,
        };
        let included = index_paths(object, "includedPaths")?;
        let excluded = index_paths(object, "excludedPaths")?;
        let out: HashSet<&IndexPath> = excluded.iter().collect();
        if let Some(path) = included.iter().find(|path| out.contains(path)) {
            return Err(Error::bad_request(format!(
                "the indexing path '{path}' is in both 'includedPaths' and 'excludedPaths'"
            )));
        }
        let mut policy = Self {
            mode,
            // Without an index there is nothing to do automatically; clients leave the default standing.
            automatic: automatic && mode != IndexingMode::None,
            included,
            excluded,
            composite: composite_indexes(object)?,
            spatial: spatial_indexes(object)?,
            vector: vector_indexes(object)?,
            full_text: full_text_indexes(object)?,
            computed: Vec::new(),
            path_key: None,
        };
        if mode != IndexingMode::None {
            policy.complete_paths()?;
        }
        Ok(policy)
    }

    /// Fills in what the client may leave out, and refuses a policy that leaves open what to do with other paths.
    fn complete_paths(&mut self) -> Result<()> {
        let etag = IndexPath::etag();
        let nothing_said =
            self.included.is_empty() && self.excluded.iter().all(|path| *path == etag);
        if nothing_said {
            self.included.push(IndexPath::root());
        }
        if !self
            .included
            .iter()
            .chain(&self.excluded)
            .any(IndexPath::is_root)
        {
            return Err(Error::bad_request(
                "The special mandatory indexing path \"/\" is not provided in any of the path type sets. Please provide \
                 this path in one of the sets: add '/*' to 'includedPaths' or to 'excludedPaths'",
            ));
        }
        if !self.included.contains(&etag) && !self.excluded.contains(&etag) {
            self.excluded.push(etag);
        }
        Ok(())
    }

    /// Takes note of the computed properties that are to be indexed: those that an included path or a composite index names. The
    /// root stands for the properties that items have.
    #[must_use]
    pub fn with_computed(mut self, definitions: Option<&Value>) -> Self {
        let definitions = definitions.and_then(Value::as_array);
        let all = definitions.into_iter().flatten().filter_map(|definition| {
            let text = |name: &str| definition.get(name)?.as_str().map(str::to_owned);
            Some(ComputedProperty {
                name: text("name")?,
                query: text("query")?,
            })
        });
        self.computed = all.filter(|one| self.names(&one.name)).collect();
        self
    }

    fn names(&self, property: &str) -> bool {
        let included = self.included.iter().any(|path| {
            matches!(path.segments().first(), Some(Segment::Property(first)) if first == property)
        });
        let mut columns = self.composite.iter().flatten();
        included
            || columns.any(|column| {
                column
                    .path
                    .segments()
                    .first()
                    .is_some_and(|s| s == property)
            })
    }

    /// As the server returns it. Lists of special indexes appear when they hold something.
    pub fn to_json(&self) -> Value {
        let paths = |paths: &[IndexPath]| -> Value {
            paths
                .iter()
                .map(|path| json!({"path": path.as_str()}))
                .collect()
        };
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        put("indexingMode", self.mode.name().into());
        put("automatic", self.automatic.into());
        put("includedPaths", paths(&self.included));
        put("excludedPaths", paths(&self.excluded));
        if !self.composite.is_empty() {
            let index = |paths: &Vec<CompositePath>| -> Value {
                paths.iter().map(CompositePath::to_json).collect()
            };
            put(
                "compositeIndexes",
                self.composite.iter().map(index).collect(),
            );
        }
        if !self.spatial.is_empty() {
            put(
                "spatialIndexes",
                self.spatial.iter().map(SpatialIndex::to_json).collect(),
            );
        }
        if !self.vector.is_empty() {
            put(
                "vectorIndexes",
                self.vector.iter().cloned().map(Value::Object).collect(),
            );
        }
        if !self.full_text.is_empty() {
            let paths = self.full_text.iter();
            put(
                "fullTextIndexes",
                paths
                    .map(|path| json!({"path": path.to_string()}))
                    .collect(),
            );
        }
        Value::Object(object)
    }
}

fn index_paths(object: &Map<String, Value>, name: &str) -> Result<Vec<IndexPath>> {
    let mut seen = HashSet::new();
    let mut paths = Vec::new();
    for value in array_or_empty(object, name, INDEX_PATHS_MAX)? {
        let path = IndexPath::parse(text_of(expect_object(name, value)?, "path")?)?;
        if !seen.insert(path.clone()) {
            return Err(duplicate(&path, name));
        }
        paths.push(path);
    }
    Ok(paths)
}

fn duplicate(path: &impl std::fmt::Display, list: &str) -> Error {
    Error::bad_request(format!(
        "the indexing path '{path}' appears twice in '{list}'"
    ))
}

fn composite_indexes(object: &Map<String, Value>) -> Result<Vec<Vec<CompositePath>>> {
    let mut seen = HashSet::new();
    let mut indexes = Vec::new();
    for value in array_or_empty(object, "compositeIndexes", COMPOSITE_INDEXES_MAX)? {
        let index = entries::composite_index(value)?;
        if !seen.insert(index.clone()) {
            return Err(invalid(
                "compositeIndexes",
                value,
                "different from every other one",
            ));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

fn spatial_indexes(object: &Map<String, Value>) -> Result<Vec<SpatialIndex>> {
    let mut seen = HashSet::new();
    let mut indexes = Vec::new();
    for value in array_or_empty(object, "spatialIndexes", SPECIAL_INDEXES_MAX)? {
        let index = SpatialIndex::from_json(value)?;
        if !seen.insert(index.path.clone()) {
            return Err(duplicate(&index.path, "spatialIndexes"));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

fn vector_indexes(object: &Map<String, Value>) -> Result<Vec<Map<String, Value>>> {
    let mut seen = HashSet::new();
    let mut indexes = Vec::new();
    for value in array_or_empty(object, "vectorIndexes", SPECIAL_INDEXES_MAX)? {
        let index = entries::vector_index(value)?;
        let path = PropertyPath::parse(text_of(&index, "path")?)?;
        if !seen.insert(path.clone()) {
            return Err(duplicate(&path, "vectorIndexes"));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

fn full_text_indexes(object: &Map<String, Value>) -> Result<Vec<PropertyPath>> {
    let mut seen = HashSet::new();
    let mut indexes = Vec::new();
    let list = array_or_empty(object, "fullTextIndexes", SPECIAL_INDEXES_MAX)?;
    for (at, value) in list.iter().enumerate() {
        let path = entries::full_text_index(at, value)?;
        if !seen.insert(path.clone()) {
            return Err(duplicate(&path, "fullTextIndexes"));
        }
        indexes.push(path);
    }
    Ok(indexes)
}
