//! Databases.

use serde_json::{Map, Value};

use super::{
    catalog::{list, object, throughput, unmodified},
    query,
};
use crate::{
    coordinator::actor::{CreateDatabase, DeleteDatabase},
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload},
    },
    model::{
        catalog::Database,
        charge,
        container::{Owner, with_system_properties},
        error::{Error, Result},
        json,
    },
    router::RoutingTable,
};

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

fn databases(table: &RoutingTable) -> Vec<Value> {
    table
        .catalog
        .databases
        .iter()
        .map(|(id, database)| database_json(id, database))
        .collect()
}

pub fn list_all(call: &Call<'_>) -> Result<Response> {
    list(call, "", "Databases", databases(&call.table()))
}

pub async fn query_all(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let resources = databases(&call.table());
    query::over_feed(call, payload, "", "Databases", resources).await
}

pub async fn create(call: &Call<'_>, payload: Payload) -> Result<Response> {
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
    call.change_catalog(CreateDatabase {
        id: id.clone(),
        throughput,
    })
    .await?;
    response(call, &id, 201)
}

pub fn read(call: &Call<'_>, db: &str) -> Result<Response> {
    response(call, db, 200)
}

fn response(call: &Call<'_>, db: &str, status: u16) -> Result<Response> {
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
    response.header(Header::Etag, database.etag.clone());
    Ok(response)
}

pub async fn delete(call: &Call<'_>, db: &str) -> Result<Response> {
    let id = call.table().database_name(db).to_owned();
    let request = DeleteDatabase {
        id,
        if_match: call.if_match(),
    };
    call.change_catalog(request).await?;
    Ok(Response::empty(204, charge::CATALOG_WRITE))
}
