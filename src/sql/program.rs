//! A query made ready to run: names are slots, parameters are constants, functions are pointers.

use super::ast::{BinaryOp, SubqueryKind, UnaryOp};
use super::functions::{Aggregate, Compiled, Function};
use super::like::Pattern;
use serde_json::Value;
use std::sync::Arc;

#[derive(Debug)]
pub struct Program {
    pub sources: Vec<Source>,
    pub filter: Option<Node>,
    pub grouping: Option<Grouping>,
    pub order_by: Vec<OrderKey>,
    /// What a row, or a group, becomes.
    pub projection: Node,
    pub distinct: bool,
    pub top: Option<u64>,
    pub window: Option<Window>,
}

/// `OFFSET … LIMIT …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub offset: u64,
    pub limit: u64,
}

/// One input; each value it yields is bound in a scope of its own.
#[derive(Debug)]
pub struct Source {
    pub input: Input,
    pub iterate: bool,
}

#[derive(Debug)]
pub enum Input {
    Value(Node),
    Rows(Box<Program>),
}

/// One group for each distinct list of keys; without keys, one group for all rows.
#[derive(Debug)]
pub struct Grouping {
    pub keys: Vec<Node>,
    pub aggregates: Vec<AggregateCall>,
}

#[derive(Debug)]
pub struct AggregateCall {
    pub aggregate: Aggregate,
    pub argument: Node,
}

#[derive(Debug)]
pub struct OrderKey {
    pub node: Node,
    pub descending: bool,
}

/// A step into a value.
#[derive(Debug)]
pub enum Step {
    Property(String),
    Index(usize),
    Computed(Node),
}

#[derive(Debug)]
pub enum Node {
    Undefined,
    Constant(Value),
    /// From the binding `up` scopes outward, through properties and indexes only.
    Path {
        up: usize,
        steps: Vec<Step>,
    },
    Member(Box<Node>, Vec<Step>),
    /// A property of the item that the container computes unless the item has it.
    Computed {
        up: usize,
        name: String,
        program: Arc<Program>,
        steps: Vec<Step>,
    },
    /// A key or (after the keys) an aggregate of the group `up` scopes outward.
    OfGroup {
        up: usize,
        index: usize,
    },
    Unary(UnaryOp, Box<Node>),
    Binary(BinaryOp, Box<Node>, Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Conditional(Box<[Node; 3]>),
    Between {
        not: bool,
        operands: Box<[Node; 3]>,
    },
    In {
        not: bool,
        needle: Box<Node>,
        items: Vec<Node>,
    },
    /// Sorted constants, for a search by halves.
    InConstants {
        not: bool,
        needle: Box<Node>,
        sorted: Vec<Value>,
    },
    Like {
        not: bool,
        value: Box<Node>,
        pattern: Box<LikePattern>,
    },
    Regex {
        text: Box<Node>,
        regex: Box<Compiled>,
    },
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
    Call {
        function: &'static Function,
        arguments: Vec<Node>,
    },
    Subquery(SubqueryKind, Box<Program>),
}

#[derive(Debug)]
pub enum LikePattern {
    Constant(Pattern),
    Computed { pattern: Node, escape: Option<char> },
}

impl Program {
    /// Whether each row can leave as soon as it is found.
    pub fn is_streaming(&self) -> bool {
        self.grouping.is_none() && self.order_by.is_empty() && !self.distinct
    }

    /// Whether the rows of one item depend on that item alone.
    pub fn is_item_wise(&self) -> bool {
        self.is_streaming() && self.top.is_none() && self.window.is_none()
    }
}
