//! How two geometries lie to each other.

use super::geodesy::{self, left_area};
use super::geometry::{Geometry, Position, Ring};
use super::sphere::{Vector, edges_cross, is_on_edge, nearest, turns};
use std::f64::consts::TAU;

/// The shortest distance in metres; none if one of them is empty.
pub fn distance(one: &Geometry, other: &Geometry) -> Option<f64> {
    if let ([a], [b], 1, 1) = (
        one.points.as_slice(),
        other.points.as_slice(),
        one.size(),
        other.size(),
    ) {
        return Some(geodesy::distance(
            (a.longitude, a.latitude),
            (b.longitude, b.latitude),
        ));
    }
    if intersects(one, other) {
        return Some(0.0);
    }
    // The nearest pair on the sphere, measured on the ellipsoid.
    let mut best: Option<(f64, Vector, Vector)> = None;
    let mut consider = |p: Vector, q: Vector| {
        let angle = p.angle(q);
        if best.is_none_or(|(least, ..)| angle < least) {
            best = Some((angle, p, q));
        }
    };
    for (a, b) in one.edges() {
        for (c, d) in other.edges() {
            let (a, b, c, d) = (a.vector, b.vector, c.vector, d.vector);
            consider(a, nearest(a, c, d));
            consider(b, nearest(b, c, d));
            consider(c, nearest(c, a, b));
            consider(d, nearest(d, a, b));
        }
    }
    best.map(|(_, p, q)| geodesy::distance(p.degrees(), q.degrees()))
}

/// Whether they share a point; borders count.
pub fn intersects(one: &Geometry, other: &Geometry) -> bool {
    one.positions().any(|p| covers(other, p))
        || other.positions().any(|p| covers(one, p))
        || crosses(one, other)
}

/// Whether all of the first is in the second; borders count.
pub fn within(one: &Geometry, other: &Geometry) -> bool {
    one.size() > 0
        && one.positions().all(|p| covers(other, p))
        && !crosses(one, other)
        && !other.polygons.iter().any(|rings| {
            // A hole inside of the first is not covered.
            rings
                .iter()
                .skip(1)
                .any(|hole| hole.iter().any(|p| is_inside(one, *p)))
        })
}

fn crosses(one: &Geometry, other: &Geometry) -> bool {
    one.edges().any(|(a, b)| {
        other
            .edges()
            .any(|(c, d)| edges_cross(a.vector, b.vector, c.vector, d.vector))
    })
}

/// Whether a position is in or on a geometry.
fn covers(geometry: &Geometry, position: Position) -> bool {
    geometry
        .edges()
        .any(|(a, b)| is_on_edge(position.vector, a.vector, b.vector))
        || is_inside(geometry, position)
}

/// Whether a position is strictly inside of a polygon.
fn is_inside(geometry: &Geometry, position: Position) -> bool {
    let on_border = geometry
        .polygons
        .iter()
        .flatten()
        .flat_map(|ring| ring.iter().zip(ring.iter().skip(1)))
        .any(|(a, b)| is_on_edge(position.vector, a.vector, b.vector));
    !on_border
        && geometry.polygons.iter().any(|rings| {
            let mut rings = rings.iter();
            rings.next().is_some_and(|outer| is_left(outer, position))
                && !rings.any(|hole| is_in_hole(hole, position))
        })
}

/// Whether a position is to the left of a ring.
fn is_left(ring: &Ring, position: Position) -> bool {
    let vectors: Vec<Vector> = ring.iter().map(|p| p.vector).collect();
    // A ring on the other half of the earth surrounds the opposite of the place, not the place.
    let is_opposite = vectors.iter().all(|v| v.dot(position.vector) < 0.0);
    let turns = turns(position.vector, &vectors);
    if turns.abs() > 0.5 && !is_opposite {
        turns > 0.0
    } else {
        // Neither the place nor its opposite is surrounded: it is where most of the sphere is.
        left_area(ring) > TAU
    }
}

/// Whether a position is on the smaller side of a ring.
fn is_in_hole(ring: &Ring, position: Position) -> bool {
    is_left(ring, position) == (left_area(ring) <= TAU)
}
