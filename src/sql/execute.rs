//! Runs programs: filter, group, order, distinct, window.

use super::compare::{canonical_key, compare_ordering};
use super::eval::{Context, Flow, Frame, Scope, eval, rows, truth};
use super::functions::Accumulator;
use super::program::{Grouping, Program};
use super::query::Query;
use crate::model::error::Result;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// A query under way: push the items in scope, then take the rows.
pub struct Execution<'q> {
    stages: Vec<Stage<'q>>,
    context: Context,
}

impl<'q> Execution<'q> {
    pub(super) fn new(query: &'q Query) -> Self {
        let context = Context::new(query.now_ms());
        Self {
            stages: query.stages().iter().map(Stage::new).collect(),
            context,
        }
    }

    /// Takes one item. `Enough` says that no further item can change the result.
    pub fn push(&mut self, item: &Value) -> Result<Flow> {
        self.context.renew();
        match self.stages.first_mut() {
            Some(stage) => stage.push(&Scope::root(Some(item)), &self.context),
            None => Ok(Flow::Enough),
        }
    }

    /// The rows, in their order.
    pub fn finish(self) -> Result<Vec<Value>> {
        let Self { stages, context } = self;
        let mut result: Option<Vec<Value>> = None;
        for mut stage in stages {
            context.renew();
            for row in result.unwrap_or_default() {
                context.renew();
                if stage.push(&Scope::root(Some(&row)), &context)? == Flow::Enough {
                    break;
                }
            }
            context.renew();
            result = Some(stage.finish(&Scope::root(None), &context, true)?);
        }
        Ok(result.unwrap_or_default())
    }
}

/// All rows of a program within a scope.
pub fn rows_of(program: &Program, scope: &Scope<'_>, context: &Context) -> Result<Vec<Value>> {
    let mut stage = Stage::new(program);
    stage.push(scope, context)?;
    stage.finish(scope, context, false)
}

/// Whether a program has a row within a scope.
pub fn exists(program: &Program, scope: &Scope<'_>, context: &Context) -> Result<bool> {
    if !program.is_item_wise() {
        return Ok(!rows_of(program, scope, context)?.is_empty());
    }
    let mut found = false;
    matching(program, scope, context, &mut |row| {
        found = eval(&program.projection, row, context)?.is_some();
        Ok(if found { Flow::Enough } else { Flow::More })
    })?;
    Ok(found)
}

/// Visits the rows that the filter lets through.
pub fn matching(
    program: &Program,
    scope: &Scope<'_>,
    context: &Context,
    visit: &mut dyn FnMut(&Scope<'_>) -> Result<Flow>,
) -> Result<Flow> {
    rows(
        &program.sources,
        scope,
        context,
        &mut |row| match &program.filter {
            Some(filter) if truth(filter, row, context)? != Some(true) => Ok(Flow::More),
            _ => visit(row),
        },
    )
}

/// One program under way.
struct Stage<'q> {
    program: &'q Program,
    output: Output,
    groups: Groups,
}

impl<'q> Stage<'q> {
    fn new(program: &'q Program) -> Self {
        let mut groups = Groups::default();
        if let Some(grouping) = program.grouping.as_ref().filter(|g| g.keys.is_empty()) {
            // Without keys there is one group, even of no rows.
            groups.group(Vec::new(), Vec::new(), grouping);
        }
        Self {
            program,
            output: Output::new(program),
            groups,
        }
    }

    fn push(&mut self, scope: &Scope<'_>, context: &Context) -> Result<Flow> {
        let Self {
            program,
            output,
            groups,
        } = self;
        if output.is_full() {
            return Ok(Flow::Enough);
        }
        matching(
            program,
            scope,
            context,
            &mut |row| match &program.grouping {
                Some(grouping) => {
                    groups.push(grouping, row, context)?;
                    Ok(Flow::More)
                }
                None => output.push(program, row, context),
            },
        )
    }

    /// The rows; at the outermost level each group has a budget of its own, as each item had.
    fn finish(self, scope: &Scope<'_>, context: &Context, outermost: bool) -> Result<Vec<Value>> {
        let Self {
            program,
            mut output,
            groups,
        } = self;
        for group in groups.states {
            if outermost {
                context.renew();
            }
            let values = group.finish();
            let row = Scope::inside(scope, Frame::Group(&values));
            if output.push(program, &row, context)? == Flow::Enough {
                break;
            }
        }
        Ok(output.finish())
    }
}

/// The groups in the order in which they were first seen.
#[derive(Default)]
struct Groups {
    places: HashMap<Vec<u8>, usize>,
    states: Vec<Group>,
}

struct Group {
    keys: Vec<Option<Value>>,
    accumulators: Vec<Accumulator>,
}

impl Group {
    /// The keys and then the aggregates.
    fn finish(self) -> Vec<Option<Value>> {
        let mut values = self.keys;
        values.extend(self.accumulators.into_iter().map(Accumulator::finish));
        values
    }
}

impl Groups {
    fn push(&mut self, grouping: &Grouping, row: &Scope<'_>, context: &Context) -> Result<()> {
        let mut place = Vec::new();
        let mut keys = Vec::with_capacity(grouping.keys.len());
        for key in &grouping.keys {
            let key = eval(key, row, context)?;
            canonical_key(key.as_deref(), &mut place);
            keys.push(key);
        }
        let keys = keys
            .into_iter()
            .map(|key| key.map(std::borrow::Cow::into_owned))
            .collect();
        let group = self.group(place, keys, grouping);
        for (accumulator, call) in group.accumulators.iter_mut().zip(&grouping.aggregates) {
            if let Some(value) = eval(&call.argument, row, context)? {
                accumulator.add(value, context)?;
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        place: Vec<u8>,
        keys: Vec<Option<Value>>,
        grouping: &Grouping,
    ) -> &mut Group {
        let next = self.states.len();
        let at = *self.places.entry(place).or_insert(next);
        if at == next {
            let accumulators = grouping
                .aggregates
                .iter()
                .map(|call| Accumulator::new(call.aggregate))
                .collect();
            self.states.push(Group { keys, accumulators });
        }
        self.states
            .get_mut(at)
            .expect("places point into states, which never shrinks")
    }
}

/// Rows on their way out.
struct Output {
    rows: Vec<Ordered>,
    descending: Vec<bool>,
    seen: Option<HashSet<Vec<u8>>>,
    offset: u64,
    limit: u64,
}

struct Ordered {
    keys: Vec<Option<Value>>,
    value: Value,
}

impl Output {
    fn new(program: &Program) -> Self {
        let (offset, limit) = program
            .window
            .map_or((0, u64::MAX), |w| (w.offset, w.limit));
        // TOP counts before OFFSET skips.
        let limit = limit.min(
            program
                .top
                .map_or(u64::MAX, |top| top.saturating_sub(offset)),
        );
        Self {
            rows: Vec::new(),
            descending: program.order_by.iter().map(|key| key.descending).collect(),
            seen: program.distinct.then(HashSet::new),
            offset,
            limit,
        }
    }

    /// How many rows matter, the skipped ones included.
    fn wanted(&self) -> usize {
        usize::try_from(self.offset.saturating_add(self.limit)).unwrap_or(usize::MAX)
    }

    fn is_full(&self) -> bool {
        self.limit == 0 || (self.descending.is_empty() && self.rows.len() >= self.wanted())
    }

    fn push(&mut self, program: &Program, row: &Scope<'_>, context: &Context) -> Result<Flow> {
        if self.is_full() {
            return Ok(Flow::Enough);
        }
        let Some(value) = eval(&program.projection, row, context)? else {
            return Ok(Flow::More);
        };
        if let Some(seen) = &mut self.seen {
            let mut key = Vec::new();
            canonical_key(Some(&value), &mut key);
            if !seen.insert(key) {
                return Ok(Flow::More);
            }
        }
        let value = context.own(value)?;
        let mut keys = Vec::with_capacity(program.order_by.len());
        for key in &program.order_by {
            keys.push(eval(&key.node, row, context)?.map(std::borrow::Cow::into_owned));
        }
        self.rows.push(Ordered { keys, value });
        self.shrink();
        Ok(if self.is_full() {
            Flow::Enough
        } else {
            Flow::More
        })
    }

    /// Keeps no more than about twice the rows that matter, at a constant cost a row.
    fn shrink(&mut self) {
        const KEPT_AT_LEAST: usize = 1_000;
        let wanted = self.wanted();
        if !self.descending.is_empty() && self.rows.len() / 2 >= wanted.max(KEPT_AT_LEAST) {
            self.sort();
            self.rows.truncate(wanted);
        }
    }

    fn sort(&mut self) {
        let Self {
            rows, descending, ..
        } = self;
        rows.sort_by(|a, b| compare_keys(&a.keys, &b.keys, descending));
    }

    fn finish(mut self) -> Vec<Value> {
        self.sort();
        let skip = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let take = usize::try_from(self.limit).unwrap_or(usize::MAX);
        self.rows
            .into_iter()
            .skip(skip)
            .take(take)
            .map(|row| row.value)
            .collect()
    }
}

fn compare_keys(a: &[Option<Value>], b: &[Option<Value>], descending: &[bool]) -> Ordering {
    a.iter()
        .zip(b)
        .zip(descending)
        .map(|((a, b), descending)| {
            let ordering = compare_ordering(a.as_ref(), b.as_ref());
            if *descending {
                ordering.reverse()
            } else {
                ordering
            }
        })
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}
