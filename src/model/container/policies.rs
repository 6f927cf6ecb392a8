//! The policies of a container that are validated, stored and returned as they were sent.

use serde_json::{Map, Value, json};

use super::{full_text, vector};
use crate::model::checks::{
    array_or_empty, expect_array, expect_object, expect_text, invalid, missing, present,
    shown_text, text_of, whole_number,
};
use crate::model::error::{Error, Result};
use crate::model::path::PropertyPath;
use crate::model::ttl::TTL_SECONDS_MAX;

/// The most computed properties of a container.
pub const COMPUTED_PROPERTIES_MAX: usize = 20;
/// The longest query of a computed property, in bytes: that of any query.
pub const COMPUTED_QUERY_BYTES_MAX: usize = 512 * 1024;
/// The most encrypted paths of a container.
pub const ENCRYPTED_PATHS_MAX: usize = 1_000;
/// The longest retention of a full change feed, in minutes: a year.
pub const CHANGE_FEED_RETENTION_MINUTES_MAX: i64 = 366 * 24 * 60;

/// What a policy may do once the container exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacement {
    /// A PUT says what it becomes; left out, it is reset.
    Free,
    /// Set at creation for good; left out of a PUT, it stays.
    Never,
}

/// A policy by its name in JSON, its check, and whether it can be replaced.
type Policy = (&'static str, fn(&Value) -> Result<Value>, Replacement);

/// In the order in which the server returns them.
pub(super) const POLICIES: [Policy; 11] = [
    (
        "conflictResolutionPolicy",
        conflict_resolution,
        Replacement::Never,
    ),
    ("geospatialConfig", geospatial, Replacement::Free),
    ("analyticalStorageTtl", analytical_ttl, Replacement::Free),
    ("ttlPropertyPath", ttl_property_path, Replacement::Free),
    ("computedProperties", computed_properties, Replacement::Free),
    (
        "vectorEmbeddingPolicy",
        vector::check_embedding_policy,
        Replacement::Free,
    ),
    ("fullTextPolicy", full_text::check_policy, Replacement::Free),
    ("changeFeedPolicy", change_feed, Replacement::Free),
    (
        "clientEncryptionPolicy",
        client_encryption,
        Replacement::Never,
    ),
    (
        "materializedViewDefinition",
        derived_view,
        Replacement::Never,
    ),
    (
        "globalSecondaryIndexDefinition",
        derived_view,
        Replacement::Never,
    ),
];

/// Reads all policies of a definition; absent and null give the default, where there is one.
pub(super) fn read(body: &Map<String, Value>) -> Result<Map<String, Value>> {
    let mut policies = Map::new();
    for (name, check, _) in POLICIES {
        let policy = match present(body, name) {
            Some(value) => Some(check(value)?),
            None => default(name),
        };
        if let Some(policy) = policy {
            policies.insert(name.to_owned(), policy);
        }
    }
    Ok(policies)
}

fn default(name: &str) -> Option<Value> {
    match name {
        "conflictResolutionPolicy" => Some(json!({
            "mode": "LastWriterWins",
            "conflictResolutionPath": "/_ts",
            "conflictResolutionProcedure": "",
        })),
        "geospatialConfig" => Some(json!({"type": "Geography"})),
        _ => None,
    }
}

fn conflict_resolution(value: &Value) -> Result<Value> {
    let policy = expect_object("conflictResolutionPolicy", value)?;
    let text = |name: &str| match present(policy, name) {
        Some(value) => expect_text(name, value),
        None => Ok(""),
    };
    let path = text("conflictResolutionPath")?;
    let procedure = text("conflictResolutionProcedure")?;
    if !path.is_empty() {
        PropertyPath::parse(path)?;
    }
    let (mode, path) = match present(policy, "mode") {
        None => ("LastWriterWins", path),
        Some(value) => match expect_text("mode", value)? {
            mode if mode.eq_ignore_ascii_case("LastWriterWins") => ("LastWriterWins", path),
            mode if mode.eq_ignore_ascii_case("Custom") => ("Custom", path),
            _ => return Err(invalid("mode", value, "'LastWriterWins' or 'Custom'")),
        },
    };
    if mode == "Custom" && !path.is_empty() {
        return Err(Error::bad_request(format!(
            "'conflictResolutionPath' '{}' goes with the mode 'LastWriterWins', not with 'Custom'",
            shown_text(path)
        )));
    }
    if mode == "LastWriterWins" && !procedure.is_empty() {
        return Err(Error::bad_request(format!(
            "'conflictResolutionProcedure' '{}' goes with the mode 'Custom', not with 'LastWriterWins'",
            shown_text(procedure)
        )));
    }
    let path = if mode == "LastWriterWins" && path.is_empty() {
        "/_ts"
    } else {
        path
    };
    Ok(json!({
        "mode": mode,
        "conflictResolutionPath": path,
        "conflictResolutionProcedure": procedure,
    }))
}

fn geospatial(value: &Value) -> Result<Value> {
    let config = expect_object("geospatialConfig", value)?;
    match text_of(config, "type")? {
        text if text.eq_ignore_ascii_case("Geography") => Ok(json!({"type": "Geography"})),
        text if text.eq_ignore_ascii_case("Geometry") => Ok(json!({"type": "Geometry"})),
        text => Err(invalid("type", &text.into(), "'Geography' or 'Geometry'")),
    }
}

/// -1 keeps for ever, 0 is off, n keeps n seconds.
fn analytical_ttl(value: &Value) -> Result<Value> {
    match whole_number(value) {
        Some(seconds) if (-1..=i64::from(TTL_SECONDS_MAX)).contains(&seconds) => Ok(seconds.into()),
        _ => Err(invalid(
            "analyticalStorageTtl",
            value,
            "-1, 0 or a whole number of seconds up to 2147483647",
        )),
    }
}

fn ttl_property_path(value: &Value) -> Result<Value> {
    PropertyPath::parse(expect_text("ttlPropertyPath", value)?)?;
    Ok(value.clone())
}

/// Names of items' own system properties, which a computed property cannot hide.
const SYSTEM_NAMES: [&str; 6] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments"];

fn computed_properties(value: &Value) -> Result<Value> {
    let mut names = Vec::new();
    for entry in expect_array("computedProperties", value, COMPUTED_PROPERTIES_MAX)? {
        let property = expect_object("computedProperties", entry)?;
        let name = text_of(property, "name")?;
        let query = text_of(property, "query")?;
        if name.is_empty() || SYSTEM_NAMES.contains(&name) || names.contains(&name) {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: the computed property name '{}' is empty, taken by the system \
                 or used twice",
                shown_text(name)
            )));
        }
        names.push(name);
        let mut words = query.split_ascii_whitespace();
        let mut is = |word: &str| {
            words
                .next()
                .is_some_and(|next| next.eq_ignore_ascii_case(word))
        };
        if query.len() > COMPUTED_QUERY_BYTES_MAX || !is("SELECT") || !is("VALUE") {
            return Err(Error::bad_request(format!(
                "One of the specified inputs is invalid: the query of the computed property '{}' must be 'SELECT \
                 VALUE … FROM …', not '{}'",
                shown_text(name),
                shown_text(query)
            )));
        }
    }
    Ok(value.clone())
}

/// Minutes of history for the all-versions-and-deletes change feed; 0 switches it off.
fn change_feed(value: &Value) -> Result<Value> {
    let policy = expect_object("changeFeedPolicy", value)?;
    let retention =
        present(policy, "retentionDuration").ok_or_else(|| missing("retentionDuration"))?;
    match whole_number(retention) {
        Some(minutes) if (0..=CHANGE_FEED_RETENTION_MINUTES_MAX).contains(&minutes) => {
            Ok(value.clone())
        }
        _ => Err(invalid(
            "retentionDuration",
            retention,
            "a whole number of minutes, not more than a year",
        )),
    }
}

/// Clients encrypt and decrypt; the server keeps for them which paths and which keys.
fn client_encryption(value: &Value) -> Result<Value> {
    let policy = expect_object("clientEncryptionPolicy", value)?;
    if let Some(version) = present(policy, "policyFormatVersion")
        && !matches!(whole_number(version), Some(1 | 2))
    {
        return Err(invalid("policyFormatVersion", version, "1 or 2"));
    }
    let mut paths = Vec::new();
    for entry in array_or_empty(policy, "includedPaths", ENCRYPTED_PATHS_MAX)? {
        let included = expect_object("includedPaths", entry)?;
        let path = PropertyPath::parse(text_of(included, "path")?)?;
        if paths.contains(&path) {
            return Err(Error::bad_request(format!(
                "the path '{path}' appears twice in 'clientEncryptionPolicy'"
            )));
        }
        paths.push(path);
        if text_of(included, "clientEncryptionKeyId")?.is_empty() {
            return Err(missing("clientEncryptionKeyId"));
        }
        let kind = text_of(included, "encryptionType")?;
        if !["Deterministic", "Randomized"].contains(&kind) {
            let must_be = "'Deterministic' or 'Randomized'";
            return Err(invalid("encryptionType", &kind.into(), must_be));
        }
        let algorithm = text_of(included, "encryptionAlgorithm")?;
        if algorithm != "AEAD_AES_256_CBC_HMAC_SHA256" {
            let must_be = "'AEAD_AES_256_CBC_HMAC_SHA256'";
            return Err(invalid("encryptionAlgorithm", &algorithm.into(), must_be));
        }
    }
    Ok(value.clone())
}

fn derived_view(value: &Value) -> Result<Value> {
    text_of(expect_object("definition of a view", value)?, "definition")?;
    Ok(value.clone())
}
