//! Account keys as values: their form, and the form of a file of them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use figment::providers::{Format as _, Toml};
use rand::TryRngCore as _;
use serde::Deserialize;

use crate::gateway::auth::Access;
use crate::model::error::{Error, Result};

/// The key that every emulator accepts and every SDK sample holds: no secret at all.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// Bytes of a key that we make; as many as the service's keys have.
const KEY_BYTES: usize = 64;
/// Bytes that a key in a file must have at least: the strength of its HMAC.
const KEY_BYTES_MIN: usize = 32;
/// Bytes that a key in a file may have at most.
const KEY_BYTES_MAX: usize = 1_024;

/// One account key. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey {
    text: String,
    bytes: Vec<u8>,
}

impl AccountKey {
    /// Reads a key from its base64 form. Errors do not repeat it: it may be a key with a typo.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let bytes = BASE64
            .decode(text)
            .map_err(|_| Error::bad_request("the key is not base64 with padding"))?;
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&bytes.len()) {
            return Err(Error::bad_request(format!(
                "the key has {} bytes, not {KEY_BYTES_MIN} to {KEY_BYTES_MAX}",
                bytes.len()
            )));
        }
        Ok(Self {
            text: text.to_owned(),
            bytes,
        })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The base64 form, as clients want it.
    pub fn base64(&self) -> &str {
        &self.text
    }

    /// Whether it is the emulator's key, which is no secret.
    pub fn is_well_known(&self) -> bool {
        self.text == EMULATOR_KEY
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccountKey(…)")
    }
}

/// The keys of the account. Two of each kind, so that one can be replaced while clients move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountKeys {
    pub primary: AccountKey,
    pub secondary: Option<AccountKey>,
    pub primary_readonly: Option<AccountKey>,
    pub secondary_readonly: Option<AccountKey>,
}

impl AccountKeys {
    pub fn single(primary: AccountKey) -> Self {
        Self {
            primary,
            secondary: None,
            primary_readonly: None,
            secondary_readonly: None,
        }
    }

    /// Every key with what it allows, those that are used most first.
    pub fn iter(&self) -> impl Iterator<Item = (&AccountKey, Access)> {
        let full = [Some(&self.primary), self.secondary.as_ref()];
        let readonly = [
            self.primary_readonly.as_ref(),
            self.secondary_readonly.as_ref(),
        ];
        let full = full.into_iter().flatten().map(|key| (key, Access::Full));
        full.chain(
            readonly
                .into_iter()
                .flatten()
                .map(|key| (key, Access::ReadOnly)),
        )
    }

    /// What a client library wants to be given.
    pub fn connection_string(&self, endpoint: &str) -> String {
        format!(
            "AccountEndpoint={endpoint};AccountKey={};",
            self.primary.base64()
        )
    }
}

/// A key file in its long form. One line of base64 alone is the primary key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    primary: String,
    secondary: Option<String>,
    primary_readonly: Option<String>,
    secondary_readonly: Option<String>,
}

/// A fresh random key in base64.
pub fn generate_key() -> Result<String> {
    let mut bytes = [0; KEY_BYTES];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|error| {
            Error::internal(format!(
                "the system gives no random bytes for a key: {error}"
            ))
        })?;
    Ok(BASE64.encode(bytes))
}

/// The keys of a file, if a node may use them.
pub(super) fn checked_keys(bytes: &[u8], well_known_allowed: bool) -> Result<AccountKeys> {
    let keys = parsed_keys(bytes)?;
    if !well_known_allowed && keys.iter().any(|(key, _)| key.is_well_known()) {
        return Err(Error::bad_request(
            "the emulator's well-known key is only for nodes that listen on loopback: put a key \
             of your own in its place (`bolide key` makes one)",
        ));
    }
    let mut met: Vec<&AccountKey> = Vec::new();
    for (key, _) in keys.iter() {
        if met.contains(&key) {
            return Err(Error::bad_request("two of the keys are the same"));
        }
        met.push(key);
    }
    Ok(keys)
}

/// Whether a line gives a name a value, as TOML does; the padding of base64 has nothing behind it.
fn is_assignment(line: &str) -> bool {
    line.split_once('=').is_some_and(|(name, value)| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = name.trim();
        !name.is_empty()
            && name.chars().all(is_name)
            && !value.trim_start_matches('=').trim().is_empty()
    })
}

fn parsed_keys(bytes: &[u8]) -> Result<AccountKeys> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::bad_request("it is not UTF-8"))?;
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    match (lines.next(), lines.next()) {
        (None, _) => {
            return Err(Error::bad_request(
                "it holds no key (`bolide key` makes one)",
            ));
        }
        (Some(line), None) if !line.contains(['"', '\'', ' ']) => {
            return AccountKey::parse(line).map(AccountKeys::single);
        }
        _ => {}
    }
    if !text.lines().any(is_assignment) {
        return Err(Error::bad_request(
            "it holds no key: one line of base64 is expected (`bolide key` makes one), or TOML \
             with `primary = \"…\"`",
        ));
    }
    // Only the message: the whole error would show the line, and with it a key.
    let file: KeyFile = Toml::from_str(text)
        .map_err(|error| Error::bad_request(error.message().replace('\n', " ")))?;
    let named = |name: &str, text: &str| {
        AccountKey::parse(text).map_err(|error| Error::bad_request(format!("{name}: {error}")))
    };
    let optional =
        |name: &str, text: &Option<String>| text.as_ref().map(|text| named(name, text)).transpose();
    Ok(AccountKeys {
        primary: named("primary", &file.primary)?,
        secondary: optional("secondary", &file.secondary)?,
        primary_readonly: optional("primary_readonly", &file.primary_readonly)?,
        secondary_readonly: optional("secondary_readonly", &file.secondary_readonly)?,
    })
}
