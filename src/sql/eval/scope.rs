//! What names stand for while a row is evaluated, and the work it may still cause.

use crate::model::error::{Error, Result};
use crate::sql::compare::order_key;
use crate::sql::{STEP_BYTES, STEPS_PER_ITEM_MAX};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

/// Steps after which the guard is asked again: with small values some hundred kilobytes.
const STEPS_PER_CHECK: u64 = 1_024;
/// What takes at least this many bytes at once is reserved with the guard before it is made.
const RESERVED_BYTES_MIN: usize = 4 * 1024;

/// Watches a query while it is evaluated.
pub trait Guard: Send + Sync {
    /// Fails when the query must stop: it holds too much memory with `more_bytes` that it is
    /// about to take, or nobody waits for it.
    fn check(&self, more_bytes: usize) -> Result<()>;
}

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
    steps_max: u64,
    steps_left: Cell<u64>,
    /// The guard is asked when fewer steps than this are left.
    check_below: Cell<u64>,
    guard: Option<Arc<dyn Guard>>,
    /// Whether more steps were needed than there are.
    overdrawn: Cell<bool>,
    random: Cell<u64>,
}

impl Context {
    pub fn new(now_ms: i64) -> Self {
        Self::with_steps(now_ms, STEPS_PER_ITEM_MAX)
    }

    /// One with a budget of its own for each item.
    pub fn with_steps(now_ms: i64, steps_max: u64) -> Self {
        Self {
            now_ms,
            steps_max,
            steps_left: Cell::new(steps_max),
            check_below: Cell::new(0),
            guard: None,
            overdrawn: Cell::new(false),
            random: Cell::new(now_ms.unsigned_abs()),
        }
    }

    /// Has the evaluation watched from now on.
    pub fn set_guard(&mut self, guard: Arc<dyn Guard>) {
        self.guard = Some(guard);
        self.renew();
    }

    /// Allows fewer steps an item than usual.
    pub fn set_steps_max(&mut self, steps_max: u64) {
        self.steps_max = steps_max;
        self.renew();
    }

    /// A new input item begins: it has the whole budget.
    pub fn renew(&self) {
        self.steps_left.set(self.steps_max);
        if self.guard.is_some() {
            self.check_below
                .set(self.steps_max.saturating_sub(STEPS_PER_CHECK));
        }
    }

    pub fn steps_left(&self) -> u64 {
        self.steps_left.get()
    }

    /// Whether an evaluation was broken off because it needed more steps than there are.
    pub fn is_overdrawn(&self) -> bool {
        self.overdrawn.get()
    }

    pub fn charge(&self, steps: u64) -> Result<()> {
        match self.steps_left.get().checked_sub(steps) {
            Some(left) => {
                self.steps_left.set(left);
                if left < self.check_below.get() {
                    self.check_below.set(left.saturating_sub(STEPS_PER_CHECK));
                    return self.check(0);
                }
                Ok(())
            }
            None => {
                self.overdrawn.set(true);
                Err(Error::bad_request(format!(
                    "the query needs more than {} steps for one item; narrow its joins and subqueries",
                    self.steps_max
                )))
            }
        }
    }

    fn check(&self, more_bytes: usize) -> Result<()> {
        match &self.guard {
            Some(guard) => guard.check(more_bytes),
            None => Ok(()),
        }
    }

    /// Asks for memory before it is taken; little is not worth asking for.
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        if bytes < RESERVED_BYTES_MIN {
            return Ok(());
        }
        self.check(bytes)
    }

    /// Charges for text that is copied, before it is.
    pub fn charge_bytes(&self, bytes: usize) -> Result<()> {
        self.reserve(bytes)?;
        self.charge((bytes / STEP_BYTES) as u64)
    }

    /// Charges for values that are copied, before they are.
    pub fn charge_values<'v>(&self, values: impl Iterator<Item = &'v Value>) -> Result<()> {
        let (bytes, memory) = values.fold((0_usize, 0_usize), |(bytes, memory), value| {
            (
                bytes.saturating_add(size(value)),
                memory.saturating_add(memory_size(value)),
            )
        });
        self.reserve(memory)?;
        self.charge((bytes / STEP_BYTES) as u64)
    }

    /// An owned value; a copy is charged for its size.
    pub fn own(&self, value: Cow<'_, Value>) -> Result<Value> {
        if let Cow::Borrowed(value) = &value {
            let bytes = size(value);
            if bytes >= RESERVED_BYTES_MIN {
                self.reserve(memory_size(value))?;
            }
            self.charge((bytes / STEP_BYTES) as u64)?;
        }
        Ok(value.into_owned())
    }

    /// Charges for a key that is made or copied, unless it is short: keys are made for each row.
    pub fn charge_key(&self, bytes: usize) -> Result<()> {
        if bytes < RESERVED_BYTES_MIN {
            return Ok(());
        }
        self.charge_bytes(bytes)
    }

    /// An owned value that is the key of a group.
    pub fn own_key(&self, value: Cow<'_, Value>) -> Result<Value> {
        if let Cow::Borrowed(value) = &value {
            self.charge_key(memory_size(value))?;
        }
        Ok(value.into_owned())
    }

    /// An owned value as ORDER BY looks at it; of arrays and objects nothing is copied.
    pub fn order_key(&self, value: Cow<'_, Value>) -> Result<Value> {
        if let Cow::Borrowed(Value::String(text)) = &value {
            self.charge_key(text.len())?;
        }
        Ok(order_key(value))
    }

    /// Asks for the memory that a list or a table takes when it has to grow for one element more:
    /// it doubles, and the old one stays until the new one is there.
    pub fn reserve_growth(&self, len: usize, capacity: usize, element_bytes: usize) -> Result<()> {
        if len < capacity {
            return Ok(());
        }
        self.reserve(capacity.saturating_mul(2).saturating_mul(element_bytes))
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

/// Bytes that a value takes as work to copy it is charged; what it takes of the memory is
/// [`memory_size`].
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

/// What a property takes besides its name and its value: its place in the table and its hash.
const PROPERTY_BYTES: usize = 96;

/// About how many bytes of memory a value takes, for systems where the allocator does not count
/// and for what is not made yet.
pub fn memory_size(value: &Value) -> usize {
    let behind: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) if !items.is_empty() => {
            let bytes: usize = items.iter().map(memory_size).sum();
            bytes.max(LIST_BYTES_MIN)
        }
        Value::Object(object) if !object.is_empty() => {
            let bytes: usize = object
                .iter()
                .map(|(name, value)| PROPERTY_BYTES + name.len() + memory_size(value))
                .sum();
            bytes.max(OBJECT_BYTES_MIN)
        }
        _ => 0,
    };
    size_of::<Value>() + behind
}

/// What a list and an object take at least, with room for a few values.
const LIST_BYTES_MIN: usize = 4 * size_of::<Value>();
const OBJECT_BYTES_MIN: usize = 4 * (size_of::<Value>() + size_of::<String>() + PROPERTY_BYTES);

/// About how many bytes of memory the value of a valid JSON text takes, at most.
pub fn parsed_size(json: &[u8]) -> usize {
    // A list may have room for twice its values.
    const VALUE_BYTES: usize = 2 * size_of::<Value>();
    let mut bytes = json.len().saturating_add(VALUE_BYTES);
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        bytes += match byte {
            b',' => VALUE_BYTES,
            b':' => PROPERTY_BYTES,
            b'[' if json.get(at) != Some(&b']') => LIST_BYTES_MIN,
            b'{' if json.get(at) != Some(&b'}') => OBJECT_BYTES_MIN,
            b'"' => {
                at += text_length(json.get(at..).unwrap_or_default());
                0
            }
            _ => 0,
        };
    }
    bytes
}

/// The length of a text that begins behind its first quote, with its last one.
fn text_length(json: &[u8]) -> usize {
    let mut at = 0;
    while let Some(end) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        at += end + 1;
        if json.get(at - 1) == Some(&b'"') {
            return at;
        }
        // What follows a backslash is no end.
        at += 1;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts how often it is asked, and refuses from a number of bytes on.
    struct Strict {
        asked: AtomicUsize,
        bytes_max: usize,
    }

    impl Guard for Strict {
        fn check(&self, more_bytes: usize) -> Result<()> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if more_bytes <= self.bytes_max {
                return Ok(());
            }
            Err(Error::bad_request("too much"))
        }
    }

    fn guarded(bytes_max: usize) -> (Context, Arc<Strict>) {
        let guard = Arc::new(Strict {
            asked: AtomicUsize::new(0),
            bytes_max,
        });
        let mut context = Context::new(0);
        context.set_guard(Arc::clone(&guard) as Arc<dyn Guard>);
        (context, guard)
    }

    #[test]
    fn guard_is_asked_within_an_item() {
        let (context, guard) = guarded(usize::MAX);
        for _ in 0..10 * STEPS_PER_CHECK {
            context.charge(1).unwrap();
        }
        let asked = guard.asked.load(Ordering::Relaxed);
        assert!((9..=10).contains(&asked), "{asked}");
    }

    #[test]
    fn guard_is_asked_before_much_is_copied() {
        let (context, guard) = guarded(100_000);
        assert!(context.charge_bytes(100_001).is_err());
        assert!(context.reserve(100_001).is_err());
        let many = json!(vec![0; 2_000]);
        assert!(context.own(Cow::Borrowed(&many)).is_err());
        assert!(context.own_key(Cow::Borrowed(&many)).is_err());
        let items = many.as_array().unwrap();
        assert!(context.charge_values(items.iter()).is_err());
        let asked = guard.asked.load(Ordering::Relaxed);
        context.reserve(RESERVED_BYTES_MIN - 1).unwrap();
        assert_eq!(guard.asked.load(Ordering::Relaxed), asked);
    }

    #[test]
    fn sizes_are_no_less_than_the_memory_of_values() {
        let wide: serde_json::Map<_, _> =
            (0..1_000).map(|n| (format!("name{n}"), json!(n))).collect();
        for value in [
            json!(vec![1; 10_000]),
            json!(vec!["x".repeat(100); 1_000]),
            json!(vec![json!({"a": 1, "b": [1, 2]}); 1_000]),
            json!(vec![json!([1]); 1_000]),
            json!(vec![json!({"a": 1}); 1_000]),
            json!(vec![json!({}); 1_000]),
            json!("\",[{:\\".repeat(1_000)),
            Value::Object(wide),
        ] {
            let text = value.to_string();
            let Some(before) = crate::memory::allocator::net_bytes() else {
                return;
            };
            let parsed: Value = serde_json::from_str(&text).unwrap();
            let taken = crate::memory::allocator::net_bytes().unwrap() - before;
            let taken = usize::try_from(taken).unwrap();
            let (size, ahead) = (memory_size(&parsed), parsed_size(text.as_bytes()));
            // Lists may have room for more than they hold.
            assert!(size * 2 >= taken, "{size} for {taken}");
            assert!(ahead >= taken, "{ahead} ahead for {taken}");
            // Texts with escapes are taken for more than they are.
            assert!(ahead <= 12 * taken + 1_000, "{ahead} ahead for {taken}");
        }
    }
}
