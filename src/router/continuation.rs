//! Continuation tokens of feeds and queries: at most a kilobyte, visible ASCII, and good over restarts, inserts and expiries.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use crate::model::error::{Error, Result};

/// Bytes of a document key that a token carries; the token stays under 1,024 bytes.
const KEY_BYTES_MAX: usize = 640;

/// Where a feed in key order goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyContinuation {
    pub range_id: u32,
    pub resume: Resume,
    /// Rows that the query had found before, for OFFSET, LIMIT and TOP.
    pub rows: u64,
    /// Rows of the item at `resume` that were handed out before: a JOIN makes several of one item.
    pub within: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// At the start of the range.
    Start,
    /// At this key.
    At(Vec<u8>),
    /// Among the keys that begin so, at the one with this digest. Ids of up to 1,023 bytes do not fit into a token.
    Among { prefix: Vec<u8>, digest: [u8; 8] },
}

impl Resume {
    pub fn at(key: Vec<u8>) -> Self {
        match key.get(..KEY_BYTES_MAX) {
            Some(prefix) if key.len() > KEY_BYTES_MAX => Self::Among {
                prefix: prefix.to_vec(),
                digest: digest(&key),
            },
            _ => Self::At(key),
        }
    }

    /// Where a scan begins.
    pub fn from(&self) -> Option<&[u8]> {
        match self {
            Self::Start => None,
            Self::At(key) | Self::Among { prefix: key, .. } => Some(key),
        }
    }

    /// Whether a key, met in order after `from`, was handed out before.
    pub fn is_before(&self, key: &[u8]) -> bool {
        matches!(self, Self::Among { prefix, digest: wanted } if key.starts_with(prefix) && digest(key) != *wanted)
    }
}

fn digest(key: &[u8]) -> [u8; 8] {
    let whole = Sha256::digest(key);
    let mut short = [0; 8];
    short.copy_from_slice(&whole[..8]);
    short
}

impl KeyContinuation {
    pub fn at(range_id: u32, resume: Resume) -> Self {
        Self {
            range_id,
            resume,
            rows: 0,
            within: 0,
        }
    }

    pub fn encode(&self) -> String {
        let resume = match &self.resume {
            Resume::Start => String::new(),
            Resume::At(key) => format!("k{}", URL_SAFE_NO_PAD.encode(key)),
            Resume::Among { prefix, digest } => {
                format!(
                    "p{}.{}",
                    URL_SAFE_NO_PAD.encode(prefix),
                    URL_SAFE_NO_PAD.encode(digest)
                )
            }
        };
        format!("{}.{}.{}.{resume}", self.range_id, self.rows, self.within)
    }

    pub fn parse(text: &str) -> Result<Self> {
        Self::read(text)
            .ok_or_else(|| Error::bad_request(format!("Invalid Continuation Token '{text}'")))
    }

    fn read(text: &str) -> Option<Self> {
        let (range_id, rest) = text.split_once('.')?;
        let (rows, rest) = rest.split_once('.')?;
        let (within, rest) = rest.split_once('.')?;
        let resume = match rest.split_at_checked(1) {
            None => Resume::Start,
            Some(("k", key)) => Resume::At(URL_SAFE_NO_PAD.decode(key).ok()?),
            Some(("p", rest)) => {
                let (prefix, digest) = rest.split_once('.')?;
                Resume::Among {
                    prefix: URL_SAFE_NO_PAD.decode(prefix).ok()?,
                    digest: URL_SAFE_NO_PAD.decode(digest).ok()?.try_into().ok()?,
                }
            }
            Some(_) => return None,
        };
        Some(Self {
            range_id: range_id.parse().ok()?,
            rows: rows.parse().ok()?,
            within: within.parse().ok()?,
            resume,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_short_and_give_back_what_they_hold() {
        for key in [
            vec![],
            vec![b'd'; 20],
            vec![0xff; KEY_BYTES_MAX],
            vec![b'x'; 1_072],
        ] {
            let continuation = KeyContinuation {
                range_id: u32::MAX,
                resume: Resume::at(key),
                rows: u64::MAX,
                within: u64::MAX,
            };
            let text = continuation.encode();
            assert!(
                text.len() <= 1_024 && text.is_ascii(),
                "{} bytes",
                text.len()
            );
            assert_eq!(KeyContinuation::parse(&text).unwrap(), continuation);
        }
    }

    #[test]
    fn a_long_key_is_found_again_among_its_like() {
        let keys: Vec<Vec<u8>> = (0..3)
            .map(|n| [vec![b'x'; 700], vec![n]].concat())
            .collect();
        let resume = Resume::at(keys[1].clone());
        assert!(resume.is_before(&keys[0]));
        assert!(!resume.is_before(&keys[1]));
        assert!(!resume.is_before(b"y"));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in ["", "7", "0.0.0.q", "x.0.0.", "0.0.0.k!", "0.0.0.pAA.AA"] {
            assert!(
                KeyContinuation::parse(text)
                    .unwrap_err()
                    .message
                    .contains("Invalid Continuation Token"),
                "{text}"
            );
        }
    }
}
