//! What was probably meant by a name that does not exist.

/// How alike a name must be (0 to 1) to be worth a suggestion.
pub const LIKENESS_MIN: f64 = 0.7;

/// How alike two names are, 0 to 1.
pub fn likeness(left: &str, right: &str) -> f64 {
    strsim::normalized_damerau_levenshtein(left, right)
}

/// The most similar of these names, if it is similar enough.
pub fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    names
        .into_iter()
        .map(|name| (likeness(name, wrong), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_found_and_a_stranger_is_not() {
        let names = ["count", "bytes", "ttl"];
        assert_eq!(nearest("cuont", names), Some("count"));
        assert_eq!(nearest("byte", names), Some("bytes"));
        assert_eq!(nearest("colour", names), None);
    }
}
