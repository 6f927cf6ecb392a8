//! Opens the engine of a shard anew when the disk has room again, or when there are file
//! descriptors again.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use tracing::{error, warn};

use super::{Link, REOPEN_POLL, ShardHandle, start_actor, start_opened};
use crate::{
    model::{error::Error, indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    shard::view::{Counters, ShardView, Shortage},
    store::EngineError,
};

/// How often it is looked whether a full disk has room again.
const STARVED_POLL: Duration = Duration::from_secs(1);

/// Opens the engine anew: after a shortage it takes no writes any more. A read in between is told
/// to try again.
pub(super) fn reopen(handle: &Arc<ShardHandle>, view: Arc<ShardView>) {
    handle.link.store(Arc::new(Link::Down(Error::unavailable(
        "the shard is being reopened after the disk was full or no file descriptor was left; try again",
    ))));
    if let Some(replica) = handle.replica() {
        replica.set_view(None);
    }
    let counted = release(view);
    // The default and the policy are the stored ones: the shard is not new.
    let opened = until_possible(handle, || {
        let opened = handle.host.open_view(&handle.facts, DefaultTtl::Off, None);
        opened.map(|view| {
            view.counters.continue_from(&counted);
            warn!(
                range = handle.facts.range_id,
                "the engine is open again; writes are taken"
            );
            start_actor(handle, view);
        })
    });
    if let Err(failure) = opened {
        handle.fail(&failure);
    }
}

/// What is to be done with a shard that was opened late.
pub type Afterwards = Box<dyn FnOnce(&Arc<ShardHandle>) + Send>;

/// Opens a shard that could not be opened for want of something, as soon as there is enough of it.
/// Reads answer from then on.
pub(super) fn open_when_possible(
    handle: Arc<ShardHandle>,
    default: DefaultTtl,
    policy: Option<IndexingPolicy>,
    afterwards: Afterwards,
) {
    let range = handle.facts.range_id;
    let opening = std::thread::Builder::new().name("reopen".to_owned());
    let started = opening.spawn(move || {
        let facts = &handle.facts;
        let opened = until_possible(&handle, || {
            let opened = handle.host.open_stored(facts, default, policy.as_ref());
            opened.map(|view| start_opened(&handle, view))
        });
        match opened {
            Ok(true) => {
                warn!(container = %facts.container, range, "the shard could be opened after all");
                afterwards(&handle);
            }
            Ok(false) => {}
            Err(failure) => handle.fail(&failure),
        }
    });
    if let Err(failure) = started {
        error!(range, %failure, "the shard is not opened by itself when that is possible");
    }
}

/// Tries until it succeeds or fails for another reason than a shortage. `false`: the shard was
/// closed meanwhile.
fn until_possible(
    handle: &ShardHandle,
    mut open: impl FnMut() -> Result<(), EngineError>,
) -> Result<bool, EngineError> {
    loop {
        {
            let _opening = handle
                .opening
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if handle.closed.load(Ordering::SeqCst) {
                return Ok(false);
            }
            match open() {
                Ok(()) => return Ok(true),
                Err(failure) => match Shortage::of(&failure) {
                    None => return Err(failure),
                    Some(Shortage::Disk) => handle.host.shared.reserve().release(),
                    Some(Shortage::Descriptors) => {}
                },
            }
        }
        std::thread::sleep(STARVED_POLL);
    }
}

/// Waits until the last reader has let go of an engine, and closes it. What it has counted.
pub(super) fn release(view: Arc<ShardView>) -> Arc<Counters> {
    while Arc::strong_count(&view) > 1 {
        std::thread::sleep(REOPEN_POLL);
    }
    Arc::clone(&view.counters)
}
