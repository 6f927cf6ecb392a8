//! The composite, spatial, vector and full-text indexes of a policy.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::path::IndexPath;
use crate::model::checks::{
    expect_array, expect_object, expect_text, invalid, missing, present, shown_text, text_of,
    whole_number,
};
use crate::model::error::{Error, Result};
use crate::model::path::PropertyPath;

/// The most paths in one composite index; fewer than two order nothing that a plain index does not.
pub const COMPOSITE_PATHS_MAX: usize = 8;
pub const COMPOSITE_PATHS_MIN: usize = 2;

/// The types of vector indexes.
const VECTOR_INDEX_TYPES: [&str; 3] = ["flat", "quantizedFlat", "diskANN"];
/// The number of paths by which one vector index may be sharded.
const VECTOR_SHARD_PATHS_MAX: usize = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    #[default]
    Ascending,
    Descending,
}

/// One path of a composite index.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompositePath {
    pub path: PropertyPath,
    pub order: Order,
}

impl CompositePath {
    pub(super) fn from_json(value: &Value) -> Result<Self> {
        let object = expect_object("compositeIndexes", value)?;
        let text = text_of(object, "path")?;
        let path = PropertyPath::parse(text).map_err(|_| {
            Error::bad_request(format!(
                "the composite index path '{}' could not be accepted: it names one property, as '/a/b', without '/?', \
                 '/*' or '/[]'",
                shown_text(text)
            ))
        })?;
        let order = match present(object, "order") {
            None => Order::Ascending,
            Some(value) => match expect_text("order", value)? {
                text if text.eq_ignore_ascii_case("ascending") => Order::Ascending,
                text if text.eq_ignore_ascii_case("descending") => Order::Descending,
                _ => return Err(invalid("order", value, "'ascending' or 'descending'")),
            },
        };
        Ok(Self { path, order })
    }

    pub(super) fn to_json(&self) -> Value {
        let order = match self.order {
            Order::Ascending => "ascending",
            Order::Descending => "descending",
        };
        json!({"path": self.path.to_string(), "order": order})
    }
}

/// Reads one composite index: two to eight different paths.
pub(super) fn composite_index(value: &Value) -> Result<Vec<CompositePath>> {
    let paths = expect_array("compositeIndexes", value, COMPOSITE_PATHS_MAX)?
        .iter()
        .map(CompositePath::from_json)
        .collect::<Result<Vec<_>>>()?;
    if paths.len() < COMPOSITE_PATHS_MIN {
        return Err(invalid(
            "compositeIndexes",
            value,
            "arrays of at least two paths each",
        ));
    }
    for (at, one) in paths.iter().enumerate() {
        if paths
            .iter()
            .skip(at + 1)
            .any(|other| other.path == one.path)
        {
            return Err(Error::bad_request(format!(
                "the path '{}' appears twice in one composite index",
                one.path
            )));
        }
    }
    Ok(paths)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SpatialType {
    Point,
    LineString,
    Polygon,
    MultiPolygon,
}

impl SpatialType {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Point, "Point"),
        (Self::LineString, "LineString"),
        (Self::Polygon, "Polygon"),
        (Self::MultiPolygon, "MultiPolygon"),
    ];

    fn from_json(value: &Value) -> Result<Self> {
        let text = expect_text("types", value)?;
        Self::ALL
            .iter()
            .find(|(_, name)| name.eq_ignore_ascii_case(text))
            .map(|(one, _)| *one)
            .ok_or_else(|| invalid("types", value, "Point, LineString, Polygon or MultiPolygon"))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Point => "Point",
            Self::LineString => "LineString",
            Self::Polygon => "Polygon",
            Self::MultiPolygon => "MultiPolygon",
        }
    }
}

/// The part of the plane that a geometry index covers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundingBox {
    pub xmin: f64,
    pub ymin: f64,
    pub xmax: f64,
    pub ymax: f64,
}

impl BoundingBox {
    fn from_json(value: &Value) -> Result<Self> {
        let object = expect_object("boundingBox", value)?;
        let side = |name: &str| {
            let value = present(object, name).ok_or_else(|| missing(name))?;
            value
                .as_f64()
                .ok_or_else(|| invalid(name, value, "a number"))
        };
        let (xmin, ymin) = (side("xmin")?, side("ymin")?);
        let (xmax, ymax) = (side("xmax")?, side("ymax")?);
        if xmin >= xmax || ymin >= ymax {
            return Err(invalid(
                "boundingBox",
                value,
                "a box with xmin below xmax and ymin below ymax",
            ));
        }
        Ok(Self {
            xmin,
            ymin,
            xmax,
            ymax,
        })
    }

    fn to_json(self) -> Value {
        // Whole numbers come back without a fraction, as they were sent.
        let number = |side: f64| match whole_number(&json!(side)) {
            Some(whole) => json!(whole),
            None => json!(side),
        };
        json!({
            "xmin": number(self.xmin),
            "ymin": number(self.ymin),
            "xmax": number(self.xmax),
            "ymax": number(self.ymax),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpatialIndex {
    pub path: IndexPath,
    pub types: Vec<SpatialType>,
    pub bounding_box: Option<BoundingBox>,
}

impl SpatialIndex {
    /// Without `types` the index covers all of them.
    pub(super) fn from_json(value: &Value) -> Result<Self> {
        let object = expect_object("spatialIndexes", value)?;
        let path = IndexPath::parse(text_of(object, "path")?)?;
        let mut types = Vec::new();
        match present(object, "types") {
            None => types.extend(SpatialType::ALL.iter().map(|(one, _)| *one)),
            Some(list) => {
                for value in expect_array("types", list, SpatialType::ALL.len())? {
                    let one = SpatialType::from_json(value)?;
                    if types.contains(&one) {
                        return Err(invalid("types", list, "an array without duplicates"));
                    }
                    types.push(one);
                }
                if types.is_empty() {
                    return Err(invalid("types", list, "an array of at least one type"));
                }
            }
        }
        let bounding_box = present(object, "boundingBox")
            .map(BoundingBox::from_json)
            .transpose()?;
        Ok(Self {
            path,
            types,
            bounding_box,
        })
    }

    pub(super) fn to_json(&self) -> Value {
        let types: Vec<_> = self.types.iter().map(|one| one.name()).collect();
        let mut object = Map::new();
        object.insert("path".to_owned(), self.path.as_str().into());
        object.insert("types".to_owned(), types.into());
        if let Some(bounding_box) = self.bounding_box {
            object.insert("boundingBox".to_owned(), bounding_box.to_json());
        }
        Value::Object(object)
    }
}

/// Checks the form of one vector index. Its numbers depend on the embedding of the same path, so the container checks them.
pub(super) fn vector_index(value: &Value) -> Result<Map<String, Value>> {
    let object = expect_object("vectorIndexes", value)?;
    let path = text_of(object, "path")?;
    PropertyPath::parse(path).map_err(|error| {
        Error::bad_request(format!(
            "the vector indexing policy has an invalid path: {error}"
        ))
    })?;
    let kind = text_of(object, "type")?;
    if !VECTOR_INDEX_TYPES.contains(&kind) {
        return Err(Error::bad_request(format!(
            "The Vector Indexing Policy's Index Type::{} is invalid: it must be one of {}",
            shown_text(kind),
            VECTOR_INDEX_TYPES.join(", ")
        )));
    }
    for name in ["quantizationByteSize", "indexingSearchListSize"] {
        if let Some(value) = present(object, name)
            && whole_number(value).is_none()
        {
            return Err(invalid(name, value, "a whole number"));
        }
    }
    if let Some(value) = present(object, "quantizerType") {
        expect_text("quantizerType", value)?;
    }
    if let Some(value) = present(object, "vectorIndexShardKey") {
        check_shard_key(value)?;
    }
    Ok(object.clone())
}

fn check_shard_key(value: &Value) -> Result<()> {
    let paths = expect_array("vectorIndexShardKey", value, usize::MAX)?;
    if paths.len() > VECTOR_SHARD_PATHS_MAX {
        return Err(Error::bad_request(format!(
            "The number of shard paths defined in the Vector Indexing Policy: {} exceeds the maximum: \
             {VECTOR_SHARD_PATHS_MAX}.",
            paths.len()
        )));
    }
    for value in paths {
        let path = expect_text("vectorIndexShardKey", value)?;
        if PropertyPath::parse(path).is_err() {
            return Err(Error::bad_request(format!(
                "The Vector Indexing Policy has an invalid Shard Path: {}.",
                shown_text(path)
            )));
        }
    }
    Ok(())
}

/// Reads the path of the full-text index at this place of the list.
pub(super) fn full_text_index(at: usize, value: &Value) -> Result<PropertyPath> {
    let object = expect_object("fullTextIndexes", value)?;
    let Some(value) = present(object, "path") else {
        return Err(Error::bad_request(format!(
            "Missing path in full-text index specification at index ({at})"
        )));
    };
    let text = expect_text("path", value)?;
    PropertyPath::parse(text).map_err(|_| {
        Error::bad_request(format!(
            "Full-text index specification at index ({at}) contains invalid path: {}",
            shown_text(text)
        ))
    })
}
