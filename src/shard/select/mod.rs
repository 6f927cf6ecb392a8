//! Finds the items of one shard that a query must look at, in the order in which it wants them: from the index where that helps,
//! by a walk over all items of the range where it does not. The filter is still the caller's to evaluate, unless a candidate says otherwise.
//!
//! ```text
//! let mut candidates = Candidates::open(&view, &Ask { … })?;
//! while let Step::Item(item) = candidates.next()? { … }
//! let more = candidates.resume_at();
//! ```

mod choose;
mod composite;
mod condition;
mod count_range;
mod count_set;
mod estimate;
mod filter;
mod from_index;
mod items;
mod names;
mod order;
mod ordinals;
mod ranges;
mod reader;
mod scan;
mod walk;

use std::{rc::Rc, time::Instant};

#[cfg(test)]
pub use choose::EAGER;
pub use from_index::from_index;

use choose::{Access, choose};
use items::{Entries, ItemsOfIndex};
use ordinals::OrdinalWalk;
use reader::Reader;
use scan::KeyScan;
use walk::Walk;

use super::view::ShardView;
use crate::{
    model::{
        epk::EpkRange,
        error::{Error, Result},
    },
    sql::{Partial, Query},
    store::document::Header,
};

/// Entries after which the deadline is looked at again: few, because one item can cost a query as much as thousands do.
const ENTRIES_PER_LOOK_AT_THE_CLOCK: usize = 4;

/// What is looked for.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    pub query: &'a Query,
    /// The part of the shard in scope.
    pub keys: &'a EpkRange,
    /// Where an earlier selection of the same query stopped.
    pub resume: Option<&'a ResumePoint>,
    /// Whether the client allows a scan where the container has no index at all (`x-ms-documentdb-query-enable-scan`).
    pub scan_allowed: bool,
    pub budget: Budget,
}

/// How much work may be done before the selection pauses.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Entries of index and items looked at.
    pub entries_max: usize,
    pub deadline: Option<Instant>,
}

/// A place in a selection, for a continuation token: opaque, at most [`RESUME_BYTES_MAX`] bytes. It belongs to one query text and one
/// shard, and stays good over restarts, writes and expiries; a policy that no longer indexes what the selection followed ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint(Vec<u8>);

/// Leaves room for the rest of a token of 1,024 characters.
pub const RESUME_BYTES_MAX: usize = 690;

impl ResumePoint {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is a place in the order of keys. Then it is before or behind all keys of another range; a place in the index is not.
    pub fn is_of_keys(&self) -> bool {
        walk::driver_of(self).is_none() && !ordinals::is_of_ordinals(self)
    }

    /// Takes any bytes: what is not a place in the selection is refused when it is opened.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Of a point at an entry of the index, the one behind it: the same with a capital letter in front.
    fn behind(mut self) -> Self {
        if let Some(kind) = self.0.first_mut() {
            kind.make_ascii_uppercase();
        }
        self
    }
}

/// An item that the query must look at.
pub struct Candidate<'c> {
    /// The document key in the engine.
    pub key: &'c [u8],
    pub header: &'c Header,
    /// The item's JSON as stored.
    pub body: &'c [u8],
    /// The index has shown that the filter holds: it need not be evaluated.
    pub matches: bool,
}

pub enum Step<'c> {
    Item(Candidate<'c>),
    /// The budget is used up; go on from `resume_at` with a new one.
    Paused,
    End,
}

/// Which index a selection used, and which would have helped; for the index metrics of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Paths as a policy writes them: `/a/?`, `/tags/[]/?`.
    pub utilized: Vec<String>,
    pub potential: Vec<String>,
    /// Columns as `/a ASC`.
    pub utilized_composite: Vec<Vec<String>>,
    pub potential_composite: Vec<Vec<String>>,
}

/// A selection under way.
pub struct Candidates<'v> {
    source: Source<'v>,
    ordered: bool,
    used: IndexUse,
    spent: Spent,
    paused: bool,
}

enum Source<'v> {
    Nothing,
    Keys(Box<KeyScan<'v>>),
    Index(Box<ItemsOfIndex<'v>>),
}

/// The budget and what was taken from it.
struct Spent {
    budget: Budget,
    examined: usize,
    /// The clock is looked at again when so many were.
    next_look: usize,
}

impl Spent {
    fn new(budget: Budget) -> Self {
        Self {
            budget,
            examined: 0,
            next_look: ENTRIES_PER_LOOK_AT_THE_CLOCK,
        }
    }

    /// Entries that may still be looked at.
    fn left(&self) -> usize {
        self.budget.entries_max.saturating_sub(self.examined)
    }

    /// However small the budget, a selection gets on.
    fn is_over(&mut self) -> bool {
        if self.examined >= self.budget.entries_max.max(1) {
            return true;
        }
        if self.examined < self.next_look {
            return false;
        }
        self.next_look = self.examined + ENTRIES_PER_LOOK_AT_THE_CLOCK;
        let deadline = self.budget.deadline;
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

impl<'v> Candidates<'v> {
    pub fn open(view: &'v ShardView, ask: &Ask<'_>) -> Result<Self> {
        let reader = Reader::open(view);
        let choice = choose(&reader, ask)?;
        let entries = match choice.access {
            Access::Nothing => None,
            Access::Keys => {
                let source = Source::Keys(Box::new(KeyScan::open(view, ask.keys, ask.resume)?));
                return Ok(Self::new(source, false, choice.used, ask.budget));
            }
            Access::Walk(plan) => Some(Entries::Walk(Walk::open(&reader, plan, ask.resume)?)),
            Access::Ordinals(ordinals) => {
                Some(Entries::Ordinals(OrdinalWalk::open(ordinals, ask.resume)?))
            }
        };
        let source = match entries {
            None => Source::Nothing,
            Some(entries) => Source::Index(Box::new(ItemsOfIndex::new(
                Rc::new(reader),
                entries,
                choice.checks,
                choice.exact,
                ask.keys,
                items_wanted(ask.query),
            ))),
        };
        let ordered = choice.ordered || matches!(source, Source::Nothing);
        Ok(Self::new(source, ordered, choice.used, ask.budget))
    }

    fn new(source: Source<'v>, ordered: bool, used: IndexUse, budget: Budget) -> Self {
        Self {
            source,
            ordered,
            used,
            spent: Spent::new(budget),
            paused: false,
        }
    }

    /// Whether the items come in the order of the query's ORDER BY, so that the first rows are the first. Otherwise the caller sorts. Ties are in
    /// the order of resource ids; in its reverse where the first column is descending.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// The next live item.
    #[expect(
        clippy::should_implement_trait,
        reason = "an item borrows from the selection"
    )]
    pub fn next(&mut self) -> Result<Step<'_>> {
        loop {
            if self.spent.is_over() {
                self.paused = true;
                return Ok(Step::Paused);
            }
            self.spent.examined += 1;
            let (more, found) = match &mut self.source {
                Source::Nothing => (false, false),
                Source::Keys(scan) => (scan.advance()?, scan.is_live()),
                Source::Index(items) => {
                    let left = self.spent.left();
                    (items.advance(left)?, items.has_item())
                }
            };
            if !more {
                return Ok(Step::End);
            }
            if found {
                break;
            }
        }
        match &self.source {
            Source::Nothing => Ok(Step::End),
            Source::Keys(scan) => scan.candidate().map(Step::Item),
            Source::Index(items) => items.candidate().map(Step::Item),
        }
    }

    /// A selection that resumes here begins with the item that `next` gave last. After `Paused` it begins with what would have come next.
    pub fn resume_at(&self) -> ResumePoint {
        if self.paused {
            return self.resume_after();
        }
        match &self.source {
            Source::Nothing => ResumePoint(Vec::new()),
            Source::Keys(scan) => scan.resume_at(),
            Source::Index(items) => items.resume_at(),
        }
    }

    /// A selection that resumes here begins behind the item that `next` gave last.
    pub fn resume_after(&self) -> ResumePoint {
        match &self.source {
            Source::Nothing => ResumePoint(Vec::new()),
            Source::Keys(scan) => scan.resume_after(),
            Source::Index(items) => items.resume_at().behind(),
        }
    }

    /// Whether the item that `next` gave last is the very one at which an earlier selection stopped with `resume_at`: then rows of it may
    /// have been handed out before.
    pub fn is_at_resume(&self) -> bool {
        match &self.source {
            Source::Nothing => false,
            Source::Keys(scan) => scan.is_at_resume(),
            Source::Index(items) => items.is_at_resume(),
        }
    }

    /// Bytes of memory that it holds to find the items.
    pub fn held_bytes(&self) -> usize {
        match &self.source {
            Source::Nothing | Source::Keys(_) => 0,
            Source::Index(items) => items.held_bytes(),
        }
    }

    /// Entries of index and items looked at so far.
    pub fn examined(&self) -> usize {
        self.spent.examined
    }

    pub fn used(&self) -> &IndexUse {
        &self.used
    }
}

/// How many items a query wants at most if its filter lets all of them through, and one more to see whether it has all.
fn items_wanted(query: &Query) -> usize {
    let window = query.offset_limit();
    let limit = window.map_or(u64::MAX, |one| one.offset.saturating_add(one.limit));
    let wanted = limit.min(query.top().unwrap_or(u64::MAX));
    usize::try_from(wanted).map_or(usize::MAX, |wanted| wanted.saturating_add(1))
}

/// What the query comes to in this shard, worked out from the index alone.
pub struct FromIndex {
    /// To be absorbed by an execution of the same query.
    pub partial: Partial,
    /// Present when the budget was used up before the end: the rest is to be asked for.
    pub resume: Option<ResumePoint>,
    pub examined: usize,
    pub used: IndexUse,
}

fn foreign_resume_point() -> Error {
    Error::bad_request("Invalid Continuation Token: it belongs to another query")
}
