use azure_data_cosmos::models::{PatchInstructions, PatchOperation};
use azure_data_cosmos::options::{PatchItemOptions, PatchStrategy, Precondition};
use bolide_rust_sdk_tests::{World, assert_refused};
use serde_json::{Value, json};

fn on_the_server() -> Option<PatchItemOptions> {
    Some(PatchItemOptions::default().with_strategy(PatchStrategy::ServerSide))
}

fn instructions(operations: impl IntoIterator<Item = PatchOperation>) -> PatchInstructions {
    PatchInstructions::from(operations.into_iter().collect::<Vec<_>>())
}

#[tokio::test]
async fn every_operation_works_on_the_server() {
    let world = World::new().await;
    let container = world.container("c").await;
    let item = json!({"id": "a", "pk": "p", "n": 5, "f": 1.5, "text": "old", "list": [1, 2], "gone": true, "o": {"x": 1}});
    container.create_item("p", "a", item, None).await.unwrap();
    let patch = instructions([
        PatchOperation::add("/list/-", json!(3)),
        PatchOperation::add("/list/0", json!(0)),
        PatchOperation::set("/fresh", json!({"a": null})),
        PatchOperation::set("/o/x", json!(2)),
        PatchOperation::replace("/text", json!("new")),
        PatchOperation::remove("/gone"),
        PatchOperation::increment("/n", 2_i64),
        PatchOperation::increment("/f", 0.25_f64),
        PatchOperation::move_value("/o", "/moved"),
    ]);
    let patched: Value = container
        .patch_item("p", "a", patch, on_the_server())
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(patched["list"], json!([0, 1, 2, 3]));
    assert_eq!(patched["fresh"], json!({"a": null}));
    assert_eq!(patched["text"], "new");
    assert!(patched.get("gone").is_none() && patched.get("o").is_none());
    assert_eq!(patched["n"], 7);
    assert_eq!(patched["f"], 1.75);
    assert_eq!(patched["moved"], json!({"x": 2}));
    let read: Value = container
        .read_item("p", "a", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(read, patched);
}

#[tokio::test]
async fn bad_patches_are_refused_and_change_nothing() {
    let world = World::new().await;
    let container = world.container("c").await;
    container
        .create_item("p", "a", json!({"id": "a", "pk": "p", "n": 1}), None)
        .await
        .unwrap();
    let before: Value = container
        .read_item("p", "a", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    for bad in [
        PatchOperation::replace("/nothing", json!(1)),
        PatchOperation::remove("/nothing"),
        PatchOperation::set("/id", json!("b")),
        PatchOperation::set("/pk", json!("q")),
        PatchOperation::set("/ttl", json!(0)),
        PatchOperation::increment("/id", 1_i64),
    ] {
        let patch = instructions([PatchOperation::set("/n", json!(2)), bad]);
        assert_refused(
            container.patch_item("p", "a", patch, on_the_server()).await,
            400,
            0,
        );
    }
    let patch = instructions([PatchOperation::set("/n", json!(2))]);
    let stale = PatchItemOptions::default()
        .with_strategy(PatchStrategy::ServerSide)
        .with_precondition(Precondition::if_match("\"stale\""));
    assert_refused(
        container
            .patch_item("p", "a", patch.clone(), Some(stale))
            .await,
        412,
        0,
    );
    assert_refused(
        container.patch_item("p", "b", patch, on_the_server()).await,
        404,
        0,
    );
    let after: Value = container
        .read_item("p", "a", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(after, before);
}

#[tokio::test]
async fn the_sdk_may_patch_by_itself_too() {
    let world = World::new().await;
    let container = world.container("c").await;
    container
        .create_item("p", "a", json!({"id": "a", "pk": "p", "n": 1}), None)
        .await
        .unwrap();
    let options = PatchItemOptions::default().with_strategy(PatchStrategy::ClientSide);
    let patch = instructions([PatchOperation::increment("/n", 1_i64)]);
    container
        .patch_item("p", "a", patch, Some(options))
        .await
        .unwrap();
    let read: Value = container
        .read_item("p", "a", None)
        .await
        .unwrap()
        .into_model()
        .unwrap();
    assert_eq!(read["n"], 2);
}
