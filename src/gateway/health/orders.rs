//! The orders that the health port takes. Each goes through one guard: see [`answer`].

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{Asked, Health, Running, Told, node_orders, order_auth::Permit};
use crate::{
    cluster::NodeId,
    coordinator::{
        check,
        questions::{self, Question},
        split::SplitShard,
    },
    model::{
        error::{Error, ErrorKind, Result},
        json::shorten,
    },
};

/// How long an order to split waits for the catalog to have a leader.
const SPLIT_PATIENCE: Duration = Duration::from_secs(5);
const SPLIT_POLL: Duration = Duration::from_millis(20);

/// What can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Split,
    Drain,
    ConfirmClock,
    CheckCluster,
}

/// Every order with its verb and its path; `*` stands for any one segment.
const ORDERS: &[(&str, &str, Order)] = &[
    ("POST", "/split", Order::Split),
    ("POST", "/cluster/drain/*", Order::Drain),
    ("POST", "/clock/confirm", Order::ConfirmClock),
    // It changes nothing, but makes every node read all of its items.
    ("GET", "/cluster/check", Order::CheckCluster),
];

impl Order {
    fn at(verb: &str, path: &str) -> Result<Self> {
        let mut known = false;
        for (taken, pattern, order) in ORDERS {
            if matches(pattern, path) {
                if *taken == verb {
                    return Ok(*order);
                }
                known = true;
            }
        }
        let path = shorten(path);
        Err(match known {
            true => Error::new(
                ErrorKind::MethodNotAllowed,
                format!("'{path}' does not take the method {}", shorten(verb)),
            ),
            false => Error::not_found(format!("there is nothing at '{path}'")),
        })
    }
}

fn matches(pattern: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    pattern.split('/').all(|wanted| {
        segments
            .next()
            .is_some_and(|one| wanted == "*" || wanted == one)
    }) && segments.next().is_none()
}

/// Carries out the order that is asked for, if its sender may give it.
pub async fn answer(health: &Health, asked: &Asked<'_>) -> Told {
    let order = match Order::at(asked.verb, asked.path) {
        Ok(order) => order,
        Err(error) => return Told::error(&error),
    };
    let done = match health.orders.check(asked.verb, asked.path, &asked.sender) {
        Ok(permit) => carry_out(permit, health, order, asked).await,
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| Told::error(&error))
}

/// The permit is the proof that the guard was asked.
async fn carry_out(
    _permit: Permit,
    health: &Health,
    order: Order,
    asked: &Asked<'_>,
) -> Result<Told> {
    tracing::info!(?order, path = asked.path, query = asked.query, peer = ?asked.sender.peer, "took an order");
    match order {
        Order::Split => split(running(health)?, asked.query).await,
        Order::Drain => drain(running(health)?, asked.path).await,
        Order::ConfirmClock => Ok(confirm_clock(health)),
        Order::CheckCluster => check_cluster(running(health)?).await,
    }
}

fn running(health: &Health) -> Result<&Running> {
    health.running().ok_or_else(super::starting)
}

/// The value of a parameter of the query.
fn parameter(query: &str, name: &str) -> Option<String> {
    form_urlencoded::parse(query.as_bytes())
        .find(|(found, _)| found == name)
        .map(|(_, value)| value.into_owned())
}

/// Splits a shard, `?container=dbs/shop/colls/carts&range=0`; the range may be left out where there
/// is only one. Answers when its parts have taken over.
async fn split(node: &Running, query: &str) -> Result<Told> {
    let container = parameter(query, "container").ok_or_else(|| {
        Error::bad_request("the container is missing: ?container=dbs/DATABASE/colls/CONTAINER")
    })?;
    let (database, container) = names(&container)?;
    let range = parameter(query, "range").map(|range| {
        range.parse().map_err(|_| {
            Error::bad_request(format!("the range '{}' is not a number", shorten(&range)))
        })
    });
    let ranges = split_shard(node, &database, &container, range.transpose()?).await?;
    Ok(Told::json(200, &json!({"ranges": ranges})))
}

/// Has a shard split here or, where the catalog is led elsewhere, there.
async fn split_shard(
    node: &Running,
    database: &str,
    container: &str,
    range: Option<u32>,
) -> Result<Vec<u32>> {
    let deadline = Instant::now() + SPLIT_PATIENCE;
    loop {
        let request = SplitShard {
            database: database.to_owned(),
            container: container.to_owned(),
            range_id: range,
        };
        let gone = |_| Error::unavailable("the node is stopping");
        let done = node.coordinator.send(request).await.map_err(gone)?;
        let (leader, error) = match done {
            Err(error) => match error.kind {
                ErrorKind::NotLeader(leader) => (leader, error),
                _ => return Err(error),
            },
            done => return done,
        };
        match (&node.cluster, leader) {
            (Some((member, _)), Some(leader)) if leader != member.node => {
                let question = Question::Split {
                    database: database.to_owned(),
                    container: container.to_owned(),
                    range,
                };
                let answer = member.request(leader, question.encode()).await;
                if let Ok(answer) = answer {
                    return questions::decode_answer(&answer);
                }
                return Err(Error::unavailable(format!(
                    "node {leader}, which leads the catalog, does not answer; whether the shard is being split is not known"
                )));
            }
            _ if Instant::now() > deadline => return Err(error),
            // There is no leader for a moment.
            _ => tokio::time::sleep(SPLIT_POLL).await,
        }
    }
}

/// Begins to take a node out of the cluster.
async fn drain(node: &Running, path: &str) -> Result<Told> {
    let number = path.rsplit('/').next().unwrap_or_default();
    let drained: NodeId = number.parse().map_err(|_| {
        Error::bad_request(format!("'{}' is not the number of a node", shorten(number)))
    })?;
    let Some((member, _)) = &node.cluster else {
        return Err(Error::bad_request("this node is on its own"));
    };
    let given = node_orders::give(
        member,
        &node.coordinator,
        node_orders::Order::Drain(drained),
    )
    .await;
    Ok(match given {
        Ok(_) => Told::json(202, &json!({"draining": true})),
        Err((status, message)) => Told::json(status, &json!({"error": message})),
    })
}

/// Database and container of a path by names.
fn names(path: &str) -> Result<(String, String)> {
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["dbs", database, "colls", container] => {
            Ok(((*database).to_owned(), (*container).to_owned()))
        }
        _ => Err(Error::bad_request(format!(
            "'{}' is no container: dbs/DATABASE/colls/CONTAINER is expected",
            shorten(path)
        ))),
    }
}

/// Compares what is alive in all replicas of all shards.
async fn check_cluster(node: &Running) -> Result<Told> {
    let Some((member, _)) = &node.cluster else {
        return Err(Error::not_found("this node is on its own"));
    };
    let shards = check::check(&node.table.load_full(), member).await;
    let equal = shards.iter().all(|shard| shard.equal);
    Ok(Told::json(200, &json!({"equal": equal, "shards": shards})))
}

/// Confirms that a jump of the clock is right.
fn confirm_clock(health: &Health) -> Told {
    let clock = health.clock.clock();
    clock.confirm();
    Told::json(200, &json!({"purgingPaused": clock.purging_paused()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_found_by_verb_and_path() {
        for (verb, pattern, order) in ORDERS {
            let path = pattern.replace('*', "3");
            assert_eq!(Order::at(verb, &path), Ok(*order));
            assert_eq!(Order::at("BREW", &path).unwrap_err().status(), 405);
            let longer = format!("{path}/x");
            assert_eq!(Order::at(verb, &longer).unwrap_err().status(), 404);
        }
        for path in [
            "",
            "/",
            "/cluster",
            "/cluster/drain",
            "/nothing-here",
            "split",
        ] {
            assert_eq!(Order::at("POST", path).unwrap_err().status(), 404, "{path}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = "container=dbs%2Fa+b%2Fcolls%2Fc&range=7";
        assert_eq!(parameter(query, "container").unwrap(), "dbs/a b/colls/c");
        assert_eq!(parameter(query, "range").unwrap(), "7");
        assert_eq!(parameter(query, "rang"), None);
    }
}
