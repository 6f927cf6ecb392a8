//! Emulator mode: the variables and flags of Microsoft's vNext emulator, as settings of ours. They
//! count only with `server.emulator`: outside it `PORT` in the environment means nothing.

use std::path::Path;

use super::{Flag, Settings, checks};
use crate::model::error::{Error, Result};

/// Names by which containers and virtual machines reach the machine that runs them.
const GATEWAY_NAMES: [&str; 4] = [
    "host.docker.internal",
    "gateway.docker.internal",
    "host.containers.internal",
    "host.testcontainers.internal",
];

/// What a variable of the emulator is here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// A setting with the same values, or with others that are translated.
    Setting(&'static str),
    /// A file with a certificate and its private key.
    Certificate,
    /// A name by which clients reach the node.
    PublicEndpoint,
    /// Nothing: it has no counterpart.
    Nothing,
}

/// Every variable of the emulator, with the flag of the emulator that is the same, where it is no
/// flag of ours.
const VARIABLES: [(&str, Option<&str>, Meaning); 14] = [
    ("PORT", None, Meaning::Setting("server.port")),
    ("PROTOCOL", None, Meaning::Setting("server.protocol")),
    ("KEY_FILE", None, Meaning::Setting("auth.key_file")),
    ("DATA_PATH", None, Meaning::Setting("storage.data_path")),
    ("LOG_LEVEL", None, Meaning::Setting("log.level")),
    ("CERT_PATH", Some("--cert-path"), Meaning::Certificate),
    ("CERT_SECRET", None, Meaning::Nothing),
    (
        "GATEWAY_PUBLIC_ENDPOINT",
        Some("--gateway-endpoint"),
        Meaning::PublicEndpoint,
    ),
    (
        "ENABLE_EXPLORER",
        Some("--enable-explorer"),
        Meaning::Nothing,
    ),
    ("EXPLORER_PORT", Some("--explorer-port"), Meaning::Nothing),
    (
        "EXPLORER_PROTOCOL",
        Some("--explorer-protocol"),
        Meaning::Nothing,
    ),
    ("ENABLE_TELEMETRY", None, Meaning::Nothing),
    (
        "ENABLE_OTLP_EXPORTER",
        Some("--enable-otlp"),
        Meaning::Nothing,
    ),
    (
        "QUERY_BUFFER_SIZE_KB",
        Some("--query-buffer-size"),
        Meaning::Nothing,
    ),
];

/// What variables or flags of the emulator come to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    pub settings: Vec<Flag>,
    /// Names that clients may use.
    hosts: Vec<String>,
    /// What has no counterpart.
    ignored: Vec<String>,
}

/// Translates the environment. A variable that is empty is not set.
pub fn variables(environment: &[(String, String)]) -> Result<Translated> {
    let mut translated = Translated::default();
    for (variable, _, meaning) in VARIABLES {
        let set = environment
            .iter()
            .find(|(name, value)| name == variable && !value.trim().is_empty());
        if let Some((_, value)) = set {
            translated.add("environment variable", variable, meaning, value)?;
        }
    }
    Ok(translated)
}

/// Translates the flags that only the emulator has.
pub fn flags(given: &[(&'static str, String)]) -> Result<Translated> {
    let mut translated = Translated::default();
    for (flag, value) in given {
        let known = VARIABLES.iter().find(|(_, own, _)| *own == Some(flag));
        let meaning = known.map_or(Meaning::Nothing, |(_, _, meaning)| *meaning);
        translated.add("flag", flag, meaning, value)?;
    }
    Ok(translated)
}

/// The value of a setting as the emulator spells it, as ours.
fn value<'a>(setting: &str, text: &'a str) -> &'a str {
    match (setting, text.trim()) {
        // Its certificate is self-signed; ours is, too, unless one is given.
        ("server.protocol", "https-insecure") => "https",
        ("log.level", "quiet") => "off",
        _ => text,
    }
}

/// A flag that both have, with a value as the emulator may spell it.
pub fn in_our_words(flag: Flag) -> Flag {
    let ours = value(&flag.setting, &flag.value).to_owned();
    Flag {
        value: ours,
        ..flag
    }
}

/// Refuses the emulator's flags outside emulator mode.
pub fn refuse_flags(given: &[(&'static str, String)]) -> Result<()> {
    match given.first() {
        None => Ok(()),
        Some((flag, _)) => Err(Error::bad_request(format!(
            "flag {flag} is one of the Cosmos DB emulator: it counts only with --emulator"
        ))),
    }
}

/// Puts in what is no single setting: the names of the node, and what was ignored.
pub fn complete(settings: &mut Settings, translated: Vec<Translated>) {
    let own = settings.server.allowed_hosts.clone();
    let mut hosts: Vec<String> = vec![own];
    hosts.extend(GATEWAY_NAMES.map(str::to_owned));
    for part in translated {
        hosts.extend(part.hosts);
        settings.emulator_ignored.extend(part.ignored);
    }
    hosts.retain(|name| !name.trim().is_empty());
    settings.server.allowed_hosts = hosts.join(",");
}

impl Translated {
    fn add(&mut self, kind: &str, name: &str, meaning: Meaning, text: &str) -> Result<()> {
        let mut set = |setting: &str, text: &str| {
            self.settings.push(Flag {
                shown: name.to_owned(),
                setting: setting.to_owned(),
                value: value(setting, text).to_owned(),
            });
        };
        match meaning {
            Meaning::Setting(setting) => set(setting, text),
            Meaning::Certificate if holds_pem(kind, name, text)? => {
                set("tls.cert", text);
                set("tls.key", text);
            }
            Meaning::Certificate => self.ignored.push(format!(
                "{name} ('{text}' is no PEM file with a certificate and its private key)"
            )),
            Meaning::PublicEndpoint => match host_of(text) {
                Some(host) => self.hosts.push(host.to_owned()),
                None => {
                    return Err(Error::bad_request(format!(
                        "{kind} {name}: '{text}' is not a host name or an address, with or without a port"
                    )));
                }
            },
            Meaning::Nothing => self.ignored.push(name.to_owned()),
        }
        Ok(())
    }
}

/// Returns whether a file has both a certificate and a private key in PEM form. The emulator's own
/// form is PFX, which is not read here.
fn holds_pem(kind: &str, name: &str, path: &str) -> Result<bool> {
    let bytes = std::fs::read(Path::new(path)).map_err(|failure| {
        Error::bad_request(format!("{kind} {name}: cannot read '{path}': {failure}"))
    })?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.contains("-----BEGIN CERTIFICATE-----") && text.contains("PRIVATE KEY-----"))
}

/// The host of `name`, `name:port` or a URL.
fn host_of(text: &str) -> Option<&str> {
    let text = text.trim();
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "0"));
    let good = checks::is_host(host) && port.parse::<u16>().is_ok();
    good.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::super::{LogFormat, Protocol, Sources, load};
    use super::*;

    fn loaded(environment: &[(&str, &str)], given: &[(&'static str, &str)]) -> Result<Settings> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let switch = Flag {
            shown: "--emulator".to_owned(),
            setting: "server.emulator".to_owned(),
            value: "true".to_owned(),
        };
        load(Sources {
            environment: environment.iter().map(owned).collect(),
            flags: vec![switch],
            emulator_flags: given
                .iter()
                .map(|(flag, value)| (*flag, (*value).to_owned()))
                .collect(),
            ..Sources::default()
        })
    }

    #[test]
    fn the_emulators_variables_are_settings() {
        let settings = loaded(
            &[
                ("PORT", "9000"),
                ("PROTOCOL", "https-insecure"),
                ("KEY_FILE", "/run/key"),
                ("DATA_PATH", "/data"),
                ("LOG_LEVEL", "quiet"),
                ("GATEWAY_PUBLIC_ENDPOINT", "https://db.example.org:8081/"),
            ],
            &[],
        )
        .unwrap();
        assert_eq!(settings.server.port, 9000);
        assert_eq!(settings.server.protocol, Protocol::Https);
        assert_eq!(settings.auth.key_file, Some("/run/key".into()));
        assert_eq!(settings.storage.data_path, Path::new("/data"));
        assert_eq!(settings.log.level, "off");
        assert_eq!(settings.log.format, LogFormat::Text);
        for host in ["host.docker.internal", "db.example.org"] {
            assert!(settings.server.allowed_hosts.contains(host), "{host}");
        }
        assert!(settings.emulator_ignored.is_empty());
    }

    #[test]
    fn without_the_mode_they_mean_nothing() {
        let environment = [("PORT", "http"), ("PROTOCOL", "ftp"), ("DATA_PATH", "/x")];
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let settings = load(Sources {
            environment: environment.map(owned).into(),
            ..Sources::default()
        });
        assert_eq!(settings, Ok(Settings::default()));
        let error = load(Sources {
            emulator_flags: vec![("--cert-path", "x".to_owned())],
            ..Sources::default()
        });
        let error = error.unwrap_err().message;
        assert!(
            error.contains("--cert-path") && error.contains("--emulator"),
            "{error}"
        );
    }

    #[test]
    fn what_has_no_counterpart_is_listed() {
        let settings = loaded(
            &[
                ("ENABLE_EXPLORER", "false"),
                ("ENABLE_TELEMETRY", "false"),
                ("EXPLORER_PORT", ""),
                ("CERT_SECRET", "hush"),
            ],
            &[("--query-buffer-size", "10")],
        )
        .unwrap();
        let ignored = settings.emulator_ignored;
        assert_eq!(
            ignored,
            [
                "CERT_SECRET",
                "ENABLE_EXPLORER",
                "ENABLE_TELEMETRY",
                "--query-buffer-size"
            ]
        );
    }

    #[test]
    fn our_own_variables_go_over_the_emulators_and_flags_over_both() {
        let both = [("PORT", "1"), ("BOLIDE_SERVER__PORT", "2")];
        assert_eq!(loaded(&both, &[]).unwrap().server.port, 2);
    }

    #[test]
    fn wrong_values_are_named_with_their_variable() {
        let table: [(&str, &str, &[&str]); 6] = [
            ("PORT", "http", &["environment variable PORT", "'http'"]),
            ("PORT", "99999", &["environment variable PORT", "99999"]),
            (
                "PROTOCOL",
                "ftp",
                &["environment variable PROTOCOL", "'ftp'"],
            ),
            (
                "LOG_LEVEL",
                "loud",
                &["environment variable LOG_LEVEL", "'loud'"],
            ),
            (
                "CERT_PATH",
                "/no/such.pfx",
                &["environment variable CERT_PATH", "'/no/such.pfx'"],
            ),
            (
                "GATEWAY_PUBLIC_ENDPOINT",
                "a b",
                &["GATEWAY_PUBLIC_ENDPOINT", "'a b'"],
            ),
        ];
        for (name, value, fragments) in table {
            let error = loaded(&[(name, value)], &[]).unwrap_err().message;
            assert!(!error.contains('\n'), "{error}");
            for fragment in fragments {
                assert!(error.contains(fragment), "{name}={value}: {error}");
            }
        }
    }

    #[test]
    fn a_certificate_in_pem_form_is_taken_and_another_one_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let (pem, pfx) = (folder.path().join("a.pem"), folder.path().join("a.pfx"));
        std::fs::write(
            &pem,
            "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n-----BEGIN CERTIFICATE-----\n",
        )
        .unwrap();
        std::fs::write(&pfx, b"\x30\x82\xff").unwrap();
        let settings = loaded(&[], &[("--cert-path", pem.to_str().unwrap())]).unwrap();
        assert_eq!(settings.tls.cert.as_ref(), Some(&pem));
        assert_eq!(settings.tls.key.as_ref(), Some(&pem));
        assert_eq!(settings.server.protocol, Protocol::Https);
        let settings = loaded(&[("CERT_PATH", pfx.to_str().unwrap())], &[]).unwrap();
        assert_eq!(settings.tls, super::super::Tls::default());
        let [ignored] = settings.emulator_ignored.as_slice() else {
            panic!("{:?}", settings.emulator_ignored);
        };
        assert!(
            ignored.starts_with("CERT_PATH") && ignored.contains("PEM"),
            "{ignored}"
        );
    }
}
