//! What a request asks for, by its path, its verb and its headers.

use actix_http::{HttpMessage as _, Request};

use super::{headers, query, request::flag, resource_path::ResourcePath};
use crate::telemetry::labels::Operation;

pub fn operation(request: &Request, path: &ResourcePath<'_>) -> Operation {
    use ResourcePath as P;
    match (path, request.method().as_str()) {
        (P::Item { .. }, "GET") => Operation::Read,
        (P::Item { .. }, "PUT") => Operation::Replace,
        (P::Item { .. }, "PATCH") => Operation::Patch,
        (P::Item { .. }, "DELETE") => Operation::Delete,
        (P::Items { .. }, "POST") => posted(request),
        (P::Items { .. }, "GET") if request.headers().contains_key(&headers::A_IM) => {
            Operation::ChangeFeed
        }
        (P::Items { .. }, "GET") => Operation::ReadFeed,
        (P::PartitionKeyDelete { .. }, "POST") => Operation::DeletePartition,
        (P::Unknown { .. }, _) => Operation::Unknown,
        (_, "GET") => Operation::CatalogRead,
        (_, "POST") if query::is_query(request) => Operation::CatalogRead,
        (_, "POST" | "PUT" | "DELETE") => Operation::CatalogWrite,
        _ => Operation::Unknown,
    }
}

/// `POST …/docs` is five requests in one; the order of the questions is the protocol's.
fn posted(request: &Request) -> Operation {
    if flag(request, &headers::QUERY_PLAN) {
        Operation::QueryPlan
    } else if flag(request, &headers::BATCH_REQUEST) {
        Operation::Batch
    } else if query::is_query(request) {
        Operation::Query
    } else if flag(request, &headers::IS_UPSERT) {
        Operation::Upsert
    } else {
        Operation::Create
    }
}
