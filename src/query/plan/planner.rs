//! Chooses how a selection gets at its items: over the index, in the order of a path or by the filter's terms, or over all items in key order.

use super::{
    composite::{self, CompositeTerm},
    condition::{Condition, IndexPath, Term, simplify_and, simplify_or},
    estimate::{Counted, count_entries, count_keys},
    filter::{Filter, filter},
    index_use::IndexUse,
    ordered_walk::{self, OrderedWalk},
    ordinals::{self, ORDINALS_MAX},
    request::ScanRequest,
    terms::{collect_paths, is_checkable, shapes_path},
};
use crate::{
    index::{PathId, path::SHAPES},
    model::error::{Error, Result},
    query::access::{
        IndexReader, IndexWalkPlan, ResumePoint, TermCheck, ValueRanges, driver_of,
        foreign_resume_point, is_of_ordinals,
    },
    shard::generation::Mode,
};

/// Entries counted at most to compare ways; each limit in turn, until one way proves to be shorter.
const RACE_LIMITS: [usize; 4] = [16, 128, 1_024, 4_096];
/// Where a filter finds fewer items than this, they are sorted rather than picked from the order.
const SORTED_ITEMS_MAX: usize = 1_000;
/// A walk over the index reads items one by one, which takes about so many times as long as reading them in their order.
const INDEX_COST: u64 = 8;
/// From this many entries on it pays to look into other terms of an item before reading it.
const CHECK_ENTRIES_MIN: usize = 128;

/// What ways cost, as far as the choice is concerned.
struct Costs {
    sorted_items_max: usize,
    index_cost: u64,
}

#[cfg(not(test))]
fn costs() -> Costs {
    Costs {
        sorted_items_max: SORTED_ITEMS_MAX,
        index_cost: INDEX_COST,
    }
}

#[cfg(test)]
thread_local! {
    /// Tests have few items; this makes the index worth its while all the same.
    pub static EAGER: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

#[cfg(test)]
fn costs() -> Costs {
    let eager = EAGER.get();
    Costs {
        sorted_items_max: if eager { 3 } else { SORTED_ITEMS_MAX },
        index_cost: if eager { 0 } else { INDEX_COST },
    }
}

pub enum AccessPath {
    Nothing,
    /// All items in key order.
    Keys,
    Walk(IndexWalkPlan),
    /// Items by their ordinals, in ascending order.
    Ordinals(Vec<u64>),
}

pub struct AccessPlan {
    pub access: AccessPath,
    /// Items come in the order of the query.
    pub ordered: bool,
    /// Terms that an item must have besides.
    pub checks: Vec<TermCheck>,
    /// What passes is what the filter lets through.
    pub exact: bool,
    pub used: IndexUse,
}

impl AccessPlan {
    fn of(access: AccessPath) -> Self {
        Self {
            access,
            ordered: false,
            checks: Vec::new(),
            exact: false,
            used: IndexUse::default(),
        }
    }
}

/// The filter's condition in terms alone, as a list of which all must be true.
pub fn conditions(reader: &IndexReader<'_>, condition: Condition) -> Vec<Condition> {
    match resolve(reader, condition) {
        Condition::And(all) => all,
        Condition::All => Vec::new(),
        one => vec![one],
    }
}

/// Says presence and absence by shapes. As deep as expressions nest.
fn resolve(reader: &IndexReader<'_>, condition: Condition) -> Condition {
    let shapes = |ranges: ValueRanges, has_other: bool| {
        Condition::Term(Term {
            path: shapes_path(),
            ranges,
            exact: !has_other,
        })
    };
    match condition {
        Condition::Present(path) => {
            let survey = reader.survey(path.id);
            shapes(survey.ranges(&survey.having), survey.has_other)
        }
        Condition::Missing(path) => {
            let survey = reader.survey(path.id);
            shapes(survey.ranges(&survey.lacking), survey.has_other)
        }
        Condition::And(all) => {
            simplify_and(all.into_iter().map(|one| resolve(reader, one)).collect())
        }
        Condition::Or(all) => {
            simplify_or(all.into_iter().map(|one| resolve(reader, one)).collect())
        }
        other => other,
    }
}

pub fn choose(reader: &IndexReader<'_>, request: &ScanRequest<'_>) -> Result<AccessPlan> {
    let syntax = request.query.syntax();
    let Some(index) = &reader.index else {
        if reader.view.state().index.mode == Mode::None && !request.scan_allowed {
            return Err(Error::bad_request(
                "An invalid query has been specified with filters against path(s) excluded from indexing. Consider adding allow scan \
                 header in the request: the container's indexing mode is 'none'",
            ));
        }
        return Ok(AccessPlan::of(AccessPath::Keys));
    };
    let Filter {
        condition,
        not_indexed,
    } = filter(request.query, &index.indexer);
    let conditions = conditions(reader, condition);
    let order = OrderedWalk::of(reader, request, &conditions)?;
    // Items in the order of one composite index are not picked by another one.
    let composites = match order {
        Some(_) => Vec::new(),
        None => composite::of_filter(reader, &conditions),
    };
    let chooser = Planner {
        reader,
        request,
        conditions,
        composites,
    };
    let mut choice = chooser.choose(order)?;
    choice.used.potential = not_indexed.iter().map(IndexPath::text).collect();
    let columns = ordered_walk::columns(request, &index.indexer).unwrap_or_default();
    for (path, _) in &columns {
        let text = path.text();
        if !index.indexer.includes(&path.segments) && !choice.used.potential.contains(&text) {
            choice.used.potential.push(text);
        }
    }
    if choice.used.utilized_composite.is_empty() {
        let advice = composite::advice(&columns, &chooser.conditions);
        choice.used.potential_composite.extend(advice);
    }
    // With other sources beside the item, a row may be missing though the filter holds.
    let is_plain = syntax.item_name().is_some()
        && syntax
            .from
            .as_ref()
            .is_some_and(|from| from.joins.is_empty());
    choice.exact &= is_plain;
    Ok(choice)
}
struct Planner<'a, 'v> {
    reader: &'a IndexReader<'v>,
    request: &'a ScanRequest<'a>,
    conditions: Vec<Condition>,
    /// Several of the conditions in one.
    composites: Vec<CompositeTerm>,
}

/// A way to the items by one of the conditions, or by several in a composite index.
#[derive(Clone, Copy)]
enum PathOption<'c> {
    Walk(&'c Term),
    Composite(&'c CompositeTerm),
    Ordinals(&'c Condition),
    Keys,
}

impl Planner<'_, '_> {
    fn choose(&self, order: Option<OrderedWalk>) -> Result<AccessPlan> {
        if self.conditions.contains(&Condition::Nothing) {
            return Ok(AccessPlan::of(AccessPath::Nothing));
        }
        if let Some(resume) = self.request.resume {
            return self.resumed(resume, order);
        }
        let covers = order.as_ref().map_or(&[][..], |order| &order.covers);
        let singles = self
            .conditions
            .iter()
            .filter(|one| !matches!(one, Condition::Term(term) if covers.contains(&term.path.id)))
            .filter_map(option_of);
        let ways: Vec<PathOption<'_>> = self
            .composites
            .iter()
            .map(PathOption::Composite)
            .chain(singles)
            .chain((!self.covers_shard()).then_some(PathOption::Keys))
            .collect();
        if let Some(order) = order {
            for way in &ways {
                if let Counted::All(_) = self.count(*way, costs().sorted_items_max)? {
                    return self.by(self.shortest(&ways)?.0, false);
                }
            }
            return Ok(self.ordered(order));
        }
        let (way, is_short) = self.shortest(&ways)?;
        self.by(way, !is_short)
    }

    /// The way that a resume point belongs to.
    fn resumed(&self, resume: &ResumePoint, order: Option<OrderedWalk>) -> Result<AccessPlan> {
        if is_of_ordinals(resume) {
            let all = Condition::And(self.conditions.clone());
            return match ordinals::of_condition(self.reader, &all, ORDINALS_MAX)? {
                Some(ordinals) => Ok(self.done(AccessPath::Ordinals(ordinals), &[], true)),
                None => Err(foreign_resume_point()),
            };
        }
        let Some(driver) = driver_of(resume) else {
            return Ok(AccessPlan::of(AccessPath::Keys));
        };
        if let Some(order) = order.filter(|order| order.plan.driver == driver) {
            return Ok(self.ordered(order));
        }
        let composite = self
            .composites
            .iter()
            .find(|composite| composite.term.path.id == driver);
        if let Some(composite) = composite {
            return self.by(PathOption::Composite(composite), true);
        }
        let term = self.conditions.iter().find_map(|one| match one {
            Condition::Term(term) if term.path.id == driver => Some(term),
            _ => None,
        });
        match term {
            Some(term) => self.by(PathOption::Walk(term), true),
            None => Err(foreign_resume_point()),
        }
    }

    fn ordered(&self, order: OrderedWalk) -> AccessPlan {
        AccessPlan {
            ordered: true,
            used: order.used,
            ..self.done(AccessPath::Walk(order.plan), &order.covers, true)
        }
    }

    /// Whether the whole shard is asked for.
    fn covers_shard(&self) -> bool {
        let (all, keys) = (&self.reader.view.facts.range, self.request.keys);
        keys.min <= all.min && keys.max >= all.max
    }

    fn count(&self, way: PathOption<'_>, limit: usize) -> Result<Counted> {
        match way {
            PathOption::Walk(term) | PathOption::Composite(CompositeTerm { term, .. }) => {
                count_entries(self.reader, term, limit)
            }
            PathOption::Ordinals(condition) => {
                let found = ordinals::of_condition(self.reader, condition, limit)?;
                Ok(found.map_or(Counted::More, |found| Counted::All(found.len())))
            }
            PathOption::Keys => count_keys(self.reader, self.request.keys, limit),
        }
    }

    /// The way with the fewest entries as far as a few looks tell, and whether it is known to be short.
    fn shortest<'c>(&self, ways: &[PathOption<'c>]) -> Result<(PathOption<'c>, bool)> {
        let documents = self.reader.view.state().documents;
        let worthwhile = documents
            .checked_div(costs().index_cost)
            .map_or(usize::MAX, |few| usize::try_from(few).unwrap_or(usize::MAX))
            .max(RACE_LIMITS[0]);
        let first = match ways {
            [] => return Ok((PathOption::Keys, false)),
            [one] if worthwhile > RACE_LIMITS[3] => return Ok((*one, false)),
            [first, ..] => *first,
        };
        for limit in RACE_LIMITS {
            for way in ways {
                if let Counted::All(count) = self.count(*way, limit.min(worthwhile))? {
                    return Ok((*way, count < CHECK_ENTRIES_MIN));
                }
            }
            if limit >= worthwhile {
                // A walk over everything is shorter than any of these.
                return Ok((PathOption::Keys, false));
            }
        }
        Ok((first, false))
    }

    fn by(&self, way: PathOption<'_>, with_checks: bool) -> Result<AccessPlan> {
        match way {
            PathOption::Keys => Ok(AccessPlan::of(AccessPath::Keys)),
            PathOption::Composite(composite) => {
                let access = AccessPath::Walk(plan_of(&composite.term));
                let mut choice = self.done(access, &composite.covers, with_checks);
                let columns = composite.columns.clone();
                choice.used.utilized_composite.push(columns);
                Ok(choice)
            }
            PathOption::Walk(term) => {
                let access = AccessPath::Walk(plan_of(term));
                let mut choice = self.done(access, &[term.path.id], with_checks);
                if term.path.id != SHAPES {
                    choice.used.utilized.insert(0, term.path.text());
                }
                Ok(choice)
            }
            PathOption::Ordinals(condition) => {
                match ordinals::of_condition(self.reader, condition, ORDINALS_MAX)? {
                    Some(ordinals) => {
                        let mut choice =
                            self.done(AccessPath::Ordinals(ordinals), &[], with_checks);
                        collect_paths(condition, &mut choice.used.utilized);
                        Ok(choice)
                    }
                    None => Ok(AccessPlan::of(AccessPath::Keys)),
                }
            }
        }
    }

    /// A choice with the checks that go with it.
    fn done(&self, access: AccessPath, covered: &[PathId], with_checks: bool) -> AccessPlan {
        let mut choice = AccessPlan::of(access);
        choice.exact = self.conditions.iter().all(Condition::is_exact);
        let mut covered_one = false;
        for condition in &self.conditions {
            match condition {
                Condition::Term(term) if covered.contains(&term.path.id) && !covered_one => {
                    // Of several conditions on the elements of an array the walk covers one.
                    covered_one = covered.len() == 1;
                }
                Condition::Term(term) if with_checks && is_checkable(term) => {
                    choice.checks.push(TermCheck {
                        path: term.path.id,
                        values: term.ranges.iter().map(|range| range.from.clone()).collect(),
                    });
                    if term.path.id != SHAPES {
                        choice.used.utilized.push(term.path.text());
                    }
                }
                _ => choice.exact = false,
            }
        }
        choice
    }
}

fn plan_of(term: &Term) -> IndexWalkPlan {
    IndexWalkPlan {
        driver: term.path.id,
        ranges: term.ranges.clone(),
        missing: None,
        backwards: false,
    }
}

fn option_of(condition: &Condition) -> Option<PathOption<'_>> {
    match condition {
        Condition::Term(term)
            if !term.path.is_multiple() || (term.ranges.len() == 1 && is_checkable(term)) =>
        {
            Some(PathOption::Walk(term))
        }
        Condition::Term(_) | Condition::Or(_) if ordinals::is_bounded(condition) => {
            Some(PathOption::Ordinals(condition))
        }
        _ => None,
    }
}
