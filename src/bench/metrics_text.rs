//! Reads what a node tells in the text format of Prometheus.

/// Labels and value of each series of a metric.
fn series<'t>(text: &'t str, name: &str) -> impl Iterator<Item = (&'t str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(labelled) => labelled.rsplit_once('}')?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some((labels, value.trim().parse().ok()?))
    })
}

/// All series of a counter added up; 0 before it is first counted.
pub fn sum(text: &str, name: &str) -> f64 {
    series(text, name).map(|(_, value)| value).sum()
}

/// The buckets of a histogram over all its series: upper edge and how many were not above it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets(Vec<(f64, f64)>);

impl Buckets {
    pub fn read(text: &str, name: &str) -> Self {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (labels, count) in series(text, &format!("{name}_bucket")) {
            let edge = labels
                .split(',')
                .find_map(|label| label.strip_prefix("le=\"")?.strip_suffix('"'));
            let Some(edge) = edge.and_then(|edge| edge.replace("+Inf", "inf").parse().ok()) else {
                continue;
            };
            match buckets.iter_mut().find(|(known, _)| *known == edge) {
                Some((_, sum)) => *sum += count,
                None => buckets.push((edge, count)),
            }
        }
        buckets.sort_by(|left, right| left.0.total_cmp(&right.0));
        Self(buckets)
    }

    /// What was counted since this earlier look.
    pub fn since(&self, before: &Self) -> Self {
        let counted = |(edge, count): &(f64, f64)| {
            let known = before.0.iter().find(|(other, _)| other == edge);
            (*edge, count - known.map_or(0.0, |(_, count)| *count))
        };
        Self(self.0.iter().map(counted).collect())
    }

    pub fn count(&self) -> f64 {
        self.0.last().map_or(0.0, |(_, count)| *count)
    }

    /// What this share (0 to 1) of the values did not exceed: an edge, so the value is at most
    /// that. Nothing without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (self.count() * share).max(f64::MIN_POSITIVE);
        let bucket = self.0.iter().find(|(_, count)| *count >= rank)?;
        Some(bucket.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_added_over_their_labels() {
        let text =
            "# TYPE a_total counter\na_total 5\na_total{x=\"}\"} 7\na_total_b 9\nb_total 1\n";
        assert_eq!(sum(text, "a_total"), 12.0);
        assert_eq!(sum(text, "b_total"), 1.0);
        assert_eq!(sum(text, "c_total"), 0.0);
    }

    #[test]
    fn quantiles_are_edges_of_what_was_counted_since() {
        let text = |counts: [u32; 3]| {
            let edges = ["0.5", "2", "+Inf"].iter().zip(counts);
            let lines = edges.map(|(edge, n)| format!("lag_bucket{{c=\"x\",le=\"{edge}\"}} {n}\n"));
            lines.collect::<String>() + "lag_sum 3\nlag_count 9\n"
        };
        let before = Buckets::read(&text([10, 20, 20]), "lag");
        let after = Buckets::read(&text([10, 29, 30]), "lag");
        let since = after.since(&before);
        assert_eq!(since.count(), 10.0);
        assert_eq!(since.quantile(0.5), Some(2.0));
        assert_eq!(since.quantile(0.99), Some(f64::INFINITY));
        assert_eq!(before.since(&before).quantile(0.5), None);
        assert_eq!(Buckets::read("", "lag").quantile(0.5), None);
    }
}
