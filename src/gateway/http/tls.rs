//! TLS: a configured certificate, or one for development that is made at first start and kept in
//! the data folder.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::model::error::{Error, Result};

/// The protocols that clients may choose from, the preferred one first.
const ALPN_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Names that every development certificate is valid for.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// The folder of the development certificate within the data folder.
const TLS_FOLDER: &str = "tls";
/// Only the owner may read a private key.
const KEY_FILE_MODE: u32 = 0o600;
/// The certificate is public: clients are to trust it.
const CERT_FILE_MODE: u32 = 0o644;

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl CertificateFiles {
    /// The configured pair, if there is one; half a pair is a mistake.
    pub fn configured(cert: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>> {
        match (cert, key) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => Ok(Some(Self {
                cert: cert.into(),
                key: key.into(),
            })),
            (Some(cert), None) => Err(Error::bad_request(format!(
                "tls.cert is '{}' but tls.key is not set: TLS needs both",
                cert.display()
            ))),
            (None, Some(key)) => Err(Error::bad_request(format!(
                "tls.key is '{}' but tls.cert is not set: TLS needs both",
                key.display()
            ))),
        }
    }

    /// The development certificate of this data folder, made now if there is none. A new one is
    /// valid for this machine's local names and for `hosts`: the address the node listens on, and the
    /// names that clients may use.
    pub fn development(data_path: &Path, hosts: &[&str]) -> Result<Self> {
        let folder = data_path.join(TLS_FOLDER);
        let files = Self {
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
        };
        if files.cert.exists() && files.key.exists() {
            return Ok(files);
        }
        let (cert, key) = self_signed(&certificate_names(hosts))?;
        let unwritable = |error: std::io::Error| {
            Error::bad_request(format!(
                "cannot write the development certificate into '{}': {error}",
                folder.display()
            ))
        };
        fs::create_dir_all(&folder).map_err(unwritable)?;
        // The key first: a certificate alone counts as none, and both are made again.
        write_file(&files.key, &key, KEY_FILE_MODE).map_err(unwritable)?;
        write_file(&files.cert, &cert, CERT_FILE_MODE).map_err(unwritable)?;
        Ok(files)
    }

    /// The server's side of TLS with this certificate: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
    pub fn server_config(&self) -> Result<ServerConfig> {
        let bad_cert = |reason: String| {
            Error::bad_request(format!(
                "cannot use the certificate '{}': {reason}",
                self.cert.display()
            ))
        };
        let bad_key = |reason: String| {
            Error::bad_request(format!(
                "cannot use the private key '{}': {reason}",
                self.key.display()
            ))
        };
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad_cert(error.to_string()))?;
        if chain.is_empty() {
            return Err(bad_cert("it holds no certificate in PEM form".to_owned()));
        }
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|error| bad_key(error.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal(format!("TLS cannot be set up: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| {
                bad_key(format!(
                    "it does not go with '{}': {error}",
                    self.cert.display()
                ))
            })?;
        config.alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).into();
        Ok(config)
    }
}

/// The names a new development certificate is for, each once.
fn certificate_names(hosts: &[&str]) -> Vec<String> {
    let bare = |host: &&str| host.trim_matches(['[', ']', ' ']).to_owned();
    let mut names: Vec<String> = LOCAL_NAMES.map(str::to_owned).into();
    for name in machine_name().into_iter().chain(hosts.iter().map(bare)) {
        // The any-address is where we listen, never what a client asks for.
        let any_address = matches!(name.as_str(), "0.0.0.0" | "::");
        if !name.is_empty() && name.is_ascii() && !any_address && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The machine's name: from the kernel where it shows it, else from the shell.
fn machine_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| fs::read_to_string("/etc/hostname"))
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())?;
    let name = name.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

/// A self-signed certificate and its key, both PEM.
fn self_signed(names: &[String]) -> Result<(String, String)> {
    let failed = |error: rcgen::Error| {
        Error::internal(format!("cannot make a development certificate: {error}"))
    };
    let mut params = CertificateParams::new(names.to_vec()).map_err(failed)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, "Bolide development");
    params.distinguished_name = subject;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Nobody renews a development certificate: it must outlive the folder. It ends before 2050,
    // where the encoding of dates changes and old libraries stumble.
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(2049, 12, 31);
    let key = KeyPair::generate().map_err(failed)?;
    let cert = params.self_signed(&key).map_err(failed)?;
    Ok((cert.pem(), key.serialize_pem()))
}

/// Writes a whole file or none: beside it first, then in its place.
fn write_file(path: &Path, content: &str, mode: u32) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    // A leftover could have wider rights than this file is to have.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let mut file = options.open(&beside)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection};

    fn message<T>(result: Result<T>) -> String {
        result.err().expect("an error").message
    }

    /// Lets a client that trusts only this certificate ask for `name`.
    fn handshake(files: &CertificateFiles, name: &str) -> Result<Option<Vec<u8>>, rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(&files.cert).unwrap())
            .unwrap();
        let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name)?;
        let mut server = ServerConnection::new(Arc::new(files.server_config().unwrap()))?;
        for _ in 0..4 {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets()?;
            let mut wire = Vec::new();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
        }
        assert!(!client.is_handshaking() && !server.is_handshaking());
        Ok(client.alpn_protocol().map(<[u8]>::to_vec))
    }

    #[test]
    fn the_development_certificate_serves_local_names_and_is_kept() {
        let data = tempfile::tempdir().unwrap();
        let files =
            CertificateFiles::development(data.path(), &["10.1.2.3", "host.docker.internal"])
                .unwrap();
        for name in [
            "localhost",
            "127.0.0.1",
            "::1",
            "10.1.2.3",
            "host.docker.internal",
        ] {
            assert_eq!(
                handshake(&files, name).unwrap().as_deref(),
                Some(&b"h2"[..]),
                "{name}"
            );
        }
        assert!(handshake(&files, "example.org").is_err());

        let before = fs::read(&files.cert).unwrap();
        assert_eq!(
            CertificateFiles::development(data.path(), &["::1"]).unwrap(),
            files
        );
        assert_eq!(fs::read(&files.cert).unwrap(), before);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&files.key).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, KEY_FILE_MODE);
        }
    }

    #[test]
    fn half_a_development_certificate_is_made_again() {
        let data = tempfile::tempdir().unwrap();
        let files = CertificateFiles::development(data.path(), &["localhost"]).unwrap();
        for half in [&files.cert, &files.key] {
            fs::remove_file(half).unwrap();
            CertificateFiles::development(data.path(), &["localhost"]).unwrap();
            handshake(&files, "localhost").unwrap();
        }
    }

    #[test]
    fn configured_files_are_a_pair() {
        let (cert, key) = (Some(Path::new("c.pem")), Some(Path::new("k.pem")));
        assert_eq!(CertificateFiles::configured(None, None), Ok(None));
        assert!(CertificateFiles::configured(cert, key).unwrap().is_some());
        assert!(message(CertificateFiles::configured(cert, None)).contains("c.pem"));
        assert!(message(CertificateFiles::configured(None, key)).contains("k.pem"));
    }

    #[test]
    fn unusable_files_are_named() {
        let data = tempfile::tempdir().unwrap();
        let good = CertificateFiles::development(&data.path().join("a"), &["::1"]).unwrap();
        let other = CertificateFiles::development(&data.path().join("b"), &["::1"]).unwrap();
        let junk = data.path().join("junk.pem");
        fs::write(&junk, "not PEM").unwrap();
        let missing = data.path().join("missing.pem");
        let table = [
            (&missing, &good.key, "missing.pem"),
            (&junk, &good.key, "no certificate"),
            (&good.cert, &missing, "missing.pem"),
            (&good.cert, &junk, "junk.pem"),
            (&good.cert, &other.key, "does not go with"),
        ];
        for (cert, key, fragment) in table {
            let files = CertificateFiles {
                cert: cert.clone(),
                key: key.clone(),
            };
            let error = message(files.server_config());
            assert!(error.contains(fragment), "{fragment}: {error}");
        }
    }
}
