//! Shapes: the set of indexed paths that an item has.

use serde::{Deserialize, Serialize};

use super::path::{PathId, finish};

/// The number of a shape. [`ShapeId::OTHER`] is for items of shapes that are not written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShapeId(pub u64);

impl ShapeId {
    /// The shape is not known, because there are too many: the item may lack any path.
    pub const OTHER: Self = Self(0);
}

/// How well the terms of a path in an item stand for its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// One term for each value, and it says all of it.
    Exact,
    /// A long string was cut: other values have the same term.
    Cut,
    /// An array or an object, which has no term of its own.
    Nested,
}

/// The paths of a shape in ascending order, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    paths: Vec<(u64, Kind)>,
}

impl Shape {
    /// Paths in any order; of several kinds of one path the least exact counts.
    pub fn new(mut paths: Vec<(u64, Kind)>) -> Self {
        paths.sort_unstable();
        let mut unique: Vec<(u64, Kind)> = Vec::with_capacity(paths.len());
        for (path, kind) in paths {
            match unique.last_mut() {
                Some(last) if last.0 == path => last.1 = last.1.max(kind),
                _ => unique.push((path, kind)),
            }
        }
        Self { paths: unique }
    }

    pub fn id(&self) -> ShapeId {
        let number = self
            .paths
            .iter()
            .fold(0x5bd1_e995, |number: u64, (path, kind)| {
                finish(number.rotate_left(17) ^ path).wrapping_add(*kind as u64)
            });
        ShapeId(number.max(1))
    }

    /// `None`: items of this shape lack the path.
    pub fn kind_of(&self, path: PathId) -> Option<Kind> {
        self.paths
            .binary_search_by_key(&path.0, |(known, _)| *known)
            .ok()
            .and_then(|at| self.paths.get(at))
            .map(|(_, kind)| *kind)
    }

    pub fn encode(&self) -> Vec<u8> {
        rmp_serde::to_vec(self).expect("numbers have a MessagePack form")
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_a_set() {
        let a = Shape::new(vec![(7, Kind::Exact), (3, Kind::Cut), (7, Kind::Nested)]);
        let b = Shape::new(vec![(3, Kind::Cut), (7, Kind::Nested)]);
        assert_eq!(a, b);
        assert_eq!(a.id(), b.id());
        assert_ne!(
            a.id(),
            Shape::new(vec![(3, Kind::Cut), (7, Kind::Cut)]).id()
        );
        assert_ne!(a.id(), Shape::default().id());
        assert_eq!(a.kind_of(PathId(7)), Some(Kind::Nested));
        assert_eq!(a.kind_of(PathId(4)), None);
        assert_eq!(Shape::decode(&a.encode()), Some(a));
    }
}
