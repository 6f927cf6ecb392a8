//! Provisioned throughput, and the offer resources through which clients read and change it.

mod throughput;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use throughput::{
    AUTOSCALE_MIN, AUTOSCALE_STEP, INCREMENT_PERCENT_MAX, MANUAL_MIN, MANUAL_STEP,
    SHARD_REQUEST_UNITS_PER_SECOND, THROUGHPUT_MAX, Throughput,
};

use super::checks::{expect_object, expect_text, missing, present, shown_text, whole_number};
use super::error::{Error, Result};

/// How a request changes the kind of an offer, from its two migration headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    ToAutoscale,
    ToManual,
}

impl Migration {
    /// From the values of `x-ms-cosmos-migrate-offer-to-autopilot` and
    /// `x-ms-cosmos-migrate-offer-to-manual-throughput`.
    pub fn from_headers(
        to_autopilot: Option<&str>,
        to_manual: Option<&str>,
    ) -> Result<Option<Self>> {
        let autopilot = switch("x-ms-cosmos-migrate-offer-to-autopilot", to_autopilot)?;
        let manual = switch("x-ms-cosmos-migrate-offer-to-manual-throughput", to_manual)?;
        match (autopilot, manual) {
            (false, false) => Ok(None),
            (true, false) => Ok(Some(Self::ToAutoscale)),
            (false, true) => Ok(Some(Self::ToManual)),
            (true, true) => Err(Error::bad_request(
                "an offer cannot be migrated to autoscale and to manual throughput in one request",
            )),
        }
    }
}

fn switch(header: &str, value: Option<&str>) -> Result<bool> {
    match value.map(str::trim) {
        None => Ok(false),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(text) => Err(Error::bad_request(format!(
            "the header {header} must be 'true' or 'false', not '{}'",
            shown_text(text)
        ))),
    }
}

/// The throughput of one database or container as a resource of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Of the offer; also its id.
    pub rid: String,
    /// `_self` of the database or container, character for character: clients look offers up by it.
    pub resource: String,
    /// `_rid` of the database or container.
    pub resource_rid: String,
    pub throughput: Throughput,
}

impl Offer {
    /// The resource as the server returns it; `etag` includes its quotes.
    pub fn to_json(&self, etag: &str, ts: i64) -> Map<String, Value> {
        let json = json!({
            "id": self.rid,
            "_rid": self.rid,
            "_self": format!("offers/{}/", self.rid),
            "_etag": etag,
            "_ts": ts,
            "resource": self.resource,
            "offerResourceId": self.resource_rid,
            "offerType": "Invalid",
            "offerVersion": "V2",
            "content": self.throughput.to_json(),
        });
        match json {
            Value::Object(object) => object,
            _ => Map::new(),
        }
    }

    /// The offer after a PUT of `body`. Between manual and autoscale only a migration leads.
    pub fn replaced_by(
        &self,
        body: &Map<String, Value>,
        migration: Option<Migration>,
    ) -> Result<Self> {
        self.check_identity(body)?;
        let content = present(body, "content").ok_or_else(|| missing("content"))?;
        let content = expect_object("content", content)?;
        let throughput = match (self.throughput, migration) {
            (Throughput::Manual(now), Some(Migration::ToAutoscale)) => {
                match present(content, "offerAutopilotSettings") {
                    Some(settings) => Throughput::autoscale_from_json(settings)?,
                    None => Throughput::autoscale_after(now),
                }
            }
            (Throughput::Autoscale { max, .. }, Some(Migration::ToManual)) => {
                match self.sent_throughput(content) {
                    Some(value) => Throughput::manual_from_json(value)?,
                    None => Throughput::Manual(max),
                }
            }
            (Throughput::Manual(_), _) => replaced_manual(content)?,
            (Throughput::Autoscale { .. }, _) => self.replaced_autoscale(content)?,
        };
        Ok(Self {
            throughput,
            ..self.clone()
        })
    }

    fn replaced_autoscale(&self, content: &Map<String, Value>) -> Result<Throughput> {
        let Some(settings) = present(content, "offerAutopilotSettings") else {
            return Err(Error::bad_request(
                "the offer is autoscale: 'content' must have 'offerAutopilotSettings', or the request the header \
                 x-ms-cosmos-migrate-offer-to-manual-throughput",
            ));
        };
        let throughput = Throughput::autoscale_from_json(settings)?;
        // Only a fixed number was changed: that would be lost without a word.
        if throughput == self.throughput
            && let Some(value) = self.sent_throughput(content)
        {
            return Err(Error::bad_request(format!(
                "the offer is autoscale and takes no 'offerThroughput' {value}: change \
                 'offerAutopilotSettings.maxThroughput', or migrate with the header \
                 x-ms-cosmos-migrate-offer-to-manual-throughput"
            )));
        }
        Ok(throughput)
    }

    /// `offerThroughput`, unless it is the one that the client read or the -1 that stands for "yours to choose".
    fn sent_throughput<'a>(&self, content: &'a Map<String, Value>) -> Option<&'a Value> {
        let read = i64::from(self.throughput.returned());
        present(content, "offerThroughput").filter(
            |value| !matches!(whole_number(value), Some(number) if number == -1 || number == read),
        )
    }

    /// A body that names another offer or resource was meant for that one. Empty names are none.
    fn check_identity(&self, body: &Map<String, Value>) -> Result<()> {
        let known = [
            ("id", &self.rid),
            ("_rid", &self.rid),
            ("resource", &self.resource),
            ("offerResourceId", &self.resource_rid),
        ];
        for (name, expected) in known {
            let Some(value) = present(body, name) else {
                continue;
            };
            let text = expect_text(name, value)?;
            if !text.is_empty() && text != expected {
                return Err(Error::bad_request(format!(
                    "'{name}' of the offer '{}' is '{expected}' and cannot become '{}'",
                    self.rid,
                    shown_text(text)
                )));
            }
        }
        Ok(())
    }
}

fn replaced_manual(content: &Map<String, Value>) -> Result<Throughput> {
    if present(content, "offerAutopilotSettings").is_some() {
        return Err(Error::bad_request(
            "the offer is manual: to have 'offerAutopilotSettings', send the header \
             x-ms-cosmos-migrate-offer-to-autopilot",
        ));
    }
    let value = present(content, "offerThroughput").ok_or_else(|| missing("offerThroughput"))?;
    Throughput::manual_from_json(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: Throughput = Throughput::Manual(500);
    const AUTOSCALE: Throughput = Throughput::Autoscale {
        max: 4_000,
        increment_percent: 1,
    };

    fn offer(throughput: Throughput) -> Offer {
        Offer {
            rid: "GSE2".to_owned(),
            resource: "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/".to_owned(),
            resource_rid: "AAAD6YAAAAE=".to_owned(),
            throughput,
        }
    }

    /// The whole offer with this content, as clients send it back.
    fn body(throughput: Throughput, content: Value) -> Map<String, Value> {
        let mut body = offer(throughput).to_json("\"e\"", 1);
        body.insert("content".to_owned(), content);
        body
    }

    #[test]
    fn offers_as_the_protocol_has_them() {
        let mut expected = json!({
            "id": "GSE2", "_rid": "GSE2", "_self": "offers/GSE2/", "_etag": "\"e\"", "_ts": 1_790_000_000,
            "resource": "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/", "offerResourceId": "AAAD6YAAAAE=",
            "offerType": "Invalid", "offerVersion": "V2",
            "content": {"offerThroughput": 500, "offerIsRUPerMinuteThroughputEnabled": false}
        });
        let json = offer(MANUAL).to_json("\"e\"", 1_790_000_000);
        assert_eq!(Value::Object(json), expected);
        expected["content"] = json!({
            "offerThroughput": 400, "offerIsRUPerMinuteThroughputEnabled": false,
            "offerAutopilotSettings": {
                "maxThroughput": 4000, "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": 1}}
            }
        });
        let json = offer(AUTOSCALE).to_json("\"e\"", 1_790_000_000);
        assert_eq!(Value::Object(json), expected);
    }

    #[test]
    fn offers_survive_the_disk() {
        for throughput in [MANUAL, AUTOSCALE] {
            let bytes = rmp_serde::to_vec(&offer(throughput)).unwrap();
            assert_eq!(
                rmp_serde::from_slice::<Offer>(&bytes).unwrap(),
                offer(throughput)
            );
        }
    }

    #[test]
    fn replacing() {
        let autoscale = |max, increment_percent| Throughput::Autoscale {
            max,
            increment_percent,
        };
        let to_autoscale = Some(Migration::ToAutoscale);
        let to_manual = Some(Migration::ToManual);
        let read = offer(AUTOSCALE).to_json("\"e\"", 1)["content"].clone();
        let mut fixed = read.clone();
        fixed["offerThroughput"] = json!(2500);
        let cases = [
            (
                MANUAL,
                json!({"offerThroughput": 1000}),
                None,
                Throughput::Manual(1000),
            ),
            (
                MANUAL,
                json!({"offerThroughput": 1000.0, "offerAutopilotSettings": null}),
                None,
                Throughput::Manual(1000),
            ),
            (
                MANUAL,
                json!({"offerThroughput": 1000}),
                to_manual,
                Throughput::Manual(1000),
            ),
            (
                MANUAL,
                json!({"offerThroughput": -1}),
                to_autoscale,
                autoscale(1000, 0),
            ),
            (
                MANUAL,
                json!({"offerThroughput": 500}),
                to_autoscale,
                autoscale(1000, 0),
            ),
            (
                Throughput::Manual(4100),
                json!({}),
                to_autoscale,
                autoscale(5000, 0),
            ),
            (
                MANUAL,
                json!({"offerAutopilotSettings": {"maxThroughput": 7000}}),
                to_autoscale,
                autoscale(7000, 0),
            ),
            (AUTOSCALE, read.clone(), None, AUTOSCALE),
            (
                AUTOSCALE,
                json!({"offerAutopilotSettings": {"maxThroughput": 7000}}),
                None,
                autoscale(7000, 0),
            ),
            (
                AUTOSCALE,
                json!({"offerAutopilotSettings": {"maxThroughput": 7000,
                "autoUpgradePolicy": {"throughputPolicy": {"incrementPercent": 20}}}}),
                None,
                autoscale(7000, 20),
            ),
            (
                AUTOSCALE,
                json!({"offerAutopilotSettings": {"maxThroughput": 7000}}),
                to_autoscale,
                autoscale(7000, 0),
            ),
            (
                AUTOSCALE,
                json!({"offerThroughput": -1}),
                to_manual,
                Throughput::Manual(4000),
            ),
            (AUTOSCALE, read, to_manual, Throughput::Manual(4000)),
            (AUTOSCALE, fixed, to_manual, Throughput::Manual(2500)),
            (AUTOSCALE, json!({}), to_manual, Throughput::Manual(4000)),
        ];
        for (now, content, migration, expected) in cases {
            let replaced = offer(now).replaced_by(&body(now, content.clone()), migration);
            assert_eq!(replaced, Ok(offer(expected)), "{content} {migration:?}");
        }
    }

    #[test]
    fn bad_replacements() {
        let mut fixed = offer(AUTOSCALE).to_json("\"e\"", 1)["content"].clone();
        fixed["offerThroughput"] = json!(2500);
        let cases = [
            (MANUAL, json!({}), None, "'offerThroughput' is missing"),
            (
                MANUAL,
                json!([]),
                None,
                "'content' must be an object, not []",
            ),
            (MANUAL, json!(null), None, "'content' is missing"),
            (
                MANUAL,
                json!({"offerThroughput": 300}),
                None,
                "Requested throughput 300 is less than required minimum",
            ),
            (
                MANUAL,
                json!({"offerThroughput": "many"}),
                None,
                "not \"many\"",
            ),
            (MANUAL, json!({"offerThroughput": 450}), None, "450"),
            (
                MANUAL,
                json!({"offerAutopilotSettings": {"maxThroughput": 4000}}),
                None,
                "migrate-offer-to-autopilot",
            ),
            (
                MANUAL,
                json!({"offerAutopilotSettings": {"maxThroughput": 1}}),
                Some(Migration::ToAutoscale),
                "Requested throughput 1 is less than required minimum throughput 1000",
            ),
            (
                AUTOSCALE,
                json!({"offerThroughput": 1000}),
                None,
                "migrate-offer-to-manual-throughput",
            ),
            (AUTOSCALE, fixed, None, "takes no 'offerThroughput' 2500"),
            (
                AUTOSCALE,
                json!({"offerAutopilotSettings": {"maxThroughput": 1500}}),
                None,
                "1500",
            ),
            (
                AUTOSCALE,
                json!({"offerThroughput": 50}),
                Some(Migration::ToManual),
                "Requested throughput 50 is less than required minimum throughput 400",
            ),
        ];
        for (now, content, migration, fragment) in cases {
            let error = offer(now)
                .replaced_by(&body(now, content), migration)
                .unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(
                error.message.contains(fragment),
                "'{fragment}' is not in '{error}'"
            );
        }
    }

    #[test]
    fn a_body_meant_for_another_offer_is_refused() {
        for name in ["id", "_rid", "resource", "offerResourceId"] {
            let mut body = body(MANUAL, json!({"offerThroughput": 600}));
            body.insert(name.to_owned(), json!("other"));
            let error = offer(MANUAL).replaced_by(&body, None).unwrap_err();
            assert!(error.message.contains("cannot become 'other'"), "{error}");
            body.insert(name.to_owned(), json!(""));
            assert!(offer(MANUAL).replaced_by(&body, None).is_ok());
            body.insert(name.to_owned(), json!(5));
            assert!(offer(MANUAL).replaced_by(&body, None).is_err());
            body.remove(name);
            assert!(offer(MANUAL).replaced_by(&body, None).is_ok());
        }
    }

    #[test]
    fn migration_headers() {
        let cases = [
            (None, None, Some(None)),
            (Some("false"), Some("False"), Some(None)),
            (Some("True"), None, Some(Some(Migration::ToAutoscale))),
            (None, Some(" true "), Some(Some(Migration::ToManual))),
            (Some("true"), Some("true"), None),
            (Some("yes"), None, None),
        ];
        for (autopilot, manual, expected) in cases {
            let migration = Migration::from_headers(autopilot, manual);
            assert_eq!(migration.ok(), expected, "{autopilot:?} {manual:?}");
        }
    }
}
