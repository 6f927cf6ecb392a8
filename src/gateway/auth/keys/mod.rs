//! The account's keys and where they come from: a key file that may change while the node runs,
//! or the emulator's well-known key, which only a node that listens on loopback or stands in for the
//! emulator may use.

mod account;

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use self::account::checked_keys;
pub use self::account::{AccountKey, AccountKeys, EMULATOR_KEY, generate_key};
use super::Authenticator;
use crate::model::error::{Error, Result};

/// Bytes of a key file: four keys and a lot of comments.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Where the keys of this node come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyOrigin {
    WellKnown,
    File(PathBuf),
}

/// Keeps the keys, and renews them when their file changes.
pub struct KeySource {
    origin: KeyOrigin,
    well_known_allowed: bool,
    /// What the file held when it was last looked at, good or bad; `None` if it was unreadable.
    seen: Mutex<Option<Vec<u8>>>,
    keys: ArcSwap<AccountKeys>,
    authenticator: Arc<Authenticator>,
}

impl KeySource {
    /// Finds the keys for a node that listens on `host`, or says what to do to have some. One that
    /// stands in for the emulator may use the well-known key on any address.
    pub fn open(key_file: Option<&Path>, host: &str, emulator: bool) -> Result<Self> {
        let loopback = is_loopback(host);
        let well_known_allowed = loopback || emulator;
        let (origin, seen, keys) = match key_file {
            Some(path) => {
                let bytes = read_key_file(path)?;
                let keys = checked_keys(&bytes, well_known_allowed)
                    .map_err(|error| in_file(path, host, loopback, &error))?;
                (KeyOrigin::File(path.to_owned()), Some(bytes), keys)
            }
            None if well_known_allowed => {
                let key = AccountKey::parse(EMULATOR_KEY)?;
                (KeyOrigin::WellKnown, None, AccountKeys::single(key))
            }
            None => {
                return Err(Error::bad_request(format!(
                    "refusing to listen on {host} with the emulator's well-known key: make a key \
                     of your own with `bolide key > account.key` and start with \
                     `--key-file account.key`, or listen on 127.0.0.1; `--emulator` allows it for \
                     tests in a container"
                )));
            }
        };
        let authenticator = Arc::new(Authenticator::new(&keys));
        let keys = ArcSwap::from_pointee(keys);
        Ok(Self {
            origin,
            well_known_allowed,
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
        let keys = checked_keys(&bytes, self.well_known_allowed);
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

/// The primary key of a key file, for signing.
pub fn primary_key(path: &Path) -> Result<AccountKey> {
    let bytes = read_key_file(path)?;
    let keys = checked_keys(&bytes, true).map_err(|error| in_file(path, "", true, &error))?;
    Ok(keys.primary)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::auth::Access;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use std::fs;

    fn base64(seed: u8) -> String {
        BASE64.encode([seed; 64])
    }

    fn opened(content: &str, host: &str) -> Result<KeySource> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, content).unwrap();
        KeySource::open(Some(&path), host, false)
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
        let source = KeySource::open(None, "127.0.0.1", false).unwrap();
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
        let none = KeySource::open(None, "0.0.0.0", false)
            .err()
            .unwrap()
            .message;
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
    fn a_stand_in_for_the_emulator_has_the_well_known_key_anywhere() {
        let source = KeySource::open(None, "0.0.0.0", true).unwrap();
        assert_eq!(source.keys().primary.base64(), EMULATOR_KEY);
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
            (BASE64.encode([1; 31]), "has 31 bytes"),
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
            ("not a key".to_owned(), "one line of base64"),
            ("two\nlines\n".to_owned(), "one line of base64"),
            ("\"quoted\"".to_owned(), "one line of base64"),
            ("#".repeat(70_000), "larger than"),
        ];
        for (content, fragment) in table {
            let error = opened(&content, "0.0.0.0").err().unwrap().message;
            assert!(error.contains(fragment), "{fragment}: {error}");
            assert!(!error.contains(&own[..16]), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let missing = KeySource::open(Some(Path::new("no/such/keys")), "::1", false)
            .err()
            .unwrap();
        assert!(missing.message.contains("no/such/keys"), "{missing}");
    }

    #[test]
    fn changed_files_are_taken_and_bad_ones_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::write(&path, base64(1)).unwrap();
        let source = KeySource::open(Some(&path), "0.0.0.0", false).unwrap();
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
        assert_eq!(AccountKey::parse(&one).unwrap().bytes().len(), 64);
        assert!(!format!("{:?}", AccountKey::parse(&one).unwrap()).contains(&one));
    }
}
