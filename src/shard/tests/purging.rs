//! Purging removes exactly what is expired, whatever else is being decided and committed at the same time.

use super::bench::{Bench, Want, after, item};

#[test]
fn an_item_created_again_while_its_purge_is_pending_survives() {
    let mut bench = Bench::new(after(5));
    bench.run(Want::Create(item("again"))).expect("created");
    bench.wait(5);
    // A group is under way, so that purge and create meet in the next one.
    let mut other = bench.send(1, &[Want::Create(item("other"))], true);
    bench.stage_purge();
    let mut again = bench.send(1, &[Want::Create(item("again"))], true);
    bench.settle();
    assert!(other.now().is_ok());
    assert_eq!(
        again.now().expect("committed").results[0]
            .as_ref()
            .expect("created")
            .status,
        201
    );
    assert!(
        bench.read("again").is_some(),
        "an acknowledged item was purged"
    );
    assert_eq!(bench.raw_counts(), [2, 2, 0, 0]);
    bench.check_accounts();
}
