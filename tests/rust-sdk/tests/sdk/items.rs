use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::options::{ItemReadOptions, ItemWriteOptions, Precondition};
use bolide_rust_sdk_tests::{World, assert_refused, with_body};
use serde_json::{Value, json};

async fn read(container: &ContainerClient, key: &'static str, id: &str) -> Value {
    container
        .read_item(key, id, None)
        .await
        .unwrap()
        .into_model()
        .unwrap()
}

/// What the user stored: the item without the properties that the system adds.
fn user_properties(mut item: Value) -> Value {
    let object = item.as_object_mut().expect("an item is an object");
    for property in ["_rid", "_self", "_etag", "_ts", "_attachments"] {
        assert!(object.remove(property).is_some(), "{property} is there");
    }
    item
}

#[tokio::test]
async fn items_are_created_read_replaced_upserted_and_deleted() {
    let world = World::new().await;
    let container = world.container("c").await;
    let created = container
        .create_item("p", "a", json!({"id": "a", "pk": "p", "n": 1}), None)
        .await
        .unwrap();
    assert_eq!(u16::from(created.status().status_code()), 201);
    let headers = created.headers();
    assert!(headers.etag().is_some());
    assert!(headers.session_token().is_some());
    assert!(headers.request_charge().is_some());
    assert!(headers.lsn().is_some());
    assert!(headers.partition_key_range_id().is_some());
    assert!(
        created.into_body().is_empty(),
        "the SDK asks for minimal answers"
    );
    assert_eq!(user_properties(read(&container, "p", "a").await)["n"], 1);

    let replaced = container
        .replace_item(
            "p",
            "a",
            json!({"id": "a", "pk": "p", "n": 2}),
            Some(with_body()),
        )
        .await
        .unwrap();
    assert_eq!(u16::from(replaced.status().status_code()), 200);
    assert_eq!(replaced.into_model::<Value>().unwrap()["n"], 2);

    for (status, n) in [(200, 3), (200, 4)] {
        let upserted = container
            .upsert_item("p", "a", json!({"id": "a", "pk": "p", "n": n}), None)
            .await
            .unwrap();
        assert_eq!(u16::from(upserted.status().status_code()), status);
        assert_eq!(read(&container, "p", "a").await["n"], n);
    }
    let upserted = container
        .upsert_item("p", "b", json!({"id": "b", "pk": "p"}), None)
        .await
        .unwrap();
    assert_eq!(u16::from(upserted.status().status_code()), 201);

    let deleted = container.delete_item("p", "a", None).await.unwrap();
    assert_eq!(u16::from(deleted.status().status_code()), 204);
    assert_refused(container.read_item("p", "a", None).await, 404, 0);
}

#[tokio::test]
async fn failures_carry_status_and_sub_status() {
    let world = World::new().await;
    let container = world.container("c").await;
    let item = json!({"id": "a", "pk": "p"});
    container
        .create_item("p", "a", item.clone(), None)
        .await
        .unwrap();
    assert_refused(
        container.create_item("p", "a", item.clone(), None).await,
        409,
        0,
    );
    assert_refused(
        container
            .replace_item("p", "x", json!({"id": "x", "pk": "p"}), None)
            .await,
        404,
        0,
    );
    assert_refused(container.delete_item("p", "x", None).await, 404, 0);
    assert_refused(container.read_item("q", "a", None).await, 404, 0);
    let foreign = json!({"id": "f", "pk": "other"});
    assert_refused(
        container.create_item("p", "f", foreign, None).await,
        400,
        1001,
    );
    let big = json!({"id": "big", "pk": "p", "data": "x".repeat(2_200_000)});
    assert_refused(container.create_item("p", "big", big, None).await, 413, 0);
    let error = container.read_item("p", "x", None).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("404") || message.contains("NotFound"),
        "{message}"
    );
}

/// Values that exercise each form the SDK's binary encoder knows.
fn shapes() -> Value {
    json!({
        "id": "shapes",
        "pk": "p",
        "literals": [null, true, false],
        "small integers": (0..=31).collect::<Vec<_>>(),
        "integers": [32, 255, 256, -1, -128, 65_535, 65_536, -2_147_483_648_i64, 4_294_967_296_i64,
                     9_007_199_254_740_991_i64, -9_007_199_254_740_991_i64],
        "floats": [0.5, -0.5, 1e-7, 1.7976931348623157e308, 5e-324, 0.1],
        "strings": ["", "a", "x".repeat(63), "x".repeat(64), "x".repeat(255), "x".repeat(256), "x".repeat(65_536)],
        "unicode": ["é", "日本語", "😀", "\u{0}\u{1f}\u{7f}", "\"quotes\" and \\"],
        "empty": [[], {}],
        "one": [[1], {"a": 1}],
        "long list": (0..300).collect::<Vec<_>>(),
        "wide object": (0..300).map(|i| (format!("property {i}"), json!(i))).collect::<serde_json::Map<_, _>>(),
        "system strings": {"name": "value", "type": "Point", "coordinates": [1.5, 2.5], "_id": "id"},
        "deep": {"a": {"b": {"c": {"d": [[[[[["e"]]]]]]}}}},
    })
}

#[tokio::test]
async fn binary_bodies_are_stored_as_they_were_meant() {
    let world = World::new().await;
    let container = world.container("c").await;
    container
        .create_item("p", "shapes", shapes(), None)
        .await
        .unwrap();
    assert_eq!(
        user_properties(read(&container, "p", "shapes").await),
        shapes()
    );
    container
        .replace_item("p", "shapes", shapes(), None)
        .await
        .unwrap();
    container
        .upsert_item("p", "shapes", shapes(), None)
        .await
        .unwrap();
    assert_eq!(
        user_properties(read(&container, "p", "shapes").await),
        shapes()
    );
}

#[tokio::test]
async fn binary_and_text_clients_see_the_same_items() {
    let world = World::new().await;
    let binary = world.container("c").await;
    let text = world.node.connect_with_text_json().await;
    let text = text
        .database_client("db")
        .container_client("c", None)
        .await
        .unwrap();
    binary
        .create_item("p", "shapes", shapes(), None)
        .await
        .unwrap();
    let first = read(&text, "p", "shapes").await;
    assert_eq!(user_properties(first.clone()), shapes());
    assert_eq!(read(&binary, "p", "shapes").await, first);
    text.replace_item("p", "shapes", shapes(), None)
        .await
        .unwrap();
    assert_eq!(
        user_properties(read(&binary, "p", "shapes").await),
        shapes()
    );
}

#[tokio::test]
async fn etags_guard_writes_and_save_reads() {
    let world = World::new().await;
    let container = world.container("c").await;
    let item = |n: i32| json!({"id": "a", "pk": "p", "n": n});
    let etag = |response: &azure_data_cosmos::models::ItemResponse| {
        response.headers().etag().unwrap().clone()
    };
    let first = etag(
        &container
            .create_item("p", "a", item(1), None)
            .await
            .unwrap(),
    );
    let second = etag(
        &container
            .replace_item("p", "a", item(2), None)
            .await
            .unwrap(),
    );
    assert_ne!(first, second);
    let if_match = |etag: &_| {
        Some(
            ItemWriteOptions::default()
                .with_precondition(Precondition::if_match(Clone::clone(etag))),
        )
    };

    assert_refused(
        container
            .replace_item("p", "a", item(3), if_match(&first))
            .await,
        412,
        0,
    );
    assert_refused(
        container
            .upsert_item("p", "a", item(3), if_match(&first))
            .await,
        412,
        0,
    );
    assert_refused(
        container.delete_item("p", "a", if_match(&first)).await,
        412,
        0,
    );
    assert_eq!(read(&container, "p", "a").await["n"], 2);
    let third = etag(
        &container
            .replace_item("p", "a", item(3), if_match(&second))
            .await
            .unwrap(),
    );

    let unchanged =
        ItemReadOptions::default().with_precondition(Precondition::if_none_match(third.clone()));
    match container.read_item("p", "a", Some(unchanged)).await {
        Ok(response) => assert_eq!(u16::from(response.status().status_code()), 304),
        Err(error) => assert_eq!(u16::from(error.status().status_code()), 304, "{error}"),
    }
    let changed = ItemReadOptions::default().with_precondition(Precondition::if_none_match(first));
    let response = container.read_item("p", "a", Some(changed)).await.unwrap();
    assert_eq!(response.into_model::<Value>().unwrap()["n"], 3);
    container
        .delete_item("p", "a", if_match(&third))
        .await
        .unwrap();
}

#[tokio::test]
async fn odd_ids_find_their_items() {
    let world = World::new().await;
    let container = world.container("c").await;
    for id in [
        "a b",
        "plus+",
        "per%cent",
        "q?mark",
        "ünïcødé",
        "日本語",
        "😀",
        "'quote'",
        "docs",
        "a&b=c;d",
    ] {
        container
            .create_item("p", id, json!({"id": id, "pk": "p"}), None)
            .await
            .unwrap();
        assert_eq!(read(&container, "p", id).await["id"], id);
        container.delete_item("p", id, None).await.unwrap();
        assert_refused(container.read_item("p", id, None).await, 404, 0);
    }
}
