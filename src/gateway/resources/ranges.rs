//! Partition key ranges.

use serde_json::{Value, json};

use super::catalog::list;
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response},
    },
    model::{charge, error::Result, item::EtagCondition, rid},
    router::ContainerRoute,
};

pub fn list_all(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    // The set of ranges changes only when one of them is split; that gives the highest ids.
    let ranges_made = container.container.ranges.iter().map(|range| range.id);
    let etag = format!(
        "\"{}-{}\"",
        container.rid_text.trim_end_matches('='),
        ranges_made.max().unwrap_or(0) + 1
    );
    let known = call
        .if_none_match()
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
        .header(Header::Etag, etag)
        .header(
            Header::AltContentPath,
            container.name_path.clone().into_bytes(),
        )
        .header(Header::ContentPath, container.rid_text.clone().into_bytes());
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
