//! The routing table: the catalog as it stands, with the shards behind it. Read-only, swapped as a whole.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use bytestring::ByteString;
use serde_json::Value;

use super::{budget::Budget, session::SessionToken};
use crate::{
    index::Indexer,
    model::{
        catalog::{Catalog, Container},
        epk::EpkRange,
        error::{Error, ErrorKind, Result},
        rid::{ContainerRid, DatabaseRid},
    },
    shard::host::ShardHandle,
    sql::ComputedProperties,
    telemetry::containers::ContainerSeries,
};

#[derive(Default)]
pub struct RoutingTable {
    pub catalog: Arc<Catalog>,
    containers: HashMap<String, HashMap<String, Arc<ContainerRoute>>>,
}

/// A container and its shards.
pub struct ContainerRoute {
    pub database: String,
    pub id: String,
    pub container: Arc<Container>,
    /// Its computed properties, ready for queries.
    pub computed: ComputedProperties,
    /// The container as clients see it.
    pub json: Bytes,
    /// In key order, tiling the whole key space.
    pub shards: Vec<Arc<ShardHandle>>,
    /// Shared with the other containers that draw on the same throughput.
    pub budget: Arc<Budget>,
    /// Works out the terms of items that are written; absent where writing does not enter them.
    pub indexer: Option<Indexer>,
    /// The highest id that any of its ranges ever had.
    pub highest_range: u32,
    /// The version in its session tokens: no other container ever had it.
    pub session_version: i64,
    /// `x-ms-alt-content-path` of its items: the path by names.
    pub name_path: ByteString,
    /// `x-ms-content-path` of its items: the resource id.
    pub rid_text: ByteString,
    /// Counts its requests.
    pub series: Arc<ContainerSeries>,
}

impl RoutingTable {
    pub fn new(catalog: Arc<Catalog>, routes: Vec<Arc<ContainerRoute>>) -> Self {
        let mut containers: HashMap<String, HashMap<String, Arc<ContainerRoute>>> = HashMap::new();
        for route in routes {
            containers
                .entry(route.database.clone())
                .or_default()
                .insert(route.id.clone(), route);
        }
        Self {
            catalog,
            containers,
        }
    }

    /// Finds a container by names.
    pub fn route(&self, database: &str, id: &str) -> Option<&Arc<ContainerRoute>> {
        self.containers.get(database)?.get(id)
    }

    /// Finds a container by names, or by resource ids.
    pub fn container(&self, database: &str, id: &str) -> Result<&Arc<ContainerRoute>> {
        if let Some(route) = self.route(database, id) {
            return Ok(route);
        }
        let rid = ContainerRid::parse(id);
        let by_rid = rid.and_then(|rid| {
            self.containers
                .values()
                .flat_map(HashMap::values)
                .find(|route| route.container.rid == rid)
        });
        by_rid.ok_or_else(|| {
            Error::new(
                ErrorKind::OwnerNotFound,
                format!("Owner resource does not exist: there is no container '{database}/{id}'"),
            )
        })
    }

    /// The name of a database that is addressed by name or by resource id.
    pub fn database_name<'a>(&'a self, addressed: &'a str) -> &'a str {
        if self.catalog.databases.contains_key(addressed) {
            return addressed;
        }
        let Some(rid) = DatabaseRid::parse(addressed) else {
            return addressed;
        };
        self.catalog
            .databases
            .iter()
            .find(|(_, database)| database.rid == rid)
            .map_or(addressed, |(name, _)| name)
    }

    pub fn routes(&self) -> impl Iterator<Item = &Arc<ContainerRoute>> {
        self.containers.values().flat_map(HashMap::values)
    }
}

/// The computed properties of a container, from that property of its definition.
pub fn computed_properties(definitions: Option<&Value>) -> Result<ComputedProperties> {
    let definitions = definitions.and_then(Value::as_array).into_iter().flatten();
    ComputedProperties::parse(definitions.filter_map(|definition| {
        let name = definition.get("name").and_then(Value::as_str)?;
        Some((name, definition.get("query").and_then(Value::as_str)?))
    }))
}

impl ContainerRoute {
    /// Returns whether it was made of these very parts.
    pub fn is_of(
        &self,
        container: &Arc<Container>,
        shards: &[Arc<ShardHandle>],
        budget: &Arc<Budget>,
    ) -> bool {
        let same_shards = self.shards.len() == shards.len()
            && self
                .shards
                .iter()
                .zip(shards)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        same_shards && Arc::ptr_eq(&self.container, container) && Arc::ptr_eq(&self.budget, budget)
    }

    /// The shard that owns a key.
    pub fn shard_of(&self, epk: &[u8]) -> Result<&Arc<ShardHandle>> {
        let after = self
            .shards
            .partition_point(|shard| *shard.facts.range.min <= *epk);
        after
            .checked_sub(1)
            .and_then(|index| self.shards.get(index))
            .ok_or_else(|| {
                Error::internal(format!(
                    "no partition key range of '{}' owns the key",
                    self.name_path
                ))
            })
    }

    /// Refuses to answer from a range that is behind what a client has seen.
    pub fn check_session(&self, session: &SessionToken, range_id: u32, lsn: u64) -> Result<()> {
        session.check_known(self.session_version, self.highest_range)?;
        session.check(range_id, self.session_version, lsn)
    }

    /// The keys of a range that was split.
    pub fn keys_of_split(&self, range_id: &str) -> Option<EpkRange> {
        let number: u32 = range_id.parse().ok()?;
        let is_part = |shard: &&Arc<ShardHandle>| shard.facts.parents.contains(&number);
        let first = self.shards.iter().find(is_part)?;
        let last = self.shards.iter().rfind(is_part)?;
        let (min, max) = (&first.facts.range.min, &last.facts.range.max);
        Some(EpkRange::new(min.clone(), max.clone()))
    }

    pub fn shard_by_id(&self, range_id: &str) -> Result<&Arc<ShardHandle>> {
        let number: Option<u32> = range_id.parse().ok();
        self.shards
            .iter()
            .find(|shard| Some(shard.facts.range_id) == number)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::RangeGone,
                    format!(
                        "there is no partition key range '{range_id}' in '{}'",
                        self.name_path
                    ),
                )
            })
    }
}
