//! Expressions: paths, operators, calls and aggregates.

use super::{Binder, FromRoot, Slot};
use crate::sql::ast::{self, Expr, SubqueryKind};
use crate::sql::error::{
    ARGUMENT_COUNT, BAD_ARGUMENT, Checked, Fault, MISPLACED_AGGREGATE, UNKNOWN_FUNCTION,
    UNSUPPORTED, shorten,
};
use crate::sql::functions::{self, Aggregate};
use crate::sql::like::Pattern;
use crate::sql::program::{AggregateCall, LikePattern, Node, Step};
use serde_json::Value;

impl Binder<'_> {
    pub(super) fn exprs(&mut self, exprs: &[Expr]) -> Checked<Vec<Node>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&mut self, expr: &Expr) -> Checked<Box<Node>> {
        self.expr(expr).map(Box::new)
    }

    fn three(&mut self, exprs: &[Expr; 3]) -> Checked<Box<[Node; 3]>> {
        let [a, b, c] = exprs;
        Ok(Box::new([self.expr(a)?, self.expr(b)?, self.expr(c)?]))
    }

    pub(super) fn steps(&mut self, steps: &[ast::Step]) -> Checked<Vec<Step>> {
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

    pub(super) fn expr(&mut self, expr: &Expr) -> Checked<Node> {
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
    pub(super) fn member_of_binding(
        &self,
        up: usize,
        mut steps: Vec<Step>,
        has_computed_step: bool,
    ) -> Node {
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
        // While an argument of an aggregate is bound, the rows are in scope and not the group.
        if !matches!(self.scopes.get(level.at), Some(Slot::Group)) {
            return None;
        }
        let up = self.scopes.len() - 1 - level.at;
        if let Some(index) = level.keys.iter().position(|key| key == expr) {
            return Some(Node::OfGroup { up, index });
        }
        // A property of a key: `c.a.b` where the key is `c.a`.
        let Expr::Member(base, steps) = expr else {
            return None;
        };
        level
            .keys
            .iter()
            .enumerate()
            .find_map(|(index, key)| match key {
                Expr::Member(key_base, key_steps) if key_base == base => {
                    let rest = steps.strip_prefix(key_steps.as_slice())?;
                    let rest = rest.iter().map(constant_step).collect::<Option<_>>()?;
                    Some(Node::Member(Box::new(Node::OfGroup { up, index }), rest))
                }
                _ => None,
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

fn argument_count(call: &ast::Call) -> Fault {
    let message = format!(
        "The {} function does not take {} arguments.",
        call.name,
        call.arguments.len()
    );
    Fault::new(ARGUMENT_COUNT, call.span, message)
}

/// A step that needs no evaluation.
fn constant_step(step: &ast::Step) -> Option<Step> {
    match step {
        ast::Step::Property(name) => Some(Step::Property(name.clone())),
        ast::Step::Index(index) => usize::try_from(*index).ok().map(Step::Index),
        ast::Step::Computed(_) => None,
    }
}

fn in_list(not: bool, needle: Box<Node>, items: Vec<Node>) -> Node {
    if !items.iter().all(|item| matches!(item, Node::Constant(_))) {
        return Node::In { not, needle, items };
    }
    let constant = |node| match node {
        Node::Constant(value) => Some(value),
        _ => None,
    };
    let sorted = functions::sorted(items.into_iter().filter_map(constant).collect());
    Node::InConstants {
        not,
        needle,
        sorted,
    }
}
