//! What a single setting may hold. Messages name the bad value; the layer adds where it stood.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize as _, Serialize as _};

/// A whole number from `MIN` to `MAX`.
pub fn whole<'de, D, T, const MIN: i64, const MAX: i64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    deserializer.deserialize_any(Whole::<T, MIN, MAX>(PhantomData))
}

struct Whole<T, const MIN: i64, const MAX: i64>(PhantomData<T>);

impl<T: TryFrom<i64>, const MIN: i64, const MAX: i64> Whole<T, MIN, MAX> {
    fn refused<E: Error>(found: impl fmt::Display) -> E {
        E::custom(format!("{found} is not a whole number from {MIN} to {MAX}"))
    }
}

impl<T: TryFrom<i64>, const MIN: i64, const MAX: i64> Visitor<'_> for Whole<T, MIN, MAX> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {MIN} to {MAX}")
    }

    fn visit_i64<E: Error>(self, found: i64) -> Result<T, E> {
        Some(found)
            .filter(|found| (MIN..=MAX).contains(found))
            .and_then(|found| T::try_from(found).ok())
            .ok_or_else(|| Self::refused(found))
    }

    fn visit_u64<E: Error>(self, found: u64) -> Result<T, E> {
        i64::try_from(found)
            .map_err(|_| Self::refused(found))
            .and_then(|found| self.visit_i64(found))
    }

    fn visit_i128<E: Error>(self, found: i128) -> Result<T, E> {
        Err(Self::refused(found))
    }

    fn visit_f64<E: Error>(self, found: f64) -> Result<T, E> {
        Err(Self::refused(found))
    }

    fn visit_str<E: Error>(self, found: &str) -> Result<T, E> {
        Err(Self::refused(format_args!("'{found}'")))
    }
}

/// 0, or a whole number from `MIN` to `MAX`.
pub fn zero_or<'de, D, T, const MIN: i64, const MAX: i64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<i64>,
{
    let found: i64 = whole::<D, i64, 0, MAX>(deserializer)?;
    Some(found)
        .filter(|found| *found == 0 || *found >= MIN)
        .and_then(|found| T::try_from(found).ok())
        .ok_or_else(|| {
            D::Error::custom(format!(
                "{found} is neither 0 nor a whole number from {MIN} to {MAX}"
            ))
        })
}

/// Text that `is_good` accepts; else the message says it is not `expected`.
fn text<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &str,
    is_good: impl Fn(&str) -> bool,
) -> Result<String, D::Error> {
    let found = String::deserialize(deserializer)?;
    if is_good(&found) {
        Ok(found)
    } else {
        Err(D::Error::custom(format!("'{found}' is not {expected}")))
    }
}

pub fn not_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(deserializer, "a name", |found| !found.trim().is_empty())
}

/// Host names separated by commas, without scheme and port; none is fine.
pub fn host_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = "a list of host names like db.example.org,db2.example.org, without ports";
    text(deserializer, expected, |found| {
        found
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_, ".contains(&byte))
    })
}

/// Numbered addresses, `1=host:port,2=host:port`; none is fine.
pub fn members<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = "a list like 1=10.0.0.1:8082,2=10.0.0.2:8082 in which each number and each address is there once";
    text(deserializer, expected, |found| {
        parse_members(found).is_some()
    })
}

/// Host and port, `10.0.0.1:8082`; none is fine.
pub fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = "an address like 10.0.0.1:8082";
    text(deserializer, expected, |found| {
        found.is_empty()
            || found.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
            })
    })
}

/// `None` when the list is not one.
pub fn parse_members(list: &str) -> Option<BTreeMap<u64, String>> {
    let mut members = BTreeMap::new();
    for member in list.split(',').filter(|member| !member.trim().is_empty()) {
        let (node, address) = member.trim().split_once('=')?;
        let node: u64 = node.trim().parse().ok().filter(|node| *node > 0)?;
        let address = address.trim();
        let (host, port) = address.rsplit_once(':')?;
        let known = members.values().any(|known| known == address);
        if host.is_empty() || port.parse::<u16>().is_err() || known {
            return None;
        }
        if members.insert(node, address.to_owned()).is_some() {
            return None;
        }
    }
    Some(members)
}

/// An address or a host name, without scheme and port; the brackets of an IPv6 address go.
pub fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let expected = "a host name or an IP address without a port";
    let found = text(deserializer, expected, is_host)?;
    Ok(bare_host(&found).to_owned())
}

/// Returns whether it is an address or could be a host name.
pub fn is_host(text: &str) -> bool {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.' || c == '_';
    bare_host(text).parse::<std::net::IpAddr>().is_ok()
        || (!text.is_empty() && text.chars().all(name))
}

fn bare_host(host: &str) -> &str {
    let inside = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inside.unwrap_or(host)
}

/// The JavaScript SDK reads the account again for every operation if it is called `localhost`.
pub fn account<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(
        deserializer,
        "an account name: lower-case letters, digits and '-', but not 'localhost'",
        |found| {
            let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !found.is_empty() && found != "localhost" && found.chars().all(letter)
        },
    )
}

const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Levels separated by commas, each alone or as `part=level`.
pub fn log_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text(
        deserializer,
        "a log level (off, error, warn, info, debug, trace) or a list like 'info,bolide::shard=debug'",
        |found| {
            found.split(',').all(|directive| {
                let (part, level) = directive.split_once('=').unwrap_or(("part", directive));
                !part.trim().is_empty() && LOG_LEVELS.contains(&level.trim())
            })
        },
    )
}

pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    text(deserializer, "a path", |found| !found.is_empty()).map(PathBuf::from)
}

/// A path that need not be set: empty text means none, so that a file can list it.
pub mod optional_path {
    use super::*;
    use serde::Serializer;

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PathBuf>, D::Error> {
        let found = String::deserialize(deserializer)?;
        Ok((!found.is_empty()).then(|| PathBuf::from(found)))
    }

    pub fn serialize<S: Serializer>(
        path: &Option<PathBuf>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        path.clone().unwrap_or_default().serialize(serializer)
    }
}
