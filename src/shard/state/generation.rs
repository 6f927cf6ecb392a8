//! The generations of a shard's index. A change of policy builds a new one beside the old one,
//! which answers until the new one is complete.

use serde::{Deserialize, Serialize};

use crate::{model::indexing_policy::IndexingMode, store::keys::Position};

/// Which generations there are and how far each has come: a small part of the shard's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexState {
    /// What the container's policy asks for.
    pub mode: Mode,
    /// Answers queries.
    pub current: Option<Generation>,
    /// Is being built and answers nothing yet.
    pub building: Option<Generation>,
    /// Answers nothing any more; its entries are to be removed.
    pub retired: Option<u16>,
    /// The number given out last; none is used again before 65,535 others.
    last: u16,
}

/// When entries are written, or that none are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    #[default]
    None,
    Consistent,
    Lazy,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Consistent => "consistent",
            Self::Lazy => "lazy",
        }
    }
}

impl From<IndexingMode> for Mode {
    fn from(mode: IndexingMode) -> Self {
        match mode {
            IndexingMode::None => Self::None,
            IndexingMode::Consistent => Self::Consistent,
            IndexingMode::Lazy => Self::Lazy,
        }
    }
}

/// One generation. A version of an item is in it if the cursor has passed the version's place in
/// the feed, or if it was written after the generation was begun and is not lazy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    pub number: u16,
    pub lazy: bool,
    /// The transaction that began it.
    pub born_lsn: u64,
    /// Versions before this place in the feed are in the index.
    pub cursor: Position,
}

impl Generation {
    /// Returns whether the version at a place in the feed is in the index.
    pub fn covers(&self, position: Position) -> bool {
        position < self.cursor || self.takes(position.lsn)
    }

    /// Returns whether a version is indexed with its writing.
    pub fn takes(&self, lsn: u64) -> bool {
        !self.lazy && lsn > self.born_lsn
    }

    /// Returns where the cursor has nothing more to do: for a lazy one that depends on how far the
    /// shard has come.
    pub fn end(&self, shard_lsn: u64) -> Position {
        Position::after_lsn(if self.lazy { shard_lsn } else { self.born_lsn })
    }

    /// Returns how much of its way the cursor has behind it, in percent; 100 only at its end.
    pub fn progress(&self, shard_lsn: u64) -> u8 {
        self.progress_to(self.end(shard_lsn))
    }

    /// Returns the same for what was there when the generation was begun: a lazy one has more to
    /// do, for ever.
    pub fn build_progress(&self) -> u8 {
        self.progress_to(Position::after_lsn(self.born_lsn))
    }

    fn progress_to(&self, end: Position) -> u8 {
        if self.cursor >= end {
            return 100;
        }
        u8::try_from(self.cursor.lsn.saturating_mul(100) / end.lsn.max(1)).map_or(99, |p| p.min(99))
    }
}

impl IndexState {
    /// Of a shard without items: complete from the start.
    pub fn new(mode: Mode) -> Self {
        let mut state = Self {
            mode,
            ..Self::default()
        };
        if mode != Mode::None {
            let mut generation = state.next(mode, 0);
            generation.cursor = Position::after_lsn(0);
            state.current = Some(generation);
        }
        state
    }

    fn next(&mut self, mode: Mode, lsn: u64) -> Generation {
        self.last = self
            .last
            .checked_add(1)
            .filter(|n| *n < u16::MAX)
            .unwrap_or(1);
        Generation {
            number: self.last,
            lazy: mode == Mode::Lazy,
            born_lsn: lsn,
            cursor: Position::START,
        }
    }

    /// Begins a generation with the transaction `lsn`: its number, and those of generations whose
    /// entries can go at once. A lazy one answers at once with what it has; a consistent one when
    /// it is complete.
    pub fn begin(&mut self, mode: Mode, lsn: u64) -> (Option<u16>, Vec<u16>) {
        // Nobody reads what is being built, nor what was retired by an earlier commit.
        let abandoned = self.building.take().map(|generation| generation.number);
        let mut gone: Vec<u16> = abandoned.into_iter().chain(self.retired.take()).collect();
        self.mode = mode;
        let begun = (mode != Mode::None).then(|| self.next(mode, lsn));
        let keeps_current = mode == Mode::Consistent && self.current.is_some_and(|one| !one.lazy);
        if !keeps_current {
            self.retired = self.current.take().map(|generation| generation.number);
        }
        match mode {
            Mode::None => {}
            Mode::Consistent => self.building = begun,
            Mode::Lazy => self.current = begun,
        }
        let number = begun.map(|generation| generation.number);
        gone.retain(|gone| Some(*gone) != number);
        (number, gone)
    }

    /// The cursor of a generation has come to a place; one that is complete takes over.
    pub fn advance(&mut self, number: u16, cursor: Position) {
        if let Some(current) = self.current.as_mut().filter(|one| one.number == number) {
            current.cursor = cursor;
        }
        if let Some(mut building) = self.building.filter(|one| one.number == number) {
            building.cursor = cursor;
            if building.cursor >= building.end(0) {
                // The actor removes a retired generation before it lets another one be completed.
                self.retired = self.current.map(|generation| generation.number);
                self.current = Some(building);
                self.building = None;
            } else {
                self.building = Some(building);
            }
        }
    }

    /// The entries of a retired generation are gone.
    pub fn forget_retired(&mut self) {
        self.retired = None;
    }

    pub fn generations(&self) -> impl Iterator<Item = Generation> {
        self.current.into_iter().chain(self.building)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(lsn: u64) -> Position {
        Position { lsn, index: 0 }
    }

    #[test]
    fn a_new_shard_has_a_complete_index() {
        let state = IndexState::new(Mode::Consistent);
        let current = state.current.unwrap();
        assert_eq!(current.progress(0), 100);
        assert!(current.covers(at(1)));
        assert_eq!(IndexState::new(Mode::None).current, None);
        let lazy = IndexState::new(Mode::Lazy).current.unwrap();
        assert!(!lazy.covers(at(1)));
        assert_eq!(lazy.progress(0), 100);
        assert_eq!(lazy.progress(10), 9);
        assert_eq!(lazy.build_progress(), 100);
    }

    #[test]
    fn a_new_generation_takes_over_when_it_is_complete() {
        let mut state = IndexState::new(Mode::Consistent);
        let (number, gone) = state.begin(Mode::Consistent, 100);
        assert_eq!((number, gone), (Some(2), vec![]));
        let building = state.building.unwrap();
        assert!(building.covers(at(101)) && !building.covers(at(100)));
        state.advance(2, at(50));
        let building = state.building.unwrap();
        assert!(building.covers(at(49)) && !building.covers(at(50)) && building.covers(at(101)));
        assert_eq!(building.progress(500), 49);
        assert_eq!(state.current.map(|one| one.number), Some(1));
        state.advance(2, Position::after_lsn(100));
        assert_eq!(state.current.map(|one| one.number), Some(2));
        assert_eq!((state.building, state.retired), (None, Some(1)));
        state.forget_retired();
        assert_eq!(state.retired, None);
    }

    #[test]
    fn a_change_in_the_middle_of_a_build_begins_anew() {
        let mut state = IndexState::new(Mode::Consistent);
        state.begin(Mode::Consistent, 100);
        let (number, gone) = state.begin(Mode::Consistent, 200);
        assert_eq!((number, gone), (Some(3), vec![2]));
        let (number, gone) = state.begin(Mode::None, 300);
        assert_eq!((number, gone), (None, vec![3]));
        assert_eq!((state.current, state.retired), (None, Some(1)));
        let (number, gone) = state.begin(Mode::Lazy, 400);
        assert_eq!((number, gone), (Some(4), vec![1]));
        assert!(state.current.unwrap().lazy);
        let (number, gone) = state.begin(Mode::Consistent, 500);
        assert_eq!((number, gone), (Some(5), vec![]));
        assert_eq!(
            (state.current, state.retired),
            (None, Some(4)),
            "an incomplete index answers nothing once a complete one is asked for"
        );
    }
}
