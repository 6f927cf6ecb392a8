//! The built-in functions: one table a family.

mod aggregate;
mod array;
mod convert;
mod date;
mod fulltext;
mod integer;
mod item;
mod math;
mod regex;
mod spatial;
mod string;
mod type_check;
pub mod vector;

pub use self::regex::Compiled;
pub use aggregate::{Accumulator, Aggregate, Extreme};
pub use spatial::{Cap, Geometry, Vector};

use super::compare::compare_defined;
use super::eval::{Context, Evaluated};
use super::number;
use super::program::Node;
use crate::model::error::Result;
use serde_json::Value;
use std::borrow::Cow;

/// A built-in function. Its arguments are evaluated before it is called; undefined ones too.
pub struct Function {
    pub name: &'static str,
    /// The least and the most arguments it takes.
    pub least: usize,
    pub most: usize,
    pub call: Body,
}

pub type Body = for<'a> fn(&mut Arguments<'a>, &Context) -> Result<Evaluated<'a>>;

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Any number of arguments.
const MANY: usize = usize::MAX;

const fn function(name: &'static str, least: usize, most: usize, call: Body) -> Function {
    Function {
        name,
        least,
        most,
        call,
    }
}

static FAMILIES: [&[Function]; 12] = [
    type_check::FUNCTIONS,
    string::FUNCTIONS,
    convert::FUNCTIONS,
    regex::FUNCTIONS,
    math::FUNCTIONS,
    integer::FUNCTIONS,
    array::FUNCTIONS,
    date::FUNCTIONS,
    item::FUNCTIONS,
    vector::FUNCTIONS,
    spatial::FUNCTIONS,
    fulltext::FUNCTIONS,
];

/// Looks a function up, whatever the case of its letters.
pub fn find(name: &str) -> Option<&'static Function> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .find(|f| f.name.eq_ignore_ascii_case(name))
}

/// The node of a call; does at once what constant arguments allow.
pub fn prepare(function: &'static Function, arguments: Vec<Node>) -> Result<Node, String> {
    match function.name {
        "REGEXMATCH" => regex::prepare(function, arguments),
        "ARRAY_CONTAINS" => Ok(array_contains(function, arguments)),
        "IIF" => Ok(match <[Node; 3]>::try_from(arguments) {
            Ok(parts) => Node::Conditional(Box::new(parts)),
            Err(_) => Node::Undefined,
        }),
        _ => Ok(Node::Call {
            function,
            arguments,
        }),
    }
}

/// Values in order, for a search by halves.
pub fn sorted(mut values: Vec<Value>) -> Vec<Value> {
    values.sort_by(compare_defined);
    values
}

/// A search in a constant array is that of an IN list.
fn array_contains(function: &'static Function, mut arguments: Vec<Node>) -> Node {
    match arguments.as_mut_slice() {
        [Node::Constant(Value::Array(items)), needle] => Node::InConstants {
            not: false,
            needle: Box::new(std::mem::replace(needle, Node::Undefined)),
            sorted: sorted(std::mem::take(items)),
        },
        _ => Node::Call {
            function,
            arguments,
        },
    }
}

/// The arguments of one call.
pub struct Arguments<'a> {
    values: Vec<Evaluated<'a>>,
}

impl<'a> Arguments<'a> {
    pub fn new(values: Vec<Evaluated<'a>>) -> Self {
        Self { values }
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn get(&self, at: usize) -> Option<&Value> {
        self.values.get(at)?.as_deref()
    }

    pub fn take(&mut self, at: usize) -> Evaluated<'a> {
        self.values.get_mut(at)?.take()
    }

    pub fn text(&self, at: usize) -> Option<&str> {
        self.get(at)?.as_str()
    }

    pub fn array(&self, at: usize) -> Option<&Vec<Value>> {
        self.get(at)?.as_array()
    }

    pub fn number(&self, at: usize) -> Option<f64> {
        match self.get(at)? {
            Value::Number(number) => Some(number::to_f64(number)),
            _ => None,
        }
    }

    /// A whole number.
    pub fn integer(&self, at: usize) -> Option<i64> {
        match self.get(at)? {
            Value::Number(number) => number::to_i64(number),
            _ => None,
        }
    }

    pub fn boolean(&self, at: usize) -> Option<bool> {
        self.get(at)?.as_bool()
    }
}

fn owned<'a>(value: impl Into<Value>) -> Evaluated<'a> {
    Some(Cow::Owned(value.into()))
}
