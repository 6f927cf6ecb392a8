//! A syntax tree back to text that parses to the same tree: one clause a line, parentheses around
//! every operator.

use super::ast::{
    BinaryOp, Call, Collection, Count, Expr, OrderItem, SelectItem, SelectQuery, Selection, Source,
    Step, SubqueryKind, UnaryOp,
};
use super::lexer::{is_name_part, is_name_start};
use super::parser::is_reserved;
use serde_json::Value;
use std::fmt::{Display, Formatter, Result};

/// Text in quotes; JSON's escapes are also SQL's.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        Value::from(self.0).fmt(f)
    }
}

/// Things with commas between.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (at, item) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(", ")?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for SelectQuery {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str("SELECT ")?;
        if self.distinct {
            f.write_str("DISTINCT ")?;
        }
        if let Some(top) = &self.top {
            write!(f, "TOP {top} ")?;
        }
        match &self.selection {
            Selection::Star(_) => f.write_str("*")?,
            Selection::Value(expr) => write!(f, "VALUE {expr}")?,
            Selection::List(items) => List(items).fmt(f)?,
        }
        if let Some(from) = &self.from {
            write!(f, "\nFROM {}", from.first)?;
            for join in &from.joins {
                write!(f, "\nJOIN {join}")?;
            }
        }
        if let Some(filter) = &self.filter {
            write!(f, "\nWHERE {filter}")?;
        }
        if !self.group_by.is_empty() {
            write!(f, "\nGROUP BY {}", List(&self.group_by))?;
        }
        if !self.order_by.is_empty() {
            let rank = if self.order_by_rank { "RANK " } else { "" };
            write!(f, "\nORDER BY {rank}{}", List(&self.order_by))?;
        }
        if let Some(window) = &self.window {
            write!(f, "\nOFFSET {} LIMIT {}", window.offset, window.limit)?;
        }
        Ok(())
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Literal(count) => count.fmt(f),
            Self::Parameter(name, _) => f.write_str(name),
        }
    }
}

impl Display for SelectItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.expr.fmt(f)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {alias}"),
            None => Ok(()),
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.alias {
            Some(alias) if self.iterate => write!(f, "{alias} IN {}", self.collection),
            Some(alias) => write!(f, "{} AS {alias}", self.collection),
            None => self.collection.fmt(f),
        }
    }
}

impl Display for Collection {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Path { root, steps, .. } => {
                f.write_str(root)?;
                steps.iter().try_for_each(|step| step.fmt(f))
            }
            Self::Subquery(query) => write!(f, "({query})"),
            Self::Expr(expr) => expr.fmt(f),
        }
    }
}

impl Display for OrderItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        self.expr.fmt(f)?;
        match (self.explicit, self.descending) {
            (_, true) => f.write_str(" DESC"),
            (true, false) => f.write_str(" ASC"),
            (false, false) => Ok(()),
        }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Property(name) if is_plain_name(name) => write!(f, ".{name}"),
            Self::Property(name) => write!(f, "[{}]", Quoted(name)),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Computed(expr) => write!(f, "[{expr}]"),
        }
    }
}

/// Whether a name needs no quotes.
fn is_plain_name(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(is_name_part) && !is_reserved(name)
}

impl Display for Expr {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Undefined => f.write_str("undefined"),
            Self::Literal(value) => value.fmt(f),
            Self::Parameter(name, _) | Self::Name(name, _) => f.write_str(name),
            Self::Member(base, steps) => {
                // `1.x` would read as a number, and a sign as an operator on the member.
                if matches!(base.as_ref(), Self::Literal(Value::Number(_))) {
                    write!(f, "({base})")?;
                } else {
                    base.fmt(f)?;
                }
                steps.iter().try_for_each(|step| step.fmt(f))
            }
            Self::Unary(op, operand) => unary(*op, operand, f),
            Self::Binary(op, left, right) => {
                write!(f, "({left} {} {right})", BinaryOp::symbol(*op))
            }
            Self::And(operands) => chain(operands, " AND ", f),
            Self::Or(operands) => chain(operands, " OR ", f),
            Self::Conditional(parts) => {
                let [condition, then, otherwise] = parts.as_ref();
                write!(f, "({condition} ? {then} : {otherwise})")
            }
            Self::Between { not, operands } => {
                let [value, low, high] = operands.as_ref();
                write!(f, "({value}{} BETWEEN {low} AND {high})", negation(*not))
            }
            Self::In { not, needle, items } => {
                write!(f, "({needle}{} IN ({}))", negation(*not), List(items))
            }
            Self::Like {
                not,
                value,
                pattern,
                escape,
            } => {
                write!(f, "({value}{} LIKE {pattern}", negation(*not))?;
                if let Some(escape) = escape {
                    write!(f, " ESCAPE {}", Quoted(escape.encode_utf8(&mut [0; 4])))?;
                }
                f.write_str(")")
            }
            Self::Array(items) => write!(f, "[{}]", List(items)),
            Self::Object(properties) => {
                f.write_str("{")?;
                for (at, (name, value)) in properties.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{}: {value}", Quoted(name))?;
                }
                f.write_str("}")
            }
            Self::Call(Call {
                name,
                user_defined,
                arguments,
                ..
            }) => {
                let prefix = if *user_defined { "udf." } else { "" };
                write!(f, "{prefix}{name}({})", List(arguments))
            }
            Self::Subquery(kind, query) => {
                let word = match kind {
                    SubqueryKind::Scalar => "",
                    SubqueryKind::Exists => "EXISTS",
                    SubqueryKind::Array => "ARRAY",
                    SubqueryKind::All => "ALL",
                    SubqueryKind::First => "FIRST",
                    SubqueryKind::Last => "LAST",
                };
                write!(f, "{word}({query})")
            }
        }
    }
}

fn negation(not: bool) -> &'static str {
    if not { " NOT" } else { "" }
}

fn chain(operands: &[Expr], word: &str, f: &mut Formatter<'_>) -> Result {
    f.write_str("(")?;
    for (at, operand) in operands.iter().enumerate() {
        if at > 0 {
            f.write_str(word)?;
        }
        operand.fmt(f)?;
    }
    f.write_str(")")
}

fn unary(op: UnaryOp, operand: &Expr, f: &mut Formatter<'_>) -> Result {
    let sign = match op {
        UnaryOp::Not => "NOT ",
        UnaryOp::Minus => "-",
        UnaryOp::Plus => "+",
        UnaryOp::BitNot => "~",
    };
    // Two minus signs would begin a comment.
    if matches!(operand, Expr::Literal(Value::Number(_))) {
        write!(f, "({sign}({operand}))")
    } else {
        write!(f, "({sign}{operand})")
    }
}
