//! Files that were damaged: the shard says what is wrong, its neighbours serve, and nothing is made worse.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    bench::{Want, item},
    node::{self, Node, ids, in_memory, perform, status},
};
use crate::model::ttl::DefaultTtl;

/// Two shards with ten items each, as a crash leaves them: everything is in the journals.
fn crashed() -> tempfile::TempDir {
    let (running, copy) = (in_memory(), in_memory());
    node::run(async {
        let node = Node::start(running.path());
        for range in 0..2 {
            let shard = node.open(range, DefaultTtl::Off);
            for n in 0..10 {
                assert_eq!(
                    status(&shard, Want::Create(item(&n.to_string()))).await,
                    201
                );
            }
        }
        copy_folder(running.path(), copy.path());
    });
    copy
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn shard_folder(data: &Path, range: u32) -> PathBuf {
    let folders = fs::read_dir(data.join("shards"))
        .expect("readable")
        .map(|entry| entry.expect("readable").path());
    let suffix = format!("-{range}");
    folders
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(&suffix))
        .expect("the shard has a folder")
}

fn journal(data: &Path, range: u32) -> PathBuf {
    let files = fs::read_dir(shard_folder(data, range))
        .expect("readable")
        .map(|entry| entry.expect("readable").path());
    let mut journals: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    assert_eq!(journals.len(), 1);
    journals.remove(0)
}

fn change(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("readable");
    edit(&mut bytes);
    fs::write(path, bytes).expect("written");
}

/// Range 0 answers everything with 503 and this, range 1 serves.
fn assert_only_one_is_down(data: &Path, says: &str) {
    node::run(async {
        let node = Node::start(data);
        let (damaged, whole) = (node.open(0, DefaultTtl::Off), node.open(1, DefaultTtl::Off));
        let write = perform(&damaged, Want::Create(item("x")))
            .await
            .expect_err("down");
        let read = damaged.view().err().expect("down");
        let change = damaged
            .change_default_ttl(DefaultTtl::NoDefault, 0)
            .await
            .expect_err("down");
        for error in [write, read, change] {
            assert_eq!(error.status(), 503, "{error}");
            assert!(
                error
                    .message
                    .contains("partition key range 0 cannot be served"),
                "{error}"
            );
            assert!(error.message.contains(says), "{error}");
        }
        assert_eq!(ids(&whole).len(), 10);
        assert_eq!(status(&whole, Want::Create(item("x"))).await, 201);
    });
}

/// Where the records of a small journal begin: a header of seven bytes, of which two are the length, then the data.
fn records(journal: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(header) = journal.get(at..at + 7) {
        starts.push(at);
        at += 7 + usize::from(u16::from_le_bytes([header[4], header[5]]));
    }
    starts
}

#[test]
fn a_damaged_journal_stops_its_shard_only() {
    let data = crashed();
    let records = records(&fs::read(journal(data.path(), 0)).expect("readable"));
    assert_eq!(records.len(), 11, "how the shard began, and each write");
    // In the checksum, the length, the type and the data of a record that others follow.
    for offset in [0, 4, 6, 7, 100, 300] {
        let damaged = in_memory();
        copy_folder(data.path(), damaged.path());
        change(&journal(damaged.path(), 0), |bytes| {
            bytes[records[5] + offset] ^= 0x55
        });
        let before = fs::read(journal(damaged.path(), 0)).expect("readable");
        assert_only_one_is_down(damaged.path(), "the files are damaged");
        assert_eq!(
            fs::read(journal(damaged.path(), 0)).expect("readable"),
            before,
            "left as it is for whoever repairs it"
        );
    }
}

#[test]
fn a_lost_table_of_contents_does_not_make_a_new_empty_shard() {
    let data = crashed();
    fs::remove_file(shard_folder(data.path(), 0).join("CURRENT")).expect("removed");
    assert_only_one_is_down(data.path(), "no file CURRENT");
    assert!(
        journal(data.path(), 0).exists(),
        "what is left of the data is not removed"
    );
}

#[test]
fn a_state_record_that_cannot_be_read_stops_its_shard_only() {
    let data = crashed();
    {
        let engine = crate::store::Engine::open(
            &shard_folder(data.path(), 0),
            &super::bench::small_resources(),
        )
        .expect("opens");
        let mut batch = crate::store::Batch::default();
        batch.put(crate::store::keys::STATE, b"garbage");
        engine
            .write(batch, crate::store::engine::Durability::Synced)
            .expect("written");
    }
    assert_only_one_is_down(data.path(), "shard state");
}

#[test]
fn a_folder_in_use_is_named() {
    let data = crashed();
    let _holder = crate::store::Engine::open(
        &shard_folder(data.path(), 0),
        &super::bench::small_resources(),
    )
    .expect("opens");
    assert_only_one_is_down(data.path(), "the data folder is in use");
}

#[test]
fn a_torn_journal_loses_only_the_write_that_was_cut_off() {
    for cut in [1, 7, 50, 150] {
        let data = crashed();
        change(&journal(data.path(), 0), |bytes| {
            bytes.truncate(bytes.len() - cut)
        });
        node::run(async {
            let node = Node::start(data.path());
            let (torn, whole) = (node.open(0, DefaultTtl::Off), node.open(1, DefaultTtl::Off));
            let expected: Vec<String> = (0..9).map(|n| n.to_string()).collect();
            assert_eq!(ids(&torn), expected, "{cut} bytes cut");
            let view = torn.view().expect("up");
            assert!(view.engine.torn_bytes() > 0, "{cut} bytes cut");
            assert_eq!((view.lsn(), view.state().documents), (9, 9));
            assert_eq!(status(&torn, Want::Create(item("9"))).await, 201);
            assert_eq!(whole.view().expect("up").engine.torn_bytes(), 0);
            assert_eq!(ids(&whole).len(), 10);
        });
    }
}

#[test]
fn everything_acknowledged_is_there_after_a_crash() {
    let data = crashed();
    node::run(async {
        let node = Node::start(data.path());
        for range in 0..2 {
            let shard = node.open(range, DefaultTtl::Off);
            assert_eq!(ids(&shard).len(), 10);
            assert_eq!(shard.view().expect("up").engine.torn_bytes(), 0);
        }
    });
}
