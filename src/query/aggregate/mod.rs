//! Aggregates from the index alone: the entries of a range are counted, and only the items with the least and the greatest value are read.

mod answer;
mod count_range;
mod count_set;

use std::rc::Rc;

use serde_json::Value;

pub use answer::IndexAnswer;

use crate::{
    index::PathId,
    model::{error::Result, indexing_policy::Segment},
    query::{
        access::{
            IndexEntries, IndexItems, IndexReader, IndexWalk, IndexWalkPlan, ResumePoint,
            SpentBudget, TermCheck, ValueRanges, driver_of,
        },
        plan::{
            IndexUse, ScanRequest,
            condition::{Condition, IndexPath, Term},
            filter::filter,
            planner::conditions,
            terms::{collect_paths, scalars, shapes_path, whole_values},
        },
    },
    shard::{indexing::parse, view::ShardView},
    sql::{Partial, TermAggregate, TermResult},
};

/// Answers a COUNT, MIN or MAX without reading items, exact to the second of expiry; `None` when the index cannot, and items must be read.
pub fn aggregate_from_index(
    view: &ShardView,
    request: &ScanRequest<'_>,
) -> Result<Option<IndexAnswer>> {
    let Some(aggregates) = request.query.term_aggregates() else {
        return Ok(None);
    };
    // Entries do not say which part of the shard their item is in.
    let all = &view.facts.range;
    if request.keys.min > all.min || request.keys.max < all.max {
        return Ok(None);
    }
    let reader = Rc::new(IndexReader::open(view));
    let Some(plan) = AggregateScan::of(&reader, request, &aggregates) else {
        return count_set::count(&reader, request, &aggregates);
    };
    // A point that does not belong to this walk belongs to one over items.
    if request
        .resume
        .is_some_and(|point| driver_of(point) != Some(plan.term.path.id))
    {
        return Ok(None);
    }
    let (results, resume, examined) = plan.run(&reader, request, &aggregates)?;
    let used = IndexUse {
        utilized: plan.used,
        ..IndexUse::default()
    };
    Ok(Some(IndexAnswer {
        partial: Partial::of_terms(results),
        resume,
        examined,
        used,
    }))
}

/// A walk whose entries are exactly the rows, or exactly those that have the path of the aggregates.
struct AggregateScan {
    term: Term,
    checks: Vec<(PathId, Vec<Vec<u8>>)>,
    /// Paths, for the index metrics.
    used: Vec<String>,
}

impl AggregateScan {
    fn of(
        reader: &IndexReader<'_>,
        request: &ScanRequest<'_>,
        aggregates: &[TermAggregate],
    ) -> Option<Self> {
        let index = reader.index.as_ref()?;
        let conditions = conditions(reader, filter(request.query, &index.indexer).condition);
        if !conditions.iter().all(Condition::is_exact) {
            return None;
        }
        let mut paths = aggregates.iter().filter_map(|aggregate| match aggregate {
            TermAggregate::Rows => None,
            TermAggregate::Count(path) | TermAggregate::Min(path) | TermAggregate::Max(path) => {
                Some(path)
            }
        });
        let path = paths.next();
        if paths.any(|other| Some(other) != path) {
            return None;
        }
        let term = match path {
            Some(names) => Self::of_path(reader, request, names, aggregates, &conditions)?,
            None => Self::of_rows(&conditions)?,
        };
        let mut checks = Vec::new();
        let mut driver_seen = false;
        let mut used = Vec::new();
        collect_paths(&Condition::Term(term.clone()), &mut used);
        for condition in &conditions {
            match condition {
                Condition::Term(one) if *one == term && !driver_seen => driver_seen = true,
                Condition::Term(one) => checks.push((one.path.id, whole_values(one)?)),
                _ => return None,
            }
            collect_paths(condition, &mut used);
        }
        Some(Self { term, checks, used })
    }

    /// The condition that the fewest lookups are needed beside: one that is no list of values.
    fn of_rows(conditions: &[Condition]) -> Option<Term> {
        let terms = || {
            conditions.iter().filter_map(|one| match one {
                Condition::Term(term) => Some(term),
                _ => None,
            })
        };
        let driver = terms()
            .find(|term| whole_values(term).is_none())
            .or_else(|| terms().next());
        match driver {
            Some(term)
                if !term.path.is_multiple() || whole_values(term).is_some_and(|v| v.len() == 1) =>
            {
                Some(term.clone())
            }
            Some(_) => None,
            None => {
                // Every item has a shape.
                Some(Term {
                    path: shapes_path(),
                    ranges: ValueRanges::one(vec![0; 8], vec![0xff; 9]),
                    exact: true,
                })
            }
        }
    }

    /// The values at the path of the aggregates, as far as the filter lets them through.
    fn of_path(
        reader: &IndexReader<'_>,
        request: &ScanRequest<'_>,
        names: &[String],
        aggregates: &[TermAggregate],
        conditions: &[Condition],
    ) -> Option<Term> {
        let index = reader.index.as_ref()?;
        let segments = names.iter().cloned().map(Segment::Property).collect();
        let path = IndexPath::new(&index.indexer.paths, segments);
        // The extremes are read from the items, which do not have what is computed.
        let computed = names.first().is_some_and(|first| {
            request.query.computed(first).is_some() || index.indexer.computed(first).is_some()
        });
        if computed || !index.indexer.includes(&path.segments) {
            return None;
        }
        let bound = conditions.iter().find_map(|one| match one {
            Condition::Term(term) if term.path.id == path.id => Some(term),
            _ => None,
        });
        let survey = reader.survey(path.id);
        // Of strings that were cut only the items tell which is the least.
        let wants_extreme = aggregates
            .iter()
            .any(|one| matches!(one, TermAggregate::Min(_) | TermAggregate::Max(_)));
        if wants_extreme && (survey.has_cut || survey.has_other) {
            return None;
        }
        if let Some(term) = bound {
            return Some(term.clone());
        }
        // Arrays and objects have no entry, but count; and items without the path are rows.
        let counts_rows = aggregates.contains(&TermAggregate::Rows);
        if survey.has_nested || survey.has_other || (counts_rows && !survey.lacking.is_empty()) {
            return None;
        }
        Some(Term {
            path,
            ranges: scalars(),
            exact: true,
        })
    }

    fn run(
        &self,
        reader: &Rc<IndexReader<'_>>,
        request: &ScanRequest<'_>,
        aggregates: &[TermAggregate],
    ) -> Result<(Vec<TermResult>, Option<ResumePoint>, usize)> {
        let counts = aggregates
            .iter()
            .any(|one| matches!(one, TermAggregate::Rows | TermAggregate::Count(_)));
        let wants_min = aggregates
            .iter()
            .any(|one| matches!(one, TermAggregate::Min(_)));
        let wants_max = aggregates
            .iter()
            .any(|one| matches!(one, TermAggregate::Max(_)));
        let mut spent = SpentBudget::new(request.budget);
        let mut count = 0;
        let mut resume = None;
        if counts && self.checks.is_empty() && !reader.has_foreign {
            let term = &self.term;
            (count, resume) = count_range::count(reader, term, request.resume, &mut spent)?;
        } else if counts {
            let mut items = self.items(reader, request, false)?;
            while items.entries.advance()? {
                if spent.is_over() {
                    resume = Some(items.entries.resume_at());
                    break;
                }
                spent.examined += 1;
                count += u64::from(items.passes()?);
            }
        }
        // The extremes are those of the whole, on every page: they may be taken in more than once.
        let least = match wants_min {
            true => self.extreme(reader, request, false, &mut spent)?,
            false => None,
        };
        let greatest = match wants_max {
            true => self.extreme(reader, request, true, &mut spent)?,
            false => None,
        };
        let results = aggregates.iter().map(|aggregate| match aggregate {
            TermAggregate::Rows | TermAggregate::Count(_) => TermResult::Count(count),
            TermAggregate::Min(_) => TermResult::Min(least.clone()),
            TermAggregate::Max(_) => TermResult::Max(greatest.clone()),
        });
        Ok((results.collect(), resume, spent.examined))
    }

    fn items<'v>(
        &self,
        reader: &Rc<IndexReader<'v>>,
        request: &ScanRequest<'_>,
        backwards: bool,
    ) -> Result<IndexItems<'v>> {
        let plan = IndexWalkPlan {
            driver: self.term.path.id,
            ranges: self.term.ranges.clone(),
            missing: None,
            backwards,
        };
        let entries = IndexEntries::Walk(IndexWalk::open(reader, plan, request.resume)?);
        let checks = self.checks.iter().map(|(path, values)| TermCheck {
            path: *path,
            values: values.clone(),
        });
        Ok(IndexItems::new(
            Rc::clone(reader),
            entries,
            checks.collect(),
            true,
            request.keys,
            1,
        ))
    }

    /// The value of the first live item of the walk.
    fn extreme(
        &self,
        reader: &Rc<IndexReader<'_>>,
        request: &ScanRequest<'_>,
        backwards: bool,
        spent: &mut SpentBudget,
    ) -> Result<Option<Value>> {
        let unresumed = ScanRequest {
            resume: None,
            ..*request
        };
        let mut items = self.items(reader, &unresumed, backwards)?;
        while items.advance(usize::MAX)? {
            spent.examined += 1;
            if items.has_item() {
                let object = parse(items.candidate()?.body);
                let mut value = object.map(Value::Object);
                for segment in &self.term.path.segments {
                    value = match (segment, value) {
                        (Segment::Property(name), Some(Value::Object(mut object))) => {
                            object.swap_remove(name)
                        }
                        _ => None,
                    };
                }
                return Ok(value);
            }
        }
        Ok(None)
    }
}
