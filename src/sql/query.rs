//! The doors of the room.

use super::STEPS_PER_CONSTANT_MAX;
use super::ast::{Collection, Expr, SelectQuery, Selection};
use super::bind::bind;
use super::computed::ComputedProperties;
use super::eval::{Context, Flow, Guard, Scope, eval};
use super::execute::{Execution, matching, project_stages};
use super::functions::Aggregate;
use super::parsed;
use super::parser;
use super::partition::{PartitionKeys, constant, partition_keys};
use super::program::Program;
pub use super::program::Window as OffsetLimit;
use super::wanted::Wanted;
use crate::model::error::{Error, Result};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

/// A query, parsed and bound to its parameters.
#[derive(Debug)]
pub struct Query {
    syntax: Arc<SelectQuery>,
    stages: Arc<Vec<Program>>,
    parameters: Vec<(String, Value)>,
    wanted: Wanted,
    /// Names and queries.
    computed: Vec<(String, String)>,
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
        // A text that carries its values in itself seldom comes again.
        let parsed = match parameters {
            [] => parser::parse(text).map(Arc::new),
            _ => parsed::recall_or_parse(text),
        };
        let syntax = parsed.map_err(|fault| fault.into_error(text))?;
        Self::new(syntax, text, parameters, computed)
    }

    fn new(
        syntax: Arc<SelectQuery>,
        text: &str,
        parameters: &[(String, Value)],
        computed: &ComputedProperties,
    ) -> Result<Self> {
        let stages = bind(&syntax, parameters, computed).map_err(|fault| fault.into_error(text))?;
        let wanted = Wanted::of(&syntax, computed);
        Ok(Self {
            syntax,
            stages: Arc::new(stages),
            parameters: parameters.to_vec(),
            wanted,
            computed: computed.definitions().collect(),
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

    pub(super) fn stages(&self) -> &Arc<Vec<Program>> {
        &self.stages
    }

    /// The syntax tree, for those who look for an index.
    pub fn syntax(&self) -> &SelectQuery {
        &self.syntax
    }

    pub fn parameters(&self) -> &[(String, Value)] {
        &self.parameters
    }

    /// The value of an expression of the syntax tree that is the same for every item: written, given, or worked out from such.
    pub fn constant<'q>(&'q self, expr: &'q Expr) -> Option<Cow<'q, Value>> {
        if let Some(value) = constant(expr, &self.parameters) {
            return Some(Cow::Borrowed(value));
        }
        if !is_constant(expr) {
            return None;
        }
        let syntax = Arc::new(SelectQuery::of_value(expr.clone()));
        let alone = Self::new(syntax, "", &self.parameters, &ComputedProperties::default()).ok()?;
        // Nobody watches here: what takes more is left to the evaluation of the items.
        let mut execution = alone.at(self.now_ms).start();
        execution.set_steps_max(STEPS_PER_CONSTANT_MAX);
        execution.push(&Value::Null).ok()?;
        execution.finish().ok()?.pop().map(Cow::Owned)
    }

    /// The query of the property of this name, if the container computes it.
    pub fn computed(&self, name: &str) -> Option<&str> {
        let found = self.computed.iter().find(|(known, _)| known == name);
        found.map(|(_, query)| query.as_str())
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

    /// How the rows come about.
    pub fn shape(&self) -> Shape {
        let Some((last, before)) = self.stages.split_last() else {
            return Shape::Whole;
        };
        if !self.reads_items() || !before.iter().all(Program::is_item_wise) {
            Shape::Whole
        } else if last.is_streaming() {
            Shape::Streaming
        } else if last.grouping.is_none() && !last.distinct {
            Shape::Ordered
        } else {
            Shape::Whole
        }
    }

    /// For each column of ORDER BY whether it is descending.
    pub fn descending(&self) -> Vec<bool> {
        let last = self.stages.last();
        last.map_or_else(Vec::new, |last| {
            last.order_by.iter().map(|key| key.descending).collect()
        })
    }

    /// Whether there is a condition that an item may fail.
    pub fn filters(&self) -> bool {
        self.syntax.filter.is_some()
    }

    pub fn top(&self) -> Option<u64> {
        self.stages.last()?.top
    }

    pub fn offset_limit(&self) -> Option<OffsetLimit> {
        self.stages.last()?.window
    }

    /// Begins an evaluation over items.
    pub fn start(&self) -> Execution {
        Execution::new(self, true)
    }

    /// Begins an evaluation whose rows are not cut by TOP and OFFSET LIMIT at the end.
    pub fn start_uncut(&self) -> Execution {
        Execution::new(self, false)
    }

    /// Evaluates items one by one.
    pub fn item_rows(&self) -> ItemRows<'_> {
        ItemRows {
            query: self,
            context: Context::new(self.now_ms),
        }
    }

    /// Evaluates the whole query over all items in scope.
    pub fn execute(&self, items: impl Iterator<Item = Value>) -> Result<Vec<Value>> {
        self.execute_in(self.start(), items)
    }

    /// As [`execute`](Self::execute), watched.
    pub fn execute_guarded(
        &self,
        items: impl Iterator<Item = Value>,
        guard: Arc<dyn Guard>,
    ) -> Result<Vec<Value>> {
        self.execute_in(self.start().guarded(guard), items)
    }

    fn execute_in(
        &self,
        mut execution: Execution,
        items: impl Iterator<Item = Value>,
    ) -> Result<Vec<Value>> {
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
        self.project_in(&self.item_rows(), item)
    }

    /// As [`project`](Self::project), watched.
    pub fn project_guarded(&self, item: &Value, guard: Arc<dyn Guard>) -> Result<Vec<Value>> {
        self.project_in(&self.item_rows().guarded(guard), item)
    }

    fn project_in(&self, rows: &ItemRows<'_>, item: &Value) -> Result<Vec<Value>> {
        if !self.is_streaming() {
            return Err(Error::internal(
                "the query's rows do not depend on one item alone",
            ));
        }
        let mut found = Vec::new();
        rows.each(item, &mut |row| {
            found.extend(row.value()?);
            Ok(Flow::More)
        })?;
        Ok(found)
    }

    /// Whether FROM and WHERE let at least one row of the item through.
    pub fn matches(&self, item: &Value) -> Result<bool> {
        self.item_rows().matches(item)
    }
}

/// How the rows of a query come about, and so how it can be run page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The rows of each item as they are, in any order of the items.
    Streaming,
    /// The rows of each item, in the order of their keys.
    Ordered,
    /// All items must be seen before the first row is known, or none is looked at.
    Whole,
}

/// Evaluates the rows of single items, without regard to TOP and OFFSET LIMIT; for queries that are
/// [streaming](Shape::Streaming) or [ordered](Shape::Ordered).
pub struct ItemRows<'q> {
    query: &'q Query,
    context: Context,
}

impl ItemRows<'_> {
    /// Has the evaluation watched.
    #[must_use]
    pub fn guarded(mut self, guard: Arc<dyn Guard>) -> Self {
        self.context.set_guard(guard);
        self
    }

    /// Visits the rows that FROM and WHERE make of an item; the visitor may break off.
    pub fn each(
        &self,
        item: &Value,
        visit: &mut dyn FnMut(&Row<'_>) -> Result<Flow>,
    ) -> Result<Flow> {
        self.context.renew();
        let context = &self.context;
        let Some((last, before)) = self.query.stages.split_last() else {
            return Ok(Flow::More);
        };
        let mut rows = |item: &Value| {
            matching(last, &Scope::root(Some(item)), context, &mut |scope| {
                visit(&Row {
                    program: last,
                    scope,
                    context,
                })
            })
        };
        if before.is_empty() {
            return rows(item);
        }
        project_stages(before, item, context, &mut |value| rows(&value))
    }

    /// Whether FROM and WHERE let at least one row of the item through.
    pub fn matches(&self, item: &Value) -> Result<bool> {
        let Some(first) = self.query.stages.first() else {
            return Ok(false);
        };
        self.context.renew();
        let mut found = false;
        matching(first, &Scope::root(Some(item)), &self.context, &mut |_| {
            found = true;
            Ok(Flow::Enough)
        })?;
        Ok(found)
    }
}

/// A row that the conditions let through, not yet worked out.
pub struct Row<'r> {
    program: &'r Program,
    scope: &'r Scope<'r>,
    context: &'r Context,
}

impl Row<'_> {
    /// The values of the ORDER BY columns; `None` is undefined, and arrays and objects are empty: what they hold has no order.
    pub fn keys(&self) -> Result<Vec<Option<Value>>> {
        let keys = self.program.order_by.iter();
        keys.map(|key| {
            let key = eval(&key.node, self.scope, self.context)?;
            key.map(|key| self.context.order_key(key)).transpose()
        })
        .collect()
    }

    /// What is selected; a row that is undefined is none.
    pub fn value(&self) -> Result<Option<Value>> {
        eval(&self.program.projection, self.scope, self.context)?
            .map(|value| self.context.own(value))
            .transpose()
    }
}

/// Whether an expression looks at nothing that differs from item to item. As deep as expressions nest.
fn is_constant(expr: &Expr) -> bool {
    let alike = match expr {
        Expr::Name(..) | Expr::Subquery(..) => false,
        Expr::Call(call) => {
            !call.user_defined
                && !call.name.eq_ignore_ascii_case("RAND")
                && Aggregate::from_name(&call.name).is_none()
        }
        _ => true,
    };
    alike && expr.parts().into_iter().all(is_constant)
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

/// The condition of a patch: all that follows `SELECT *`.
#[derive(Debug)]
pub struct Condition(Query);

impl Condition {
    /// Parses `from c where c.n = 5`.
    pub fn parse(text: &str) -> Result<Self> {
        let syntax = parser::parse_condition(text).map_err(|fault| fault.into_error(text))?;
        Query::new(Arc::new(syntax), text, &[], &ComputedProperties::default()).map(Self)
    }

    /// Evaluates the condition for an item with a budget of steps. `now_ms` is the time of evaluation: milliseconds since 1970.
    pub fn evaluate(&self, item: &Value, now_ms: i64, steps_max: u64) -> Result<ConditionOutcome> {
        let rows = ItemRows {
            query: &self.0,
            context: Context::with_steps(now_ms, steps_max),
        };
        match rows.matches(item) {
            Ok(holds) => Ok(ConditionOutcome::Done {
                holds,
                steps: steps_max - rows.context.steps_left(),
            }),
            Err(_) if rows.context.is_overdrawn() => Ok(ConditionOutcome::OutOfSteps),
            Err(error) => Err(error),
        }
    }
}

/// How the evaluation of a condition ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    Done {
        holds: bool,
        steps: u64,
    },
    /// It needs more steps than it was given.
    OutOfSteps,
}
