//! The account's keys and where they come from: a key file that may change while the node runs,
//! or the emulator's well-known key, which only a node that listens on loopback may use.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use figment::providers::{Format as _, Toml};
use rand::TryRngCore as _;
use serde::Deserialize;

use super::auth::{Access, Authenticator};
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
/// Bytes of a key file: four keys and a lot of comments.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

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

    fn is_well_known(&self) -> bool {
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

/// Where the keys of this node come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    WellKnown,
    File(PathBuf),
}

/// Keeps the keys, and renews them when their file changes.
pub struct KeySource {
    origin: KeyOrigin,
    loopback: bool,
    /// What the file held when it was last looked at, good or bad; `None` if it was unreadable.
    seen: Mutex<Option<Vec<u8>>>,
    keys: ArcSwap<AccountKeys>,
    authenticator: Arc<Authenticator>,
}

impl KeySource {
    /// Finds the keys for a node that listens on `host`, or says what to do to have some.
    pub fn open(key_file: Option<&Path>, host: &str) -> Result<Self> {
        let loopback = is_loopback(host);
        let (origin, seen, keys) = match key_file {
            Some(path) => {
                let bytes = read_key_file(path)?;
                let keys = checked_keys(&bytes, loopback)
                    .map_err(|error| in_file(path, host, loopback, &error))?;
                (KeyOrigin::File(path.to_owned()), Some(bytes), keys)
            }
            None if loopback => {
                let key = AccountKey::parse(EMULATOR_KEY)?;
                (KeyOrigin::WellKnown, None, AccountKeys::single(key))
            }
            None => {
                return Err(Error::bad_request(format!(
                    "refusing to listen on {host} with the emulator's well-known key: make a key \
                     of your own with `bolide key > account.key` and start with \
                     `--key-file account.key`, or listen on 127.0.0.1"
                )));
            }
        };
        let authenticator = Arc::new(Authenticator::new(&keys));
        let keys = ArcSwap::from_pointee(keys);
        Ok(Self {
            origin,
            loopback,
            seen: Mutex::new(seen),
            keys,
            authenticator,
        })
    }

    pub fn origin(&self) -> &KeyOrigin {
        &self.origin
    }

    /// The keys in force now.
    pub fn keys(&self) -> Arc<AccountKeys> {
        self.keys.load_full()
    }

    /// Checks signatures with the keys in force, now and after every change.
    pub fn authenticator(&self) -> Arc<Authenticator> {
        Arc::clone(&self.authenticator)
    }

    /// Looks at the key file and takes new keys from it: true if they changed. A file that is
    /// missing or bad is reported once for each state it is in, and the old keys stay.
    ///
    /// The content is compared, not the time of change, which misses a second change within its
    /// resolution; the file is tiny.
    pub fn reload_if_changed(&self) -> Result<bool> {
        let KeyOrigin::File(path) = &self.origin else {
            return Ok(false);
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match read_key_file(path) {
            Ok(bytes) => bytes,
            Err(error) => {
                return if seen.take().is_some() {
                    Err(error)
                } else {
                    Ok(false)
                };
            }
        };
        if seen.as_ref() == Some(&bytes) {
            return Ok(false);
        }
        let keys = checked_keys(&bytes, self.loopback);
        *seen = Some(bytes);
        let keys = keys.map_err(|error| {
            Error::bad_request(format!(
                "the key file '{}' changed but cannot be used, the old keys stay: {error}",
                path.display()
            ))
        })?;
        if keys == **self.keys.load() {
            return Ok(false);
        }
        self.authenticator.replace_keys(&keys);
        self.keys.store(Arc::new(keys));
        Ok(true)
    }
}

/// Whether only this machine can reach a listener on `host`.
pub fn is_loopback(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    bare.eq_ignore_ascii_case("localhost")
        || bare
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback())
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

fn read_key_file(path: &Path) -> Result<Vec<u8>> {
    let unreadable = |error: std::io::Error| {
        Error::bad_request(format!(
            "cannot read the key file '{}': {error} (`bolide key` makes a key)",
            path.display()
        ))
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(KEY_FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err(Error::bad_request(format!(
            "the key file '{}' is larger than {KEY_FILE_BYTES_MAX} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

fn in_file(path: &Path, host: &str, loopback: bool, error: &Error) -> Error {
    let place = if loopback {
        String::new()
    } else {
        format!(" for a node listening on {host}")
    };
    Error::bad_request(format!("bad key file '{}'{place}: {error}", path.display()))
}

/// The keys of a file, if a node may use them.
fn checked_keys(bytes: &[u8], loopback: bool) -> Result<AccountKeys> {
    let keys = parsed_keys(bytes)?;
    if !loopback && keys.iter().any(|(key, _)| key.is_well_known()) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn base64(seed: u8) -> String {
        BASE64.encode([seed; KEY_BYTES])
    }

    fn opened(content: &str, host: &str) -> Result<KeySource> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, content).unwrap();
        KeySource::open(Some(&path), host)
    }

    #[test]
    fn hosts_are_loopback_or_not() {
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "[::1]",
            "localhost",
            "::ffff:127.0.0.1",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "0.0.0.0",
            "::",
            "10.0.0.1",
            "example.org",
            "",
            "localhost.example.org",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn loopback_without_a_file_has_the_well_known_key() {
        let source = KeySource::open(None, "127.0.0.1").unwrap();
        assert_eq!(source.keys().primary.base64(), EMULATOR_KEY);
        assert_eq!(source.origin(), &KeyOrigin::WellKnown);
        assert_eq!(source.reload_if_changed(), Ok(false));
        assert_eq!(
            source.keys().connection_string("http://127.0.0.1:8081/"),
            format!("AccountEndpoint=http://127.0.0.1:8081/;AccountKey={EMULATOR_KEY};")
        );
    }

    #[test]
    fn the_well_known_key_never_leaves_loopback() {
        let none = KeySource::open(None, "0.0.0.0").err().unwrap().message;
        assert!(
            none.contains("0.0.0.0") && none.contains("bolide key"),
            "{none}"
        );
        let own = base64(1);
        for content in [
            EMULATOR_KEY.to_owned(),
            format!("primary = \"{EMULATOR_KEY}\""),
            format!("primary = \"{own}\"\nsecondary_readonly = \"{EMULATOR_KEY}\""),
        ] {
            let error = opened(&content, "10.0.0.1").err().unwrap().message;
            assert!(
                error.contains("well-known") && error.contains("10.0.0.1"),
                "{error}"
            );
            assert!(opened(&content, "localhost").is_ok(), "{content}");
        }
    }

    #[test]
    fn a_file_is_one_line_or_toml() {
        let (one, two, three, four) = (base64(1), base64(2), base64(3), base64(4));
        let line = opened(&format!("# mine\n\n  {one}  \n"), "0.0.0.0")
            .unwrap()
            .keys();
        assert_eq!(line.iter().count(), 1);
        assert_eq!(line.primary.base64(), one);

        let toml = format!(
            "primary = \"{one}\"\nsecondary = \"{two}\"\nprimary_readonly = \"{three}\"\n\
             secondary_readonly = '{four}'\n"
        );
        let keys = opened(&toml, "0.0.0.0").unwrap().keys();
        let found: Vec<_> = keys
            .iter()
            .map(|(key, access)| (key.base64(), access))
            .collect();
        let (full, readonly) = (Access::Full, Access::ReadOnly);
        assert_eq!(
            found,
            [
                (&*one, full),
                (&*two, full),
                (&*three, readonly),
                (&*four, readonly)
            ]
        );
    }

    #[test]
    fn bad_files_are_refused_without_showing_a_key() {
        let own = base64(1);
        let table = [
            (String::new(), "holds no key"),
            ("# only a comment\n".to_owned(), "holds no key"),
            (own.replace("==", ""), "not base64"),
            (BASE64.encode([1; KEY_BYTES_MIN - 1]), "has 31 bytes"),
            (format!("secondary = \"{own}\""), "primary"),
            (format!("primary = \"{own}\"\nprimry = \"{own}\""), "primry"),
            (
                format!("primary = \"{own}\"\nsecondary = \"!{own}\""),
                "secondary: the key is not",
            ),
            (
                format!("primary = \"{own}\"\nsecondary_readonly = \"{own}\""),
                "the same",
            ),
            (format!("primary = {own}\nsecondary = 1"), "bad key file"),
            (format!("{own}\n{own}"), "bad key file"),
            ("#".repeat(70_000), "larger than"),
        ];
        for (content, fragment) in table {
            let error = opened(&content, "0.0.0.0").err().unwrap().message;
            assert!(error.contains(fragment), "{fragment}: {error}");
            assert!(!error.contains(&own[..16]), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let missing = KeySource::open(Some(Path::new("no/such/keys")), "::1")
            .err()
            .unwrap();
        assert!(missing.message.contains("no/such/keys"), "{missing}");
    }

    #[test]
    fn changed_files_are_taken_and_bad_ones_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, base64(1)).unwrap();
        let source = KeySource::open(Some(&path), "0.0.0.0").unwrap();
        assert_eq!(source.reload_if_changed(), Ok(false));

        fs::write(&path, base64(2)).unwrap();
        assert_eq!(source.reload_if_changed(), Ok(true));
        assert_eq!(source.keys().primary.base64(), base64(2));
        assert_eq!(source.reload_if_changed(), Ok(false));

        for bad in ["nonsense", EMULATOR_KEY, ""] {
            fs::write(&path, bad).unwrap();
            assert!(source.reload_if_changed().is_err(), "{bad}");
            assert_eq!(source.reload_if_changed(), Ok(false), "{bad}");
            assert_eq!(source.keys().primary.base64(), base64(2), "{bad}");
        }
        fs::remove_file(&path).unwrap();
        assert!(source.reload_if_changed().is_err());
        assert_eq!(source.reload_if_changed(), Ok(false));

        fs::write(&path, base64(2)).unwrap();
        assert_eq!(source.reload_if_changed(), Ok(false), "the same keys again");
        fs::write(&path, base64(3)).unwrap();
        assert_eq!(source.reload_if_changed(), Ok(true));
    }

    #[test]
    fn made_keys_differ_and_can_be_used() {
        let (one, two) = (generate_key().unwrap(), generate_key().unwrap());
        assert_ne!(one, two);
        assert_eq!(AccountKey::parse(&one).unwrap().bytes().len(), KEY_BYTES);
        assert!(!format!("{:?}", AccountKey::parse(&one).unwrap()).contains(&one));
    }
}
