//! The addresses that a node listens on.

use std::{
    io,
    net::{IpAddr, TcpListener, ToSocketAddrs as _},
};

use super::{ExitCode, Failure};

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

/// Listens on an address, or fails with the way out; `port_from` is the flag or setting that has the
/// port.
pub fn listen(host: &str, port: u16, port_from: &str) -> Result<TcpListener, Failure> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((bare, port)).map_err(|failure| {
        let way_out = match failure.kind() {
            io::ErrorKind::AddrInUse => {
                format!("another process has the port; {port_from} chooses another")
            }
            io::ErrorKind::PermissionDenied => {
                format!("a port below 1024 is not for every user; {port_from} chooses another")
            }
            io::ErrorKind::AddrNotAvailable => {
                "it is no address of this machine; --host 0.0.0.0 listens on all of them".to_owned()
            }
            _ => format!("{port_from} and --host choose the address"),
        };
        Failure::new(
            ExitCode::Configuration,
            format!("cannot listen on {host}:{port}: {failure}: {way_out}"),
        )
    })
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

    #[test]
    fn a_port_that_is_taken_names_the_flag() {
        let taken = listen("127.0.0.1", 0, "--port").unwrap();
        let port = taken.local_addr().unwrap().port();
        let failure = listen("127.0.0.1", port, "--health-port").unwrap_err();
        assert_eq!(failure.code, ExitCode::Configuration);
        for part in [&port.to_string(), "--health-port chooses another"] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
    }
}
