//! Where a server listens, and how to speak to it.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::connection::ReadFrame;
use crate::model::error::{Error, Result};

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

const SPEAKS_HTTP: &str = "; does it speak plain http? Then its URL begins with http://";

/// Whether the other side has ended a connection.
fn is_hang_up(failure: &io::Error) -> bool {
    matches!(
        failure.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof
    )
}

/// Which certificates an https endpoint may show.
#[derive(Clone, Copy, Debug)]
pub enum Trust<'a> {
    /// Those that this machine trusts.
    Machine,
    /// Those of this PEM file.
    File(&'a Path),
    /// Any: development certificates that are nowhere on file.
    Any,
}

/// One server of an account.
#[derive(Clone)]
pub struct Endpoint {
    pub host: String,
    pub port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// How its answers end, if it does not speak HTTP.
    pub read_frame: Option<ReadFrame>,
    /// What a connection sends first, one after the other, each for an answer.
    pub greetings: Arc<[Vec<u8>]>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        match self.host.contains(':') {
            true => write!(formatter, "{scheme}://[{}]:{}/", self.host, self.port),
            false => write!(formatter, "{scheme}://{}:{}/", self.host, self.port),
        }
    }
}

impl Endpoint {
    /// Plain HTTP on this machine.
    pub fn local(port: u16) -> Self {
        Self::plain("127.0.0.1", port)
    }

    /// Plain HTTP.
    pub fn plain(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
            tls: None,
            read_frame: None,
            greetings: Arc::new([]),
        }
    }

    /// Another protocol on this machine.
    pub fn speaking(read_frame: ReadFrame, port: u16, greetings: Vec<Vec<u8>>) -> Self {
        Self {
            read_frame: Some(read_frame),
            greetings: greetings.into(),
            ..Self::local(port)
        }
    }

    /// Reads `http://host:port/` or `https://host:port/`.
    pub fn parse(url: &str, trust: Trust<'_>) -> Result<Self> {
        let wrong = |what: &str| {
            Error::bad_request(format!(
                "endpoint '{url}': {what}; http://host:port/ or https://host:port/ is expected"
            ))
        };
        let (is_tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("the scheme is neither http nor https")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) {
            return Err(wrong("it has more than a host and a port"));
        }
        // An IPv6 address stands in brackets; its colons are not the port's.
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None => return Err(wrong("its port does not follow a colon")),
            },
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        let port = match port {
            None if is_tls => HTTPS_PORT,
            None => HTTP_PORT,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(wrong(&format!("'{port}' is no port"))),
            },
        };
        let tls = if is_tls {
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| wrong(&format!("'{host}' is no host name")))?;
            Some((connector(trust)?, name))
        } else {
            None
        };
        Ok(Self {
            tls,
            ..Self::plain(host, port)
        })
    }

    /// What the host header says.
    pub fn authority(&self) -> String {
        match (self.host.contains(':'), self.port) {
            (true, port) => format!("[{}]:{port}", self.host),
            (false, HTTP_PORT) if self.tls.is_none() => self.host.clone(),
            (false, HTTPS_PORT) if self.tls.is_some() => self.host.clone(),
            (false, port) => format!("{}:{port}", self.host),
        }
    }

    /// What to do about a failure to connect, where that is known.
    pub fn hint(&self, failure: &io::Error) -> &'static str {
        let of_tls = failure
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match (&self.tls, of_tls) {
            (_, Some(rustls::Error::InvalidCertificate(_))) => {
                "; --ca-file names a file of certificates to trust, --insecure trusts any"
            }
            (_, Some(rustls::Error::InvalidMessage(_))) => SPEAKS_HTTP,
            (Some(_), _) if is_hang_up(failure) => SPEAKS_HTTP,
            _ => "",
        }
    }

    /// Whether its clock is this machine's.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }

    pub fn tls(&self) -> Option<&(TlsConnector, ServerName<'static>)> {
        self.tls.as_ref()
    }
}

fn connector(trust: Trust<'_>) -> Result<TlsConnector> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal(format!("TLS cannot be set up: {error}")))?;
    let mut config = match trust {
        Trust::Any => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        Trust::File(path) => builder
            .with_root_certificates(roots_of(path)?)
            .with_no_client_auth(),
        Trust::Machine => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn roots_of(path: &Path) -> Result<RootCertStore> {
    let unusable = |reason: String| {
        Error::bad_request(format!(
            "cannot use the certificates of '{}': {reason}",
            path.display()
        ))
    };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    match roots.add_parsable_certificates(certificates) {
        (0, _) => Err(unusable("it holds none in PEM form".to_owned())),
        _ => Ok(roots),
    }
}

/// Takes every certificate, but checks that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown() {
        let table = [
            (
                "http://127.0.0.1:8081/",
                "127.0.0.1:8081",
                "http://127.0.0.1:8081/",
                true,
            ),
            (
                "http://db.example.org",
                "db.example.org",
                "http://db.example.org:80/",
                false,
            ),
            (
                "https://db.example.org/",
                "db.example.org",
                "https://db.example.org:443/",
                false,
            ),
            (
                "https://localhost:8081",
                "localhost:8081",
                "https://localhost:8081/",
                true,
            ),
            ("http://[::1]:9/", "[::1]:9", "http://[::1]:9/", true),
        ];
        for (url, authority, shown, is_loopback) in table {
            let endpoint = Endpoint::parse(url, Trust::Any).unwrap();
            assert_eq!(endpoint.authority(), authority, "{url}");
            assert_eq!(endpoint.to_string(), shown, "{url}");
            assert_eq!(endpoint.is_loopback(), is_loopback, "{url}");
        }
    }

    #[test]
    fn what_is_no_endpoint_is_named() {
        for url in [
            "127.0.0.1:8081",
            "ftp://x/",
            "http://",
            "http://x:0/",
            "http://x:99999/",
            "http://x/dbs",
            "http://[::1]9/",
        ] {
            let error = Endpoint::parse(url, Trust::Any).err().expect(url);
            assert!(error.message.contains(url), "{}", error.message);
        }
        let missing = Trust::File(Path::new("/no/such.pem"));
        let error = Endpoint::parse("https://x/", missing).err().unwrap();
        assert!(error.message.contains("/no/such.pem"), "{}", error.message);
    }
}
