//! Command lines and the commands that they are.

use super::*;
use crate::{
    bench::CaseName,
    config::{LogFormat, Protocol},
};

fn parsed(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Command> {
    let arguments = ["bolide"].iter().chain(arguments).map(OsString::from);
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    parse(arguments, environment.iter().map(owned).collect())
}

fn serving(arguments: &[&str], environment: &[(&str, &str)]) -> Settings {
    match parsed(arguments, environment) {
        Ok(Command::Serve(settings)) => *settings,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

#[test]
fn no_command_serves_with_the_defaults() {
    assert_eq!(serving(&[], &[]), Settings::default());
    assert_eq!(serving(&["serve"], &[]), Settings::default());
    assert_eq!(serving(&["--host", "[::1]"], &[]).server.host, "::1");
}

#[test]
fn flags_are_taken_at_the_top_and_after_serve() {
    let flags = [
        "--data-path",
        "/d",
        "--host",
        "::1",
        "--port",
        "1",
        "--health-port=2",
        "--protocol",
        "https",
        "--key-file",
        "k",
        "--tls-cert",
        "c",
        "--tls-key",
        "p",
        "--workers",
        "3",
        "--shards",
        "4",
        "--log-level",
        "debug",
        "--log-format",
        "json",
        "--set",
        "limits.enforce_throughput=true",
        "--set",
        "server.account=123",
    ];
    let top = serving(&flags, &[]);
    let after = serving(&[&["serve"], &flags[..]].concat(), &[]);
    let before = serving(&[&flags[..], &["serve"]].concat(), &[]);
    assert_eq!(top, after);
    assert_eq!(top, before);

    let mut expected = Settings::default();
    expected.storage.data_path = "/d".into();
    expected.server.host = "::1".into();
    expected.server.port = 1;
    expected.server.health_port = 2;
    expected.server.protocol = Protocol::Https;
    expected.server.workers = 3;
    expected.server.account = "123".into();
    expected.auth.key_file = Some("k".into());
    expected.tls.cert = Some("c".into());
    expected.tls.key = Some("p".into());
    expected.limits.shards_per_container = 4;
    expected.limits.enforce_throughput = true;
    expected.log.level = "debug".into();
    expected.log.format = LogFormat::Json;
    assert_eq!(top, expected);
}

#[test]
fn later_layers_win() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("b.toml");
    std::fs::write(&path, "[server]\nport = 1\nhealth_port = 1\nworkers = 1\n").unwrap();
    let path = path.to_str().unwrap();
    let environment = [
        ("BOLIDE_SERVER__HEALTH_PORT", "2"),
        ("BOLIDE_SERVER__WORKERS", "2"),
        ("OTHER_SERVER__WORKERS", "x"),
    ];
    let settings = serving(&["--config", path, "serve", "--workers", "3"], &environment);
    let server = settings.server;
    assert_eq!((server.port, server.health_port, server.workers), (1, 2, 3));
    assert_eq!(settings.auth, Settings::default().auth);
}

#[test]
fn a_flag_after_serve_goes_over_one_before_it_and_both_over_set() {
    assert_eq!(
        serving(&["--port", "1", "serve", "--port", "2"], &[])
            .server
            .port,
        2
    );
    assert_eq!(
        serving(&["--port", "1", "--set", "server.port=2"], &[])
            .server
            .port,
        1
    );
}

#[test]
fn bad_values_get_one_line_that_names_them() {
    let table: [(&[&str], &[&str]); 30] = [
        (&["--port", "99999"], &["--port", "99999", "0 to 65535"]),
        (&["--port", "-1"], &["--port", "-1"]),
        (&["--port", "http"], &["--port", "'http'"]),
        (
            &["--port", "99999999999999999999"],
            &["--port", "99999999999999999999"],
        ),
        (
            &["--protocol", "ftp"],
            &["--protocol", "'ftp'", "http, https"],
        ),
        (&["--config", "no/such.toml"], &["no/such.toml"]),
        (&["--host", "a:80"], &["--host", "'a:80'"]),
        (&["--data-path", ""], &["--data-path", "''"]),
        (&["--log-level", "loud"], &["--log-level", "'loud'"]),
        (
            &["--log-level", "info,=debug"],
            &["--log-level", "'info,=debug'"],
        ),
        (
            &["--set", "server.prot=1"],
            &["server.prot", "did you mean server.port?"],
        ),
        (
            &["--set", "server.data_path=x"],
            &["did you mean storage.data_path?"],
        ),
        (&["--set", "zzz=1"], &["zzz", "server, storage"]),
        (&["--set", "server=1"], &["--set server", "no such setting"]),
        (
            &["--set", "server.port"],
            &["server.port", "SECTION.KEY=VALUE"],
        ),
        (
            &["--set", "auth.enabled=maybe"],
            &["auth.enabled", "'maybe'"],
        ),
        (
            &["--set", "server.account=localhost"],
            &["server.account", "'localhost'"],
        ),
        (&["--prot", "1"], &["'--prot'", "--port"]),
        (&["sevre"], &["'sevre'", "serve"]),
        (&["--port", "1", "key"], &["--port", "key"]),
        (&["--port", "1", "bench", "node"], &["--port", "bench"]),
        (
            &["bench", "node", "--only", "x"],
            &["--only", "'x'", "few-due"],
        ),
        (&["bench", "node", "--items", "9"], &["--items", "9"]),
        (&["bench", "node", "--seconds", "0"], &["--seconds", "'0'"]),
        (&["bench", "nodes"], &["'nodes'", "node"]),
        (
            &["cluster", "drain", "x"],
            &["'x'", "a whole number is expected"],
        ),
        (
            &["cluster", "drain", "1", "--health-port", "http"],
            &["--health-port", "'http'", "a whole number is expected"],
        ),
        (
            &["--set", "server.region=Mars"],
            &["server.region", "'Mars'", "the nearest is"],
        ),
        (
            &["--port", "8080"],
            &["server.port and server.health_port", "8080"],
        ),
        (
            &["--tls-cert", "c", "--protocol", "http"],
            &["--tls-cert", "--protocol https"],
        ),
    ];
    for (arguments, fragments) in table {
        let error = parsed(arguments, &[])
            .expect_err(&format!("{arguments:?}"))
            .message;
        assert!(!error.contains('\n'), "{arguments:?}: {error}");
        for fragment in fragments {
            assert!(
                error.contains(fragment),
                "{arguments:?}: no {fragment} in: {error}"
            );
        }
    }
}

#[test]
fn bad_variables_are_named() {
    let table = [
        (
            "BOLIDE_SERVER__PORT",
            "x",
            "environment variable BOLIDE_SERVER__PORT: 'x' is not",
        ),
        (
            "BOLIDE_SERVER_PORT",
            "1",
            "did you mean BOLIDE_SERVER__PORT?",
        ),
        (
            "BOLIDE_SERVER__PROTOCOL",
            "ftp",
            "BOLIDE_SERVER__PROTOCOL: 'ftp' is not one of",
        ),
        (
            "BOLIDE_TTL__CLOCK_JUMP_BOUND",
            "1",
            "BOLIDE_TTL__CLOCK_JUMP_BOUND_SECONDS?",
        ),
    ];
    for (name, value, fragment) in table {
        let error = parsed(&[], &[(name, value)]).unwrap_err().message;
        assert!(error.contains(fragment), "{name}: {error}");
    }
}

#[test]
fn a_certificate_alone_means_https() {
    let settings = serving(&["--tls-cert", "c", "--tls-key", "k"], &[]);
    assert_eq!(settings.server.protocol, Protocol::Https);
}

#[test]
fn a_command_without_what_it_is_to_do_lists_its_commands() {
    for (name, commands) in [("bench", ["node", "run"]), ("cluster", ["drain", "status"])] {
        match parsed(&[name], &[]) {
            Ok(Command::Incomplete(text)) => {
                for command in commands {
                    assert!(text.contains(&format!("\n  {command}")), "{text}");
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn help_version_and_key_are_commands() {
    match parsed(&["--help"], &[]) {
        Ok(Command::Show(text)) => {
            for flag in ["--data-path", "--key-file", "--set", "key", "Exit codes"] {
                assert!(text.contains(flag), "{flag}: {text}");
            }
        }
        other => panic!("{other:?}"),
    }
    let version = format!("bolide {VERSION}\n");
    assert_eq!(parsed(&["--version"], &[]), Ok(Command::Show(version)));
    assert_eq!(parsed(&["key"], &[]), Ok(Command::Key));
    let data_path = || PathBuf::from("d");
    for (arguments, task) in [
        (
            &["check", "--data-path", "d"][..],
            OfflineTask::Check {
                data_path: data_path(),
            },
        ),
        (
            &["removed", "list", "--data-path", "d"],
            OfflineTask::RemovedList {
                data_path: data_path(),
            },
        ),
        (
            &["removed", "delete", "a", "--data-path", "d"],
            OfflineTask::RemovedDelete {
                data_path: data_path(),
                names: Some(vec!["a".to_owned()]),
            },
        ),
        (
            &["removed", "delete", "--all", "--data-path", "d"],
            OfflineTask::RemovedDelete {
                data_path: data_path(),
                names: None,
            },
        ),
    ] {
        assert_eq!(parsed(arguments, &[]), Ok(Command::Offline(task)));
    }
    assert!(parsed(&["removed", "delete"], &[]).is_err());
    match parsed(
        &["bench", "node", "--only", "create", "--items", "5000"],
        &[],
    ) {
        Ok(Command::Bench(BenchTask::Node(options))) => {
            assert_eq!(options.only, [CaseName::Create]);
            assert_eq!(options.items, 5_000);
            assert_eq!(options.servers.connections, 64);
        }
        other => panic!("{other:?}"),
    }
}
