use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties, TimeToLive};
use azure_data_cosmos::options::CreateContainerOptions;
use bolide_rust_sdk_tests::{World, assert_refused, status_of, until_second};
use futures::TryStreamExt as _;
use serde_json::{Value, json};

async fn container(world: &World, id: &'static str, ttl: TimeToLive) -> ContainerClient {
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(20_000));
    world
        .container_with(
            ContainerProperties::new(id, "/pk".into()).with_default_ttl(ttl),
            Some(options),
        )
        .await
}

/// Writes an item and returns its `_ts`.
async fn put(container: &ContainerClient, id: &str, ttl: Option<i64>) -> i64 {
    let mut item = json!({"id": id, "pk": id});
    if let Some(ttl) = ttl {
        item["ttl"] = json!(ttl);
    }
    container
        .upsert_item(id.to_owned(), id, item, None)
        .await
        .unwrap();
    let read: Value = container
        .read_item(id.to_owned(), id, None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    read["_ts"].as_i64().unwrap()
}

async fn is_live(container: &ContainerClient, id: &str) -> bool {
    match container.read_item(id.to_owned(), id, None).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(status_of(&error), (404, 0), "{error}");
            false
        }
    }
}

async fn listed(container: &ContainerClient) -> Vec<String> {
    let mut ids: Vec<String> = container
        .query_items(
            "SELECT VALUE c.id FROM c",
            FeedScope::full_container(),
            None,
        )
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    ids.sort();
    ids
}

async fn set_default_ttl(container: &ContainerClient, ttl: TimeToLive) {
    let properties = container.read(None).await.unwrap().into_model().unwrap();
    container
        .replace(properties.with_default_ttl(ttl), None)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_matrix_of_container_and_item() {
    let world = World::new().await;
    let containers = [
        container(&world, "off", TimeToLive::Forever).await,
        container(&world, "on", TimeToLive::NoDefault).await,
        container(&world, "n", TimeToLive::Seconds(2)).await,
    ];
    let items = [("absent", None), ("never", Some(-1)), ("two", Some(2))];
    let mut newest = 0;
    for container in &containers {
        for (id, ttl) in items {
            newest = newest.max(put(container, id, ttl).await);
        }
    }
    until_second(newest + 2).await;
    let expected: [&[&str]; 3] = [
        &["absent", "never", "two"],
        &["absent", "never"],
        &["never"],
    ];
    for (container, expected) in containers.iter().zip(expected) {
        for (id, _) in items {
            assert_eq!(is_live(container, id).await, expected.contains(&id), "{id}");
        }
        assert_eq!(listed(container).await, expected);
    }
}

#[tokio::test]
async fn an_expired_item_is_gone_for_everyone() {
    let world = World::new().await;
    let container = container(&world, "c", TimeToLive::Seconds(1)).await;
    let written = put(&container, "x", None).await;
    until_second(written + 1).await;
    let item = json!({"id": "x", "pk": "x", "ttl": -1});
    assert_refused(container.read_item("x", "x", None).await, 404, 0);
    assert_refused(container.replace_item("x", "x", &item, None).await, 404, 0);
    assert_refused(container.delete_item("x", "x", None).await, 404, 0);
    let created = container.create_item("x", "x", &item, None).await.unwrap();
    assert_eq!(u16::from(created.status().status_code()), 201);
    assert!(is_live(&container, "x").await);
}

#[tokio::test]
async fn illegal_values_are_refused() {
    let world = World::new().await;
    let container = container(&world, "c", TimeToLive::NoDefault).await;
    for ttl in [
        json!(0),
        json!(-2),
        json!(1.5),
        json!("60"),
        json!(null),
        json!(true),
        json!(2_147_483_648_i64),
    ] {
        let item = json!({"id": "x", "pk": "x", "ttl": ttl});
        assert_refused(container.create_item("x", "x", &item, None).await, 400, 0);
        assert_refused(container.upsert_item("x", "x", &item, None).await, 400, 0);
    }
    assert!(listed(&container).await.is_empty());
}

#[tokio::test]
async fn a_change_of_the_default_is_in_force_at_once_and_final() {
    let world = World::new().await;
    let container = container(&world, "c", TimeToLive::Forever).await;
    let ids: Vec<_> = (0..16).map(|i| format!("i{i:02}")).collect();
    let mut newest = 0;
    for id in &ids {
        newest = newest.max(put(&container, id, None).await);
    }
    until_second(newest + 1).await;
    assert_eq!(listed(&container).await, ids);
    for ttl in [
        TimeToLive::Seconds(1),
        TimeToLive::Seconds(1000),
        TimeToLive::NoDefault,
        TimeToLive::Forever,
    ] {
        set_default_ttl(&container, ttl).await;
        assert!(listed(&container).await.is_empty());
        for id in &ids {
            assert!(!is_live(&container, id).await);
        }
    }
}
