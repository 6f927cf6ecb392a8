//! Finds the items of one shard that a query must look at, in the order in which it wants them: from the index where that helps,
//! by a walk over all items of the range where it does not. The filter is still the caller's to evaluate, unless a candidate says otherwise.
//!
//! ```text
//! let mut candidates = Candidates::open(&view, &ScanRequest { … })?;
//! while let ScanStep::Item(item) = candidates.next()? { … }
//! let more = candidates.resume_at();
//! ```

use std::rc::Rc;

use super::{
    access::{
        Candidate, IndexEntries, IndexItems, IndexReader, IndexWalk, KeyScan, OrdinalWalk,
        ResumePoint, ScanBudget, SpentBudget,
    },
    plan::{
        IndexUse, ScanRequest,
        planner::{AccessPath, choose},
    },
};
use crate::{model::error::Result, shard::view::ShardView, sql::Query};

pub enum ScanStep<'c> {
    Item(Candidate<'c>),
    /// The budget is used up; go on from `resume_at` with a new one.
    Paused,
    End,
}

/// A selection under way.
pub struct Candidates<'v> {
    source: Source<'v>,
    ordered: bool,
    used: IndexUse,
    spent: SpentBudget,
    paused: bool,
}

enum Source<'v> {
    Nothing,
    Keys(Box<KeyScan<'v>>),
    Index(Box<IndexItems<'v>>),
}

impl<'v> Candidates<'v> {
    pub fn open(view: &'v ShardView, request: &ScanRequest<'_>) -> Result<Self> {
        let reader = IndexReader::open(view);
        let choice = choose(&reader, request)?;
        let entries = match choice.access {
            AccessPath::Nothing => None,
            AccessPath::Keys => {
                let source =
                    Source::Keys(Box::new(KeyScan::open(view, request.keys, request.resume)?));
                return Ok(Self::new(source, false, choice.used, request.budget));
            }
            AccessPath::Walk(plan) => Some(IndexEntries::Walk(IndexWalk::open(
                &reader,
                plan,
                request.resume,
            )?)),
            AccessPath::Ordinals(ordinals) => Some(IndexEntries::Ordinals(OrdinalWalk::open(
                ordinals,
                request.resume,
            )?)),
        };
        let source = match entries {
            None => Source::Nothing,
            Some(entries) => Source::Index(Box::new(IndexItems::new(
                Rc::new(reader),
                entries,
                choice.checks,
                choice.exact,
                request.keys,
                items_wanted(request.query),
            ))),
        };
        let ordered = choice.ordered || matches!(source, Source::Nothing);
        Ok(Self::new(source, ordered, choice.used, request.budget))
    }

    fn new(source: Source<'v>, ordered: bool, used: IndexUse, budget: ScanBudget) -> Self {
        Self {
            source,
            ordered,
            used,
            spent: SpentBudget::new(budget),
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
    pub fn next(&mut self) -> Result<ScanStep<'_>> {
        loop {
            if self.spent.is_over() {
                self.paused = true;
                return Ok(ScanStep::Paused);
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
                return Ok(ScanStep::End);
            }
            if found {
                break;
            }
        }
        match &self.source {
            Source::Nothing => Ok(ScanStep::End),
            Source::Keys(scan) => scan.candidate().map(ScanStep::Item),
            Source::Index(items) => items.candidate().map(ScanStep::Item),
        }
    }

    /// A selection that resumes here begins with the item that `next` gave last. After `Paused` it begins with what would have come next.
    pub fn resume_at(&self) -> ResumePoint {
        if self.paused {
            return self.resume_after();
        }
        match &self.source {
            Source::Nothing => ResumePoint::nowhere(),
            Source::Keys(scan) => scan.resume_at(),
            Source::Index(items) => items.resume_at(),
        }
    }

    /// A selection that resumes here begins behind the item that `next` gave last.
    pub fn resume_after(&self) -> ResumePoint {
        match &self.source {
            Source::Nothing => ResumePoint::nowhere(),
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
