//! GeoJSON on the WGS 84 earth: lengths in metres, areas in square metres. Edges are great
//! circles; the inside of a polygon is to the left of its outer ring.

mod cap;
mod geodesy;
mod geometry;
mod relations;
mod sphere;

pub use cap::Cap;
pub use geometry::Geometry;
pub use sphere::Vector;

use super::{Arguments, Function, function, owned};
use crate::model::error::Result;
use crate::sql::eval::{Context, Evaluated, boolean};
use crate::sql::number;
use serde_json::{Value, json};
use std::borrow::Cow;

pub const FUNCTIONS: &[Function] = &[
    function("ST_AREA", 1, 1, |a, _| {
        let area = a
            .get(0)
            .and_then(|value| Geometry::parse(value).ok())
            .map(|g| geodesy::area(&g));
        Ok(area.and_then(number::value).map(Cow::Owned))
    }),
    function("ST_DISTANCE", 2, 2, |a, context| {
        let Some((one, other)) = both(a, context)? else {
            return Ok(None);
        };
        Ok(relations::distance(&one, &other)
            .and_then(number::value)
            .map(Cow::Owned))
    }),
    function("ST_INTERSECTS", 2, 2, |a, context| {
        Ok(both(a, context)?.map(|(one, other)| boolean(relations::intersects(&one, &other))))
    }),
    function("ST_ISVALID", 1, 1, |a, _| {
        Ok(a.get(0)
            .map(|value| boolean(Geometry::parse(value).is_ok())))
    }),
    function("ST_ISVALIDDETAILED", 1, 1, |a, _| {
        Ok(a.get(0).and_then(detailed))
    }),
    function("ST_WITHIN", 2, 2, |a, context| {
        Ok(both(a, context)?.map(|(one, other)| boolean(relations::within(&one, &other))))
    }),
];

fn detailed<'a>(value: &Value) -> Evaluated<'a> {
    match Geometry::parse(value) {
        Ok(_) => owned(json!({"valid": true})),
        Err(reason) => owned(json!({"valid": false, "reason": reason})),
    }
}

/// Two valid geometries; the pairs of their edges are charged.
fn both(arguments: &Arguments<'_>, context: &Context) -> Result<Option<(Geometry, Geometry)>> {
    let geometry = |at: usize| {
        arguments
            .get(at)
            .and_then(|value| Geometry::parse(value).ok())
    };
    let (Some(one), Some(other)) = (geometry(0), geometry(1)) else {
        return Ok(None);
    };
    context.charge((one.size() as u64).saturating_mul(other.size() as u64))?;
    Ok(Some((one, other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(value: Value) -> Geometry {
        Geometry::parse(&value).unwrap()
    }

    fn point(longitude: f64, latitude: f64) -> Geometry {
        parse(json!({"type": "Point", "coordinates": [longitude, latitude]}))
    }

    fn square(west: f64, south: f64, east: f64, north: f64) -> Value {
        json!([
            [west, south],
            [east, south],
            [east, north],
            [west, north],
            [west, south]
        ])
    }

    fn polygon(rings: Value) -> Geometry {
        parse(json!({"type": "Polygon", "coordinates": rings}))
    }

    #[test]
    fn distances_between_points_are_geodesic() {
        // A degree of longitude and one of latitude at the equator, on the ellipsoid.
        for (a, b, metres) in [
            (point(0.0, 0.0), point(1.0, 0.0), 111_319.490_793),
            (point(0.0, 0.0), point(0.0, 1.0), 110_574.388_558),
            (point(179.5, 0.0), point(-179.5, 0.0), 111_319.490_793),
            (point(5.0, 60.0), point(5.0, 60.0), 0.0),
        ] {
            let distance = relations::distance(&a, &b).unwrap();
            assert!((distance - metres).abs() < 1e-3, "{distance} {metres}");
        }
        let far = relations::distance(&point(0.0, 0.0), &point(180.0, 0.0)).unwrap();
        assert!((19_900_000.0..20_100_000.0).contains(&far), "{far}");
    }

    #[test]
    fn distance_to_lines_and_polygons() {
        let line = parse(json!({"type": "LineString", "coordinates": [[-1, 1], [1, 1]]}));
        let distance = relations::distance(&point(0.0, 0.0), &line).unwrap();
        assert!((110_000.0..111_000.0).contains(&distance), "{distance}");
        let area = polygon(json!([square(0.0, 0.0, 10.0, 10.0)]));
        assert_eq!(relations::distance(&point(5.0, 5.0), &area), Some(0.0));
        let outside = relations::distance(&point(11.0, 5.0), &area).unwrap();
        assert!((110_000.0..111_300.0).contains(&outside), "{outside}");
    }

    #[test]
    fn the_inside_is_to_the_left() {
        let square_ring = square(-60.0, 20.0, 70.0, 70.0);
        let area = polygon(json!([square_ring]));
        assert!(relations::within(&point(0.0, 60.0), &area));
        assert!(!relations::within(&point(0.0, -40.0), &area));
        let mut backwards: Vec<Value> = square_ring.as_array().unwrap().clone();
        backwards.reverse();
        let inverse = polygon(json!([backwards]));
        assert!(relations::within(&point(0.0, -40.0), &inverse));
        assert!(!relations::within(&point(0.0, 60.0), &inverse));
    }

    #[test]
    fn holes_multi_polygons_and_the_antimeridian() {
        let holed = polygon(json!([
            square(0.0, 0.0, 10.0, 10.0),
            square(4.0, 4.0, 6.0, 6.0)
        ]));
        assert!(relations::within(&point(1.0, 1.0), &holed));
        assert!(!relations::within(&point(5.0, 5.0), &holed));
        assert!(relations::intersects(&holed, &point(4.0, 5.0)));
        let pacific = polygon(json!([square(170.0, -10.0, -170.0, 10.0)]));
        assert!(relations::within(&point(180.0, 0.0), &pacific));
        assert!(relations::within(&point(-175.0, 0.0), &pacific));
        assert!(!relations::within(&point(0.0, 0.0), &pacific));
        let two = parse(
            json!({"type": "MultiPolygon", "coordinates": [[square(0.0, 0.0, 1.0, 1.0)], [square(5.0, 5.0, 6.0, 6.0)]]}),
        );
        assert!(relations::within(&point(5.5, 5.5), &two));
        assert!(!relations::within(&point(3.0, 3.0), &two));
        let pole = polygon(json!([[[0, 80], [90, 80], [180, 80], [-90, 80], [0, 80]]]));
        assert!(relations::within(&point(45.0, 89.0), &pole));
        assert!(!relations::within(&point(45.0, -89.0), &pole));
    }

    #[test]
    fn shapes_cross_or_contain_each_other() {
        let a = polygon(json!([square(0.0, 0.0, 10.0, 10.0)]));
        let b = polygon(json!([square(5.0, 5.0, 15.0, 15.0)]));
        let c = polygon(json!([square(2.0, 2.0, 3.0, 3.0)]));
        let d = polygon(json!([square(20.0, 20.0, 30.0, 30.0)]));
        assert!(relations::intersects(&a, &b) && relations::intersects(&b, &a));
        assert!(relations::intersects(&a, &c) && relations::intersects(&c, &a));
        assert!(!relations::intersects(&a, &d));
        assert!(
            relations::within(&c, &a) && !relations::within(&a, &c) && !relations::within(&b, &a)
        );
        let line = parse(json!({"type": "LineString", "coordinates": [[-5, 5], [15, 5]]}));
        assert!(relations::intersects(&line, &a) && !relations::within(&line, &a));
    }

    #[test]
    fn areas() {
        let area = geodesy::area(&polygon(json!([[
            [31.8, -5],
            [32, -5],
            [32, -4.7],
            [31.8, -4.7],
            [31.8, -5]
        ]])));
        assert!((area / 735_970_283.052_261_4 - 1.0).abs() < 1e-5, "{area}");
        let earth = 510_065_621_724_088.0;
        let octant = geodesy::area(&polygon(json!([[[0, 0], [90, 0], [0, 90], [0, 0]]])));
        assert!((octant / (earth / 8.0) - 1.0).abs() < 1e-9, "{octant}");
        let cap = geodesy::area(&polygon(json!([[[0, 0], [120, 0], [-120, 0], [0, 0]]])));
        assert!((cap / (earth / 2.0) - 1.0).abs() < 1e-9, "{cap}");
        assert_eq!(geodesy::area(&point(1.0, 1.0)), 0.0);
    }

    #[test]
    fn invalid_shapes_say_why() {
        for (value, reason) in [
            (
                json!({"type": "Point", "coordinates": [133.7, -184.3]}),
                "Latitude",
            ),
            (
                json!({"type": "Point", "coordinates": [-190, 0]}),
                "Longitude",
            ),
            (json!({"type": "Point", "coordinates": [1]}), "coordinates"),
            (
                json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}),
                "ring number 1",
            ),
            (
                json!({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 0]]]}),
                "four",
            ),
            (
                json!({"type": "LineString", "coordinates": [[0, 0]]}),
                "two",
            ),
            (json!({"type": "Circle", "coordinates": [0, 0]}), "Circle"),
            (json!(42), "GeoJSON"),
        ] {
            let error = Geometry::parse(&value).err().unwrap();
            assert!(error.contains(reason), "{value}: {error}");
        }
    }
}
