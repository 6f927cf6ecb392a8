use std::num::NonZeroU32;

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::{ChangeFeedPageIterator, FeedScope};
use azure_data_cosmos::models::{
    ChangeFeedItem, ContainerProperties, ThroughputProperties, TimeToLive,
};
use azure_data_cosmos::options::{
    ChangeFeedOptions, ChangeFeedStartFrom, CreateContainerOptions, MaxItemCountHint,
};
use bolide_rust_sdk_tests::{World, until_second};
use futures::StreamExt as _;
use serde_json::{Value, json};
use time::OffsetDateTime;

/// The feed never ends by itself: so many empty pages in a row mean that every shard has nothing new.
const EMPTY_PAGES_MAX: usize = 8;

async fn drain(feed: &mut ChangeFeedPageIterator<ChangeFeedItem<Value>>) -> Vec<Value> {
    let mut items = Vec::new();
    let mut empty = 0;
    while empty < EMPTY_PAGES_MAX {
        let page = feed.next().await.expect("the feed goes on").unwrap();
        empty = if page.items().is_empty() {
            empty + 1
        } else {
            0
        };
        items.extend(
            page.items()
                .iter()
                .map(|change| change.current().expect("an item").clone()),
        );
    }
    items
}

async fn changes(
    container: &ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
) -> Vec<Value> {
    let mut feed = container
        .query_change_feed(scope, start, None)
        .await
        .unwrap();
    drain(&mut feed).await
}

fn sorted_ids(items: &[Value]) -> Vec<String> {
    let mut ids: Vec<_> = items
        .iter()
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

async fn container(world: &World, throughput: u64) -> ContainerClient {
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(throughput));
    let properties =
        ContainerProperties::new("c", "/pk".into()).with_default_ttl(TimeToLive::NoDefault);
    world.container_with(properties, Some(options)).await
}

async fn put(container: &ContainerClient, key: &str, id: &str, n: i32) {
    let item = json!({"id": id, "pk": key, "n": n});
    container
        .upsert_item(key.to_owned(), id, item, None)
        .await
        .unwrap();
}

#[tokio::test]
async fn every_item_comes_once_at_its_latest_version() {
    let world = World::new().await;
    let container = container(&world, 30_000).await;
    for i in 0..20 {
        put(&container, &format!("p{i}"), &format!("i{i:02}"), 1).await;
    }
    put(&container, "p3", "i03", 2).await;
    container.delete_item("p4", "i04", None).await.unwrap();
    let items = changes(
        &container,
        FeedScope::full_container(),
        ChangeFeedStartFrom::Beginning,
    )
    .await;
    assert_eq!(items.len(), 19);
    assert!(!sorted_ids(&items).contains(&"i04".to_owned()));
    assert_eq!(
        items.iter().find(|item| item["id"] == "i03").unwrap()["n"],
        2
    );
}

#[tokio::test]
async fn one_partition_key_comes_in_the_order_of_its_changes() {
    let world = World::new().await;
    let container = container(&world, 20_000).await;
    for id in ["a", "b", "c"] {
        put(&container, "p", id, 1).await;
        put(&container, "q", id, 1).await;
    }
    put(&container, "p", "a", 2).await;
    let items = changes(
        &container,
        FeedScope::partition("p"),
        ChangeFeedStartFrom::Beginning,
    )
    .await;
    let ids: Vec<_> = items
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["b", "c", "a"]);
}

#[tokio::test]
async fn feed_ranges_add_up() {
    let world = World::new().await;
    let container = container(&world, 40_000).await;
    for i in 0..30 {
        put(&container, &format!("p{i}"), &format!("i{i:02}"), 1).await;
    }
    let mut all = Vec::new();
    for range in container.read_feed_ranges(None).await.unwrap() {
        all.extend(
            changes(
                &container,
                FeedScope::range(range),
                ChangeFeedStartFrom::Beginning,
            )
            .await,
        );
    }
    assert_eq!(
        sorted_ids(&all),
        (0..30).map(|i| format!("i{i:02}")).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn from_now_and_from_a_continuation() {
    let world = World::new().await;
    let container = container(&world, 400).await;
    put(&container, "p", "old", 1).await;
    let mut feed = container
        .query_change_feed::<Value>(FeedScope::full_container(), ChangeFeedStartFrom::Now, None)
        .await
        .unwrap();
    assert!(drain(&mut feed).await.is_empty());
    let token = feed.to_continuation_token().unwrap();
    put(&container, "p", "new", 1).await;
    assert_eq!(sorted_ids(&drain(&mut feed).await), ["new"]);
    let options = ChangeFeedOptions::default()
        .with_continuation_token(token)
        .with_max_item_count(MaxItemCountHint::Limit(NonZeroU32::MIN));
    let mut resumed = container
        .query_change_feed::<Value>(
            FeedScope::full_container(),
            ChangeFeedStartFrom::Beginning,
            Some(options),
        )
        .await
        .unwrap();
    assert_eq!(sorted_ids(&drain(&mut resumed).await), ["new"]);
}

#[tokio::test]
async fn from_a_time_and_without_expired_items() {
    let world = World::new().await;
    let container = container(&world, 400).await;
    put(&container, "p", "old", 1).await;
    let dying = json!({"id": "dying", "pk": "p", "ttl": 1});
    container
        .create_item("p", "dying", dying, None)
        .await
        .unwrap();
    let item: Value = container
        .read_item("p", "dying", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    let written = item["_ts"].as_i64().unwrap();
    until_second(written + 2).await;
    put(&container, "p", "new", 1).await;
    let beginning = changes(
        &container,
        FeedScope::full_container(),
        ChangeFeedStartFrom::Beginning,
    )
    .await;
    assert_eq!(sorted_ids(&beginning), ["new", "old"]);
    let since = OffsetDateTime::from_unix_timestamp(written + 1).unwrap();
    let later = changes(
        &container,
        FeedScope::full_container(),
        ChangeFeedStartFrom::PointInTime(since),
    )
    .await;
    assert_eq!(sorted_ids(&later), ["new"]);
}
