use bolide_rust_sdk_tests::{Node, status_of};

#[tokio::test]
async fn the_sdk_opens_with_http2_in_the_clear_and_the_node_stops_cleanly() {
    let node = Node::start().await;
    let client = node.connect().await;
    client.create_database("db", None).await.unwrap();
    let read = client.database_client("db").read(None).await.unwrap();
    assert!(read.headers().activity_id().is_some());
    assert!(read.headers().request_charge().is_some());
    drop(client);
    assert_eq!(node.stop().await.code(), Some(0));
}

#[tokio::test]
async fn the_sdk_works_over_https_with_the_development_certificate() {
    let node = Node::start_with("https").await;
    let client = node.connect().await;
    client.create_database("db", None).await.unwrap();
    let read = client.database_client("db").read(None).await.unwrap();
    assert_eq!(read.into_model().unwrap().id.as_deref(), Some("db"));
}

#[tokio::test]
async fn a_wrong_key_is_refused() {
    let node = Node::start().await;
    let key =
        "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ==";
    match node.try_connect(key, None).await {
        Err(error) => assert_eq!(status_of(&error).0, 401, "{error}"),
        Ok(client) => {
            let error = client.create_database("db", None).await.unwrap_err();
            assert_eq!(status_of(&error).0, 401, "{error}");
        }
    }
}
