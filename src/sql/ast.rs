//! The syntax tree: names as written, with their places; no meaning yet.

use super::error::Span;
use serde_json::Value;

/// One SELECT, with all its clauses.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectQuery {
    pub distinct: bool,
    pub top: Option<Count>,
    pub selection: Selection,
    pub from: Option<From>,
    pub filter: Option<Expr>,
    pub group_by: Vec<Expr>,
    pub order_by: Vec<OrderItem>,
    /// `ORDER BY RANK`: the items are scores.
    pub order_by_rank: bool,
    pub window: Option<Window>,
}

impl SelectQuery {
    /// `SELECT VALUE expr`.
    pub fn of_value(expr: Expr) -> Self {
        Self {
            distinct: false,
            top: None,
            selection: Selection::Value(expr),
            from: None,
            filter: None,
            group_by: Vec::new(),
            order_by: Vec::new(),
            order_by_rank: false,
            window: None,
        }
    }

    /// What the query calls the item, if its first source is the whole item.
    pub fn item_name(&self) -> Option<&str> {
        let Source {
            collection,
            alias,
            iterate,
        } = &self.from.as_ref()?.first;
        match collection {
            Collection::Path { root, steps, .. } if steps.is_empty() && !iterate => {
                Some(alias.as_deref().unwrap_or(root))
            }
            _ => None,
        }
    }
}

/// `OFFSET … LIMIT …`.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub offset: Count,
    pub limit: Count,
}

/// A number of rows, written or given as a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    Literal(u64),
    Parameter(String, Span),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    Star(Span),
    Value(Expr),
    List(Vec<SelectItem>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SelectItem {
    pub expr: Expr,
    pub alias: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct From {
    pub first: Source,
    pub joins: Vec<Source>,
}

/// One input of a FROM clause.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub collection: Collection,
    pub alias: Option<String>,
    /// `alias IN collection`: the elements of the array, not the array.
    pub iterate: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Collection {
    Path {
        root: String,
        span: Span,
        steps: Vec<Step>,
    },
    Subquery(Box<SelectQuery>),
    /// A function call, an array, an object or a parameter.
    Expr(Box<Expr>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct OrderItem {
    pub expr: Expr,
    pub descending: bool,
    /// Whether ASC or DESC was written.
    pub explicit: bool,
    pub span: Span,
}

/// A step into a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Property(String),
    Index(u64),
    Computed(Expr),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    Undefined,
    Literal(Value),
    Parameter(String, Span),
    Name(String, Span),
    Member(Box<Expr>, Vec<Step>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Two or more.
    And(Vec<Expr>),
    /// Two or more.
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    /// Value, low, high.
    Between {
        not: bool,
        operands: Box<[Expr; 3]>,
    },
    In {
        not: bool,
        needle: Box<Expr>,
        items: Vec<Expr>,
    },
    Like {
        not: bool,
        value: Box<Expr>,
        pattern: Box<Expr>,
        escape: Option<char>,
    },
    Array(Vec<Expr>),
    Object(Vec<(String, Expr)>),
    Call(Call),
    Subquery(SubqueryKind, Box<SelectQuery>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub name: String,
    pub user_defined: bool,
    pub arguments: Vec<Expr>,
    pub span: Span,
}

/// What a subquery in an expression stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubqueryKind {
    /// The one row, or undefined.
    Scalar,
    /// Whether there is a row.
    Exists,
    /// All rows in an array.
    Array,
    /// Whether no row fails the filter.
    All,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnaryOp {
    Not,
    Minus,
    Plus,
    BitNot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryOp {
    Coalesce,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Concat,
    ShiftLeft,
    ShiftRight,
    ShiftRightZeroFill,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// How tightly an operator binds; higher binds tighter.
pub mod binding {
    pub const CONDITIONAL: u8 = 1;
    pub const COALESCE: u8 = 2;
    pub const OR: u8 = 3;
    pub const AND: u8 = 4;
    pub const NOT: u8 = 5;
    pub const BIT_OR: u8 = 6;
    pub const BIT_XOR: u8 = 7;
    pub const BIT_AND: u8 = 8;
    /// `=`, `!=`, and IN, BETWEEN, LIKE.
    pub const EQUALITY: u8 = 9;
    pub const RELATION: u8 = 10;
    pub const CONCAT: u8 = 11;
    pub const SHIFT: u8 = 12;
    pub const ADDITION: u8 = 13;
    pub const MULTIPLICATION: u8 = 14;
    pub const UNARY: u8 = 15;
}

impl BinaryOp {
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Coalesce => "??",
            Self::BitOr => "|",
            Self::BitXor => "^",
            Self::BitAnd => "&",
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Concat => "||",
            Self::ShiftLeft => "<<",
            Self::ShiftRight => ">>",
            Self::ShiftRightZeroFill => ">>>",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
        }
    }

    pub fn from_symbol(symbol: &str) -> Option<Self> {
        const ALL: [BinaryOp; 19] = [
            BinaryOp::Coalesce,
            BinaryOp::BitOr,
            BinaryOp::BitXor,
            BinaryOp::BitAnd,
            BinaryOp::Equal,
            BinaryOp::NotEqual,
            BinaryOp::Less,
            BinaryOp::LessOrEqual,
            BinaryOp::Greater,
            BinaryOp::GreaterOrEqual,
            BinaryOp::Concat,
            BinaryOp::ShiftLeft,
            BinaryOp::ShiftRight,
            BinaryOp::ShiftRightZeroFill,
            BinaryOp::Add,
            BinaryOp::Subtract,
            BinaryOp::Multiply,
            BinaryOp::Divide,
            BinaryOp::Modulo,
        ];
        if symbol == "<>" {
            return Some(Self::NotEqual);
        }
        ALL.into_iter().find(|op| op.symbol() == symbol)
    }

    pub const fn binding(self) -> u8 {
        match self {
            Self::Coalesce => binding::COALESCE,
            Self::BitOr => binding::BIT_OR,
            Self::BitXor => binding::BIT_XOR,
            Self::BitAnd => binding::BIT_AND,
            Self::Equal | Self::NotEqual => binding::EQUALITY,
            Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual => {
                binding::RELATION
            }
            Self::Concat => binding::CONCAT,
            Self::ShiftLeft | Self::ShiftRight | Self::ShiftRightZeroFill => binding::SHIFT,
            Self::Add | Self::Subtract => binding::ADDITION,
            Self::Multiply | Self::Divide | Self::Modulo => binding::MULTIPLICATION,
        }
    }
}

impl Expr {
    /// The expressions directly inside of this one; subqueries are not entered.
    pub fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Undefined
            | Self::Literal(_)
            | Self::Parameter(..)
            | Self::Name(..)
            | Self::Subquery(..) => Vec::new(),
            Self::Member(base, steps) => {
                let computed = steps.iter().filter_map(|step| match step {
                    Step::Computed(expr) => Some(expr),
                    _ => None,
                });
                std::iter::once(base.as_ref()).chain(computed).collect()
            }
            Self::Unary(_, operand) => vec![operand],
            Self::Binary(_, left, right) => vec![left, right],
            Self::And(list) | Self::Or(list) | Self::Array(list) => list.iter().collect(),
            Self::Conditional(parts) => parts.iter().collect(),
            Self::Between { operands, .. } => operands.iter().collect(),
            Self::In { needle, items, .. } => {
                std::iter::once(needle.as_ref()).chain(items).collect()
            }
            Self::Like { value, pattern, .. } => vec![value, pattern],
            Self::Object(properties) => properties.iter().map(|(_, value)| value).collect(),
            Self::Call(call) => call.arguments.iter().collect(),
        }
    }

    /// A path from a name through properties and numbers only: the name and its steps.
    pub fn as_path(&self) -> Option<(&str, &[Step])> {
        match self {
            Self::Name(name, _) => Some((name, &[])),
            Self::Member(base, steps) => match base.as_ref() {
                Self::Name(name, _)
                    if !steps.iter().any(|step| matches!(step, Step::Computed(_))) =>
                {
                    Some((name, steps))
                }
                _ => None,
            },
            _ => None,
        }
    }
}
