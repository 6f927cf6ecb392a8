//! A walk over a set of items by their ordinals.

use super::resume::{ResumePoint, foreign_resume_point};
use crate::model::error::Result;

/// The first byte of a resume point: at an ordinal, or behind it (see [`ResumePoint::behind`]).
const AT: u8 = b's';
const AFTER: u8 = b'S';

/// A walk over a set.
pub struct OrdinalWalk {
    ordinals: Vec<u64>,
    next: usize,
    /// The ordinal at which an earlier walk stopped.
    resumed_at: Option<u64>,
}

fn parse(point: &ResumePoint) -> Option<(u64, bool)> {
    let (&kind, ordinal) = point.0.split_first()?;
    let ordinal = u64::from_be_bytes(ordinal.try_into().ok()?);
    match kind {
        AT => Some((ordinal, false)),
        AFTER => Some((ordinal, true)),
        _ => None,
    }
}

pub fn is_of_ordinals(point: &ResumePoint) -> bool {
    parse(point).is_some()
}

impl OrdinalWalk {
    pub fn open(ordinals: Vec<u64>, resume: Option<&ResumePoint>) -> Result<Self> {
        let resume = match resume.map(parse) {
            None => None,
            Some(Some(place)) => Some(place),
            Some(None) => return Err(foreign_resume_point()),
        };
        Ok(Self {
            next: match resume {
                None => 0,
                Some((place, after)) => {
                    ordinals.partition_point(|one| *one < place || (after && *one == place))
                }
            },
            resumed_at: resume.filter(|(_, after)| !after).map(|(place, _)| place),
            ordinals,
        })
    }

    pub fn held_bytes(&self) -> usize {
        self.ordinals.capacity() * size_of::<u64>()
    }

    pub fn advance(&mut self) -> bool {
        self.next += 1;
        self.next <= self.ordinals.len()
    }

    pub fn ordinal(&self) -> u64 {
        let at = self.next.checked_sub(1);
        at.and_then(|at| self.ordinals.get(at))
            .copied()
            .unwrap_or_default()
    }

    pub fn is_at_resume(&self) -> bool {
        self.resumed_at == Some(self.ordinal())
    }

    pub fn resume_at(&self) -> ResumePoint {
        let mut bytes = vec![AT];
        bytes.extend_from_slice(&self.ordinal().to_be_bytes());
        ResumePoint(bytes)
    }
}
