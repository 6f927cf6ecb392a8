use azure_data_cosmos::feed::FeedScope;
use azure_data_cosmos::models::{
    ContainerProperties, PartitionKey, ThroughputProperties, UniqueKey, UniqueKeyPolicy,
};
use azure_data_cosmos::options::CreateContainerOptions;
use bolide_rust_sdk_tests::{World, assert_refused};
use futures::TryStreamExt as _;
use serde_json::{Value, json};

fn four_shards() -> Option<CreateContainerOptions> {
    Some(CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(40_000)))
}

#[tokio::test]
async fn keys_of_every_type_find_their_items() {
    let world = World::new().await;
    let container = world
        .container_with(ContainerProperties::new("c", "/pk".into()), four_shards())
        .await;
    let keys: Vec<(PartitionKey, Value)> = vec![
        ("text".into(), json!({"id": "x", "pk": "text"})),
        ("".into(), json!({"id": "x", "pk": ""})),
        ("é€😀".into(), json!({"id": "x", "pk": "é€😀"})),
        (0.into(), json!({"id": "x", "pk": 0})),
        ((-1).into(), json!({"id": "x", "pk": -1})),
        (3.25_f64.try_into().unwrap(), json!({"id": "x", "pk": 3.25})),
        (true.into(), json!({"id": "x", "pk": true})),
        (false.into(), json!({"id": "x", "pk": false})),
        (PartitionKey::NULL.into(), json!({"id": "x", "pk": null})),
        (PartitionKey::UNDEFINED.into(), json!({"id": "x"})),
    ];
    for (key, item) in &keys {
        container
            .create_item(key.clone(), "x", item, None)
            .await
            .unwrap();
    }
    for (key, item) in &keys {
        let read: Value = container
            .read_item(key.clone(), "x", None)
            .await
            .unwrap()
            .into_model()
            .unwrap();
        assert_eq!(read.get("pk"), item.get("pk"));
        let found: Vec<Value> = container
            .query_items("SELECT * FROM c", FeedScope::partition(key.clone()), None)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!(found.len(), 1, "{key:?}");
    }
}

#[tokio::test]
async fn hierarchical_keys_work_whole_and_by_prefix() {
    let world = World::new().await;
    let container = world
        .container_with(
            ContainerProperties::new("c", ("/t", "/u", "/s").into()),
            four_shards(),
        )
        .await;
    for tenant in ["T", "S"] {
        for user in ["u1", "u2"] {
            for session in 0..3 {
                let id = format!("{tenant}-{user}-{session}");
                let item = json!({"id": id, "t": tenant, "u": user, "s": session});
                container
                    .create_item((tenant, user, session), &id, item, None)
                    .await
                    .unwrap();
            }
        }
    }
    let read = container
        .read_item(("T", "u1", 2), "T-u1-2", None)
        .await
        .unwrap();
    assert_eq!(read.into_model::<Value>().unwrap()["s"], 2);
    assert_refused(
        container.read_item(("T", "u2", 2), "T-u1-2", None).await,
        404,
        0,
    );

    for (scope, count) in [
        (FeedScope::partition(("T", "u1", 1)), 1),
        (FeedScope::partition(("T", "u1")), 3),
        (FeedScope::partition("T"), 6),
        (FeedScope::full_container(), 12),
    ] {
        let found: Vec<Value> = container
            .query_items("SELECT * FROM c", scope, None)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!(found.len(), count);
    }
}

#[tokio::test]
async fn a_deep_key_and_an_absent_one() {
    let world = World::new().await;
    let container = world.container_keyed("c", "/a/b").await;
    container
        .create_item("k", "x", json!({"id": "x", "a": {"b": "k"}}), None)
        .await
        .unwrap();
    let read = container.read_item("k", "x", None).await.unwrap();
    assert_eq!(read.into_model::<Value>().unwrap()["a"]["b"], "k");
    container
        .create_item(
            PartitionKey::UNDEFINED,
            "y",
            json!({"id": "y", "a": 1}),
            None,
        )
        .await
        .unwrap();
}

#[tokio::test]
async fn unique_keys_hold_within_a_partition() {
    let world = World::new().await;
    let policy =
        UniqueKeyPolicy::default().with_unique_key(UniqueKey::default().with_path("/email"));
    let container = world
        .container_with(
            ContainerProperties::new("c", "/pk".into()).with_unique_key_policy(policy),
            None,
        )
        .await;
    let person = |pk: &str, id: &str| json!({"id": id, "pk": pk, "email": "x@y"});
    container
        .create_item("p", "a", person("p", "a"), None)
        .await
        .unwrap();
    assert_refused(
        container
            .create_item("p", "b", person("p", "b"), None)
            .await,
        409,
        0,
    );
    container
        .create_item("q", "b", person("q", "b"), None)
        .await
        .unwrap();
    container.delete_item("p", "a", None).await.unwrap();
    container
        .create_item("p", "b", person("p", "b"), None)
        .await
        .unwrap();
}
