//! Read feeds and change feeds.

use std::{sync::Arc, time::UNIX_EPOCH};

use bytes::Bytes;

use super::{
    consistency,
    items::{self, gone},
};
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, response},
    },
    model::{
        charge,
        epk::{Epk, EpkRange},
        error::{Error, ErrorKind, Result},
        json,
        partition_key::PartitionKey,
    },
    router::{
        Answer, ContainerRoute,
        actor::{ContainerScope, PageBounds, ReadChanges, ReadPage},
        continuation::KeyContinuation,
    },
    shard::feed::Start,
    store::document::Stored,
};

/// Items of a page when the client does not say.
const PAGE_ITEMS_DEFAULT: usize = 100;
/// Items of a page at most.
const PAGE_ITEMS_MAX: usize = 1_000_000;
/// Bytes of items after which a page ends.
pub const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;

pub fn page_bounds(call: &Call<'_>) -> Result<PageBounds> {
    let items_max = call
        .max_item_count()?
        .unwrap_or(PAGE_ITEMS_DEFAULT)
        .min(PAGE_ITEMS_MAX);
    Ok(PageBounds {
        items_max,
        bytes_max: PAGE_BYTES_MAX,
    })
}

/// What part of the container the headers name; `None` when they name none.
pub fn scope(call: &Call<'_>, container: &ContainerRoute) -> Result<Option<ContainerScope>> {
    let range = call
        .header(Header::PartitionKeyRangeId)
        .map(|id| named_range(call, container, id))
        .transpose()?;
    let mut keys = epk_headers(call)?;
    if let Some(header) = call.header(Header::PartitionKey) {
        let key = PartitionKey::parse_header(header)?;
        let definition = &container.container.definition.partition_key;
        let named = if key.0.len() < definition.levels() && !key.0.is_empty() {
            let (min, max) = definition.prefix_range(&key);
            EpkRange::new(min, max)
        } else {
            EpkRange::point(definition.place(&definition.complete(key)?))
        };
        keys = Some(named);
    }
    match (range, keys) {
        (None, None) => Ok(None),
        (Some(named), None) => Ok(Some(named)),
        // The range is recomputed from the keys: a client's choice may be out of date.
        (_, Some(keys)) => Ok(Some(ContainerScope {
            keys,
            range_id: None,
        })),
    }
}

/// The range of an id. One that was split is gone, except for pages that were begun before: they go on over what it was split into, because not every client that is in the
/// middle of its pages finds out of a 410.
fn named_range(call: &Call<'_>, container: &ContainerRoute, id: &str) -> Result<ContainerScope> {
    let gone = match container.shard_by_id(id) {
        Ok(shard) => {
            return Ok(ContainerScope {
                keys: shard.facts.range.clone(),
                range_id: Some(shard.facts.range_id),
            });
        }
        Err(gone) => gone,
    };
    let goes_on = call.header(Header::Continuation).is_some() && call.header(Header::AIm).is_none();
    let keys = container.keys_of_split(id).filter(|_| goes_on);
    keys.map(|keys| ContainerScope {
        keys,
        range_id: None,
    })
    .ok_or(gone)
}

fn epk_headers(call: &Call<'_>) -> Result<Option<EpkRange>> {
    let (Some(min), Some(max)) = (call.header(Header::StartEpk), call.header(Header::EndEpk))
    else {
        return Ok(None);
    };
    match call.header(Header::ReadKeyType) {
        None | Some("EffectivePartitionKeyRange") => Ok(Some(EpkRange::new(
            Epk::from_hex(min)?,
            Epk::from_hex(max)?,
        ))),
        Some(other) => Err(Error::bad_request(format!(
            "the value '{}' of x-ms-read-key-type is not known",
            json::shorten(other)
        ))),
    }
}

/// `GET …/docs`: all items, page by page.
pub async fn read(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    items::admit(call, &container)?;
    let scope = scope(call, &container)?.unwrap_or(ContainerScope {
        keys: EpkRange::full(),
        range_id: None,
    });
    let shards = || Ok(scope.shards(&container));
    let readable = consistency::await_readable(call, &container, shards).await?;
    let page = ReadPage {
        scope,
        continuation: call
            .header(Header::Continuation)
            .map(KeyContinuation::parse)
            .transpose()?,
        bounds: page_bounds(call)?,
        session: call.session()?,
        container: Arc::clone(&container),
    };
    let Answer {
        value: page,
        served,
    } = call.worker.router.send(page).await.map_err(gone)??;
    readable.settle().await?;
    call.watch.hands_out(page.first_due);
    let body = response::feed(
        &container.rid_text,
        "Documents",
        page.items.iter().map(|item| item.stored.body()),
    );
    let mut response = Response::new(
        200,
        body,
        charge::feed_page(
            page.items.len(),
            bytes(page.items.iter().map(|item| &item.stored)),
        ),
    );
    container.budget.spend(response.charge);
    response
        .number(Header::ItemCount, page.items.len() as u64)
        .served_by(&container, &served);
    if let Some(continuation) = page.continuation {
        response.header(Header::Continuation, continuation.encode());
    }
    Ok(response)
}

fn bytes<'a>(items: impl Iterator<Item = &'a Stored<Bytes>>) -> usize {
    items.map(|item| item.body().len()).sum()
}

/// `GET …/docs` with `A-IM`: changes, latest version.
pub async fn changes(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    items::admit(call, &container)?;
    check_feed_mode(call)?;
    // Where there is one range it need not be named.
    let only = (container.shards.len() == 1).then(|| ContainerScope {
        keys: EpkRange::full(),
        range_id: None,
    });
    let scope = scope(call, &container)?.or(only).ok_or_else(|| {
        Error::bad_request(format!(
            "no partition key or partition key range id was specified for the change feed of '{}'",
            container.name_path
        ))
    })?;
    let mut start = feed_start(call)?;
    let shards = || Ok(scope.shards(&container));
    let readable = consistency::await_readable(call, &container, shards).await?;
    loop {
        let request = ReadChanges {
            container: Arc::clone(&container),
            scope: scope.clone(),
            start,
            bounds: page_bounds(call)?,
            session: call.session()?,
        };
        let Answer {
            value: page,
            served,
        } = call.worker.router.send(request).await.map_err(gone)??;
        if page.items.is_empty() && page.more {
            // Only other keys or expired items so far: a client takes an empty page for the end.
            start = Start::After(page.after);
            continue;
        }
        readable.settle().await?;
        call.watch.hands_out(page.first_due);
        let wrapped = call.has(Header::ChangeFeedWireFormat);
        let rows: Vec<Vec<u8>> = page
            .items
            .iter()
            .map(|item| change_row(item, wrapped))
            .collect();
        let charge = charge::feed_page(page.items.len(), bytes(page.items.iter()));
        let mut response = if rows.is_empty() {
            Response::empty(304, charge)
        } else {
            Response::new(
                200,
                response::feed(
                    &container.rid_text,
                    "Documents",
                    rows.iter().map(Vec::as_slice),
                ),
                charge,
            )
        };
        container.budget.spend(charge);
        response
            .number(Header::ItemCount, page.items.len() as u64)
            .header(Header::Etag, format!("\"{}\"", page.after))
            .served_by(&container, &served);
        return Ok(response);
    }
}

fn check_feed_mode(call: &Call<'_>) -> Result<()> {
    let mode = call.header(Header::AIm).unwrap_or_default();
    if mode.eq_ignore_ascii_case("Incremental Feed") {
        return Ok(());
    }
    if mode.eq_ignore_ascii_case("Full-Fidelity Feed") {
        return Err(Error::new(
            ErrorKind::NotImplemented,
            "the change feed of all versions and deletes is not offered; read the latest versions",
        ));
    }
    Err(Error::bad_request(format!(
        "the value '{}' of A-IM is not known",
        json::shorten(mode)
    )))
}

/// Where the reader begins; an etag wins over a time.
fn feed_start(call: &Call<'_>) -> Result<Start> {
    match (
        call.header(Header::IfNoneMatch),
        call.header(Header::IfModifiedSince),
    ) {
        (Some("*"), None) => Ok(Start::Now),
        (Some("*"), Some(since)) | (None, Some(since)) => {
            let time = httpdate::parse_http_date(since).map_err(|_| {
                Error::bad_request(format!(
                    "the value '{}' of If-Modified-Since is not an RFC 1123 date",
                    json::shorten(since)
                ))
            })?;
            Ok(Start::Time(
                time.duration_since(UNIX_EPOCH).map_or(0, |since| {
                    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
                }),
            ))
        }
        (Some(etag), _) => {
            let lsn = etag
                .trim()
                .trim_start_matches("W/")
                .trim_matches('"')
                .parse();
            lsn.map(Start::After).map_err(|_| {
                Error::bad_request(format!(
                    "the etag '{}' is no place in a change feed",
                    json::shorten(etag)
                ))
            })
        }
        (None, None) => Ok(Start::After(0)),
    }
}

/// An item of the feed: itself with its LSN, or wrapped when the client speaks the newer form.
fn change_row(item: &Stored<Bytes>, wrapped: bool) -> Vec<u8> {
    let body = item.body();
    let open = body.strip_suffix(b"}").unwrap_or(body);
    let (lsn, ts) = (item.header.position.lsn, item.header.ts);
    let mut row = Vec::with_capacity(body.len() + 96);
    if wrapped {
        row.extend_from_slice(b"{\"current\":");
    }
    row.extend_from_slice(open);
    row.extend_from_slice(format!(",\"_lsn\":{lsn}}}").as_bytes());
    if wrapped {
        row.extend_from_slice(
            format!(",\"metadata\":{{\"lsn\":{lsn},\"crts\":{ts}}}}}").as_bytes(),
        );
    }
    row
}
