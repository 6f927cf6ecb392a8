//! Paths as numbers: 64 bits in place of names, so that entries are short.

use crate::model::indexing_policy::Segment;

/// The number of a path. Numbers below [`FIRST_OF_PATHS`] have another meaning; two paths have the same number with a
/// probability of about 2^-64, which this room takes for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u64);

/// The entries of shapes stand where a path would.
pub const SHAPES: PathId = PathId(0);

const FIRST_OF_PATHS: u64 = 16;
const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;
const ELEMENT: u64 = 0xd6e8_feb8_6659_fd93;
const COMPOSITE: u64 = 0xa076_1d64_78bd_642f;
const CELLS: u64 = 0xe703_7ed1_a0b4_28db;

impl PathId {
    pub const ROOT: Self = Self(ROOT);

    /// Into the property of this name.
    pub fn property(self, name: &str) -> Self {
        Self(mix(self.0, hash(name.as_bytes())))
    }

    /// Into the elements of the array.
    pub fn element(self) -> Self {
        Self(mix(self.0, ELEMENT))
    }

    pub fn step(self, segment: &Segment) -> Self {
        match segment {
            Segment::Property(name) => self.property(name),
            Segment::AnyElement => self.element(),
        }
    }

    /// The cells that the geometry at this path touches.
    pub fn cells(self) -> Self {
        Self(mix(self.0, CELLS))
    }

    /// The number of a composite index over columns, each with its direction.
    pub fn composite(columns: impl Iterator<Item = (Self, bool)>) -> Self {
        Self(
            columns.fold(mix(ROOT, COMPOSITE), |id, (path, descending)| {
                mix(id, path.0 ^ u64::from(descending))
            }),
        )
    }
}

/// Never one of the numbers with another meaning.
fn mix(state: u64, word: u64) -> u64 {
    let product =
        u128::from(state ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(word ^ 0x8bb8_4b93_962e_acc9);
    let folded = (product as u64) ^ (product >> 64) as u64;
    let mixed = finish(folded ^ state.rotate_left(23) ^ word.rotate_left(41));
    mixed.max(FIRST_OF_PATHS)
}

/// Spreads every bit over all.
pub fn finish(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

fn hash(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut state = bytes.len() as u64 ^ ROOT;
    for word in words {
        state = mix(state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    mix(state, u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn different_paths_have_different_numbers() {
        let mut seen = HashSet::new();
        let root = PathId::ROOT;
        for i in 0..20_000 {
            let name = format!("property{i}");
            assert!(seen.insert(root.property(&name)));
            assert!(seen.insert(root.property("a").property(&name)));
            assert!(seen.insert(root.property(&name).property("a")));
            assert!(seen.insert(root.property(&name).element()));
        }
        let (a, b) = (root.property("a"), root.property("b"));
        let composite = |columns: &[(PathId, bool)]| PathId::composite(columns.iter().copied());
        for id in [
            root.property("a/b"),
            a.property("b"),
            root.property("[]"),
            root.property(""),
            root.property("\0"),
            root.element(),
            root.cells(),
            a.cells(),
            composite(&[(a, false), (b, false)]),
            composite(&[(b, false), (a, false)]),
            composite(&[(a, false), (b, true)]),
        ] {
            assert!(seen.insert(id));
            assert!(id.0 >= FIRST_OF_PATHS);
        }
    }

    #[test]
    fn numbers_are_on_disk_and_must_not_change() {
        assert_eq!(PathId::ROOT.property("name").0, GOLDEN_NAME);
        assert_eq!(PathId::ROOT.property("tags").element().0, GOLDEN_TAGS);
    }

    const GOLDEN_NAME: u64 = 13_805_677_049_744_867_587;
    const GOLDEN_TAGS: u64 = 5_679_728_471_123_220_564;
}
