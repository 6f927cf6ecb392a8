//! Vector embeddings, and the vector indexes over them.

use serde_json::{Map, Value};

use crate::model::checks::{
    expect_array, expect_object, expect_text, invalid, missing, present, shown, shown_text,
    text_of, whole_number,
};
use crate::model::error::{Error, Result};
use crate::model::path::PropertyPath;

/// The most embeddings of a container.
pub const VECTOR_EMBEDDINGS_MAX: usize = 100;
/// The most dimensions of an embedding, and of one under a flat index.
pub const VECTOR_DIMENSIONS_MAX: i64 = 4_096;
pub const FLAT_INDEX_DIMENSIONS_MAX: i64 = 505;
/// The most bytes of a quantized vector; never more than the vector has dimensions.
pub const QUANTIZATION_BYTES_MAX: i64 = 512;
/// What counts when the embedding of the path is not known.
const QUANTIZATION_BYTES_MAX_UNKNOWN: i64 = 256;
/// How many neighbours building a graph index looks at.
pub const SEARCH_LIST_MIN: i64 = 25;
pub const SEARCH_LIST_MAX: i64 = 500;

const DATA_TYPES: [&str; 4] = ["float32", "float16", "uint8", "int8"];
const DISTANCE_FUNCTIONS: [&str; 3] = ["cosine", "euclidean", "dotproduct"];

/// Checks a `vectorEmbeddingPolicy`.
pub(super) fn check_embedding_policy(value: &Value) -> Result<Value> {
    let policy = expect_object("vectorEmbeddingPolicy", value)?;
    let list = present(policy, "vectorEmbeddings").ok_or_else(|| missing("vectorEmbeddings"))?;
    let mut paths = Vec::new();
    for value in expect_array("vectorEmbeddings", list, VECTOR_EMBEDDINGS_MAX)? {
        let path = check_embedding(value)?;
        if paths.contains(&path) {
            return Err(Error::bad_request(format!(
                "the path '{path}' appears twice in the vector embedding policy"
            )));
        }
        paths.push(path);
    }
    Ok(value.clone())
}

fn check_embedding(value: &Value) -> Result<PropertyPath> {
    let embedding = expect_object("vectorEmbeddings", value)?;
    let path = PropertyPath::parse(text_of(embedding, "path")?).map_err(|error| {
        Error::bad_request(format!(
            "the vector embedding policy has an invalid path: {error}"
        ))
    })?;
    let data_type = text_of(embedding, "dataType")?;
    if !DATA_TYPES.contains(&data_type) {
        return Err(one_of("DataType", data_type, &DATA_TYPES));
    }
    let dimensions = present(embedding, "dimensions").ok_or_else(|| missing("dimensions"))?;
    match whole_number(dimensions) {
        Some(1..=VECTOR_DIMENSIONS_MAX) => {}
        Some(number) if number > VECTOR_DIMENSIONS_MAX => {
            return Err(Error::bad_request(format!(
                "The Vector Embedding Policy has Dimensions:{number} which is more than the maximum supported value \
                 {VECTOR_DIMENSIONS_MAX}"
            )));
        }
        _ => {
            return Err(Error::bad_request(format!(
                "The Vector Embedding Policy has Dimensions:{} which is not a whole number from 1 to \
                 {VECTOR_DIMENSIONS_MAX}",
                shown(dimensions)
            )));
        }
    }
    let distance = text_of(embedding, "distanceFunction")?;
    if !DISTANCE_FUNCTIONS.contains(&distance) {
        return Err(one_of("DistanceFunction", distance, &DISTANCE_FUNCTIONS));
    }
    Ok(path)
}

fn one_of(what: &str, text: &str, allowed: &[&str]) -> Error {
    Error::bad_request(format!(
        "The Vector Embedding Policy has an invalid {what}:{}; it must be one of {}",
        shown_text(text),
        allowed.join(", ")
    ))
}

/// Checks the vector indexes against the embeddings that they index.
pub(super) fn check_indexes(indexes: &[Map<String, Value>], policy: Option<&Value>) -> Result<()> {
    let embeddings = list(policy, "vectorEmbeddings");
    for index in indexes {
        let text = text_of(index, "path")?;
        let path = PropertyPath::parse(text)?;
        let dimensions = find(embeddings, &path)
            .and_then(|embedding| embedding.get("dimensions"))
            .and_then(whole_number);
        let bytes_max = dimensions.unwrap_or(QUANTIZATION_BYTES_MAX_UNKNOWN);
        let bytes_max = bytes_max.min(QUANTIZATION_BYTES_MAX);
        in_range(
            index,
            "quantizationByteSize",
            "QuantizationByteSize",
            1,
            bytes_max,
        )?;
        in_range(
            index,
            "indexingSearchListSize",
            "IndexingSearchListSize",
            SEARCH_LIST_MIN,
            SEARCH_LIST_MAX,
        )?;
        let Some(dimensions) = dimensions else {
            return Err(Error::bad_request(format!(
                "The Vector Indexing Policy's path::{} not matching in Embedding's path.",
                shown_text(text)
            )));
        };
        let flat = present(index, "type").and_then(Value::as_str) == Some("flat");
        if flat && dimensions > FLAT_INDEX_DIMENSIONS_MAX {
            return Err(Error::bad_request(format!(
                "the flat vector index on '{}' has Dimensions:{dimensions} which is more than the maximum supported \
                 value {FLAT_INDEX_DIMENSIONS_MAX}",
                shown_text(text)
            )));
        }
    }
    Ok(())
}

fn in_range(
    index: &Map<String, Value>,
    name: &str,
    shown_name: &str,
    min: i64,
    max: i64,
) -> Result<()> {
    let Some(value) = present(index, name) else {
        return Ok(());
    };
    let number = whole_number(value).ok_or_else(|| invalid(name, value, "a whole number"))?;
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(Error::bad_request(format!(
        "The Vector Indexing Policy parameter {shown_name} value :: {number} is out of range. The allowed range is \
         between {min} and {max}."
    )))
}

/// Refuses to change an embedding or an index in place: they can be added and removed only.
pub(super) fn check_replacement(
    (old_indexes, old_policy): (&[Map<String, Value>], Option<&Value>),
    (new_indexes, new_policy): (&[Map<String, Value>], Option<&Value>),
) -> Result<()> {
    let old = old_indexes
        .iter()
        .cloned()
        .map(Value::Object)
        .collect::<Vec<_>>();
    let new = new_indexes
        .iter()
        .cloned()
        .map(Value::Object)
        .collect::<Vec<_>>();
    unchanged("vector indexing policy", &old, &new)?;
    unchanged(
        "embedding policy",
        list(old_policy, "vectorEmbeddings"),
        list(new_policy, "vectorEmbeddings"),
    )
}

fn unchanged(what: &str, old: &[Value], new: &[Value]) -> Result<()> {
    for value in new {
        let path = value.get("path").ok_or_else(|| missing("path"))?;
        let path = PropertyPath::parse(expect_text("path", path)?)?;
        if find(old, &path).is_some_and(|before| before != value) {
            return Err(Error::bad_request(format!(
                "Paths in existing {what} cannot be modified in Collection Replace. They can only be added or \
                 removed. The path is '{path}'"
            )));
        }
    }
    Ok(())
}

fn list<'a>(policy: Option<&'a Value>, name: &str) -> &'a [Value] {
    policy
        .and_then(|policy| policy.get(name))
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// The entry for this path, however it is quoted.
fn find<'a>(entries: &'a [Value], path: &PropertyPath) -> Option<&'a Value> {
    entries.iter().find(|entry| {
        let text = entry.get("path").and_then(Value::as_str);
        text.and_then(|text| PropertyPath::parse(text).ok())
            .as_ref()
            == Some(path)
    })
}
