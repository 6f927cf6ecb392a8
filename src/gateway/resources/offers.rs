//! Offers: the throughput of databases and containers.

use serde_json::Value;

use super::{
    catalog::{list, object},
    query,
};
use crate::{
    coordinator::actor::ReplaceOffer,
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload},
    },
    model::{
        catalog::OfferRecord,
        charge,
        error::{Error, Result},
        offer::Migration,
        rid::OfferRid,
    },
    router::RoutingTable,
};

fn offer_json(record: &OfferRecord) -> Value {
    Value::Object(record.offer.to_json(&record.etag, record.ts))
}

fn offers(table: &RoutingTable) -> Vec<Value> {
    let offers = table.catalog.offers.values();
    offers.map(|record| offer_json(record)).collect()
}

pub fn list_all(call: &Call<'_>) -> Result<Response> {
    list(call, "", "Offers", offers(&call.table()))
}

pub async fn query_all(call: &Call<'_>, payload: Payload) -> Result<Response> {
    let resources = offers(&call.table());
    query::over_feed(call, payload, "", "Offers", resources).await
}

fn offer_rid(text: &str) -> Result<OfferRid> {
    OfferRid::parse(text)
        .ok_or_else(|| Error::not_found(format!("Resource Not Found: there is no offer '{text}'")))
}

pub fn read(call: &Call<'_>, rid: &str) -> Result<Response> {
    response(call, offer_rid(rid)?)
}

fn response(call: &Call<'_>, rid: OfferRid) -> Result<Response> {
    let table = call.table();
    let record = table.catalog.offer(rid)?;
    let mut response = Response::json(200, &offer_json(record), charge::CATALOG_READ);
    response.header(Header::Etag, record.etag.clone()).number(
        Header::MinThroughput,
        u64::from(record.offer.throughput.minimum()),
    );
    Ok(response)
}

pub async fn replace(call: &Call<'_>, rid: &str, payload: Payload) -> Result<Response> {
    let rid = offer_rid(rid)?;
    let migration = Migration::from_headers(
        call.header(Header::MigrateToAutopilot),
        call.header(Header::MigrateToManual),
    )?;
    let request = ReplaceOffer {
        rid,
        body: object(call, payload).await?,
        migration,
        if_match: call.if_match(),
    };
    call.change_catalog(request).await?;
    response(call, rid)
}
