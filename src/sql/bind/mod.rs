//! Gives names their meaning: a syntax tree becomes a [`Program`].

mod expression;
mod shape;

pub use shape::{
    aggregates, column_names, is_descending, is_vector_distance, selection_aggregates,
};

use crate::sql::COUNT_MAX;
use crate::sql::ast::{self, Expr};
use crate::sql::computed::ComputedProperties;
use crate::sql::error::{
    BAD_ARGUMENT, Checked, Fault, NOT_GROUPED, ORDER_BY_NEEDS_PATH, STAR_NEEDS_ONE_INPUT,
    STAR_WITH_GROUP_BY, Span, UNKNOWN_PARAMETER, UNRESOLVED_NAME, UNSUPPORTED, shorten,
};
use crate::sql::number;
use crate::sql::program::{
    AggregateCall, Grouping, Input, Node, OrderKey, Program, Source, Window,
};
use serde_json::Value;
use shape::is_order_key;
use std::collections::HashMap;

/// The stages of a query: the first is fed with items, each other one with the rows before it.
pub fn bind(
    query: &ast::SelectQuery,
    parameters: &[(String, Value)],
    computed: &ComputedProperties,
) -> Checked<Vec<Program>> {
    let mut binder = Binder::new(parameters, computed);
    // The outermost scope is the item itself, which the first FROM names.
    binder.scopes.push(Slot::Unnamed);
    let mut stages = Vec::new();
    binder.stages(query, &mut stages)?;
    Ok(stages)
}

/// What a scope at run time holds.
#[derive(Clone, Debug)]
enum Slot {
    Unnamed,
    Named(String),
    /// The whole item, under this name: it has the computed properties.
    Item(String),
    Group,
}

/// A query whose projection sees groups instead of rows.
struct Level {
    /// Where its group stands among the scopes.
    at: usize,
    keys: Vec<Expr>,
    rows: Vec<Slot>,
    aggregates: Vec<AggregateCall>,
}

struct Binder<'p> {
    parameters: HashMap<&'p str, &'p Value>,
    computed: &'p ComputedProperties,
    scopes: Vec<Slot>,
    levels: Vec<Level>,
    /// Whether an aggregate may stand here: in the projection of a grouped query.
    in_grouped: bool,
}

impl<'p> Binder<'p> {
    fn new(parameters: &'p [(String, Value)], computed: &'p ComputedProperties) -> Self {
        let parameters = parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        Self {
            parameters,
            computed,
            scopes: Vec::new(),
            levels: Vec::new(),
            in_grouped: false,
        }
    }

    /// A query over the items of the container. A subquery at its head that looks at all items
    /// (DISTINCT, aggregates, order, windows) becomes a stage of its own.
    fn stages(&mut self, query: &ast::SelectQuery, stages: &mut Vec<Program>) -> Checked<()> {
        let head = query.from.as_ref().map(|from| &from.first);
        let Some(ast::Source {
            collection: ast::Collection::Subquery(inner),
            ..
        }) = head
        else {
            stages.push(self.query(query, FromRoot::Item)?);
            return Ok(());
        };
        self.stages(inner, stages)?;
        stages.push(self.query(query, FromRoot::Rows)?);
        Ok(())
    }

    fn query(&mut self, query: &ast::SelectQuery, root: FromRoot) -> Checked<Program> {
        let base = self.scopes.len();
        let was_in_grouped = std::mem::replace(&mut self.in_grouped, false);
        let program = self.query_here(query, root, base);
        self.scopes.truncate(base);
        self.in_grouped = was_in_grouped;
        program
    }

    fn query_here(
        &mut self,
        query: &ast::SelectQuery,
        root: FromRoot,
        base: usize,
    ) -> Checked<Program> {
        let sources = self.sources(query.from.as_ref(), root)?;
        let filter = query
            .filter
            .as_ref()
            .map(|filter| self.expr(filter))
            .transpose()?;
        let grouped = !query.group_by.is_empty() || selection_aggregates(&query.selection);
        let (projection, order_by, grouping) = if grouped {
            let keys = self.exprs(&query.group_by)?;
            self.levels.push(Level {
                at: base,
                keys: query.group_by.clone(),
                rows: self.scopes.split_off(base),
                aggregates: Vec::new(),
            });
            self.scopes.push(Slot::Group);
            self.in_grouped = true;
            let bound = self
                .projection(query)
                .and_then(|p| Ok((p, self.order_by(query, true)?)));
            let aggregates = self
                .levels
                .pop()
                .map(|level| level.aggregates)
                .unwrap_or_default();
            let (projection, order_by) = bound?;
            (projection, order_by, Some(Grouping { keys, aggregates }))
        } else {
            (self.projection(query)?, self.order_by(query, false)?, None)
        };
        Ok(Program {
            sources,
            filter,
            grouping,
            order_by,
            projection,
            distinct: query.distinct,
            top: query.top.as_ref().map(|top| self.count(top)).transpose()?,
            window: match &query.window {
                Some(window) => Some(Window {
                    offset: self.count(&window.offset)?,
                    limit: self.count(&window.limit)?,
                }),
                None => None,
            },
        })
    }

    fn sources(&mut self, from: Option<&ast::From>, root: FromRoot) -> Checked<Vec<Source>> {
        let Some(from) = from else {
            return Ok(Vec::new());
        };
        let mut sources = Vec::with_capacity(from.joins.len() + 1);
        let mut root = root;
        for source in std::iter::once(&from.first).chain(&from.joins) {
            let input = self.input(&source.collection, root)?;
            let slot = match source_name(source) {
                Some(name) if self.is_item(source, root) => Slot::Item(name),
                Some(name) => Slot::Named(name),
                None => Slot::Unnamed,
            };
            root = FromRoot::Outer;
            sources.push(Source {
                input,
                iterate: source.iterate,
            });
            self.scopes.push(slot);
        }
        Ok(sources)
    }

    /// Whether a source is the whole item.
    fn is_item(&self, source: &ast::Source, root: FromRoot) -> bool {
        match &source.collection {
            ast::Collection::Path {
                root: name, steps, ..
            } if steps.is_empty() => {
                let item = |slot: &Slot| matches!(slot, Slot::Item(bound) if bound == name);
                !source.iterate && (root == FromRoot::Item || self.scopes.iter().any(item))
            }
            _ => false,
        }
    }

    fn input(&mut self, collection: &ast::Collection, root: FromRoot) -> Checked<Input> {
        match (collection, root) {
            (ast::Collection::Path { steps, .. }, FromRoot::Item) => Ok(Input::Value(Node::Path {
                up: 0,
                steps: self.steps(steps)?,
            })),
            (ast::Collection::Path { root, span, steps }, _) => {
                let up = self.resolve(root, *span)?;
                let steps = self.steps(steps)?;
                Ok(Input::Value(self.member_of_binding(up, steps, false)))
            }
            // The rows of the stage before take the place of the items.
            (ast::Collection::Subquery(_), FromRoot::Rows) => Ok(Input::Value(Node::Path {
                up: 0,
                steps: Vec::new(),
            })),
            (ast::Collection::Expr(expr), _) => Ok(Input::Value(self.expr(expr)?)),
            (ast::Collection::Subquery(query), _) => {
                Ok(Input::Rows(Box::new(self.query(query, FromRoot::Outer)?)))
            }
        }
    }

    /// How many scopes outward a name is bound.
    fn resolve(&self, name: &str, span: Span) -> Checked<usize> {
        let named =
            |slot: &Slot| matches!(slot, Slot::Named(bound) | Slot::Item(bound) if bound == name);
        if let Some(up) = self.scopes.iter().rev().position(named) {
            return Ok(up);
        }
        if self.levels.iter().any(|level| level.rows.iter().any(named)) {
            let message = format!(
                "Property reference '{}' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.",
                shorten(name)
            );
            return Err(Fault::new(NOT_GROUPED, span, message));
        }
        let message = format!("Identifier '{}' could not be resolved.", shorten(name));
        Err(Fault::new(UNRESOLVED_NAME, span, message))
    }

    fn projection(&mut self, query: &ast::SelectQuery) -> Checked<Node> {
        match &query.selection {
            ast::Selection::Star(span) => {
                if !query.group_by.is_empty() {
                    let message = "'SELECT *' is not allowed with a GROUP BY clause.";
                    return Err(Fault::new(STAR_WITH_GROUP_BY, *span, message));
                }
                if query
                    .from
                    .as_ref()
                    .is_none_or(|from| !from.joins.is_empty())
                {
                    let message = "'SELECT *' is only valid with a single input set.";
                    return Err(Fault::new(STAR_NEEDS_ONE_INPUT, *span, message));
                }
                Ok(Node::Path {
                    up: 0,
                    steps: Vec::new(),
                })
            }
            ast::Selection::Value(expr) => self.expr(expr),
            ast::Selection::List(items) => {
                let names = column_names(items);
                let nodes = items.iter().map(|item| self.expr(&item.expr));
                let columns = names.into_iter().zip(nodes);
                Ok(Node::Object(
                    columns
                        .map(|(name, node)| Ok((name, node?)))
                        .collect::<Checked<_>>()?,
                ))
            }
        }
    }

    fn order_by(&mut self, query: &ast::SelectQuery, grouped: bool) -> Checked<Vec<OrderKey>> {
        if query.order_by_rank {
            let span = query
                .order_by
                .first()
                .map(|item| item.span)
                .unwrap_or_default();
            let message = if query.order_by.iter().any(|item| item.explicit) {
                "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed."
            } else {
                "ORDER BY RANK is not supported."
            };
            return Err(Fault::new(UNSUPPORTED, span, message));
        }
        if grouped && query.group_by.is_empty() {
            // One row has one order.
            return Ok(Vec::new());
        }
        let mut keys = Vec::with_capacity(query.order_by.len());
        for item in &query.order_by {
            if !grouped && !is_order_key(&item.expr) {
                let message = "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.";
                return Err(Fault::new(ORDER_BY_NEEDS_PATH, item.span, message));
            }
            keys.push(OrderKey {
                node: self.expr(&item.expr)?,
                descending: is_descending(item),
            });
        }
        Ok(keys)
    }

    fn count(&self, count: &ast::Count) -> Checked<u64> {
        match count {
            ast::Count::Literal(count) => Ok(*count),
            ast::Count::Parameter(name, span) => {
                let value = self.parameter(name, *span)?;
                number::to_index(value).and_then(|count| u64::try_from(count).ok())
.filter(|count| *count <= COUNT_MAX).ok_or_else(
                    || {
                        let shown = shorten(&value.to_string());
                        let message = format!(
                            "The parameter '{name}' must be a whole number that is not negative: {shown}"
                        );
                        Fault::new(BAD_ARGUMENT, *span, message)
                    },
                )
            }
        }
    }

    fn parameter(&self, name: &str, span: Span) -> Checked<&'p Value> {
        self.parameters.get(name).copied().ok_or_else(|| {
            let message = format!("The parameter '{}' has no value.", shorten(name));
            Fault::new(UNKNOWN_PARAMETER, span, message)
        })
    }
}

/// Where the head of a FROM clause leads.
#[derive(Clone, Copy, PartialEq)]
enum FromRoot {
    /// To the item, whatever it is called.
    Item,
    /// To the rows of the stage before.
    Rows,
    /// To a name of an outer query.
    Outer,
}

fn source_name(source: &ast::Source) -> Option<String> {
    if source.alias.is_some() {
        return source.alias.clone();
    }
    match &source.collection {
        ast::Collection::Path { root, steps, .. } => match steps.last() {
            None => Some(root.clone()),
            Some(ast::Step::Property(name)) => Some(name.clone()),
            Some(_) => None,
        },
        ast::Collection::Subquery(_) | ast::Collection::Expr(_) => None,
    }
}
