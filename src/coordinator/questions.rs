//! What coordinators ask each other.

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::shared::{has_all, is_in_force};
use crate::{
    model::{catalog::Container, error::Error, rid::ContainerRid},
    router::RoutingTable,
    shard::{check::Outcome, host::ShardHandle},
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

    pub async fn answer(&self, table: &RoutingTable) -> Bytes {
        match self {
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
                    None => Err(Error::elsewhere(None)),
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

fn shard<'a>(table: &'a RoutingTable, container: &str, range: u32) -> Option<&'a ShardHandle> {
    let rid = ContainerRid::parse(container)?;
    let mut routes = table.routes();
    let route = routes.find(|route| route.container.rid == rid)?;
    let mut shards = route.shards.iter();
    shards
        .find(|shard| shard.facts.range_id == range)
        .map(|shard| &**shard)
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
