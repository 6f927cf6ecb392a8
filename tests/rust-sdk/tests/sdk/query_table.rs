//! One table of queries and rows, planned and merged by the SDK over one range and over several.

use std::num::NonZeroU32;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::{CreateContainerOptions, MaxItemCountHint, QueryOptions};
use bolide_rust_sdk_tests::World;
use futures::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Table {
    items: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    query: String,
    ordered: bool,
    rows: Vec<Value>,
}

/// What the SDK does not run over a whole container, whatever the server offers: DISTINCT without a bound in no order.
const BEYOND_THE_CLIENT: &[&str] = &[
    "SELECT DISTINCT VALUE c.g FROM c",
    "SELECT DISTINCT c.g FROM c WHERE",
    "SELECT DISTINCT VALUE t FROM c",
];
/// What it does not merge: aggregates and groups of several ranges. The server says so instead of giving out parts of an answer.
const NOT_MERGED: &[&str] = &["COUNT(", "SUM(", "AVG(", "MIN(", "MAX(", "GROUP BY"];

fn is_beyond_the_client(query: &str, ranges: usize) -> bool {
    let unbounded = BEYOND_THE_CLIENT.iter().any(|begin| query.starts_with(begin));
    (unbounded && !query.contains("ORDER BY"))
        || (ranges > 1 && query == "SELECT VALUE 1 + 1")
}

fn table() -> Table {
    serde_json::from_str(include_str!("../../../queries/cases.json")).unwrap()
}

async fn filled(world: &World, throughput: u64) -> ContainerClient {
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(throughput));
    let container = world
        .container_with(ContainerProperties::new("c", "/pk".into()), Some(options))
        .await;
    for item in table().items {
        let (id, key) = (
            item["id"].as_str().unwrap().to_owned(),
            item["pk"].as_str().unwrap().to_owned(),
        );
        container.create_item(key, &id, item, None).await.unwrap();
    }
    container
}

/// A row without what the system adds to items.
fn user_part(row: Value) -> Value {
    match row {
        Value::Object(row) => Value::Object(
            row.into_iter()
                .filter(|(name, _)| !name.starts_with('_'))
                .collect::<Map<_, _>>(),
        ),
        row => row,
    }
}

/// Numbers as doubles and properties in one order, as text.
fn shown(rows: &[Value], ordered: bool) -> Vec<String> {
    fn plain(value: &Value) -> Value {
        match value {
            Value::Number(number) => number.as_f64().into(),
            Value::Array(items) => items.iter().map(plain).collect(),
            Value::Object(object) => {
                let mut names: Vec<_> = object.iter().collect();
                names.sort_by_key(|(name, _)| *name);
                names
                    .into_iter()
                    .map(|(name, value)| (name.clone(), plain(value)))
                    .collect()
            }
            value => value.clone(),
        }
    }
    let mut shown: Vec<String> = rows.iter().map(|row| plain(row).to_string()).collect();
    if !ordered {
        shown.sort();
    }
    shown
}

async fn all_answers_are_right(throughput: u64, ranges: usize) {
    let world = World::new().await;
    let container = filled(&world, throughput).await;
    let mut wrong = Vec::new();
    for Case {
        query,
        ordered,
        rows,
    } in table().cases
    {
        if is_beyond_the_client(&query, ranges) {
            continue;
        }
        let refused = ranges > 1 && NOT_MERGED.iter().any(|part| query.contains(part));
        for size in [1, 3, 100] {
            let options = QueryOptions::default()
                .with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(size).unwrap()));
            let found = async {
                container
                    .query_items::<Value>(&query, FeedScope::full_container(), Some(options))
                    .await?
                    .try_collect::<Vec<_>>()
                    .await
            };
            match found.await {
                Err(error) if refused && error.is_from_wire() => {}
                Err(error) => wrong.push(format!("{query}: {error}")),
                Ok(_) if refused => wrong.push(format!("{query}: not refused")),
                Ok(found) => {
                    let found: Vec<Value> = found.into_iter().map(user_part).collect();
                    let (found, rows) = (shown(&found, ordered), shown(&rows, ordered));
                    if found != rows {
                        wrong.push(format!("{query} in pages of {size}: {found:?} not {rows:?}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn all_answers_are_right_on_one_range() {
    all_answers_are_right(400, 1).await;
}

#[tokio::test]
async fn all_answers_are_right_on_three_ranges() {
    all_answers_are_right(30_000, 3).await;
}

/// Every page is asked for by a new iterator with nothing but the token of the one before.
#[tokio::test]
async fn ordered_rows_resume_behind_every_row() {
    let world = World::new().await;
    let container = filled(&world, 30_000).await;
    for (query, expected) in [
        ("SELECT VALUE c.id FROM c ORDER BY c.n", "a1 a2 a3 b1 b2 c1 c2 d1 e1 f1"),
        ("SELECT VALUE c.id FROM c ORDER BY c.n DESC", "f1 e1 d1 c2 c1 b2 b1 a3 a2 a1"),
        ("SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.n", "red blue red green red blue"),
    ] {
        let mut rows = Vec::new();
        let mut token = None;
        for _ in 0..50 {
            let mut options = QueryOptions::default()
                .with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(1).unwrap()));
            if let Some(token) = token.take() {
                options = options.with_continuation_token(token);
            }
            let mut pages = container
                .query_items::<String>(query, FeedScope::full_container(), Some(options))
                .await
                .unwrap()
                .into_pages();
            let Some(page) = pages.next().await else {
                break;
            };
            rows.extend(page.unwrap().items().iter().cloned());
            match pages.to_continuation_token() {
                Ok(next) => token = Some(next),
                Err(_) => break,
            }
        }
        assert_eq!(rows.join(" "), expected, "{query}");
    }
}
