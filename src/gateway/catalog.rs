//! Databases, containers, partition key ranges and offers.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    dispatch::Call,
    headers,
    items::gone,
    query,
    request::{self, Payload, flag, text},
    respond::{self, Response},
};
use crate::{
    coordinator::actor::{
        CreateContainer, CreateDatabase, DeleteContainer, DeleteDatabase, ReplaceContainer,
        ReplaceOffer,
    },
    model::{
        catalog::{Database, OfferRecord},
        charge,
        container::{ContainerDefinition, Owner, with_system_properties},
        error::{Error, Result},
        item::EtagCondition,
        json,
        offer::{Migration, Throughput},
        rid::{self, OfferRid},
    },
    router::{ContainerRoute, RoutingTable, table::computed_properties},
    shard::progress::index_progress,
};

/// What the quota headers say an item may have, in KB.
const ITEM_KB_MAX: u64 = 2 * 1024;
/// What they say a container may have, in KB: the figure that clients know; nothing enforces it.
const CONTAINER_KB_MAX: u64 = 10 * 1024 * 1024;

async fn object(call: &Call<'_>, payload: Payload) -> Result<Map<String, Value>> {
    request::check_content_type(call.request)?;
    json::parse_object(&request::body(payload).await?)
}

fn throughput(call: &Call<'_>) -> Result<Option<Throughput>> {
    Throughput::from_headers(
        text(call.request, &headers::OFFER_THROUGHPUT),
        text(call.request, &headers::AUTOPILOT_SETTINGS),
    )
}

fn database_json(id: &str, database: &Database) -> Value {
    let named = Map::from_iter([("id".to_owned(), Value::from(id))]);
    let rid = database.rid.to_text();
    Value::Object(with_system_properties(
        Owner::Database,
        named,
        &rid,
        &database.rid.self_link(),
        &database.etag,
        database.ts,
    ))
}

/// One page of a feed of the catalog; a continuation names the last resource that was handed out.
fn list(call: &Call<'_>, rid: &str, plural: &str, mut resources: Vec<Value>) -> Result<Response> {
    if let Some(token) = text(call.request, &headers::CONTINUATION) {
        let last = continuation(token)?;
        let at = resources
            .iter()
            .position(|resource| id_of(resource) == last);
        let handed_out = at.map_or_else(
            || {
                resources
                    .iter()
                    .take_while(|resource| *id_of(resource) < *last)
                    .count()
            },
            |at| at + 1,
        );
        resources.drain(..handed_out);
    }
    let page = request::max_item_count(call.request)?.unwrap_or(usize::MAX);
    let more = resources.len() > page;
    resources.truncate(page);
    let rows: Vec<Vec<u8>> = resources
        .iter()
        .map(|resource| resource.to_string().into_bytes())
        .collect();
    let mut response = Response::new(
        200,
        respond::feed(rid, plural, rows.iter().map(Vec::as_slice)),
        charge::CATALOG_READ,
    );
    response.number(headers::ITEM_COUNT, rows.len() as u64);
    if let Some(last) = resources.last().filter(|_| more) {
        response.header(headers::CONTINUATION, URL_SAFE_NO_PAD.encode(id_of(last)));
    }
    Ok(response)
}

fn id_of(resource: &Value) -> &str {
    resource
        .get("id")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn continuation(token: &str) -> Result<String> {
    let decoded = URL_SAFE_NO_PAD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    decoded.ok_or_else(|| {
        Error::bad_request(format!(
            "Invalid Continuation Token '{}'",
            json::shorten(token)
        ))
    })
}

// Databases.

fn databases(table: &RoutingTable) -> Vec<Value> {
    table
        .catalog
        .databases
        .iter()
        .map(|(id, database)| database_json(id, database))
        .collect()
}

pub fn list_databases(call: &Call<'_>) -> Result<Response> {
    list(call, "", "Databases", databases(&call.table()))
}

pub async fn query_databases(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let resources = databases(&call.table());
    query::over_feed(call, payload, "", "Databases", resources).await
}

pub async fn create_database(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let body = object(call, payload).await?;
    let id = match body.get("id") {
        Some(Value::String(id)) => id.clone(),
        other => {
            return Err(Error::bad_request(format!(
                "the 'id' of a database must be text, not {}",
                other.map_or("missing".into(), json::show)
            )));
        }
    };
    let throughput = throughput(call)?;
    call.worker
        .shared
        .coordinator
        .send(CreateDatabase {
            id: id.clone(),
            throughput,
        })
        .await
        .map_err(gone)??;
    database_response(call, &id, 201)
}

pub fn read_database(call: &Call<'_>, db: &str) -> Result<Response> {
    database_response(call, db, 200)
}

fn database_response(call: &Call<'_>, db: &str, status: u16) -> Result<Response> {
    let table = call.table();
    let id = table.database_name(db);
    let database = table.catalog.database(id)?;
    if let Some(unmodified) = unmodified(call, &database.etag) {
        return Ok(unmodified);
    }
    let charge = if status == 201 {
        charge::CATALOG_WRITE
    } else {
        charge::CATALOG_READ
    };
    let mut response = Response::json(status, &database_json(id, database), charge);
    response.etag(database.etag.clone());
    Ok(response)
}

/// The answer when the client has this version already.
fn unmodified(call: &Call<'_>, etag: &str) -> Option<Response> {
    let condition =
        request::if_none_match(call.request).filter(|_| call.request.method() == "GET")?;
    condition.matches(etag).then(|| {
        let mut response = Response::empty(304, charge::CATALOG_READ);
        response.etag(etag.to_owned());
        response
    })
}

pub async fn delete_database(call: &Call<'_>, db: &str) -> Result<Response> {
    let id = call.table().database_name(db).to_owned();
    let request = DeleteDatabase {
        id,
        if_match: request::if_match(call.request),
    };
    call.worker
        .shared
        .coordinator
        .send(request)
        .await
        .map_err(gone)??;
    Ok(Response::empty(204, charge::CATALOG_WRITE))
}

// Containers.

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

pub fn list_containers(call: &Call<'_>, db: &str) -> Result<Response> {
    let (rid, resources) = containers(&call.table(), db)?;
    list(call, &rid, "DocumentCollections", resources)
}

pub async fn query_containers(call: &Call<'_>, db: &str, payload: Payload) -> Result<Response> {
    let (rid, resources) = containers(&call.table(), db)?;
    query::over_feed(call, payload, &rid, "DocumentCollections", resources).await
}

pub async fn create_container(call: &Call<'_>, db: &str, payload: Payload) -> Result<Response> {
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
    call.worker
        .shared
        .coordinator
        .send(request)
        .await
        .map_err(gone)??;
    container_response(call, db, &id, 201)
}

pub fn read_container(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    container_response(call, db, coll, 200)
}

fn container_response(call: &Call<'_>, db: &str, coll: &str, status: u16) -> Result<Response> {
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
    let charge = if call.request.method() == "GET" {
        charge::CATALOG_READ
    } else {
        charge::CATALOG_WRITE
    };
    let body = if flag(call.request, &headers::POPULATE_PARTITION_STATISTICS) {
        with_statistics(route)?
    } else {
        route.json.clone()
    };
    let mut response = Response::new(status, body, charge);
    response
        .etag(container.etag.clone())
        .header(headers::ALT_CONTENT_PATH, format!("dbs/{}", route.database))
        .header(headers::CONTENT_PATH, container.rid.database.to_text());
    if flag(call.request, &headers::POPULATE_QUOTA_INFO) {
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
        .header(headers::RESOURCE_QUOTA, quota)
        .header(headers::RESOURCE_USAGE, usage)
        .number(headers::INDEX_TRANSFORMATION_PROGRESS, progress.into());
    if let Some(lazy) = lazy {
        response.number(headers::LAZY_INDEXING_PROGRESS, lazy.into());
    }
}

pub async fn replace_container(
    call: &Call<'_>,
    db: &str,
    coll: &str,
    payload: Payload,
) -> Result<Response> {
    let body = object(call, payload).await?;
    computed_properties(body.get("computedProperties"))?;
    let (database, id) = names(call, db, coll);
    let request = ReplaceContainer {
        database,
        id,
        body,
        if_match: request::if_match(call.request),
    };
    call.worker
        .shared
        .coordinator
        .send(request)
        .await
        .map_err(gone)??;
    container_response(call, db, coll, 200)
}

pub async fn delete_container(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let (database, id) = names(call, db, coll);
    let request = DeleteContainer {
        database,
        id,
        if_match: request::if_match(call.request),
    };
    call.worker
        .shared
        .coordinator
        .send(request)
        .await
        .map_err(gone)??;
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

// Partition key ranges.

pub fn list_ranges(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    // The set of ranges changes only when one of them is split; that gives the highest ids.
    let ranges_made = container.container.ranges.iter().map(|range| range.id);
    let etag = format!(
        "\"{}-{}\"",
        container.rid_text.trim_end_matches('='),
        ranges_made.max().unwrap_or(0) + 1
    );
    let known = request::if_none_match(call.request)
        .is_some_and(|condition| condition != EtagCondition::Any && condition.matches(&etag));
    let mut response = if known {
        Response::empty(304, charge::CATALOG_READ)
    } else {
        list(
            call,
            &container.rid_text,
            "PartitionKeyRanges",
            ranges(&container, &etag),
        )?
    };
    response
        .etag(etag)
        .header(
            headers::ALT_CONTENT_PATH,
            container.name_path.clone().into_bytes(),
        )
        .header(
            headers::CONTENT_PATH,
            container.rid_text.clone().into_bytes(),
        );
    Ok(response)
}

fn ranges(container: &ContainerRoute, etag: &str) -> Vec<Value> {
    let count = container.container.ranges.len();
    let rid = container.container.rid;
    container
        .container
        .ranges
        .iter()
        .map(|range| {
            json!({
                "_rid": rid::range_rid(rid, u64::from(range.id)),
                "id": range.id.to_string(),
                "_etag": etag,
                "minInclusive": range.keys.min.to_hex(),
                "maxExclusive": range.keys.max.to_hex(),
                "ridPrefix": range.id,
                "_self": rid::range_self_link(rid, u64::from(range.id)),
                "throughputFraction": 1.0 / count as f64,
                "status": "online",
                "parents": range.parents.iter().map(u32::to_string).collect::<Vec<_>>(),
                "_ts": container.container.ts,
                "_lsn": 1,
            })
        })
        .collect()
}

// Offers.

fn offer_json(record: &OfferRecord) -> Value {
    Value::Object(record.offer.to_json(&record.etag, record.ts))
}

fn offers(table: &RoutingTable) -> Vec<Value> {
    let offers = table.catalog.offers.values();
    offers.map(|record| offer_json(record)).collect()
}

pub fn list_offers(call: &Call<'_>) -> Result<Response> {
    list(call, "", "Offers", offers(&call.table()))
}

pub async fn query_offers(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let resources = offers(&call.table());
    query::over_feed(call, payload, "", "Offers", resources).await
}

fn offer_rid(text: &str) -> Result<OfferRid> {
    OfferRid::parse(text)
        .ok_or_else(|| Error::not_found(format!("Resource Not Found: there is no offer '{text}'")))
}

pub fn read_offer(call: &Call<'_>, rid: &str) -> Result<Response> {
    offer_response(call, offer_rid(rid)?)
}

fn offer_response(call: &Call<'_>, rid: OfferRid) -> Result<Response> {
    let table = call.table();
    let record = table.catalog.offer(rid)?;
    let mut response = Response::json(200, &offer_json(record), charge::CATALOG_READ);
    response.etag(record.etag.clone()).number(
        headers::MIN_THROUGHPUT,
        u64::from(record.offer.throughput.minimum()),
    );
    Ok(response)
}

pub async fn replace_offer(call: &Call<'_>, rid: &str, payload: Payload) -> Result<Response> {
    let rid = offer_rid(rid)?;
    let migration = Migration::from_headers(
        text(call.request, &headers::MIGRATE_TO_AUTOPILOT),
        text(call.request, &headers::MIGRATE_TO_MANUAL),
    )?;
    let request = ReplaceOffer {
        rid,
        body: object(call, payload).await?,
        migration,
        if_match: request::if_match(call.request),
    };
    call.worker
        .shared
        .coordinator
        .send(request)
        .await
        .map_err(gone)??;
    offer_response(call, rid)
}

/// One region never has conflicts.
pub fn list_conflicts(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    list(call, &container.rid_text, "Conflicts", Vec::new())
}

pub fn query_conflicts(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    if !query::names_partition(call) {
        return Err(query::cross_partition_disabled());
    }
    list(call, &container.rid_text, "Conflicts", Vec::new())
}

pub fn missing_conflict(call: &Call<'_>, db: &str, coll: &str, id: &str) -> Result<Response> {
    call.container(db, coll)?;
    Err(Error::not_found(format!(
        "Entity with the specified id does not exist in the system: there is no conflict '{}'",
        json::shorten(id)
    )))
}
