//! Parts of the key space, and cutting it evenly.

use serde::{Deserialize, Serialize};

use super::Epk;
use super::hash::encode_number_v1;
use crate::model::partition_key::HashVersion;

/// The most ranges into which the key space can be cut at once.
pub const SPLIT_RANGES_MAX: u32 = 65_536;

/// A part of the key space, `[min, max)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EpkRange {
    pub min: Epk,
    pub max: Epk,
}

impl EpkRange {
    pub fn new(min: Epk, max: Epk) -> Self {
        Self { min, max }
    }

    /// The whole key space.
    pub const fn full() -> Self {
        Self {
            min: Epk::min(),
            max: Epk::max(),
        }
    }

    /// The range of one key.
    pub fn point(epk: Epk) -> Self {
        let max = epk.successor();
        Self { min: epk, max }
    }

    pub fn is_empty(&self) -> bool {
        self.min >= self.max
    }

    pub fn contains(&self, epk: &[u8]) -> bool {
        self.min.as_bytes() <= epk && epk < self.max.as_bytes()
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        Ord::max(&self.min, &other.min) < Ord::min(&self.max, &other.max)
    }

    /// What is below an EPK in it, and the rest.
    pub fn cut(&self, at: &Epk) -> [Self; 2] {
        [
            Self::new(self.min.clone(), at.clone()),
            Self::new(at.clone(), self.max.clone()),
        ]
    }

    /// What both cover; `None` when that is nothing.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        self.overlaps(other).then(|| Self {
            min: Ord::max(&self.min, &other.min).clone(),
            max: Ord::min(&self.max, &other.max).clone(),
        })
    }

    /// An EPK that cuts the hash values of the range into halves; `None` when it is too narrow for that.
    pub fn middle(&self, version: HashVersion) -> Option<Epk> {
        /// Hashes of version 2 have 126 bits.
        const END_V2: u128 = 1 << 126;
        let whole = Self::split_evenly(2, version);
        if let ([left, _], true) = (whole.as_slice(), *self == Self::full()) {
            return Some(left.max.clone());
        }
        let (low, high) = (self.min.leading(), self.max.leading());
        let high = match version {
            HashVersion::V2 => high.min(END_V2),
            HashVersion::V1 => high,
        };
        let middle = Epk::from_bytes(&(low + high.checked_sub(low)? / 2).to_be_bytes());
        (self.min < middle && middle < self.max).then_some(middle)
    }

    /// Ranges that tile the key space, with equal shares of the values that the hash can take.
    ///
    /// `count` is brought into `1..=SPLIT_RANGES_MAX`.
    pub fn split_evenly(count: u32, version: HashVersion) -> Vec<Self> {
        let count = count.clamp(1, SPLIT_RANGES_MAX);
        let boundaries = (1..count).map(|index| boundary(index, count, version));
        let mut min = Epk::min();
        boundaries
            .chain([Epk::max()])
            .map(|max| Self {
                min: std::mem::replace(&mut min, max.clone()),
                max,
            })
            .collect()
    }
}

/// The end of range `index` of `count`, `0 < index < count`: the last value of its share, as the service cuts.
fn boundary(index: u32, count: u32, version: HashVersion) -> Epk {
    match version {
        HashVersion::V1 => {
            let value = (u64::from(index) << 32) / u64::from(count) - 1;
            let mut bytes = Vec::with_capacity(16);
            encode_number_v1(&mut bytes, value as f64);
            Epk::from_bytes(&bytes)
        }
        HashVersion::V2 => {
            // The hash has 126 bits; dividing first keeps the product inside 128.
            let (index, count) = (u128::from(index), u128::from(count));
            let (share, rest) = ((1 << 126) / count, (1 << 126) % count);
            Epk::from_bytes(&(share * index + rest * index / count - 1).to_be_bytes())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::epk::{epk_v1, hash_v2};
    use crate::model::partition_key::KeyComponent;

    fn range(min: &str, max: &str) -> EpkRange {
        EpkRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap())
    }

    #[test]
    fn ranges_are_half_open() {
        let middle = range("10", "20");
        for (epk, inside) in [
            ("0FFF", false),
            ("10", true),
            ("1FFF", true),
            ("20", false),
            ("2000", false),
        ] {
            assert_eq!(
                middle.contains(&Epk::from_hex(epk).unwrap()),
                inside,
                "{epk}"
            );
        }
        assert!(middle.overlaps(&EpkRange::full()));
        assert!(!middle.overlaps(&range("20", "30")));
        assert!(!middle.overlaps(&range("", "10")));
        assert_eq!(
            middle.intersect(&range("18", "FF")),
            Some(range("18", "20"))
        );
        assert_eq!(middle.intersect(&range("20", "FF")), None);
        assert!(EpkRange::point(middle.min.clone()).contains(&middle.min));
    }

    #[test]
    fn even_splits_cut_where_the_service_cuts() {
        let cuts = |count, version| -> Vec<String> {
            EpkRange::split_evenly(count, version)
                .iter()
                .map(|range| range.max.to_hex())
                .collect()
        };
        assert_eq!(cuts(1, HashVersion::V2), ["FF"]);
        assert_eq!(cuts(0, HashVersion::V2), ["FF"]);
        assert_eq!(
            cuts(2, HashVersion::V2),
            ["1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF", "FF"]
        );
        assert_eq!(cuts(2, HashVersion::V1), ["05C1DFFFFFFFFC", "FF"]);
        assert_eq!(
            cuts(4, HashVersion::V1),
            ["05C1CFFFFFFFF8", "05C1DFFFFFFFFC", "05C1E7FFFFFFFE", "FF"]
        );
    }

    #[test]
    fn even_splits_tile_the_key_space_and_share_the_keys() {
        for version in [HashVersion::V1, HashVersion::V2] {
            for count in [1, 2, 3, 5, 7, 16, 100, 1_000] {
                let ranges = EpkRange::split_evenly(count, version);
                assert_eq!(ranges.len(), count as usize);
                assert_eq!(ranges[0].min, Epk::min());
                assert_eq!(ranges[ranges.len() - 1].max, Epk::max());
                assert!(ranges.windows(2).all(|pair| pair[0].max == pair[1].min));
                assert!(ranges.iter().all(|range| !range.is_empty()));
            }
            let ranges = EpkRange::split_evenly(5, version);
            let mut hits = [0; 5];
            for number in 0..5_000 {
                let components = [KeyComponent::String(format!("key-{number}"))];
                let epk = match version {
                    HashVersion::V1 => epk_v1(&components),
                    HashVersion::V2 => Epk::from_bytes(&hash_v2(&components)),
                };
                hits[ranges
                    .iter()
                    .position(|range| range.contains(&epk))
                    .unwrap()] += 1;
            }
            assert!(
                hits.iter().all(|hits| (850..1_150).contains(hits)),
                "{version:?} {hits:?}"
            );
        }
    }

    #[test]
    fn shown_as_hex() {
        let text = serde_json::to_string(&range("", "05c1")).unwrap();
        assert_eq!(text, r#"{"min":"","max":"05C1"}"#);
        assert_eq!(
            serde_json::from_str::<EpkRange>(&text).unwrap(),
            range("", "05C1")
        );
    }
}
