//! Decides operations on items: exists? expired? etag? unique key? What is allowed becomes changes
//! of one command.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{guard::Guard, weight::Weight};
use crate::{
    expiry::ExpiryRules,
    index::{DraftTerms, Indexer},
    model::{
        charge,
        epk::Epk,
        error::{Error, ErrorKind, Result},
        item::{self, Etag, EtagCondition, NewItem},
        json,
        patch::Patch,
        path::PropertyPath,
        rid,
    },
    shard::state::{
        command::{Change, Superseded},
        facts::ShardFacts,
        indexing::{Indexing, Version},
        overlay::Overlay,
    },
    store::{
        Engine, EngineError,
        document::{self, Header, Stored, VersionRef},
        keys::{self, Position},
    },
};

/// One operation on one item.
#[derive(Debug)]
pub struct Operation {
    pub id: String,
    pub action: Action,
    pub if_match: Option<EtagCondition>,
    pub if_none_match: Option<EtagCondition>,
}

#[derive(Debug)]
pub enum Action {
    Create(Draft),
    Upsert(Draft),
    Replace(Draft),
    Patch {
        patch: Patch,
        guard: Option<Box<Guard>>,
    },
    Delete,
    Read,
}

/// An item as the client wants it, with what its container's policies make of it.
#[derive(Debug)]
pub struct Draft {
    pub item: NewItem,
    pub fingerprints: Vec<[u8; 32]>,
    /// Its terms under the container's policy as the maker of the draft knew it, with that policy's
    /// fingerprint.
    pub terms: Option<(u64, DraftTerms)>,
}

/// What became of an operation.
#[derive(Clone, Debug)]
pub struct Done {
    pub status: u16,
    pub etag: Option<Etag>,
    /// The item as stored; absent after a delete and for "not modified".
    pub body: Option<Bytes>,
    pub charge: f64,
    /// When the item that was read expires, as far as readers are told.
    pub due: Option<i64>,
}

/// A transaction being decided. Its changes are visible to its own later operations, and to nobody
/// else until it is staged. One that an operation has failed in is dropped whole.
pub struct Transaction<'a> {
    pub facts: &'a ShardFacts,
    pub engine: &'a Engine,
    pub overlay: &'a Overlay,
    pub rules: &'a ExpiryRules,
    pub lsn: u64,
    /// The time of the transaction: `_ts` of what it writes, and the time of its expiry checks.
    pub ts: i64,
    pub next_ordinal: u64,
    /// Where the items of its partition key are kept.
    pub place: &'a Epk,
    pub indexing: Indexing<'a>,
    pub changes: Vec<Change>,
    /// Values of engine keys that the changes so far have set, newest last.
    pub writes: Vec<(Bytes, Option<Bytes>)>,
    pub weight: Weight,
    /// What conditions of patches may take of the actor's thread.
    pub condition_steps_left: u64,
}

/// A document as it stands before an operation.
struct Current {
    key: Bytes,
    /// What the client may see of it.
    live: Option<Stored<Bytes>>,
    /// What must go when it is written over, expired or not.
    superseded: Option<Superseded>,
}

impl Current {
    /// Returns the bytes of what is stored.
    fn bytes(&self) -> usize {
        let stored = self.superseded.as_ref();
        stored.map_or(0, |version| version.size as usize)
    }
}

impl Transaction<'_> {
    pub fn perform(&mut self, operation: Operation) -> Result<Done> {
        let current = self.current(&operation.id)?;
        self.weight.add_touched(current.bytes())?;
        match operation.action {
            Action::Create(draft) => match current.live {
                Some(_) => Err(taken(&operation.id)),
                None => self.put(current, draft, 201),
            },
            Action::Upsert(draft) => {
                if let Some(live) = &current.live {
                    check_preconditions(
                        live,
                        operation.if_match.as_ref(),
                        operation.if_none_match.as_ref(),
                    )?;
                }
                let status = if current.live.is_some() { 200 } else { 201 };
                self.put(current, draft, status)
            }
            Action::Replace(draft) => {
                let live = current
                    .live
                    .as_ref()
                    .ok_or_else(|| missing(&operation.id))?;
                check_preconditions(
                    live,
                    operation.if_match.as_ref(),
                    operation.if_none_match.as_ref(),
                )?;
                if draft.item.id == operation.id {
                    self.put(current, draft, 200)
                } else {
                    self.rename(current, draft)
                }
            }
            Action::Patch { patch, guard } => {
                let live = current
                    .live
                    .as_ref()
                    .ok_or_else(|| missing(&operation.id))?;
                check_preconditions(
                    live,
                    operation.if_match.as_ref(),
                    operation.if_none_match.as_ref(),
                )?;
                let draft = self.patched(live, &patch, guard.as_deref())?;
                self.put(current, draft, 200)
            }
            Action::Delete => {
                let live = current
                    .live
                    .as_ref()
                    .ok_or_else(|| missing(&operation.id))?;
                check_preconditions(
                    live,
                    operation.if_match.as_ref(),
                    operation.if_none_match.as_ref(),
                )?;
                self.delete(current)
            }
            Action::Read => {
                let live = current.live.ok_or_else(|| missing(&operation.id))?;
                Ok(read(live, operation.if_none_match.as_ref()))
            }
        }
    }

    fn current(&self, id: &str) -> Result<Current> {
        let key = Bytes::from(keys::document(self.place, id));
        let Some(bytes) = self.lookup(&key)? else {
            return Ok(Current {
                key,
                live: None,
                superseded: None,
            });
        };
        let stored = Stored::decode(bytes)
            .ok_or_else(|| Error::internal(format!("the stored item '{id}' cannot be read")))?;
        let superseded = Some(self.superseded(&key, &stored)?);
        let expired = self
            .rules
            .is_expired(stored.header.ts, stored.header.ttl, self.ts);
        Ok(Current {
            key,
            live: (!expired).then_some(stored),
            superseded,
        })
    }

    fn superseded(&self, key: &Bytes, stored: &Stored<Bytes>) -> Result<Superseded> {
        let mut fingerprints = Vec::new();
        for fingerprint in stored.fingerprints() {
            // An expired item may have lost its unique key to another one.
            if self.holder(fingerprint, |holder| holder.document_key == key.as_ref())? {
                fingerprints.push(*fingerprint);
            }
        }
        Ok(Superseded {
            position: stored.header.position,
            own_due: stored.header.ttl.own_expiry(stored.header.ts),
            fingerprints,
            size: stored.size() as u32,
        })
    }

    /// Asks the holder of a unique key; `false` when nobody holds it.
    fn holder(
        &self,
        fingerprint: &[u8; 32],
        ask: impl FnOnce(&VersionRef<'_>) -> bool,
    ) -> Result<bool> {
        let Some(bytes) = self.lookup(&keys::unique(self.place, fingerprint))? else {
            return Ok(false);
        };
        let holder = VersionRef::decode(&bytes)
            .ok_or_else(|| Error::internal("a stored unique key cannot be read"))?;
        Ok(ask(&holder))
    }

    fn lookup(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.writes.iter().rev().find(|(written, _)| written == key) {
            Some((_, value)) => Ok(value.clone()),
            None => Ok(self.overlay.get(self.engine, key)?),
        }
    }

    fn patched(
        &mut self,
        live: &Stored<Bytes>,
        patch: &Patch,
        guard: Option<&Guard>,
    ) -> Result<Draft> {
        if let Some(guard) = guard {
            let (etag, steps_left) = (live.header.etag, &mut self.condition_steps_left);
            guard.check(etag, self.ts, steps_left, || {
                json::parse_object(live.body()).map(Value::Object)
            })?;
        }
        let mut object = json::parse_object(live.body())?;
        patch.apply(&mut object, &self.facts.partition_key_paths)?;
        draft(&object, &self.facts.unique_keys, None)
    }

    fn put(&mut self, current: Current, mut draft: Draft, status: u16) -> Result<Done> {
        self.weight.add_item(draft.item.body.len())?;
        for fingerprint in &draft.fingerprints {
            let taken = self.holder(fingerprint, |holder| {
                holder.document_key != current.key.as_ref()
                    && !self.rules.is_expired(holder.ts, holder.ttl, self.ts)
            })?;
            if taken {
                return Err(Error::conflict(format!(
                    "Unique index constraint violation: another item of this partition holds the unique key of '{}'",
                    json::shorten(&draft.item.id)
                )));
            }
        }
        let position = self.next_position()?;
        let ordinal = match &current.live {
            Some(live) => live.header.ordinal,
            None => {
                self.next_ordinal += 1;
                self.next_ordinal - 1
            }
        };
        let etag = Etag::new(self.facts.range_id, position.lsn, position.index, self.ts);
        let header = Header {
            ts: self.ts,
            ttl: draft.item.ttl,
            position,
            ordinal,
            etag,
        };
        let value = encode(&header, &draft, self.facts);
        let stored = Stored::decode(value.clone())
            .ok_or_else(|| Error::internal("an encoded item cannot be read back"))?;
        let bytes = stored.body().len();
        let charge = if status == 201 {
            charge::create(bytes)
        } else {
            charge::replace(bytes)
        };

        let version = Version {
            stored: &stored,
            draft: draft.terms.take(),
        };
        let index = self.indexing.changes(current.live.as_ref(), Some(version));

        // Places are short: a test of theirs says so.
        let place_bytes = self.place.len() as u8;
        let reference = VersionRef {
            ts: header.ts,
            ttl: header.ttl,
            size: value.len() as u32,
            has_unique_keys: !draft.fingerprints.is_empty(),
            place_bytes,
            document_key: &current.key,
        };
        if let Some(superseded) = &current.superseded {
            self.release(&superseded.fingerprints);
        }
        for fingerprint in &draft.fingerprints {
            self.writes.push((
                keys::unique(self.place, fingerprint).into(),
                Some(reference.encode().into()),
            ));
        }
        self.writes.push((current.key.clone(), Some(value.clone())));
        self.change(Change::Put {
            key: current.key,
            place_bytes,
            value,
            previous: current.superseded,
            index,
        })?;
        Ok(Done {
            status,
            etag: Some(etag),
            body: Some(stored.into_body()),
            charge,
            due: None,
        })
    }

    fn delete(&mut self, current: Current) -> Result<Done> {
        self.next_position()?;
        let previous = current
            .superseded
            .ok_or_else(|| Error::internal("a live item has no version to supersede"))?;
        let index = self.indexing.changes(current.live.as_ref(), None);
        let charge = charge::delete(current.live.map_or(0, |live| live.body().len()));
        self.release(&previous.fingerprints);
        self.writes.push((current.key.clone(), None));
        self.change(Change::Delete {
            key: current.key,
            place_bytes: self.place.len() as u8,
            previous,
            index,
        })?;
        Ok(Done {
            status: 204,
            etag: None,
            body: None,
            charge,
            due: None,
        })
    }

    /// Replaces an item by one with another id, which must be free. The new one is a resource of
    /// its own, with a new `_rid`.
    fn rename(&mut self, current: Current, draft: Draft) -> Result<Done> {
        let target = self.current(&draft.item.id)?;
        if target.live.is_some() {
            return Err(taken(&draft.item.id));
        }
        self.delete(current)?;
        self.put(target, draft, 200)
    }

    fn change(&mut self, change: Change) -> Result<()> {
        self.weight.add_change(&change)?;
        self.changes.push(change);
        Ok(())
    }

    fn release(&mut self, fingerprints: &[[u8; 32]]) {
        for fingerprint in fingerprints {
            self.writes
                .push((keys::unique(self.place, fingerprint).into(), None));
        }
    }

    fn next_position(&self) -> Result<Position> {
        let index = u16::try_from(self.changes.len())
            .map_err(|_| Error::bad_request("a transaction has too many operations"))?;
        Ok(Position {
            lsn: self.lsn,
            index,
        })
    }
}

/// Returns an item on its way in: validated, its unique keys fingerprinted, its terms worked out if
/// its container has an index.
pub fn draft(
    object: &Map<String, Value>,
    unique_keys: &[Vec<PropertyPath>],
    indexer: Option<&Indexer>,
) -> Result<Draft> {
    let item = NewItem::from_object(object)?;
    Ok(Draft {
        item,
        fingerprints: item::unique_fingerprints(unique_keys, object),
        terms: indexer.map(|indexer| (indexer.fingerprint, DraftTerms::new(indexer, object))),
    })
}

/// Returns the answer to a point read of a live item.
pub fn read(live: Stored<Bytes>, if_none_match: Option<&EtagCondition>) -> Done {
    let etag = live.header.etag;
    let charge = charge::read(live.body().len());
    if if_none_match.is_some_and(|condition| condition.matches_etag(etag)) {
        return Done {
            status: 304,
            etag: Some(etag),
            body: None,
            charge: charge::READ_WITHOUT_ITEM,
            due: None,
        };
    }
    Done {
        status: 200,
        etag: Some(etag),
        body: Some(live.into_body()),
        charge,
        due: None,
    }
}

fn encode(header: &Header, draft: &Draft, facts: &ShardFacts) -> Bytes {
    let rid = rid::item_rid(facts.container, header.ordinal);
    let self_link = rid::item_self_link(facts.container, header.ordinal);
    let etag = header.etag.to_string();
    let mut value = Vec::with_capacity(draft.item.body.len() + 320);
    document::begin(&mut value, header, &draft.fingerprints);
    item::finish_body(
        &mut value,
        &draft.item.body,
        &rid,
        &self_link,
        &etag,
        header.ts,
    );
    value.into()
}

fn check_preconditions(
    live: &Stored<Bytes>,
    if_match: Option<&EtagCondition>,
    if_none_match: Option<&EtagCondition>,
) -> Result<()> {
    let etag = live.header.etag;
    if if_match.is_some_and(|condition| !condition.matches_etag(etag)) {
        return Err(Error::precondition_failed(format!(
            "Operation cannot be performed because one of the specified precondition is not met: the item's etag is {}",
            etag
        )));
    }
    if if_none_match.is_some_and(|condition| condition.matches_etag(etag)) {
        return Err(Error::precondition_failed(format!(
            "Operation cannot be performed because one of the specified precondition is not met: the item's etag is {} already",
            etag
        )));
    }
    Ok(())
}

fn taken(id: &str) -> Error {
    Error::conflict(format!(
        "Entity with the specified id already exists in the system: the id '{}' is taken",
        json::shorten(id)
    ))
}

pub fn missing(id: &str) -> Error {
    Error::not_found(format!(
        "Entity with the specified id does not exist in the system: there is no item '{}'",
        json::shorten(id)
    ))
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        let kind = match error {
            EngineError::Full(_) => ErrorKind::InsufficientStorage,
            EngineError::Exhausted(_)
            | EngineError::Io(_)
            | EngineError::Damaged(_)
            | EngineError::InUse(_) => ErrorKind::Unavailable,
        };
        Self::new(kind, error.to_string())
    }
}
