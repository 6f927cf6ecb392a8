//! What a request path addresses.
//!
//! Paths are read positionally (`keyword/value/keyword/value…`): a database may be named `colls`
//! and an item `docs`. Names borrow from the path unless they carry escapes.

mod signing;

use std::borrow::Cow;

pub use self::signing::{Link, Signing};
use crate::model::error::{Error, Result};

/// Longest accepted path, in bytes: three names of the longest kind with every byte escaped, and
/// room to spare.
pub const PATH_BYTES_MAX: usize = 16 * 1024;

/// Characters of an offending value that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// Segments of the longest known path; anything longer is unknown.
const SEGMENTS_MAX: usize = 6;

/// Characters of one escape, `%XX`.
const ESCAPE_CHARS: usize = 3;

/// The three kinds of server-side script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    StoredProcedure,
    Trigger,
    UserDefinedFunction,
}

impl ScriptKind {
    /// The word in the path, which is also the signed resource type.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::StoredProcedure => "sprocs",
            Self::Trigger => "triggers",
            Self::UserDefinedFunction => "udfs",
        }
    }

    fn from_keyword(keyword: &str) -> Option<Self> {
        match keyword {
            "sprocs" => Some(Self::StoredProcedure),
            "triggers" => Some(Self::Trigger),
            "udfs" => Some(Self::UserDefinedFunction),
            _ => None,
        }
    }
}

/// The resource a request path addresses. Every name is decoded, not empty, and may instead be
/// the resource's RID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcePath<'a> {
    Account,
    Databases,
    Database {
        db: Cow<'a, str>,
    },
    Containers {
        db: Cow<'a, str>,
    },
    Container {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
    },
    Items {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
    },
    Item {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
        id: Cow<'a, str>,
    },
    PartitionKeyRanges {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
    },
    /// `…/operations/partitionkeydelete`: delete all items of one partition key.
    PartitionKeyDelete {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
    },
    Scripts {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
        kind: ScriptKind,
    },
    Script {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
        kind: ScriptKind,
        id: Cow<'a, str>,
    },
    Conflicts {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
    },
    Conflict {
        db: Cow<'a, str>,
        coll: Cow<'a, str>,
        id: Cow<'a, str>,
    },
    Users {
        db: Cow<'a, str>,
    },
    User {
        db: Cow<'a, str>,
        user: Cow<'a, str>,
    },
    Permissions {
        db: Cow<'a, str>,
        user: Cow<'a, str>,
    },
    Permission {
        db: Cow<'a, str>,
        user: Cow<'a, str>,
        id: Cow<'a, str>,
    },
    Offers,
    Offer {
        rid: Cow<'a, str>,
    },
    /// Well-formed, but nothing of the above; the decoded path without its outer slashes.
    Unknown {
        path: Cow<'a, str>,
    },
}

impl<'a> ResourcePath<'a> {
    /// Reads the path of a request: percent-encoded, without the query string.
    pub fn parse(path: &'a str) -> Result<Self> {
        if path.len() > PATH_BYTES_MAX {
            return Err(Error::bad_request(format!(
                "the path of {} bytes is longer than {PATH_BYTES_MAX} bytes",
                path.len()
            )));
        }
        let inner = path.strip_prefix('/').unwrap_or(path);
        if inner.is_empty() {
            return Ok(Self::Account);
        }
        // Python ends most paths with one slash, the others never do: both mean the same.
        let inner = inner.strip_suffix('/').unwrap_or(inner);

        let mut segments: [&str; SEGMENTS_MAX] = [""; SEGMENTS_MAX];
        let (mut count, mut start) = (0, 0);
        let ends = inner.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
        for end in ends.map(|(end, _)| end).chain([inner.len()]) {
            let segment = inner.get(start..end).unwrap_or_default();
            if segment.is_empty() {
                return Err(Error::bad_request(format!(
                    "the path '{}' has an empty segment",
                    shortened(path)
                )));
            }
            match segments.get_mut(count) {
                Some(slot) => *slot = segment,
                None => return Self::unknown(inner),
            }
            count += 1;
            start = end + 1;
        }
        match segments.get(..count).unwrap_or_default() {
            ["dbs"] => Ok(Self::Databases),
            ["dbs", db] => Ok(Self::Database { db: decoded(db)? }),
            ["dbs", db, "colls"] => Ok(Self::Containers { db: decoded(db)? }),
            ["dbs", db, "users"] => Ok(Self::Users { db: decoded(db)? }),
            ["dbs", db, "colls", coll] => Ok(Self::Container {
                db: decoded(db)?,
                coll: decoded(coll)?,
            }),
            ["dbs", db, "users", user] => Ok(Self::User {
                db: decoded(db)?,
                user: decoded(user)?,
            }),
            ["dbs", db, "colls", coll, feed] => Self::container_feed(inner, db, coll, feed),
            ["dbs", db, "users", user, "permissions"] => Ok(Self::Permissions {
                db: decoded(db)?,
                user: decoded(user)?,
            }),
            ["dbs", db, "colls", coll, keyword, id] => {
                Self::under_container(inner, db, coll, keyword, id)
            }
            ["dbs", db, "users", user, "permissions", id] => Ok(Self::Permission {
                db: decoded(db)?,
                user: decoded(user)?,
                id: decoded(id)?,
            }),
            ["offers"] => Ok(Self::Offers),
            ["offers", rid] => Ok(Self::Offer { rid: decoded(rid)? }),
            _ => Self::unknown(inner),
        }
    }

    fn container_feed(inner: &'a str, db: &'a str, coll: &'a str, feed: &str) -> Result<Self> {
        if let Some(kind) = ScriptKind::from_keyword(feed) {
            return Ok(Self::Scripts {
                db: decoded(db)?,
                coll: decoded(coll)?,
                kind,
            });
        }
        match feed {
            "docs" => Ok(Self::Items {
                db: decoded(db)?,
                coll: decoded(coll)?,
            }),
            "pkranges" => Ok(Self::PartitionKeyRanges {
                db: decoded(db)?,
                coll: decoded(coll)?,
            }),
            "conflicts" => Ok(Self::Conflicts {
                db: decoded(db)?,
                coll: decoded(coll)?,
            }),
            _ => Self::unknown(inner),
        }
    }

    fn under_container(
        inner: &'a str,
        db: &'a str,
        coll: &'a str,
        keyword: &str,
        id: &'a str,
    ) -> Result<Self> {
        if let Some(kind) = ScriptKind::from_keyword(keyword) {
            let (db, coll, id) = (decoded(db)?, decoded(coll)?, decoded(id)?);
            return Ok(Self::Script { db, coll, kind, id });
        }
        match (keyword, id) {
            ("docs", id) => Ok(Self::Item {
                db: decoded(db)?,
                coll: decoded(coll)?,
                id: decoded(id)?,
            }),
            ("conflicts", id) => Ok(Self::Conflict {
                db: decoded(db)?,
                coll: decoded(coll)?,
                id: decoded(id)?,
            }),
            ("operations", "partitionkeydelete") => Ok(Self::PartitionKeyDelete {
                db: decoded(db)?,
                coll: decoded(coll)?,
            }),
            _ => Self::unknown(inner),
        }
    }

    fn unknown(inner: &'a str) -> Result<Self> {
        Ok(Self::Unknown {
            path: decoded(inner)?,
        })
    }
}

/// Undoes `%XX`; a `+` stays a plus. Borrows when there is nothing to undo.
fn decoded(segment: &str) -> Result<Cow<'_, str>> {
    if !segment.as_bytes().contains(&b'%') {
        return Ok(Cow::Borrowed(segment));
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let escape = match tail {
            [high, low, after @ ..] => hex(*high).zip(hex(*low)).map(|pair| (pair, after)),
            _ => None,
        };
        let Some(((high, low), after)) = escape else {
            let found: String = String::from_utf8_lossy(rest)
                .chars()
                .take(ESCAPE_CHARS)
                .collect();
            return Err(Error::bad_request(format!(
                "the path segment '{}' has a malformed escape '{found}'",
                shortened(segment)
            )));
        };
        bytes.push(high << 4 | low);
        rest = after;
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| {
        Error::bad_request(format!(
            "the path segment '{}' is not UTF-8 once its escapes are decoded",
            shortened(segment)
        ))
    })
}

/// The value of a hexadecimal digit.
pub const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keywords_are_positional() {
        assert_eq!(
            ResourcePath::parse("/dbs/colls/colls/docs/docs/docs").unwrap(),
            ResourcePath::Item {
                db: "colls".into(),
                coll: "docs".into(),
                id: "docs".into()
            }
        );
    }

    #[test]
    fn plain_names_are_borrowed() {
        match ResourcePath::parse("/dbs/d/colls/c/docs/x%2Fy").unwrap() {
            ResourcePath::Item {
                db: Cow::Borrowed("d"),
                coll: Cow::Borrowed("c"),
                id,
            } => {
                assert_eq!(id, "x/y");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn bad_paths_are_refused_by_name() {
        let long = format!("/dbs/{}", "x".repeat(PATH_BYTES_MAX));
        let table = [
            ("/dbs//colls", "empty segment"),
            ("//", "empty segment"),
            ("/dbs/d//", "empty segment"),
            ("/dbs/a%zz", "'%zz'"),
            ("/dbs/a%4", "'%4'"),
            ("/dbs/a%", "'%'"),
            ("/dbs/a%é", "'%é'"),
            ("/dbs/a%FF", "not UTF-8"),
            (long.as_str(), "longer than"),
        ];
        for (path, fragment) in table {
            let error = ResourcePath::parse(path).unwrap_err();
            assert_eq!(error.status(), 400, "{path}");
            assert!(
                error.message.contains(fragment),
                "{path}: {}",
                error.message
            );
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "(/(dbs|colls|docs|offers|users|%[0-9a-g]{0,2}|[^/]{0,3})){0,9}/?") {
            if let Ok(path) = ResourcePath::parse(&path) {
                let _ = path.signing().link.to_string();
            }
        }

        #[test]
        fn escaped_names_come_back(name in "[^/]{1,20}") {
            let escaped: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
            let path = format!("/dbs/{escaped}");
            prop_assert_eq!(ResourcePath::parse(&path).unwrap(), ResourcePath::Database { db: name.into() });
        }
    }
}
