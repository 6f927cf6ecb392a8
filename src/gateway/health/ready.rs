//! Whether the node should be sent requests, and which of its shards cannot serve.

use serde_json::{Value, json};

use super::{Health, Running};
use crate::{
    shard::{
        host::{Leader, ShardHandle},
        view::Shortage,
    },
    telemetry::labels::ShardCondition,
};

/// Why a node is ready or not; the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Stopping,
    /// Shards are being opened, or the node is on its way into its cluster.
    Starting,
    /// The cluster has taken the node off its list.
    Drained,
    /// The node has not heard from a majority of the catalog's group for a while.
    NoQuorum,
    /// There are shards here, and none of them can serve.
    NoShard,
    /// Some shards here cannot serve. Still ready, unless the question is strict.
    Degraded,
    Ready,
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Starting => "starting",
            Self::Drained => "drained",
            Self::NoQuorum => "no_quorum",
            Self::NoShard => "no_shard",
            Self::Degraded => "degraded",
            Self::Ready => "ready",
        }
    }

    const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Stopping => Some("the node is stopping"),
            Self::Starting => Some("the node is starting"),
            Self::Drained => Some("the node was taken out of its cluster"),
            Self::NoQuorum => Some(
                "the node does not hear from a majority of the nodes that keep the catalog, or has not caught up with them",
            ),
            Self::NoShard => Some("no shard of this node can serve"),
            Self::Degraded => Some("some shards of this node cannot serve"),
            Self::Ready => None,
        }
    }

    pub const fn is_ready(self, strict: bool) -> bool {
        match self {
            Self::Stopping | Self::Starting | Self::Drained | Self::NoQuorum | Self::NoShard => {
                false
            }
            Self::Degraded => !strict,
            Self::Ready => true,
        }
    }
}

/// What readiness is decided from.
#[derive(Clone, Copy, Debug)]
struct Facts {
    stopping: bool,
    started: bool,
    drained: bool,
    quorum: bool,
    shards: usize,
    broken: usize,
}

impl Facts {
    const fn state(self) -> State {
        if self.stopping {
            State::Stopping
        } else if !self.started {
            State::Starting
        } else if self.drained {
            State::Drained
        } else if !self.quorum {
            State::NoQuorum
        } else if self.broken == 0 {
            State::Ready
        } else if self.broken == self.shards {
            State::NoShard
        } else {
            State::Degraded
        }
    }
}

/// A shard of this node that cannot serve.
#[derive(Debug)]
struct Broken {
    container: String,
    range: u32,
    condition: ShardCondition,
    reason: String,
}

/// How ready the node is.
pub struct Readiness {
    pub state: State,
    broken: Vec<Broken>,
    /// Shards that are opened behind the start of the node: requests wait for theirs.
    opening: usize,
}

impl Readiness {
    pub fn of(health: &Health) -> Self {
        let mut facts = Facts {
            stopping: health.is_stopping(),
            started: false,
            drained: false,
            quorum: true,
            shards: 0,
            broken: 0,
        };
        let mut broken = Vec::new();
        let mut opening = 0;
        if let Some(running) = health.running() {
            facts.started = true;
            opening = running.host.openings().left();
            facts.shards = find_broken(running, &mut broken);
            facts.broken = broken.len();
            if let Some((member, _)) = &running.cluster {
                let nodes = &running.table.load().catalog.nodes;
                facts.drained = !nodes.is_empty() && !nodes.contains_key(&member.node);
                facts.quorum = member.driver.lease().holds();
            }
        }
        Self {
            state: facts.state(),
            broken,
            opening,
        }
    }

    pub fn to_json(&self, strict: bool) -> Value {
        let broken = self.broken.iter().map(|shard| {
            json!({
                "container": shard.container,
                "range": shard.range,
                "state": shard.condition.text(),
                "reason": shard.reason,
            })
        });
        json!({
            "ready": self.state.is_ready(strict),
            "state": self.state.text(),
            "reason": self.state.reason(),
            "broken": broken.collect::<Vec<_>>(),
            "opening": self.opening,
        })
    }
}

/// Finds the shards of this node that cannot serve; returns how many shards it has.
fn find_broken(running: &Running, broken: &mut Vec<Broken>) -> usize {
    let table = running.table.load();
    let mut shards = 0;
    for route in table.routes() {
        for shard in route.shards.iter().filter(|one| one.remote().is_none()) {
            shards += 1;
            if let (condition, Some(reason)) = condition(shard) {
                broken.push(Broken {
                    container: route.name_path.to_string(),
                    range: shard.facts.range_id,
                    condition,
                    reason,
                });
            }
        }
    }
    broken.sort_by(|a, b| (&a.container, a.range).cmp(&(&b.container, b.range)));
    shards
}

/// What a shard of this node can do, and why not more.
pub fn condition(shard: &ShardHandle) -> (ShardCondition, Option<String>) {
    if shard.is_opening() {
        return (ShardCondition::Opening, None);
    }
    let view = match shard.view() {
        Ok(view) => view,
        Err(error) => return (ShardCondition::Down, Some(error.message)),
    };
    if let Some(why) = shard.halted() {
        return (ShardCondition::Down, Some(why));
    }
    if let Err(error) = view.check_writable() {
        let condition = match view.poisoned() {
            Some(_) => ShardCondition::Poisoned,
            None if view.shortage() == Some(Shortage::Descriptors) => ShardCondition::NoDescriptors,
            None => ShardCondition::DiskFull,
        };
        return (condition, Some(error.message));
    }
    match shard.leader() {
        Some(Leader::Remote(None)) => {
            let why = "no node is known to lead the shard".to_owned();
            (ShardCondition::Leaderless, Some(why))
        }
        Some(Leader::Here | Leader::Remote(Some(_))) | None => (ShardCondition::Serving, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: Facts = Facts {
        stopping: false,
        started: true,
        drained: false,
        quorum: true,
        shards: 3,
        broken: 0,
    };

    #[test]
    fn the_node_is_ready_unless_something_speaks_against_it() {
        let table = [
            (FINE, State::Ready, [true, true]),
            (Facts { shards: 0, ..FINE }, State::Ready, [true, true]),
            (Facts { broken: 1, ..FINE }, State::Degraded, [true, false]),
            (Facts { broken: 3, ..FINE }, State::NoShard, [false; 2]),
            (
                Facts {
                    quorum: false,
                    ..FINE
                },
                State::NoQuorum,
                [false; 2],
            ),
            (
                Facts {
                    drained: true,
                    ..FINE
                },
                State::Drained,
                [false; 2],
            ),
            (
                Facts {
                    started: false,
                    ..FINE
                },
                State::Starting,
                [false; 2],
            ),
            (
                Facts {
                    stopping: true,
                    ..FINE
                },
                State::Stopping,
                [false; 2],
            ),
        ];
        for (facts, state, [plain, strict]) in table {
            assert_eq!(facts.state(), state, "{facts:?}");
            assert_eq!(state.is_ready(false), plain, "{facts:?}");
            assert_eq!(state.is_ready(true), strict, "{facts:?}");
            assert_eq!(state.reason().is_none(), state == State::Ready);
        }
    }

    #[test]
    fn the_first_reason_counts() {
        let worst = Facts {
            stopping: true,
            started: false,
            drained: true,
            quorum: false,
            shards: 1,
            broken: 1,
        };
        assert_eq!(worst.state(), State::Stopping);
        let away = Facts {
            drained: true,
            quorum: false,
            ..FINE
        };
        assert_eq!(away.state(), State::Drained);
    }
}
