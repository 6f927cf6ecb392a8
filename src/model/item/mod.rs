//! Items: what a body must have to become one, and the bytes that are stored and returned.
//!
//! A body is written once. It stays open (without its last brace) until the shard knows the time, the etag and
//! the resource id, which are then appended; nothing parses it again.

mod etag;
mod unique;

pub use etag::{Etag, EtagCondition};
pub use unique::unique_fingerprints;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{Error, ErrorKind, Result};
use super::json::{kind_name, shorten, show, write_string, write_value};
use super::ttl::ItemTtl;

/// The largest item, in bytes of compact JSON without the system properties.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The longest id of an item, in bytes.
pub const ITEM_ID_BYTES_MAX: usize = 1_023;

/// Room for a usual body, in bytes, so that it is not copied as it grows.
const BODY_BYTES_EXPECTED: usize = 1_280;

/// The properties that belong to the server; what a client sends for them is dropped.
const SYSTEM_PROPERTIES: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

pub fn is_system_property(name: &str) -> bool {
    name.starts_with('_') && SYSTEM_PROPERTIES.contains(&name)
}

/// An item as the client means it: checked, but not yet stamped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    pub id: String,
    pub ttl: ItemTtl,
    /// The user's properties as compact JSON, open: without the last brace. [`finish_body`] closes it.
    pub body: Vec<u8>,
}

impl NewItem {
    /// Checks id, ttl and size, and leaves out the server's properties.
    pub fn from_object(object: &Map<String, Value>) -> Result<Self> {
        let id = match object.get("id") {
            Some(Value::String(id)) => id,
            None => {
                return Err(Error::bad_request(
                    "the item has no 'id': it must be a non-empty string",
                ));
            }
            Some(other) => {
                return Err(Error::bad_request(format!(
                    "the value {} of 'id' is {}: it must be a non-empty string",
                    show(other),
                    kind_name(other)
                )));
            }
        };
        check_id(id)?;
        let ttl = ItemTtl::from_json(object.get("ttl"))?;
        let body = open_body(object);
        // One more byte for the brace that is still to come.
        let bytes = body.len() + 1;
        if bytes > ITEM_BYTES_MAX {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "Request size is too large: the item has {bytes} bytes, the limit is {ITEM_BYTES_MAX}"
                ),
            ));
        }
        Ok(Self {
            id: id.clone(),
            ttl,
            body,
        })
    }
}

/// What a shard gives a version when it accepts the write; a command carries it, so that applying it reads no clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The second of the write: `_ts`.
    pub ts: i64,
    pub etag: Etag,
    /// The item's number in its container, from which its resource id is made; it survives replaces.
    pub ordinal: u64,
}

/// An id of an item is 1 to 1023 bytes without the characters that take part in paths.
pub fn check_id(id: &str) -> Result<()> {
    let wrong = if id.is_empty() {
        "is empty".to_owned()
    } else if id.len() > ITEM_ID_BYTES_MAX {
        format!("has {} bytes", id.len())
    } else if let Some(sign) = id
        .chars()
        .find(|sign| matches!(sign, '/' | '\\' | '?' | '#'))
    {
        format!("contains '{sign}'")
    } else {
        return Ok(());
    };
    Err(Error::bad_request(format!(
        "the item id '{}' {wrong}. Ensure to provide a unique non-empty string less than '1024' characters. Bytes of UTF-8 are counted; none of / \\ ? # may be in it",
        shorten(id)
    )))
}

fn open_body(object: &Map<String, Value>) -> Vec<u8> {
    let mut body = Vec::with_capacity(BODY_BYTES_EXPECTED);
    body.push(b'{');
    for (name, value) in object {
        if is_system_property(name) {
            continue;
        }
        if body.len() > 1 {
            body.push(b',');
        }
        write_string(&mut body, name);
        body.push(b':');
        write_value(&mut body, value);
    }
    body
}

/// Appends the whole stored item: an open body, then the server's properties.
///
/// `etag` may come with or without its quotes. None of the texts needs escaping: resource ids and links are
/// base64 and slashes, etags are hexadecimal.
pub fn finish_body(
    out: &mut Vec<u8>,
    open_body: &[u8],
    rid_text: &str,
    self_link: &str,
    etag: &str,
    ts: i64,
) {
    let pieces: [&[u8]; 8] = [
        if open_body.len() > 1 {
            b",\"_rid\":\""
        } else {
            b"\"_rid\":\""
        },
        rid_text.as_bytes(),
        b"\",\"_self\":\"",
        self_link.as_bytes(),
        b"\",\"_etag\":\"\\\"",
        etag.trim_matches('"').as_bytes(),
        b"\\\"\",\"_attachments\":\"attachments/\",\"_ts\":",
        b"}",
    ];
    let digits = ts.to_string();
    out.reserve(
        open_body.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>() + digits.len(),
    );
    out.extend_from_slice(open_body);
    let [before @ .., brace] = pieces;
    for piece in before {
        out.extend_from_slice(piece);
    }
    out.extend_from_slice(digits.as_bytes());
    out.extend_from_slice(brace);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::json::parse_object;

    fn item(body: &str) -> Result<NewItem> {
        NewItem::from_object(&parse_object(body.as_bytes())?)
    }

    fn open_text(body: &str) -> String {
        String::from_utf8(item(body).expect("a valid item").body).expect("JSON is UTF-8")
    }

    #[test]
    fn the_open_body_is_the_users_properties_in_their_order() {
        for (given, open) in [
            (r#"{"id":"1"}"#, r#"{"id":"1""#),
            (
                r#"{ "z": 1.0, "id": "1", "a": [1, {"_ts": 5}] }"#,
                r#"{"z":1,"id":"1","a":[1,{"_ts":5}]"#,
            ),
            (
                r#"{"_rid":"r","_self":"s","id":"1","_etag":"e","n":2,"_attachments":"a","_ts":9,"_lsn":3}"#,
                r#"{"id":"1","n":2"#,
            ),
            (
                r#"{"id":"1","_own":1,"_RID":2,"ttl":60.0}"#,
                r#"{"id":"1","_own":1,"_RID":2,"ttl":60"#,
            ),
            (
                r#"{"id":"é\"","a\"b":"\n\\"}"#,
                r#"{"id":"é\"","a\"b":"\n\\""#,
            ),
        ] {
            assert_eq!(open_text(given), open);
        }
    }

    #[test]
    fn ids_are_checked() {
        let longest = "x".repeat(ITEM_ID_BYTES_MAX);
        for id in ["1", " ", "a b\t\r\n", "é🦀", ".", "%2F", longest.as_str()] {
            let item = NewItem::from_object(json!({"id": id}).as_object().expect("an object"));
            assert_eq!(item.map(|item| item.id), Ok(id.to_owned()));
        }
        let too_long = "é".repeat(512);
        for (id, fragment) in [
            (json!(""), "is empty"),
            (json!("a/b"), "'a/b' contains '/'"),
            (json!("a\\b"), "contains '\\'"),
            (json!("a?"), "'a?' contains '?'"),
            (json!("#"), "contains '#'"),
            (json!(too_long), "has 1024 bytes"),
            (json!(null), "null"),
            (json!(5), "the value 5"),
            (json!(["1"]), "[\"1\"]"),
        ] {
            let error = NewItem::from_object(json!({"id": id}).as_object().expect("an object"))
                .expect_err("refused");
            assert_eq!(error.status(), 400);
            assert!(error.message.contains(fragment), "{error} lacks {fragment}");
            assert!(error.message.len() < 400, "{error}");
        }
        let error = item(r#"{"ID":"1"}"#).expect_err("no id");
        assert!(error.message.contains("no 'id'"), "{error}");
    }

    #[test]
    fn a_bad_id_names_the_interop_limit() {
        assert!(
            check_id("")
                .expect_err("empty")
                .message
                .contains("less than '1024' characters")
        );
    }

    #[test]
    fn ttl_is_always_checked() {
        assert_eq!(
            item(r#"{"id":"1"}"#).map(|item| item.ttl),
            Ok(ItemTtl::Inherit)
        );
        assert_eq!(
            item(r#"{"id":"1","ttl":-1}"#).map(|item| item.ttl),
            Ok(ItemTtl::Never)
        );
        assert_eq!(
            item(r#"{"id":"1","ttl":5}"#).map(|item| item.ttl.own_expiry(10)),
            Ok(Some(15))
        );
        for ttl in ["0", "null", "-2", "1.5", "\"60\"", "2147483648"] {
            let error = item(&format!(r#"{{"id":"1","ttl":{ttl}}}"#)).expect_err(ttl);
            assert_eq!(error.status(), 400);
            assert!(error.message.contains(ttl), "{error}");
        }
    }

    #[test]
    fn size_is_limited_exactly_and_without_system_properties() {
        let frame = r#"{"id":"1","s":""}"#.len();
        let sized = |bytes: usize| json!({"id": "1", "s": "x".repeat(bytes - frame), "_etag": "not counted"});
        let fits = NewItem::from_object(sized(ITEM_BYTES_MAX).as_object().expect("an object"))
            .expect("fits");
        assert_eq!(fits.body.len() + 1, ITEM_BYTES_MAX);
        let error = NewItem::from_object(sized(ITEM_BYTES_MAX + 1).as_object().expect("an object"))
            .expect_err("large");
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert!(
            error.message.contains("Request size is too large"),
            "{error}"
        );
        assert!(error.message.contains("2097153"), "{error}");
    }

    #[test]
    fn a_finished_body_is_the_item_with_its_system_properties() {
        let etag = Etag::new(1, 2, 3, 4).to_string();
        let rid = "AAAD6YAAAAEBAAAAAAAAAA==";
        let link = "dbs/AAAD6Q==/colls/AAAD6YAAAAE=/docs/AAAD6YAAAAEBAAAAAAAAAA==/";
        for (open, user) in [
            (&b"{"[..], json!({})),
            (br#"{"id":"1","n":2"#, json!({"id": "1", "n": 2})),
        ] {
            for etag_form in [etag.as_str(), etag.trim_matches('"')] {
                let mut out = b"before ".to_vec();
                finish_body(&mut out, open, rid, link, etag_form, 1_790_000_000);
                let finished = parse_object(out.strip_prefix(b"before ").expect("appended"))
                    .expect("valid JSON");
                let mut expected = user.as_object().expect("an object").clone();
                expected.insert("_rid".into(), json!(rid));
                expected.insert("_self".into(), json!(link));
                expected.insert("_etag".into(), json!(etag));
                expected.insert("_attachments".into(), json!("attachments/"));
                expected.insert("_ts".into(), json!(1_790_000_000));
                assert_eq!(finished, expected);
                assert!(finished.keys().eq(expected.keys()), "in this order");
                let again = NewItem::from_object(&finished);
                assert_eq!(again.is_ok(), user.get("id").is_some());
                assert!(
                    again.is_err() || again.is_ok_and(|item| item.body == open),
                    "what was stamped comes off"
                );
            }
        }
    }
}
