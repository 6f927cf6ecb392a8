//! The one model of request charges, in request units (RU).
//!
//! A charge follows from sizes in bytes alone, so that no stored item is parsed to price it. The size step of an
//! item is its size in KB (1,024 bytes), rounded up to a power of two and at least 1: 300 bytes are 1, 1.5 KB are 2,
//! 5 KB are 8.
//!
//! | operation                                        | charge                                                 |
//! | ------------------------------------------------ | ------------------------------------------------------ |
//! | read of an item                                  | 1 × step                                               |
//! | read of an item that is absent or unmodified     | 1                                                      |
//! | create, upsert that creates                      | 5.8 × step                                             |
//! | replace, patch, upsert that replaces             | 8.7 × step of the new item                             |
//! | delete                                           | 8.7 × step of the removed item                         |
//! | write that is refused (404, 409, 412)            | 1                                                      |
//! | page of a read feed or a change feed             | 1 + 0.05 for each item + 0.05 for each KB returned     |
//! | page of a query                                  | 2.3 + 0.05 for each item examined + 0.05 for each KB returned |
//! | read of a database, container or offer           | 1                                                      |
//! | write of a database, container or offer          | 4.95                                                   |
//! | batch                                            | the sum of its operations                              |
//! | purging of expired items                         | 0                                                      |
//!
//! Charges are rounded to two decimals, also after adding up.

/// Bytes that the model counts as one KB.
const KB_BYTES: usize = 1_024;

const READ_PER_STEP: f64 = 1.0;
const CREATE_PER_STEP: f64 = 5.8;
/// A change of an existing item costs one and a half times its creation.
const CHANGE_PER_STEP: f64 = 1.5 * CREATE_PER_STEP;
const FEED_BASE: f64 = 1.0;
const QUERY_BASE: f64 = 2.3;
const PER_ITEM: f64 = 0.05;
const PER_KB: f64 = 0.05;

/// A point read that finds nothing, or nothing newer than the client has.
pub const READ_WITHOUT_ITEM: f64 = 1.0;
/// A write that is refused after looking the item up.
pub const REFUSED_WRITE: f64 = 1.0;
/// Any read of the catalog.
pub const CATALOG_READ: f64 = 1.0;
/// Any change of the catalog.
pub const CATALOG_WRITE: f64 = 4.95;

/// A point read of an item of this size.
pub fn read(bytes: usize) -> f64 {
    round(READ_PER_STEP * step(bytes))
}

/// A create, or an upsert that creates, of an item of this size.
pub fn create(bytes: usize) -> f64 {
    round(CREATE_PER_STEP * step(bytes))
}

/// A replace, a patch, or an upsert that replaces, whose outcome has this size.
pub fn replace(bytes: usize) -> f64 {
    round(CHANGE_PER_STEP * step(bytes))
}

/// A delete of an item of this size.
pub fn delete(bytes: usize) -> f64 {
    round(CHANGE_PER_STEP * step(bytes))
}

/// A page of a read feed or a change feed with so many items and bytes.
pub fn feed_page(items: usize, bytes: usize) -> f64 {
    round(FEED_BASE + page(items, bytes))
}

/// A page of a query that examined so many items and returned so many bytes.
pub fn query(examined: usize, bytes: usize) -> f64 {
    round(QUERY_BASE + page(examined, bytes))
}

/// The sum of charges, rounded again because tenths do not add up exactly.
pub fn sum(charges: impl IntoIterator<Item = f64>) -> f64 {
    round(charges.into_iter().sum())
}

/// A charge as its header shows it, always with a decimal point.
pub fn format(charge: f64) -> String {
    // Charges have two decimals and are small: integers are quicker than exact decimal expansion.
    let hundredths = (charge * 100.0).round() as u64;
    let mut digits = itoa::Buffer::new();
    let mut text = String::with_capacity(8);
    text.push_str(digits.format(hundredths / 100));
    text.push_str(if hundredths % 100 < 10 { ".0" } else { "." });
    text.push_str(digits.format(hundredths % 100));
    text
}

fn step(bytes: usize) -> f64 {
    bytes.div_ceil(KB_BYTES).max(1).next_power_of_two() as f64
}

fn page(items: usize, bytes: usize) -> f64 {
    items as f64 * PER_ITEM + bytes as f64 / KB_BYTES as f64 * PER_KB
}

fn round(charge: f64) -> f64 {
    (charge * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_priced_by_their_size_step() {
        for (bytes, steps) in [
            (0, 1.0),
            (1, 1.0),
            (1_024, 1.0),
            (1_025, 2.0),
            (2_048, 2.0),
            (2_049, 4.0),
            (5_000, 8.0),
            (100 * 1_024, 128.0),
            (2 * 1_024 * 1_024, 2_048.0),
        ] {
            assert_eq!(read(bytes), steps, "read of {bytes}");
            assert_eq!(create(bytes), round(5.8 * steps), "create of {bytes}");
            assert_eq!(replace(bytes), round(8.7 * steps), "replace of {bytes}");
            assert_eq!(delete(bytes), round(8.7 * steps), "delete of {bytes}");
        }
    }

    #[test]
    fn pages_are_priced_by_items_and_bytes() {
        for (items, bytes, feed, asked) in [
            (0, 0, 1.0, 2.3),
            (1, 1_024, 1.1, 2.4),
            (100, 100 * 1_024, 11.0, 12.3),
            (3, 600, 1.18, 2.48),
        ] {
            assert_eq!(feed_page(items, bytes), feed, "feed of {items}, {bytes}");
            assert_eq!(query(items, bytes), asked, "query of {items}, {bytes}");
        }
    }

    #[test]
    fn a_charge_is_written_with_a_decimal_point_and_two_decimals() {
        for (charge, text) in [
            (1.0, "1.00"),
            (5.8, "5.80"),
            (0.0, "0.00"),
            (17_817.6, "17817.60"),
        ] {
            assert_eq!(format(charge), text);
        }
        assert_eq!(format(sum([5.8, 5.8, 5.8])), "17.40");
        assert_eq!(sum([0.1, 0.2]), 0.3);
    }
}
