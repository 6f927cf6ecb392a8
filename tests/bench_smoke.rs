//! A tiny run of the load driver: every case is measured, and what it checks holds.

use std::process::Command;

use serde_json::Value;

/// Figures that say whether answers were right; speed is not judged on a busy test machine.
const CORRECT: [&str; 5] = [
    "live items that a read missed",
    "reads that saw one after its second",
    "reads that missed one before its second",
    "other answers to these reads",
    "items that a read saw after their second",
];

#[test]
fn every_case_is_measured_and_no_answer_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bolide"))
        .args(["bench", "node", "--items", "1000", "--seconds", "0.2"])
        .args(["--rounds", "1", "--connections", "4"])
        .args(["--containers", "20"])
        .args(["--data-path".as_ref(), folder.path().as_os_str()])
        .args(["--json".as_ref(), json.as_os_str()])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");

    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let figures = report["figures"].as_array().unwrap();
    let cases = [
        "startup",
        "point read",
        "create",
        "million",
        "few due",
        "mass expiry",
        "equality",
        "order by",
        "count",
        "reindex",
        "indexed create",
        "many containers",
    ];
    for case in cases {
        let judged = |figure: &&Value| figure["case"] == case && !figure["met"].is_null();
        assert!(
            figures.iter().any(|figure| judged(&figure)),
            "{case}: {messages}"
        );
    }
    for name in CORRECT {
        let figure = figures.iter().find(|figure| figure["figure"] == name);
        assert_eq!(figure.unwrap()["met"], true, "{name}: {messages}");
    }
    let wrong = |figure: &&Value| figure["figure"].as_str().unwrap().contains("wrong answers");
    assert_eq!(figures.iter().find(wrong), None);
    // The servers' folders are gone; the report is what stays.
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn what_cannot_be_done_gets_one_line_and_code_2() {
    let table: [&[&str]; 3] = [
        &["--json", "/no/such/folder/figures.json"],
        &["--data-path", "/proc/no-such-folder"],
        &["--only", "everything"],
    ];
    for arguments in table {
        let output = Command::new(env!("CARGO_BIN_EXE_bolide"))
            .args(["bench", "node"])
            .args(arguments)
            .output()
            .unwrap();
        let messages = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {messages}");
        assert_eq!(messages.lines().count(), 1, "{arguments:?}: {messages}");
        assert!(messages.contains(arguments[1]), "{arguments:?}: {messages}");
    }
}

#[test]
fn every_case_of_a_cluster_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bolide"))
        .args(["bench", "cluster", "--items", "200", "--seconds", "0.2"])
        .args(["--rounds", "1", "--connections", "4"])
        .args(["--shards", "4", "--kills", "1"])
        .args(["--data-path".as_ref(), folder.path().as_os_str()])
        .args(["--json".as_ref(), json.as_os_str()])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let figures = report["figures"].as_array().unwrap();
    for case in ["create", "read", "forward", "strong", "shards", "failover"] {
        let of_case = |figure: &&Value| figure["case"] == case;
        assert!(figures.iter().any(|figure| of_case(&figure)), "{case}");
    }
    let wrong = |figure: &&Value| figure["figure"].as_str().unwrap().contains("wrong answers");
    assert_eq!(figures.iter().find(wrong), None, "{messages}");
}

#[test]
fn without_wrk_the_driver_says_what_is_missing() {
    let output = Command::new(env!("CARGO_BIN_EXE_bolide"))
        .args(["bench", "driver"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{messages}");
    assert!(messages.contains("wrk is not installed"), "{messages}");
}
