//! LIKE patterns: `%` any run, `_` one character, `[a-f]` and `[^a-f]` one of (or none of) a set.

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Run,
    One,
    Exactly(char),
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    parts: Vec<Part>,
}

impl Pattern {
    pub fn new(text: &str, escape: Option<char>) -> Self {
        let characters: Vec<char> = text.chars().collect();
        let mut parts = Vec::with_capacity(characters.len());
        let mut rest = characters.as_slice();
        while let Some((&c, after)) = rest.split_first() {
            rest = after;
            let part = if Some(c) == escape && !after.is_empty() {
                let (&literal, after) = after.split_first().unwrap_or((&c, after));
                rest = after;
                Part::Exactly(literal)
            } else {
                match c {
                    // Runs in a row are one.
                    '%' if parts.last() == Some(&Part::Run) => continue,
                    '%' => Part::Run,
                    '_' => Part::One,
                    '[' => match set(after) {
                        Some((part, after)) => {
                            rest = after;
                            part
                        }
                        None => Part::Exactly('['),
                    },
                    _ => Part::Exactly(c),
                }
            };
            parts.push(part);
        }
        Self { parts }
    }

    /// Takes at most pattern × text comparisons: only the last run ever has to grow.
    pub fn matches(&self, text: &str) -> bool {
        self.matches_within(text, u64::MAX).0 == Some(true)
    }

    /// The answer, unless it takes more than so many comparisons, and how many it took.
    pub fn matches_within(&self, text: &str, comparisons_max: u64) -> (Option<bool>, u64) {
        let mut comparisons = 0;
        let answer = self.search(text, &mut || {
            comparisons += 1;
            comparisons <= comparisons_max
        });
        (answer, comparisons)
    }

    /// `None` once no further comparison is allowed.
    fn search(&self, text: &str, may_compare: &mut impl FnMut() -> bool) -> Option<bool> {
        let mut parts = self.parts.as_slice();
        let mut text = text.chars();
        let mut retry: Option<(&[Part], std::str::Chars<'_>)> = None;
        loop {
            if !may_compare() {
                return None;
            }
            match parts.split_first() {
                Some((Part::Run, after)) => {
                    if after.is_empty() {
                        return Some(true);
                    }
                    retry = Some((after, text.clone()));
                    parts = after;
                    continue;
                }
                Some((part, after)) => {
                    let Some(c) = text.next() else {
                        return Some(false);
                    };
                    if part.takes(c) {
                        parts = after;
                        continue;
                    }
                }
                None if text.as_str().is_empty() => return Some(true),
                None => {}
            }
            // The last run takes one character more.
            let Some((after, from)) = &mut retry else {
                return Some(false);
            };
            if from.next().is_none() {
                return Some(false);
            }
            parts = after;
            text = from.clone();
        }
    }

    /// The text that every match starts with.
    pub fn literal_prefix(&self) -> String {
        self.parts
            .iter()
            .map_while(|part| match part {
                Part::Exactly(c) => Some(*c),
                _ => None,
            })
            .collect()
    }
}

impl Part {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Run => false,
            Self::One => true,
            Self::Exactly(wanted) => c == *wanted,
            Self::Set { negated, ranges } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// What follows `[`, up to and with `]`; none if it is never closed.
fn set(after: &[char]) -> Option<(Part, &[char])> {
    let (negated, body) = match after.split_first() {
        Some(('^', body)) => (true, body),
        _ => (false, after),
    };
    let length = body.iter().position(|c| *c == ']')?;
    let (mut inside, rest) = body.split_at_checked(length)?;
    let mut ranges = Vec::new();
    while let Some((&low, more)) = inside.split_first() {
        match more {
            ['-', high, more @ ..] => {
                ranges.push((low, *high));
                inside = more;
            }
            _ => {
                ranges.push((low, low));
                inside = more;
            }
        }
    }
    Some((
        Part::Set { negated, ranges },
        rest.get(1..).unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_as_documented() {
        for (pattern, escape, yes, no) in [
            (
                "%fruit%",
                None,
                &["fruit", "a fruit b"][..],
                &["fru it", "Fruit"][..],
            ),
            ("a_c", None, &["abc", "aéc"], &["ac", "abbc"]),
            ("[a-f]x", None, &["ax", "fx"], &["gx", "x"]),
            ("[^a-f]x", None, &["gx"], &["ax", "x"]),
            ("20-30[%]", None, &["20-30%"], &["20-30", "20-30x"]),
            ("100!%", Some('!'), &["100%"], &["100", "100x", "100!"]),
            ("%a%b%", None, &["ab", "xaybz", "aab"], &["ba", ""]),
            ("%aab", None, &["aaab", "aab"], &["aaba"]),
            ("", None, &[""], &["a"]),
            ("%", None, &["", "a"], &[]),
            ("[x", None, &["[x"], &["x"]),
        ] {
            let compiled = Pattern::new(pattern, escape);
            for text in yes {
                assert!(compiled.matches(text), "{pattern} {text}");
            }
            for text in no {
                assert!(!compiled.matches(text), "{pattern} {text}");
            }
        }
        assert_eq!(Pattern::new("ab!%c%d", Some('!')).literal_prefix(), "ab%c");
    }
}
