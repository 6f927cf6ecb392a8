//! The resources of the protocol, one file each, and the way from an operation to its handler.

mod account;
mod batch;
mod batch_answer;
mod catalog;
mod conflicts;
mod consistency;
mod containers;
mod databases;
mod feeds;
mod items;
mod offers;
mod query;
mod ranges;

use std::slice;

use super::{
    call::Call,
    protocol::{Operation, Response, Target, body::Payload, resource_path::ResourcePath, rights},
};
use crate::{
    gateway::auth::AuthHeaders,
    model::error::{Error, ErrorKind, Result},
};

/// Returns the operation that a request asks for.
pub fn operation_of<'a>(call: &Call<'_>, path: &'a ResourcePath<'_>) -> Operation<'a> {
    Operation::of(call.head.verb(), path, |mark| call.is_marked(mark))
}

/// Decides what the request asks for, and whether it may: before anything of its body is read.
pub fn check<'a>(
    call: &Call<'_>,
    path: &'a ResourcePath<'_>,
    signature: &AuthHeaders<'_>,
) -> Result<Operation<'a>> {
    let operation = operation_of(call, path);
    call.watch.operation(operation.label());
    let shared = &call.worker.shared;
    let access = match &shared.authenticator {
        None => rights::Access::Full,
        Some(authenticator) => {
            let now = shared.clock.wall_seconds();
            authenticator.authenticate(call.head.verb(), path, signature, now)?
        }
    };
    call.check_version()?;
    rights::check(access, &operation)?;
    Ok(operation)
}

/// Reads the body of an operation that is allowed, and carries it out on this node.
pub async fn answer(
    call: &Call<'_>,
    operation: Operation<'_>,
    payload: Payload,
) -> Result<Response> {
    let payload = match payload {
        Payload::Whole(_) => payload,
        // Read even for a request that is refused (429, 404): a connection whose body is left unread
        // must be closed, and a client that still sends would lose the answer.
        Payload::Incoming(..) => Box::pin(call.read(payload)).await?.into(),
    };
    if call.worker.shared.openings.left() > 0 {
        Box::pin(open_first(call, &operation)).await?;
    }
    carry_out(call, operation, payload).await
}

/// Waits for shards that are opened behind the start of the node.
async fn open_first(call: &Call<'_>, operation: &Operation<'_>) -> Result<()> {
    let Some(Target { db, coll }) = operation.needs_shards_of() else {
        return Ok(());
    };
    let Ok(route) = call.table().container(db, coll).cloned() else {
        // What is missing is said by the operation itself.
        return Ok(());
    };
    let key = match operation.stays_within_key() {
        true => items::partition_key(call, &route).ok(),
        false => None,
    };
    let shards = match key {
        Some(key) => slice::from_ref(route.shard_of(&items::place(&route, &key))?),
        None => &route.shards,
    };
    call.worker.shared.openings.wait_for(shards).await
}

/// Carries the operation out. Neither path, verb nor headers are asked a second time what the
/// request is: what the rights were decided from is what is done.
pub async fn carry_out(
    call: &Call<'_>,
    operation: Operation<'_>,
    payload: Payload,
) -> Result<Response> {
    use Operation as O;
    // A future has the size of the largest that it waits for, and is moved when it is made. That of a point read stays small: the others are kept apart.
    match operation {
        O::ReadItem(Target { db, coll }, id) => items::read(call, db, coll, id).await,
        O::ReplaceItem(Target { db, coll }, id) => {
            Box::pin(items::replace(call, db, coll, id, payload)).await
        }
        O::PatchItem(Target { db, coll }, id) => {
            Box::pin(items::patch(call, db, coll, id, payload)).await
        }
        O::DeleteItem(Target { db, coll }, id) => Box::pin(items::delete(call, db, coll, id)).await,
        O::CreateItem(target) => Box::pin(items::create(call, target, false, payload)).await,
        O::UpsertItem(target) => Box::pin(items::create(call, target, true, payload)).await,
        O::Batch(Target { db, coll }) => Box::pin(batch::batch(call, db, coll, payload)).await,
        O::QueryItems(Target { db, coll }) => Box::pin(query::query(call, db, coll, payload)).await,
        O::PlanQuery(Target { db, coll }) => {
            Box::pin(query::sdk_plan(call, db, coll, payload)).await
        }
        O::ReadFeed(Target { db, coll }) => Box::pin(feeds::read(call, db, coll)).await,
        O::ReadChangeFeed(Target { db, coll }) => Box::pin(feeds::changes(call, db, coll)).await,
        O::DeletePartition(Target { db, coll }) => {
            Box::pin(items::delete_partition(call, db, coll)).await
        }
        O::ReadAccount => Ok(account::read(call)),
        O::ListDatabases => databases::list_all(call),
        O::QueryDatabases => Box::pin(databases::query_all(call, payload)).await,
        O::CreateDatabase => Box::pin(databases::create(call, payload)).await,
        O::ReadDatabase(db) => databases::read(call, db),
        O::DeleteDatabase(db) => Box::pin(databases::delete(call, db)).await,
        O::ListContainers(db) => containers::list_all(call, db),
        O::QueryContainers(db) => Box::pin(containers::query_all(call, db, payload)).await,
        O::CreateContainer(db) => Box::pin(containers::create(call, db, payload)).await,
        O::ReadContainer(Target { db, coll }) => containers::read(call, db, coll),
        O::ReplaceContainer(Target { db, coll }) => {
            Box::pin(containers::replace(call, db, coll, payload)).await
        }
        O::DeleteContainer(Target { db, coll }) => {
            Box::pin(containers::delete(call, db, coll)).await
        }
        O::ListRanges(Target { db, coll }) => ranges::list_all(call, db, coll),
        O::ListOffers => offers::list_all(call),
        O::QueryOffers => Box::pin(offers::query_all(call, payload)).await,
        O::ReadOffer(rid) => offers::read(call, rid),
        O::ReplaceOffer(rid) => Box::pin(offers::replace(call, rid, payload)).await,
        O::ListConflicts(Target { db, coll }) => conflicts::list_all(call, db, coll),
        O::QueryConflicts(Target { db, coll }) => conflicts::query_all(call, db, coll),
        O::ReadConflict(Target { db, coll }, id) | O::DeleteConflict(Target { db, coll }, id) => {
            conflicts::missing(call, db, coll, id)
        }
        O::Missing(path) => Err(Error::not_found(format!(
            "there is no resource at the path '{path}'"
        ))),
        O::Unsupported => Err(Error::new(
            ErrorKind::NotImplemented,
            format!(
                "'{}' is not offered: Bolide has no server-side scripts, users and permissions",
                call.head.path()
            ),
        )),
        O::WrongVerb => Err(Error::new(
            ErrorKind::MethodNotAllowed,
            format!(
                "the path '{}' does not take the method {}",
                call.head.path(),
                call.head.verb()
            ),
        )),
    }
}
