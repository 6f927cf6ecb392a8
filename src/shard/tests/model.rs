//! A shard as the design describes it, in memory and without any cleverness: what every test history is compared with.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::bench::Want;

/// A container's `defaultTtl` or an item's `ttl`: absent, -1 or seconds.
pub type Ttl = Option<i64>;

/// An operation on one item, in a form that both the model and the shard can carry out.
#[derive(Clone, Debug)]
pub enum Step {
    Create(Body),
    Upsert(Body),
    Replace(Body),
    SetNumber(u8, i64),
    SetTtl(u8, i64),
    RemoveTtl(u8),
    Delete(u8),
    Read(u8),
}

/// What an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    pub id: u8,
    pub ttl: Ttl,
    /// The value under the unique key.
    pub email: u8,
    pub number: i64,
}

impl Body {
    pub fn to_json(self) -> Value {
        let mut body = json!({"id": name(self.id), "email": self.email, "number": self.number});
        if let Some(ttl) = self.ttl {
            body["ttl"] = ttl.into();
        }
        body
    }
}

pub fn name(id: u8) -> String {
    format!("item {id}")
}

impl Step {
    pub fn want(&self) -> Want {
        let patch = |id: u8, operation: Value| Want::Patch(name(id), json!([operation]));
        match *self {
            Self::Create(body) => Want::Create(body.to_json()),
            Self::Upsert(body) => Want::Upsert(body.to_json()),
            Self::Replace(body) => Want::Replace(body.to_json()),
            Self::SetNumber(id, number) => {
                patch(id, json!({"op": "set", "path": "/number", "value": number}))
            }
            Self::SetTtl(id, ttl) => patch(id, json!({"op": "set", "path": "/ttl", "value": ttl})),
            Self::RemoveTtl(id) => patch(id, json!({"op": "remove", "path": "/ttl"})),
            Self::Delete(id) => Want::Delete(name(id)),
            Self::Read(id) => Want::Read(name(id)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Version {
    pub body: Body,
    pub ts: i64,
    /// Its place in the order of changes.
    pub change: u64,
}

/// Every default that the container ever had, with the second since which it counts, oldest first.
#[derive(Clone, Debug)]
pub struct Defaults(Vec<(i64, Ttl)>);

impl Defaults {
    pub fn current(&self) -> Ttl {
        self.0.last().and_then(|(_, default)| *default)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// As it was after the first `len` of them.
    pub fn first(&self, len: usize) -> Self {
        Self(self.0[..len].to_vec())
    }

    /// Whether the version was expired at any second up to `now`: expiry is final.
    pub fn is_dead(&self, version: &Version, now: i64) -> bool {
        let ends = self.0.iter().skip(1).map(|(since, _)| *since).chain([now]);
        self.0.iter().zip(ends).any(|((_, default), end)| {
            let ttl = match (default, version.body.ttl) {
                (None, _) => None,
                (Some(_), Some(own)) => Some(own),
                (Some(default), None) => Some(*default),
            };
            ttl.is_some_and(|ttl| ttl != -1 && version.ts + ttl <= end.min(now))
        })
    }
}

#[derive(Clone, Debug)]
pub struct Model {
    pub items: BTreeMap<(u8, u8), Version>,
    pub defaults: Defaults,
    changes: u64,
}

impl Model {
    pub fn new(default: Ttl) -> Self {
        Self {
            items: BTreeMap::new(),
            defaults: Defaults(vec![(i64::MIN, default)]),
            changes: 0,
        }
    }

    pub fn live(&self, key: u8, id: u8, now: i64) -> Option<&Version> {
        self.items
            .get(&(key, id))
            .filter(|version| !self.defaults.is_dead(version, now))
    }

    pub fn set_default(&mut self, default: Ttl, now: i64) {
        if self.defaults.current() != default {
            self.defaults.0.push((now, default));
        }
    }

    /// The statuses that the operations must get; an atomic transaction ends at the first refusal and leaves nothing.
    pub fn perform(&mut self, key: u8, steps: &[Step], atomic: bool, now: i64) -> Vec<u16> {
        let before = self.clone();
        let mut statuses = Vec::new();
        for step in steps {
            let status = self.step(key, step, now);
            statuses.push(status);
            if atomic && status >= 400 {
                *self = before;
                break;
            }
        }
        statuses
    }

    fn step(&mut self, key: u8, step: &Step, now: i64) -> u16 {
        let found = |id: u8| self.live(key, id, now).map(|version| version.body);
        match *step {
            Step::Create(body) if found(body.id).is_some() => 409,
            Step::Create(body) => self.put(key, body, 201, now),
            Step::Upsert(body) => {
                let status = if found(body.id).is_some() { 200 } else { 201 };
                self.put(key, body, status, now)
            }
            Step::Replace(body) => match found(body.id) {
                Some(_) => self.put(key, body, 200, now),
                None => 404,
            },
            Step::SetNumber(id, number) => match found(id) {
                Some(body) => self.put(key, Body { number, ..body }, 200, now),
                None => 404,
            },
            Step::SetTtl(id, ttl) => match found(id) {
                Some(body) => self.put(
                    key,
                    Body {
                        ttl: Some(ttl),
                        ..body
                    },
                    200,
                    now,
                ),
                None => 404,
            },
            Step::RemoveTtl(id) => match found(id) {
                Some(body) if body.ttl.is_some() => {
                    self.put(key, Body { ttl: None, ..body }, 200, now)
                }
                // There is nothing to remove.
                Some(_) => 400,
                None => 404,
            },
            Step::Delete(id) => match found(id) {
                Some(_) => {
                    self.items.remove(&(key, id));
                    204
                }
                None => 404,
            },
            Step::Read(id) => found(id).map_or(404, |_| 200),
        }
    }

    fn put(&mut self, key: u8, body: Body, status: u16, now: i64) -> u16 {
        let taken = self.items.iter().any(|((k, id), other)| {
            *k == key
                && *id != body.id
                && other.body.email == body.email
                && !self.defaults.is_dead(other, now)
        });
        if taken {
            return 409;
        }
        self.changes += 1;
        self.items.insert(
            (key, body.id),
            Version {
                body,
                ts: now,
                change: self.changes,
            },
        );
        status
    }
}
