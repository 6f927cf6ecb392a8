//! Where a shard is cut in two, and how its parts begin: with its files. All that is stored goes
//! over as it is: items, etags, positions in the feed, time to live with its watermarks, cursors,
//! index. Only ordinals of new items are the part's own.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::ShardHandle;
use crate::{
    model::{
        epk::{Epk, EpkRange},
        error::{Error, Result},
        partition_key::PartitionKeyDefinition,
    },
    shard::{
        actor::{
            Wake,
            split::{Child, HandOff, Quiesce, Resume},
        },
        commit::{view::ShardView, write_queue::Perform},
        state::{ShardState, facts::ShardFacts, indexing, split_mark},
    },
    store::{
        Batch, Engine, EngineError, SharedResources, document::Stored, engine::Durability, keys,
    },
};

/// Up to this many documents are looked at one by one to find the middle; the files of more say
/// well enough where it is.
const WALKED_DOCUMENTS_MAX: u64 = 20_000;
/// Steps of a bisection over the first 16 bytes of keys.
const BISECTION_STEPS: u32 = 64;

/// Returns the EPK at which a shard is cut, so that both parts have about the same bytes. It is
/// that of an item: no partition key is cut in two. Waits for the disk, and hands what is in memory
/// to it, so that little is left for the moment of the split.
pub fn middle(view: &ShardView, definition: &PartitionKeyDefinition) -> Result<Epk> {
    let engine = &view.engine;
    engine.flush()?;
    let range = &view.facts.range;
    let (from, to) = keys::document_range(&range.min, &range.max);
    let Some(first) = epk_at(engine, definition, &from, &to)? else {
        return range.middle(definition.version).ok_or_else(|| {
            Error::bad_request(format!(
                "partition key range {} is too narrow to be split",
                view.facts.range_id
            ))
        });
    };
    let around = if view.state().documents <= WALKED_DOCUMENTS_MAX {
        walked_middle(engine, &from, &to)?
    } else {
        bisected_middle(engine, range, &from, &to)
    };
    let is_inside = |epk: &Epk| *epk > first && range.min < *epk && *epk < range.max;
    if let Some(epk) = epk_at(engine, definition, &around, &to)?.filter(is_inside) {
        return Ok(epk);
    }
    // The middle is in the first partition key: the parts meet behind it.
    let behind = keys::document(&first.successor(), "");
    epk_at(engine, definition, &behind, &to)?
        .filter(is_inside)
        .ok_or_else(|| {
            Error::bad_request(format!(
                "partition key range {} holds a single partition key, which cannot be split",
                view.facts.range_id
            ))
        })
}

/// Returns the EPK of the first item at or behind a key.
fn epk_at(
    engine: &Engine,
    definition: &PartitionKeyDefinition,
    from: &[u8],
    to: &[u8],
) -> Result<Option<Epk>> {
    let scan = engine.scan(from, to);
    let Some((_, value)) = scan.entry()? else {
        return Ok(None);
    };
    let damaged = || Error::unavailable("the files are damaged: a document cannot be read");
    let stored = Stored::decode(value).ok_or_else(damaged)?;
    let item = indexing::parse(stored.body()).ok_or_else(damaged)?;
    Ok(Some(definition.epk(&definition.extract(&item)?)))
}

/// Returns the key with as many bytes before it as behind it.
fn walked_middle(engine: &Engine, from: &[u8], to: &[u8]) -> Result<Vec<u8>, EngineError> {
    let mut sizes = Vec::new();
    let mut scan = engine.scan(from, to);
    while let Some((key, value)) = scan.entry()? {
        sizes.push((key.to_vec(), value.len() as u64));
        scan.advance();
    }
    let half = sizes.iter().map(|(_, bytes)| bytes).sum::<u64>() / 2;
    let mut before = 0;
    let middle = sizes.into_iter().find(|(_, bytes)| {
        before += bytes;
        before > half
    });
    Ok(middle.map_or_else(|| from.to_vec(), |(key, _)| key))
}

/// Returns about the same, as the engine's files tell.
fn bisected_middle(engine: &Engine, range: &EpkRange, from: &[u8], to: &[u8]) -> Vec<u8> {
    let half = engine.approximate_bytes(from, to) / 2;
    let (mut low, mut high) = (range.min.leading(), range.max.leading());
    let key = |leading: u128| keys::document(&leading.to_be_bytes(), "");
    for _ in 0..BISECTION_STEPS {
        let middle = low + (high - low) / 2;
        if engine.approximate_bytes(from, &key(middle)) < half {
            low = middle;
        } else {
            high = middle;
        }
    }
    key(high)
}

/// Makes a part of a shard that decides nothing meanwhile: all of its files, by hard links, in a
/// folder of the part's own, which `mark` has say whose it is. The folder has its name when it is
/// complete. `origin` are the nodes of a cluster that do the same.
pub fn make_part(
    parent: &ShardView,
    part: &ShardFacts,
    folder: &Path,
    shared: &SharedResources,
    origin: &[u64],
    mark: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), EngineError> {
    let unfinished = folder.with_extension("new");
    if unfinished.exists() {
        // What an attempt before has left.
        fs::remove_dir_all(&unfinished)?;
    }
    parent.engine.checkpoint(&unfinished)?;
    mark(&unfinished)?;
    let engine = Engine::open(&unfinished, shared)?;
    let state = ShardState {
        next_ordinal: part.first_ordinal(),
        ..parent.state()
    };
    let mut batch = Batch::default();
    state.store(&mut batch);
    split_mark::begin_cleanup(&mut batch);
    // Its log is its own, and begins now.
    batch.delete(keys::APPLIED);
    batch.delete(keys::CUT);
    split_mark::note_origin(origin, &mut batch);
    engine.write(batch, Durability::Synced)?;
    drop(engine);
    fs::rename(&unfinished, folder)?;
    if let Some(shards) = folder.parent() {
        fs::File::open(shards)?.sync_all()?;
    }
    Ok(())
}

/// How long a caller waits until nothing is in flight in a shard.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);

impl ShardHandle {
    /// Stops decisions; requests wait from now on. In the end comes [`Self::let_go`] or
    /// [`Self::retire`].
    pub async fn hold(&self) -> Result<()> {
        self.set_splitting(true);
        let (quiesced, answer) = oneshot::channel();
        let stood = async {
            self.send(Quiesce { quiesced })?;
            tokio::time::timeout(QUIESCE_TIMEOUT, answer)
                .await
                .ok()
                .and_then(std::result::Result::ok)
                .ok_or_else(|| Error::unavailable("the shard does not come to rest"))
        };
        let stood = stood.await;
        if stood.is_err() {
            self.let_go();
        }
        stood
    }

    /// Goes on deciding.
    pub fn let_go(&self) {
        self.set_splitting(false);
        let _ = self.send(Resume);
    }

    /// Hands over to the children, which are in effect: they get what waits here and what comes
    /// late. Readers are told that the range is gone.
    pub fn retire(&self, parts: Vec<Arc<ShardHandle>>) {
        let address = self.put_heirs(parts.clone());
        if let Some(address) = address {
            let children = parts.into_iter().map(|part| part as Arc<dyn Child>);
            let children = children.collect();
            address.do_send(HandOff { children });
            address.do_send(Wake);
        }
    }
}

impl Child for ShardHandle {
    fn owns(&self, place: &Epk) -> bool {
        self.facts.range.contains(place)
    }

    fn take_in(&self, request: Perform) {
        ShardHandle::take_in(self, request);
    }
}
