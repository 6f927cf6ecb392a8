use azure_data_cosmos::feed::{FeedRange, FeedScope};
use azure_data_cosmos::models::{
    ConflictResolutionMode, ConflictResolutionPolicy, ContainerProperties, IndexingMode,
    IndexingPolicy, PartitionKeyKind, PropertyPath, ThroughputProperties, TimeToLive, UniqueKey,
    UniqueKeyPolicy,
};
use azure_data_cosmos::options::CreateContainerOptions;
use bolide_rust_sdk_tests::{World, assert_refused};
use futures::TryStreamExt as _;
use serde_json::json;

#[tokio::test]
async fn databases_are_created_read_listed_and_deleted() {
    let world = World::new().await;
    let client = &world.client;
    let created = client.create_database("other", None).await.unwrap();
    assert_eq!(u16::from(created.status().status_code()), 201);
    assert_eq!(created.into_model().unwrap().id.as_deref(), Some("other"));

    let properties = client
        .database_client("other")
        .read(None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    let system = &properties.system_properties;
    assert!(
        system.etag.is_some() && system.resource_id.is_some() && system.last_modified.is_some()
    );

    let listed: Vec<_> = client
        .query_databases("SELECT * FROM root r WHERE r.id = 'other'", None)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);

    assert_refused(client.create_database("other", None).await, 409, 0);
    client.database_client("other").delete(None).await.unwrap();
    assert_refused(client.database_client("other").read(None).await, 404, 0);
    assert_refused(client.database_client("other").delete(None).await, 404, 0);
}

#[tokio::test]
async fn a_container_comes_back_with_what_was_asked_for() {
    let world = World::new().await;
    let asked = ContainerProperties::new("c", ("/tenant", "/user").into())
        .with_default_ttl(3600)
        .with_indexing_policy(
            IndexingPolicy::default()
                .with_included_path("/*")
                .with_excluded_path("/big/*"),
        )
        .with_unique_key_policy(
            UniqueKeyPolicy::default()
                .with_unique_key(UniqueKey::default().with_path("/email").with_path("/a/b")),
        )
        .with_conflict_resolution_policy(
            ConflictResolutionPolicy::new(ConflictResolutionMode::LastWriterWins)
                .with_resolution_path("/version"),
        );
    let container = world.container_with(asked.clone(), None).await;
    let properties = container.read(None).await.unwrap().into_model().unwrap();
    assert_eq!(properties.id, "c");
    assert_eq!(properties.partition_key.kind(), PartitionKeyKind::MultiHash);
    assert_eq!(properties.partition_key, asked.partition_key);
    assert_eq!(properties.default_ttl, TimeToLive::Seconds(3600));
    assert_eq!(properties.unique_key_policy, asked.unique_key_policy);
    let policy = properties.indexing_policy.as_ref().unwrap();
    assert_eq!(policy.indexing_mode, Some(IndexingMode::Consistent));
    assert!(
        policy
            .excluded_paths
            .contains(&PropertyPath::from("/big/*"))
    );
    let conflicts = properties.conflict_resolution_policy.as_ref().unwrap();
    assert_eq!(conflicts.resolution_path, "/version");
}

#[tokio::test]
async fn containers_are_listed_replaced_and_deleted() {
    let world = World::new().await;
    let container = world.container("c").await;
    world.container("d").await;
    let listed: Vec<_> = world
        .database
        .query_containers("SELECT * FROM c", None)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let mut ids: Vec<_> = listed.iter().map(|c| c.id.to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["c", "d"]);

    let before = container.read(None).await.unwrap().into_model().unwrap();
    for ttl in [
        TimeToLive::Seconds(60),
        TimeToLive::NoDefault,
        TimeToLive::Forever,
    ] {
        let wanted = before.clone().with_default_ttl(ttl.clone());
        let after = container
            .replace(wanted, None)
            .await
            .unwrap()
            .into_model()
            .unwrap();
        assert_eq!(after.default_ttl, ttl);
        assert_eq!(
            after.system_properties.resource_id,
            before.system_properties.resource_id
        );
        assert_ne!(after.system_properties.etag, before.system_properties.etag);
    }

    container.delete(None).await.unwrap();
    let gone = world.database.container_client("c", None).await;
    assert!(gone.is_err());
}

#[tokio::test]
async fn bad_containers_are_refused() {
    let world = World::new().await;
    world.container("taken").await;
    let create = async |properties| world.database.create_container(properties, None).await;
    assert_refused(
        create(ContainerProperties::new("taken", "/pk".into())).await,
        409,
        0,
    );
    assert_refused(
        create(ContainerProperties::new("c", "pk".into())).await,
        400,
        0,
    );
    assert_refused(
        create(ContainerProperties::new("c", "/pk/".into())).await,
        400,
        0,
    );
    assert_refused(
        create(ContainerProperties::new("c", "/pk".into()).with_default_ttl(0)).await,
        400,
        0,
    );
    assert_refused(
        create(ContainerProperties::new("c", "/pk".into()).with_default_ttl(2_147_483_648)).await,
        400,
        0,
    );
    let without_index = IndexingPolicy::default().with_indexing_mode(IndexingMode::None);
    assert_refused(
        create(
            ContainerProperties::new("c", "/pk".into())
                .with_default_ttl(60)
                .with_indexing_policy(without_index),
        )
        .await,
        400,
        0,
    );
    assert!(world.database.container_client("c", None).await.is_err());
    let missing = world.client.database_client("missing");
    let error = missing
        .create_container(ContainerProperties::new("c", "/pk".into()), None)
        .await
        .unwrap_err();
    assert_eq!(u16::from(error.status().status_code()), 404);
}

#[tokio::test]
async fn throughput_is_read_and_replaced() {
    let world = World::new().await;
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(500));
    let container = world
        .container_with(
            ContainerProperties::new("manual", "/pk".into()),
            Some(options),
        )
        .await;
    let read = container.read_throughput(None).await.unwrap().unwrap();
    assert_eq!(read.throughput(), Some(500));
    let replaced = container
        .begin_replace_throughput(ThroughputProperties::manual(700), None)
        .await
        .unwrap()
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(replaced.throughput(), Some(700));
    let read = container.read_throughput(None).await.unwrap().unwrap();
    assert_eq!(read.throughput(), Some(700));

    let options = CreateContainerOptions::default()
        .with_throughput(ThroughputProperties::autoscale(4000, Some(10)));
    let container = world
        .container_with(
            ContainerProperties::new("auto", "/pk".into()),
            Some(options),
        )
        .await;
    let read = container.read_throughput(None).await.unwrap().unwrap();
    assert_eq!(read.autoscale_maximum(), Some(4000));
    assert_eq!(read.autoscale_increment(), Some(10));
    assert!(
        world
            .database
            .read_throughput(None)
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn shards_follow_the_throughput_and_tile_the_key_space() {
    let world = World::new().await;
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(40_000));
    let container = world
        .container_with(ContainerProperties::new("c", "/pk".into()), Some(options))
        .await;
    let mut ranges = container.read_feed_ranges(None).await.unwrap();
    assert_eq!(ranges.len(), 4);
    ranges.sort_by(|a, b| a.min_inclusive().cmp(b.min_inclusive()));
    let full = FeedRange::full();
    assert_eq!(ranges[0].min_inclusive(), full.min_inclusive());
    assert_eq!(ranges[3].max_exclusive(), full.max_exclusive());
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].max_exclusive(), pair[1].min_inclusive());
    }

    for i in 0..40 {
        let (id, key) = (format!("i{i}"), format!("key-{i}"));
        container
            .create_item(key.clone(), &id, json!({"id": id, "pk": key}), None)
            .await
            .unwrap();
    }
    let mut found = 0;
    let mut shards_used = 0;
    for range in ranges {
        let items: Vec<serde_json::Value> = container
            .query_items("SELECT * FROM c", FeedScope::range(range), None)
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        found += items.len();
        shards_used += usize::from(!items.is_empty());
    }
    assert_eq!(found, 40);
    assert!(shards_used > 1, "keys spread over the shards");
}
