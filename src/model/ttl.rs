//! Time to live, exactly: which values are legal, and when an item is gone.
//!
//! Times are whole seconds since the epoch in 64 bits, so `_ts + ttl` cannot overflow.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{Error, Result};

/// The largest ttl that the protocol allows, in seconds.
pub const TTL_SECONDS_MAX: u32 = i32::MAX as u32;

/// A container's `defaultTtl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DefaultTtl {
    /// Absent: time to live is off and items' own ttl is not interpreted.
    #[default]
    Off,
    /// -1: on, but items without a ttl of their own live for ever.
    NoDefault,
    /// n: items without a ttl of their own live n seconds.
    After(NonZeroU32),
}

/// An item's `ttl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemTtl {
    /// Absent: the container's default counts.
    #[default]
    Inherit,
    /// -1: never expires.
    Never,
    /// n: n seconds after the last write.
    After(NonZeroU32),
}

/// Reads a `-1` or `1..=2147483647`; `60.0` equals 60.
fn seconds(value: &Value) -> Option<Option<NonZeroU32>> {
    let number = value.as_f64()?;
    if number == -1.0 {
        return Some(None);
    }
    let whole = number.fract() == 0.0 && number >= 1.0 && number <= f64::from(TTL_SECONDS_MAX);
    whole.then(|| NonZeroU32::new(number as u32))
}

impl DefaultTtl {
    /// From the `defaultTtl` property of a container; absent and null are off.
    pub fn from_json(value: Option<&Value>) -> Result<Self> {
        match value {
            None | Some(Value::Null) => Ok(Self::Off),
            Some(value) => match seconds(value) {
                Some(Some(n)) => Ok(Self::After(n)),
                Some(None) => Ok(Self::NoDefault),
                None => Err(Error::bad_request(format!(
                    "the value {value} of 'defaultTtl' is not valid: it must be -1 or a whole number of seconds \
                     from 1 to {TTL_SECONDS_MAX}, or be left out to switch time to live off"
                ))),
            },
        }
    }

    pub fn to_json(self) -> Option<Value> {
        match self {
            Self::Off => None,
            Self::NoDefault => Some(Value::from(-1)),
            Self::After(n) => Some(Value::from(n.get())),
        }
    }
}

impl ItemTtl {
    /// From the `ttl` property of an item; only absence inherits, null is refused.
    pub fn from_json(value: Option<&Value>) -> Result<Self> {
        match value {
            None => Ok(Self::Inherit),
            Some(value) => match seconds(value) {
                Some(Some(n)) => Ok(Self::After(n)),
                Some(None) => Ok(Self::Never),
                None => Err(Error::bad_request(format!(
                    "the value {value} of 'ttl' is not valid: it must be -1 or a whole number of seconds from 1 to \
                     {TTL_SECONDS_MAX}, or be left out to take the container's default"
                ))),
            },
        }
    }

    /// The second at which an item with this ttl of its own falls due; `None` when it has none.
    pub fn own_due(self, ts: i64) -> Option<i64> {
        match self {
            Self::After(n) => Some(ts + i64::from(n.get())),
            Self::Inherit | Self::Never => None,
        }
    }
}

/// What decides expiry in one shard: the container's default and two watermarks that make expiry final.
///
/// Invariant: the watermarks never go down, so an item that was once expired stays expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiryRules {
    pub default: DefaultTtl,
    /// Items that inherit and have `_ts <=` this are dead for ever.
    pub inherit_dead_through: i64,
    /// Items with a ttl of their own that fell due `<=` this are dead for ever.
    pub own_dead_through: i64,
}

impl ExpiryRules {
    pub fn new(default: DefaultTtl) -> Self {
        Self { default, inherit_dead_through: i64::MIN, own_dead_through: i64::MIN }
    }

    /// Inheriting items with `_ts <=` the answer are expired at `now`.
    pub fn inherit_horizon(&self, now: i64) -> i64 {
        match self.default {
            DefaultTtl::After(n) => self.inherit_dead_through.max(now - i64::from(n.get())),
            DefaultTtl::Off | DefaultTtl::NoDefault => self.inherit_dead_through,
        }
    }

    /// Items with a ttl of their own that fall due `<=` the answer are expired at `now`.
    pub fn own_horizon(&self, now: i64) -> i64 {
        match self.default {
            DefaultTtl::Off => self.own_dead_through,
            DefaultTtl::NoDefault | DefaultTtl::After(_) => self.own_dead_through.max(now),
        }
    }

    pub fn is_expired(&self, ts: i64, ttl: ItemTtl, now: i64) -> bool {
        match ttl {
            ItemTtl::Never => false,
            ItemTtl::Inherit => ts <= self.inherit_horizon(now),
            ItemTtl::After(n) => ts + i64::from(n.get()) <= self.own_horizon(now),
        }
    }

    /// The rules after the default changed at `now`. O(1): nothing is moved, the watermarks keep what was already dead.
    pub fn with_default(self, default: DefaultTtl, now: i64) -> Self {
        Self {
            default,
            inherit_dead_through: self.inherit_horizon(now),
            own_dead_through: self.own_horizon(now),
        }
    }

    /// When the earliest item of a lane falls due: `_ts` of the oldest inheriting item, due second of the first own one.
    pub fn next_due(&self, oldest_inherit_ts: Option<i64>, first_own_due: Option<i64>) -> Option<i64> {
        let inherit = match self.default {
            DefaultTtl::After(n) => oldest_inherit_ts.map(|ts| ts + i64::from(n.get())),
            DefaultTtl::Off | DefaultTtl::NoDefault => None,
        };
        let own = if self.default == DefaultTtl::Off { None } else { first_own_due };
        match (inherit, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
