//! The key under which the paths of a container's index are hashed.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};

const KEY_BYTES: usize = 16;

/// Random, made with the container. Whoever knows it can choose property names that the index cannot
/// tell apart, so it is in no answer and in no log.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathKey([u8; KEY_BYTES]);

impl PathKey {
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// As it is stored with a policy.
    pub fn to_text(self) -> String {
        BASE64_STANDARD.encode(self.0)
    }

    pub fn from_text(text: &str) -> Option<Self> {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Debug for PathKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PathKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_text_and_is_not_shown() {
        let key = PathKey::from_bytes(std::array::from_fn(|at| at as u8));
        assert_eq!(PathKey::from_text(&key.to_text()), Some(key));
        for bad in ["", "AAAA", "not base64", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(PathKey::from_text(bad), None, "{bad}");
        }
        assert_eq!(format!("{key:?}"), "PathKey(..)");
    }
}
