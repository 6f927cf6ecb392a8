//! Point operations on items.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;

use super::consistency;
use crate::{
    gateway::{
        call::Call,
        protocol::{Header, Response, Target, body::Payload},
    },
    model::{
        charge,
        epk::Epk,
        error::{Error, ErrorKind, Result},
        partition_key::{self, PartitionKey},
        patch::Patch,
        rid,
    },
    router::{
        Answer, ContainerRoute, Router,
        actor::{ChangeItems, ContainerScope, PageBounds, ReadItem, ReadPage, off_the_event_loop},
        session::Served,
    },
    shard::{
        guard::Guard,
        host::{Changes, Leader},
        transaction::{self, Action, Done, Draft, Operation},
    },
};

/// Items that a delete by partition key takes at a time.
const PARTITION_DELETE_PAGE: PageBounds = PageBounds {
    items_max: 100,
    bytes_max: 4 * 1024 * 1024,
};

pub async fn read(call: &Call<'_>, db: &str, coll: &str, id: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    admit(call, &container)?;
    let key = partition_key(call, &container)?;
    let place = place(&container, &key);
    let shard = || Ok(vec![Arc::clone(container.shard_of(&place)?)]);
    let readable = consistency::await_readable(call, &container, shard).await?;
    let id = match container.id == coll {
        true => Cow::Borrowed(id),
        false => match Box::pin(addressed_id(&container, &place, coll, id)).await {
            Ok(id) => id,
            Err(error) => {
                readable.settle().await?;
                return Err(error);
            }
        },
    };
    let request = ReadItem {
        container: &container,
        place,
        id: &id,
        if_none_match: call.if_none_match(),
        session: call.session()?,
    };
    // Requests that other connections have sent meanwhile are taken in first, so that their answers can leave together.
    tokio::task::yield_now().await;
    let Answer { value, served } = Router::read(&request)?;
    readable.settle().await?;
    call.watch
        .hands_out(value.as_ref().ok().and_then(|done| done.due));
    Ok(answer(call, &container, value, &served, false))
}

/// Creates an item or, when `upsert` says so, replaces the one that is there.
pub async fn create(
    call: &Call<'_>,
    Target { db, coll }: Target<'_>,
    upsert: bool,
    payload: Payload,
) -> Result<Response> {
    let container = call.container(db, coll)?;
    call.check_content_type()?;
    let body = call.read(payload).await?;
    let (key, draft) = drafted(call, &container, &body)?;
    let id = draft.item.id.clone();
    let action = if upsert {
        Action::Upsert(draft)
    } else {
        Action::Create(draft)
    };
    change(call, &container, &key, id, action, body.len()).await
}

/// Makes the draft of an item, and tells its partition key. The values of its body, which may take
/// many times its bytes, are gone when this returns: before the request waits for anything.
fn drafted(
    call: &Call<'_>,
    container: &ContainerRoute,
    body: &[u8],
) -> Result<(PartitionKey, Draft)> {
    let object = call.parse_object(body)?;
    let key = agreed_key(call, container, &object)?;
    let draft = transaction::draft(
        &object,
        &container.container.definition.unique_keys,
        container.indexer.as_ref(),
    )?;
    Ok((key, draft))
}

pub async fn replace(
    call: &Call<'_>,
    db: &str,
    coll: &str,
    id: &str,
    payload: Payload,
) -> Result<Response> {
    let container = call.container(db, coll)?;
    call.check_content_type()?;
    let body = call.read(payload).await?;
    let (key, draft) = drafted(call, &container, &body)?;
    let id = addressed_id(&container, &place(&container, &key), coll, id).await?;
    change(
        call,
        &container,
        &key,
        id.into_owned(),
        Action::Replace(draft),
        body.len(),
    )
    .await
}

pub async fn patch(
    call: &Call<'_>,
    db: &str,
    coll: &str,
    id: &str,
    payload: Payload,
) -> Result<Response> {
    let container = call.container(db, coll)?;
    let key = partition_key(call, &container)?;
    call.check_content_type()?;
    let body = call.read(payload).await?;
    let action = patch_action(Patch::from_value(call.parse_value(&body)?)?)?;
    let id = addressed_id(&container, &place(&container, &key), coll, id).await?;
    change(call, &container, &key, id.into_owned(), action, body.len()).await
}

pub fn patch_action(patch: Patch) -> Result<Action> {
    let guard = patch.condition.as_deref().map(Guard::parse).transpose()?;
    let guard = guard.map(Box::new);
    Ok(Action::Patch { patch, guard })
}

pub async fn delete(call: &Call<'_>, db: &str, coll: &str, id: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    let key = partition_key(call, &container)?;
    let id = addressed_id(&container, &place(&container, &key), coll, id).await?;
    change(call, &container, &key, id.into_owned(), Action::Delete, 0).await
}

/// The id of the item that a path means. In a path by resource ids, as `_self` has it, the item is named by its resource id too.
async fn addressed_id<'a>(
    container: &Arc<ContainerRoute>,
    place: &Epk,
    coll: &str,
    id: &'a str,
) -> Result<Cow<'a, str>> {
    if container.id == coll {
        return Ok(Cow::Borrowed(id));
    }
    let Some((_, ordinal)) =
        rid::parse_item_rid(id).filter(|(owner, _)| *owner == container.container.rid)
    else {
        return Ok(Cow::Borrowed(id));
    };
    let (container, place) = (Arc::clone(container), place.clone());
    let found = off_the_event_loop(move || {
        let shard = container.shard_of(&place)?;
        shard.view()?.id_of(&place, ordinal)
    })
    .await?;
    found
        .map(Cow::Owned)
        .ok_or_else(|| transaction::missing(id))
}

/// Deletes every item of one partition key before it answers.
pub async fn delete_partition(call: &Call<'_>, db: &str, coll: &str) -> Result<Response> {
    let container = call.container(db, coll)?;
    let key = partition_key(call, &container)?;
    let place = place(&container, &key);
    // A replica that is behind would not see all that there is to delete.
    if let Some(Leader::Remote(leader)) = container.shard_of(&place)?.leader() {
        return Err(Error::not_leader(leader));
    }
    let scope = ContainerScope {
        keys: crate::model::epk::EpkRange::point(place.clone()),
        range_id: None,
    };
    let mut charge = 0.0;
    loop {
        let page = ReadPage {
            container: Arc::clone(&container),
            scope: scope.clone(),
            continuation: None,
            bounds: PARTITION_DELETE_PAGE,
            session: None,
        };
        let Answer {
            value: page,
            served,
        } = call.worker.router.send(page).await.map_err(gone)??;
        if page.items.is_empty() && page.continuation.is_none() {
            let mut response = Response::empty(200, charge);
            response.served_by(&container, &served);
            return Ok(response);
        }
        let mut operations = Vec::with_capacity(page.items.len());
        for item in &page.items {
            operations.push(Operation {
                id: stored_id(item.stored.body())?,
                action: Action::Delete,
                if_match: None,
                if_none_match: None,
            });
        }
        let changes = ChangeItems {
            container: &container,
            place: place.clone(),
            changes: Changes {
                operations,
                atomic: false,
                bytes: 0,
                answer: None,
            },
        };
        let Answer { value: results, .. } = Router::change(changes).await?;
        charge = charge::sum(
            results
                .iter()
                .flatten()
                .map(|done| done.charge)
                .chain([charge]),
        );
    }
}

fn stored_id(body: &[u8]) -> Result<String> {
    #[derive(serde::Deserialize)]
    struct Identity {
        id: String,
    }
    let identity: Identity =
        serde_json::from_slice(body).map_err(|_| Error::internal("a stored item has no id"))?;
    Ok(identity.id)
}

async fn change(
    call: &Call<'_>,
    container: &Arc<ContainerRoute>,
    key: &PartitionKey,
    id: String,
    action: Action,
    bytes: usize,
) -> Result<Response> {
    refuse_triggers(call)?;
    admit(call, container)?;
    let operation = Operation {
        id,
        action,
        if_match: call.if_match(),
        if_none_match: call.if_none_match(),
    };
    let request = ChangeItems {
        container,
        place: place(container, key),
        changes: Changes {
            operations: vec![operation],
            atomic: true,
            bytes,
            answer: None,
        },
    };
    let Answer { mut value, served } = Router::change(request).await?;
    let result = value
        .pop()
        .unwrap_or_else(|| Err(Error::internal("an operation has no result")));
    Ok(answer(
        call,
        container,
        result,
        &served,
        call.wants_minimal(),
    ))
}

/// The answer to one operation; errors carry the session token too.
fn answer(
    call: &Call<'_>,
    container: &ContainerRoute,
    result: Result<Done>,
    served: &Served,
    minimal: bool,
) -> Response {
    let mut response = match result {
        Ok(done) => {
            let body = done.body.filter(|_| !minimal).unwrap_or_default();
            let mut response = Response::new(done.status, body, done.charge);
            if let Some(etag) = done.etag {
                response.header(Header::Etag, Bytes::copy_from_slice(&etag.text()));
            }
            response
        }
        Err(error) => Response::error(&error, call.activity),
    };
    container.budget.spend(response.charge);
    response.served_by(container, served);
    response
}

/// The partition key that the request names, with all its levels.
pub fn partition_key(call: &Call<'_>, container: &ContainerRoute) -> Result<PartitionKey> {
    let header = call.header(Header::PartitionKey).ok_or_else(|| {
        Error::bad_request(format!(
            "the header x-ms-documentdb-partitionkey is missing: an item of '{}' is found by its id and its partition key",
            container.name_path
        ))
    })?;
    container
        .container
        .definition
        .partition_key
        .complete(PartitionKey::parse_header(header)?)
}

/// The partition key of an item, on which body and header agree.
fn agreed_key(
    call: &Call<'_>,
    container: &ContainerRoute,
    object: &serde_json::Map<String, serde_json::Value>,
) -> Result<PartitionKey> {
    let header = partition_key(call, container)?;
    check_key(container, object, &header)?;
    Ok(header)
}

pub fn check_key(
    container: &ContainerRoute,
    object: &serde_json::Map<String, serde_json::Value>,
    key: &PartitionKey,
) -> Result<()> {
    if container
        .container
        .definition
        .partition_key
        .extract(object)?
        == *key
    {
        Ok(())
    } else {
        Err(partition_key::mismatch())
    }
}

/// Where the items of a partition key are kept.
pub fn place(container: &ContainerRoute, key: &PartitionKey) -> Epk {
    container.container.definition.partition_key.place(key)
}

/// Lets a request in if the container's throughput allows it.
pub fn admit(call: &Call<'_>, container: &ContainerRoute) -> Result<()> {
    container.budget.admit(call.worker.shared.clock.now())
}

fn refuse_triggers(call: &Call<'_>) -> Result<()> {
    let named = [Header::PreTrigger, Header::PostTrigger]
        .into_iter()
        .find(|header| call.has(*header));
    match named {
        None => Ok(()),
        Some(header) => Err(Error::new(
            ErrorKind::NotImplemented,
            format!(
                "triggers are not offered; the header {} must be left out",
                header.name()
            ),
        )),
    }
}

pub fn gone(_: actix::MailboxError) -> Error {
    Error::unavailable("the node is stopping")
}
