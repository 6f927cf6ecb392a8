//! Which names of this node a request may use. A web page whose name was rebound to this machine
//! (DNS rebinding) shows in `Host`: it is a name with dots that the operator has not listed.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::model::error::{Error, ErrorKind, Result};

/// Characters of a foreign name that an error message repeats.
const SHOWN_CHARS_MAX: usize = 100;

/// The names beyond those that nobody can rebind: `server.allowed_hosts`.
#[derive(Clone, Debug, Default)]
pub struct HostPolicy {
    allowed: Vec<String>,
}

impl HostPolicy {
    /// From names separated by commas.
    pub fn new(allowed: &str) -> Self {
        let names = allowed.split(',').map(str::trim);
        Self {
            allowed: names
                .filter(|name| !name.is_empty())
                .map(|name| without_root(name).to_owned())
                .collect(),
        }
    }

    /// Fails with 403 if one of the names by which a request addresses this node is foreign: its
    /// `Host` headers and the authority of its URI, each with or without a port.
    ///
    /// A request without any is of no browser, and passes.
    pub fn check<'a>(&self, hosts: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        match hosts.into_iter().find(|host| !self.allows(host)) {
            None => Ok(()),
            Some(foreign) => Err(refused(foreign)),
        }
    }

    fn allows(&self, host: &[u8]) -> bool {
        let Some(name) = std::str::from_utf8(host).ok().and_then(without_port) else {
            return false;
        };
        is_literal(name)
            || is_safe_name(name)
            || self
                .allowed
                .iter()
                .any(|one| one.eq_ignore_ascii_case(without_root(name)))
    }
}

#[cold]
fn refused(host: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(host)
        .chars()
        .take(SHOWN_CHARS_MAX)
        .collect();
    Error::new(
        ErrorKind::Forbidden,
        format!(
            "the host '{shown}' is not a name of this node: use an IP address, localhost or a name \
             without dots, or list the name in the setting server.allowed_hosts"
        ),
    )
}

/// The name of `name:port`, `[address]:port` and the like; `None` if it is none of them.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at_checked(end)?;
    let port = port.strip_prefix(':').unwrap_or(port);
    (!name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
}

/// A name may end with the dot of the root.
fn without_root(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether it is an address and no name, so that no name server can be asked for it.
fn is_literal(name: &str) -> bool {
    match name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(inner) => {
            let address = inner.split_once('%').map_or(inner, |(address, _)| address);
            address.parse::<Ipv6Addr>().is_ok()
        }
        None => name.parse::<Ipv4Addr>().is_ok(),
    }
}

/// Whether it is a name that nobody else can bind: `localhost`, one below it, or a single label.
fn is_safe_name(name: &str) -> bool {
    let bare = without_root(name);
    let local = |label: &str| label.eq_ignore_ascii_case("localhost");
    // "evil." is a top-level domain and could be bound; "evil" is looked up in one's own network.
    let single = !name.contains('.') && !name.is_empty();
    let last = bare.rsplit('.').next();
    bare.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && (single || last.is_some_and(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(allowed: &str, host: &str) -> bool {
        HostPolicy::new(allowed).check([host.as_bytes()]).is_ok()
    }

    #[test]
    fn names_that_cannot_be_rebound_pass() {
        for host in [
            "localhost",
            "LocalHost:8081",
            "localhost.",
            "app.localhost:1",
            "127.0.0.1",
            "127.0.0.1:8081",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:8081",
            "[fe80::1%25eth0]:8081",
            "bolide",
            "bolide:8081",
            "my_service-1:8081",
            "bolide:",
        ] {
            assert!(passes("", host), "{host}");
        }
        assert!(HostPolicy::default().check([]).is_ok());
    }

    #[test]
    fn names_that_a_stranger_can_bind_are_refused() {
        for host in [
            "evil.example",
            "evil.example:8081",
            "evil.",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1.",
            "1.2.3",
            "notlocalhost.example",
            "localhost:8081@evil.example",
            "user@localhost",
            "localhost:80a",
            "localhost/evil.example",
            "evil.example\\localhost",
            "[::1",
            "[::1].evil.example",
            "[evil.example]",
            "::1",
            "",
            ":8081",
            "ünsafe",
        ] {
            assert!(!passes("", host), "{host}");
        }
        assert!(HostPolicy::default().check([b"\xff".as_slice()]).is_err());
    }

    #[test]
    fn every_name_of_a_request_counts() {
        let policy = HostPolicy::default();
        let both = [b"localhost".as_slice(), b"evil.example"];
        assert!(policy.check(both).is_err());
        assert!(policy.check(both.into_iter().rev()).is_err());
    }

    #[test]
    fn listed_names_pass_whatever_their_case_and_port() {
        let list = " db.example.org, Other.Example.ORG. ,";
        for host in [
            "db.example.org",
            "DB.example.org:443",
            "db.example.org.",
            "other.example.org:1",
        ] {
            assert!(passes(list, host), "{host}");
        }
        for host in ["a.db.example.org", "example.org", "db.example.org.evil.com"] {
            assert!(!passes(list, host), "{host}");
        }
    }

    #[test]
    fn a_refusal_names_the_host_and_the_setting() {
        let error = HostPolicy::default().check([b"evil.example:1".as_slice()]);
        let error = error.unwrap_err();
        assert_eq!(error.status(), 403);
        assert!(error.message.contains("'evil.example:1'"), "{error}");
        assert!(error.message.contains("server.allowed_hosts"), "{error}");
        let long = "a.".repeat(5_000);
        let long = HostPolicy::default().check([long.as_bytes()]).unwrap_err();
        assert!(long.message.len() < 400, "{long}");
    }
}
