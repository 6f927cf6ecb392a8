//! The host that a node listens on.

use std::net::{IpAddr, ToSocketAddrs as _};

use super::Failure;
use crate::config::ExitCode;

/// Fails when a host is a name that nothing is known of: everything that is said of it later would mislead.
pub fn check_host(host: &str) -> Result<(), Failure> {
    if host.parse::<IpAddr>().is_ok() {
        return Ok(());
    }
    let failure = match (host, 0).to_socket_addrs() {
        Ok(found) if found.len() > 0 => return Ok(()),
        Ok(_) => "the name has no address".to_owned(),
        Err(failure) => failure.to_string(),
    };
    Err(Failure::new(
        ExitCode::Configuration,
        format!(
            "cannot find the host '{host}' to listen on: {failure}; name an address of this machine \
             (--host 127.0.0.1)"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_an_address_are_refused_by_name() {
        for host in ["127.0.0.1", "::1", "0.0.0.0", "localhost"] {
            assert!(check_host(host).is_ok(), "{host}");
        }
        // Names under .invalid never resolve.
        let failure = check_host("no-such-host.invalid").unwrap_err();
        assert_eq!(failure.code, ExitCode::Configuration);
        assert!(failure.message.contains("'no-such-host.invalid'"));
    }
}
