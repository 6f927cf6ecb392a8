//! The doors of the room.

use super::ast::{Collection, Expr, SelectQuery, Selection};
use super::bind::bind;
use super::computed::ComputedProperties;
use super::eval::{Context, Flow, Scope, eval};
use super::execute::{Execution, matching};
use super::parser;
use super::partition::{PartitionKeys, constant, partition_keys};
use super::program::Program;
pub use super::program::Window as OffsetLimit;
use super::wanted::Wanted;
use crate::model::error::{Error, Result};
use serde_json::Value;

/// A query, parsed and bound to its parameters.
#[derive(Debug)]
pub struct Query {
    syntax: SelectQuery,
    stages: Vec<Program>,
    parameters: Vec<(String, Value)>,
    wanted: Wanted,
    computed: Vec<String>,
    now_ms: i64,
}

impl Query {
    /// Parses a query. A fault gives 400 with its code and place in the text.
    pub fn parse(text: &str, parameters: &[(String, Value)]) -> Result<Self> {
        Self::parse_with(text, parameters, &ComputedProperties::default())
    }

    /// Parses a query over a container with computed properties.
    pub fn parse_with(
        text: &str,
        parameters: &[(String, Value)],
        computed: &ComputedProperties,
    ) -> Result<Self> {
        let syntax = parser::parse(text).map_err(|fault| fault.into_error(text))?;
        Self::new(syntax, text, parameters, computed)
    }

    fn new(
        syntax: SelectQuery,
        text: &str,
        parameters: &[(String, Value)],
        computed: &ComputedProperties,
    ) -> Result<Self> {
        let stages = bind(&syntax, parameters, computed).map_err(|fault| fault.into_error(text))?;
        let wanted = Wanted::of(&syntax, computed);
        Ok(Self {
            syntax,
            stages,
            parameters: parameters.to_vec(),
            wanted,
            computed: computed.names().map(str::to_owned).collect(),
            now_ms: 0,
        })
    }

    /// Sets what GetCurrentDateTime and its kin answer: milliseconds since 1970.
    #[must_use]
    pub fn at(mut self, now_ms: i64) -> Self {
        self.now_ms = now_ms;
        self
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    pub(super) fn stages(&self) -> &[Program] {
        &self.stages
    }

    /// The syntax tree, for those who look for an index.
    pub fn syntax(&self) -> &SelectQuery {
        &self.syntax
    }

    /// A value that an expression of the syntax tree is, if it is written or given.
    pub fn constant<'q>(&'q self, expr: &'q Expr) -> Option<&'q Value> {
        constant(expr, &self.parameters)
    }

    /// Whether the container computes a property of this name.
    pub fn is_computed(&self, name: &str) -> bool {
        self.computed.iter().any(|computed| computed == name)
    }

    /// The partition keys that the filter allows.
    pub fn partition_keys(&self, key_paths: &[String]) -> PartitionKeys {
        partition_keys(&self.syntax, &self.parameters, key_paths)
    }

    /// The properties that an item must be read with for this query; where the query
    /// [returns items](Self::returns_items), only those of its conditions.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Whether the rows are the items themselves, so that an item that
    /// [matches](Self::matches) may leave as it is stored.
    pub fn returns_items(&self) -> bool {
        returns_items(&self.syntax)
    }

    /// Whether the query looks at items at all; without FROM it gives one row of constants.
    pub fn reads_items(&self) -> bool {
        reads_items(&self.syntax)
    }

    /// Whether the rows of one item leave as they are, whatever the other items are: no ORDER BY,
    /// GROUP BY, aggregate or DISTINCT. TOP and OFFSET LIMIT are left to the caller.
    pub fn is_streaming(&self) -> bool {
        let Some((last, before)) = self.stages.split_last() else {
            return false;
        };
        self.reads_items() && last.is_streaming() && before.iter().all(Program::is_item_wise)
    }

    pub fn top(&self) -> Option<u64> {
        self.stages.last()?.top
    }

    pub fn offset_limit(&self) -> Option<OffsetLimit> {
        self.stages.last()?.window
    }

    /// Begins an evaluation over items.
    pub fn start(&self) -> Execution<'_> {
        Execution::new(self)
    }

    /// Evaluates the whole query over all items in scope.
    pub fn execute(&self, items: impl Iterator<Item = Value>) -> Result<Vec<Value>> {
        let mut execution = self.start();
        if !self.reads_items() {
            execution.push(&Value::Null)?;
            return execution.finish();
        }
        for item in items {
            if execution.push(&item)? == Flow::Enough {
                break;
            }
        }
        execution.finish()
    }

    /// The rows of one item of a streaming query, after WHERE and without regard to TOP and
    /// OFFSET LIMIT.
    pub fn project(&self, item: &Value) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        self.project_each(item, &mut |row| {
            found.push(row);
            Ok(Flow::More)
        })?;
        Ok(found)
    }

    /// Like [`Query::project`], row by row; the visitor may break off.
    pub fn project_each(
        &self,
        item: &Value,
        visit: &mut dyn FnMut(Value) -> Result<Flow>,
    ) -> Result<Flow> {
        if !self.is_streaming() {
            return Err(Error::internal(
                "the query's rows do not depend on one item alone",
            ));
        }
        project_stages(&self.stages, item, &Context::new(self.now_ms), visit)
    }

    /// Whether FROM and WHERE let at least one row of the item through.
    pub fn matches(&self, item: &Value) -> Result<bool> {
        let Some(first) = self.stages.first() else {
            return Ok(false);
        };
        let mut found = false;
        matching(
            first,
            &Scope::root(Some(item)),
            &Context::new(self.now_ms),
            &mut |_| {
                found = true;
                Ok(Flow::Enough)
            },
        )?;
        Ok(found)
    }
}

/// Whether `SELECT *` or `SELECT VALUE c` is all that is selected of the whole item.
pub(super) fn returns_items(query: &SelectQuery) -> bool {
    let single = query
        .from
        .as_ref()
        .is_some_and(|from| from.joins.is_empty());
    match (&query.selection, query.item_name()) {
        (Selection::Star(_), Some(_)) => single && query.group_by.is_empty(),
        (Selection::Value(Expr::Name(name, _)), Some(item)) => {
            single && name == item && query.group_by.is_empty()
        }
        _ => false,
    }
}

fn reads_items(query: &SelectQuery) -> bool {
    match query.from.as_ref().map(|from| &from.first.collection) {
        None | Some(Collection::Expr(_)) => false,
        Some(Collection::Path { .. }) => true,
        Some(Collection::Subquery(inner)) => reads_items(inner),
    }
}

fn project_stages(
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

/// The condition of a patch: all that follows `SELECT *`.
#[derive(Debug)]
pub struct Condition(Query);

impl Condition {
    /// Parses `from c where c.n = 5`.
    pub fn parse(text: &str) -> Result<Self> {
        let syntax = parser::parse_condition(text).map_err(|fault| fault.into_error(text))?;
        Query::new(syntax, text, &[], &ComputedProperties::default()).map(Self)
    }

    /// Sets the time of evaluation: milliseconds since 1970.
    #[must_use]
    pub fn at(mut self, now_ms: i64) -> Self {
        self.0.now_ms = now_ms;
        self
    }

    pub fn holds(&self, item: &Value) -> Result<bool> {
        self.0.matches(item)
    }
}
