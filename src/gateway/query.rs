//! SQL over items, and over the small feeds of the catalog.

use std::sync::Arc;

use actix_web::{HttpRequest, http::header::CONTENT_TYPE, web};
use serde::Deserialize;
use serde_json::Value;

use super::{
    dispatch::Call,
    feeds, headers,
    items::{self, gone},
    request::{self, flag, text},
    respond::{self, Response},
};
use crate::{
    model::{
        charge,
        epk::EpkRange,
        error::{Error, ErrorKind, Result},
        json,
    },
    router::{Answer, actor::Scope, continuation::KeyContinuation, query::RunQuery},
    sql::Query,
};

/// Whether a POST is a query: each SDK says so in its own way.
pub fn is_query(request: &HttpRequest) -> bool {
    flag(request, &headers::QUERY_PLAN)
        || flag(request, &headers::IS_QUERY)
        || flag(request, &headers::IS_QUERY_GO)
        || text(request, &CONTENT_TYPE)
            .is_some_and(|value| value.starts_with("application/query+json"))
}

#[derive(Deserialize)]
struct QueryBody {
    query: String,
    #[serde(default)]
    parameters: Option<Vec<Parameter>>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    #[serde(default)]
    value: Value,
}

/// Reads and parses a query.
async fn parse(call: &Call<'_>, payload: web::Payload) -> Result<Query> {
    let body = request::body(payload).await?;
    let body = json::parse_value(&body)?;
    let QueryBody { query, parameters } = serde_json::from_value(body).map_err(|failure| {
        Error::bad_request(format!(
            "the body of a query must be an object with 'query' and 'parameters': {failure}"
        ))
    })?;
    let parameters: Vec<_> = parameters
        .unwrap_or_default()
        .into_iter()
        .map(|parameter| (parameter.name, parameter.value))
        .collect();
    Ok(Query::parse(&query, &parameters)?.at(call.worker.shared.clock.now().saturating_mul(1_000)))
}

/// A query over items.
pub async fn query(
    call: &Call<'_>,
    db: &str,
    coll: &str,
    payload: web::Payload,
) -> Result<Response> {
    let container = call.container(db, coll)?;
    request::check_consistency(call.request)?;
    items::admit(call, &container)?;
    let query = parse(call, payload).await?;
    let scope = match feeds::scope(call, &container)? {
        Some(scope) => scope,
        None if flag(call.request, &headers::ENABLE_CROSS_PARTITION) => Scope {
            keys: EpkRange::full(),
            range_id: None,
        },
        None => {
            return Err(Error::bad_request(
                "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, \
                 specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
            ));
        }
    };
    let run = RunQuery {
        query,
        scope,
        continuation: text(call.request, &headers::CONTINUATION)
            .map(KeyContinuation::parse)
            .transpose()?,
        bounds: feeds::page_bounds(call)?,
        session: request::session(call.request)?,
        container: Arc::clone(&container),
    };
    let Answer {
        value: page,
        range_id,
        lsn,
    } = call.worker.router.send(run).await.map_err(gone)??;
    let bytes = page.rows.iter().map(Vec::len).sum();
    let body = respond::feed(
        &container.rid_text,
        "Documents",
        page.rows.iter().map(Vec::as_slice),
    );
    let mut response = Response::new(200, body, charge::query(page.examined, bytes));
    container.budget.spend(response.charge);
    response
        .number(headers::ITEM_COUNT, page.rows.len() as u64)
        .served_by(&container, range_id, lsn);
    if let Some(continuation) = page.continuation {
        response.header(headers::CONTINUATION, continuation.encode());
    }
    Ok(response)
}

/// A query plan. Every query is answered whole by this node, so a client never needs one; those that ask are told so.
pub async fn plan(
    call: &Call<'_>,
    db: &str,
    coll: &str,
    payload: web::Payload,
) -> Result<Response> {
    call.container(db, coll)?;
    parse(call, payload).await?;
    Err(Error::new(
        ErrorKind::NotImplemented,
        "query plans are not offered: send the query itself, it is answered whole",
    ))
}

/// A query over a feed of the catalog: databases, containers, offers.
pub async fn over_feed(
    call: &Call<'_>,
    payload: web::Payload,
    rid: &str,
    plural: &str,
    resources: Vec<Value>,
) -> Result<Response> {
    let query = parse(call, payload).await?;
    let rows: Vec<Vec<u8>> = query
        .execute(resources.into_iter())?
        .iter()
        .map(|row| row.to_string().into_bytes())
        .collect();
    let body = respond::feed(rid, plural, rows.iter().map(Vec::as_slice));
    let mut response = Response::new(200, body, charge::query(rows.len(), 0));
    response.number(headers::ITEM_COUNT, rows.len() as u64);
    Ok(response)
}
