//! Compares the replicas of all shards: each says what is alive in it at one place in the log and at one time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;

use super::questions::Question;
use crate::{
    cluster::{NodeId, member::Member},
    router::RoutingTable,
    shard::{
        check::Outcome,
        host::{Leader, ShardHandle, group_of_range},
    },
};

/// How long replicas may take to come to the place in the log, and to be read.
const CHECK_TIME_MAX: Duration = Duration::from_secs(120);
/// How long it is tried to begin a check, while leaders change.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// What the replicas of a shard have said.
#[derive(Debug, Serialize)]
pub struct ShardCheck {
    pub container: String,
    pub range: u32,
    /// Whether all replicas have answered, and all the same.
    pub equal: bool,
    pub replicas: Vec<ReplicaCheck>,
}

#[derive(Debug, Serialize)]
pub struct ReplicaCheck {
    pub node: NodeId,
    pub lsn: Option<u64>,
    pub at: Option<i64>,
    pub items: Option<u64>,
    pub sha256: Option<String>,
    /// Why there is no digest.
    pub error: Option<String>,
}

/// Checks all shards, one after the other, so that no node reads more than one at a time.
pub async fn check(table: &RoutingTable, member: &Member) -> Vec<ShardCheck> {
    let mut checks = Vec::new();
    let members = member.group_members().await;
    let mut routes: Vec<_> = table.routes().collect();
    routes.sort_by(|one, other| one.name_path.cmp(&other.name_path));
    for route in routes {
        for shard in &route.shards {
            let group = group_of_range(shard.facts.container, shard.facts.range_id);
            let voters = members.get(&group).map(|members| members.voters.clone());
            // A shard that was just made is not known to many yet.
            let voters = voters.unwrap_or_else(|| {
                let mut ranges = route.container.ranges.iter();
                let range = ranges.find(|range| range.id == shard.facts.range_id);
                range.map_or_else(Vec::new, |range| range.replicas.clone())
            });
            let replicas = check_shard(shard, member, &voters).await;
            let first = replicas.first().and_then(|replica| replica.sha256.as_ref());
            let equal = first.is_some()
                && replicas
                    .iter()
                    .all(|replica| replica.sha256.as_ref() == first);
            checks.push(ShardCheck {
                container: route.name_path.to_string(),
                range: shard.facts.range_id,
                equal,
                replicas,
            });
        }
    }
    checks
}

/// Compares the replicas that have a say; one that is being filled has nothing to compare yet.
async fn check_shard(
    shard: &Arc<ShardHandle>,
    member: &Member,
    voters: &[NodeId],
) -> Vec<ReplicaCheck> {
    let number = rand::random();
    let begun = begin(shard, member, number).await;
    let deadline = Instant::now() + CHECK_TIME_MAX;
    let replicas = voters.iter().map(|&node| {
        let begun = begun.clone();
        async move {
            let outcome = match begun {
                Ok(()) => outcome(shard, member, node, number, deadline).await,
                Err(failure) => Outcome::Failed(failure),
            };
            let (digest, error) = match outcome {
                Outcome::Done(digest) => (Some(digest), None),
                Outcome::Failed(failure) => (None, Some(failure)),
                Outcome::Unknown | Outcome::Running => {
                    (None, Some("the node does not answer".to_owned()))
                }
            };
            ReplicaCheck {
                node,
                lsn: digest.as_ref().map(|digest| digest.lsn),
                at: digest.as_ref().map(|digest| digest.at),
                items: digest.as_ref().map(|digest| digest.items),
                sha256: digest.map(|digest| {
                    let digits = digest.sha256.iter().map(|byte| format!("{byte:02x}"));
                    digits.collect()
                }),
                error,
            }
        }
    });
    join_all(replicas).await
}

fn question(shard: &ShardHandle, number: u64, begin: bool) -> Question {
    let (container, range) = (shard.facts.container.to_text(), shard.facts.range_id);
    if begin {
        Question::BeginCheck {
            container,
            range,
            number,
        }
    } else {
        Question::Checked {
            container,
            range,
            number,
        }
    }
}

/// Has the leader commit the entry after which replicas are compared.
async fn begin(shard: &Arc<ShardHandle>, member: &Member, number: u64) -> Result<(), String> {
    let deadline = Instant::now() + BEGIN_TIME_MAX;
    loop {
        let begun = match shard.leader() {
            Some(Leader::Here) => shard
                .begin_check(number)
                .await
                .map_err(|failure| failure.message),
            Some(Leader::Remote(Some(node))) => {
                let answer = member
                    .request(node, question(shard, number, true).encode())
                    .await;
                let answer = answer.map_err(|_| format!("node {node} does not answer"));
                answer.and_then(|answer| {
                    let unreadable = |_| format!("node {node} answered garbage");
                    rmp_serde::from_slice::<Result<(), String>>(&answer).map_err(unreadable)?
                })
            }
            Some(Leader::Remote(None)) | None => Err("the shard has no leader".to_owned()),
        };
        if begun.is_ok() || Instant::now() > deadline {
            return begun;
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn outcome(
    shard: &Arc<ShardHandle>,
    member: &Member,
    node: NodeId,
    number: u64,
    deadline: Instant,
) -> Outcome {
    let unreached = Instant::now() + BEGIN_TIME_MAX;
    loop {
        let outcome = if node == member.node {
            shard.checked(number)
        } else {
            let answer = member
                .request(node, question(shard, number, false).encode())
                .await;
            answer
                .ok()
                .and_then(|answer| rmp_serde::from_slice(&answer).ok())
                .unwrap_or(Outcome::Unknown)
        };
        let patience = match &outcome {
            Outcome::Done(_) | Outcome::Failed(_) => return outcome,
            Outcome::Running => deadline,
            Outcome::Unknown => unreached,
        };
        let away = node != member.node && !member.is_connected(node);
        if away || Instant::now() > patience {
            return outcome;
        }
        tokio::time::sleep(POLL).await;
    }
}
