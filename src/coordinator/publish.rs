//! Makes the routing table of a catalog and of the shards that are there.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use tracing::warn;

use super::Coordinator;
use crate::{
    index::Indexer,
    model::{
        catalog::Container,
        container::{Owner, with_system_properties},
    },
    router::{ContainerRoute, RoutingTable, budget::Budget, table::computed_properties},
    shard::host::ShardHandle,
    sql::ComputedProperties,
    telemetry::containers::ContainerSeries,
};

impl Coordinator {
    /// Puts the routing table in force. Routes of containers that have not changed stay.
    pub(super) fn publish(&mut self) {
        let catalog = Arc::clone(&self.catalog);
        let before = self.table.load_full();
        let offers = match self.policy.enforce_throughput {
            true => catalog.offers_by_resource(),
            false => HashMap::new(),
        };
        let mut routes = Vec::new();
        for (name, database) in &catalog.databases {
            for (id, container) in &database.containers {
                let Some(shards) = self.shards.get(&container.rid) else {
                    continue;
                };
                let budget = self.budgets.of(&offers, database.rid, container.rid);
                let known = before.route(name, id);
                let known = known.filter(|known| known.is_of(container, shards, &budget));
                routes.push(match known {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(route(name, id, container, shards, budget)),
                });
            }
        }
        self.table
            .store(Arc::new(RoutingTable::new(Arc::clone(&catalog), routes)));
        drop(before);
        self.budgets.retain_shared();
    }
}

/// The way to a container's shards, and what its requests need.
fn route(
    database: &str,
    id: &str,
    container: &Arc<Container>,
    shards: &[Arc<ShardHandle>],
    budget: Arc<Budget>,
) -> ContainerRoute {
    ContainerRoute {
        database: database.to_owned(),
        id: id.to_owned(),
        json: container_json(container).into(),
        shards: shards.to_vec(),
        budget,
        highest_range: container.highest_range(),
        // Unique, and small enough for clients that keep numbers as doubles.
        session_version: i64::from(container.rid.database.0) << 20
            | i64::from(container.rid.ordinal & 0xf_ffff),
        name_path: format!("dbs/{database}/colls/{id}").into(),
        rid_text: container.rid.to_text().into(),
        series: ContainerSeries::of(database, id),
        indexer: Indexer::for_writers(&container.definition.indexing_policy),
        computed: computed(container),
        container: Arc::clone(container),
    }
}

/// Definitions were checked when the container was made; one that an older node let through computes nothing.
fn computed(container: &Container) -> ComputedProperties {
    let definitions = container.definition.other.get("computedProperties");
    computed_properties(definitions).unwrap_or_else(|failure| {
        warn!(container = %container.rid, %failure, "computed properties are not usable");
        ComputedProperties::default()
    })
}

/// The container as clients see it.
fn container_json(container: &Container) -> Vec<u8> {
    let map = with_system_properties(
        Owner::Container,
        container.definition.to_json(),
        &container.rid.to_text(),
        &container.rid.self_link(),
        &container.etag,
        container.ts,
    );
    Value::Object(map).to_string().into_bytes()
}
