use std::collections::BTreeSet;
use std::num::NonZeroU32;

use azure_data_cosmos::Query;
use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties};
use azure_data_cosmos::options::{CreateContainerOptions, MaxItemCountHint, QueryOptions};
use bolide_rust_sdk_tests::{World, assert_refused};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

const ITEMS: i32 = 57;

async fn filled(world: &World, throughput: u64) -> ContainerClient {
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(throughput));
    let container = world
        .container_with(ContainerProperties::new("c", "/pk".into()), Some(options))
        .await;
    for i in 0..ITEMS {
        let (id, key) = (format!("i{i}"), format!("p{}", i % 7));
        let item = json!({"id": id, "pk": key, "i": i, "even": i % 2 == 0});
        container.create_item(key, &id, item, None).await.unwrap();
    }
    container
}

fn page_size(size: u32) -> QueryOptions {
    QueryOptions::default()
        .with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::new(size).unwrap()))
}

async fn numbers(
    container: &ContainerClient,
    query: impl Into<Query>,
    scope: FeedScope,
) -> BTreeSet<i64> {
    let items: Vec<Value> = container
        .query_items(query, scope, None)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let numbers: BTreeSet<_> = items
        .iter()
        .map(|item| item["i"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers.len(), items.len(), "no item comes twice");
    numbers
}

async fn queries_find(throughput: u64) {
    let world = World::new().await;
    let container = filled(&world, throughput).await;
    let all = FeedScope::full_container;
    assert_eq!(
        numbers(&container, "SELECT * FROM c", all()).await.len(),
        ITEMS as usize
    );
    assert_eq!(
        numbers(&container, "SELECT * FROM c WHERE c.i < 3", all()).await,
        BTreeSet::from([0, 1, 2])
    );
    let query = Query::from("SELECT * FROM c WHERE c.i = @i")
        .with_parameter("@i", 42)
        .unwrap();
    assert_eq!(
        numbers(&container, query, all()).await,
        BTreeSet::from([42])
    );
    assert!(
        numbers(&container, "SELECT * FROM c WHERE c.i > 1000", all())
            .await
            .is_empty()
    );
    assert_eq!(
        numbers(
            &container,
            "SELECT * FROM c WHERE c.even = true",
            FeedScope::partition("p2")
        )
        .await,
        BTreeSet::from([2, 16, 30, 44])
    );
    let values: Vec<String> = container
        .query_items("SELECT VALUE c.id FROM c WHERE c.i = 7", all(), None)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(values, ["i7"]);
}

#[tokio::test]
async fn queries_find_what_is_there_on_one_shard() {
    queries_find(400).await;
}

#[tokio::test]
async fn queries_find_what_is_there_on_four_shards() {
    queries_find(40_000).await;
}

#[tokio::test]
async fn pages_hold_at_most_what_was_asked_for_and_add_up() {
    let world = World::new().await;
    let container = filled(&world, 20_000).await;
    for size in [1, 10, 56, 57, 1000] {
        let mut pages = container
            .query_items::<Value>(
                "SELECT * FROM c",
                FeedScope::full_container(),
                Some(page_size(size)),
            )
            .await
            .unwrap()
            .into_pages();
        let mut seen = BTreeSet::new();
        while let Some(page) = pages.next().await {
            let page = page.unwrap();
            assert!(page.items().len() <= size as usize);
            for item in page.items() {
                assert!(seen.insert(item["id"].to_string()), "no item comes twice");
            }
        }
        assert_eq!(seen.len(), ITEMS as usize, "page size {size}");
    }
}

#[tokio::test]
async fn a_continuation_token_resumes_a_query() {
    let world = World::new().await;
    let container = filled(&world, 20_000).await;
    let text = "SELECT * FROM c";
    let mut pages = container
        .query_items::<Value>(text, FeedScope::full_container(), Some(page_size(20)))
        .await
        .unwrap()
        .into_pages();
    let first = pages.next().await.unwrap().unwrap();
    let token = pages.to_continuation_token().unwrap();
    drop(pages);
    let rest: Vec<Value> = container
        .query_items(
            text,
            FeedScope::full_container(),
            Some(page_size(20).with_continuation_token(token)),
        )
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let ids: BTreeSet<_> = first
        .items()
        .iter()
        .chain(&rest)
        .map(|item| item["id"].to_string())
        .collect();
    assert_eq!(ids.len(), ITEMS as usize);
    assert_eq!(first.items().len() + rest.len(), ITEMS as usize);
}

#[tokio::test]
async fn order_by_and_count_merge_over_shards() {
    let world = World::new().await;
    let container = filled(&world, 40_000).await;
    let ordered: Vec<Value> = container
        .query_items(
            "SELECT * FROM c ORDER BY c.i DESC",
            FeedScope::full_container(),
            None,
        )
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let numbers: Vec<_> = ordered
        .iter()
        .map(|item| item["i"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (0..i64::from(ITEMS)).rev().collect::<Vec<_>>());
    let count: Vec<i64> = container
        .query_items::<i64>(
            "SELECT VALUE COUNT(1) FROM c",
            FeedScope::partition("p0"),
            None,
        )
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(count, [9]);
}

#[tokio::test]
async fn a_query_that_is_no_sql_is_refused() {
    let world = World::new().await;
    let container = world.container("c").await;
    let result = async {
        container
            .query_items::<Value>("SELEC * FROM c", FeedScope::partition("p"), None)
            .await?
            .try_collect::<Vec<_>>()
            .await
    };
    assert_refused(result.await, 400, 0);
}
