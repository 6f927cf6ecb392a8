//! Lengths and areas on the WGS 84 ellipsoid.

use super::geometry::{Geometry, Position, Ring};
use super::sphere::hypotenuse;
use std::f64::consts::{PI, TAU};

const EQUATOR_METRES: f64 = 6_378_137.0;
const FLATTENING: f64 = 1.0 / 298.257_223_563;
const POLE_METRES: f64 = EQUATOR_METRES * (1.0 - FLATTENING);
/// The radius of the sphere with the same area.
const AUTHALIC_METRES: f64 = 6_371_007.180_918_474;
const MEAN_METRES: f64 = 6_371_008.8;
/// The least radius of curvature: that of a meridian at the equator.
pub const LEAST_CURVATURE_METRES: f64 = EQUATOR_METRES * (1.0 - FLATTENING) * (1.0 - FLATTENING);

/// Vincenty's inverse formula; between nearly opposite places, where it does not converge, the
/// great circle.
pub fn distance(from: (f64, f64), to: (f64, f64)) -> f64 {
    const ITERATIONS_MAX: usize = 100;
    let longitude = (to.0 - from.0).to_radians();
    let reduced = |latitude: f64| ((1.0 - FLATTENING) * latitude.to_radians().tan()).atan();
    let (sin1, cos1) = reduced(from.1).sin_cos();
    let (sin2, cos2) = reduced(to.1).sin_cos();
    let mut lambda = longitude;
    for _ in 0..ITERATIONS_MAX {
        let (sin_l, cos_l) = lambda.sin_cos();
        let sin_sigma = hypotenuse(cos2 * sin_l, cos1 * sin2 - sin1 * cos2 * cos_l);
        if sin_sigma == 0.0 {
            return 0.0;
        }
        let cos_sigma = sin1 * sin2 + cos1 * cos2 * cos_l;
        let sigma = sin_sigma.atan2(cos_sigma);
        let sin_alpha = cos1 * cos2 * sin_l / sin_sigma;
        let cos2_alpha = 1.0 - sin_alpha * sin_alpha;
        // On the equator the middle of the line does not matter.
        let middle = if cos2_alpha == 0.0 {
            0.0
        } else {
            cos_sigma - 2.0 * sin1 * sin2 / cos2_alpha
        };
        let c = FLATTENING / 16.0 * cos2_alpha * (4.0 + FLATTENING * (4.0 - 3.0 * cos2_alpha));
        let bend = 2.0 * middle * middle - 1.0;
        let before = lambda;
        lambda = longitude
            + (1.0 - c)
                * FLATTENING
                * sin_alpha
                * (sigma + c * sin_sigma * (middle + c * cos_sigma * bend));
        if (lambda - before).abs() < 1e-12 {
            return length(sigma, sin_sigma, cos_sigma, middle, cos2_alpha);
        }
    }
    great_circle(from, to)
}

fn length(sigma: f64, sin_sigma: f64, cos_sigma: f64, middle: f64, cos2_alpha: f64) -> f64 {
    let square = |x: f64| x * x;
    let u2 = cos2_alpha * (square(EQUATOR_METRES) / square(POLE_METRES) - 1.0);
    let a = 1.0 + u2 / 16384.0 * (4096.0 + u2 * (-768.0 + u2 * (320.0 - 175.0 * u2)));
    let b = u2 / 1024.0 * (256.0 + u2 * (-128.0 + u2 * (74.0 - 47.0 * u2)));
    let correction = b
        * sin_sigma
        * (middle
            + b / 4.0
                * (cos_sigma * (2.0 * square(middle) - 1.0)
                    - b / 6.0
                        * middle
                        * (4.0 * square(sin_sigma) - 3.0)
                        * (4.0 * square(middle) - 3.0)));
    POLE_METRES * a * (sigma - correction)
}

fn great_circle(from: (f64, f64), to: (f64, f64)) -> f64 {
    let (one, other) = (from.1.to_radians(), to.1.to_radians());
    let half = |angle: f64| (angle / 2.0).sin().powi(2);
    let chord = half(other - one) + one.cos() * other.cos() * half((to.0 - from.0).to_radians());
    2.0 * MEAN_METRES * chord.sqrt().min(1.0).asin()
}

/// The area of its polygons.
pub fn area(geometry: &Geometry) -> f64 {
    let polygon = |rings: &Vec<Ring>| {
        let mut rings = rings.iter();
        let outer = rings.next().map_or(0.0, |ring| left_area(ring));
        // A hole is the smaller side, however it is written.
        let holes: f64 = rings
            .map(|ring| left_area(ring))
            .map(|a| a.min(2.0 * TAU - a))
            .sum();
        (outer - holes).max(0.0)
    };
    geometry.polygons.iter().map(polygon).sum::<f64>() * AUTHALIC_METRES * AUTHALIC_METRES
}

/// The area to the left of a ring on the unit sphere of the same area: `0..=4π`.
pub fn left_area(ring: &[Position]) -> f64 {
    let mut below = 0.0;
    let mut turned = 0.0;
    for (from, to) in ring.iter().zip(ring.iter().skip(1)) {
        let longitude = (to.longitude - from.longitude).to_radians();
        let longitude = longitude - (longitude / TAU).round() * TAU;
        turned += longitude;
        // At a pole the longitude means nothing.
        let tan = |p: &Position| (authalic(p.latitude.to_radians()) / 2.0).tan();
        let (one, other) = (tan(from), tan(to));
        let half = (longitude / 2.0).tan();
        below += 2.0 * (half * (one + other)).atan2(1.0 + one * other);
    }
    let area = if turned.abs() > PI {
        TAU - below
    } else {
        -below
    };
    area.rem_euclid(2.0 * TAU)
}

/// The latitude that keeps areas when the ellipsoid becomes a sphere.
fn authalic(latitude: f64) -> f64 {
    let e2 = FLATTENING * (2.0 - FLATTENING);
    let e = e2.sqrt();
    let q = |sin: f64| (1.0 - e2) * (sin / (1.0 - e2 * sin * sin) + (e * sin).atanh() / e);
    (q(latitude.sin()) / q(1.0)).clamp(-1.0, 1.0).asin()
}
