//! Expressions, by operator binding. The height of what is built is counted, so that a long chain
//! of operators is refused before it becomes a tree too deep to walk.

use super::{Parser, is_reserved};
use crate::sql::ast::{BinaryOp, Call, Expr, Step, SubqueryKind, UnaryOp, binding};
use crate::sql::error::{Checked, Fault, LIMIT};
use crate::sql::lexer::Kind;
use crate::sql::{IN_LIST_ITEMS_MAX, number};
use serde_json::Value;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Checked<Expr> {
        self.binds(0)
    }

    /// One or more expressions with commas between.
    pub(super) fn expressions(&mut self) -> Checked<Vec<Expr>> {
        let mut list = vec![self.expression()?];
        while self.take_symbol(",") {
            list.push(self.expression()?);
        }
        Ok(list)
    }

    /// An expression of operators that bind at least as tightly as `least`.
    fn binds(&mut self, least: u8) -> Checked<Expr> {
        self.nested(|parser| parser.binds_here(least))
    }

    fn binds_here(&mut self, least: u8) -> Checked<Expr> {
        let mut left = self.prefix()?;
        loop {
            let before = self.at;
            left = self.infix(left, least)?;
            if self.at == before {
                return Ok(left);
            }
            self.grow()?;
        }
    }

    /// Applies the operator at the cursor to `left`, if it binds tightly enough.
    fn infix(&mut self, left: Expr, least: u8) -> Checked<Expr> {
        match self.peek().kind {
            Kind::Symbol("?") if least <= binding::CONDITIONAL => {
                self.advance();
                let then = self.binds(0)?;
                self.symbol(":")?;
                let otherwise = self.binds(binding::CONDITIONAL)?;
                Ok(Expr::Conditional(Box::new([left, then, otherwise])))
            }
            Kind::Symbol(symbol) => match BinaryOp::from_symbol(symbol) {
                Some(op) if least <= op.binding() => {
                    self.advance();
                    let right = self.binds(op.binding() + 1)?;
                    Ok(Expr::Binary(op, Box::new(left), Box::new(right)))
                }
                _ => Ok(left),
            },
            Kind::Word(_) if self.at_word("AND") && least <= binding::AND => {
                self.chain(left, "AND", binding::AND).map(Expr::And)
            }
            Kind::Word(_) if self.at_word("OR") && least <= binding::OR => {
                self.chain(left, "OR", binding::OR).map(Expr::Or)
            }
            Kind::Word(_) if least <= binding::EQUALITY => self.predicate(left),
            _ => Ok(left),
        }
    }

    /// A whole chain of one logical operator, kept flat however long it is.
    fn chain(&mut self, first: Expr, word: &str, binding: u8) -> Checked<Vec<Expr>> {
        let mut operands = vec![first];
        while self.take_word(word) {
            operands.push(self.binds(binding + 1)?);
        }
        Ok(operands)
    }

    /// IN, BETWEEN and LIKE, each perhaps after NOT.
    fn predicate(&mut self, left: Expr) -> Checked<Expr> {
        let before = self.at;
        let not = self.take_word("NOT");
        if self.take_word("IN") {
            return self.in_list(left, not);
        }
        if self.take_word("BETWEEN") {
            let low = self.binds(binding::CONCAT)?;
            self.word("AND")?;
            let high = self.binds(binding::CONCAT)?;
            return Ok(Expr::Between {
                not,
                operands: Box::new([left, low, high]),
            });
        }
        if self.take_word("LIKE") {
            let pattern = Box::new(self.binds(binding::CONCAT)?);
            let escape = if self.take_word("ESCAPE") {
                Some(self.escape()?)
            } else {
                None
            };
            return Ok(Expr::Like {
                not,
                value: Box::new(left),
                pattern,
                escape,
            });
        }
        if not {
            return Err(self.expected("IN, BETWEEN or LIKE"));
        }
        self.at = before;
        Ok(left)
    }

    fn in_list(&mut self, needle: Expr, not: bool) -> Checked<Expr> {
        self.symbol("(")?;
        let mut items = vec![self.expression()?];
        while self.take_symbol(",") {
            if items.len() == IN_LIST_ITEMS_MAX {
                let message = format!("The IN list has more than {IN_LIST_ITEMS_MAX} items");
                return Err(Fault::new(LIMIT, self.span(), message));
            }
            items.push(self.expression()?);
        }
        self.symbol(")")?;
        Ok(Expr::In {
            not,
            needle: Box::new(needle),
            items,
        })
    }

    fn escape(&mut self) -> Checked<char> {
        let escape = match &self.peek().kind {
            Kind::Text(text) => {
                let mut characters = text.chars();
                characters.next().filter(|_| characters.next().is_none())
            }
            _ => None,
        };
        let escape = escape.ok_or_else(|| self.expected("one character in quotes"))?;
        self.advance();
        Ok(escape)
    }

    fn prefix(&mut self) -> Checked<Expr> {
        let (op, least) = match self.peek().kind {
            Kind::Symbol("-") => (UnaryOp::Minus, binding::UNARY),
            Kind::Symbol("+") => (UnaryOp::Plus, binding::UNARY),
            Kind::Symbol("~") => (UnaryOp::BitNot, binding::UNARY),
            Kind::Symbol("!") => (UnaryOp::Not, binding::UNARY),
            Kind::Word(_) if self.at_word("NOT") => (UnaryOp::Not, binding::NOT),
            _ => return self.operand(),
        };
        self.advance();
        let operand = self.binds(least)?;
        if let (UnaryOp::Minus, Expr::Literal(Value::Number(number))) = (op, &operand) {
            // `-9223372036854775808` has no positive twin in 64 bits.
            if let Some(negative) = number::parse(&format!("-{number}")) {
                return Ok(Expr::Literal(Value::Number(negative)));
            }
        }
        Ok(Expr::Unary(op, Box::new(operand)))
    }

    /// A primary expression with its steps.
    pub(super) fn operand(&mut self) -> Checked<Expr> {
        let primary = self.primary()?;
        self.members(primary)
    }

    /// The steps into a value: `.name`, `["name"]`, `[0]`, `[expression]`.
    fn members(&mut self, base: Expr) -> Checked<Expr> {
        // `(c.a).b` is the path `c.a.b`.
        let (base, mut steps) = match base {
            Expr::Member(base, steps) => (*base, steps),
            base => (base, Vec::new()),
        };
        loop {
            if self.take_symbol(".") {
                steps.push(Step::Property(self.any_name()?));
            } else if self.take_symbol("[") {
                let step = self.expression()?;
                self.symbol("]")?;
                steps.push(match step {
                    Expr::Literal(Value::String(name)) => Step::Property(name),
                    Expr::Literal(Value::Number(ref index)) => match index.as_u64() {
                        Some(index) => Step::Index(index),
                        None => Step::Computed(step),
                    },
                    other => Step::Computed(other),
                });
            } else if steps.is_empty() {
                return Ok(base);
            } else {
                return Ok(Expr::Member(Box::new(base), steps));
            }
        }
    }

    fn primary(&mut self) -> Checked<Expr> {
        let span = self.span();
        let expr = match &self.peek().kind {
            Kind::Number(number) => Expr::Literal(Value::Number(number.clone())),
            Kind::Text(text) => Expr::Literal(Value::String(text.clone().into_owned())),
            Kind::Parameter(name) => Expr::Parameter((*name).to_owned(), span),
            Kind::Symbol("(") => return self.parenthesised(),
            Kind::Symbol("[") => return self.array(),
            Kind::Symbol("{") => return self.object(),
            Kind::Word(word) => {
                let word = *word;
                return self.worded(word);
            }
            _ => return Err(self.expected("an expression")),
        };
        self.advance();
        Ok(expr)
    }

    /// A literal word, a subquery word, a function call or a name.
    fn worded(&mut self, word: &str) -> Checked<Expr> {
        let span = self.span();
        let calls = *self.peek_second() == Kind::Symbol("(");
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        let literal = if is("true") {
            Expr::Literal(Value::Bool(true))
        } else if is("false") {
            Expr::Literal(Value::Bool(false))
        } else if is("null") {
            Expr::Literal(Value::Null)
        } else if is("undefined") {
            Expr::Undefined
        } else if calls {
            let kind = if is("EXISTS") {
                SubqueryKind::Exists
            } else if is("ARRAY") {
                SubqueryKind::Array
            } else if is("ALL") {
                SubqueryKind::All
            } else if is("FIRST") {
                SubqueryKind::First
            } else if is("LAST") {
                SubqueryKind::Last
            } else {
                return self.call(false);
            };
            self.advance();
            self.symbol("(")?;
            let query = self.query()?;
            self.symbol(")")?;
            return Ok(Expr::Subquery(kind, Box::new(query)));
        } else if is("udf") && *self.peek_second() == Kind::Symbol(".") {
            self.advance();
            self.advance();
            return self.call(true);
        } else if is_reserved(word) {
            return Err(self.expected("an expression"));
        } else {
            Expr::Name(word.to_owned(), span)
        };
        self.advance();
        Ok(literal)
    }

    fn call(&mut self, user_defined: bool) -> Checked<Expr> {
        let start = self.span();
        let name = self.any_name()?;
        if !matches!(name.to_ascii_uppercase().as_str(), "LEFT" | "RIGHT") && is_reserved(&name) {
            self.at -= 1;
            return Err(self.expected("an expression"));
        }
        self.symbol("(")?;
        let arguments = if self.at_symbol(")") {
            Vec::new()
        } else {
            self.expressions()?
        };
        self.symbol(")")?;
        Ok(Expr::Call(Call {
            name,
            user_defined,
            arguments,
            span: start,
        }))
    }

    fn parenthesised(&mut self) -> Checked<Expr> {
        self.symbol("(")?;
        let expr = if self.at_word("SELECT") {
            Expr::Subquery(SubqueryKind::Scalar, Box::new(self.query()?))
        } else {
            self.expression()?
        };
        self.symbol(")")?;
        Ok(expr)
    }

    fn array(&mut self) -> Checked<Expr> {
        self.symbol("[")?;
        let items = if self.at_symbol("]") {
            Vec::new()
        } else {
            self.expressions()?
        };
        self.symbol("]")?;
        Ok(Expr::Array(items))
    }

    fn object(&mut self) -> Checked<Expr> {
        self.symbol("{")?;
        let mut properties = Vec::new();
        while !self.at_symbol("}") {
            let name = match &self.peek().kind {
                Kind::Text(text) => text.clone().into_owned(),
                Kind::Word(word) => (*word).to_owned(),
                _ => return Err(self.expected("a property name or '}'")),
            };
            self.advance();
            self.symbol(":")?;
            properties.push((name, self.expression()?));
            if !self.take_symbol(",") {
                break;
            }
        }
        self.symbol("}")?;
        Ok(Expr::Object(properties))
    }
}
