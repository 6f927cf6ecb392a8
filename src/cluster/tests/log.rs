//! The log of all groups on a real disk.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use raft::{
    GetEntriesContext, Storage as _,
    eraftpb::{Entry, HardState, Message},
};

use crate::{
    cluster::{
        ENTRY_BYTES_MAX, GroupId,
        raft::{
            group::ProposeError,
            group_log::GroupLog,
            log_disk::{InitialState, LogBatch, LogDisk as _, LogPosition, LogRecord},
            log_store::LogStore,
            replicas::Replicas,
            transport::Transport,
        },
    },
    store::{EngineError, EngineOptions, SharedResources, engine::Durability},
};

const SHARD: GroupId = GroupId {
    container: 1 << 32 | 1,
    range: 7,
};

/// There is nobody to speak to.
struct Nobody;

impl Transport for Nobody {
    fn send(&mut self, group: GroupId, message: Message) {
        panic!("{group} says {message:?}");
    }
}

fn open(folder: &Path) -> Arc<LogStore> {
    let shared = SharedResources::new(EngineOptions::default());
    Arc::new(LogStore::open(folder, &shared).unwrap())
}

fn entry(index: u64, term: u64, data: &str) -> Entry {
    Entry {
        index,
        term,
        data: Bytes::copy_from_slice(data.as_bytes()),
        context: Bytes::from_static(b"context"),
        ..Entry::default()
    }
}

fn hard_state(term: u64, commit: u64) -> LogRecord {
    LogRecord::HardState(HardState {
        term,
        vote: 2,
        commit,
        ..HardState::default()
    })
}

fn write(store: &LogStore, records: Vec<(GroupId, LogRecord)>) {
    store
        .write(LogBatch { records }, Durability::Synced)
        .unwrap();
}

fn append(entries: Vec<Entry>, last: u64) -> LogRecord {
    LogRecord::Append { entries, last }
}

fn texts(entries: &[Entry]) -> Vec<String> {
    let text = |entry: &Entry| String::from_utf8(entry.data.to_vec()).unwrap();
    entries.iter().map(text).collect()
}

fn open_log(store: &Arc<LogStore>, applied: u64) -> Result<GroupLog, EngineError> {
    let begin = InitialState::Bootstrap(vec![1, 2, 3]);
    GroupLog::open(SHARD, store.clone(), &begin, applied).map(|(log, _)| log)
}

#[test]
fn groups_of_one_log_are_kept_apart_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    assert_eq!(store.load(SHARD).unwrap(), None);
    write(
        &store,
        vec![
            (GroupId::META, append(vec![entry(1, 1, "m1")], 0)),
            (GroupId::META, hard_state(1, 1)),
            (SHARD, append(vec![entry(1, 1, "s1"), entry(2, 3, "s2")], 0)),
            (SHARD, hard_state(3, 2)),
        ],
    );
    drop(store);
    let store = open(folder.path());
    let kept = store.load(SHARD).unwrap().unwrap();
    assert_eq!(kept.last, LogPosition { index: 2, term: 3 });
    assert_eq!((kept.hard_state.term, kept.hard_state.vote), (3, 2));
    let entries = store.entries(SHARD, 1, 3, u64::MAX).unwrap();
    assert_eq!(entries, [entry(1, 1, "s1"), entry(2, 3, "s2")]);
    assert_eq!(store.entries(GroupId::META, 1, 9, 0).unwrap().len(), 1);

    write(&store, vec![(SHARD, LogRecord::Remove)]);
    assert_eq!(store.load(SHARD).unwrap(), None);
    assert!(store.load(GroupId::META).unwrap().is_some());
}

#[test]
fn entries_of_a_leader_that_lost_give_way_to_those_of_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let old = (1..=5).map(|index| entry(index, 1, "old")).collect();
    write(
        &store,
        vec![(SHARD, append(old, 0)), (SHARD, hard_state(1, 2))],
    );
    write(&store, vec![(SHARD, append(vec![entry(3, 2, "new")], 5))]);
    let entries = store.entries(SHARD, 1, 9, u64::MAX).unwrap();
    assert_eq!(texts(&entries), ["old", "old", "new"]);
    let kept = store.load(SHARD).unwrap().unwrap();
    assert_eq!(kept.last, LogPosition { index: 3, term: 2 });
}

#[test]
fn what_is_truncated_is_gone_and_the_log_knows_where_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let entries: Vec<_> = (1..=9).map(|index| entry(index, index, "x")).collect();
    write(
        &store,
        vec![(SHARD, append(entries, 0)), (SHARD, hard_state(9, 9))],
    );
    let mut log = open_log(&store, 9).unwrap();
    let record = log.truncate(6).unwrap();
    assert!(log.truncate(6).is_none());
    write(&store, vec![(SHARD, record)]);
    drop(log);

    let log = open_log(&store, 9).unwrap();
    assert_eq!(
        (log.first_index().unwrap(), log.last_index().unwrap()),
        (7, 9)
    );
    assert_eq!((log.term(6).unwrap(), log.term(8).unwrap()), (6, 8));
    assert!(log.term(5).is_err());
    let context = || GetEntriesContext::empty(false);
    assert!(log.entries(6, 9, None, context()).is_err());
    assert_eq!(log.entries(7, 10, None, context()).unwrap().len(), 3);
    // A state machine that is behind the log's beginning cannot catch up.
    assert!(open_log(&store, 5).is_err());
}

#[test]
fn a_group_of_one_commits_and_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let mut applied = 0;
    for start in 0..3 {
        let mut replicas = Replicas::new(1, open(folder.path()));
        replicas
            .add(SHARD, &InitialState::Bootstrap(vec![1]), applied)
            .unwrap();
        replicas.campaign(SHARD);
        let mut seen = Vec::new();
        let mut proposed = false;
        while replicas.is_busy() {
            let round = replicas.round(&mut Nobody);
            let round = round.unwrap();
            for (_, entries) in round.committed {
                seen.extend(entries.into_iter().filter(|entry| !entry.data.is_empty()));
            }
            let role = replicas.group(SHARD).unwrap().role();
            if role.is_leader && !proposed {
                proposed = true;
                for number in 0..3u8 {
                    let data = Bytes::copy_from_slice(&[start as u8, number]);
                    replicas.propose(SHARD, role.term, data).unwrap();
                }
                assert!(
                    replicas
                        .propose(SHARD, role.term - 1, Bytes::new())
                        .is_err()
                );
                let long = Bytes::from(vec![0; ENTRY_BYTES_MAX + 1]);
                assert_eq!(
                    replicas.propose(SHARD, role.term, long),
                    Err(ProposeError::TooLong(ENTRY_BYTES_MAX + 1))
                );
            }
        }
        let seen_data: Vec<_> = seen.iter().map(|entry| entry.data.to_vec()).collect();
        let expected: Vec<_> = (0..3).map(|number| vec![start as u8, number]).collect();
        assert_eq!(seen_data, expected);
        applied = seen.last().unwrap().index;
    }
}

#[test]
fn an_entry_of_an_older_build_that_no_frame_carries_does_not_stop_the_group() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut long = entry(3, 1, "");
    long.data = Bytes::from(vec![0; ENTRY_BYTES_MAX + 1]);
    let entries = vec![
        entry(1, 1, "one"),
        entry(2, 1, "two"),
        long,
        entry(4, 2, ""),
    ];
    write(
        &store,
        vec![(SHARD, append(entries, 0)), (SHARD, hard_state(2, 2))],
    );
    let (_, records) = GroupLog::open(
        SHARD,
        store.clone(),
        &InitialState::Bootstrap(vec![1, 2, 3]),
        0,
    )
    .unwrap();
    write(
        &store,
        records.into_iter().map(|record| (SHARD, record)).collect(),
    );
    let entries = store.entries(SHARD, 1, 5, u64::MAX).unwrap();
    assert_eq!(texts(&entries), ["one", "two", "", ""]);
    assert_eq!(entries[2].term, 1);
    let (_, records) = GroupLog::open(
        SHARD,
        store.clone(),
        &InitialState::Bootstrap(vec![1, 2, 3]),
        0,
    )
    .unwrap();
    assert_eq!(records.len(), 0);
}

#[test]
fn all_groups_of_a_round_share_one_fsync() {
    let folder = tempfile::tempdir().unwrap();
    let mut replicas = Replicas::new(1, open(folder.path()));
    let groups = (0..50).map(|range| GroupId { range, ..SHARD });
    for group in groups.clone() {
        replicas
            .add(group, &InitialState::Bootstrap(vec![1]), 0)
            .unwrap();
        replicas.campaign(group);
    }
    let mut fsyncs = 0;
    while replicas.is_busy() {
        fsyncs += usize::from(replicas.round(&mut Nobody).unwrap().synced);
    }
    for group in groups {
        assert!(replicas.group(group).unwrap().role().is_leader);
    }
    assert!(fsyncs <= 3, "{fsyncs} fsyncs for 50 elections");
}

#[test]
fn a_torn_write_at_the_end_of_the_log_takes_nothing_along_that_was_synced_before() {
    for cut in [1, 7, 30] {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let kept = append(vec![entry(1, 1, "kept")], 0);
        write(&store, vec![(SHARD, kept), (SHARD, hard_state(1, 1))]);
        let torn = append(vec![entry(2, 2, "torn"), entry(3, 2, "torn")], 1);
        write(&store, vec![(SHARD, torn), (SHARD, hard_state(2, 1))]);
        drop(store);
        let files = std::fs::read_dir(folder.path()).unwrap();
        let journal = files
            .map(|file| file.unwrap().path())
            .find(|path| path.extension().is_some_and(|extension| extension == "log"))
            .unwrap();
        let bytes = std::fs::read(&journal).unwrap();
        std::fs::write(&journal, &bytes[..bytes.len() - cut]).unwrap();
        // All of the last write is gone, entries and term: half of it would be a vote or an entry
        // that nobody knows of.
        let found = open(folder.path()).load(SHARD).unwrap().unwrap();
        assert_eq!(
            found.last,
            LogPosition { index: 1, term: 1 },
            "{cut} bytes cut"
        );
        assert_eq!(found.hard_state.term, 1, "{cut} bytes cut");
    }
}
