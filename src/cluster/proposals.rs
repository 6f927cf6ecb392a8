//! What this node has proposed to a group, until it is known whether it was kept: an entry is, when it is applied in the term that it was proposed in. It is not, and
//! never will be, when another one is applied in its place, or one of a later term before it: terms of a log never go down.

use std::collections::VecDeque;

pub struct Proposals<T>(VecDeque<Proposal<T>>);

struct Proposal<T> {
    index: u64,
    term: u64,
    what: T,
}

/// What became of a proposal.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    Kept,
    Lost,
}

impl<T> Default for Proposals<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Proposals<T> {
    /// The log has an entry at this index, for the time being. Whoever proposes in a term has applied an entry of it.
    pub fn add(&mut self, index: u64, term: u64, what: T) {
        self.0.push_back(Proposal { index, term, what });
    }

    /// An entry is applied: what becomes of all that is decided by it.
    pub fn applied(&mut self, index: u64, term: u64) -> impl Iterator<Item = (Fate, T)> {
        let decided = |proposal: &Proposal<T>| proposal.term < term || proposal.index <= index;
        let count = self.0.partition_point(decided);
        self.0.drain(..count).map(move |proposal| {
            let kept = (proposal.index, proposal.term) == (index, term);
            (if kept { Fate::Kept } else { Fate::Lost }, proposal.what)
        })
    }

    /// Forgets what was proposed in other terms than this one.
    pub fn take_others(&mut self, term: Option<u64>) -> Vec<T> {
        let of_this = |proposal: &Proposal<T>| Some(proposal.term) == term;
        let (kept, others) = std::mem::take(&mut self.0).into_iter().partition(of_this);
        self.0 = kept;
        VecDeque::into_iter(others)
            .map(|proposal| proposal.what)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fates(proposals: &mut Proposals<u32>, index: u64, term: u64) -> Vec<(Fate, u32)> {
        proposals.applied(index, term).collect()
    }

    #[test]
    fn an_entry_is_kept_or_another_one_is_in_its_place() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 50);
        proposals.add(6, 1, 60);
        assert_eq!(fates(&mut proposals, 4, 1), []);
        assert_eq!(fates(&mut proposals, 5, 1), [(Fate::Kept, 50)]);
        assert_eq!(fates(&mut proposals, 6, 2), [(Fate::Lost, 60)]);
        assert_eq!(fates(&mut proposals, 6, 2), []);
    }

    #[test]
    fn nothing_of_an_earlier_term_comes_after_an_entry_of_a_later_one() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 51);
        proposals.add(9, 1, 91);
        let both = [(Fate::Lost, 51), (Fate::Lost, 91)];
        assert_eq!(fates(&mut proposals, 5, 3), both);
        proposals.add(6, 3, 63);
        assert_eq!(fates(&mut proposals, 6, 3), [(Fate::Kept, 63)]);
    }

    #[test]
    fn what_is_not_of_this_term_can_be_given_up() {
        let mut proposals = Proposals::default();
        proposals.add(5, 1, 51);
        proposals.add(6, 3, 63);
        assert_eq!(proposals.take_others(Some(3)), [51]);
        assert_eq!(proposals.take_others(None), [63]);
    }
}
