//! Continuation tokens of queries: at most a kilobyte, visible ASCII, good over restarts, inserts and expiries.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::position::RowPosition;
use crate::{
    model::{
        error::{Error, Result},
        json,
        rid::ContainerRid,
    },
    query::access::ResumePoint,
    sql::{Partial, Query, Shape},
};

/// The longest token, in characters. Clients announce that they take this much.
pub const TOKEN_CHARACTERS_MAX: usize = 1_024;
const VERSION: u8 = 1;

/// Tells queries apart: a token is good for the query that it was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryFingerprint(u64);

impl QueryFingerprint {
    /// Of rows in order only what orders and selects them: clients that resume narrow the filter and keep the token.
    pub fn of(container: ContainerRid, query: &Query) -> Self {
        let mut hash = Sha256::new();
        hash.update(container.to_bytes());
        if query.shape() == Shape::Ordered {
            let mut unfiltered = query.syntax().clone();
            unfiltered.filter = None;
            hash.update(unfiltered.to_string());
        } else {
            hash.update(query.syntax().to_string());
            for (name, value) in query.parameters() {
                hash.update((name.len() as u64).to_be_bytes());
                hash.update(name);
                hash.update(value.to_string());
            }
        }
        Self(first_bytes(&hash.finalize()))
    }
}

/// The first eight bytes of a digest.
pub fn first_bytes(digest: &[u8]) -> u64 {
    digest
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// Where a query goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueryToken {
    version: u8,
    fingerprint: QueryFingerprint,
    /// Rows that were found before, those that OFFSET skipped included.
    pub rows: u64,
    pub place: TokenPosition,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TokenPosition {
    /// In the walk over the items; rows leave as they are found.
    Items {
        cursor: ScanCursor,
        /// Rows of the item with this ordinal that were handed out before: a JOIN makes several of one item.
        ordinal: u64,
        within: u64,
    },
    /// In the order of rows, with the work towards the next page if it was not finished.
    Rows {
        after: Option<RowPosition>,
        unfinished: Option<UnfinishedPage>,
    },
}

/// QueryWork on a page that took too long for one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UnfinishedPage {
    /// KeptPage by the node, for a while. If it is lost the work begins again.
    Kept(u64),
    /// All of it.
    Carried {
        cursor: ScanCursor,
        partial: Partial,
    },
}

/// A place in the walk over the items in scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanCursor {
    /// The partition key range, and which part of the scope in it.
    pub range_id: u32,
    pub part: u32,
    /// Within the part; absent at its start.
    point: Option<Bytes>,
    /// Where what a range was split into goes on behind the part, innermost first.
    #[serde(default)]
    rest: Vec<(u32, Bytes)>,
}

impl ScanCursor {
    pub fn new(range_id: u32, part: usize, point: Option<&ResumePoint>) -> Self {
        Self {
            range_id,
            part: u32::try_from(part).unwrap_or(u32::MAX),
            point: point.map(|point| Bytes::copy_from_slice(point.as_bytes())),
            rest: Vec::new(),
        }
    }

    #[must_use]
    pub fn with_rest(mut self, rest: impl Iterator<Item = (u32, ResumePoint)>) -> Self {
        let rest = rest.map(|(range, point)| (range, Bytes::copy_from_slice(point.as_bytes())));
        self.rest = rest.collect();
        self
    }

    pub fn rest(&self) -> impl Iterator<Item = (u32, ResumePoint)> {
        let rest = self.rest.iter();
        rest.map(|(range, point)| (*range, ResumePoint::from_bytes(point.to_vec())))
    }

    pub fn point(&self) -> Option<ResumePoint> {
        self.point
            .as_ref()
            .map(|bytes| ResumePoint::from_bytes(bytes.to_vec()))
    }
}

impl QueryToken {
    pub fn new(fingerprint: QueryFingerprint, rows: u64, place: TokenPosition) -> Self {
        Self {
            version: VERSION,
            fingerprint,
            rows,
            place,
        }
    }

    /// The token as text; `None` when it is too long.
    pub fn encode(&self) -> Option<String> {
        let bytes = rmp_serde::to_vec(self).ok()?;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        (text.len() <= TOKEN_CHARACTERS_MAX).then_some(text)
    }

    /// Reads the token of a query.
    pub fn parse(text: &str, fingerprint: QueryFingerprint) -> Result<Self> {
        let read = || {
            let bytes = URL_SAFE_NO_PAD
                .decode(text)
                .ok()
                .filter(|_| text.len() <= TOKEN_CHARACTERS_MAX)?;
            let token: Self = rmp_serde::from_slice(&bytes).ok()?;
            (token.version == VERSION).then_some(token)
        };
        let token = read().ok_or_else(|| {
            Error::bad_request(format!(
                "Invalid Continuation Token '{}'",
                json::shorten(text)
            ))
        })?;
        if token.fingerprint == fingerprint {
            Ok(token)
        } else {
            Err(invalid("it belongs to another query"))
        }
    }
}

pub fn invalid(why: &str) -> Error {
    Error::bad_request(format!("Invalid Continuation Token: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::rid::DatabaseRid,
        query::access::RESUME_BYTES_MAX,
        query::position::{OrderedRow, RowOrder},
    };
    use serde_json::json;

    const CONTAINER: ContainerRid = ContainerRid {
        database: DatabaseRid(7),
        ordinal: 3,
    };

    fn fingerprint(text: &str) -> QueryFingerprint {
        let parameters = [("@p".to_owned(), json!(1))];
        QueryFingerprint::of(CONTAINER, &Query::parse(text, &parameters).unwrap())
    }

    #[test]
    fn queries_are_told_apart() {
        let same = |a, b| fingerprint(a) == fingerprint(b);
        assert!(same("SELECT * FROM c", "select *  from c"));
        assert!(!same("SELECT * FROM c", "SELECT * FROM c WHERE c.n = 1"));
        assert!(!same(
            "SELECT * FROM c ORDER BY c.n",
            "SELECT * FROM c ORDER BY c.m"
        ));
        assert!(!same(
            "SELECT * FROM c ORDER BY c.n",
            "SELECT * FROM c ORDER BY c.n DESC"
        ));
        assert!(same(
            "SELECT * FROM c WHERE true ORDER BY c.n",
            "SELECT * FROM c WHERE c.n >= 5 ORDER BY c.n"
        ));
        let one = Query::parse("SELECT * FROM c WHERE c.n = @p", &[("@p".into(), json!(1))]);
        let two = Query::parse("SELECT * FROM c WHERE c.n = @p", &[("@p".into(), json!(2))]);
        let of = |query: &Query| QueryFingerprint::of(CONTAINER, query);
        assert_ne!(of(&one.unwrap()), of(&two.unwrap()));
    }

    fn comes_back(place: TokenPosition) {
        let token = QueryToken::new(fingerprint("SELECT 1"), u64::MAX, place);
        let text = token.encode().expect("it fits");
        assert!(text.is_ascii());
        assert_eq!(
            QueryToken::parse(&text, fingerprint("SELECT 1")).unwrap(),
            token
        );
        let error = QueryToken::parse(&text, fingerprint("SELECT 2")).unwrap_err();
        assert!(error.message.contains("another query"), "{error}");
    }

    #[test]
    fn the_largest_tokens_fit() {
        let point = ResumePoint::from_bytes(vec![0xff; RESUME_BYTES_MAX]);
        comes_back(TokenPosition::Items {
            cursor: ScanCursor::new(u32::MAX, usize::MAX, Some(&point)),
            ordinal: u64::MAX,
            within: u64::MAX,
        });
        let row = OrderedRow {
            keys: vec![Some(json!("x".repeat(2_000))), Some(json!(1.5)), None],
            tie: u64::MAX,
            within: u64::MAX,
            json: Vec::new(),
            life: None,
        };
        let order = RowOrder::new(vec![false, true, false]);
        comes_back(TokenPosition::Rows {
            after: RowPosition::behind(&[row], None, &order),
            unfinished: Some(UnfinishedPage::Kept(u64::MAX)),
        });
    }

    #[test]
    fn the_state_of_aggregates_travels() {
        let query = Query::parse(
            "SELECT COUNT(1) AS n, SUM(c.x) AS s, AVG(c.x) AS a, MIN(c.t) AS l, MAX(c.t) AS g FROM c",
            &[],
        )
        .unwrap();
        let mut execution = query.start();
        for (x, t) in [(1e300, "a"), (2.5, "é")] {
            execution.push(&json!({"x": x, "t": t})).unwrap();
        }
        comes_back(TokenPosition::Rows {
            after: None,
            unfinished: Some(UnfinishedPage::Carried {
                cursor: ScanCursor::new(1, 0, Some(&ResumePoint::from_bytes(vec![7; 60]))),
                partial: execution.into_partial(),
            }),
        });
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in ["", "7", "{}", "ä", "kA", "AAAA", &"A".repeat(2_000)] {
            let error = QueryToken::parse(text, fingerprint("SELECT 1")).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(
                error.message.contains("Invalid Continuation Token"),
                "{text}"
            );
        }
    }
}
