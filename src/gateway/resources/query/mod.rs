//! SQL over items, and over the small feeds of the catalog.

mod metrics;
mod over_feed;
mod sdk_plan;

use std::{sync::Arc, time::Instant};

use serde::Deserialize;
use serde_json::Value;

pub use over_feed::over_feed;
pub use sdk_plan::sdk_plan;

use super::{consistency, feeds, items};
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload, response},
    },
    model::{
        charge,
        epk::EpkRange,
        error::{Error, ErrorKind, Result},
        json,
        rid::parse_item_rid,
    },
    query::{
        QueryFingerprint, QueryMeter, QueryPage, QueryRequest, QueryToken, RowPosition, key_ranges,
        one_page,
    },
    router::{
        Answer, ContainerRoute,
        actor::{ContainerScope, PageBounds, SPLITS_MET_MAX},
    },
    sql::{ComputedProperties, QUERY_TEXT_BYTES_MAX, Query, Shape},
};

/// Rows of a page when the client leaves it to the server.
const PAGE_ROWS_DEFAULT: usize = 1_000;
/// Rows of a page at most.
const PAGE_ROWS_MAX: usize = 1_000_000;

#[derive(Deserialize)]
struct QueryBody {
    query: String,
    #[serde(default)]
    parameters: Option<Vec<Parameter>>,
    #[serde(default, rename = "resumeFilter")]
    resume_filter: Option<ResumeFilter>,
}

#[derive(Deserialize)]
struct Parameter {
    name: String,
    #[serde(default)]
    value: Value,
}

/// Where a client that merges the rows of several ranges goes on in one of them.
#[derive(Deserialize)]
struct ResumeFilter {
    value: Vec<Value>,
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    exclude: bool,
}

impl ResumeFilter {
    fn position(self, query: &Query) -> Result<RowPosition> {
        let columns = query.descending().len();
        if query.shape() != Shape::Ordered || self.value.len() != columns {
            return Err(Error::bad_request(format!(
                "the resumeFilter has {} values; this query has {columns} columns in its ORDER BY",
                self.value.len()
            )));
        }
        let keys = self
            .value
            .into_iter()
            .map(|value| match value {
                // Undefined has no JSON of its own.
                Value::Array(items) if items.is_empty() => Ok(None),
                Value::Array(_) | Value::Object(_) => Err(Error::bad_request(format!(
                    "the value {} of the resumeFilter is an array or an object",
                    json::show(&value)
                ))),
                value => Ok(Some(value)),
            })
            .collect::<Result<_>>()?;
        let ordinal = self
            .rid
            .map(|rid| {
                let known = parse_item_rid(&rid).map(|(_, ordinal)| ordinal);
                known.ok_or_else(|| {
                    Error::bad_request(format!(
                        "the resource id '{}' of the resumeFilter is not one of an item",
                        json::shorten(&rid)
                    ))
                })
            })
            .transpose()?;
        Ok(RowPosition::resume(keys, ordinal, self.exclude))
    }
}

/// The text of a query with what belongs to it.
struct Asked {
    text: String,
    parameters: Vec<(String, Value)>,
    resume: Option<ResumeFilter>,
}

impl Asked {
    async fn read(call: &Call<'_>, payload: Payload) -> Result<Self> {
        let body = call.read(payload).await?;
        call.held.hold_parsed(&body)?;
        Self::of_body(&body)
    }

    fn of_body(body: &[u8]) -> Result<Self> {
        let body = json::parse_value(body)?;
        let QueryBody {
            query,
            parameters,
            resume_filter,
        } = serde_json::from_value(body).map_err(|failure| {
            Error::bad_request(format!(
                "the body of a query must be an object with 'query' and 'parameters': {failure}"
            ))
        })?;
        if query.len() > QUERY_TEXT_BYTES_MAX {
            return Err(Error::bad_request(format!(
                "the query text has {} bytes; {QUERY_TEXT_BYTES_MAX} is the most",
                query.len()
            )));
        }
        Ok(Self {
            text: query,
            parameters: parameters
                .unwrap_or_default()
                .into_iter()
                .map(|parameter| (parameter.name, parameter.value))
                .collect(),
            resume: resume_filter,
        })
    }

    fn parse(&self, call: &Call<'_>, computed: &ComputedProperties) -> Result<Query> {
        let now_ms = call.worker.shared.clock.now().saturating_mul(1_000);
        Ok(Query::parse_with(&self.text, &self.parameters, computed)?.at(now_ms))
    }
}

fn page_bounds(call: &Call<'_>) -> Result<PageBounds> {
    Ok(PageBounds {
        items_max: call
            .max_item_count()?
            .unwrap_or(PAGE_ROWS_DEFAULT)
            .min(PAGE_ROWS_MAX),
        bytes_max: feeds::PAGE_BYTES_MAX,
    })
}

/// A query over items.
pub async fn query(call: &Call<'_>, db: &str, coll: &str, payload: Payload) -> Result<Response> {
    let begun = Instant::now();
    let container = call.container(db, coll)?;
    items::admit(call, &container)?;
    let body = call.read(payload).await?;
    // Held until the answer is there: a client that goes away drops it, and the work stops.
    let alive = Arc::new(());
    let meter = QueryMeter::new(&call.worker.queries, Arc::downgrade(&alive))?;
    let (asked, query) = meter.prepare(&body, || {
        let asked = Asked::of_body(&body)?;
        let query = asked.parse(call, &container.computed)?;
        Ok((asked, Arc::new(query)))
    })?;
    let compiled = begun.elapsed();
    let scope = match feeds::scope(call, &container)? {
        Some(scope) => scope,
        None if names_partition(call) || stays_in_one(&container, &query) => ContainerScope {
            keys: EpkRange::full(),
            range_id: None,
        },
        None => return Err(cross_partition_disabled()),
    };
    let shards = || Ok(scope.shards(&container));
    let readable = consistency::await_readable(call, &container, shards).await?;
    let run = QueryRequest {
        query: Arc::clone(&query),
        scope,
        token: call
            .header(Header::Continuation)
            .map(|token| {
                QueryToken::parse(token, QueryFingerprint::of(container.container.rid, &query))
            })
            .transpose()?,
        resume: asked
            .resume
            .map(|resume| resume.position(&query))
            .transpose()?,
        bounds: page_bounds(call)?,
        session: call.session()?,
        scan_allowed: call.flag(Header::EnableScan),
        container: Arc::clone(&container),
        meter,
    };
    let Answer {
        value: mut page,
        served,
    } = run_to_page(run).await?;
    drop(alive);
    readable.settle().await?;
    call.watch.hands_out(page.first_due);
    let body = response::feed(&container.rid_text, "Documents", page.rows.iter());
    let charge = charge::query(page.work.examined, page.rows.bytes());
    let mut response = Response::new(200, body, charge);
    container.budget.spend(response.charge);
    response
        .number(Header::ItemCount, page.rows.len() as u64)
        .served_by(&container, &served);
    if call.has(Header::PartitionKey) {
        // Items are in the order of their keys: whoever names one is led to its items.
        let paths = &container.container.definition.partition_key.paths;
        let keys = paths.iter().map(|path| format!("{path}/?"));
        page.work.used.utilized.splice(0..0, keys);
    }
    metrics::add(
        call,
        &mut response,
        &query,
        &page,
        compiled,
        begun.elapsed(),
    );
    if let Some(continuation) = page.continuation {
        response.header(Header::Continuation, continuation);
    }
    // As with point reads: answers that leave together wake their clients together.
    tokio::task::yield_now().await;
    Ok(response)
}

/// Runs a query up to its page; begins again where a split cuts it off.
async fn run_to_page(request: QueryRequest) -> Result<Answer<QueryPage>> {
    // Requests that other connections have sent meanwhile are taken in first, so that their answers can leave together.
    tokio::task::yield_now().await;
    let names_no_range = request.scope.range_id.is_none();
    for _ in 1..SPLITS_MET_MAX {
        match one_page(request.clone()).await {
            // A split has cut it off: it begins again, in what the range was split into.
            Err(error) if error.kind == ErrorKind::RangeGone && names_no_range => {}
            answered => return answered,
        }
    }
    one_page(request).await
}

/// Whether the headers say where the query goes: to one key, or everywhere.
pub fn names_partition(call: &Call<'_>) -> bool {
    call.flag(Header::EnableCrossPartition) || call.has(Header::PartitionKey)
}

/// Whether the filter of a query leaves one partition key at the most.
fn stays_in_one(container: &ContainerRoute, query: &Query) -> bool {
    key_ranges(container, query).is_some_and(|ranges| ranges.len() <= 1)
}

pub fn cross_partition_disabled() -> Error {
    Error::bad_request(
        "Cross partition query is required but disabled. Please set x-ms-documentdb-query-enablecrosspartition to true, \
         specify x-ms-documentdb-partitionkey, or revise your query to avoid this exception.",
    )
}

/// A token that is not one of ours.
fn invalid_token(token: &str) -> Error {
    Error::new(
        ErrorKind::BadRequest,
        format!("Invalid Continuation Token '{}'", json::shorten(token)),
    )
}
