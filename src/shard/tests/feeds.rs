//! Pages in key order and the change feed: each live item once, at its last change, in the order of changes.

use serde_json::json;

use super::bench::{Bench, START, Want, after, epk, item, item_with_ttl};
use crate::{
    model::{epk::EpkRange, ttl::DefaultTtl},
    shard::feed::{self, FeedPage, Start},
};

fn page(bench: &Bench, range: &EpkRange, start: Start, items_max: usize) -> FeedPage {
    feed::page(&bench.view, range, start, items_max, usize::MAX).expect("a page")
}

fn ids(page: &FeedPage) -> Vec<String> {
    page.items
        .iter()
        .map(|stored| serde_json::from_slice::<serde_json::Value>(stored.body()).expect("JSON"))
        .map(|body| body["id"].as_str().expect("an id").to_owned())
        .collect()
}

#[test]
fn an_item_is_in_the_feed_once_at_its_last_change() {
    let mut bench = Bench::new(after(50));
    for id in ["a", "b", "c", "d"] {
        bench.run(Want::Create(item(id))).expect("created");
    }
    bench.run(Want::Replace(item("b"))).expect("replaced");
    bench.run(Want::Delete("c".into())).expect("deleted");
    bench
        .run(Want::Patch(
            "a".into(),
            json!([{"op": "set", "path": "/n", "value": 1}]),
        ))
        .expect("patched");
    for size in 1..6 {
        assert_eq!(bench.feed(size), ["d", "b", "a"], "pages of {size}");
    }
    assert_eq!(bench.listed(2), ["a", "b", "d"]);
}

#[test]
fn a_transaction_is_never_split_over_pages() {
    let mut bench = Bench::new(after(50));
    bench.run(Want::Create(item("first"))).expect("created");
    let batch: Vec<Want> = (0..5)
        .map(|n| Want::Create(item(&format!("t{n}"))))
        .collect();
    bench.batch(1, &batch);
    bench.run(Want::Create(item("last"))).expect("created");
    // One item of the transaction has gone elsewhere since.
    bench.run(Want::Replace(item("t1"))).expect("replaced");
    let full = EpkRange::full();
    for size in 1..7 {
        let mut start = Start::After(0);
        let mut seen = Vec::new();
        loop {
            let page = page(&bench, &full, start, size);
            let ids = ids(&page);
            let of_batch = ["t0", "t2", "t3", "t4"]
                .iter()
                .filter(|id| ids.iter().any(|seen| seen == *id))
                .count();
            assert!(of_batch == 0 || of_batch == 4, "pages of {size}: {ids:?}");
            seen.extend(ids);
            start = Start::After(page.after);
            if !page.more {
                break;
            }
        }
        assert_eq!(
            seen,
            ["first", "t0", "t2", "t3", "t4", "last", "t1"],
            "pages of {size}"
        );
    }
    let bytes = feed::page(&bench.view, &full, Start::After(0), 100, 1).expect("a page");
    assert_eq!(ids(&bytes), ["first"], "one item fills a page of one byte");
    assert!(bytes.more);
}

#[test]
fn a_reader_goes_on_where_it_was_and_sees_only_what_is_committed() {
    let mut bench = Bench::new(DefaultTtl::Off);
    let full = EpkRange::full();
    bench.run(Want::Create(item("a"))).expect("created");
    let now = page(&bench, &full, Start::Now, 10);
    assert_eq!((ids(&now).len(), now.more), (0, false));
    let mut pending = bench.send(1, &[Want::Create(item("b"))], true);
    assert_eq!(
        ids(&page(&bench, &full, Start::After(now.after), 10)),
        [] as [&str; 0]
    );
    bench.settle();
    pending.now().expect("created");
    let next = page(&bench, &full, Start::After(now.after), 10);
    assert_eq!(ids(&next), ["b"]);
    assert_eq!(next.after, bench.view.lsn());
    // A change that leaves no entry moves the reader on, too.
    bench.run(Want::Delete("b".into())).expect("deleted");
    let last = page(&bench, &full, Start::After(next.after), 10);
    assert_eq!(
        (ids(&last).len(), last.after, last.more),
        (0, bench.view.lsn(), false)
    );
}

#[test]
fn a_reader_may_start_at_any_second() {
    let mut bench = Bench::new(after(1_000));
    // Several changes in some seconds, none in others, and gaps where items were deleted or written again.
    let mut written = Vec::new();
    for n in 0..40_i64 {
        bench.wait(if n % 3 == 0 { 2 } else { 0 });
        let id = format!("{n:02}");
        bench.run(Want::Create(item(&id))).expect("created");
        written.push((bench.clock.now(), id));
    }
    for n in (0..40).step_by(4) {
        bench.run(Want::Delete(format!("{n:02}"))).expect("deleted");
        written.retain(|(_, id)| *id != format!("{n:02}"));
    }
    for n in (1..40).step_by(8) {
        bench
            .run(Want::Replace(item(&format!("{n:02}"))))
            .expect("replaced");
        written.retain(|(_, id)| *id != format!("{n:02}"));
        written.push((bench.clock.now(), format!("{n:02}")));
    }
    for second in START - 1..=bench.clock.now() + 2 {
        let expected: Vec<&str> = written
            .iter()
            .filter(|(ts, _)| *ts >= second)
            .map(|(_, id)| id.as_str())
            .collect();
        let found = page(&bench, &EpkRange::full(), Start::Time(second), 1_000);
        assert_eq!(ids(&found), expected, "from second {}", second - START);
    }
    let empty = Bench::new(DefaultTtl::Off);
    assert_eq!(
        ids(&page(&empty, &EpkRange::full(), Start::Time(START), 10)),
        [] as [&str; 0]
    );
}

#[test]
fn a_range_sees_its_own_keys_only() {
    let mut bench = Bench::new(DefaultTtl::Off);
    for key in 1..5 {
        bench
            .run_in(key, Want::Create(item(&format!("k{key}"))))
            .expect("created");
    }
    let upper = EpkRange::new(epk(3), crate::model::epk::Epk::max());
    assert_eq!(
        ids(&page(&bench, &upper, Start::After(0), 10)),
        ["k3", "k4"]
    );
    assert_eq!(
        ids(&page(&bench, &EpkRange::point(epk(2)), Start::After(0), 10)),
        ["k2"]
    );
    let listed = bench
        .page(&EpkRange::point(epk(2)), None, |_| false, 10, usize::MAX)
        .expect("a page");
    assert_eq!((listed.items.len(), listed.resume), (1, None));
}

#[test]
fn the_work_for_one_page_is_bounded() {
    const MANY: usize = 20_050;
    let mut bench = Bench::new(after(50));
    let wants: Vec<Want> = (0..MANY)
        .map(|n| Want::Create(item(&format!("{n:05}"))))
        .collect();
    for batch in wants.chunks(100) {
        bench.batch(1, batch);
    }
    bench
        .run_in(2, Want::Create(item("behind")))
        .expect("created");
    let range = EpkRange::point(epk(2));
    let first = page(&bench, &range, Start::After(0), 10);
    assert_eq!(
        (ids(&first).len(), first.more),
        (0, true),
        "a short page, not a long wait"
    );
    let second = page(&bench, &range, Start::After(first.after), 10);
    assert_eq!(
        (ids(&second), second.more),
        (vec!["behind".to_owned()], false)
    );

    // The same for pages in key order over expired items that are not purged yet.
    bench.wait(50);
    bench
        .run_in(3, Want::Create(item("alive")))
        .expect("created");
    let full = EpkRange::full();
    let first = bench
        .page(&full, None, |_| false, 10, usize::MAX)
        .expect("a page");
    assert!(first.items.is_empty());
    let second = bench
        .page(&full, first.resume.as_deref(), |_| false, 10, usize::MAX)
        .expect("a page");
    assert_eq!((second.items.len(), second.resume), (1, None));
    assert_eq!(bench.feed(10), ["alive"]);
}

#[test]
fn pages_in_key_order_skip_and_end_as_asked() {
    let mut bench = Bench::new(after(50));
    for n in 0..6 {
        bench
            .run(Want::Create(item_with_ttl(
                &n.to_string(),
                if n == 3 { 5 } else { -1 },
            )))
            .expect("created");
    }
    bench.wait(5);
    for size in 1..8 {
        assert_eq!(
            bench.listed(size),
            ["0", "1", "2", "4", "5"],
            "pages of {size}"
        );
    }
    let full = EpkRange::full();
    let odd = |key: &[u8]| key.last().is_some_and(|last| last % 2 == 1);
    let page = bench
        .page(&full, None, odd, 10, usize::MAX)
        .expect("a page");
    assert_eq!(page.items.len(), 3);
    let small = bench.page(&full, None, |_| false, 10, 1).expect("a page");
    assert_eq!(small.items.len(), 1, "one item fills a page of one byte");
    assert!(small.resume.is_some());
}
