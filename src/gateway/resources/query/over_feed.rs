//! Queries over the feeds of the catalog, which are small and in memory.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{Asked, invalid_token, page_bounds};
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, body::Payload, response},
    },
    model::{charge, error::Result},
    query::{QueryMeter, Rows},
    router::actor::off_the_event_loop,
    sql::{ComputedProperties, Guard, Query, Shape},
};

/// A query over a feed of the catalog: databases, containers, offers.
pub async fn over_feed(
    call: &Call<'_>,
    payload: Payload,
    rid: &str,
    plural: &str,
    resources: Vec<Value>,
) -> Result<Response> {
    let body = call.read(payload).await?;
    let alive = Arc::new(());
    let queries = &call.worker.queries;
    let meter = QueryMeter::new(queries, Arc::downgrade(&alive))?;
    let query = meter.prepare(&body, || {
        Asked::of_body(&body)?.parse(call, &ComputedProperties::default())
    })?;
    let examined = resources.len();
    let begin = match call.header(Header::Continuation) {
        None => FeedPosition::default(),
        Some(token) => FeedPosition::parse(token).ok_or_else(|| invalid_token(token))?,
    };
    let bounds = page_bounds(call)?;
    // Small feeds, but a query may make much of them: it is watched, and works elsewhere.
    let permit = queries.permit(true).await?;
    let all = off_the_event_loop({
        let meter = Arc::clone(&meter);
        move || {
            meter.begin_slice(Some(permit));
            let guard = Arc::clone(&meter) as Arc<dyn Guard>;
            let all = rows(&query, resources, &begin, &guard)?;
            meter.check_memory(0)?;
            meter.end_slice();
            Ok(all)
        }
    })
    .await?;
    let mut page = Rows::default();
    let mut next = None;
    for (row, place) in all {
        let fits =
            page.len() < bounds.items_max && page.push_value(&row, None, bounds.bytes_max)?;
        if !fits {
            next = Some(place);
            break;
        }
    }
    let body = response::feed(rid, plural, page.iter());
    let mut response = Response::new(200, body, charge::query(examined, page.bytes()));
    response.number(Header::ItemCount, page.len() as u64);
    if let Some(next) = next {
        response.header(Header::Continuation, next.encode());
    }
    Ok(response)
}

/// Where a page begins: with this row of all, or, of a query whose rows are those of the resources one by one, with this row of the
/// resource with this id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FeedPosition {
    row: u64,
    /// Rows handed out, for OFFSET, LIMIT and TOP.
    found: u64,
    id: String,
}

impl FeedPosition {
    fn encode(&self) -> String {
        let id = URL_SAFE_NO_PAD.encode(&self.id);
        format!("{}.{}.{id}", self.row, self.found)
    }

    fn parse(token: &str) -> Option<Self> {
        let (row, rest) = token.split_once('.')?;
        let (found, id) = rest.split_once('.')?;
        Some(Self {
            row: row.parse().ok()?,
            found: found.parse().ok()?,
            id: String::from_utf8(URL_SAFE_NO_PAD.decode(id).ok()?).ok()?,
        })
    }
}

/// The rows from a place on, each with its own.
fn rows(
    query: &Query,
    resources: Vec<Value>,
    begin: &FeedPosition,
    guard: &Arc<dyn Guard>,
) -> Result<Vec<(Value, FeedPosition)>> {
    let mut all = Vec::new();
    if query.shape() != Shape::Streaming {
        let executed = query.execute_guarded(resources.into_iter(), Arc::clone(guard))?;
        for (row, value) in (0_u64..).zip(executed) {
            if row >= begin.row {
                all.push((
                    value,
                    FeedPosition {
                        row,
                        ..FeedPosition::default()
                    },
                ));
            }
        }
        return Ok(all);
    }
    let (first, last) = query.offset_limit().map_or((0, u64::MAX), |window| {
        (window.offset, window.offset.saturating_add(window.limit))
    });
    let last = last.min(query.top().unwrap_or(u64::MAX));
    let mut found = begin.found;
    for resource in resources {
        let id = resource
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        // Feeds are in the order of ids.
        if id < begin.id.as_str() {
            continue;
        }
        let id = id.to_owned();
        let before = if id == begin.id { begin.row } else { 0 };
        guard.check(0)?;
        let projected = query.project_guarded(&resource, Arc::clone(guard))?;
        for (row, value) in (0_u64..).zip(projected) {
            if row < before {
                continue;
            }
            if (first..last).contains(&found) {
                let id = id.clone();
                all.push((value, FeedPosition { row, found, id }));
            }
            found += 1;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn unwatched() -> Arc<dyn Guard> {
        struct Unwatched;
        impl Guard for Unwatched {
            fn check(&self, _: usize) -> Result<()> {
                Ok(())
            }
        }
        Arc::new(Unwatched)
    }

    fn resources(ids: &[&str]) -> Vec<Value> {
        ids.iter()
            .map(|id| json!({"id": id, "tags": [1, 2]}))
            .collect()
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended_whatever_happened_since() {
        for (text, expected) in [
            ("SELECT VALUE r.id FROM r", json!(["b", "c", "d"])),
            ("SELECT VALUE r.id FROM r OFFSET 1 LIMIT 2", json!(["c"])),
            ("SELECT TOP 2 VALUE r.id FROM r", json!(["b"])),
        ] {
            let query = Query::parse(text, &[]).unwrap();
            let all = rows(
                &query,
                resources(&["a", "b", "c"]),
                &FeedPosition::default(),
                &unwatched(),
            )
            .unwrap();
            let (_, second) = &all[1];
            let token = FeedPosition::parse(&second.encode()).unwrap();
            assert_eq!(token, *second);
            let rest = rows(
                &query,
                resources(&["a1", "b", "c", "d"]),
                &token,
                &unwatched(),
            )
            .unwrap();
            let rest: Vec<Value> = rest.into_iter().map(|(row, _)| row).collect();
            assert_eq!(Value::from(rest), expected, "{text}");
        }
    }

    #[test]
    fn rows_of_one_resource_may_be_split_over_pages() {
        let query = Query::parse("SELECT VALUE t FROM r JOIN t IN r.tags", &[]).unwrap();
        let all = rows(
            &query,
            resources(&["a", "b"]),
            &FeedPosition::default(),
            &unwatched(),
        )
        .unwrap();
        assert_eq!(all.len(), 4);
        let rest = rows(&query, resources(&["a", "b"]), &all[1].1, &unwatched()).unwrap();
        assert_eq!(rest.len(), 3);
        let query = Query::parse("SELECT VALUE COUNT(1) FROM r", &[]).unwrap();
        let all = rows(
            &query,
            resources(&["a", "b"]),
            &FeedPosition::default(),
            &unwatched(),
        )
        .unwrap();
        assert_eq!(all, [(json!(2), FeedPosition::default())]);
    }
}
