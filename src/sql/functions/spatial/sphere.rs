//! Vectors on the unit sphere.

/// How near to a great circle a point counts as on it (about a centimetre on the earth).
const ON_LINE: f64 = 1e-9;

/// Of legs no longer than the unit. Not `f64::hypot`, whose symbol is of glibc 2.35: without it
/// the program runs with 2.34.
pub fn hypotenuse(a: f64, b: f64) -> f64 {
    (a * a + b * b).sqrt()
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vector {
    pub x: f64,
    pub y: f64,
    pub z: f64,
}

impl Vector {
    /// Of degrees.
    pub fn at(longitude: f64, latitude: f64) -> Self {
        let (sin_lon, cos_lon) = longitude.to_radians().sin_cos();
        let (sin_lat, cos_lat) = latitude.to_radians().sin_cos();
        Self {
            x: cos_lat * cos_lon,
            y: cos_lat * sin_lon,
            z: sin_lat,
        }
    }

    /// Longitude and latitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        let latitude = self.z.atan2(hypotenuse(self.x, self.y));
        (self.y.atan2(self.x).to_degrees(), latitude.to_degrees())
    }

    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            x: self.x * factor,
            y: self.y * factor,
            z: self.z * factor,
        }
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            x: self.x + other.x,
            y: self.y + other.y,
            z: self.z + other.z,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            x: self.x - other.x,
            y: self.y - other.y,
            z: self.z - other.z,
        }
    }

    pub fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    pub fn unit(self) -> Option<Self> {
        let length = self.length();
        (length > f64::EPSILON).then(|| self.scaled(1.0 / length))
    }

    /// The angle to another vector, exact also when it is small.
    pub fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }
}

/// The place on the edge `a`–`b` that is nearest to `p`.
pub fn nearest(p: Vector, a: Vector, b: Vector) -> Vector {
    let ends = if p.angle(a) <= p.angle(b) { a } else { b };
    let Some(normal) = a.cross(b).unit() else {
        return ends;
    };
    let Some(foot) = p.minus(normal.scaled(p.dot(normal))).unit() else {
        return ends;
    };
    if is_between(foot, a, b, normal) {
        foot
    } else {
        ends
    }
}

/// Whether a point of the great circle is on the edge.
fn is_between(p: Vector, a: Vector, b: Vector, normal: Vector) -> bool {
    a.cross(p).dot(normal) >= -ON_LINE && p.cross(b).dot(normal) >= -ON_LINE
}

pub fn is_on_edge(p: Vector, a: Vector, b: Vector) -> bool {
    p.angle(nearest(p, a, b)) < ON_LINE
}

/// Whether two edges cross in points inside of both.
pub fn edges_cross(a: Vector, b: Vector, c: Vector, d: Vector) -> bool {
    let (Some(one), Some(other)) = (a.cross(b).unit(), c.cross(d).unit()) else {
        return false;
    };
    let sides = |normal: Vector, p: Vector, q: Vector| {
        let (p, q) = (normal.dot(p), normal.dot(q));
        (p > ON_LINE && q < -ON_LINE) || (p < -ON_LINE && q > ON_LINE)
    };
    if !sides(one, c, d) || !sides(other, a, b) {
        return false;
    }
    // The circles meet in two opposite points: the same one must be on both edges.
    let Some(meeting) = one.cross(other).unit() else {
        return false;
    };
    [meeting, meeting.scaled(-1.0)]
        .into_iter()
        .any(|p| is_between(p, a, b, one) && is_between(p, c, d, other))
}

/// How often the ring goes around `p`: the turns of the view from there, in full circles.
pub fn turns(p: Vector, ring: &[Vector]) -> f64 {
    // Two directions at right angles in the plane that touches the sphere at p.
    let pole = if p.z.abs() < 0.9 {
        Vector {
            x: 0.0,
            y: 0.0,
            z: 1.0,
        }
    } else {
        Vector {
            x: 1.0,
            y: 0.0,
            z: 0.0,
        }
    };
    let Some(east) = pole.cross(p).unit() else {
        return 0.0;
    };
    let north = p.cross(east);
    let bearings: Vec<f64> = ring
        .iter()
        .map(|v| v.dot(north).atan2(v.dot(east)))
        .collect();
    let turned: f64 = bearings
        .iter()
        .zip(bearings.iter().skip(1))
        .map(|(from, to)| {
            let turn = to - from;
            turn - (turn / std::f64::consts::TAU).round() * std::f64::consts::TAU
        })
        .sum();
    turned / std::f64::consts::TAU
}
