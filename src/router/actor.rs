//! The router actor and its messages.

use std::sync::Arc;

use actix::prelude::*;
use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

use super::{
    continuation::{KeyContinuation, Resume},
    session::{Served, SessionToken},
    table::{ContainerRoute, RoutingTable},
};
use crate::{
    model::{
        epk::{Epk, EpkRange},
        error::{Error, ErrorKind, Result},
        item::EtagCondition,
    },
    shard::{
        answer::AnswerBudget,
        commit::Reply,
        feed::{self, FeedPage},
        host::{Changes, ShardHandle},
        transaction::Done,
        view::{Page, PageItem},
    },
};

pub struct Router {
    pub table: Arc<ArcSwap<RoutingTable>>,
}

impl Actor for Router {
    type Context = Context<Self>;
}

/// An answer and where it came from.
#[derive(Debug)]
pub struct Answer<T> {
    pub value: T,
    pub served: Served,
}

/// Reads one item.
pub struct ReadItem<'a> {
    pub container: &'a ContainerRoute,
    /// Where the items of the partition key are kept.
    pub place: Epk,
    pub id: &'a str,
    pub if_none_match: Option<EtagCondition>,
    pub session: Option<SessionToken>,
}

/// Carries out operations on items of one partition key.
pub struct ChangeItems<'a> {
    pub container: &'a ContainerRoute,
    /// Where the items of the partition key are kept.
    pub place: Epk,
    pub changes: Changes,
}

/// Point operations on shards of this node are forwarded by a call, not by a message: the router shares its thread with the gateway
/// worker that asks, so a mailbox between the two would only cost. What fans out over shards comes as messages.
impl Router {
    pub fn read(request: &ReadItem<'_>) -> Result<Answer<Result<Done>>> {
        let mut shard = request.container.shard_of(&request.place)?;
        loop {
            let answer = shard.with_view(|view| {
                // Before the read: the answer is at least as new as the LSN says.
                let lsn = view.lsn();
                let range_id = shard.facts.range_id;
                if let Some(session) = &request.session {
                    request.container.check_session(session, range_id, lsn)?;
                }
                let value = view.read(&request.place, request.id, request.if_none_match.as_ref());
                Ok(Answer {
                    value,
                    served: Served::by(range_id, lsn),
                })
            });
            match (answer, shard.heir(&request.place)) {
                // It was split after the request had looked up the routes.
                (Err(_), Some(heir)) => shard = heir,
                (answer, _) => return answer,
            }
        }
    }

    pub async fn change(request: ChangeItems<'_>) -> Result<Answer<Vec<Result<Done>>>> {
        let ChangeItems {
            container,
            place,
            changes,
        } = request;
        let shard = container.shard_of(&place)?;
        let Reply {
            results,
            lsn,
            range_id,
        } = shard.perform(place, changes).await?;
        Ok(Answer {
            value: results,
            served: Served::by(range_id, lsn),
        })
    }
}

/// What part of a container a feed or a query covers.
#[derive(Clone, Debug)]
pub struct ContainerScope {
    pub keys: EpkRange,
    /// The client asked this range and no other.
    pub range_id: Option<u32>,
}

impl ContainerScope {
    /// The shards in it, in key order; in the place of one that was split meanwhile what it was split into, unless the client asked for that very range.
    pub fn shards(&self, container: &ContainerRoute) -> Vec<Arc<ShardHandle>> {
        let mut shards = Vec::with_capacity(1);
        for shard in &container.shards {
            self.add(shard, &mut shards);
        }
        shards
    }

    fn add(&self, shard: &Arc<ShardHandle>, shards: &mut Vec<Arc<ShardHandle>>) {
        if !shard.facts.range.overlaps(&self.keys) {
            return;
        }
        match self.range_id {
            Some(id) if shard.facts.range_id == id => shards.push(Arc::clone(shard)),
            Some(_) => {}
            None if shard.heirs().is_empty() => shards.push(Arc::clone(shard)),
            None => shard.heirs().iter().for_each(|heir| self.add(heir, shards)),
        }
    }

    /// Does something again that a split has cut off, unless the client asked for the range that is gone.
    pub fn over_splits<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 1..SPLITS_MET_MAX {
            match work() {
                Err(error) if error.kind == ErrorKind::RangeGone && self.range_id.is_none() => {}
                done => return done,
            }
        }
        work()
    }
}

/// How many splits one request may meet with.
pub const SPLITS_MET_MAX: usize = 4;

/// How large a page may be.
#[derive(Clone, Copy, Debug)]
pub struct PageBounds {
    pub items_max: usize,
    pub bytes_max: usize,
}

/// Reads items in key order, over as many shards as it takes.
#[derive(Message)]
#[rtype(result = "Result<Answer<ItemsPage>>")]
pub struct ReadPage {
    pub container: Arc<ContainerRoute>,
    pub scope: ContainerScope,
    pub continuation: Option<KeyContinuation>,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
}

#[derive(Debug)]
pub struct ItemsPage {
    pub items: Vec<PageItem>,
    pub continuation: Option<KeyContinuation>,
    /// When the first of the items falls due.
    pub first_due: Option<i64>,
    /// The room that the items take, for as long as they are there.
    pub room: Arc<AnswerBudget>,
}

impl Handler<ReadPage> for Router {
    type Result = ResponseFuture<Result<Answer<ItemsPage>>>;

    fn handle(&mut self, request: ReadPage, _: &mut Self::Context) -> Self::Result {
        Box::pin(page_off_the_event_loop(move || request.read()))
    }
}

impl ReadPage {
    pub fn read(&self) -> Result<Answer<ItemsPage>> {
        self.scope.over_splits(|| self.read_once())
    }

    fn read_once(&self) -> Result<Answer<ItemsPage>> {
        let mut page = Page::new(self.bounds.items_max, self.bounds.bytes_max);
        let mut continuation = None;
        let mut served: Option<Served> = None;
        let from = self.continuation.as_ref();
        let shards = self.scope.shards(&self.container);
        // A token of a range that was split meanwhile goes on in what it was split into: keys are where they were.
        let is_at =
            |shard: &ShardHandle| from.is_none_or(|from| shard.facts.descends_from(from.range_id));
        for shard in shards.iter().skip_while(|shard| !is_at(shard)) {
            let range_id = shard.facts.range_id;
            if served.is_some() && shard.remote().is_some() {
                // Another node goes on there.
                continuation = Some(KeyContinuation::at(range_id, Resume::Start));
                break;
            }
            let view = shard.view()?;
            let lsn = view.lsn();
            if let Some(session) = &self.session {
                self.container.check_session(session, range_id, lsn)?;
            }
            if !page.has_room_for(0) {
                continuation = Some(KeyContinuation::at(range_id, Resume::Start));
                break;
            }
            match &mut served {
                Some(served) => served.and_by(range_id, lsn),
                None => served = Some(Served::by(range_id, lsn)),
            }
            let start = from
                .filter(|_| is_at(shard))
                .map_or(Resume::Start, |from| from.resume.clone());
            let keys = shard
                .facts
                .range
                .intersect(&self.scope.keys)
                .unwrap_or_else(|| self.scope.keys.clone());
            if let Some(key) =
                view.fill(&mut page, &keys, start.from(), |key| start.is_before(key))?
            {
                continuation = Some(KeyContinuation::at(range_id, Resume::at(key)));
                break;
            }
        }
        let Some(served) = served else {
            return Err(Error::bad_request(
                "Invalid Continuation Token: its partition key range is not part of the request",
            ));
        };
        Ok(Answer {
            value: ItemsPage {
                items: page.items,
                continuation,
                first_due: page.first_due,
                room: page.room,
            },
            served,
        })
    }
}

/// Reads the change feed of one range.
#[derive(Message)]
#[rtype(result = "Result<Answer<FeedPage>>")]
pub struct ReadChanges {
    pub container: Arc<ContainerRoute>,
    pub scope: ContainerScope,
    pub start: feed::Start,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
}

impl Handler<ReadChanges> for Router {
    type Result = ResponseFuture<Result<Answer<FeedPage>>>;

    fn handle(&mut self, request: ReadChanges, _: &mut Self::Context) -> Self::Result {
        Box::pin(page_off_the_event_loop(move || {
            request.scope.over_splits(|| request.read())
        }))
    }
}

impl ReadChanges {
    fn read(&self) -> Result<Answer<FeedPage>> {
        let request = self;
        let shards = request.scope.shards(&request.container);
        let shard = match shards.as_slice() {
            [shard] => shard,
            [] => return Err(Error::bad_request("the change feed's range is empty")),
            _ => {
                return Err(Error::bad_request(
                    "the change feed's range spans several partition key ranges: read each of them",
                ));
            }
        };
        let view = shard.view()?;
        let lsn = view.lsn();
        let range_id = shard.facts.range_id;
        if let Some(session) = &request.session {
            request.container.check_session(session, range_id, lsn)?;
        }
        // No further than the shard's range: a split leaves more in its engine for a while.
        let keys = shard
            .facts
            .range
            .intersect(&request.scope.keys)
            .unwrap_or_else(|| request.scope.keys.clone());
        let PageBounds {
            items_max,
            bytes_max,
        } = request.bounds;
        Ok(Answer {
            value: feed::page(&view, &keys, request.start, items_max, bytes_max)?,
            served: Served::by(range_id, lsn),
        })
    }
}

/// Pages that are read at a time; each has blocks of the engine in hand.
const PAGE_READERS_MAX: usize = 32;
static PAGE_READERS: Semaphore = Semaphore::const_new(PAGE_READERS_MAX);

/// Reads a page on the blocking pool when it is its turn.
async fn page_off_the_event_loop<T: Send + 'static>(
    read: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let turn = PAGE_READERS.acquire().await;
    let _turn = turn.map_err(|_| Error::unavailable("the node is stopping"))?;
    off_the_event_loop(read).await
}

/// Runs what may wait for the disk on the blocking pool.
pub async fn off_the_event_loop<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|failure| Error::internal(format!("a read was cut off: {failure}")))?
}
