//! Places on the earth as cells. The map of longitudes and latitudes is cut into four, each part into four again, and so on; a cell of a
//! level is one such part. The number of a cell begins with the numbers of all cells around it, so that what lies in a cell is a range of
//! numbers.
//!
//! A geometry is entered under the few cells that cover the round piece of the earth that holds it ([`Cap`]). Two geometries that touch have
//! two such cells of which one lies in the other: whoever looks for geometries near a place asks for the cells in its own cells and for
//! the cells around them. Whether they really touch is for the items to tell.

use std::f64::consts::PI;

use crate::sql::{Cap, Vector};

/// Cells of the last level are two metres wide.
const LEVEL_MAX: u32 = 24;
/// Below this level a cell reaches around a quarter of the earth or more.
const FIRST_SMALL_LEVEL: u32 = 2;
/// Cells that a geometry is entered under, at most.
pub const CELLS_PER_ITEM_MAX: usize = 8;
/// Cells that one condition of a query asks for, at most.
pub const CELLS_PER_QUERY_MAX: usize = 64;

const LONGITUDES: f64 = 360.0;
const LATITUDES: f64 = 180.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    level: u32,
    /// Counted from the west and from the south.
    column: u32,
    row: u32,
}

impl Cell {
    const WHOLE: Self = Self {
        level: 0,
        column: 0,
        row: 0,
    };

    fn children(self) -> impl Iterator<Item = Self> {
        (0..4).map(move |part| Self {
            level: self.level + 1,
            column: self.column * 2 + (part & 1),
            row: self.row * 2 + (part >> 1),
        })
    }

    /// The two bits of each level from the top, then a one, then zeros: the middle of the numbers of all that lies in the cell.
    fn number(self) -> u64 {
        let place = (0..self.level).rev().fold(0_u64, |place, at| {
            let bits = (self.row >> at & 1) << 1 | (self.column >> at & 1);
            place << 2 | u64::from(bits)
        });
        (place << 1 | 1) << (63 - 2 * self.level)
    }

    pub fn bytes(self) -> [u8; 8] {
        self.number().to_be_bytes()
    }

    /// The cell and all that lie in it: from a number up to another, which is no cell's.
    pub fn descendants(self) -> ([u8; 8], [u8; 8]) {
        let number = self.number();
        let reach = (1_u64 << number.trailing_zeros()) - 1;
        (
            (number - reach).to_be_bytes(),
            (number + reach).to_be_bytes(),
        )
    }

    /// The cells around this one.
    pub fn ancestors(self) -> impl Iterator<Item = [u8; 8]> {
        (1..=self.level).map(move |up| {
            let around = Self {
                level: self.level - up,
                column: self.column >> up,
                row: self.row >> up,
            };
            around.bytes()
        })
    }

    /// A round piece of the earth that holds the cell, its borders included.
    fn cap(self) -> Cap {
        let parts = f64::from(1_u32 << self.level);
        let (width, height) = (LONGITUDES / parts, LATITUDES / parts);
        let west = f64::from(self.column) * width - LONGITUDES / 2.0;
        let south = f64::from(self.row) * height - LATITUDES / 2.0;
        let middle = Vector::at(west + width / 2.0, south + height / 2.0);
        if self.level < FIRST_SMALL_LEVEL {
            return Cap { middle, radius: PI };
        }
        // Within a quarter turn nothing is further from the middle than a corner.
        let corner = |latitude: f64| middle.angle(Vector::at(west, latitude));
        Cap {
            middle,
            radius: corner(south).max(corner(south + height)),
        }
    }
}

/// Cells of one level, as small as may be, that hold a round piece of the earth: all that touch it.
pub fn covering(cap: Cap, cells_max: usize) -> Vec<Cell> {
    let mut cells = vec![Cell::WHOLE];
    for _ in 0..LEVEL_MAX {
        let smaller: Vec<Cell> = cells
            .iter()
            .flat_map(|cell| cell.children())
            .filter(|cell| {
                let around = cell.cap();
                cap.middle.angle(around.middle) <= cap.radius + around.radius
            })
            .collect();
        if smaller.is_empty() || smaller.len() > cells_max {
            break;
        }
        cells = smaller;
    }
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::sql::Geometry;

    fn point(longitude: f64, latitude: f64) -> Geometry {
        Geometry::parse(&json!({"type": "Point", "coordinates": [longitude, latitude]})).unwrap()
    }

    /// Whether one of the cells of an item is asked for by a query.
    fn is_asked_for(item: &[Cell], query: &[Cell]) -> bool {
        item.iter().any(|cell| {
            let bytes = cell.bytes();
            query.iter().any(|asked| {
                let (from, to) = asked.descendants();
                (bytes >= from && bytes < to) || asked.ancestors().any(|around| around == bytes)
            })
        })
    }

    #[test]
    fn what_lies_in_a_cell_is_a_range() {
        let cell = Cell {
            level: 3,
            column: 5,
            row: 2,
        };
        let (from, to) = cell.descendants();
        let is_in = |bytes: [u8; 8]| bytes >= from && bytes < to;
        assert!(is_in(cell.bytes()));
        for child in cell.children().flat_map(Cell::children) {
            assert!(is_in(child.bytes()), "{child:?}");
            assert!(child.ancestors().any(|around| around == cell.bytes()));
        }
        assert!(cell.ancestors().all(|around| !is_in(around)));
        assert_eq!(cell.ancestors().last(), Some(Cell::WHOLE.bytes()));
        for column in 0..8 {
            for row in 0..8 {
                let other = Cell {
                    column,
                    row,
                    ..cell
                };
                assert_eq!(is_in(other.bytes()), other == cell);
            }
        }
    }

    #[test]
    fn a_point_has_few_cells_of_the_last_level() {
        for (longitude, latitude) in [(4.9, 52.37), (180.0, 0.0), (-180.0, 12.0), (0.0, 0.0)] {
            let cells = covering(point(longitude, latitude).cap(0.0), CELLS_PER_ITEM_MAX);
            assert!(cells.len() <= 4, "{cells:?}");
            assert!(cells.iter().all(|cell| cell.level == LEVEL_MAX));
        }
        // All columns meet at a pole.
        let cells = covering(point(7.0, 90.0).cap(0.0), CELLS_PER_ITEM_MAX);
        assert!(cells.len() <= CELLS_PER_ITEM_MAX && cells.iter().all(|cell| cell.level >= 2));
    }

    #[test]
    fn a_city_is_not_looked_for_on_the_other_side_of_the_earth() {
        let around = covering(point(4.9, 52.37).cap(10_000.0), CELLS_PER_QUERY_MAX);
        assert!(around.iter().all(|cell| cell.level > 8), "{around:?}");
        let far = covering(point(-74.0, 40.7).cap(0.0), CELLS_PER_ITEM_MAX);
        assert!(!is_asked_for(&far, &around));
    }

    proptest! {
        #[test]
        fn what_is_near_is_asked_for(
            longitude in -180.0..=180.0_f64,
            latitude in -90.0..=90.0_f64,
            east in -1.0..=1.0_f64,
            north in -1.0..=1.0_f64,
            scale in 0..7,
        ) {
            let step = 10_f64.powi(1 - scale);
            let wrapped = (longitude + east * step + 540.0).rem_euclid(360.0) - 180.0;
            let other = (wrapped, (latitude + north * step).clamp(-90.0, 90.0));
            let (a, b) = (point(longitude, latitude), point(other.0, other.1));
            // However the two are measured, the distance is less than this.
            let metres = (east.abs().hypot(north.abs()) * step).to_radians() * 6_400_000.0 + 1.0;
            let item = covering(b.cap(0.0), CELLS_PER_ITEM_MAX);
            let query = covering(a.cap(metres), CELLS_PER_QUERY_MAX);
            prop_assert!(is_asked_for(&item, &query));
        }
    }
}
