//! One page of a query in the making: a walk over the parts of its scope, in slices.

use std::{
    any::Any,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    access::{ResumePoint, ScanBudget, is_of_keys},
    aggregate::aggregate_from_index,
    candidates::{Candidates, ScanStep},
    meter::{QueryMeter, abandoned},
    mode::{
        ItemOutcome, Ordered, PageWants, RowReader, RowWindow, SortedPage, Streaming, Whole,
        WholeOutcome,
    },
    plan::{IndexUse, ScanRequest},
    position::{RowOrder, RowPosition},
    rows::Rows,
    scheduler::{KeptPage, QueryScheduler},
    scope::{ScopePart, parts},
    token::{QueryFingerprint, QueryToken, ScanCursor, TokenPosition, UnfinishedPage, invalid},
};
use crate::{
    model::{
        epk::EpkRange,
        error::{Error, ErrorKind, Result},
    },
    router::{
        Answer, ContainerRoute,
        actor::{ContainerScope, PageBounds, off_the_event_loop},
        session::{Served, SessionToken},
    },
    shard::view::ShardView,
    sql::{Query, Shape},
};

/// How long one slice of work lasts. Others get their turn in between.
const SLICE_TIME: Duration = Duration::from_millis(20);
/// Entries and time of the fast path, on the thread that took the request in.
const FAST_PATH_ENTRIES_MAX: usize = 32;
const FAST_PATH_TIME: Duration = Duration::from_millis(1);
/// How long one page may be worked on before it is handed out, full or not.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// Entries of index and items that one page may look at.
const PAGE_ENTRIES_MAX: usize = 4_000_000;
/// The largest state of aggregates that is tried to be put into a token, in bytes.
const CARRIED_BYTES_MAX: usize = 4_000;

/// A query to be run, up to one page of rows.
#[derive(Clone)]
pub struct QueryRequest {
    pub container: Arc<ContainerRoute>,
    pub query: Arc<Query>,
    pub scope: ContainerScope,
    pub token: Option<QueryToken>,
    /// Where the rows of an ORDER BY begin.
    pub resume: Option<RowPosition>,
    pub bounds: PageBounds,
    pub session: Option<SessionToken>,
    /// Whether a container without an index may be scanned.
    pub scan_allowed: bool,
    /// Its memory so far; knows whether anybody waits for the answer.
    pub meter: Arc<QueryMeter>,
}

/// Runs a query up to one page of rows: at once where that is possible, in slices on the blocking pool
/// otherwise.
pub async fn one_page(request: QueryRequest) -> Result<Answer<QueryPage>> {
    let scheduler = Arc::clone(request.meter.scheduler());
    let mut run = match QueryRun::new(request)?.fast_path()? {
        RunProgress::Page(page) => return Ok(*page),
        RunProgress::More(run) => run,
    };
    let mut first = true;
    loop {
        let permit = scheduler.permit(first).await?;
        match off_the_event_loop(move || run.slice(permit)).await? {
            RunProgress::Page(page) => return Ok(*page),
            RunProgress::More(unfinished) => run = unfinished,
        }
        first = false;
    }
}

/// One page of rows.
#[derive(Debug)]
pub struct QueryPage {
    pub rows: Rows,
    /// When the first of the rows' items falls due.
    pub first_due: Option<i64>,
    pub continuation: Option<String>,
    pub work: QueryWork,
    /// The memory of the rows, reserved until the page is dropped.
    pub memory: Option<Arc<QueryMeter>>,
}

/// What a page has cost.
#[derive(Clone, Debug, Default)]
pub struct QueryWork {
    /// Entries of index and items looked at.
    pub examined: usize,
    /// Items read, and their bytes; those of which only the key and the expiry matter are not.
    pub read: usize,
    pub read_bytes: usize,
    pub time: Duration,
    pub used: IndexUse,
}

struct QueryRun {
    container: Arc<ContainerRoute>,
    query: Arc<Query>,
    bounds: PageBounds,
    session: Option<SessionToken>,
    scan_allowed: bool,
    window: RowWindow,
    order: RowOrder,
    parts: Vec<ScopePart>,
    /// The part that is walked, and where in it.
    at: usize,
    point: Option<ResumePoint>,
    /// Where parts go on that were one with others when the token was made: up to the part with this index, of a range that was split.
    rest: Vec<(usize, u32, ResumePoint)>,
    /// The last part for which the session was checked.
    entered: Option<usize>,
    served: Option<Served>,
    /// Rows that earlier pages found.
    found: u64,
    mode: RunMode,
    first_second: Option<i64>,
    started: Instant,
    work: QueryWork,
    /// Last: what is reserved is given back when everything else is.
    meter: Arc<QueryMeter>,
}

enum RunMode {
    Streaming(Streaming),
    Ordered(Ordered),
    Whole(Whole),
    /// While the mode is taken apart.
    Gone,
}

enum WalkEnd {
    Paused,
    PartDone,
    AllDone,
}

/// After a slice.
enum RunProgress {
    More(Box<QueryRun>),
    Page(Box<Answer<QueryPage>>),
}

/// Rows that are in the order of the shards can be answered shard by shard, wherever they are. For others all shards must be on one node: this one, or one to which the
/// request is sent on. Where there is none, clients are told to ask range by range and to merge the answers, as they do with the service.
fn check_one_node_has_all(request: &QueryRequest, parts: &[ScopePart]) -> Result<()> {
    let Some(remote) = parts.iter().find(|part| part.shard.remote().is_some()) else {
        return Ok(());
    };
    if parts.len() == 1 || request.query.shape() == Shape::Streaming {
        return Ok(());
    }
    let ranges = request.container.container.ranges.iter();
    let mut ranges = ranges.filter(|range| {
        parts
            .iter()
            .any(|part| part.shard.facts.range_id == range.id)
    });
    let first = ranges.next().map(|range| range.replicas.clone());
    let common = ranges.fold(first.unwrap_or_default(), |mut common, range| {
        common.retain(|node| range.replicas.contains(node));
        common
    });
    if common.is_empty() {
        return Err(Error::new(
            ErrorKind::CrossPartitionQuery,
            "the query spans partition key ranges that no single node has: its plan says how to ask each of them",
        ));
    }
    Err(remote.shard.not_leader(&common))
}

impl KeptPage for QueryRun {
    fn reserved(&self) -> usize {
        self.meter.reserved()
    }
}

/// Takes a page back that was kept unfinished.
fn kept_run(scheduler: &QueryScheduler, ticket: u64) -> Option<Box<QueryRun>> {
    let page: Box<dyn Any> = scheduler.take(ticket)?;
    page.downcast().ok()
}

impl QueryRun {
    /// Begins a page, or goes on with one that was not finished.
    fn new(request: QueryRequest) -> Result<Box<Self>> {
        let unfinished = match &request.token {
            Some(QueryToken {
                place: TokenPosition::Rows { unfinished, .. },
                ..
            }) => unfinished.clone(),
            _ => None,
        };
        if let Some(UnfinishedPage::Kept(ticket)) = unfinished
            && let Some(mut run) = kept_run(request.meter.scheduler(), ticket)
            && run.fingerprint()
                == QueryFingerprint::of(request.container.container.rid, &request.query)
        {
            run.session = request.session;
            run.meter.set_alive(request.meter.alive());
            run.started = Instant::now();
            run.work = QueryWork::default();
            return Ok(run);
        }
        let parts = parts(&request.container, &request.scope, &request.query);
        check_one_node_has_all(&request, &parts)?;
        let window = RowWindow::of(&request.query);
        let order = RowOrder::new(request.query.descending());
        let found = request.token.as_ref().map_or(0, |token| token.rows);
        let mut run = Box::new(Self {
            mode: RunMode::Gone,
            container: request.container,
            bounds: request.bounds,
            session: request.session,
            scan_allowed: request.scan_allowed,
            window,
            order,
            parts,
            at: 0,
            point: None,
            rest: Vec::new(),
            entered: None,
            served: None,
            found,
            first_second: None,
            started: Instant::now(),
            work: QueryWork::default(),
            meter: request.meter,
            query: request.query,
        });
        run.begin(request.token.map(|token| token.place), request.resume)?;
        Ok(run)
    }

    /// Worked out only for tokens: most queries have their rows on one page.
    fn fingerprint(&self) -> QueryFingerprint {
        QueryFingerprint::of(self.container.container.rid, &self.query)
    }

    fn begin(&mut self, place: Option<TokenPosition>, resume: Option<RowPosition>) -> Result<()> {
        let foreign = || invalid("it belongs to another query");
        self.mode = match (self.query.shape(), place) {
            (Shape::Streaming, None) => {
                RunMode::Streaming(Streaming::new(self.window, self.bounds, self.found, (0, 0)))
            }
            (
                Shape::Streaming,
                Some(TokenPosition::Items {
                    cursor,
                    ordinal,
                    within,
                }),
            ) => {
                self.go_to(&cursor)?;
                RunMode::Streaming(Streaming::new(
                    self.window,
                    self.bounds,
                    self.found,
                    (ordinal, within),
                ))
            }
            (Shape::Ordered, None) => self.ordered(resume),
            (Shape::Ordered, Some(TokenPosition::Rows { after, .. })) => {
                self.ordered(after.or(resume))
            }
            (Shape::Whole, None) => self.whole(None),
            (Shape::Whole, Some(TokenPosition::Rows { after, unfinished })) => {
                let mut mode = self.new_whole(after);
                if let Some(UnfinishedPage::Carried { cursor, partial }) = unfinished {
                    self.go_to(&cursor)?;
                    mode.execution.absorb(partial).map_err(|_| foreign())?;
                }
                RunMode::Whole(mode)
            }
            _ => return Err(foreign()),
        };
        Ok(())
    }

    fn ordered(&self, after: Option<RowPosition>) -> RunMode {
        let wants = PageWants::new(self.window, self.bounds, self.found, after.as_ref());
        RunMode::Ordered(Ordered::new(self.order.clone(), wants, after))
    }

    fn whole(&self, after: Option<RowPosition>) -> RunMode {
        RunMode::Whole(self.new_whole(after))
    }

    fn new_whole(&self, after: Option<RowPosition>) -> Whole {
        Whole::new(&self.query, self.window, self.bounds, after, &self.meter)
    }

    fn go_to(&mut self, cursor: &ScanCursor) -> Result<()> {
        let missing = || invalid("its partition key range is not part of the request");
        let (first, end) = self
            .part_then(cursor.range_id, cursor.part as usize)
            .ok_or_else(missing)?;
        let goes_on = end > first;
        self.at = first;
        self.point = cursor.point().filter(|_| goes_on);
        // Innermost last, where it is looked for first.
        let outer: Vec<(u32, ResumePoint)> = cursor.rest().collect();
        for (range_id, point) in outer.into_iter().rev() {
            let around = parts_of(&self.parts, range_id);
            let around = around
                .iter()
                .find(|(from, to)| (*from..*to).contains(&first));
            if let Some((_, end)) = around {
                self.rest.push((*end, range_id, point));
            }
        }
        if let Some(point) = cursor.point().filter(|_| end > first + 1) {
            self.rest.push((end, cursor.range_id, point));
        }
        if self.at == self.parts.len() {
            // Nothing is left in what the client asks for; somebody must say so all the same.
            self.at -= 1;
            self.enter()?;
            self.at += 1;
        }
        Ok(())
    }

    /// The parts, as a range of indexes, that were part `number` of a range when a token was made. Empty when the request is for another piece of what that range
    /// was split into: then it is where the request goes on.
    fn part_then(&self, range_id: u32, number: usize) -> Option<(usize, usize)> {
        let is_whole = |part: &ScopePart| part.shard.facts.range_id == range_id;
        if self.parts.iter().any(is_whole) {
            return parts_of(&self.parts, range_id).get(number).copied();
        }
        let ranges = &self.container.container.ranges;
        let mut pieces = ranges.iter().filter(|one| one.parents.contains(&range_id));
        let first = pieces.next()?;
        let max = &pieces.next_back().unwrap_or(first).keys.max;
        let scope = ContainerScope {
            keys: EpkRange::new(first.keys.min.clone(), max.clone()),
            range_id: None,
        };
        let all = parts(&self.container, &scope, &self.query);
        let (from, to) = *parts_of(&all, range_id).get(number)?;
        let then = all.get(from..to)?;
        let keys = EpkRange::new(
            then.first()?.keys.min.clone(),
            then.last()?.keys.max.clone(),
        );
        let first = self.parts.partition_point(|part| part.keys.max <= keys.min);
        let end = self.parts.partition_point(|part| part.keys.min < keys.max);
        Some((first, end.max(first)))
    }

    fn cursor(&self) -> Result<ScanCursor> {
        let range_id = self
            .parts
            .get(self.at)
            .ok_or_else(no_parts)?
            .shard
            .facts
            .range_id;
        let before = self.parts.iter().take(self.at);
        let part = before
            .filter(|part| part.shard.facts.range_id == range_id)
            .count();
        // A place in the order of keys says for itself what is behind it.
        let rest = self
            .rest
            .iter()
            .rev()
            .filter(|(end, _, point)| *end > self.at + 1 && !is_of_keys(point));
        let rest = rest.map(|(_, range_id, point)| (*range_id, point.clone()));
        Ok(ScanCursor::new(range_id, part, self.point.as_ref()).with_rest(rest))
    }

    /// On to the next part, at its start or where it goes on.
    fn next_part(&mut self) {
        self.at += 1;
        self.rest.retain(|(end, ..)| *end > self.at);
        self.point = self.rest.last().map(|(_, _, point)| point.clone());
    }

    /// Answers a query that is over at once on this thread: handing it to another one and back would
    /// cost more.
    fn fast_path(mut self: Box<Self>) -> Result<RunProgress> {
        let is_fresh = self.point.is_none() && self.found == 0;
        if !is_fresh || self.parts.len() != 1 || !self.query.is_short_lookup() {
            return Ok(RunProgress::More(self));
        }
        self.meter.begin_slice(None);
        let begun = Instant::now();
        let budget = ScanBudget {
            entries_max: FAST_PATH_ENTRIES_MAX,
            deadline: Some(begun + FAST_PATH_TIME),
        };
        let view = self.enter()?;
        let walked = self.walk(&view, budget)?;
        self.work.time += begun.elapsed();
        match walked {
            WalkEnd::Paused => {
                self.meter.end_slice();
                return Ok(RunProgress::More(self));
            }
            WalkEnd::PartDone => self.next_part(),
            WalkEnd::AllDone => {}
        }
        self.finish()
    }

    /// Works for a while; fails if nobody waits for the answer any more.
    fn slice(mut self: Box<Self>, turn: OwnedSemaphorePermit) -> Result<RunProgress> {
        self.meter.begin_slice(Some(turn));
        if self.meter.is_abandoned() {
            return Err(abandoned());
        }
        let begun = Instant::now();
        let is_over = self.walk_on(begun + SLICE_TIME)?;
        self.work.time += begun.elapsed();
        self.meter.check_memory(0)?;
        if is_over {
            return self.finish();
        }
        if self.goes_on_elsewhere() {
            return self.pause();
        }
        let full = matches!(&self.mode, RunMode::Streaming(streaming) if streaming.is_full());
        let spent =
            self.started.elapsed() > PAGE_TIME_MAX || self.work.examined >= PAGE_ENTRIES_MAX;
        if full || spent {
            return self.pause();
        }
        self.meter.end_slice();
        Ok(RunProgress::More(self))
    }

    /// About what is held, where the allocator does not count.
    fn estimated_bytes(&self) -> usize {
        match &self.mode {
            RunMode::Ordered(ordered) => ordered.held_bytes(),
            RunMode::Whole(whole) => whole.execution.held_bytes(),
            RunMode::Streaming(streaming) => streaming.rows.bytes(),
            RunMode::Gone => 0,
        }
    }

    /// Walks over the parts until the page is done (`true`) or the slice is over.
    fn walk_on(&mut self, deadline: Instant) -> Result<bool> {
        if let RunMode::Whole(whole) = &mut self.mode
            && !self.query.reads_items()
        {
            whole.execution.push(&Value::Null)?;
            self.enter()?;
            return Ok(true);
        }
        while self.at < self.parts.len() {
            if self.goes_on_elsewhere() {
                return Ok(false);
            }
            let view = self.enter()?;
            let walked = match self.answer_from_index(&view, deadline)? {
                Some(walked) => walked,
                None => {
                    let budget = ScanBudget {
                        entries_max: PAGE_ENTRIES_MAX,
                        deadline: Some(deadline),
                    };
                    self.walk(&view, budget)?
                }
            };
            match walked {
                WalkEnd::Paused => return Ok(false),
                WalkEnd::AllDone => return Ok(true),
                WalkEnd::PartDone => self.next_part(),
            }
            if Instant::now() >= deadline && self.at < self.parts.len() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the page ends here because another node has what follows. A page that has nothing yet is for that node as a whole.
    fn goes_on_elsewhere(&self) -> bool {
        let part = self.parts.get(self.at);
        self.served.is_some()
            && self.entered != Some(self.at)
            && part.is_some_and(|part| part.shard.remote().is_some())
    }

    /// The view of the part that is walked.
    fn enter(&mut self) -> Result<Arc<ShardView>> {
        let part = self.parts.get(self.at).ok_or_else(no_parts)?;
        let view = part.shard.view()?;
        if self.entered != Some(self.at) {
            let (range_id, lsn) = (part.shard.facts.range_id, view.lsn());
            if let Some(session) = &self.session {
                self.container.check_session(session, range_id, lsn)?;
            }
            match &mut self.served {
                Some(served) => served.and_by(range_id, lsn),
                None => self.served = Some(Served::by(range_id, lsn)),
            }
            self.entered = Some(self.at);
        }
        self.first_second.get_or_insert_with(|| view.clock.now());
        Ok(view)
    }

    /// How far the index alone gets with this part; `None` if it does not answer.
    fn answer_from_index(
        &mut self,
        view: &ShardView,
        deadline: Instant,
    ) -> Result<Option<WalkEnd>> {
        let (RunMode::Whole(whole), Some(part)) = (&mut self.mode, self.parts.get(self.at)) else {
            return Ok(None);
        };
        let ask = ScanRequest {
            query: &self.query,
            keys: &part.keys,
            resume: self.point.as_ref(),
            scan_allowed: self.scan_allowed,
            budget: ScanBudget {
                entries_max: PAGE_ENTRIES_MAX,
                deadline: Some(deadline),
            },
        };
        // The engine's memory is not the query's.
        let Some(answer) = self.meter.outside(|| aggregate_from_index(view, &ask))? else {
            return Ok(None);
        };
        whole.execution.absorb(answer.partial)?;
        self.work.examined += answer.examined;
        add_use(&mut self.work.used, &answer.used);
        self.point = answer.resume;
        Ok(Some(match self.point {
            Some(_) => WalkEnd::Paused,
            None => WalkEnd::PartDone,
        }))
    }

    fn walk(&mut self, view: &ShardView, budget: ScanBudget) -> Result<WalkEnd> {
        let part = self.parts.get(self.at).ok_or_else(no_parts)?;
        let ask = ScanRequest {
            query: &self.query,
            keys: &part.keys,
            resume: self.point.as_ref(),
            scan_allowed: self.scan_allowed,
            budget,
        };
        let meter = Arc::clone(&self.meter);
        let counts = meter.counts();
        let mut reader = RowReader::new(&self.query, &meter);
        let mut candidates = meter.outside(|| Candidates::open(view, &ask))?;
        meter.set_selection(candidates.held_bytes());
        meter.check_memory(0)?;
        let sorted = candidates.is_ordered();
        let looks_inside = !self.query.wanted().is_nothing();
        let mut stopped_at = None;
        let walked = loop {
            let item = match meter.outside(|| candidates.next())? {
                ScanStep::Item(item) => item,
                ScanStep::Paused => {
                    stopped_at = Some(candidates.resume_at());
                    break WalkEnd::Paused;
                }
                ScanStep::End => break WalkEnd::PartDone,
            };
            if looks_inside {
                self.work.read += 1;
                self.work.read_bytes += item.body.len();
            }
            let ordinal = item.header.ordinal;
            let taken = match &mut self.mode {
                RunMode::Streaming(streaming) => streaming.take(&mut reader, &item, self.at)?,
                RunMode::Ordered(ordered) => ordered.take(&mut reader, &item, self.at, sorted)?,
                RunMode::Whole(whole) => whole.take(&mut reader, &item)?,
                RunMode::Gone => ItemOutcome::AllDone,
            };
            meter.set_selection(candidates.held_bytes());
            if !counts {
                meter.set_estimate(self.estimated_bytes());
            }
            meter.check_memory(0)?;
            match taken {
                ItemOutcome::More => {}
                ItemOutcome::PartDone => break WalkEnd::PartDone,
                ItemOutcome::AllDone => break WalkEnd::AllDone,
                ItemOutcome::Full { within } => {
                    if let RunMode::Streaming(streaming) = &mut self.mode {
                        streaming.stopped_within = Some((ordinal, within));
                    }
                    stopped_at = Some(candidates.resume_at());
                    break WalkEnd::AllDone;
                }
            }
        };
        self.work.examined += candidates.examined();
        add_use(&mut self.work.used, candidates.used());
        meter.outside(|| drop(candidates));
        meter.set_selection(0);
        self.point = stopped_at;
        Ok(walked)
    }

    /// The page, when nothing more needs to be looked at for it.
    fn finish(mut self: Box<Self>) -> Result<RunProgress> {
        let sorted = match std::mem::replace(&mut self.mode, RunMode::Gone) {
            RunMode::Streaming(streaming) => return self.stream_page(streaming),
            RunMode::Ordered(ordered) => ordered.finish(),
            RunMode::Whole(whole) => {
                let after = whole.after().cloned();
                let wants = PageWants::new(self.window, self.bounds, self.found, after.as_ref());
                match whole.finish(&self.order, self.window, wants, &self.meter)? {
                    WholeOutcome::Page(page) => page,
                    WholeOutcome::Again => {
                        self.mode = RunMode::Whole(Whole::uncut(&self.query, after, &self.meter));
                        (self.at, self.point) = (0, None);
                        self.rest.clear();
                        self.meter.end_slice();
                        return Ok(RunProgress::More(self));
                    }
                }
            }
            RunMode::Gone => return Err(no_parts()),
        };
        let SortedPage { rows, more, found } = sorted;
        let place = more.map(|after| TokenPosition::Rows {
            after: Some(after),
            unfinished: None,
        });
        self.page(rows, place.map(|place| (found, place)))
    }

    fn stream_page(mut self: Box<Self>, streaming: Streaming) -> Result<RunProgress> {
        let more = self.at < self.parts.len() && !streaming.is_done();
        let (ordinal, within) = streaming.stopped_within.unwrap_or_default();
        let place = more
            .then(|| self.cursor())
            .transpose()?
            .map(|cursor| TokenPosition::Items {
                cursor,
                ordinal,
                within,
            });
        let Streaming { rows, found, .. } = streaming;
        self.page(rows, place.map(|place| (found, place)))
    }

    /// An early end of the page: what was found so far, or nothing but a place to go on from.
    fn pause(mut self: Box<Self>) -> Result<RunProgress> {
        match std::mem::replace(&mut self.mode, RunMode::Gone) {
            RunMode::Streaming(streaming) => self.stream_page(streaming),
            RunMode::Whole(whole) if whole.execution.held_bytes() <= CARRIED_BYTES_MAX => {
                self.carry(whole)
            }
            mode => {
                self.mode = mode;
                self.keep()
            }
        }
    }

    /// Puts the work so far into the token, if it fits.
    fn carry(mut self: Box<Self>, whole: Whole) -> Result<RunProgress> {
        let after = whole.after().cloned();
        let partial = whole.execution.into_partial();
        let place = TokenPosition::Rows {
            after: after.clone(),
            unfinished: Some(UnfinishedPage::Carried {
                cursor: self.cursor()?,
                partial: partial.clone(),
            }),
        };
        if QueryToken::new(self.fingerprint(), self.found, place.clone())
            .encode()
            .is_some()
        {
            let found = self.found;
            return self.page(Rows::default(), Some((found, place)));
        }
        let mut whole = self.new_whole(after);
        whole.execution.absorb(partial)?;
        self.mode = RunMode::Whole(whole);
        self.keep()
    }

    /// Leaves the work so far with the node.
    fn keep(mut self: Box<Self>) -> Result<RunProgress> {
        let after = match &self.mode {
            RunMode::Ordered(ordered) => ordered.after().cloned(),
            RunMode::Whole(whole) => whole.after().cloned(),
            RunMode::Streaming(_) | RunMode::Gone => None,
        };
        let served = self.served.clone().ok_or_else(no_parts)?;
        let (fingerprint, found) = (self.fingerprint(), self.found);
        let work = std::mem::take(&mut self.work);
        let meter = Arc::clone(&self.meter);
        meter.end_slice();
        meter.release_surplus();
        let scheduler = Arc::clone(meter.scheduler());
        let place = TokenPosition::Rows {
            after,
            unfinished: Some(UnfinishedPage::Kept(scheduler.keep(self))),
        };
        Ok(RunProgress::Page(Box::new(Answer {
            value: QueryPage {
                rows: Rows::default(),
                first_due: None,
                continuation: Some(encode(&QueryToken::new(fingerprint, found, place))?),
                work,
                memory: None,
            },
            served,
        })))
    }

    fn page(&mut self, mut rows: Rows, next: Option<(u64, TokenPosition)>) -> Result<RunProgress> {
        if let Some(part) = self.parts.first()
            && self.first_second != Some(part.shard.view()?.clock.now())
        {
            rows.drop_expired(&self.parts)?;
        }
        let served = self.served.clone().ok_or_else(no_parts)?;
        let continuation = next
            .map(|(found, place)| encode(&QueryToken::new(self.fingerprint(), found, place)))
            .transpose()?;
        let first_due = rows.first_due(&self.parts)?;
        self.meter.end_slice();
        self.meter.release_surplus();
        Ok(RunProgress::Page(Box::new(Answer {
            value: QueryPage {
                first_due,
                rows,
                continuation,
                work: std::mem::take(&mut self.work),
                memory: Some(Arc::clone(&self.meter)),
            },
            served,
        })))
    }
}

/// The parts of one range, as ranges of indexes. Where it was split meanwhile, parts that the split has cut apart count as one.
fn parts_of(parts: &[ScopePart], range_id: u32) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut last: Option<&ScopePart> = None;
    for (index, part) in parts.iter().enumerate() {
        if !part.shard.facts.descends_from(range_id) {
            continue;
        }
        let cut = last.is_some_and(|last| {
            last.keys.max == part.keys.min && last.shard.facts.range_id != part.shard.facts.range_id
        });
        match found.last_mut() {
            Some((_, end)) if cut => *end = index + 1,
            _ => found.push((index, index + 1)),
        }
        last = Some(part);
    }
    found
}

fn encode(token: &QueryToken) -> Result<String> {
    let text = token.encode();
    text.ok_or_else(|| Error::internal("a continuation token is too long"))
}

fn no_parts() -> Error {
    Error::internal("a query without a scope")
}

fn add_use(all: &mut IndexUse, one: &IndexUse) {
    fn add<T: Clone + PartialEq>(all: &mut Vec<T>, one: &[T]) {
        for each in one {
            if !all.contains(each) {
                all.push(each.clone());
            }
        }
    }
    add(&mut all.utilized, &one.utilized);
    add(&mut all.potential, &one.potential);
    add(&mut all.utilized_composite, &one.utilized_composite);
    add(&mut all.potential_composite, &one.potential_composite);
}
