//! Runs programs: filter, group, order, distinct, window.

mod groups;
mod output;
mod terms;

pub use terms::{TermAggregate, TermResult};

use crate::model::error::{Error, Result};
use crate::sql::compare::canonical_key;
use crate::sql::eval::{Context, Flow, Frame, Guard, Scope, eval, rows, truth};
use crate::sql::functions::Accumulator;
use crate::sql::program::Program;
use crate::sql::query::Query;
use groups::Groups;
use output::Output;
pub use output::compare_keys;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// A query under way: push the items in scope, then take the rows.
pub struct Execution {
    programs: Arc<Vec<Program>>,
    /// The first stage that must see more than one row at a time, or the last one. Rows of an item
    /// go through those before it at once.
    lead: usize,
    /// From the lead on.
    stages: Vec<Stage>,
    context: Context,
}

/// A row and the values by which it was ordered.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRow {
    pub keys: Vec<Option<Value>>,
    pub value: Value,
}

impl Execution {
    /// Without `cut` the rows are not cut by the outermost TOP and OFFSET LIMIT.
    pub(in crate::sql) fn new(query: &Query, cut: bool) -> Self {
        let programs = Arc::clone(query.stages());
        let last = programs.len().saturating_sub(1);
        let lead = programs
            .iter()
            .position(|program| !program.is_item_wise())
            .unwrap_or(last);
        let stages = programs.iter().enumerate().skip(lead);
        Self {
            stages: stages
                .map(|(at, program)| Stage::new(program, cut || at < last))
                .collect(),
            lead,
            context: Context::new(query.now_ms()),
            programs,
        }
    }

    /// Has the evaluation watched.
    #[must_use]
    pub fn guarded(mut self, guard: Arc<dyn Guard>) -> Self {
        self.context.set_guard(guard);
        self
    }

    /// Allows fewer steps an item than usual.
    pub(in crate::sql) fn set_steps_max(&mut self, steps_max: u64) {
        self.context.set_steps_max(steps_max);
    }

    /// Takes one item. `Enough` says that no further item can change the result.
    pub fn push(&mut self, item: &Value) -> Result<Flow> {
        let Self {
            programs,
            lead,
            stages,
            context,
        } = self;
        context.renew();
        let (Some(program), Some(stage)) = (programs.get(*lead), stages.first_mut()) else {
            return Ok(Flow::Enough);
        };
        let before = programs.get(..*lead).unwrap_or_default();
        if before.is_empty() {
            return stage.push(program, &Scope::root(Some(item)), context);
        }
        project_stages(before, item, context, &mut |row| {
            stage.push(program, &Scope::root(Some(&row)), context)
        })
    }

    /// What this part of the items comes to, to be taken in by another execution of the same
    /// query with [`Execution::absorb`].
    pub fn into_partial(self) -> Partial {
        self.stages
            .into_iter()
            .next()
            .map(Stage::into_partial)
            .unwrap_or_default()
    }

    /// Takes in the items of another part. Where rows are equal in order, those of the part that
    /// came first stay first.
    pub fn absorb(&mut self, partial: Partial) -> Result<Flow> {
        match (self.programs.get(self.lead), self.stages.first_mut()) {
            (Some(program), Some(stage)) => stage.absorb(program, partial),
            _ => Ok(Flow::Enough),
        }
    }

    /// About how many bytes are held until the end, where the allocator does not count.
    pub fn held_bytes(&self) -> usize {
        let held = |stage: &Stage| stage.output.held_bytes + stage.groups.held_bytes;
        self.stages.iter().map(held).sum()
    }

    /// The rows, in their order.
    pub fn finish(self) -> Result<Vec<Value>> {
        let rows = self.finish_rows()?;
        Ok(rows.into_iter().map(|row| row.value).collect())
    }

    /// The rows in their order, with the values of the outermost ORDER BY columns.
    pub fn finish_rows(self) -> Result<Vec<FinishedRow>> {
        let Self {
            programs,
            lead,
            stages,
            context,
        } = self;
        let mut result: Vec<FinishedRow> = Vec::new();
        for (program, mut stage) in programs.iter().skip(lead).zip(stages) {
            context.renew();
            for row in result {
                context.renew();
                if stage.push(program, &Scope::root(Some(&row.value)), &context)? == Flow::Enough {
                    break;
                }
            }
            context.renew();
            result = stage.finish(program, &Scope::root(None), &context, true)?;
        }
        Ok(result)
    }
}

/// What a part of the items comes to: groups with the states of their aggregates, or rows with
/// the keys of their order. An undefined key is an empty list, so that no encoding confuses it
/// with null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Partial {
    groups: Vec<(Vec<Vec<Value>>, Vec<Accumulator>)>,
    rows: Vec<(Vec<Vec<Value>>, Value)>,
}

fn pack(keys: Vec<Option<Value>>) -> Vec<Vec<Value>> {
    keys.into_iter()
        .map(|key| key.into_iter().collect())
        .collect()
}

fn unpack(keys: Vec<Vec<Value>>) -> Vec<Option<Value>> {
    keys.into_iter().map(|key| key.into_iter().next()).collect()
}

/// All rows of a program within a scope.
pub fn rows_of(program: &Program, scope: &Scope<'_>, context: &Context) -> Result<Vec<Value>> {
    let mut stage = Stage::new(program, true);
    stage.push(program, scope, context)?;
    let rows = stage.finish(program, scope, context, false)?;
    Ok(rows.into_iter().map(|row| row.value).collect())
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

/// Passes an item through stages of which each makes rows of one row alone.
pub fn project_stages(
    stages: &[Program],
    item: &Value,
    context: &Context,
    visit: &mut dyn FnMut(Value) -> Result<Flow>,
) -> Result<Flow> {
    let Some((first, rest)) = stages.split_first() else {
        return Ok(Flow::More);
    };
    matching(
        first,
        &Scope::root(Some(item)),
        context,
        &mut |row| match eval(&first.projection, row, context)? {
            None => Ok(Flow::More),
            Some(value) if rest.is_empty() => visit(context.own(value)?),
            Some(value) => project_stages(rest, &value, context, visit),
        },
    )
}

/// One program under way.
struct Stage {
    output: Output,
    groups: Groups,
}

impl Stage {
    fn new(program: &Program, cut: bool) -> Self {
        let mut groups = Groups::default();
        if let Some(grouping) = program.grouping.as_ref().filter(|g| g.keys.is_empty()) {
            // Without keys there is one group, even of no rows.
            groups.group(Vec::new(), Vec::new(), grouping);
        }
        Self {
            output: Output::new(program, cut),
            groups,
        }
    }

    fn push(&mut self, program: &Program, scope: &Scope<'_>, context: &Context) -> Result<Flow> {
        let Self { output, groups } = self;
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

    fn into_partial(mut self) -> Partial {
        self.output.sort();
        self.output.rows.truncate(self.output.wanted());
        let rows = self
            .output
            .rows
            .into_iter()
            .map(|row| (pack(row.keys), row.value))
            .collect();
        let groups = self.groups.states.into_iter();
        Partial {
            groups: groups.map(|g| (pack(g.keys), g.accumulators)).collect(),
            rows,
        }
    }

    fn absorb(&mut self, program: &Program, partial: Partial) -> Result<Flow> {
        let foreign = || Error::internal("a partial result belongs to another query");
        if let Some(grouping) = &program.grouping {
            for (keys, accumulators) in partial.groups {
                let keys = unpack(keys);
                let mut place = Vec::new();
                keys.iter()
                    .for_each(|key| canonical_key(key.as_ref(), &mut place));
                let group = self.groups.group(place, keys, grouping);
                if group.accumulators.len() != accumulators.len() {
                    return Err(foreign());
                }
                for (one, other) in group.accumulators.iter_mut().zip(accumulators) {
                    if !one.merge(other) {
                        return Err(foreign());
                    }
                }
            }
            return Ok(Flow::More);
        }
        for (keys, value) in partial.rows {
            if keys.len() != program.order_by.len() {
                return Err(foreign());
            }
            if self.output.is_full() {
                return Ok(Flow::Enough);
            }
            if self.output.is_new(&value) {
                self.output.insert(unpack(keys), value);
            }
        }
        Ok(if self.output.is_full() {
            Flow::Enough
        } else {
            Flow::More
        })
    }

    /// The rows; at the outermost level each group has a budget of its own, as each item had.
    fn finish(
        self,
        program: &Program,
        scope: &Scope<'_>,
        context: &Context,
        outermost: bool,
    ) -> Result<Vec<FinishedRow>> {
        let Self { mut output, groups } = self;
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
