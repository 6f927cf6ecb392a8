//! GeoJSON values, read and checked.

use super::sphere::Vector;
use crate::sql::number;
use serde_json::Value;

/// A place on the earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Degrees.
    pub longitude: f64,
    /// Degrees.
    pub latitude: f64,
    pub vector: Vector,
}

/// A closed line: the first position is also the last.
pub type Ring = Vec<Position>;

/// Any GeoJSON geometry, by dimension.
#[derive(Debug, Default)]
pub struct Geometry {
    pub points: Vec<Position>,
    pub lines: Vec<Vec<Position>>,
    /// Each an outer ring and then holes.
    pub polygons: Vec<Vec<Ring>>,
}

impl Geometry {
    /// The reason says what is wrong with the value.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let kind = value.get("type").and_then(Value::as_str);
        let (Some(kind), Some(coordinates)) = (kind, value.get("coordinates")) else {
            return Err("The value is not a GeoJSON object with a type and coordinates.".into());
        };
        let mut geometry = Self::default();
        match kind {
            "Point" => geometry.points.push(position(coordinates)?),
            "MultiPoint" => geometry.points = each(coordinates, position)?,
            "LineString" => geometry.lines.push(line(coordinates)?),
            "MultiLineString" => geometry.lines = each(coordinates, line)?,
            "Polygon" => geometry.polygons.push(polygon(coordinates)?),
            "MultiPolygon" => geometry.polygons = each(coordinates, polygon)?,
            _ => {
                let shown = crate::sql::error::shorten(kind);
                return Err(format!("The GeoJSON type '{shown}' is not supported."));
            }
        }
        Ok(geometry)
    }

    /// The number of its positions.
    pub fn size(&self) -> usize {
        self.points.len()
            + self.lines.iter().map(Vec::len).sum::<usize>()
            + self.polygons.iter().flatten().map(Vec::len).sum::<usize>()
    }

    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        let lines = self.lines.iter().flatten();
        let rings = self.polygons.iter().flatten().flatten();
        self.points.iter().chain(lines).chain(rings).copied()
    }

    /// The edges of lines and rings; a point is an edge without length.
    pub fn edges(&self) -> impl Iterator<Item = (Position, Position)> + '_ {
        let lines = self.lines.iter().chain(self.polygons.iter().flatten());
        let edges = lines.flat_map(|line| line.iter().copied().zip(line.iter().copied().skip(1)));
        self.points
            .iter()
            .map(|point| (*point, *point))
            .chain(edges)
    }
}

fn each<T>(value: &Value, read: fn(&Value) -> Result<T, String>) -> Result<Vec<T>, String> {
    let items = value
        .as_array()
        .ok_or("The coordinates are not an array.")?;
    items.iter().map(read).collect()
}

fn position(value: &Value) -> Result<Position, String> {
    let numbers: Option<Vec<f64>> = value.as_array().and_then(|items| {
        items
            .iter()
            .map(|item| match item {
                Value::Number(number) => Some(number::to_f64(number)),
                _ => None,
            })
            .collect()
    });
    let Some([longitude, latitude, ..]) = numbers.as_deref() else {
        return Err("A position must have two coordinates, which are numbers.".into());
    };
    if !(-90.0..=90.0).contains(latitude) {
        return Err("Latitude values must be between -90 and 90 degrees.".into());
    }
    if !(-180.0..=180.0).contains(longitude) {
        return Err("Longitude values must be between -180 and 180 degrees.".into());
    }
    let vector = Vector::at(*longitude, *latitude);
    Ok(Position {
        longitude: *longitude,
        latitude: *latitude,
        vector,
    })
}

fn line(value: &Value) -> Result<Vec<Position>, String> {
    let positions = each(value, position)?;
    if positions.len() < 2 {
        return Err("The LineString must have at least two positions.".into());
    }
    Ok(positions)
}

fn polygon(value: &Value) -> Result<Vec<Ring>, String> {
    let rings = each(value, |ring| each(ring, position))?;
    if rings.is_empty() {
        return Err("The Polygon must have at least one ring.".into());
    }
    for (at, ring) in rings.iter().enumerate() {
        let number = at + 1;
        if ring.first() != ring.last() {
            return Err(format!(
                "The Polygon input is not valid because the start and end points of the ring number {number} are not the same. Each ring of a polygon must have the same start and end points."
            ));
        }
        if ring.len() < 4 {
            return Err(format!(
                "The ring number {number} must have at least four positions."
            ));
        }
    }
    Ok(rings)
}
