//! Containers.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    catalog::{list, object, throughput, unmodified},
    query,
};
use crate::{
    coordinator::actor::{CreateContainer, DeleteContainer, ReplaceContainer},
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload},
    },
    model::{charge, container::ContainerDefinition, error::Result, json},
    router::{ContainerRoute, RoutingTable, table::computed_properties},
    shard::progress::index_progress,
};

/// What the quota headers say an item may have, in KB.
const ITEM_KB_MAX: u64 = 2 * 1024;
/// What they say a container may have, in KB: the figure that clients know; nothing enforces it.
const CONTAINER_KB_MAX: u64 = 10 * 1024 * 1024;

/// The database's resource id and its containers.
fn containers(table: &RoutingTable, db: &str) -> Result<(String, Vec<Value>)> {
    let name = table.database_name(db);
    let database = table.catalog.owner(name)?;
    let mut resources = Vec::with_capacity(database.containers.len());
    for id in database.containers.keys() {
        let route = table.container(name, id)?;
        resources.push(json::parse_value(&route.json)?);
    }
    Ok((database.rid.to_text(), resources))
}

pub fn list_all(call: &Call<'_>, db: &str) -> Result<Response> {
    let (rid, resources) = containers(&call.table(), db)?;
    list(call, &rid, "DocumentCollections", resources)
}

pub async fn query_all(call: &Call<'_>, db: &str, payload: Payload) -> Result<Response> {
    let (rid, resources) = containers(&call.table(), db)?;
    query::over_feed(call, payload, &rid, "DocumentCollections", resources).await
}

pub async fn create(call: &Call<'_>, db: &str, payload: Payload) -> Result<Response> {
    let definition = ContainerDefinition::from_json(&object(call, payload).await?)?;
    computed_properties(definition.other.get("computedProperties"))?;
    let id = definition.id.clone();
    let throughput = throughput(call)?;
    let database = call.table().database_name(db).to_owned();
    let request = CreateContainer {
        database,
        definition,
        throughput,
    };
    call.change_catalog(request).await?;
    response(call, db, &id, 201)
}

pub fn read(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    response(call, db, coll, 200)
}

fn response(call: &Call<'_>, db: &str, coll: &str, status: u16) -> Result<Response> {
    let table = call.table();
    let database = table.database_name(db);
    // A missing container is the addressed resource itself here, not the owner of one.
    let route = table.container(database, coll).map_err(|error| {
        match table.catalog.container(database, coll) {
            Err(missing) => missing,
            Ok(_) => error,
        }
    })?;
    let container = &route.container;
    if let Some(unmodified) = unmodified(call, &container.etag) {
        return Ok(unmodified);
    }
    let charge = if call.head.verb() == "GET" {
        charge::CATALOG_READ
    } else {
        charge::CATALOG_WRITE
    };
    let body = if call.flag(Header::PopulatePartitionStatistics) {
        with_statistics(route)?
    } else {
        route.json.clone()
    };
    let mut response = Response::new(status, body, charge);
    response
        .header(Header::Etag, container.etag.clone())
        .header(Header::AltContentPath, format!("dbs/{}", route.database))
        .header(Header::ContentPath, container.rid.database.to_text());
    if call.flag(Header::PopulateQuotaInfo) {
        add_quota(&mut response, route);
    }
    Ok(response)
}

/// The container with the size of each of its ranges.
fn with_statistics(route: &ContainerRoute) -> Result<Bytes> {
    let mut container = json::parse_object(&route.json)?;
    let mut statistics = Vec::with_capacity(route.shards.len());
    // Those that this node has.
    for shard in route.shards.iter().filter(|one| one.remote().is_none()) {
        let state = shard.view()?.state();
        statistics.push(json!({
            "id": shard.facts.range_id.to_string(),
            "sizeInKB": state.bytes.div_ceil(1024),
            "documentCount": state.documents,
            "partitionKeys": [],
        }));
    }
    container.insert("statistics".to_owned(), Value::Array(statistics));
    Ok(Value::Object(container).to_string().into())
}

fn add_quota(response: &mut Response, route: &ContainerRoute) {
    let states = route
        .shards
        .iter()
        .filter_map(|shard| shard.view().ok())
        .map(|view| view.state());
    let (documents, bytes) = states.fold((0, 0), |(documents, bytes), state| {
        (documents + state.documents, bytes + state.bytes)
    });
    let kilobytes = bytes.div_ceil(1024);
    let usage = format!(
        "documentSize=0;documentsSize={kilobytes};documentsCount={documents};collectionSize={kilobytes};"
    );
    let quota = format!(
        "documentSize={ITEM_KB_MAX};documentsSize=-1;documentsCount=-1;collectionSize={CONTAINER_KB_MAX};"
    );
    let (progress, lazy) = index_progress(&route.shards);
    response
        .header(Header::ResourceQuota, quota)
        .header(Header::ResourceUsage, usage)
        .number(Header::IndexTransformationProgress, progress.into());
    if let Some(lazy) = lazy {
        response.number(Header::LazyIndexingProgress, lazy.into());
    }
}

pub async fn replace(call: &Call<'_>, db: &str, coll: &str, payload: Payload) -> Result<Response> {
    let body = object(call, payload).await?;
    computed_properties(body.get("computedProperties"))?;
    let (database, id) = names(call, db, coll);
    let request = ReplaceContainer {
        database,
        id,
        body,
        if_match: call.if_match(),
    };
    call.change_catalog(request).await?;
    response(call, db, coll, 200)
}

pub async fn delete(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let (database, id) = names(call, db, coll);
    let request = DeleteContainer {
        database,
        id,
        if_match: call.if_match(),
    };
    call.change_catalog(request).await?;
    Ok(Response::empty(204, charge::CATALOG_WRITE))
}

/// The names of a container that may be addressed by resource ids.
fn names(call: &Call<'_>, db: &str, coll: &str) -> (String, String) {
    let table = call.table();
    match table.container(db, coll) {
        Ok(route) => (route.database.clone(), route.id.clone()),
        Err(_) => (table.database_name(db).to_owned(), coll.to_owned()),
    }
}
