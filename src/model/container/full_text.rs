//! The full-text policy, and the full-text indexes that need it.

use serde_json::Value;

use crate::model::checks::{
    array_or_empty, expect_object, expect_text, missing, present, shown_text, text_of,
};
use crate::model::error::{Error, Result};
use crate::model::path::PropertyPath;

/// The most paths of a full-text policy.
pub const FULL_TEXT_PATHS_MAX: usize = 100;

const LANGUAGES: [&str; 7] = [
    "en-US", "de-DE", "es-ES", "fr-FR", "it-IT", "pt-BR", "pt-PT",
];

/// Checks a `fullTextPolicy`; a path without a language takes the default one.
pub(super) fn check_policy(value: &Value) -> Result<Value> {
    let policy = expect_object("fullTextPolicy", value)?;
    let default = present(policy, "defaultLanguage").ok_or_else(|| missing("defaultLanguage"))?;
    check_language(expect_text("defaultLanguage", default)?)?;
    let mut paths = Vec::new();
    for value in array_or_empty(policy, "fullTextPaths", FULL_TEXT_PATHS_MAX)? {
        let entry = expect_object("fullTextPaths", value)?;
        let text = text_of(entry, "path")?;
        let path = PropertyPath::parse(text).map_err(|_| {
            Error::bad_request(format!(
                "The Full Text Policy contains an invalid Path: {}",
                shown_text(text)
            ))
        })?;
        if paths.contains(&path) {
            return Err(Error::bad_request(format!(
                "the path '{path}' appears twice in the full text policy"
            )));
        }
        paths.push(path);
        if let Some(language) = present(entry, "language") {
            check_language(expect_text("language", language)?)?;
        }
    }
    Ok(value.clone())
}

fn check_language(language: &str) -> Result<()> {
    if LANGUAGES.contains(&language) {
        return Ok(());
    }
    Err(Error::bad_request(format!(
        "The Full Text Policy contains an unsupported language {}. Supported languages are: {}",
        shown_text(language),
        LANGUAGES.join(", ")
    )))
}

/// Checks that every full-text index is over a path of the policy.
pub(super) fn check_indexes(indexes: &[PropertyPath], policy: Option<&Value>) -> Result<()> {
    let listed: Vec<PropertyPath> = policy
        .and_then(|policy| policy.get("fullTextPaths"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get("path")?.as_str())
        .filter_map(|text| PropertyPath::parse(text).ok())
        .collect();
    match indexes.iter().find(|path| !listed.contains(path)) {
        None => Ok(()),
        Some(path) => Err(Error::bad_request(format!(
            "The path of the Full Text Index {path} does not match the path specified in the Full Text Policy"
        ))),
    }
}
