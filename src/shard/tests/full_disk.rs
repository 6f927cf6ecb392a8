//! A full disk: writes are refused, reads go on, and writes are taken again when there is room.

use std::{fs, io::Write, path::PathBuf, time::Duration};

use serde_json::json;

use super::{
    bench::Want,
    node::{self, Node, ids, perform, status},
};
use crate::model::ttl::DefaultTtl;

/// A folder on a small file system of its own, which the test may fill.
fn small_disk() -> PathBuf {
    std::env::var_os("BOLIDE_TEST_SMALL_DISK").map(PathBuf::from).expect("BOLIDE_TEST_SMALL_DISK names a folder")
}

/// Takes all the room that is left, to the last block.
fn fill_up(path: &std::path::Path) {
    let mut file = fs::File::create(path).expect("a file");
    for bytes in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

/// Random letters, because the files are compressed.
fn big(n: usize) -> Want {
    let fill: String = (0..100_000).map(|_| rand::random_range('!'..'~')).collect();
    Want::Create(json!({"id": format!("{n:04}"), "fill": fill}))
}

/// `unshare --mount sh -c 'mount -t tmpfs -o size=24m none /mnt &&
/// BOLIDE_TEST_SMALL_DISK=/mnt cargo test --release --lib full_disk -- --ignored'`
#[test]
#[ignore = "needs a file system of its own to fill"]
fn a_full_disk_refuses_writes_until_there_is_room() {
    let disk = small_disk();
    // Either the engine's tables or its journal meet the end of the disk first.
    for journal_first in [false, true] {
        let folder = disk.join(format!("journal first {journal_first}"));
        fs::create_dir(&folder).expect("a folder");
        let ballast = disk.join("ballast");
        fs::write(&ballast, vec![1; 8 << 20]).expect("room for the ballast");
        node::run(async {
            let node = Node::start(&folder);
            let shard = node.open(0, DefaultTtl::Off);
            let mut kept = Vec::new();
            let mut refused = None;
            for n in 0..1_000 {
                if journal_first && n == 3 {
                    fill_up(&ballast);
                }
                match perform(&shard, big(n)).await {
                    Ok(_) => kept.push(format!("{n:04}")),
                    Err(error) => {
                        refused = Some(error);
                        break;
                    }
                }
            }
            let error = refused.expect("the disk is full some day");
            assert_eq!(error.status(), 507, "{error}");
            assert!(error.message.contains(if journal_first { ".log" } else { ".sst" }), "{error}");
            assert_eq!(ids(&shard), kept, "reads go on");
            assert_eq!(status(&shard, big(5_000)).await, 507);
            fs::remove_file(&ballast).expect("removed");
            while shard.check_writable().is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(status(&shard, big(6_000)).await, 201);
            kept.push("6000".to_owned());
            assert_eq!(ids(&shard), kept);
            shard.close().await;
            let again = node.open(0, DefaultTtl::Off);
            assert_eq!(ids(&again), kept, "what was acknowledged is there, and nothing else");
            again.destroy().await.expect("removed");
        });
    }
}
