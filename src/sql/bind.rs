//! Gives names their meaning: a syntax tree becomes a [`Program`].

use super::COUNT_MAX;
use super::ast::{self, Expr, SubqueryKind};
use super::compare::compare_defined;
use super::computed::ComputedProperties;
use super::error::{
    ARGUMENT_COUNT, BAD_ARGUMENT, Checked, Fault, MISPLACED_AGGREGATE, NOT_GROUPED,
    ORDER_BY_NEEDS_PATH, STAR_NEEDS_ONE_INPUT, STAR_WITH_GROUP_BY, Span, UNKNOWN_FUNCTION,
    UNKNOWN_PARAMETER, UNRESOLVED_NAME, UNSUPPORTED, shorten,
};
use super::functions::{self, Aggregate, vector};
use super::like::Pattern;
use super::number;
use super::program::{
    AggregateCall, Grouping, Input, LikePattern, Node, OrderKey, Program, Source, Step, Window,
};
use serde_json::Value;
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
            return Err(Fault::new(
                UNSUPPORTED,
                span,
                "ORDER BY RANK is not supported.",
            ));
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

    fn exprs(&mut self, exprs: &[Expr]) -> Checked<Vec<Node>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&mut self, expr: &Expr) -> Checked<Box<Node>> {
        self.expr(expr).map(Box::new)
    }

    fn three(&mut self, exprs: &[Expr; 3]) -> Checked<Box<[Node; 3]>> {
        let [a, b, c] = exprs;
        Ok(Box::new([self.expr(a)?, self.expr(b)?, self.expr(c)?]))
    }

    fn steps(&mut self, steps: &[ast::Step]) -> Checked<Vec<Step>> {
        let step = |step: &ast::Step| {
            Ok(match step {
                ast::Step::Property(name) => Step::Property(name.clone()),
                ast::Step::Index(index) => {
                    Step::Index(usize::try_from(*index).unwrap_or(usize::MAX))
                }
                ast::Step::Computed(expr) => match self.expr(expr)? {
                    Node::Constant(Value::String(name)) => Step::Property(name),
                    node => Step::Computed(node),
                },
            })
        };
        steps.iter().map(step).collect()
    }

    fn expr(&mut self, expr: &Expr) -> Checked<Node> {
        if let Some(node) = self.group_key(expr) {
            return Ok(node);
        }
        Ok(match expr {
            Expr::Undefined => Node::Undefined,
            Expr::Literal(value) => Node::Constant(value.clone()),
            Expr::Parameter(name, span) => Node::Constant(self.parameter(name, *span)?.clone()),
            Expr::Name(name, span) => match self.resolve(name, *span) {
                Ok(up) => Node::Path {
                    up,
                    steps: Vec::new(),
                },
                // JSON has no such numbers.
                Err(_) if matches!(name.as_str(), "NaN" | "Infinity") => Node::Undefined,
                Err(fault) => return Err(fault),
            },
            Expr::Member(base, steps) => {
                let steps = self.steps(steps)?;
                let computed = steps.iter().any(|step| matches!(step, Step::Computed(_)));
                match self.expr(base)? {
                    Node::Path { up, steps: none } if none.is_empty() => {
                        self.member_of_binding(up, steps, computed)
                    }
                    base => Node::Member(Box::new(base), steps),
                }
            }
            Expr::Unary(op, operand) => Node::Unary(*op, self.boxed(operand)?),
            Expr::Binary(op, left, right) => {
                Node::Binary(*op, self.boxed(left)?, self.boxed(right)?)
            }
            Expr::And(operands) => Node::And(self.exprs(operands)?),
            Expr::Or(operands) => Node::Or(self.exprs(operands)?),
            Expr::Conditional(parts) => Node::Conditional(self.three(parts)?),
            Expr::Between { not, operands } => Node::Between {
                not: *not,
                operands: self.three(operands)?,
            },
            Expr::In { not, needle, items } => {
                let needle = self.boxed(needle)?;
                in_list(*not, needle, self.exprs(items)?)
            }
            Expr::Like {
                not,
                value,
                pattern,
                escape,
            } => {
                let value = self.boxed(value)?;
                let pattern = match self.expr(pattern)? {
                    Node::Constant(Value::String(text)) => {
                        LikePattern::Constant(Pattern::new(&text, *escape))
                    }
                    pattern => LikePattern::Computed {
                        pattern,
                        escape: *escape,
                    },
                };
                Node::Like {
                    not: *not,
                    value,
                    pattern: Box::new(pattern),
                }
            }
            Expr::Array(items) => Node::Array(self.exprs(items)?),
            Expr::Object(properties) => {
                let bind = |(name, expr): &(String, Expr)| Ok((name.clone(), self.expr(expr)?));
                Node::Object(properties.iter().map(bind).collect::<Checked<_>>()?)
            }
            Expr::Call(call) => self.call(call)?,
            Expr::Subquery(kind, query) => self.subquery(*kind, query)?,
        })
    }

    /// Steps into a bound value, which may begin with a computed property of the item.
    fn member_of_binding(&self, up: usize, mut steps: Vec<Step>, has_computed_step: bool) -> Node {
        let slot = self.scopes.iter().rev().nth(up);
        if let (Some(Slot::Item(_)), Some(Step::Property(name))) = (slot, steps.first())
            && let Some(program) = self.computed.get(name)
        {
            let name = name.clone();
            steps.remove(0);
            return Node::Computed {
                up,
                name,
                program,
                steps,
            };
        }
        if has_computed_step {
            let base = Node::Path {
                up,
                steps: Vec::new(),
            };
            return Node::Member(Box::new(base), steps);
        }
        Node::Path { up, steps }
    }

    /// Inside the projection of a grouped query, an expression that is a group key.
    fn group_key(&self, expr: &Expr) -> Option<Node> {
        if matches!(expr, Expr::Literal(_) | Expr::Undefined) {
            return None;
        }
        let level = self.levels.last()?;
        let index = level.keys.iter().position(|key| key == expr)?;
        // While an argument of an aggregate is bound, the rows are in scope and not the group.
        matches!(self.scopes.get(level.at), Some(Slot::Group)).then(|| Node::OfGroup {
            up: self.scopes.len() - 1 - level.at,
            index,
        })
    }

    fn subquery(&mut self, kind: SubqueryKind, query: &ast::SelectQuery) -> Checked<Node> {
        let program = if kind == SubqueryKind::All {
            // No row for which the filter is false.
            let mut query = query.clone();
            let filter = query
                .filter
                .take()
                .unwrap_or(Expr::Literal(Value::Bool(true)));
            query.filter = Some(Expr::Unary(ast::UnaryOp::Not, Box::new(filter)));
            self.query(&query, FromRoot::Outer)?
        } else {
            self.query(query, FromRoot::Outer)?
        };
        Ok(Node::Subquery(kind, Box::new(program)))
    }

    fn call(&mut self, call: &ast::Call) -> Checked<Node> {
        if call.user_defined {
            let message = format!(
                "The user-defined function '{}' cannot run: user-defined functions are not supported.",
                shorten(&call.name)
            );
            return Err(Fault::new(UNSUPPORTED, call.span, message));
        }
        if let Some(aggregate) = Aggregate::from_name(&call.name) {
            return self.aggregate(aggregate, call);
        }
        let Some(function) = functions::find(&call.name) else {
            let message = format!(
                "'{}' is not a recognized built-in function name.",
                shorten(&call.name)
            );
            return Err(Fault::new(UNKNOWN_FUNCTION, call.span, message));
        };
        let count = call.arguments.len();
        if count < function.least || count > function.most {
            return Err(argument_count(call));
        }
        let arguments = self.exprs(&call.arguments)?;
        functions::prepare(function, arguments)
            .map_err(|message| Fault::new(BAD_ARGUMENT, call.span, message))
    }

    fn aggregate(&mut self, aggregate: Aggregate, call: &ast::Call) -> Checked<Node> {
        if !self.in_grouped {
            let message = format!(
                "The aggregate function '{}' cannot be used here: it must stand in the select list, outside of other aggregates.",
                call.name
            );
            return Err(Fault::new(MISPLACED_AGGREGATE, call.span, message));
        }
        let [argument] = call.arguments.as_slice() else {
            return Err(argument_count(call));
        };
        // The argument is evaluated on rows: put them back in scope for it.
        let Some(mut level) = self.levels.pop() else {
            return Err(Fault::new(
                MISPLACED_AGGREGATE,
                call.span,
                "an aggregate without a query",
            ));
        };
        let outer = self.scopes.split_off(level.at);
        self.scopes.append(&mut level.rows.clone());
        self.in_grouped = false;
        let bound = self.expr(argument);
        self.in_grouped = true;
        self.scopes.truncate(level.at);
        self.scopes.extend(outer);
        let index = level.keys.len() + level.aggregates.len();
        let up = self.scopes.len() - 1 - level.at;
        level.aggregates.push(AggregateCall {
            aggregate,
            argument: bound?,
        });
        self.levels.push(level);
        Ok(Node::OfGroup { up, index })
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

fn argument_count(call: &ast::Call) -> Fault {
    let message = format!(
        "The {} function does not take {} arguments.",
        call.name,
        call.arguments.len()
    );
    Fault::new(ARGUMENT_COUNT, call.span, message)
}

fn in_list(not: bool, needle: Box<Node>, items: Vec<Node>) -> Node {
    if !items.iter().all(|item| matches!(item, Node::Constant(_))) {
        return Node::In { not, needle, items };
    }
    let constant = |node| match node {
        Node::Constant(value) => Some(value),
        _ => None,
    };
    let mut sorted: Vec<Value> = items.into_iter().filter_map(constant).collect();
    sorted.sort_by(compare_defined);
    Node::InConstants {
        not,
        needle,
        sorted,
    }
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

/// The names of a select list: the alias, the last property of a path, or `$1`, `$2`, ….
pub fn column_names(items: &[ast::SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    let mut name = |item: &ast::SelectItem| {
        if let Some(alias) = &item.alias {
            return alias.clone();
        }
        let last = match &item.expr {
            Expr::Name(name, _) => Some(name),
            Expr::Member(_, steps) => match steps.last() {
                Some(ast::Step::Property(name)) => Some(name),
                _ => None,
            },
            _ => None,
        };
        last.cloned().unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        })
    };
    items.iter().map(&mut name).collect()
}

fn is_order_key(expr: &Expr) -> bool {
    is_vector_distance(expr) || expr.as_path().is_some_and(|(_, steps)| !steps.is_empty())
}

pub fn is_vector_distance(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if call.name.eq_ignore_ascii_case("VectorDistance"))
}

/// The direction of an order: the nearest vectors come first unless the query says otherwise.
pub fn is_descending(item: &ast::OrderItem) -> bool {
    if item.explicit {
        return item.descending;
    }
    match &item.expr {
        Expr::Call(call) if is_vector_distance(&item.expr) => {
            vector::nearest_is_greatest(call.arguments.get(3))
        }
        _ => false,
    }
}

/// Whether a selection has an aggregate of its own (not one of a subquery).
pub fn selection_aggregates(selection: &ast::Selection) -> bool {
    match selection {
        ast::Selection::Star(_) => false,
        ast::Selection::Value(expr) => aggregates(expr),
        ast::Selection::List(items) => items.iter().any(|item| aggregates(&item.expr)),
    }
}

/// Whether an expression has an aggregate of its own (not one of a subquery).
pub fn aggregates(expr: &Expr) -> bool {
    match expr {
        Expr::Undefined
        | Expr::Literal(_)
        | Expr::Parameter(..)
        | Expr::Name(..)
        | Expr::Subquery(..) => false,
        Expr::Member(base, steps) => {
            aggregates(base)
                || steps
                    .iter()
                    .any(|s| matches!(s, ast::Step::Computed(e) if aggregates(e)))
        }
        Expr::Unary(_, operand) => aggregates(operand),
        Expr::Binary(_, left, right) => aggregates(left) || aggregates(right),
        Expr::And(list) | Expr::Or(list) | Expr::Array(list) => list.iter().any(aggregates),
        Expr::Conditional(parts) => parts.iter().any(aggregates),
        Expr::Between { operands, .. } => operands.iter().any(aggregates),
        Expr::In { needle, items, .. } => aggregates(needle) || items.iter().any(aggregates),
        Expr::Like { value, pattern, .. } => aggregates(value) || aggregates(pattern),
        Expr::Object(properties) => properties.iter().any(|(_, value)| aggregates(value)),
        Expr::Call(call) => {
            (!call.user_defined && Aggregate::from_name(&call.name).is_some())
                || call.arguments.iter().any(aggregates)
        }
    }
}
