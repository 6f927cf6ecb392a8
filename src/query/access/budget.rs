//! How much work one step of a query may do before it pauses.

use std::time::Instant;

/// Entries after which the deadline is looked at again: few, because one item can cost a query as much as thousands do.
const ENTRIES_PER_LOOK_AT_THE_CLOCK: usize = 4;

/// How much work may be done before the selection pauses.
#[derive(Clone, Copy, Debug)]
pub struct ScanBudget {
    /// Entries of index and items looked at.
    pub entries_max: usize,
    pub deadline: Option<Instant>,
}

/// The budget and what was taken from it.
pub struct SpentBudget {
    budget: ScanBudget,
    pub examined: usize,
    /// The clock is looked at again when so many were.
    next_look: usize,
}

impl SpentBudget {
    pub fn new(budget: ScanBudget) -> Self {
        Self {
            budget,
            examined: 0,
            next_look: ENTRIES_PER_LOOK_AT_THE_CLOCK,
        }
    }

    /// Entries that may still be looked at.
    pub fn left(&self) -> usize {
        self.budget.entries_max.saturating_sub(self.examined)
    }

    /// However small the budget, a selection gets on.
    pub fn is_over(&mut self) -> bool {
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
