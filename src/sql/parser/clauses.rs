//! The clauses of a SELECT.

use super::{Parser, is_reserved};
use crate::sql::ast::{
    Collection, Count, From, OrderItem, SelectItem, SelectQuery, Selection, Source, Step, Window,
};
use crate::sql::error::{Checked, Fault, LIMIT};
use crate::sql::lexer::Kind;
use crate::sql::number;
use crate::sql::{COUNT_MAX, JOINS_MAX};

impl Parser<'_> {
    pub(super) fn query(&mut self) -> Checked<SelectQuery> {
        self.nested(Self::query_here)
    }

    fn query_here(&mut self) -> Checked<SelectQuery> {
        self.word("SELECT")?;
        let distinct = self.take_word("DISTINCT");
        // TOP is a clause only before a count: `SELECT top.x FROM top` stays possible.
        let counts = matches!(self.peek_second(), Kind::Number(_) | Kind::Parameter(_));
        let top = if self.at_word("TOP") && counts {
            self.advance();
            Some(self.count()?)
        } else {
            None
        };
        let selection = self.selection()?;
        let from = if self.take_word("FROM") {
            Some(self.from()?)
        } else {
            None
        };
        let mut query = SelectQuery {
            distinct,
            top,
            selection,
            from,
            filter: None,
            group_by: Vec::new(),
            order_by: Vec::new(),
            order_by_rank: false,
            window: None,
        };
        if self.take_word("WHERE") {
            query.filter = Some(self.expression()?);
        }
        if self.take_word("GROUP") {
            self.word("BY")?;
            query.group_by = self.expressions()?;
        }
        if self.take_word("ORDER") {
            self.word("BY")?;
            self.order_by(&mut query)?;
        }
        if self.take_word("OFFSET") {
            let offset = self.count()?;
            self.word("LIMIT")?;
            query.window = Some(Window {
                offset,
                limit: self.count()?,
            });
        }
        Ok(query)
    }

    /// What may follow `SELECT *` in a condition.
    pub(super) fn condition(&mut self) -> Checked<SelectQuery> {
        let star = self.span();
        self.word("FROM")?;
        let from = Some(self.from()?);
        let filter = if self.take_word("WHERE") {
            Some(self.expression()?)
        } else {
            None
        };
        Ok(SelectQuery {
            distinct: false,
            top: None,
            selection: Selection::Star(star),
            from,
            filter,
            group_by: Vec::new(),
            order_by: Vec::new(),
            order_by_rank: false,
            window: None,
        })
    }

    fn count(&mut self) -> Checked<Count> {
        let span = self.span();
        let count = match &self.peek().kind {
            Kind::Number(count) => number::to_i64(count)
                .and_then(|c| u64::try_from(c).ok())
                .filter(|c| *c <= COUNT_MAX),
            Kind::Parameter(name) => {
                let name = (*name).to_owned();
                self.advance();
                return Ok(Count::Parameter(name, span));
            }
            _ => None,
        };
        let count = count.ok_or_else(|| {
            self.expected(&format!("a whole number up to {COUNT_MAX} or a parameter"))
        })?;
        self.advance();
        Ok(Count::Literal(count))
    }

    fn selection(&mut self) -> Checked<Selection> {
        let span = self.span();
        if self.take_symbol("*") {
            return Ok(Selection::Star(span));
        }
        if self.take_word("VALUE") {
            return Ok(Selection::Value(self.expression()?));
        }
        let mut items = Vec::new();
        loop {
            let expr = self.expression()?;
            let alias = if self.take_word("AS") {
                Some(self.any_name()?)
            } else {
                self.alias()?
            };
            items.push(SelectItem { expr, alias });
            if !self.take_symbol(",") {
                return Ok(Selection::List(items));
            }
        }
    }

    /// A name without AS, if one stands here.
    fn alias(&mut self) -> Checked<Option<String>> {
        match self.peek().kind {
            Kind::Word(word) if !is_reserved(word) => self.name().map(Some),
            _ => Ok(None),
        }
    }

    fn from(&mut self) -> Checked<From> {
        let first = self.source()?;
        let mut joins = Vec::new();
        while self.at_word("JOIN") {
            if joins.len() == JOINS_MAX {
                let message =
                    format!("The number of JOINs exceeds the maximum allowed limit of {JOINS_MAX}");
                return Err(Fault::new(LIMIT, self.span(), message));
            }
            self.advance();
            joins.push(self.source()?);
        }
        Ok(From { first, joins })
    }

    fn source(&mut self) -> Checked<Source> {
        let iterates = matches!(self.peek_second(), Kind::Word(w) if w.eq_ignore_ascii_case("IN"));
        if iterates {
            let alias = Some(self.name()?);
            self.word("IN")?;
            return Ok(Source {
                collection: self.collection()?,
                alias,
                iterate: true,
            });
        }
        let collection = self.collection()?;
        let alias = if self.take_word("AS") {
            Some(self.any_name()?)
        } else {
            self.alias()?
        };
        Ok(Source {
            collection,
            alias,
            iterate: false,
        })
    }

    fn collection(&mut self) -> Checked<Collection> {
        if self.take_symbol("(") {
            let query = self.query()?;
            self.symbol(")")?;
            return Ok(Collection::Subquery(Box::new(query)));
        }
        let calls = *self.peek_second() == Kind::Symbol("(");
        match self.peek().kind {
            Kind::Parameter(_) | Kind::Symbol("[" | "{") => return self.computed_collection(),
            Kind::Word(_) if calls => return self.computed_collection(),
            _ => {}
        }
        let span = self.span();
        let root = self.name()?;
        let mut steps = Vec::new();
        loop {
            if self.take_symbol(".") {
                steps.push(Step::Property(self.any_name()?));
            } else if self.take_symbol("[") {
                let step = match &self.peek().kind {
                    Kind::Text(name) => Step::Property(name.clone().into_owned()),
                    Kind::Number(index) => number::to_i64(index)
                        .and_then(|index| u64::try_from(index).ok())
                        .map(Step::Index)
                        .ok_or_else(|| self.expected("a property name in quotes or an index"))?,
                    _ => return Err(self.expected("a property name in quotes or an index")),
                };
                self.advance();
                self.symbol("]")?;
                steps.push(step);
            } else {
                return Ok(Collection::Path { root, span, steps });
            }
        }
    }

    fn computed_collection(&mut self) -> Checked<Collection> {
        let expr = self.nested(Self::operand)?;
        Ok(Collection::Expr(Box::new(expr)))
    }

    fn order_by(&mut self, query: &mut SelectQuery) -> Checked<()> {
        // RANK is a clause only before a function: a container may be called `rank`.
        if self.at_word("RANK") && matches!(self.peek_second(), Kind::Word(_)) {
            self.advance();
            query.order_by_rank = true;
        }
        loop {
            let start = self.span();
            let expr = self.expression()?;
            let span = start.to(self.span_before());
            let descending = self.take_word("DESC");
            let explicit = descending || self.take_word("ASC");
            query.order_by.push(OrderItem {
                expr,
                descending,
                explicit,
                span,
            });
            if !self.take_symbol(",") {
                return Ok(());
            }
        }
    }
}
