//! One page of a query in the making: a walk over the parts of its scope, in slices.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    RunQuery,
    meter::{QueryMeter, abandoned},
    modes::{Ordered, Outcome, Reader, Sorted, Streaming, Taken, Wants, Whole, Window},
    position::{Order, Position},
    rows::Rows,
    scope::{Part, parts},
    token::{Cursor, Fingerprint, Place, Token, Unfinished, invalid},
};
use crate::{
    model::{
        epk::EpkRange,
        error::{Error, ErrorKind, Result},
    },
    router::{
        Answer, ContainerRoute,
        actor::{PageBounds, Scope},
        session::{Served, SessionToken},
    },
    shard::{
        select::{Ask, Budget, Candidates, IndexUse, ResumePoint, Step, from_index},
        view::ShardView,
    },
    sql::{Query, Shape},
};

/// How long one slice of work lasts. Others get their turn in between.
const SLICE_TIME: Duration = Duration::from_millis(20);
/// Entries and time of the glance that a query gets before others are asked to work on it.
const GLANCE_ENTRIES_MAX: usize = 32;
const GLANCE_TIME: Duration = Duration::from_millis(1);
/// How long one page may be worked on before it is handed out, full or not.
const PAGE_TIME_MAX: Duration = Duration::from_secs(2);
/// Entries of index and items that one page may look at.
const PAGE_ENTRIES_MAX: usize = 4_000_000;
/// The largest state of aggregates that is tried to be put into a token, in bytes.
const CARRIED_BYTES_MAX: usize = 4_000;

/// One page of rows.
#[derive(Debug)]
pub struct QueryPage {
    pub rows: Rows,
    /// When the first of the rows' items falls due.
    pub first_due: Option<i64>,
    pub continuation: Option<String>,
    pub work: Work,
    /// The memory of the rows, reserved until the page is dropped.
    pub memory: Option<Arc<QueryMeter>>,
}

/// What a page has cost.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Entries of index and items looked at.
    pub examined: usize,
    /// Items read, and their bytes; those of which only the key and the expiry matter are not.
    pub read: usize,
    pub read_bytes: usize,
    pub time: Duration,
    pub used: IndexUse,
}

pub struct Run {
    container: Arc<ContainerRoute>,
    query: Arc<Query>,
    bounds: PageBounds,
    session: Option<SessionToken>,
    scan_allowed: bool,
    window: Window,
    order: Order,
    parts: Vec<Part>,
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
    mode: Mode,
    first_second: Option<i64>,
    started: Instant,
    work: Work,
    /// Last: what is reserved is given back when everything else is.
    meter: Arc<QueryMeter>,
}

enum Mode {
    Streaming(Streaming),
    Ordered(Ordered),
    Whole(Whole),
    /// While the mode is taken apart.
    Gone,
}

enum Walked {
    Paused,
    PartDone,
    AllDone,
}

/// After a slice.
pub enum Progress {
    More(Box<Run>),
    Page(Box<Answer<QueryPage>>),
}

/// Rows that are in the order of the shards can be answered shard by shard, wherever they are. For others all shards must be on one node: this one, or one to which the
/// request is sent on. Where there is none, clients are told to ask range by range and to merge the answers, as they do with the service.
fn check_one_node_has_all(request: &RunQuery, parts: &[Part]) -> Result<()> {
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

impl Run {
    /// Begins a page, or goes on with one that was not finished.
    pub fn new(request: RunQuery) -> Result<Box<Self>> {
        let unfinished = match &request.token {
            Some(Token {
                place: Place::Rows { unfinished, .. },
                ..
            }) => unfinished.clone(),
            _ => None,
        };
        if let Some(Unfinished::Kept(ticket)) = unfinished
            && let Some(mut run) = request.meter.room().take(ticket)
            && run.fingerprint() == Fingerprint::of(request.container.container.rid, &request.query)
        {
            run.session = request.session;
            run.meter.set_alive(request.meter.alive());
            run.started = Instant::now();
            run.work = Work::default();
            return Ok(run);
        }
        let parts = parts(&request.container, &request.scope, &request.query);
        check_one_node_has_all(&request, &parts)?;
        let window = Window::of(&request.query);
        let order = Order::new(request.query.descending());
        let found = request.token.as_ref().map_or(0, |token| token.rows);
        let mut run = Box::new(Self {
            mode: Mode::Gone,
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
            work: Work::default(),
            meter: request.meter,
            query: request.query,
        });
        run.begin(request.token.map(|token| token.place), request.resume)?;
        Ok(run)
    }

    /// Worked out only for tokens: most queries have their rows on one page.
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.container.container.rid, &self.query)
    }

    fn begin(&mut self, place: Option<Place>, resume: Option<Position>) -> Result<()> {
        let foreign = || invalid("it belongs to another query");
        self.mode = match (self.query.shape(), place) {
            (Shape::Streaming, None) => {
                Mode::Streaming(Streaming::new(self.window, self.bounds, self.found, (0, 0)))
            }
            (
                Shape::Streaming,
                Some(Place::Items {
                    cursor,
                    ordinal,
                    within,
                }),
            ) => {
                self.go_to(&cursor)?;
                Mode::Streaming(Streaming::new(
                    self.window,
                    self.bounds,
                    self.found,
                    (ordinal, within),
                ))
            }
            (Shape::Ordered, None) => self.ordered(resume),
            (Shape::Ordered, Some(Place::Rows { after, .. })) => self.ordered(after.or(resume)),
            (Shape::Whole, None) => self.whole(None),
            (Shape::Whole, Some(Place::Rows { after, unfinished })) => {
                let mut mode = self.new_whole(after);
                if let Some(Unfinished::Carried { cursor, partial }) = unfinished {
                    self.go_to(&cursor)?;
                    mode.execution.absorb(partial).map_err(|_| foreign())?;
                }
                Mode::Whole(mode)
            }
            _ => return Err(foreign()),
        };
        Ok(())
    }

    fn ordered(&self, after: Option<Position>) -> Mode {
        let wants = Wants::new(self.window, self.bounds, self.found, after.as_ref());
        Mode::Ordered(Ordered::new(self.order.clone(), wants, after))
    }

    fn whole(&self, after: Option<Position>) -> Mode {
        Mode::Whole(self.new_whole(after))
    }

    fn new_whole(&self, after: Option<Position>) -> Whole {
        Whole::new(&self.query, self.window, self.bounds, after, &self.meter)
    }

    fn go_to(&mut self, cursor: &Cursor) -> Result<()> {
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
        let is_whole = |part: &Part| part.shard.facts.range_id == range_id;
        if self.parts.iter().any(is_whole) {
            return parts_of(&self.parts, range_id).get(number).copied();
        }
        let ranges = &self.container.container.ranges;
        let mut pieces = ranges.iter().filter(|one| one.parents.contains(&range_id));
        let first = pieces.next()?;
        let max = &pieces.next_back().unwrap_or(first).keys.max;
        let scope = Scope {
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

    fn cursor(&self) -> Result<Cursor> {
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
            .filter(|(end, _, point)| *end > self.at + 1 && !point.is_of_keys());
        let rest = rest.map(|(_, range_id, point)| (*range_id, point.clone()));
        Ok(Cursor::new(range_id, part, self.point.as_ref()).with_rest(rest))
    }

    /// On to the next part, at its start or where it goes on.
    fn next_part(&mut self) {
        self.at += 1;
        self.rest.retain(|(end, ..)| *end > self.at);
        self.point = self.rest.last().map(|(_, _, point)| point.clone());
    }

    /// Bytes of the node's memory that are reserved for it.
    pub fn reserved(&self) -> usize {
        self.meter.reserved()
    }

    /// Looks whether the query is over at once: to hand it to another thread and back would cost more than that.
    pub fn glance(mut self: Box<Self>) -> Result<Progress> {
        let is_fresh = self.point.is_none() && self.found == 0;
        if !is_fresh || self.parts.len() != 1 || !self.query.is_brief() {
            return Ok(Progress::More(self));
        }
        self.meter.begin_turn(None);
        let begun = Instant::now();
        let budget = Budget {
            entries_max: GLANCE_ENTRIES_MAX,
            deadline: Some(begun + GLANCE_TIME),
        };
        let view = self.enter()?;
        let walked = self.walk(&view, budget)?;
        self.work.time += begun.elapsed();
        match walked {
            Walked::Paused => {
                self.meter.end_turn();
                return Ok(Progress::More(self));
            }
            Walked::PartDone => self.next_part(),
            Walked::AllDone => {}
        }
        self.finish()
    }

    /// Works for a while; fails if nobody waits for the answer any more.
    pub fn slice(mut self: Box<Self>, turn: OwnedSemaphorePermit) -> Result<Progress> {
        self.meter.begin_turn(Some(turn));
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
        let full = matches!(&self.mode, Mode::Streaming(streaming) if streaming.is_full());
        let spent =
            self.started.elapsed() > PAGE_TIME_MAX || self.work.examined >= PAGE_ENTRIES_MAX;
        if full || spent {
            return self.pause();
        }
        self.meter.end_turn();
        Ok(Progress::More(self))
    }

    /// About what is held, where the allocator does not count.
    fn estimated_bytes(&self) -> usize {
        match &self.mode {
            Mode::Ordered(ordered) => ordered.held_bytes(),
            Mode::Whole(whole) => whole.execution.held_bytes(),
            Mode::Streaming(streaming) => streaming.rows.bytes(),
            Mode::Gone => 0,
        }
    }

    /// Walks over the parts until the page is done (`true`) or the slice is over.
    fn walk_on(&mut self, deadline: Instant) -> Result<bool> {
        if let Mode::Whole(whole) = &mut self.mode
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
                    let budget = Budget {
                        entries_max: PAGE_ENTRIES_MAX,
                        deadline: Some(deadline),
                    };
                    self.walk(&view, budget)?
                }
            };
            match walked {
                Walked::Paused => return Ok(false),
                Walked::AllDone => return Ok(true),
                Walked::PartDone => self.next_part(),
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
    fn answer_from_index(&mut self, view: &ShardView, deadline: Instant) -> Result<Option<Walked>> {
        let (Mode::Whole(whole), Some(part)) = (&mut self.mode, self.parts.get(self.at)) else {
            return Ok(None);
        };
        let ask = Ask {
            query: &self.query,
            keys: &part.keys,
            resume: self.point.as_ref(),
            scan_allowed: self.scan_allowed,
            budget: Budget {
                entries_max: PAGE_ENTRIES_MAX,
                deadline: Some(deadline),
            },
        };
        // The engine's memory is not the query's.
        let Some(answer) = self.meter.outside(|| from_index(view, &ask))? else {
            return Ok(None);
        };
        whole.execution.absorb(answer.partial)?;
        self.work.examined += answer.examined;
        add_use(&mut self.work.used, &answer.used);
        self.point = answer.resume;
        Ok(Some(match self.point {
            Some(_) => Walked::Paused,
            None => Walked::PartDone,
        }))
    }

    fn walk(&mut self, view: &ShardView, budget: Budget) -> Result<Walked> {
        let part = self.parts.get(self.at).ok_or_else(no_parts)?;
        let ask = Ask {
            query: &self.query,
            keys: &part.keys,
            resume: self.point.as_ref(),
            scan_allowed: self.scan_allowed,
            budget,
        };
        let meter = Arc::clone(&self.meter);
        let counts = meter.counts();
        let mut reader = Reader::new(&self.query, &meter);
        let mut candidates = meter.outside(|| Candidates::open(view, &ask))?;
        meter.set_selection(candidates.held_bytes());
        meter.check_memory(0)?;
        let sorted = candidates.is_ordered();
        let looks_inside = !self.query.wanted().is_nothing();
        let mut stopped_at = None;
        let walked = loop {
            let item = match meter.outside(|| candidates.next())? {
                Step::Item(item) => item,
                Step::Paused => {
                    stopped_at = Some(candidates.resume_at());
                    break Walked::Paused;
                }
                Step::End => break Walked::PartDone,
            };
            if looks_inside {
                self.work.read += 1;
                self.work.read_bytes += item.body.len();
            }
            let ordinal = item.header.ordinal;
            let taken = match &mut self.mode {
                Mode::Streaming(streaming) => streaming.take(&mut reader, &item, self.at)?,
                Mode::Ordered(ordered) => ordered.take(&mut reader, &item, self.at, sorted)?,
                Mode::Whole(whole) => whole.take(&mut reader, &item)?,
                Mode::Gone => Taken::AllDone,
            };
            meter.set_selection(candidates.held_bytes());
            if !counts {
                meter.set_estimate(self.estimated_bytes());
            }
            meter.check_memory(0)?;
            match taken {
                Taken::More => {}
                Taken::PartDone => break Walked::PartDone,
                Taken::AllDone => break Walked::AllDone,
                Taken::Full { within } => {
                    if let Mode::Streaming(streaming) = &mut self.mode {
                        streaming.stopped_within = Some((ordinal, within));
                    }
                    stopped_at = Some(candidates.resume_at());
                    break Walked::AllDone;
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
    fn finish(mut self: Box<Self>) -> Result<Progress> {
        let sorted = match std::mem::replace(&mut self.mode, Mode::Gone) {
            Mode::Streaming(streaming) => return self.stream_page(streaming),
            Mode::Ordered(ordered) => ordered.finish(),
            Mode::Whole(whole) => {
                let after = whole.after().cloned();
                let wants = Wants::new(self.window, self.bounds, self.found, after.as_ref());
                match whole.finish(&self.order, self.window, wants, &self.meter)? {
                    Outcome::Page(page) => page,
                    Outcome::Again => {
                        self.mode = Mode::Whole(Whole::uncut(&self.query, after, &self.meter));
                        (self.at, self.point) = (0, None);
                        self.rest.clear();
                        self.meter.end_turn();
                        return Ok(Progress::More(self));
                    }
                }
            }
            Mode::Gone => return Err(no_parts()),
        };
        let Sorted { rows, more, found } = sorted;
        let place = more.map(|after| Place::Rows {
            after: Some(after),
            unfinished: None,
        });
        self.page(rows, place.map(|place| (found, place)))
    }

    fn stream_page(mut self: Box<Self>, streaming: Streaming) -> Result<Progress> {
        let more = self.at < self.parts.len() && !streaming.is_done();
        let (ordinal, within) = streaming.stopped_within.unwrap_or_default();
        let place = more
            .then(|| self.cursor())
            .transpose()?
            .map(|cursor| Place::Items {
                cursor,
                ordinal,
                within,
            });
        let Streaming { rows, found, .. } = streaming;
        self.page(rows, place.map(|place| (found, place)))
    }

    /// An early end of the page: what was found so far, or nothing but a place to go on from.
    fn pause(mut self: Box<Self>) -> Result<Progress> {
        match std::mem::replace(&mut self.mode, Mode::Gone) {
            Mode::Streaming(streaming) => self.stream_page(streaming),
            Mode::Whole(whole) if whole.execution.held_bytes() <= CARRIED_BYTES_MAX => {
                self.carry(whole)
            }
            mode => {
                self.mode = mode;
                self.keep()
            }
        }
    }

    /// Puts the work so far into the token, if it fits.
    fn carry(mut self: Box<Self>, whole: Whole) -> Result<Progress> {
        let after = whole.after().cloned();
        let partial = whole.execution.into_partial();
        let place = Place::Rows {
            after: after.clone(),
            unfinished: Some(Unfinished::Carried {
                cursor: self.cursor()?,
                partial: partial.clone(),
            }),
        };
        if Token::new(self.fingerprint(), self.found, place.clone())
            .encode()
            .is_some()
        {
            let found = self.found;
            return self.page(Rows::default(), Some((found, place)));
        }
        let mut whole = self.new_whole(after);
        whole.execution.absorb(partial)?;
        self.mode = Mode::Whole(whole);
        self.keep()
    }

    /// Leaves the work so far with the node.
    fn keep(mut self: Box<Self>) -> Result<Progress> {
        let after = match &self.mode {
            Mode::Ordered(ordered) => ordered.after().cloned(),
            Mode::Whole(whole) => whole.after().cloned(),
            Mode::Streaming(_) | Mode::Gone => None,
        };
        let served = self.served.clone().ok_or_else(no_parts)?;
        let (fingerprint, found) = (self.fingerprint(), self.found);
        let work = std::mem::take(&mut self.work);
        let meter = Arc::clone(&self.meter);
        meter.end_turn();
        meter.release_surplus();
        let room = Arc::clone(meter.room());
        let place = Place::Rows {
            after,
            unfinished: Some(Unfinished::Kept(room.keep(self))),
        };
        Ok(Progress::Page(Box::new(Answer {
            value: QueryPage {
                rows: Rows::default(),
                first_due: None,
                continuation: Some(encode(&Token::new(fingerprint, found, place))?),
                work,
                memory: None,
            },
            served,
        })))
    }

    fn page(&mut self, mut rows: Rows, next: Option<(u64, Place)>) -> Result<Progress> {
        if let Some(part) = self.parts.first()
            && self.first_second != Some(part.shard.view()?.clock.now())
        {
            rows.drop_expired(&self.parts)?;
        }
        let served = self.served.clone().ok_or_else(no_parts)?;
        let continuation = next
            .map(|(found, place)| encode(&Token::new(self.fingerprint(), found, place)))
            .transpose()?;
        let first_due = rows.first_due(&self.parts)?;
        self.meter.end_turn();
        self.meter.release_surplus();
        Ok(Progress::Page(Box::new(Answer {
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
fn parts_of(parts: &[Part], range_id: u32) -> Vec<(usize, usize)> {
    let mut found: Vec<(usize, usize)> = Vec::new();
    let mut last: Option<&Part> = None;
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

fn encode(token: &Token) -> Result<String> {
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
