//! What settings say together: each may be right, and still not go with another.

use super::{Protocol, Settings};
use crate::model::error::{Error, Result};

/// Fills in what follows from other settings, and refuses what contradicts them. `is_set` says
/// whether a setting was given, and not left at its default.
pub fn check(mut settings: Settings, is_set: impl Fn(&str) -> bool) -> Result<Settings> {
    let tls = &settings.tls;
    if settings.server.protocol == Protocol::Http && (tls.cert.is_some() || tls.key.is_some()) {
        if is_set("server.protocol") {
            return Err(Error::bad_request(
                "a certificate is given (--tls-cert, --tls-key) and the protocol is http: \
                 start with --protocol https, or leave the certificate out",
            ));
        }
        settings.server.protocol = Protocol::Https;
    }
    check_ports(&settings)?;
    Ok(settings)
}

/// Port 0 lets the system choose, so two of them differ.
fn check_ports(settings: &Settings) -> Result<()> {
    let (server, cluster) = (&settings.server, &settings.cluster);
    let (rest, health) = (server.port, server.health_port);
    if rest == health && rest != 0 {
        return Err(Error::bad_request(format!(
            "server.port and server.health_port are both {rest}: give them different ports \
             (--port, --health-port)"
        )));
    }
    let members = cluster.addresses();
    let own = match cluster.address.as_str() {
        "" => members.get(&cluster.node).map(String::as_str),
        address => Some(address),
    };
    let peers = own
        .and_then(|address| address.rsplit_once(':'))
        .filter(|(host, _)| *host == server.host)
        .and_then(|(_, port)| port.parse::<u16>().ok());
    for (name, port) in [("server.port", rest), ("server.health_port", health)] {
        if peers == Some(port) {
            return Err(Error::bad_request(format!(
                "{name} is {port}, which is also the port at which the other nodes reach this one: \
                 give it another"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut Settings), set: &[&str]) -> Result<Settings> {
        let mut settings = Settings::default();
        change(&mut settings);
        check(settings, |name| set.contains(&name))
    }

    #[test]
    fn a_certificate_means_https_unless_the_protocol_is_given() {
        for part in ["cert", "key"] {
            let given = |settings: &mut Settings| match part {
                "cert" => settings.tls.cert = Some("a.pem".into()),
                _ => settings.tls.key = Some("b.pem".into()),
            };
            let settings = checked(given, &[]).unwrap();
            assert_eq!(settings.server.protocol, Protocol::Https, "{part}");
            let error = checked(given, &["server.protocol"]).unwrap_err().message;
            assert!(error.contains("--protocol https"), "{error}");
        }
        let plain = checked(|_| {}, &["server.protocol"]).unwrap();
        assert_eq!(plain.server.protocol, Protocol::Http);
    }

    #[test]
    fn ports_that_are_the_same_are_refused() {
        let error = checked(|settings| settings.server.health_port = 8081, &[]);
        assert!(error.unwrap_err().message.contains("both 8081"));
        let chosen = |settings: &mut Settings| {
            (settings.server.port, settings.server.health_port) = (0, 0);
        };
        assert!(checked(chosen, &[]).is_ok());
        let founder = |settings: &mut Settings| {
            settings.cluster.node = 2;
            settings.cluster.members = "1=127.0.0.1:8091,2=127.0.0.1:8080".to_owned();
        };
        let error = checked(founder, &[]).unwrap_err().message;
        assert!(error.contains("server.health_port is 8080"), "{error}");
        let joining = |settings: &mut Settings| {
            settings.cluster.address = "127.0.0.1:8081".to_owned();
        };
        let error = checked(joining, &[]).unwrap_err().message;
        assert!(error.contains("server.port is 8081"), "{error}");
    }
}
