//! Runs programs: filter, group, order, distinct, window.

mod groups;
mod output;
mod terms;

pub use terms::{TermAggregate, TermResult};

use crate::model::error::{Error, Result};
use crate::sql::compare::canonical_key;
use crate::sql::eval::{Context, Flow, Frame, Scope, eval, rows, truth};
use crate::sql::functions::Accumulator;
use crate::sql::program::Program;
use crate::sql::query::Query;
use groups::Groups;
use output::Output;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A query under way: push the items in scope, then take the rows.
pub struct Execution<'q> {
    stages: Vec<Stage<'q>>,
    context: Context,
}

impl<'q> Execution<'q> {
    pub(in crate::sql) fn new(query: &'q Query) -> Self {
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
        match self.stages.first_mut() {
            Some(stage) => stage.absorb(partial),
            None => Ok(Flow::Enough),
        }
    }

    /// About how many bytes are held until the end.
    pub fn held_bytes(&self) -> usize {
        self.stages
            .iter()
            .map(|stage| stage.output.held_bytes)
            .sum()
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

    fn absorb(&mut self, partial: Partial) -> Result<Flow> {
        let foreign = || Error::internal("a partial result belongs to another query");
        if let Some(grouping) = &self.program.grouping {
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
            if keys.len() != self.program.order_by.len() {
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
