//! How much throughput a database or container has.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::checks::{expect_object, invalid, missing, present, shown_text, whole_number};
use crate::model::error::{Error, Result};

/// Fixed throughput starts here and goes in these steps, in request units per second.
pub const MANUAL_MIN: u32 = 400;
pub const MANUAL_STEP: u32 = 100;
/// The maximum of autoscale starts here and goes in these steps, in request units per second.
pub const AUTOSCALE_MIN: u32 = 1_000;
pub const AUTOSCALE_STEP: u32 = 1_000;
/// The most throughput of one database or container, in request units per second.
pub const THROUGHPUT_MAX: u32 = 1_000_000;
/// How far autoscale may raise its own maximum at a time, in percent.
pub const INCREMENT_PERCENT_MAX: u32 = 100;
/// What one shard serves, in request units per second.
pub const SHARD_REQUEST_UNITS_PER_SECOND: u32 = 10_000;

/// Autoscale rests at a tenth of its maximum.
const AUTOSCALE_IDLE_DIVISOR: u32 = 10;

/// Provisioned throughput in request units per second. Invariant: within its limits and on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Throughput {
    Manual(u32),
    Autoscale { max: u32, increment_percent: u32 },
}

impl Default for Throughput {
    /// What a container gets that asks for none and whose database has none to share.
    fn default() -> Self {
        Self::Manual(MANUAL_MIN)
    }
}

impl Throughput {
    /// From the headers `x-ms-offer-throughput` and `x-ms-cosmos-offer-autopilot-settings` of a create;
    /// `None` when neither is there.
    pub fn from_headers(throughput: Option<&str>, autopilot: Option<&str>) -> Result<Option<Self>> {
        match (throughput, autopilot) {
            (None, None) => Ok(None),
            (Some(text), None) => {
                let value = text.trim().parse::<i64>().map_err(|_| {
                    Error::bad_request(format!(
                        "the header x-ms-offer-throughput must be a whole number, not '{}'",
                        shown_text(text)
                    ))
                })?;
                Ok(Some(Self::Manual(checked(value, MANUAL_MIN, MANUAL_STEP)?)))
            }
            (None, Some(text)) => {
                let value: Value = serde_json::from_str(text).map_err(|_| {
                    Error::bad_request(format!(
                        "the header x-ms-cosmos-offer-autopilot-settings must be JSON, not '{}'",
                        shown_text(text)
                    ))
                })?;
                Self::autoscale_from_json(&value).map(Some)
            }
            (Some(_), Some(_)) => Err(Error::bad_request(
                "throughput is either fixed (x-ms-offer-throughput) or autoscale \
                 (x-ms-cosmos-offer-autopilot-settings), not both",
            )),
        }
    }

    pub(super) fn manual_from_json(value: &Value) -> Result<Self> {
        let number = whole_number(value)
            .ok_or_else(|| invalid("offerThroughput", value, "a whole number"))?;
        Ok(Self::Manual(checked(number, MANUAL_MIN, MANUAL_STEP)?))
    }

    /// From `{"maxThroughput":n,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":p}}}`.
    pub(super) fn autoscale_from_json(value: &Value) -> Result<Self> {
        let settings = expect_object("offerAutopilotSettings", value)?;
        let max = present(settings, "maxThroughput").ok_or_else(|| missing("maxThroughput"))?;
        let number =
            whole_number(max).ok_or_else(|| invalid("maxThroughput", max, "a whole number"))?;
        let max = checked(number, AUTOSCALE_MIN, AUTOSCALE_STEP)?;
        let policy = match present(settings, "autoUpgradePolicy") {
            Some(policy) => present(
                expect_object("autoUpgradePolicy", policy)?,
                "throughputPolicy",
            ),
            None => None,
        };
        let increment = match policy {
            Some(policy) => present(
                expect_object("throughputPolicy", policy)?,
                "incrementPercent",
            ),
            None => None,
        };
        let increment_percent = match increment {
            None => 0,
            Some(value) => whole_number(value)
                .and_then(|percent| u32::try_from(percent).ok())
                .filter(|percent| *percent <= INCREMENT_PERCENT_MAX)
                .ok_or_else(|| {
                    invalid("incrementPercent", value, "a whole number from 0 to 100")
                })?,
        };
        Ok(Self::Autoscale {
            max,
            increment_percent,
        })
    }

    /// The autoscale that serves at least what was fixed before.
    pub(super) fn autoscale_after(manual: u32) -> Self {
        let max = manual
            .div_ceil(AUTOSCALE_STEP)
            .saturating_mul(AUTOSCALE_STEP);
        Self::Autoscale {
            max: max.clamp(AUTOSCALE_MIN, THROUGHPUT_MAX),
            increment_percent: 0,
        }
    }

    /// What requests may use in a second.
    pub fn request_units_per_second(&self) -> u32 {
        match self {
            Self::Manual(fixed) => *fixed,
            Self::Autoscale { max, .. } => *max,
        }
    }

    /// One shard for each 10,000 request units per second begun.
    pub fn shard_count(&self) -> u32 {
        self.request_units_per_second()
            .div_ceil(SHARD_REQUEST_UNITS_PER_SECOND)
            .max(1)
    }

    /// The least to which this throughput can be lowered: the answer's `x-ms-cosmos-min-throughput`.
    pub fn minimum(&self) -> u32 {
        match self {
            Self::Manual(_) => MANUAL_MIN,
            Self::Autoscale { .. } => AUTOSCALE_MIN,
        }
    }

    /// `offerThroughput` as clients read it.
    pub(super) fn returned(&self) -> u32 {
        match self {
            Self::Manual(fixed) => *fixed,
            Self::Autoscale { max, .. } => max / AUTOSCALE_IDLE_DIVISOR,
        }
    }

    /// The `content` of an offer. Autoscale always has its `autoUpgradePolicy`: the Python client writes into it.
    pub(super) fn to_json(self) -> Value {
        let mut content = json!({
            "offerThroughput": self.returned(),
            "offerIsRUPerMinuteThroughputEnabled": false,
        });
        if let Self::Autoscale {
            max,
            increment_percent,
        } = self
            && let Some(object) = content.as_object_mut()
        {
            let settings = json!({
                "maxThroughput": max,
                "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": increment_percent}},
            });
            object.insert("offerAutopilotSettings".to_owned(), settings);
        }
        content
    }
}

fn checked(requested: i64, min: u32, step: u32) -> Result<u32> {
    let range = format!(
        "The offer should have valid throughput values between {min} and {THROUGHPUT_MAX} inclusive in increments of \
         {step}."
    );
    if requested < i64::from(min) {
        return Err(Error::bad_request(format!(
            "{range} Requested throughput {requested} is less than required minimum throughput {min}."
        )));
    }
    match u32::try_from(requested) {
        Ok(throughput) if throughput > THROUGHPUT_MAX => {}
        Ok(throughput) if throughput % step == 0 => return Ok(throughput),
        Ok(_) => {
            return Err(Error::bad_request(format!(
                "{range} Requested throughput {requested} is not a multiple of {step}."
            )));
        }
        Err(_) => {}
    }
    Err(Error::bad_request(format!(
        "{range} Requested throughput {requested} is greater than the maximum throughput {THROUGHPUT_MAX}."
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_headers() {
        let autoscale = |max, increment_percent| Throughput::Autoscale {
            max,
            increment_percent,
        };
        let cases = [
            (None, None, None),
            (Some("400"), None, Some(Throughput::Manual(400))),
            (Some(" 500 "), None, Some(Throughput::Manual(500))),
            (Some("1000000"), None, Some(Throughput::Manual(1_000_000))),
            (
                None,
                Some(r#"{"maxThroughput":1000}"#),
                Some(autoscale(1000, 0)),
            ),
            (
                None,
                Some(
                    r#"{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":11}}}"#,
                ),
                Some(autoscale(4000, 11)),
            ),
            (
                None,
                Some(r#"{"maxThroughput":7000,"autoUpgradePolicy":{}}"#),
                Some(autoscale(7000, 0)),
            ),
            (
                None,
                Some(r#"{"maxThroughput":7000,"autoUpgradePolicy":null}"#),
                Some(autoscale(7000, 0)),
            ),
        ];
        for (throughput, autopilot, expected) in cases {
            let read = Throughput::from_headers(throughput, autopilot);
            assert_eq!(read, Ok(expected), "{throughput:?} {autopilot:?}");
        }
    }

    #[test]
    fn bad_create_headers_are_refused_and_the_value_is_named() {
        let cases = [
            (
                Some("399"),
                None,
                "Requested throughput 399 is less than required minimum throughput 400",
            ),
            (
                Some("0"),
                None,
                "Requested throughput 0 is less than required minimum throughput 400",
            ),
            (
                Some("-5"),
                None,
                "Requested throughput -5 is less than required minimum throughput 400",
            ),
            (
                Some("450"),
                None,
                "Requested throughput 450 is not a multiple of 100",
            ),
            (
                Some("1000100"),
                None,
                "Requested throughput 1000100 is greater than the maximum",
            ),
            (
                Some("5000000000"),
                None,
                "Requested throughput 5000000000 is greater than the maximum",
            ),
            (Some("lots"), None, "not 'lots'"),
            (Some(""), None, "not ''"),
            (Some("400.5"), None, "not '400.5'"),
            (
                Some("99999999999999999999"),
                None,
                "not '99999999999999999999'",
            ),
            (
                None,
                Some(r#"{"maxThroughput":-200}"#),
                "Requested throughput -200 is less than required minimum throughput 1000",
            ),
            (
                None,
                Some(r#"{"maxThroughput":999}"#),
                "Requested throughput 999 is less than required minimum",
            ),
            (
                None,
                Some(r#"{"maxThroughput":1500}"#),
                "Requested throughput 1500 is not a multiple of 1000",
            ),
            (
                None,
                Some(r#"{"maxThroughput":1001000}"#),
                "greater than the maximum",
            ),
            (
                None,
                Some(r#"{"maxThroughput":"4000"}"#),
                "'maxThroughput' must be a whole number, not \"4000\"",
            ),
            (None, Some("{}"), "'maxThroughput' is missing"),
            (None, Some("4000"), "must be an object, not 4000"),
            (None, Some("{max:4000}"), "must be JSON, not '{max:4000}'"),
            (
                None,
                Some(r#"{"maxThroughput":1000,"autoUpgradePolicy":5}"#),
                "'autoUpgradePolicy' must be an object",
            ),
            (
                None,
                Some(
                    r#"{"maxThroughput":1000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":101}}}"#,
                ),
                "'incrementPercent' must be a whole number from 0 to 100, not 101",
            ),
            (
                None,
                Some(
                    r#"{"maxThroughput":1000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":-1}}}"#,
                ),
                "not -1",
            ),
            (Some("400"), Some(r#"{"maxThroughput":1000}"#), "not both"),
        ];
        for (throughput, autopilot, fragment) in cases {
            let error = Throughput::from_headers(throughput, autopilot).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(
                error.message.contains(fragment),
                "'{fragment}' is not in '{error}'"
            );
        }
    }

    #[test]
    fn one_shard_for_each_ten_thousand_request_units_begun() {
        let autoscale = |max| Throughput::Autoscale {
            max,
            increment_percent: 0,
        };
        let cases = [
            (Throughput::default(), 400, 1),
            (Throughput::Manual(10_000), 10_000, 1),
            (Throughput::Manual(10_100), 10_100, 2),
            (Throughput::Manual(20_000), 20_000, 2),
            (Throughput::Manual(1_000_000), 1_000_000, 100),
            (autoscale(1_000), 1_000, 1),
            (autoscale(11_000), 11_000, 2),
        ];
        for (throughput, request_units, shards) in cases {
            assert_eq!(
                throughput.request_units_per_second(),
                request_units,
                "{throughput:?}"
            );
            assert_eq!(throughput.shard_count(), shards, "{throughput:?}");
        }
    }

    #[test]
    fn migrating_to_autoscale_never_lowers_what_is_served() {
        for manual in [400, 1_000, 1_100, 9_900, 10_000, THROUGHPUT_MAX] {
            let after = Throughput::autoscale_after(manual).request_units_per_second();
            assert!(
                after >= manual && after.is_multiple_of(AUTOSCALE_STEP),
                "{manual} became {after}"
            );
        }
    }
}
