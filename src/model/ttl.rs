//! The values of time to live: `defaultTtl` of a container and `ttl` of an item. `expiry` has the
//! rules that they follow.
//!
//! Times are whole seconds since the epoch in 64 bits, so `_ts + ttl` cannot overflow.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::{Error, Result};
use super::json::show;

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
                    "the value {} of 'defaultTtl' is not valid: it must be -1 or a whole number of seconds \
                     from 1 to {TTL_SECONDS_MAX}, or be left out to switch time to live off",
                    show(value)
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
                    "the value {} of 'ttl' is not valid: it must be -1 or a whole number of seconds from 1 to \
                     {TTL_SECONDS_MAX}, or be left out to take the container's default",
                    show(value)
                ))),
            },
        }
    }

    /// Returns the second at which an item with this ttl of its own expires; `None` when it has
    /// none.
    pub fn own_expiry(self, ts: i64) -> Option<i64> {
        match self {
            Self::After(n) => Some(ts + i64::from(n.get())),
            Self::Inherit | Self::Never => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own(seconds: i64) -> ItemTtl {
        ItemTtl::from_json(Some(&json!(seconds))).expect("a legal ttl")
    }

    #[test]
    fn legal_values_are_read_and_written_back() {
        for (given, kept) in [
            (-1.0, -1),
            (1.0, 1),
            (60.0, 60),
            (2_147_483_647.0, 2_147_483_647),
        ] {
            for value in [json!(given), json!(given as i64)] {
                let read = DefaultTtl::from_json(Some(&value)).expect("legal");
                assert_eq!(read.to_json(), Some(json!(kept)));
                assert_eq!(ItemTtl::from_json(Some(&value)).expect("legal"), own(kept));
            }
        }
        assert_eq!(DefaultTtl::from_json(None), Ok(DefaultTtl::Off));
        assert_eq!(
            DefaultTtl::from_json(Some(&Value::Null)),
            Ok(DefaultTtl::Off)
        );
        assert_eq!(DefaultTtl::Off.to_json(), None);
        assert_eq!(ItemTtl::from_json(None), Ok(ItemTtl::Inherit));
    }

    #[test]
    fn illegal_values_are_refused_by_name() {
        for value in [
            json!(0),
            json!(-0.0),
            json!(-2),
            json!(-10),
            json!(1.5),
            json!(-1.5),
            json!(0.999),
            json!(2_147_483_648_u64),
            json!(2_147_483_647.5),
            json!(4_294_967_297_u64),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!("60"),
            json!(true),
            json!([60]),
            json!({"seconds": 60}),
        ] {
            let container = DefaultTtl::from_json(Some(&value)).expect_err("illegal");
            let item = ItemTtl::from_json(Some(&value)).expect_err("illegal");
            for (error, name) in [(container, "'defaultTtl'"), (item, "'ttl'")] {
                assert_eq!((error.status(), error.substatus()), (400, 0));
                for part in [value.to_string().as_str(), name, "2147483647"] {
                    assert!(error.message.contains(part), "{error} lacks {part}");
                }
            }
        }
        let error = ItemTtl::from_json(Some(&Value::Null)).expect_err("null is no ttl of an item");
        assert!(error.message.contains("the value null of 'ttl'"), "{error}");
        let error = ItemTtl::from_json(Some(&json!("x".repeat(10_000)))).expect_err("long");
        assert!(error.message.len() < 400, "{error}");
    }
}
