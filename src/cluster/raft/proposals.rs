//! Proposals of this node whose outcome is not known yet.
//!
//! A proposal is committed when its index is applied in the term in which it was proposed. It is
//! superseded, and never will be committed, when another entry is applied at its index, or an entry
//! of a later term before it: terms of a log never decrease.

use std::collections::VecDeque;

pub struct Proposals<T>(VecDeque<Proposal<T>>);

struct Proposal<T> {
    index: u64,
    term: u64,
    what: T,
}

/// What became of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalOutcome {
    Committed,
    /// Another entry was committed in its place.
    Superseded,
}

impl<T> Default for Proposals<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Proposals<T> {
    /// Adds a proposal that was appended to the log at this index.
    pub fn add(&mut self, index: u64, term: u64, what: T) {
        self.0.push_back(Proposal { index, term, what });
    }

    /// Notes that an entry is applied. Returns the proposals whose outcome it decides.
    pub fn applied(&mut self, index: u64, term: u64) -> impl Iterator<Item = (ProposalOutcome, T)> {
        let decided = |proposal: &Proposal<T>| proposal.term < term || proposal.index <= index;
        let count = self.0.partition_point(decided);
        self.0.drain(..count).map(move |proposal| {
            let outcome = match (proposal.index, proposal.term) == (index, term) {
                true => ProposalOutcome::Committed,
                false => ProposalOutcome::Superseded,
            };
            (outcome, proposal.what)
        })
    }

    /// Removes and returns the proposals of other terms than this one.
    pub fn take_others(&mut self, term: Option<u64>) -> Vec<T> {
        let is_of_term = |proposal: &Proposal<T>| Some(proposal.term) == term;
        let (remaining, others) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(is_of_term);
        self.0 = remaining;
        VecDeque::into_iter(others)
            .map(|proposal| proposal.what)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(
        proposals: &mut Proposals<u32>,
        index: u64,
        term: u64,
    ) -> Vec<(ProposalOutcome, u32)> {
        proposals.applied(index, term).collect()
    }

    #[test]
    fn an_entry_is_committed_or_superseded_by_another() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 50);
        proposals.add(6, 1, 60);
        assert_eq!(outcomes(&mut proposals, 4, 1), []);
        assert_eq!(
            outcomes(&mut proposals, 5, 1),
            [(ProposalOutcome::Committed, 50)]
        );
        assert_eq!(
            outcomes(&mut proposals, 6, 2),
            [(ProposalOutcome::Superseded, 60)]
        );
        assert_eq!(outcomes(&mut proposals, 6, 2), []);
    }

    #[test]
    fn nothing_of_an_earlier_term_comes_after_an_entry_of_a_later_one() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 51);
        proposals.add(9, 1, 91);
        let both = [
            (ProposalOutcome::Superseded, 51),
            (ProposalOutcome::Superseded, 91),
        ];
        assert_eq!(outcomes(&mut proposals, 5, 3), both);
        proposals.add(6, 3, 63);
        assert_eq!(
            outcomes(&mut proposals, 6, 3),
            [(ProposalOutcome::Committed, 63)]
        );
    }

    #[test]
    fn proposals_of_other_terms_can_be_taken() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 51);
        proposals.add(6, 3, 63);
        assert_eq!(proposals.take_others(Some(3)), [51]);
        assert_eq!(proposals.take_others(None), [63]);
    }
}
