//! How many items a query reads: what the index answers is not read from the items.

use serde_json::{Value, json};

use super::{
    bench::{Bench, Want},
    index_queries::whole,
};
use crate::{
    model::{indexing_policy::IndexingPolicy, ttl::DefaultTtl},
    query::{Candidates, ScanRequest, ScanStep, aggregate_from_index},
    sql::Query,
};

const ITEMS: usize = 600;

/// Items with a number of their own, ten groups, a name, tags and a place each; the places are a line of points from west to east.
fn filled() -> Bench {
    let policy = json!({
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/hidden/?"}],
        "compositeIndexes": [[{"path": "/g"}, {"path": "/n"}]],
        "spatialIndexes": [{"path": "/place/*", "types": ["Point"]}],
    });
    let policy = IndexingPolicy::from_json(Some(&policy)).expect("a legal policy");
    let mut bench = Bench::with_index(DefaultTtl::Off, &policy);
    for n in 0..ITEMS {
        let item = json!({
            "id": n.to_string(), "n": n, "g": n % 10, "h": n % 10, "name": format!("name {n:03}"), "hidden": n,
            "tags": [format!("tag {}", n % 50), n % 7],
            "parts": [{"size": n % 40, "kind": "a"}],
            "place": {"type": "Point", "coordinates": [n as f64 / 10.0, 50.0]},
        });
        bench.run(Want::Create(item)).expect("created");
    }
    bench
}

struct Asked {
    rows: usize,
    read: usize,
}

/// Runs a query as the router does: from the index alone where that is enough; in order only as far as TOP asks.
fn ask(bench: &Bench, text: &str, parameters: &[(String, Value)]) -> Asked {
    let query = Query::parse(text, parameters).unwrap_or_else(|error| panic!("{text}: {error}"));
    let ask = ScanRequest {
        scan_allowed: false,
        ..whole(&query)
    };
    if let Some(answer) = aggregate_from_index(&bench.view, &ask).expect("readable") {
        assert!(answer.resume.is_none());
        return Asked { rows: 1, read: 0 };
    }
    let mut candidates = Candidates::open(&bench.view, &ask).expect("a selection");
    let enough = match (query.top(), candidates.is_ordered()) {
        (Some(top), true) => usize::try_from(top).expect("small"),
        _ => usize::MAX,
    };
    let mut asked = Asked { rows: 0, read: 0 };
    while let ScanStep::Item(item) = candidates.next().expect("readable") {
        asked.read += 1;
        let item: Value = serde_json::from_slice(item.body).expect("JSON");
        asked.rows += usize::from(query.matches(&item).expect("evaluates"));
        if asked.rows >= enough {
            break;
        }
    }
    asked
}

#[test]
fn only_items_that_match_are_read() {
    let bench = filled();
    let list = [("@list".to_owned(), json!([3, 5, "none", 700]))];
    for (condition, rows) in [
        ("c.n = 7", 1),
        ("7 = c.n", 1),
        ("c.n = 3 + 4", 1),
        ("c.n > 590", 9),
        ("c.n >= 590 AND c.n < 595", 5),
        ("NOT (c.n < 590)", 10),
        ("NOT (c.n < 590 OR c.n > 592)", 3),
        ("c.n IN (1, 2, 3, 3, 'x')", 3),
        ("c.n BETWEEN 10 AND 19", 10),
        ("c.name = 'name 012'", 1),
        ("STARTSWITH(c.name, 'name 01')", 10),
        ("c.name LIKE 'name 01%'", 10),
        ("c.name LIKE 'name 012'", 1),
        ("StringEquals(c.name, 'name 012')", 1),
        ("ARRAY_CONTAINS(c.tags, 'tag 7')", 12),
        ("ARRAY_CONTAINS(c.parts, {'size': 39}, true)", 15),
        (
            "EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'tag 7')",
            12,
        ),
        ("ARRAY_CONTAINS(@list, c.n)", 2),
        ("c.n = 1 OR c.name = 'name 500'", 2),
        ("c.g = 3 AND c.n < 100", 10),
        ("1 = 1 AND c.n = 7", 1),
        ("c.n = 7 AND c.hidden = 7", 1),
    ] {
        let text = format!("SELECT * FROM c WHERE {condition}");
        let asked = ask(&bench, &text, &list);
        assert_eq!((asked.rows, asked.read), (rows, rows), "{text}");
    }
}

#[test]
fn a_join_reads_the_items_that_have_an_element() {
    let bench = filled();
    let text = "SELECT VALUE c.id FROM c JOIN p IN c.parts WHERE p.size = 39";
    let asked = ask(&bench, text, &[]);
    assert_eq!((asked.rows, asked.read), (15, 15));
}

#[test]
fn an_order_reads_as_many_items_as_it_gives() {
    let bench = filled();
    for (rest, read) in [
        ("ORDER BY c.n", 10),
        ("ORDER BY c.n DESC", 10),
        ("ORDER BY c.name", 10),
        ("ORDER BY c._ts DESC", 10),
        ("ORDER BY c.g, c.n", 10),
        ("ORDER BY c.g DESC, c.n DESC", 10),
        // The composite index takes care of the condition and of the order.
        ("WHERE c.g = 4 ORDER BY c.n", 10),
        ("WHERE c.g = 4 ORDER BY c.n DESC", 10),
        // Other terms are looked up before an item is read.
        ("WHERE c.h = 4 ORDER BY c.n", 10),
        ("WHERE c.n > 100 ORDER BY c.n", 10),
    ] {
        let text = format!("SELECT TOP 10 * FROM c {rest}");
        let asked = ask(&bench, &text, &[]);
        // Where few items match they are all read and sorted.
        assert_eq!(asked.rows.min(10), 10, "{text}");
        assert!(
            asked.read <= read || asked.read == 60,
            "{text}: {}",
            asked.read
        );
    }
}

#[test]
fn aggregates_read_no_items() {
    let bench = filled();
    for text in [
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT VALUE COUNT(c.n) FROM c",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n = 5",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n > 5",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n BETWEEN 5 AND 300",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n IN (1, 2, 3, 4, 5, 6)",
        "SELECT VALUE COUNT(1) FROM c WHERE STARTSWITH(c.name, 'name 0')",
        "SELECT VALUE COUNT(1) FROM c WHERE c.name LIKE 'name 0%'",
        "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(c.tags, 'tag 7')",
        "SELECT VALUE COUNT(1) FROM c WHERE ARRAY_CONTAINS(c.tags, 'tag 7') OR ARRAY_CONTAINS(c.tags, 3)",
        "SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.n) AND NOT IS_DEFINED(c.none)",
        "SELECT VALUE COUNT(1) FROM c WHERE c.g = 3 AND c.n > 200",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n > 200 AND c.name < 'name 300'",
        "SELECT VALUE COUNT(1) FROM c WHERE c.n < 10 OR c.g = 3",
        "SELECT VALUE COUNT(1) FROM c WHERE (c.n < 10 OR c.g = 3) AND c.h = 3",
        "SELECT VALUE MIN(c.n) FROM c",
        "SELECT VALUE MAX(c.n) FROM c WHERE c.n < 100",
        "SELECT VALUE MAX(c.name) FROM c WHERE c.g = 2",
        "SELECT MIN(c.n) AS least, MAX(c.n) AS most, COUNT(1) AS number FROM c",
    ] {
        let query = Query::parse(text, &[]).expect("parses");
        let ask = ScanRequest {
            scan_allowed: false,
            ..whole(&query)
        };
        let answer = aggregate_from_index(&bench.view, &ask).expect("readable");
        let answer = answer.unwrap_or_else(|| panic!("{text} is answered from the index"));
        let mut execution = query.start();
        execution.absorb(answer.partial).expect("its own");
        let expected = query.execute(super::index_queries::items(&bench).into_iter());
        assert_eq!(execution.finish(), expected, "{text}");
    }
}

#[test]
fn places_near_by_are_found_without_a_look_at_the_others() {
    let bench = filled();
    let square = "{'type': 'Polygon', 'coordinates': [[[9.95, 49.6], [11.05, 49.6], [11.05, 50.4], [9.95, 50.4], [9.95, 49.6]]]}";
    let here = "{'type': 'Point', 'coordinates': [10, 50]}";
    for (condition, rows, read_max) in [
        (format!("ST_DISTANCE(c.place, {here}) < 8000"), 3, 12),
        (format!("8000 >= ST_DISTANCE({here}, c.place)"), 3, 12),
        (
            format!("ST_DISTANCE(c.place, {here}) BETWEEN 5000 AND 8000"),
            2,
            12,
        ),
        (format!("ST_WITHIN(c.place, {square})"), 11, 75),
        (format!("ST_INTERSECTS({square}, c.place)"), 11, 75),
        (format!("ST_WITHIN(c.place, {square}) AND c.n = 105"), 1, 1),
    ] {
        let text = format!("SELECT * FROM c WHERE {condition}");
        let asked = ask(&bench, &text, &[]);
        assert_eq!(asked.rows, rows, "{text}");
        assert!(asked.read <= read_max, "{text}: {} read", asked.read);
    }
}
