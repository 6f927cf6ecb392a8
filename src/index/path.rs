//! Paths as numbers: 64 bits in place of names, so that entries are short.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::model::indexing_policy::{PathKey, Segment};

/// The number of a path within a container. Numbers below [`FIRST_OF_PATHS`] have another meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u64);

/// The entries of shapes stand where a path would.
pub const SHAPES: PathId = PathId(0);

const FIRST_OF_PATHS: u64 = 16;
const ROOT: u64 = 0x9e37_79b9_7f4a_7c15;

impl PathId {
    pub const ROOT: Self = Self(ROOT);
}

/// Makes the numbers of the paths of one container.
///
/// With a key nobody who does not know it can find two names with one number. Containers that were
/// made before there were keys keep the numbers that are on disk.
#[derive(Clone, Copy, Debug)]
pub struct PathHasher(Option<SipHasher13>);

/// The last byte of what is hashed says which step it is; names are UTF-8 and have none of them.
mod step {
    pub const PROPERTY: u8 = 0xff;
    pub const ELEMENT: u8 = 0xfe;
    pub const CELLS: u8 = 0xfd;
    pub const COMPOSITE: u8 = 0xfc;
    pub const POLICY: u8 = 0xfb;
}

impl PathHasher {
    pub fn new(key: Option<PathKey>) -> Self {
        Self(key.map(|key| SipHasher13::new_with_key(key.bytes())))
    }

    /// Returns the path of the property with this name.
    pub fn property(&self, parent: PathId, name: &str) -> PathId {
        match &self.0 {
            Some(keyed) => keyed_step(keyed, parent, name.as_bytes(), step::PROPERTY),
            None => PathId(unkeyed::mix(parent.0, unkeyed::hash(name.as_bytes()))),
        }
    }

    /// Returns the path of the elements of the array.
    pub fn element(&self, parent: PathId) -> PathId {
        match &self.0 {
            Some(keyed) => keyed_step(keyed, parent, &[], step::ELEMENT),
            None => PathId(unkeyed::mix(parent.0, unkeyed::ELEMENT)),
        }
    }

    pub fn step(&self, parent: PathId, segment: &Segment) -> PathId {
        match segment {
            Segment::Property(name) => self.property(parent, name),
            Segment::AnyElement => self.element(parent),
        }
    }

    /// Returns the path of the cells that the geometry at this path touches.
    pub fn cells(&self, path: PathId) -> PathId {
        match &self.0 {
            Some(keyed) => keyed_step(keyed, path, &[], step::CELLS),
            None => PathId(unkeyed::mix(path.0, unkeyed::CELLS)),
        }
    }

    /// Returns the number of a composite index over columns, each with its direction.
    pub fn composite(&self, columns: impl Iterator<Item = (PathId, bool)>) -> PathId {
        match &self.0 {
            Some(keyed) => columns.fold(PathId::ROOT, |id, (path, descending)| {
                let [a, b, c, d, e, f, g, h] = path.0.to_le_bytes();
                let column = [a, b, c, d, e, f, g, h, u8::from(descending)];
                keyed_step(keyed, id, &column, step::COMPOSITE)
            }),
            None => {
                let start = unkeyed::mix(ROOT, unkeyed::COMPOSITE);
                PathId(columns.fold(start, |id, (path, descending)| {
                    unkeyed::mix(id, path.0 ^ u64::from(descending))
                }))
            }
        }
    }

    /// Returns a number for the text of a policy.
    pub fn policy(&self, text: &str) -> u64 {
        match &self.0 {
            Some(keyed) => keyed_step(keyed, PathId::ROOT, text.as_bytes(), step::POLICY).0,
            None => self.property(PathId::ROOT, text).0,
        }
    }
}

fn keyed_step(keyed: &SipHasher13, parent: PathId, name: &[u8], step: u8) -> PathId {
    let mut hasher = *keyed;
    hasher.write(&parent.0.to_le_bytes());
    hasher.write(name);
    hasher.write(&[step]);
    PathId(hasher.finish().max(FIRST_OF_PATHS))
}

/// The numbers of containers without a key. They are on disk and must not change.
mod unkeyed {
    use super::{FIRST_OF_PATHS, ROOT, finish};

    pub const ELEMENT: u64 = 0xd6e8_feb8_6659_fd93;
    pub const COMPOSITE: u64 = 0xa076_1d64_78bd_642f;
    pub const CELLS: u64 = 0xe703_7ed1_a0b4_28db;

    /// Never one of the numbers with another meaning.
    pub fn mix(state: u64, word: u64) -> u64 {
        let product =
            u128::from(state ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(word ^ 0x8bb8_4b93_962e_acc9);
        let folded = (product as u64) ^ (product >> 64) as u64;
        let mixed = finish(folded ^ state.rotate_left(23) ^ word.rotate_left(41));
        mixed.max(FIRST_OF_PATHS)
    }

    pub fn hash(bytes: &[u8]) -> u64 {
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
}

/// Spreads every bit over all.
pub fn finish(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xff51_afd7_ed55_8ccd);
    word ^= word >> 33;
    word = word.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const ROOT: PathId = PathId::ROOT;

    fn both() -> [PathHasher; 2] {
        [None, Some(PathKey::from_bytes([7; 16]))].map(PathHasher::new)
    }

    #[test]
    fn different_paths_have_different_numbers() {
        for paths in both() {
            let mut seen = HashSet::new();
            let property = |parent, name: &str| paths.property(parent, name);
            for i in 0..20_000 {
                let name = format!("property{i}");
                assert!(seen.insert(property(ROOT, &name)));
                assert!(seen.insert(property(property(ROOT, "a"), &name)));
                assert!(seen.insert(property(property(ROOT, &name), "a")));
                assert!(seen.insert(paths.element(property(ROOT, &name))));
            }
            let (a, b) = (property(ROOT, "a"), property(ROOT, "b"));
            let composite = |columns: &[(PathId, bool)]| paths.composite(columns.iter().copied());
            for id in [
                property(ROOT, "a/b"),
                property(a, "b"),
                property(ROOT, "[]"),
                property(ROOT, ""),
                property(ROOT, "\0"),
                paths.element(ROOT),
                paths.cells(ROOT),
                paths.cells(a),
                composite(&[(a, false), (b, false)]),
                composite(&[(b, false), (a, false)]),
                composite(&[(a, false), (b, true)]),
            ] {
                assert!(seen.insert(id));
                assert!(id.0 >= FIRST_OF_PATHS);
            }
        }
    }

    #[test]
    fn numbers_without_a_key_are_on_disk_and_must_not_change() {
        let paths = PathHasher::new(None);
        let (name, tags) = (paths.property(ROOT, "name"), paths.property(ROOT, "tags"));
        assert_eq!(name.0, 13_805_677_049_744_867_587);
        assert_eq!(paths.element(tags).0, 5_679_728_471_123_220_564);
    }

    /// SipHash-1-3 as published, so that the numbers do not depend on the version of a crate.
    #[test]
    fn numbers_with_a_key_are_on_disk_and_must_not_change() {
        let key = PathKey::from_bytes(std::array::from_fn(|at| at as u8));
        let paths = PathHasher::new(Some(key));
        let (name, tags) = (paths.property(ROOT, "name"), paths.property(ROOT, "tags"));
        assert_eq!(name.0, KEYED_NAME);
        assert_eq!(paths.element(tags).0, KEYED_TAGS);
    }

    const KEYED_NAME: u64 = 10_582_776_405_501_731_420;
    const KEYED_TAGS: u64 = 3_742_171_610_787_013_595;

    /// Two names that were found by a search of some minutes.
    #[test]
    fn names_with_one_number_without_a_key_have_two_with_any() {
        let [one, other] = ["icdkmkegliikmaml", "aifboigojfbpilff"];
        let collide = |key| {
            let paths = PathHasher::new(key);
            paths.property(ROOT, one) == paths.property(ROOT, other)
        };
        assert!(collide(None));
        for _ in 0..100 {
            assert!(!collide(Some(PathKey::from_bytes(rand::random()))));
        }
    }
}
