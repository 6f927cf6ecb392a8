//! What an answer shows of an item: found by its bytes, without parsing all of it.

use memchr::memmem;
use serde::Deserialize;

use crate::bench::item;

/// The fields that are checked. The driver wrote the item, so it knows that these texts stand
/// nowhere else in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    pub number: u64,
    pub version: u32,
    /// The server's `_ts`.
    pub written: u64,
    pub ttl: Option<u32>,
    pub payload: &'a [u8],
}

impl<'a> Seen<'a> {
    /// The item of a point answer; nothing, if it is none of ours.
    pub fn of(body: &'a [u8]) -> Option<Self> {
        let id = text(body, b"\"id\":")?;
        Some(Self {
            number: item::number_of(std::str::from_utf8(id).ok()?)?,
            version: number(body, b"\"version\":")?.try_into().ok()?,
            written: written(body)?,
            ttl: number(body, b"\"ttl\":").and_then(|ttl| ttl.try_into().ok()),
            payload: text(body, b"\"payload\":")?,
        })
    }

    fn of_listed(item: Listed<'a>) -> Option<Self> {
        Some(Self {
            number: item::number_of(item.id)?,
            version: item.version,
            written: item.written,
            ttl: item.ttl,
            payload: item.payload.as_bytes(),
        })
    }
}

/// The `_ts` in an answer.
pub fn written(body: &[u8]) -> Option<u64> {
    number(body, b"\"_ts\":")
}

/// The items of a feed's or a query's answer.
pub fn seen_items(body: &[u8]) -> Option<Vec<Seen<'_>>> {
    let page: Page<'_> = serde_json::from_slice(body).ok()?;
    page.items.into_iter().map(Seen::of_listed).collect()
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow, rename = "Documents")]
    items: Vec<Listed<'a>>,
}

#[derive(Deserialize)]
struct Listed<'a> {
    id: &'a str,
    version: u32,
    #[serde(rename = "_ts")]
    written: u64,
    ttl: Option<u32>,
    payload: &'a str,
}

/// What follows a name, without the spaces that some servers put there.
fn value<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = memmem::find(body, name)? + name.len();
    Some(body.get(at..)?.trim_ascii_start())
}

fn number(body: &[u8], name: &[u8]) -> Option<u64> {
    let value = value(body, name)?;
    let end = value.iter().position(|byte| !byte.is_ascii_digit());
    let digits = value.get(..end?)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn text<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = value(body, name)?.strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', value)?;
    value.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_however_the_server_writes_them() {
        let tight = br#"{"id":"i000000012","pk":"p0000000","ttl":5,"version":3,"payload":"abc","_rid":"x","_ts":1700000000}"#;
        let wide = br#"{ "_ts": 1700000000, "ttl": 5, "version": 3,
            "payload": "abc", "id": "i000000012" }"#;
        for body in [tight.as_slice(), wide] {
            let seen = Seen::of(body).unwrap();
            assert_eq!((seen.number, seen.version, seen.ttl), (12, 3, Some(5)));
            assert_eq!(
                (seen.written, seen.payload),
                (1_700_000_000, b"abc".as_slice())
            );
        }
        assert_eq!(Seen::of(br#"{"id":"other","version":1,"_ts":1}"#), None);
        assert_eq!(Seen::of(b"{}"), None);
        let text = String::from_utf8_lossy(tight);
        let page = format!(r#"{{"_rid":"x","Documents":[{text},{text}],"_count":2}}"#);
        let items = seen_items(page.as_bytes()).unwrap();
        assert_eq!(items, [Seen::of(tight).unwrap(); 2]);
        assert_eq!(seen_items(b"{}"), None);
    }
}
