//! Sets of encoded values: ranges in ascending order that do not touch.

/// `from <= bytes < to`. All that begins with some bytes is a range, too: from them to their [`successor`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueRange {
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueRanges(Vec<ValueRange>);

/// The first bytes behind all that begin so. Encoded values never consist of 0xff alone.
pub fn successor(bytes: &[u8]) -> Vec<u8> {
    let mut next = bytes.to_vec();
    while let Some(last) = next.pop() {
        if let Some(more) = last.checked_add(1) {
            next.push(more);
            return next;
        }
    }
    vec![0xff; bytes.len() + 1]
}

impl ValueRanges {
    pub fn one(from: Vec<u8>, to: Vec<u8>) -> Self {
        Self(if from < to {
            vec![ValueRange { from, to }]
        } else {
            Vec::new()
        })
    }

    /// All that begins so.
    pub fn prefix(bytes: Vec<u8>) -> Self {
        let to = successor(&bytes);
        Self::one(bytes, to)
    }

    /// All values of a type, by its tag.
    pub fn of_tag(tag: u8) -> Self {
        Self::prefix(vec![tag])
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &ValueRange> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that all of this begins with and that are all of this: the range of one value.
    pub fn single_value(&self) -> Option<&[u8]> {
        match self.0.as_slice() {
            [range] if range.to == successor(&range.from) => Some(&range.from),
            _ => None,
        }
    }

    pub fn union(all: impl IntoIterator<Item = Self>) -> Self {
        let mut ranges: Vec<ValueRange> = all.into_iter().flat_map(|ranges| ranges.0).collect();
        ranges.sort_unstable_by(|a, b| a.from.cmp(&b.from));
        let mut merged: Vec<ValueRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                // Neighbours stay apart, so that a list of values remains one.
                Some(last) if range.from < last.to => {
                    if last.to < range.to {
                        last.to = range.to;
                    }
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let from = (&a.from).max(&b.from);
            let to = (&a.to).min(&b.to);
            if from < to {
                common.push(ValueRange {
                    from: from.clone(),
                    to: to.clone(),
                });
            }
            if a.to < b.to {
                left.next();
            } else {
                right.next();
            }
        }
        Self(common)
    }

    pub fn intersects(&self, other: &Self) -> bool {
        !self.intersection(other).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &[(&str, &str)]) -> ValueRanges {
        ValueRanges::union(
            text.iter().map(|(from, to)| {
                ValueRanges::one(from.as_bytes().to_vec(), to.as_bytes().to_vec())
            }),
        )
    }

    #[test]
    fn sets_are_joined_and_cut() {
        let a = ranges(&[("b", "d"), ("f", "h"), ("c", "e")]);
        assert_eq!(a, ranges(&[("b", "e"), ("f", "h")]));
        let b = ranges(&[("a", "c"), ("d", "g")]);
        assert_eq!(
            a.intersection(&b),
            ranges(&[("b", "c"), ("d", "e"), ("f", "g")])
        );
        assert!(a.intersection(&ranges(&[("e", "f")])).is_empty());
        assert!(ranges(&[("b", "b"), ("c", "a")]).is_empty());
    }

    #[test]
    fn a_value_is_a_range() {
        assert_eq!(successor(&[1, 0xff, 0xff]), [2]);
        assert!(successor(&[0xff]) > vec![0xff]);
        let value = ValueRanges::prefix(vec![5, 7]);
        assert_eq!(value.single_value(), Some([5, 7].as_slice()));
        assert_eq!(ValueRanges::one(vec![5], vec![7]).single_value(), None);
    }
}
