//! Aggregates that can be worked out without the items: what they need to know, and what they come to.

use super::Partial;
use crate::sql::functions::{Accumulator, Aggregate, Extreme};
use crate::sql::program::{Input, Node, Program, Step};
use crate::sql::query::Query;
use serde_json::Value;

/// An aggregate over all rows of a query, each of which is one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TermAggregate {
    /// How many rows there are.
    Rows,
    /// How many have a value at the path.
    Count(Vec<String>),
    /// The least or the greatest value at the path.
    Min(Vec<String>),
    Max(Vec<String>),
}

/// What an aggregate comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum TermResult {
    Count(u64),
    Min(Option<Value>),
    Max(Option<Value>),
}

impl Query {
    /// The aggregates of a query that has one group of all its rows, if each of them is of a kind that terms can answer.
    pub fn term_aggregates(&self) -> Option<Vec<TermAggregate>> {
        let stages = self.stages();
        let [program] = stages.as_slice() else {
            return None;
        };
        let grouping = program.grouping.as_ref().filter(|g| g.keys.is_empty())?;
        if !is_one_row_per_item(program) {
            return None;
        }
        let aggregates = grouping.aggregates.iter().map(|call| {
            let path = match &call.argument {
                Node::Constant(_) => None,
                // The item under its name, or as the scope around it.
                Node::Path { up: 0 | 1, steps } if steps.is_empty() => None,
                Node::Path { up: 0 | 1, steps } => Some(names(steps)?),
                _ => return None,
            };
            match (call.aggregate, path) {
                (Aggregate::Count, None) => Some(TermAggregate::Rows),
                (Aggregate::Count, Some(path)) => Some(TermAggregate::Count(path)),
                (Aggregate::Min, Some(path)) => Some(TermAggregate::Min(path)),
                (Aggregate::Max, Some(path)) => Some(TermAggregate::Max(path)),
                _ => None,
            }
        });
        aggregates.collect()
    }
}

fn is_one_row_per_item(program: &Program) -> bool {
    match program.sources.as_slice() {
        [source] => {
            !source.iterate
                && matches!(&source.input, Input::Value(Node::Path { up: 0, steps }) if steps.is_empty())
        }
        _ => false,
    }
}

fn names(steps: &[Step]) -> Option<Vec<String>> {
    steps
        .iter()
        .map(|step| match step {
            Step::Property(name) => Some(name.clone()),
            Step::Index(_) | Step::Computed(_) => None,
        })
        .collect()
}

impl Partial {
    /// What a part of the items comes to, by the aggregates in their order.
    pub fn of_terms(results: Vec<TermResult>) -> Self {
        let extreme = |value: Option<Value>| value.map_or(Extreme::Nothing, Extreme::Best);
        let accumulators = results.into_iter().map(|result| match result {
            TermResult::Count(count) => Accumulator::Count(count),
            TermResult::Min(value) => Accumulator::Min(extreme(value)),
            TermResult::Max(value) => Accumulator::Max(extreme(value)),
        });
        Self {
            groups: vec![(Vec::new(), accumulators.collect())],
            rows: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn aggregates_that_terms_can_answer() {
        use TermAggregate::*;
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (query, expected) in [
            ("SELECT VALUE COUNT(1) FROM c", Some(vec![Rows])),
            (
                "SELECT VALUE COUNT(c) FROM c WHERE c.x > 5",
                Some(vec![Rows]),
            ),
            (
                "SELECT COUNT(c.a.b) AS n, MAX(c.x) AS m FROM c",
                Some(vec![Count(path(&["a", "b"])), Max(path(&["x"]))]),
            ),
            (
                "SELECT VALUE [{\"item\": COUNT(1)}] FROM c",
                Some(vec![Rows]),
            ),
            (
                "SELECT VALUE {\"item\": MIN(c.x), \"item2\": {\"min\": MIN(c.x), \"count\": COUNT(c.x)}} FROM c",
                Some(vec![
                    Min(path(&["x"])),
                    Min(path(&["x"])),
                    Count(path(&["x"])),
                ]),
            ),
            ("SELECT VALUE SUM(c.x) FROM c", None),
            ("SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags", None),
            ("SELECT VALUE COUNT(1) FROM t IN c.tags", None),
            ("SELECT COUNT(1) FROM c GROUP BY c.x", None),
            ("SELECT VALUE COUNT(c.x + 1) FROM c", None),
            ("SELECT VALUE COUNT(c.x[0]) FROM c", None),
            ("SELECT VALUE c FROM c", None),
        ] {
            assert_eq!(
                Query::parse(query, &[]).unwrap().term_aggregates(),
                expected,
                "{query}"
            );
        }
    }

    #[test]
    fn results_of_terms_are_absorbed() {
        let query = Query::parse("SELECT COUNT(1) AS n, MIN(c.x) AS least FROM c", &[]).unwrap();
        let mut execution = query.start();
        for (count, least) in [(3, Some(json!(7))), (0, None), (4, Some(json!(5)))] {
            let results = vec![TermResult::Count(count), TermResult::Min(least)];
            execution.absorb(Partial::of_terms(results)).unwrap();
        }
        assert_eq!(execution.finish().unwrap(), [json!({"n": 7, "least": 5})]);
    }
}
