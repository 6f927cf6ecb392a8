//! What names stand for while a row is evaluated, and the work it may still cause.

use crate::model::error::{Error, Result};
use crate::sql::{STEP_BYTES, STEPS_PER_ITEM_MAX};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::Cell;

/// One bound value and the scopes around it: a list that lives on the stack.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    frame: Frame<'a>,
    outer: Option<&'a Scope<'a>>,
}

#[derive(Clone, Copy)]
pub enum Frame<'a> {
    Bound(Option<&'a Value>),
    /// The keys and then the aggregates of a group.
    Group(&'a [Option<Value>]),
}

impl<'a> Scope<'a> {
    pub fn root(item: Option<&'a Value>) -> Self {
        Self {
            frame: Frame::Bound(item),
            outer: None,
        }
    }

    pub fn inside(outer: &'a Scope<'a>, frame: Frame<'a>) -> Self {
        Self {
            frame,
            outer: Some(outer),
        }
    }

    fn frame(&self, up: usize) -> Option<Frame<'a>> {
        let mut frame = self.frame;
        let mut outer = self.outer;
        for _ in 0..up {
            let scope = outer?;
            frame = scope.frame;
            outer = scope.outer;
        }
        Some(frame)
    }

    pub fn binding(&self, up: usize) -> Option<&'a Value> {
        match self.frame(up)? {
            Frame::Bound(value) => value,
            Frame::Group(_) => None,
        }
    }

    pub fn of_group(&self, up: usize, index: usize) -> Option<&'a Value> {
        match self.frame(up)? {
            Frame::Bound(_) => None,
            Frame::Group(values) => values.get(index)?.as_ref(),
        }
    }
}

/// What evaluation needs besides values: the time, chance, and a budget of steps.
pub struct Context {
    /// Milliseconds since 1970.
    pub now_ms: i64,
    steps_left: Cell<u64>,
    random: Cell<u64>,
}

impl Context {
    pub fn new(now_ms: i64) -> Self {
        Self {
            now_ms,
            steps_left: Cell::new(STEPS_PER_ITEM_MAX),
            random: Cell::new(now_ms.unsigned_abs()),
        }
    }

    /// A new input item begins: it has the whole budget.
    pub fn renew(&self) {
        self.steps_left.set(STEPS_PER_ITEM_MAX);
    }

    pub fn steps_left(&self) -> u64 {
        self.steps_left.get()
    }

    pub fn charge(&self, steps: u64) -> Result<()> {
        match self.steps_left.get().checked_sub(steps) {
            Some(left) => {
                self.steps_left.set(left);
                Ok(())
            }
            None => Err(Error::bad_request(format!(
                "the query needs more than {STEPS_PER_ITEM_MAX} steps for one item; narrow its joins and subqueries"
            ))),
        }
    }

    pub fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.charge((bytes / STEP_BYTES) as u64)
    }

    /// An owned value; a copy is charged for its size.
    pub fn own(&self, value: Cow<'_, Value>) -> Result<Value> {
        if let Cow::Borrowed(value) = &value {
            self.charge_bytes(size(value))?;
        }
        Ok(value.into_owned())
    }

    /// The next pseudo-random number in `0..1` (splitmix64).
    pub fn random(&self) -> f64 {
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit a double")]
        let fraction = (z >> 11) as f64 / (1u64 << 53) as f64;
        fraction
    }
}

/// About how many bytes a value takes.
pub fn size(value: &Value) -> usize {
    const NODE_BYTES: usize = 32;
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(object) => object.iter().map(|(k, v)| k.len() + size(v)).sum(),
            _ => 0,
        }
}
