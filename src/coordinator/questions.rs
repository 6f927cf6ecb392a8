//! What coordinators ask each other.

use actix::Addr;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Coordinator,
    cluster_split::middle_here,
    shared::{has_all, is_in_force},
    split::{SplitShard, splittable_bytes},
};
use crate::{
    model::{
        catalog::{Container, no_range},
        error::{Error, ErrorKind, Result},
        rid::ContainerRid,
    },
    router::{ContainerRoute, RoutingTable},
    shard::{
        check::Outcome,
        host::{Leader, ShardHandle},
    },
};

/// Begins a question of this kind; no MessagePack does, so requests that are sent on are something else.
const MARK: u8 = 0xc1;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Whether the time to live of a container, or `whole` all that shards are told of it, is on this node as the catalog of a version, or a later one, says.
    InForce {
        container: String,
        version: u64,
        whole: bool,
    },
    /// Has the leader of a shard begin a check of its replicas.
    BeginCheck {
        container: String,
        range: u32,
        number: u64,
    },
    /// What a check has found.
    Checked {
        container: String,
        range: u32,
        number: u64,
    },
    /// Where a shard, which is led there, is to be cut.
    Middle { container: String, range: u32 },
    /// Whether a node has the parts that a shard was cut into.
    Parted { container: String, range: u32 },
    /// The bytes of the shards that a node leads.
    Sizes,
    /// Has the leader of the catalog split a shard.
    Split {
        database: String,
        container: String,
        range: Option<u32>,
    },
}

impl Question {
    pub fn encode(&self) -> Bytes {
        let body = rmp_serde::to_vec(self).expect("an enum of texts has a MessagePack form");
        let mut bytes = BytesMut::with_capacity(1 + body.len());
        bytes.put_u8(MARK);
        bytes.put_slice(&body);
        bytes.freeze()
    }

    /// `None`: it is not one of these.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (mark, body) = bytes.split_first()?;
        (*mark == MARK).then(|| rmp_serde::from_slice(body).ok())?
    }

    pub async fn answer(&self, table: &RoutingTable, coordinator: &Addr<Coordinator>) -> Bytes {
        match self {
            Self::Middle { container, range } => {
                let middle = match shard_of(table, container, *range) {
                    Some((route, shard)) => {
                        let definition = route.container.definition.partition_key.clone();
                        middle_here(shard, definition).await
                    }
                    None => Err(no_range(*range)),
                };
                encode_answer(middle)
            }
            Self::Parted { .. } => encode(&self.parted(table)),
            Self::Sizes => encode(&sizes(table)),
            Self::Split {
                database,
                container,
                range,
            } => {
                let request = SplitShard {
                    database: database.clone(),
                    container: container.clone(),
                    range_id: *range,
                };
                let gone = |_| Error::unavailable("the node is stopping");
                let done = coordinator.send(request).await.map_err(gone);
                encode_answer(done.flatten())
            }
            Self::InForce {
                container,
                version,
                whole,
            } => {
                let is_done = |shard: &ShardHandle, container: &Container| match *whole {
                    true => shard.remote().is_some() || has_all(shard, container),
                    false => is_in_force(shard, container),
                };
                let rid = ContainerRid::parse(container);
                let mut routes = table.routes();
                let route = routes.find(|route| Some(route.container.rid) == rid);
                let in_force = table.catalog.version >= *version
                    && route.is_none_or(|route| {
                        let shards = route.shards.iter();
                        shards.fold(true, |all, shard| all & is_done(shard, &route.container))
                    });
                encode(&in_force)
            }
            Self::BeginCheck {
                container,
                range,
                number,
            } => {
                let begun = match shard(table, container, *range) {
                    Some(shard) => shard.begin_check(*number).await,
                    None => Err(Error::not_leader(None)),
                };
                encode(&begun.map_err(|failure| failure.message))
            }
            Self::Checked {
                container,
                range,
                number,
            } => {
                let shard = shard(table, container, *range);
                encode(&shard.map_or(Outcome::Unknown, |shard| shard.checked(*number)))
            }
        }
    }
}

impl Question {
    /// Whether this node has the parts of the shard in question, or the catalog, as it knows it, names them already.
    pub(super) fn parted(&self, table: &RoutingTable) -> bool {
        let Self::Parted { container, range } = self else {
            return false;
        };
        match shard_of(table, container, *range) {
            Some((_, shard)) => !shard.parts().is_empty(),
            None => table.routes().any(|route| {
                Some(route.container.rid) == ContainerRid::parse(container)
                    && route.container.highest_range() > *range
            }),
        }
    }
}

fn shard_of<'a>(
    table: &'a RoutingTable,
    container: &str,
    range: u32,
) -> Option<(&'a ContainerRoute, &'a ShardHandle)> {
    let rid = ContainerRid::parse(container)?;
    let mut routes = table.routes();
    let route = routes.find(|route| route.container.rid == rid)?;
    let mut shards = route.shards.iter();
    let shard = shards.find(|shard| shard.facts.range_id == range)?;
    Some((route, shard))
}

fn shard<'a>(table: &'a RoutingTable, container: &str, range: u32) -> Option<&'a ShardHandle> {
    shard_of(table, container, range).map(|(_, shard)| shard)
}

/// The bytes of a shard by its container and range.
pub type Sizes = Vec<(String, u32, u64)>;

fn sizes(table: &RoutingTable) -> Sizes {
    let shards = table.routes().flat_map(|route| &route.shards);
    let led = shards.filter(|shard| shard.leader() == Some(Leader::Here));
    led.filter_map(|shard| {
        let container = shard.facts.container.to_text();
        Some((container, shard.facts.range_id, splittable_bytes(shard)?))
    })
    .collect()
}

/// What a node answers that may refuse: the status and the message then.
type Answered<T> = std::result::Result<T, (u16, String)>;

fn encode_answer<T: Serialize>(answer: Result<T>) -> Bytes {
    let answered: Answered<T> = answer.map_err(|error| (error.status(), error.message));
    encode(&answered)
}

/// Reads an answer that may be a refusal.
pub fn decode_answer<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let answered: Answered<T> = rmp_serde::from_slice(bytes)
        .map_err(|failure| Error::internal(format!("a node answered garbage: {failure}")))?;
    answered.map_err(|(status, message)| {
        let kind = match status {
            400 => ErrorKind::BadRequest,
            404 => ErrorKind::NotFound,
            409 => ErrorKind::Conflict,
            507 => ErrorKind::InsufficientStorage,
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, message)
    })
}

fn encode(answer: &impl Serialize) -> Bytes {
    rmp_serde::to_vec(answer)
        .expect("numbers and texts have a MessagePack form")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_arrive_as_they_were_asked_and_nothing_else_is_taken_for_one() {
        let question = Question::InForce {
            container: "abc".to_owned(),
            version: 7,
            whole: true,
        };
        assert_eq!(Question::decode(&question.encode()), Some(question));
        assert_eq!(Question::decode(&[]), None);
        assert_eq!(Question::decode(&[MARK, 1, 2]), None);
        let request = rmp_serde::to_vec(&("GET", "/", 1, 2)).unwrap();
        assert_eq!(Question::decode(&request), None);
    }
}
