use azure_data_cosmos::TransactionalBatch;
use azure_data_cosmos::options::{
    BatchOptions, BatchReplaceOptions, ContentResponseOnWrite, OperationOptions, Precondition,
};
use bolide_rust_sdk_tests::{World, assert_refused};
use serde_json::{Value, json};

fn with_bodies() -> Option<BatchOptions> {
    let mut operation = OperationOptions::default();
    operation.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    Some(BatchOptions::default().with_operation_options(operation))
}

fn item(id: &str, n: i32) -> Value {
    json!({"id": id, "pk": "p", "n": n})
}

#[tokio::test]
async fn a_batch_does_everything() {
    let world = World::new().await;
    let container = world.container("c").await;
    for id in ["replace", "read", "delete"] {
        container
            .create_item("p", id, item(id, 1), None)
            .await
            .unwrap();
    }
    let batch = TransactionalBatch::new("p")
        .create_item(item("create", 1))
        .unwrap()
        .upsert_item(item("upsert", 1), None)
        .unwrap()
        .replace_item("replace", item("replace", 2), None)
        .unwrap()
        .read_item("read", None)
        .delete_item("delete", None);
    let response = container
        .execute_transactional_batch(batch, with_bodies())
        .await
        .unwrap();
    assert_eq!(u16::from(response.status().status_code()), 200);
    let response = response.into_model().unwrap();
    let results = response.results();
    let codes: Vec<_> = results.iter().map(|result| result.status_code()).collect();
    assert_eq!(codes, [201, 201, 200, 200, 204]);
    assert!(
        results
            .iter()
            .all(|result| result.request_charge().is_some())
    );
    let read: Value = results[3].into_model().unwrap().unwrap();
    assert_eq!(read["id"], "read");
    assert_eq!(
        results[0].etag(),
        results[0].into_model::<Value>().unwrap().unwrap()["_etag"].as_str()
    );
    let read: Value = container
        .read_item("p", "replace", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(read["n"], 2);
    assert_refused(container.read_item("p", "delete", None).await, 404, 0);
}

#[tokio::test]
async fn a_batch_that_fails_does_nothing() {
    let world = World::new().await;
    let container = world.container("c").await;
    container
        .create_item("p", "there", item("there", 1), None)
        .await
        .unwrap();
    let stale =
        BatchReplaceOptions::default().with_precondition(Precondition::if_match("\"stale\""));
    let batch = TransactionalBatch::new("p")
        .create_item(item("fresh", 1))
        .unwrap()
        .replace_item("there", item("there", 2), Some(stale))
        .unwrap()
        .delete_item("there", None);
    let response = container
        .execute_transactional_batch(batch, None)
        .await
        .unwrap();
    assert_eq!(u16::from(response.status().status_code()), 207);
    let response = response.into_model().unwrap();
    let codes: Vec<_> = response
        .results()
        .iter()
        .map(|result| result.status_code())
        .collect();
    assert_eq!(codes, [424, 412, 424]);
    assert_refused(container.read_item("p", "fresh", None).await, 404, 0);
    let read: Value = container
        .read_item("p", "there", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(read["n"], 1);
}

#[tokio::test]
async fn a_batch_has_its_limits() {
    let world = World::new().await;
    let container = world.container("c").await;
    let mut full = TransactionalBatch::new("p");
    for i in 0..100 {
        full = full.create_item(item(&format!("i{i}"), i)).unwrap();
    }
    let response = container
        .execute_transactional_batch(full, None)
        .await
        .unwrap();
    assert_eq!(u16::from(response.status().status_code()), 200);
    let mut over = TransactionalBatch::new("p");
    for i in 0..101 {
        over = over.upsert_item(item(&format!("i{i}"), i), None).unwrap();
    }
    let over = container
        .execute_transactional_batch(over, None)
        .await
        .unwrap_err();
    assert_eq!(u16::from(over.status().status_code()), 400);
    let none = container
        .execute_transactional_batch(TransactionalBatch::new("p"), None)
        .await
        .unwrap_err();
    assert_eq!(u16::from(none.status().status_code()), 400);
}
