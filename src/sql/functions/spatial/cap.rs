//! A round piece of the earth that holds a geometry: a first, cheap look at where it can be.

use super::geodesy::{LEAST_CURVATURE_METRES, left_area};
use super::geometry::Geometry;
use super::sphere::Vector;
use std::f64::consts::{PI, TAU};

/// All places within an angle of a middle.
#[derive(Clone, Copy, Debug)]
pub struct Cap {
    pub middle: Vector,
    /// Radians; π is the whole earth.
    pub radius: f64,
}

/// Geometries that reach further than this from their middle (40 degrees) are taken for everywhere. Edges and insides of smaller
/// ones stay within their cap, because a cap below a quarter of the earth's girth is convex.
const RADIUS_MAX: f64 = 0.7;
/// What calculations may be off, in radians: about six centimetres, more than the width of a line.
const SLACK: f64 = 1e-8;

const EVERYWHERE: Cap = Cap {
    middle: Vector {
        x: 0.0,
        y: 0.0,
        z: 1.0,
    },
    radius: PI,
};

impl Geometry {
    /// Holds every place that is on or in the geometry or within a distance of it.
    pub fn cap(&self, metres: f64) -> Cap {
        let sum = self
            .positions()
            .fold(None, |sum: Option<Vector>, position| match sum {
                None => Some(position.vector),
                Some(sum) => Some(sum.plus(position.vector)),
            });
        let Some(middle) = sum.and_then(Vector::unit) else {
            return EVERYWHERE;
        };
        let reach = self
            .positions()
            .map(|position| middle.angle(position.vector))
            .fold(0.0, f64::max);
        // What lies to the left of a ring may be the greater part of the earth.
        let is_large = reach > RADIUS_MAX
            || self
                .polygons
                .iter()
                .filter_map(|rings| rings.first())
                .any(|outer| left_area(outer) > TAU);
        if is_large || metres.is_nan() {
            return EVERYWHERE;
        }
        // Nowhere is a step of an angle shorter than along a meridian at the equator.
        let margin = metres.max(0.0) / LEAST_CURVATURE_METRES;
        Cap {
            middle,
            radius: (reach + margin * (1.0 + SLACK) + SLACK).min(PI),
        }
    }
}
