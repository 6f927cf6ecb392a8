//! `bolide bench run` against real nodes: every workload at a small scale, the reports, Ctrl-C, bad
//! input. How fast anything is does not matter here.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const WORKLOADS: [&str; 11] = [
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-d",
    "ycsb-e",
    "ycsb-f",
    "sessions",
    "mass-expiry",
    "churn",
    "ttl-change",
    "expiry-feed",
];
/// Workloads that run at the same time.
const AT_ONCE: usize = 4;
/// How long a process may take; a healthy one needs a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bolide"));
    command.arg("bench").args(arguments);
    command
}

fn output(arguments: &[&str]) -> Output {
    bench(arguments).output().unwrap()
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A copy of a workload in which everything happens sooner.
fn quick(name: &str, folder: &Path) -> String {
    let path = format!(
        "{}/config/workloads/{name}.toml",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).unwrap();
    let quick = text
        .replace("due_together_seconds = 15", "due_together_seconds = 4")
        .replace("default_ttl = 10", "default_ttl = 2")
        .replace("default_ttl = 8", "default_ttl = 2")
        .replace("default_ttl = 6", "default_ttl = 3")
        .replace("\nttl = 5", "\nttl = 1")
        .replace("recent_seconds = 10", "recent_seconds = 3")
        .replace("every_seconds = 2", "every_seconds = 1")
        .replace("[12, 3, 8, -1, 6]", "[4, 1, 3, -1, 2]");
    let path = folder.join(format!("{name}.toml"));
    std::fs::write(&path, quick).unwrap();
    path.to_str().unwrap().to_owned()
}

fn try_workload(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let file = quick(name, folder.path());
    let expires = !name.starts_with("ycsb");
    let seconds = if expires { "5" } else { "1" };
    let output = output(&[
        "run",
        &file,
        "--items",
        "2000",
        "--seconds",
        seconds,
        "--warm-up",
        "0.5",
        "--connections",
        "8",
        "--rate",
        "1500",
        "--json",
        json.to_str().unwrap(),
        "--data-path",
        folder.path().to_str().unwrap(),
    ]);
    let told = messages(&output);
    assert!(output.status.success(), "{name}: {told}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("every answer was right"), "{name}: {table}");
    let run: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(run["workload"], name);
    for operation in run["operations"].as_array().unwrap() {
        assert!(operation["count"].as_u64() > Some(0), "{name}: {operation}");
        assert_eq!(operation["errors"], serde_json::json!({}), "{name}");
    }
    let due_reads = run["expiry_seen_lag"]["reads_of_due_items"].as_u64();
    assert_eq!(due_reads > Some(0), expires, "{name}: {table}");
    assert_eq!(run["expiry_seen_lag"]["max_seconds"], 0.0, "{name}");
}

#[test]
fn every_workload_runs_against_a_node_that_answers_rightly() {
    let listed = String::from_utf8(output(&["list"]).stdout).unwrap();
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names, WORKLOADS);
    for some in WORKLOADS.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for name in some {
                scope.spawn(|| try_workload(name));
            }
        });
    }
}

#[test]
fn reports_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (html, hdr) = (path("run.html"), path("run.hlog"));
    let output = output(&[
        "run",
        "ycsb-a",
        "--items",
        "500",
        "--seconds",
        "1.2",
        "--warm-up",
        "0",
        "--html",
        &html,
        "--hdr",
        &hdr,
        "--connections",
        "2",
        "--data-path",
        folder.path().to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", messages(&output));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
    for outside in ["http://", "https://", "src=", "@import"] {
        let ours = page.replace("http://127.0.0.1", "");
        assert!(!ours.contains(outside), "the page needs {outside}");
    }
    let log = std::fs::read_to_string(hdr).unwrap();
    for tag in ["Tag=read,", "Tag=update,"] {
        assert!(log.lines().any(|line| line.starts_with(tag)), "{log}");
    }
}

#[test]
fn ctrl_c_still_prints_the_report_of_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("run.json");
    let mut child = bench(&[
        "run",
        "ycsb-b",
        "--items",
        "500",
        "--seconds",
        "600",
        "--warm-up",
        "0",
    ])
    .args([
        "--connections",
        "2",
        "--data-path",
        folder.path().to_str().unwrap(),
    ])
    .args(["--json", json.to_str().unwrap()])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let begun = Instant::now();
    let mut reader = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut told = String::new();
    // The first line of figures says that something was measured.
    while !told.contains("p99") {
        let read = std::io::BufRead::read_line(&mut reader, &mut told).unwrap();
        assert!(read > 0 && begun.elapsed() < PATIENCE, "{told}");
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(
        table.contains("interrupted") && table.contains("every answer was right"),
        "{table}"
    );
    let run: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(run["is_interrupted"], true);
    assert!(run["all"]["count"].as_u64() > Some(0));
}

/// A node on a free port, killed at the end.
struct Node {
    child: std::process::Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = || {
            let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let (port, health) = (free(), free().to_string());
        let child = Command::new(env!("CARGO_BIN_EXE_bolide"))
            .args([
                "serve",
                "--port",
                &port.to_string(),
                "--health-port",
                &health,
            ])
            .args(["--data-path", folder.path().to_str().unwrap()])
            .args(arguments)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "the node does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self {
            child,
            port,
            _folder: folder,
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn given_endpoints_are_loaded_over_http_and_https_and_left_clean() {
    for (scheme, arguments, trust) in [
        ("http", [].as_slice(), [].as_slice()),
        ("https", &["--protocol", "https"], &["--insecure"]),
    ] {
        let node = Node::start(arguments);
        let url = format!("{scheme}://127.0.0.1:{}/", node.port);
        let second = format!("{scheme}://localhost:{}/", node.port);
        let output = bench(&[
            "run",
            "ycsb-a",
            "--items",
            "500",
            "--seconds",
            "1",
            "--warm-up",
            "0",
        ])
        .args([
            "--connections",
            "4",
            "--endpoint",
            &url,
            "--endpoint",
            &second,
        ])
        .args(trust)
        .output()
        .unwrap();
        let told = messages(&output);
        assert_eq!(output.status.code(), Some(0), "{scheme}: {told}");
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(table.contains(&url) && table.contains("none"), "{table}");
    }
}

/// Whether a program is installed where the comparison looks for it.
fn is_installed(name: &str, below: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(below).into_iter().flatten().flatten();
    let versions = versions.map(|version| version.path().join("bin"));
    let mut folders = std::env::split_paths(&path).chain(versions);
    folders.any(|folder| folder.join(name).is_file())
}

/// Processes whose command line or working folder names this folder.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| {
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let place = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        (line.contains(folder) || place.starts_with(folder)).then_some(line)
    });
    lines.collect()
}

#[test]
fn a_comparison_starts_and_stops_the_peers_that_are_installed() {
    let folder = tempfile::tempdir().unwrap();
    // A server runs as a user of its own where this test is root's.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let other = Node::start(&[]);
    let url = format!("http://127.0.0.1:{}/", other.port);
    let json = folder.path().join("compare.json");
    let output = bench(&["compare", "--endpoint", &url, "--items", "200"])
        .args(["--doomed", "50", "--connections", "4"])
        .args(["--seconds", "0.3", "--repetitions", "2"])
        .args(["--data-path", folder.path().to_str().unwrap()])
        .args(["--json", json.to_str().unwrap()])
        .output()
        .unwrap();
    let (told, table) = (messages(&output), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{told}{table}");
    let figures: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let peers = figures["peers"].as_array().unwrap();
    let named = |name: &str| {
        let found = peers.iter().filter(|peer| {
            let peer = peer["peer"].as_str().unwrap();
            peer.contains(name)
        });
        found.count()
    };
    assert_eq!(named(&url), 1, "{figures:#}");
    for (peer, program, below) in [
        ("Redis", "redis-server", ""),
        ("PostgreSQL", "postgres", "/usr/lib/postgresql"),
    ] {
        // Each in two ways of keeping what it was told; or it is said that it is missing.
        let expected = if is_installed(program, below) { 2 } else { 0 };
        assert_eq!(named(peer), expected, "{peer}: {told}{table}");
        let left_out = figures["left_out"].to_string();
        assert_eq!(expected == 0, left_out.contains(program), "{left_out}");
    }
    for peer in peers {
        for work in peer["works"].as_array().unwrap() {
            assert_eq!(work["rates"].as_array().map(Vec::len), Some(2), "{peer:#}");
            assert_eq!(work["wrong_answers"], 0, "{peer:#}");
        }
        assert!(peer["guarantees"].as_str().is_some(), "{peer:#}");
    }
    assert_eq!(processes_of(folder.path()), [""; 0]);
}

#[test]
fn what_cannot_be_done_gets_one_line_and_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let bad_key = folder.path().join("key.toml");
    std::fs::write(&bad_key, "about = 'x'\n[operations]\nraed = 1\n").unwrap();
    let bad_value = folder.path().join("value.toml");
    std::fs::write(
        &bad_value,
        "about = 'x'\n[operations]\nread = 1\n[items]\nbytes = 7\n",
    )
    .unwrap();
    let node = Node::start(&[]);
    let url = format!("http://127.0.0.1:{}/", node.port);
    let other_key = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let unreachable = "http://127.0.0.1:1/";
    let table: [(&[&str], &[&str]); 10] = [
        (&["sesions"], &["'sesions'", "did you mean sessions?"]),
        (&["/no/such.toml"], &["/no/such.toml"]),
        (
            &[bad_key.to_str().unwrap()],
            &["line 3", "'raed'", "did you mean read?"],
        ),
        (&[bad_value.to_str().unwrap()], &["items.bytes is 7"]),
        (&["ycsb-a", "--endpoint", unreachable], &[unreachable]),
        (&["ycsb-a", "--endpoint", "8081"], &["'8081'"]),
        (
            &["ycsb-a", "--endpoint", &url, "--key", other_key],
            &[&url, "refuses the key"],
        ),
        (
            &["ycsb-a", "--endpoint", &url, "--key", "&"],
            &["key is not base64"],
        ),
        (&["ycsb-a", "--rate", "0"], &["--rate", "'0'"]),
        (
            &["ycsb-a", "--json", "/no/such/folder/x.json"],
            &["/no/such/folder/x.json"],
        ),
    ];
    for (arguments, fragments) in table {
        let output = bench(&["run"]).args(arguments).output().unwrap();
        let told = messages(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert_eq!(told.lines().count(), 1, "{arguments:?}: {told}");
        for fragment in fragments {
            assert!(
                told.contains(fragment),
                "{arguments:?}: no {fragment} in {told}"
            );
        }
    }
}
