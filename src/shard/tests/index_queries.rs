//! The indexed plan against the naive evaluator: random items, random policies, random queries.

use std::{cmp::Ordering, fmt::Write, sync::LazyLock};

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

use super::bench::{Bench, Want, after};
use crate::{
    model::{
        epk::EpkRange,
        indexing_policy::{IndexingMode, IndexingPolicy, PathKey},
        ttl::DefaultTtl,
    },
    query::{
        Candidates, EAGER, RESUME_BYTES_MAX, ResumePoint, ScanBudget, ScanRequest, ScanStep,
        aggregate_from_index,
    },
    shard::view::Page,
    sql::{Query, compare_ordering},
};

const SHARDS: u64 = 40;
const QUERIES_PER_SHARD: usize = 120;
const WRITES_PER_SHARD: usize = 90;

const UNLIMITED: ScanBudget = ScanBudget {
    entries_max: usize::MAX,
    deadline: None,
};

static ALL_KEYS: LazyLock<EpkRange> = LazyLock::new(EpkRange::full);

/// A query over the whole shard, in one go, scans allowed.
pub fn whole(query: &Query) -> ScanRequest<'_> {
    ScanRequest {
        query,
        keys: &ALL_KEYS,
        resume: None,
        scan_allowed: true,
        budget: UNLIMITED,
    }
}

/// Where items have values, and where queries look.
const PATHS: [&str; 9] = ["a", "b", "n", "o.a", "o.b", "t", "long", "id", "_ts"];

fn scalar(random: &mut StdRng) -> Value {
    match random.random_range(0..12) {
        0 => json!(null),
        1 => json!(random.random_bool(0.5)),
        2..=5 => json!(random.random_range(-3..4)),
        6 => json!(f64::from(random.random_range(-6..7)) / 4.0),
        7 => json!([9_007_199_254_740_992_i64, 9_007_199_254_740_993][random.random_range(0..2)]),
        8 => json!(["", "\0", "é"][random.random_range(0..3)]),
        _ => json!(["x", "xa", "xb", "y", "ya"][random.random_range(0..5)]),
    }
}

fn long_text(random: &mut StdRng) -> Value {
    let length = random.random_range(126..132);
    json!(format!(
        "{}{}",
        "l".repeat(length),
        ["", "a", "b"][random.random_range(0..3)]
    ))
}

fn any_value(random: &mut StdRng) -> Value {
    match random.random_range(0..10) {
        0 => json!([]),
        1 => json!({}),
        2 | 3 => (0..random.random_range(0..4))
            .map(|_| scalar(random))
            .collect(),
        4 => json!({"k": scalar(random)}),
        _ => scalar(random),
    }
}

fn item(random: &mut StdRng, id: &str, strange: bool) -> Value {
    let mut item = Map::new();
    item.insert("id".into(), json!(id));
    for name in ["a", "b"] {
        if random.random_bool(0.85) {
            let value = if strange {
                any_value(random)
            } else {
                scalar(random)
            };
            item.insert(name.into(), value);
        }
    }
    item.insert("n".into(), json!(random.random_range(0..20)));
    if random.random_bool(0.5) {
        item.insert(
            "o".into(),
            json!({"a": scalar(random), "b": any_value(random)}),
        );
    }
    if random.random_bool(0.6) {
        let tags = (0..random.random_range(0..4)).map(|_| match random.random_range(0..4) {
            0 => json!({"k": scalar(random), "m": scalar(random)}),
            _ => scalar(random),
        });
        item.insert("t".into(), tags.collect());
    }
    if strange && random.random_bool(0.3) {
        item.insert("long".into(), long_text(random));
    }
    if random.random_bool(0.7) {
        item.insert("loc".into(), geometry(random));
    }
    if random.random_bool(0.2) {
        item.insert("ttl".into(), json!(random.random_range(1..20)));
    }
    Value::Object(item)
}

/// Near one of a few places: in the open, across the line where longitudes wrap, and at the poles.
fn position(random: &mut StdRng) -> [f64; 2] {
    let (longitude, latitude) =
        [(5.0, 52.0), (179.9, -17.0), (-40.0, 89.9), (0.0, 0.0)][random.random_range(0..4)];
    let reach = [0.001, 0.1, 5.0][random.random_range(0..3)];
    let mut offset = || f64::from(random.random_range(-4..5)) / 4.0 * reach;
    let longitude: f64 = longitude + offset();
    let latitude: f64 = latitude + offset();
    let wrapped = if longitude > 180.0 {
        longitude - 360.0
    } else {
        longitude
    };
    [wrapped, latitude.clamp(-90.0, 90.0)]
}

fn ring(random: &mut StdRng) -> Value {
    let [longitude, latitude] = position(random);
    let size = [0.01, 1.0, 30.0][random.random_range(0..3)];
    let (east, north) = ((longitude + size).min(180.0), (latitude + size).min(90.0));
    let mut ring = vec![
        json!([longitude, latitude]),
        json!([east, latitude]),
        json!([east, north]),
        json!([longitude, north]),
        json!([longitude, latitude]),
    ];
    match random.random_range(0..6) {
        // The other side of the ring is meant.
        0 => ring.reverse(),
        // It crosses itself.
        1 => ring.swap(1, 2),
        _ => {}
    }
    Value::Array(ring)
}

fn geometry(random: &mut StdRng) -> Value {
    let (kind, coordinates) = match random.random_range(0..10) {
        0..=4 => ("Point", json!(position(random))),
        5 => ("LineString", json!([position(random), position(random)])),
        6 => ("Polygon", json!([ring(random)])),
        7 => ("MultiPolygon", json!([[ring(random)], [ring(random)]])),
        8 => ("MultiPoint", json!([position(random), position(random)])),
        _ => return json!({"type": "Point", "coordinates": [500, "x"]}),
    };
    json!({"type": kind, "coordinates": coordinates})
}

fn spatial_condition(random: &mut StdRng) -> String {
    let path = ["c.loc", "c.loc", "c.loc", "c.o", "c.none", "c"]
        .choose(random)
        .expect("some");
    let given = geometry(random);
    let metres = [0, 500, 20_000, 600_000, 30_000_000]
        .choose(random)
        .expect("some");
    match random.random_range(0..6) {
        0 | 1 => format!("ST_DISTANCE({path}, {given}) < {metres}"),
        2 => format!("{metres} >= ST_DISTANCE({given}, {path})"),
        3 => format!("ST_WITHIN({path}, {given})"),
        4 => format!("ST_WITHIN({given}, {path})"),
        _ => format!("ST_INTERSECTS({path}, {given})"),
    }
}

/// Paths that a policy may take in or leave out.
const POLICY_PATHS: [&str; 14] = [
    "/a/?",
    "/a/*",
    "/b/?",
    "/n/?",
    "/o/*",
    "/o/a/?",
    "/o/b/*",
    "/t/*",
    "/t/[]/*",
    "/t/[]/?",
    "/t/[]/k/?",
    "/long/?",
    "/_ts/?",
    "/loc/*",
];

/// Any paths taken in and left out, with composite and spatial indexes.
fn policy(random: &mut StdRng) -> IndexingPolicy {
    let (mut included, mut excluded) = (Vec::new(), Vec::new());
    let all_included = random.random_bool(0.7);
    for path in POLICY_PATHS {
        match random.random_range(0..8) {
            0 => included.push(json!({"path": path})),
            1 => excluded.push(json!({"path": path})),
            _ => {}
        }
    }
    let root = if all_included {
        &mut included
    } else {
        &mut excluded
    };
    root.push(json!({"path": "/*"}));
    let spatial = match random.random_range(0..4) {
        0 => json!([]),
        1 => json!([{"path": "/*"}]),
        2 => json!([{"path": "/loc/?", "types": ["Point"]}]),
        _ => json!([{"path": "/loc/*"}, {"path": "/o/?"}]),
    };
    let modes = [
        "consistent",
        "consistent",
        "consistent",
        "consistent",
        "lazy",
        "none",
    ];
    let policy = json!({
        "includedPaths": included,
        "excludedPaths": excluded,
        "spatialIndexes": spatial,
        "compositeIndexes": [
            [{"path": "/a"}, {"path": "/n"}],
            [{"path": "/n", "order": "descending"}, {"path": "/b"}],
            [{"path": "/o/a"}, {"path": "/_ts", "order": "descending"}, {"path": "/id"}],
        ],
        "indexingMode": modes.choose(random).expect("some"),
    });
    let key = random.random::<[u8; 16]>();
    IndexingPolicy {
        path_key: random.random_bool(0.7).then_some(PathKey::from_bytes(key)),
        ..IndexingPolicy::from_json(Some(&policy)).expect("a legal policy")
    }
}

fn literal(random: &mut StdRng) -> String {
    match random.random_range(0..20) {
        0 => long_text(random).to_string(),
        1 => "[1]".into(),
        2 => "undefined".into(),
        _ => scalar(random).to_string(),
    }
}

fn path(random: &mut StdRng) -> String {
    let path = PATHS.choose(random).expect("there are paths");
    match random.random_range(0..20) {
        0 => "c.t[0]".into(),
        1 => "c.t[1].k".into(),
        2 => "c".into(),
        3 => "c.none".into(),
        _ => format!("c.{path}"),
    }
}

fn condition(random: &mut StdRng, depth: usize) -> String {
    let (p, l) = (path(random), literal(random));
    if depth > 0 && random.random_bool(0.6) {
        let (left, right) = (condition(random, depth - 1), condition(random, depth - 1));
        return match random.random_range(0..6) {
            0..=2 => format!("({left} AND {right})"),
            3 | 4 => format!("({left} OR {right})"),
            _ => format!("NOT ({left})"),
        };
    }
    let comparison = ["=", "=", "=", "<", "<=", ">", ">=", "!="]
        .choose(random)
        .expect("there are some");
    match random.random_range(0..24) {
        0 => format!("{p} BETWEEN {l} AND {}", literal(random)),
        1 => format!("{p} IN ({l}, {}, {})", literal(random), literal(random)),
        2 => format!(
            "STARTSWITH({p}, {})",
            ["\"x\"", "\"\"", "\"xa\"", "\"lllll\""]
                .choose(random)
                .expect("some")
        ),
        3 => format!("ARRAY_CONTAINS(c.t, {l})"),
        4 => format!("ARRAY_CONTAINS(c.t, {{\"k\": {l}}}, true)"),
        5 => format!("IS_DEFINED({p})"),
        6 => format!("NOT IS_DEFINED({p})"),
        7 => format!(
            "{}({p})",
            [
                "IS_NULL",
                "IS_BOOL",
                "IS_NUMBER",
                "IS_STRING",
                "IS_PRIMITIVE",
                "IS_ARRAY"
            ]
            .choose(random)
            .expect("some")
        ),
        8 => p,
        9 => format!("NOT {p}"),
        10 => format!("EXISTS(SELECT VALUE t FROM t IN c.t WHERE t {comparison} {l})"),
        11 => format!(
            "EXISTS(SELECT VALUE t FROM t IN c.t WHERE t.k = {l} AND t.m > {})",
            literal(random)
        ),
        12 => format!(
            "{p} LIKE {}",
            ["\"x%\"", "\"x_\"", "\"%a\"", "\"xa\""]
                .choose(random)
                .expect("some")
        ),
        13 => format!("{l} {comparison} {p}"),
        14 => ["true", "false", "null"]
            .choose(random)
            .expect("some")
            .to_string(),
        15 | 16 => spatial_condition(random),
        17 => format!("ARRAY_CONTAINS([{l}, {}], {p})", literal(random)),
        18 => format!("{p} {comparison} {} + 1", random.random_range(-2..4)),
        _ => format!("{p} {comparison} {l}"),
    }
}

const ORDERS: [&str; 14] = [
    "c.a",
    "c.a DESC",
    "c.n",
    "c.n DESC",
    "c.o.a",
    "c._ts DESC",
    "c.long",
    "c.none",
    "c.t",
    "c.a, c.n",
    "c.a DESC, c.n DESC",
    "c.n DESC, c.b ASC",
    "c.n ASC, c.b DESC",
    "c.o.a, c._ts DESC, c.id",
];

struct Case {
    text: String,
    ordered: bool,
}

fn query(random: &mut StdRng) -> Case {
    let join = if random.random_bool(0.1) {
        " JOIN t IN c.t"
    } else {
        ""
    };
    let mut text = format!("SELECT VALUE c.id FROM c{join}");
    if random.random_bool(0.9) {
        let depth = random.random_range(0..4);
        let mut filter = condition(random, depth);
        if random.random_bool(0.2) {
            // What a composite index takes care of together.
            let comparison = ["=", ">=", "<", "IN"].choose(random).expect("some");
            let numbers = match *comparison {
                "IN" => format!("({}, 7, 9)", random.random_range(0..20)),
                _ => random.random_range(0..20).to_string(),
            };
            filter = format!(
                "c.a = {} AND c.n {comparison} {numbers} AND {filter}",
                scalar(random)
            );
            if random.random_bool(0.5) {
                filter = format!(
                    "c.n = {} AND c.b {comparison} {numbers}",
                    random.random_range(0..20)
                );
            }
        }
        if !join.is_empty() && random.random_bool(0.7) {
            let _ = write!(
                filter,
                " AND {} = {}",
                ["t", "t.k"].choose(random).expect("some"),
                literal(random)
            );
        }
        let _ = write!(text, " WHERE {filter}");
    }
    let ordered = join.is_empty() && random.random_bool(0.4);
    if ordered {
        let _ = write!(text, " ORDER BY {}", ORDERS.choose(random).expect("some"));
    }
    Case { text, ordered }
}

/// The live items, read as they are stored.
pub fn items(bench: &Bench) -> Vec<Value> {
    items_of(bench, &EpkRange::full())
}

fn items_of(bench: &Bench, keys: &EpkRange) -> Vec<Value> {
    let mut page = Page::new(usize::MAX, usize::MAX);
    let more = bench.view.fill(&mut page, keys, None, |_| false);
    assert_eq!(more, Ok(None));
    let bodies = page.items.iter().map(|item| item.stored.body());
    bodies
        .map(|body| serde_json::from_slice(body).expect("JSON"))
        .collect()
}

/// Items that a selection gives, and whether they come in order. Every now and then it is broken off and resumed.
pub fn selected(
    bench: &Bench,
    query: &Query,
    keys: &EpkRange,
    random: &mut StdRng,
    pages: bool,
) -> (Vec<Value>, bool) {
    let mut found = Vec::new();
    let mut resume: Option<ResumePoint> = None;
    loop {
        let ask = ScanRequest {
            query,
            keys,
            resume: resume.as_ref(),
            scan_allowed: true,
            budget: ScanBudget {
                entries_max: if pages {
                    random.random_range(1..30)
                } else {
                    usize::MAX
                },
                deadline: None,
            },
        };
        let mut candidates = Candidates::open(&bench.view, &ask).expect("a selection");
        let mut first = true;
        resume = loop {
            match candidates.next().expect("readable") {
                ScanStep::End => return (found, candidates.is_ordered()),
                ScanStep::Paused => break Some(candidates.resume_at()),
                ScanStep::Item(item) => {
                    let (body, matches) = (item.body.to_vec(), item.matches);
                    let item: Value = serde_json::from_slice(&body).expect("JSON");
                    assert!(
                        !matches || query.matches(&item).expect("evaluates"),
                        "{item} does not match {:?}",
                        query.syntax()
                    );
                    if candidates.is_at_resume() {
                        assert!(
                            first,
                            "only the first item can be where a selection stopped"
                        );
                        assert_eq!(
                            found.pop(),
                            Some(item.clone()),
                            "the item at which the selection stopped"
                        );
                    }
                    first = false;
                    found.push(item);
                    if pages && random.random_bool(0.1) {
                        let point = if random.random_bool(0.5) {
                            candidates.resume_at()
                        } else {
                            candidates.resume_after()
                        };
                        assert!(point.as_bytes().len() <= RESUME_BYTES_MAX);
                        break Some(ResumePoint::from_bytes(point.as_bytes().to_vec()));
                    }
                }
            }
        };
    }
}

fn order_keys<'i>(query: &Query, item: &'i Value) -> Vec<Option<&'i Value>> {
    let columns = query.syntax().order_by.iter();
    columns
        .map(|column| {
            let text = column.expr.to_string();
            let mut value = Some(item);
            for name in text.split('.').skip(1) {
                value = value.and_then(|value| value.get(name));
            }
            value
        })
        .collect()
}

fn compare(query: &Query, a: &Value, b: &Value) -> Ordering {
    let (a, b) = (order_keys(query, a), order_keys(query, b));
    let columns = query.syntax().order_by.iter();
    a.iter()
        .zip(&b)
        .zip(columns)
        .map(|((a, b), column)| {
            let ordering = compare_ordering(*a, *b);
            if column.descending {
                ordering.reverse()
            } else {
                ordering
            }
        })
        .find(|ordering| ordering.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn ids(items: &[Value]) -> Vec<&str> {
    let mut ids: Vec<&str> = items
        .iter()
        .filter_map(|item| item["id"].as_str())
        .collect();
    ids.sort_unstable();
    ids
}

/// How often the index was used, so that a test that no longer tests anything is found out.
#[derive(Debug, Default)]
struct Tally {
    ordered: usize,
    indexed: usize,
    spatial: usize,
    composite: usize,
    aggregates: usize,
}

fn check(bench: &Bench, case: &Case, random: &mut StdRng, tally: &mut Tally) {
    let text = &case.text;
    let query = Query::parse(text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let expected: Vec<Value> = items(bench)
        .into_iter()
        .filter(|item| query.matches(item).expect("evaluates"))
        .collect();
    let pages = random.random_bool(0.5);
    EAGER.set(random.random_bool(0.7));
    let (candidates, ordered) = selected(bench, &query, &EpkRange::full(), random, pages);
    let unique: std::collections::HashSet<&str> = ids(&candidates).into_iter().collect();
    assert_eq!(
        unique.len(),
        candidates.len(),
        "{text}: an item came twice, pages {pages}"
    );
    let found: Vec<Value> = candidates
        .into_iter()
        .filter(|item| query.matches(item).expect("evaluates"))
        .collect();
    assert_eq!(ids(&found), ids(&expected), "{text}, pages {pages}");
    let ask = whole(&query);
    let opened = Candidates::open(&bench.view, &ask).expect("a selection");
    let used = opened.used();
    let indexed = used.utilized.len() + used.utilized_composite.len() > 0;
    tally.indexed += usize::from(indexed);
    tally.spatial += usize::from(used.utilized.iter().any(|path| path.ends_with("/*")));
    tally.composite += usize::from(!case.ordered && !used.utilized_composite.is_empty());
    tally.ordered += usize::from(case.ordered && ordered && !expected.is_empty());
    if case.ordered && ordered {
        for pair in found.windows(2) {
            let [a, b] = pair else { continue };
            assert_ne!(
                compare(&query, a, b),
                Ordering::Greater,
                "{text}: {a} before {b}"
            );
        }
    }
}

const AGGREGATES: [&str; 8] = [
    "COUNT(1)",
    "COUNT(c)",
    "COUNT(c.a)",
    "MIN(c.n)",
    "MAX(c.n)",
    "MIN(c.a)",
    "MAX(c.b)",
    "{\"item\": MAX(c.n), \"count\": COUNT(c.n)}",
];

/// Gives back whether the index alone answered.
fn check_aggregate(bench: &Bench, random: &mut StdRng) -> bool {
    let aggregate = AGGREGATES.choose(random).expect("some");
    let mut text = format!("SELECT VALUE {aggregate} FROM c");
    if random.random_bool(0.7) {
        let depth = random.random_range(0..2);
        let _ = write!(text, " WHERE {}", condition(random, depth));
    }
    let query = Query::parse(&text, &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
    let expected = query.execute(items(bench).into_iter()).expect("evaluates");
    let mut execution = query.start();
    let mut resume = None;
    loop {
        let ask = ScanRequest {
            query: &query,
            keys: &EpkRange::full(),
            resume: resume.as_ref(),
            scan_allowed: true,
            budget: ScanBudget {
                entries_max: random.random_range(1..40),
                deadline: None,
            },
        };
        let Some(answer) = aggregate_from_index(&bench.view, &ask).expect("readable") else {
            assert!(resume.is_none(), "{text}: an answer is given to its end");
            return false;
        };
        execution.absorb(answer.partial).expect("its own partial");
        resume = answer.resume;
        if resume.is_none() {
            break;
        }
    }
    assert_eq!(execution.finish().expect("finishes"), expected, "{text}");
    true
}

fn write(bench: &mut Bench, random: &mut StdRng, strange: bool) {
    let key = random.random_range(1..4);
    let id = format!("{key}-{}", random.random_range(0..15));
    let want = match random.random_range(0..10) {
        0 => Want::Delete(id),
        1 => Want::Patch(
            id,
            json!([{"op": "set", "path": "/a", "value": scalar(random)}]),
        ),
        _ => Want::Upsert(item(random, &id, strange)),
    };
    // A delete of nothing is refused, and that is fine.
    let _ = bench.run_in(key, want);
}

fn shard(seed: u64) -> (Bench, StdRng) {
    let mut random = StdRng::seed_from_u64(seed);
    let default = [DefaultTtl::Off, DefaultTtl::NoDefault, after(30)]
        .choose(&mut random)
        .copied()
        .expect("some");
    let policy = policy(&mut random);
    let without_index = policy.mode == IndexingMode::None;
    let default = if without_index {
        DefaultTtl::Off
    } else {
        default
    };
    let mut bench = Bench::with_index(default, &policy);
    let strange = seed.is_multiple_of(3);
    for _ in 0..WRITES_PER_SHARD {
        write(&mut bench, &mut random, strange);
        if random.random_bool(0.05) {
            bench.wait(random.random_range(1..5));
        }
        if random.random_bool(0.05) {
            bench.purge();
        }
    }
    // A lazy index catches up.
    while bench.index_step() {}
    (bench, random)
}

#[test]
fn the_index_finds_what_a_walk_over_all_items_finds() {
    let mut tally = Tally::default();
    for seed in 0..SHARDS {
        let (mut bench, mut random) = shard(seed);
        for round in 0..QUERIES_PER_SHARD {
            if round % 40 == 39 {
                bench.wait(3);
            }
            if round % 50 == 49 {
                // What is dead leaves with the files.
                bench.purge();
                bench.engine().flush().expect("flushes");
                bench.engine().compact(None, None).unwrap();
            }
            let case = query(&mut random);
            check(&bench, &case, &mut random, &mut tally);
            tally.aggregates += usize::from(check_aggregate(&bench, &mut random));
        }
    }
    assert!(
        tally.indexed > 800
            && tally.ordered > 200
            && tally.aggregates > 200
            && tally.spatial > 50
            && tally.composite > 20,
        "{tally:?} of {} cases",
        SHARDS as usize * QUERIES_PER_SHARD
    );
}

#[test]
fn a_scope_smaller_than_the_shard_is_kept() {
    for seed in 100..110 {
        let (bench, mut random) = shard(seed);
        let keys = EpkRange {
            min: super::bench::epk(1),
            max: super::bench::epk(2),
        };
        for _ in 0..60 {
            let Case { text, .. } = query(&mut random);
            let query = Query::parse(&text, &[]).expect("parses");
            let expected: Vec<Value> = items_of(&bench, &keys)
                .into_iter()
                .filter(|item| query.matches(item).expect("evaluates"))
                .collect();
            let (found, _) = selected(&bench, &query, &keys, &mut random, false);
            let found: Vec<Value> = found
                .into_iter()
                .filter(|item| query.matches(item).expect("evaluates"))
                .collect();
            assert_eq!(ids(&found), ids(&expected), "{text}");
        }
    }
}
