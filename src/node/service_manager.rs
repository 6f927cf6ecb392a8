//! Tells the service manager, usually systemd with `Type=notify`, that the node serves or stops.

use std::{env, ffi::OsStr, io, os::unix::net::UnixDatagram};

use tracing::warn;

/// Names the socket of the service manager; without it nobody wants to know.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Sends a state. A manager that cannot be reached is logged: the node serves without it.
pub fn notify(state: &str) {
    let Some(address) = env::var_os(VARIABLE).filter(|address| !address.is_empty()) else {
        return;
    };
    if let Err(failure) = send(&address, state) {
        let address = address.to_string_lossy();
        warn!(%address, state, %failure, "the service manager at NOTIFY_SOCKET was not told");
    }
}

/// A leading `@` stands for the null byte before names that are not files.
fn send(address: &OsStr, state: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A manager that takes nothing must not hold up the node.
    socket.set_nonblocking(true)?;
    match address.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => send_to_abstract(&socket, name, state),
        None => socket.send_to(state.as_bytes(), address).map(drop),
    }
}

#[cfg(target_os = "linux")]
fn send_to_abstract(socket: &UnixDatagram, name: &[u8], state: &str) -> io::Result<()> {
    use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
    let address = SocketAddr::from_abstract_name(name)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn send_to_abstract(_: &UnixDatagram, _: &[u8], _: &str) -> io::Result<()> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_socket_in_a_folder_gets_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), "READY=1").unwrap();
        assert_eq!(received(&manager), "READY=1");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_socket_gets_the_state() {
        use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
        let name = format!("bolide-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), "STOPPING=1").unwrap();
        assert_eq!(received(&manager), "STOPPING=1");
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nobody");
        let failure = send(path.as_os_str(), "READY=1").unwrap_err();
        assert_eq!(failure.kind(), io::ErrorKind::NotFound);
    }
}
