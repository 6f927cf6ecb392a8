//! What must be true of an item's terms.

use crate::{
    index::{PathHasher, PathId},
    model::indexing_policy::Segment,
    query::access::ValueRanges,
};

/// A path of the index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexPath {
    pub segments: Vec<Segment>,
    pub id: PathId,
    /// Its terms are the cells that a geometry touches, not values.
    pub of_cells: bool,
}

impl IndexPath {
    pub fn new(paths: &PathHasher, segments: Vec<Segment>) -> Self {
        let id = segments
            .iter()
            .fold(PathId::ROOT, |id, segment| paths.step(id, segment));
        Self {
            segments,
            id,
            of_cells: false,
        }
    }

    /// The cells of the geometry at this path.
    pub fn of_cells(paths: &PathHasher, segments: Vec<Segment>) -> Self {
        let path = Self::new(paths, segments);
        Self {
            id: paths.cells(path.id),
            of_cells: true,
            ..path
        }
    }

    /// What stands in the place of a path and is none of an item: a composite index, or the shapes.
    pub fn of_id(id: PathId) -> Self {
        Self {
            segments: Vec::new(),
            id,
            of_cells: false,
        }
    }

    /// Whether an item may have several terms at this path.
    pub fn is_multiple(&self) -> bool {
        self.of_cells || self.segments.contains(&Segment::AnyElement)
    }

    /// As an indexing path of a policy.
    pub fn text(&self) -> String {
        let tail = if self.of_cells { "/*" } else { "/?" };
        self.property() + tail
    }

    /// As a column of a composite index.
    pub fn property(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            text.push('/');
            match segment {
                Segment::AnyElement => text.push_str("[]"),
                Segment::Property(name) if is_plain(name) => text.push_str(name),
                Segment::Property(name) => {
                    text.push('"');
                    text.push_str(&name.replace('\\', "\\\\").replace('"', "\\\""));
                    text.push('"');
                }
            }
        }
        text
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Every item.
    All,
    Nothing,
    /// A value at the path is in one of the ranges.
    Term(Term),
    /// There is a value at the path.
    Present(IndexPath),
    /// There is none.
    Missing(IndexPath),
    And(Vec<Condition>),
    Or(Vec<Condition>),
    /// The index does not tell.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    pub path: IndexPath,
    pub ranges: ValueRanges,
    pub exact: bool,
}

impl Condition {
    pub fn is_exact(&self) -> bool {
        match self {
            Self::All | Self::Nothing | Self::Present(_) | Self::Missing(_) => true,
            Self::Term(term) => term.exact,
            Self::And(all) | Self::Or(all) => all.iter().all(Self::is_exact),
            Self::Unknown => false,
        }
    }
}
/// The same condition, for something that asks for more.
pub fn inexact(condition: Condition) -> Condition {
    match condition {
        Condition::Term(term) => Condition::Term(Term {
            exact: false,
            ..term
        }),
        Condition::And(all) => Condition::And(all.into_iter().map(inexact).collect()),
        Condition::Or(all) => Condition::Or(all.into_iter().map(inexact).collect()),
        // Whether there is anything at all to look at is not known.
        Condition::All | Condition::Present(_) | Condition::Missing(_) | Condition::Unknown => {
            Condition::Unknown
        }
        Condition::Nothing => Condition::Nothing,
    }
}
pub fn simplify_and(all: Vec<Condition>) -> Condition {
    let mut kept: Vec<Condition> = Vec::with_capacity(all.len());
    let mut unknown = false;
    for condition in flatten(all, |one| matches!(one, Condition::And(_))) {
        match condition {
            Condition::All => {}
            Condition::Nothing => return Condition::Nothing,
            Condition::Unknown => unknown = true,
            Condition::Term(term) if !term.path.is_multiple() => {
                let known = kept.iter_mut().find_map(|one| match one {
                    Condition::Term(known) if known.path.id == term.path.id => Some(known),
                    _ => None,
                });
                match known {
                    Some(known) => {
                        known.ranges = known.ranges.intersection(&term.ranges);
                        known.exact &= term.exact;
                        if known.ranges.is_empty() {
                            return Condition::Nothing;
                        }
                    }
                    None if term.ranges.is_empty() => return Condition::Nothing,
                    None => kept.push(Condition::Term(term)),
                }
            }
            other => kept.push(other),
        }
    }
    if unknown {
        kept.push(Condition::Unknown);
    }
    match kept.len() {
        0 => Condition::All,
        1 => kept.swap_remove(0),
        _ => Condition::And(kept),
    }
}

pub fn simplify_or(all: Vec<Condition>) -> Condition {
    let mut kept: Vec<Condition> = Vec::with_capacity(all.len());
    let mut ranges: Vec<Vec<ValueRanges>> = Vec::new();
    for condition in flatten(all, |one| matches!(one, Condition::Or(_))) {
        match condition {
            Condition::Nothing => {}
            Condition::All => return Condition::All,
            // One alternative that may be anything makes the whole anything.
            Condition::Unknown => return Condition::Unknown,
            Condition::Term(mut term) => {
                let own = std::mem::take(&mut term.ranges);
                let known = kept
                    .iter_mut()
                    .zip(&mut ranges)
                    .find_map(|(one, ranges)| match one {
                        Condition::Term(known) if known.path.id == term.path.id => {
                            Some((known, ranges))
                        }
                        _ => None,
                    });
                match known {
                    Some((known, ranges)) => {
                        known.exact &= term.exact;
                        ranges.push(own);
                    }
                    None => {
                        kept.push(Condition::Term(term));
                        ranges.push(vec![own]);
                    }
                }
            }
            other => {
                kept.push(other);
                ranges.push(Vec::new());
            }
        }
    }
    for (condition, ranges) in kept.iter_mut().zip(ranges) {
        if let Condition::Term(term) = condition {
            term.ranges = ValueRanges::union(ranges);
        }
    }
    kept.retain(|one| !matches!(one, Condition::Term(term) if term.ranges.is_empty()));
    match kept.len() {
        0 => Condition::Nothing,
        1 => kept.swap_remove(0),
        _ => Condition::Or(kept),
    }
}

/// Takes lists of the same kind apart, one level: deeper ones were taken apart before.
fn flatten(all: Vec<Condition>, same: impl Fn(&Condition) -> bool) -> Vec<Condition> {
    let mut flat = Vec::with_capacity(all.len());
    for condition in all {
        match condition {
            Condition::And(inner) | Condition::Or(inner) if inner.is_empty() => {}
            condition if same(&condition) => {
                if let Condition::And(inner) | Condition::Or(inner) = condition {
                    flat.extend(inner);
                }
            }
            condition => flat.push(condition),
        }
    }
    flat
}
