//! A walk over entries of the index, range after range, forwards or backwards.

use super::{
    index_reader::{IndexReader, damaged},
    ranges::{ValueRange, ValueRanges},
    resume::{ResumePoint, foreign_resume_point},
};
use crate::{
    index::{PathId, path::SHAPES},
    model::error::Result,
    store::{engine::Scan, keys},
};

/// The first byte of a resume point of a walk: at an entry, or behind it (see [`ResumePoint::behind`]).
const AT: u8 = b'i';
const AFTER: u8 = b'I';
/// Behind the driver's path: an entry of a range, or an ordinal of those that lack the path.
const OF_RANGE: u8 = 0;
const OF_MISSING: u8 = 1;

/// Bytes of a resume point before its place: kind, driver, what the place is of.
const POINT_HEAD_BYTES: usize = 10;
const ORDINAL_BYTES: usize = 8;

/// Bytes of an index key before its term.
pub const HEAD_BYTES: usize = 3;

/// Where a walk goes.
pub struct IndexWalkPlan {
    /// The path or the composite that it follows; names the walk in resume points.
    pub driver: PathId,
    pub ranges: ValueRanges,
    /// Items that lack the path come before all others (behind them when the walk goes backwards): their ordinals.
    pub missing: Option<MissingItems>,
    pub backwards: bool,
}

/// The items without a value at the path of a walk.
pub enum MissingItems {
    /// All of one shape.
    Shape(ValueRanges),
    /// In ascending order.
    Ordinals(Vec<u64>),
}

pub struct IndexWalk<'v> {
    driver: PathId,
    backwards: bool,
    legs: Vec<Leg>,
    /// The leg that is walked now.
    leg: usize,
    scan: Scan<'v>,
    /// Whether the cursor stands on an entry of the leg, the one that is current.
    under_way: bool,
    /// Where the first step goes instead of to the beginning.
    resume: Option<WalkResume>,
    at_resume: bool,
    ordinal: u64,
    next_ordinal: usize,
}

enum Leg {
    /// Keys from, to.
    Range {
        from: Vec<u8>,
        to: Vec<u8>,
        missing: bool,
    },
    Ordinals(Vec<u64>),
}

struct WalkResume {
    after: bool,
    position: WalkPosition,
}

enum WalkPosition {
    /// Term and ordinal as in a key.
    Entry(Vec<u8>),
    Missing(u64),
}

impl WalkResume {
    /// The driver's path and the position.
    fn parse(point: &ResumePoint) -> Option<(PathId, Self)> {
        let (&kind, rest) = point.0.split_first()?;
        let (driver, rest) = rest.split_first_chunk()?;
        let (&of, position) = rest.split_first()?;
        let position = match of {
            OF_RANGE => WalkPosition::Entry(position.to_vec()),
            OF_MISSING => WalkPosition::Missing(u64::from_be_bytes(position.try_into().ok()?)),
            _ => return None,
        };
        let after = match kind {
            AT => false,
            AFTER => true,
            _ => return None,
        };
        Some((
            PathId(u64::from_be_bytes(*driver)),
            Self { after, position },
        ))
    }
}

/// The driver of the walk that a resume point belongs to; `None` if it is of no walk.
pub fn driver_of(point: &ResumePoint) -> Option<PathId> {
    WalkResume::parse(point).map(|(driver, _)| driver)
}

/// The key at which a walk over ranges goes on, without its head; `None` if the point is of another place.
pub fn entry_of(point: &ResumePoint) -> Option<Vec<u8>> {
    let (_, resume) = WalkResume::parse(point)?;
    match resume.position {
        WalkPosition::Entry(mut entry) => {
            // The first key behind it.
            entry.extend(resume.after.then_some(0));
            Some(entry)
        }
        WalkPosition::Missing(_) => None,
    }
}

/// A walk that resumes here begins at this key.
pub fn point_at(driver: PathId, key: &[u8]) -> ResumePoint {
    let mut bytes = vec![AT];
    bytes.extend_from_slice(&driver.0.to_be_bytes());
    bytes.push(OF_RANGE);
    bytes.extend_from_slice(key.get(HEAD_BYTES..).unwrap_or_default());
    ResumePoint(bytes)
}

impl<'v> IndexWalk<'v> {
    pub fn open(
        reader: &IndexReader<'v>,
        plan: IndexWalkPlan,
        resume: Option<&ResumePoint>,
    ) -> Result<Self> {
        let resume = match resume.map(WalkResume::parse) {
            None => None,
            Some(Some((driver, resume))) if driver == plan.driver => Some(resume),
            Some(_) => return Err(foreign_resume_point()),
        };
        let leg = |path: PathId, missing: bool| {
            move |range: &ValueRange| Leg::Range {
                from: reader.entry_prefix(path, &range.from),
                to: reader.entry_prefix(path, &range.to),
                missing,
            }
        };
        let mut legs = match plan.missing {
            Some(MissingItems::Shape(ranges)) => ranges.iter().map(leg(SHAPES, true)).collect(),
            Some(MissingItems::Ordinals(ordinals)) => vec![Leg::Ordinals(ordinals)],
            None => Vec::new(),
        };
        legs.extend(plan.ranges.iter().map(leg(plan.driver, false)));
        let (mut least, mut greatest) = (&[][..], &[][..]);
        for one in &legs {
            if let Leg::Range { from, to, .. } = one {
                least = if least.is_empty() {
                    from
                } else {
                    least.min(from)
                };
                greatest = greatest.max(to);
            }
        }
        let scan = reader.snapshot.cursor(least, greatest);
        if plan.backwards {
            legs.reverse();
        }
        Ok(Self {
            driver: plan.driver,
            backwards: plan.backwards,
            legs,
            leg: 0,
            scan,
            under_way: false,
            resume,
            at_resume: false,
            ordinal: 0,
            next_ordinal: 0,
        })
    }

    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    pub fn is_at_resume(&self) -> bool {
        self.at_resume
    }

    /// What decides the expiry of the item under the cursor; `None` for one of whom it is known already.
    pub fn value(&self) -> Result<Option<&[u8]>> {
        match self.legs.get(self.leg) {
            Some(Leg::Range { .. }) => Ok(self.scan.entry()?.map(|(_, value)| value)),
            _ => Ok(None),
        }
    }

    /// Moves to the next entry; `false` at the end.
    pub fn advance(&mut self) -> Result<bool> {
        self.at_resume = false;
        let mut resume = self.resume.take();
        if let Some(resume) = &resume {
            self.skip_legs(&resume.position);
        }
        loop {
            let found = match self.legs.get(self.leg) {
                None => return Ok(false),
                Some(Leg::Ordinals(_)) => self.next_of_ordinals(resume.take()),
                Some(Leg::Range { .. }) => self.next_of_range(resume.take())?,
            };
            if found {
                return Ok(true);
            }
            self.leg += 1;
            self.under_way = false;
            self.next_ordinal = 0;
        }
    }

    /// Passes over the legs that lie before the position.
    fn skip_legs(&mut self, position: &WalkPosition) {
        let backwards = self.backwards;
        let is_before = |leg: &Leg| match (leg, position) {
            (Leg::Ordinals(_) | Leg::Range { missing: true, .. }, WalkPosition::Missing(_)) => {
                false
            }
            // What lacks the path comes first, or last when the walk goes backwards.
            (Leg::Ordinals(_) | Leg::Range { missing: true, .. }, WalkPosition::Entry(_)) => {
                !backwards
            }
            (Leg::Range { missing: false, .. }, WalkPosition::Missing(_)) => backwards,
            (Leg::Range { from, to, .. }, WalkPosition::Entry(entry)) => {
                let (from, to) = (from.get(HEAD_BYTES..), to.get(HEAD_BYTES..));
                if backwards {
                    from.is_some_and(|from| from > entry.as_slice())
                } else {
                    to.is_some_and(|to| to <= entry.as_slice())
                }
            }
        };
        self.leg = self.legs.iter().take_while(|leg| is_before(leg)).count();
    }

    fn next_of_ordinals(&mut self, resume: Option<WalkResume>) -> bool {
        let Some(Leg::Ordinals(ordinals)) = self.legs.get(self.leg) else {
            return false;
        };
        if let Some(WalkResume {
            after,
            position: WalkPosition::Missing(place),
        }) = resume
        {
            // Counted from the end when the walk goes backwards.
            self.next_ordinal = match (self.backwards, after) {
                (false, false) => ordinals.partition_point(|one| *one < place),
                (false, true) => ordinals.partition_point(|one| *one <= place),
                (true, false) => ordinals.len() - ordinals.partition_point(|one| *one <= place),
                (true, true) => ordinals.len() - ordinals.partition_point(|one| *one < place),
            };
            self.at_resume = !after;
        }
        let at = if self.backwards {
            ordinals.len().checked_sub(self.next_ordinal + 1)
        } else {
            Some(self.next_ordinal)
        };
        let Some(ordinal) = at.and_then(|at| ordinals.get(at)) else {
            return false;
        };
        if self.at_resume {
            self.at_resume = matches!(resume, Some(WalkResume { position: WalkPosition::Missing(place), .. }) if place == *ordinal);
        }
        self.ordinal = *ordinal;
        self.next_ordinal += 1;
        true
    }

    fn next_of_range(&mut self, resume: Option<WalkResume>) -> Result<bool> {
        let Some(Leg::Range { from, to, .. }) = self.legs.get(self.leg) else {
            return Ok(false);
        };
        if let Some(resume) = resume {
            let entry = match &resume.position {
                WalkPosition::Entry(entry) => {
                    let mut key = from.get(..HEAD_BYTES).unwrap_or_default().to_vec();
                    key.extend_from_slice(entry);
                    key
                }
                WalkPosition::Missing(ordinal) => {
                    let mut key = from.clone();
                    key.extend_from_slice(&ordinal.to_be_bytes());
                    key
                }
            };
            if self.backwards {
                self.scan.seek_back(&entry);
            } else {
                self.scan.seek(&entry);
            }
            let stands_there = self.scan.entry()?.is_some_and(|(key, _)| key == entry);
            if stands_there && resume.after {
                self.step();
            } else {
                self.at_resume = stands_there;
            }
        } else if self.under_way {
            self.step();
        } else if self.backwards {
            self.scan.seek_back(to);
            // The end is not part of the range.
            if self
                .scan
                .entry()?
                .is_some_and(|(key, _)| key >= to.as_slice())
            {
                self.scan.retreat();
            }
        } else {
            self.scan.seek(from);
        }
        self.under_way = true;
        let Some((key, _)) = self.scan.entry()? else {
            return Ok(false);
        };
        let Some(Leg::Range { from, to, .. }) = self.legs.get(self.leg) else {
            return Ok(false);
        };
        if key >= to.as_slice() || key < from.as_slice() {
            self.at_resume = false;
            return Ok(false);
        }
        (_, self.ordinal) = damaged(keys::index_entry_parts(key))?;
        Ok(true)
    }

    fn step(&mut self) {
        if self.backwards {
            self.scan.retreat();
        } else {
            self.scan.advance();
        }
    }

    pub fn resume_at(&self) -> ResumePoint {
        let entry = self.scan.entry();
        // Made for every entry that is looked up ahead: its memory is taken in one piece.
        let room = match &entry {
            Ok(Some((key, _))) => key.len(),
            _ => 0,
        };
        let mut bytes = Vec::with_capacity(POINT_HEAD_BYTES + room.max(ORDINAL_BYTES));
        bytes.push(AT);
        bytes.extend_from_slice(&self.driver.0.to_be_bytes());
        match (self.legs.get(self.leg), entry) {
            (Some(Leg::Range { missing: false, .. }), Ok(Some((key, _)))) => {
                bytes.push(OF_RANGE);
                bytes.extend_from_slice(key.get(HEAD_BYTES..).unwrap_or_default());
            }
            _ => {
                bytes.push(OF_MISSING);
                bytes.extend_from_slice(&self.ordinal.to_be_bytes());
            }
        }
        ResumePoint(bytes)
    }
}
