//! An indexing policy made ready: a tree of its paths that is walked together with an item.

use std::{borrow::Cow, collections::HashMap};

use serde_json::{Map, Value};

use super::path::{PathHasher, PathId};
use crate::{
    model::{
        indexing_policy::{
            ComputedProperty, IndexPath, IndexingMode, IndexingPolicy, Order, Segment, Tail,
        },
        item::is_system_property,
        path::PropertyPath,
    },
    sql::{Query, Wanted},
};

/// Says which paths of an item are indexed. The most precise path of the policy that fits decides.
#[derive(Debug)]
pub struct Indexer {
    /// The same for policies that make the same terms.
    pub fingerprint: u64,
    pub mode: IndexingMode,
    pub paths: PathHasher,
    pub(super) root: Node,
    pub(super) composites: Vec<Composite>,
    /// Where geometries are indexed; `None` for nowhere.
    geometries: Option<Node>,
    computed: Vec<Computed>,
    pub(super) ts: bool,
}

/// A composite index: one term of several values.
#[derive(Debug)]
pub struct Composite {
    pub id: PathId,
    pub columns: Vec<Column>,
}

#[derive(Debug)]
pub struct Column {
    pub id: PathId,
    pub path: PropertyPath,
    pub descending: bool,
}

impl Column {
    /// Whether this is the time of the last write, which the shard knows and the client does not.
    pub(super) fn is_ts(&self) -> bool {
        self.path.segments() == ["_ts"]
    }
}

/// A computed property that is entered like one that items have.
#[derive(Debug)]
struct Computed {
    definition: ComputedProperty,
    query: Query,
}

impl Computed {
    /// `None` when its value is not known before the item is stored, because it looks at what the server sets.
    fn new(definition: &ComputedProperty) -> Option<Self> {
        let query = Query::parse(&definition.query, &[]).ok()?;
        let is_clients = match query.wanted() {
            Wanted::All => false,
            Wanted::Only(names) => !names.iter().any(|name| is_system_property(name)),
        };
        is_clients.then(|| Self {
            definition: definition.clone(),
            query,
        })
    }

    /// A failure makes it undefined; queries that look at the item meet the same failure.
    fn value(&self, item: &Value) -> Option<Value> {
        self.query.project(item).ok()?.pop()
    }
}

/// What the policy says of one place, and of the places below.
#[derive(Debug, Default)]
pub(super) struct Node {
    properties: HashMap<String, Node>,
    elements: Option<Box<Node>>,
    /// `/?`: whether the scalar at this very place is included.
    scalar: Option<bool>,
    /// `/*`: whether everything at and below this place is.
    subtree: Option<bool>,
}

/// A place in the walk: the node, if the policy has a path that leads here or further, and what the places above say.
#[derive(Clone, Copy)]
pub(super) struct Place<'p> {
    node: Option<&'p Node>,
    inherited: bool,
}

impl<'p> Place<'p> {
    fn enter(node: Option<&'p Node>, inherited: bool) -> Self {
        Self {
            node,
            inherited: node.and_then(|node| node.subtree).unwrap_or(inherited),
        }
    }

    /// Whether a value at this place is indexed.
    pub fn is_included(self) -> bool {
        self.node
            .and_then(|node| node.scalar)
            .unwrap_or(self.inherited)
    }

    /// Whether nothing at or below this place is indexed.
    pub fn is_barren(self) -> bool {
        self.node.is_none() && !self.inherited
    }

    pub fn property(self, name: &str) -> Self {
        let node = self.node.and_then(|node| node.properties.get(name));
        Self::enter(node, self.inherited)
    }

    pub fn element(self) -> Self {
        let node = self.node.and_then(|node| node.elements.as_deref());
        Self::enter(node, self.inherited)
    }

    fn at(self, path: &[Segment]) -> Self {
        path.iter().fold(self, |place, segment| match segment {
            Segment::Property(name) => place.property(name),
            Segment::AnyElement => place.element(),
        })
    }
}

/// Properties of an item that the server adds and nobody searches for by value: a query for one walks over the items.
const NEVER_INDEXED: [&str; 5] = ["_rid", "_self", "_etag", "_attachments", "_lsn"];

impl Indexer {
    pub fn new(policy: &IndexingPolicy) -> Self {
        let paths = PathHasher::new(policy.path_key);
        let mut root = Node::default();
        let listed = policy.included.iter().map(|path| (path, true));
        for (path, included) in listed.chain(policy.excluded.iter().map(|path| (path, false))) {
            root.set(path, included);
        }
        // Every kind of geometry is taken, whatever kinds are listed: so answers do not depend on the list.
        let mut geometries = None::<Node>;
        for path in policy.spatial.iter().map(|spatial| &spatial.path) {
            geometries.get_or_insert_default().set(path, true);
        }
        let composites = policy.composite.iter().map(|columns| {
            let columns: Vec<Column> = columns
                .iter()
                .map(|column| Column {
                    id: path_id(&paths, &column.path),
                    path: column.path.clone(),
                    descending: column.order == Order::Descending,
                })
                .collect();
            let ids = columns.iter().map(|column| (column.id, column.descending));
            Composite {
                id: paths.composite(ids),
                columns,
            }
        });
        let mut indexer = Self {
            fingerprint: fingerprint(policy, &paths),
            mode: policy.mode,
            composites: composites.collect(),
            paths,
            geometries,
            computed: policy.computed.iter().filter_map(Computed::new).collect(),
            root,
            ts: false,
        };
        indexer.ts = indexer.start().property("_ts").is_included();
        indexer
    }

    /// For those who write items, if the index takes them with the writing.
    pub fn for_writers(policy: &IndexingPolicy) -> Option<Self> {
        (policy.mode == IndexingMode::Consistent).then(|| Self::new(policy))
    }

    pub(super) fn start(&self) -> Place<'_> {
        Place::enter(Some(&self.root), false)
    }

    /// Where the walk for geometries begins.
    pub(super) fn start_of_geometries(&self) -> Option<Place<'_>> {
        let root = self.geometries.as_ref()?;
        Some(Place::enter(Some(root), false))
    }

    /// Whether every scalar at this path has a term.
    pub fn includes(&self, path: &[Segment]) -> bool {
        if let Some(Segment::Property(first)) = path.first()
            && NEVER_INDEXED.contains(&first.as_str())
        {
            return false;
        }
        self.start().at(path).is_included()
    }

    /// Whether every geometry at this path has terms.
    pub fn includes_geometry(&self, path: &[Segment]) -> bool {
        self.start_of_geometries()
            .is_some_and(|start| start.at(path).is_included())
    }

    /// The query of the property of this name, if items are entered with what it computes.
    pub fn computed(&self, name: &str) -> Option<&str> {
        let mut known = self.computed.iter().map(|one| &one.definition);
        let found = known.find(|known| known.name == name)?;
        Some(&found.query)
    }

    /// The item with the computed properties that are indexed; one that the item has is its own.
    pub(super) fn with_computed<'i>(
        &self,
        item: &'i Map<String, Value>,
    ) -> Cow<'i, Map<String, Value>> {
        if self.computed.is_empty() {
            return Cow::Borrowed(item);
        }
        let whole = Value::Object(item.clone());
        let mut item = item.clone();
        for computed in &self.computed {
            let name = &computed.definition.name;
            if !item.contains_key(name)
                && let Some(value) = computed.value(&whole)
            {
                item.insert(name.clone(), value);
            }
        }
        Cow::Owned(item)
    }

    pub fn composites(&self) -> &[Composite] {
        &self.composites
    }
}

/// Of what decides the terms: paths and composites, not when they are written.
fn fingerprint(policy: &IndexingPolicy, paths: &PathHasher) -> u64 {
    let mut json = policy.to_json();
    if let Some(object) = json.as_object_mut() {
        object.remove("indexingMode");
        object.remove("automatic");
        for one in &policy.computed {
            object.insert(format!("computed {}", one.name), one.query.clone().into());
        }
    }
    paths.policy(&json.to_string())
}

fn path_id(paths: &PathHasher, path: &PropertyPath) -> PathId {
    path.segments()
        .iter()
        .fold(PathId::ROOT, |id, name| paths.property(id, name))
}

impl Node {
    /// What a path of a policy says of its place.
    fn set(&mut self, path: &IndexPath, included: bool) {
        let node = path.segments().iter().fold(self, Self::child);
        match path.tail() {
            Tail::Scalar => node.scalar = Some(included),
            Tail::Subtree => node.subtree = Some(included),
        }
    }

    fn child(&mut self, segment: &Segment) -> &mut Self {
        match segment {
            Segment::Property(name) => self.properties.entry(name.clone()).or_default(),
            Segment::AnyElement => self.elements.get_or_insert_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_most_precise_path_decides() {
        let policy = json!({
            "includedPaths": [{"path": "/*"}, {"path": "/a/b/?"}, {"path": "/x/y/*"}, {"path": "/tags/[]/name/?"}],
            "excludedPaths": [{"path": "/a/*"}, {"path": "/x/*"}, {"path": "/tags/*"}, {"path": "/s/?"}],
        });
        let indexer = Indexer::new(&IndexingPolicy::from_json(Some(&policy)).unwrap());
        for (path, included) in [
            ("/n/?", true),
            ("/n/m/?", true),
            ("/a/?", false),
            ("/a/b/?", true),
            ("/a/b/c/?", false),
            ("/a/c/?", false),
            ("/x/y/?", true),
            ("/x/y/z/?", true),
            ("/x/z/?", false),
            ("/tags/[]/name/?", true),
            ("/tags/[]/?", false),
            ("/tags/name/?", false),
            ("/s/?", false),
            ("/s/t/?", true),
            ("/id/?", true),
            ("/_ts/?", true),
            ("/_etag/?", false),
            ("/_rid/?", false),
        ] {
            let path = IndexPath::parse(path).unwrap();
            assert_eq!(indexer.includes(path.segments()), included, "{path}");
        }
    }
}
