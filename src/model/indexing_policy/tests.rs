use serde_json::json;

use super::*;

fn read(value: Value) -> Result<IndexingPolicy> {
    IndexingPolicy::from_json(Some(&value))
}

/// Reads the policy and compares what the server returns for it.
fn check(input: Value, expected: Value) {
    let policy = read(input.clone()).unwrap_or_else(|error| panic!("{input}: {error}"));
    assert_eq!(policy.to_json(), expected, "{input}");
    // What the server returns is a policy that means the same: clients read, change and write back.
    assert_eq!(read(policy.to_json()).as_ref(), Ok(&policy), "{input}");
    let bytes = rmp_serde::to_vec(&policy).unwrap();
    assert_eq!(
        rmp_serde::from_slice::<IndexingPolicy>(&bytes).unwrap(),
        policy,
        "{input}"
    );
}

fn refused(input: Value, fragment: &str) {
    let error = read(input.clone()).expect_err(&input.to_string());
    assert_eq!(error.status(), 400, "{input}");
    assert!(error.message.contains(fragment), "{input}: {error}");
    assert!(error.message.chars().count() < 500, "{input}: {error}");
}

fn default_json() -> Value {
    json!({
        "indexingMode": "consistent",
        "automatic": true,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/\"_etag\"/?"}],
    })
}

fn with(mut policy: Value, name: &str, value: Value) -> Value {
    policy[name] = value;
    policy
}

#[test]
fn what_is_left_out_is_filled_in() {
    assert_eq!(
        IndexingPolicy::from_json(None).unwrap().to_json(),
        default_json()
    );
    assert_eq!(IndexingPolicy::default().to_json(), default_json());
    let inputs = [
        json!(null),
        json!({}),
        json!({"indexingMode": "consistent", "automatic": true}),
        json!({"indexingMode": "CONSISTENT"}),
        json!({"indexingMode": null, "automatic": null, "includedPaths": null, "excludedPaths": null}),
        json!({"includedPaths": [], "excludedPaths": []}),
        json!({"includedPaths": [{"path": "/*"}]}),
        json!({"includedPaths": [{"path": "/"}]}),
        json!({"excludedPaths": [{"path": "/_etag/?"}]}),
        json!({"includedPaths": [{"path": "/*", "indexes": [{"kind": "Hash", "dataType": "String", "precision": 2}]}]}),
        json!({"vectorIndexes": [], "compositeIndexes": [], "spatialIndexes": [], "fullTextIndexes": []}),
    ];
    for input in inputs {
        let policy = read(input.clone()).unwrap();
        assert_eq!(policy, IndexingPolicy::default(), "{input}");
    }
}

#[test]
fn modes() {
    check(
        json!({"indexingMode": "Lazy"}),
        with(default_json(), "indexingMode", json!("lazy")),
    );
    check(
        json!({"automatic": false}),
        with(default_json(), "automatic", json!(false)),
    );
    let none = json!({
        "indexingMode": "none", "automatic": false, "includedPaths": [], "excludedPaths": []
    });
    check(
        json!({"indexingMode": "none", "automatic": false}),
        none.clone(),
    );
    check(json!({"indexingMode": "None"}), none.clone());
    check(
        json!({"indexingMode": "none", "automatic": true}),
        none.clone(),
    );
    // Back from none with the body that was read: the empty lists mean the default.
    check(
        with(
            with(none, "indexingMode", json!("consistent")),
            "automatic",
            json!(true),
        ),
        default_json(),
    );
}

#[test]
fn paths_are_kept_in_order_and_the_etag_is_excluded() {
    check(
        json!({
            "includedPaths": [{"path": "/", "indexes": [{"kind": "Range"}]}],
            "excludedPaths": [{"path": "/\"systemMetadata\"/*"}],
        }),
        with(
            default_json(),
            "excludedPaths",
            json!([{"path": "/\"systemMetadata\"/*"}, {"path": "/\"_etag\"/?"}]),
        ),
    );
    check(
        json!({
            "includedPaths": [{"path": "/a/?"}, {"path": "/b/[]/c/?"}, {"path": "/\"x-y\"/*"}],
            "excludedPaths": [{"path": "/*"}, {"path": "/a/*"}],
        }),
        json!({
            "indexingMode": "consistent",
            "automatic": true,
            "includedPaths": [{"path": "/a/?"}, {"path": "/b/[]/c/?"}, {"path": "/\"x-y\"/*"}],
            "excludedPaths": [{"path": "/*"}, {"path": "/a/*"}, {"path": "/\"_etag\"/?"}],
        }),
    );
    check(
        json!({"includedPaths": [{"path": "/*"}, {"path": "/_etag/?"}]}),
        with(
            with(
                default_json(),
                "includedPaths",
                json!([{"path": "/*"}, {"path": "/_etag/?"}]),
            ),
            "excludedPaths",
            json!([]),
        ),
    );
}

#[test]
fn special_indexes_are_returned() {
    let vector = json!([
        {"path": "/v1", "type": "flat"},
        {"path": "/v2", "type": "quantizedFlat", "quantizationByteSize": 8},
        {"path": "/v3", "type": "diskANN", "quantizerType": "product", "indexingSearchListSize": 50,
         "vectorIndexShardKey": ["/country/city"]},
    ]);
    let spatial = json!([
        {"path": "/loc/*", "types": ["Point", "LineString", "Polygon", "MultiPolygon"]},
        {"path": "/area/?", "types": ["Polygon"],
         "boundingBox": {"xmin": 0, "ymin": -5.5, "xmax": 10, "ymax": 10}},
    ]);
    let composite = json!([
        [{"path": "/a", "order": "ascending"}, {"path": "/b/c", "order": "descending"}],
        [{"path": "/a", "order": "descending"}, {"path": "/\"b c\"", "order": "ascending"}],
    ]);
    let cases = [
        ("vectorIndexes", vector.clone(), vector),
        ("spatialIndexes", spatial.clone(), spatial),
        (
            "spatialIndexes",
            json!([{"path": "/loc/?"}]),
            json!([{"path": "/loc/?", "types": ["Point", "LineString", "Polygon", "MultiPolygon"]}]),
        ),
        (
            "spatialIndexes",
            json!([{"path": "/loc/?", "types": ["point"]}]),
            json!([{"path": "/loc/?", "types": ["Point"]}]),
        ),
        ("compositeIndexes", composite.clone(), composite),
        (
            "compositeIndexes",
            json!([[{"path": "/a"}, {"path": "/b", "order": "Descending"}]]),
            json!([[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]]),
        ),
        (
            "fullTextIndexes",
            json!([{"path": "/text"}]),
            json!([{"path": "/text"}]),
        ),
    ];
    for (name, input, expected) in cases {
        check(json!({name: input}), with(default_json(), name, expected));
    }
}

#[test]
fn bad_policies_are_refused_and_the_value_is_named() {
    let many = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"path": format!("/p{i}/?")}))
            .collect()
    };
    let pair = |a: &str, b: &str| json!([{"path": a}, {"path": b}]);
    let nine: Vec<_> = (0..9).map(|i| json!({"path": format!("/p{i}")})).collect();
    let composites: Vec<_> = (0..101).map(|i| pair("/a", &format!("/p{i}"))).collect();
    let cases = [
        (
            json!("none"),
            "'indexingPolicy' must be an object, not \"none\"",
        ),
        (json!([]), "'indexingPolicy' must be an object"),
        (json!({"indexingMode": "eager"}), "not \"eager\""),
        (
            json!({"indexingMode": 1}),
            "'indexingMode' must be a string, not 1",
        ),
        (
            json!({"automatic": "yes"}),
            "'automatic' must be true or false, not \"yes\"",
        ),
        (
            json!({"includedPaths": {}}),
            "'includedPaths' must be an array, not {}",
        ),
        (
            json!({"includedPaths": ["/*"]}),
            "'includedPaths' must be an object, not \"/*\"",
        ),
        (
            json!({"includedPaths": [{"indexes": []}]}),
            "'path' is missing",
        ),
        (
            json!({"includedPaths": [{"path": 7}]}),
            "'path' must be a string, not 7",
        ),
        (
            json!({"includedPaths": [{"path": "/*"}, {"path": "/a"}]}),
            "path '/a' could not be accepted",
        ),
        (
            json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "x"}]}),
            "path 'x' could not",
        ),
        (
            json!({"includedPaths": [{"path": "/a/?"}]}),
            "special mandatory indexing path",
        ),
        (
            json!({"excludedPaths": [{"path": "/a/?"}]}),
            "special mandatory indexing path",
        ),
        (
            json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/*"}]}),
            "'/*' is in both",
        ),
        (
            json!({"includedPaths": [{"path": "/"}], "excludedPaths": [{"path": "/*"}]}),
            "'/*' is in both",
        ),
        (
            json!({"includedPaths": [{"path": "/*"}, {"path": "/a/?"}], "excludedPaths": [{"path": "/\"a\"/?"}]}),
            "'/a/?' is in both",
        ),
        (
            json!({"includedPaths": [{"path": "/*"}, {"path": "/"}]}),
            "'/*' appears twice in 'includedPaths'",
        ),
        (
            json!({"excludedPaths": [{"path": "/a/?"}, {"path": "/\"a\"/?"}]}),
            "appears twice in 'excludedPaths'",
        ),
        (
            json!({"includedPaths": many(INDEX_PATHS_MAX + 1)}),
            "has 1501 elements",
        ),
        (
            json!({"compositeIndexes": [{"path": "/a"}]}),
            "'compositeIndexes' must be an array",
        ),
        (
            json!({"compositeIndexes": [[{"path": "/a"}]]}),
            "at least two paths",
        ),
        (json!({"compositeIndexes": [[]]}), "at least two paths"),
        (json!({"compositeIndexes": [nine]}), "has 9 elements"),
        (json!({"compositeIndexes": composites}), "has 101 elements"),
        (
            json!({"compositeIndexes": [pair("/a", "/b/?")]}),
            "composite index path '/b/?' could not",
        ),
        (
            json!({"compositeIndexes": [pair("/a", "/*")]}),
            "composite index path '/*' could not",
        ),
        (
            json!({"compositeIndexes": [pair("/a", "/b/[]/c")]}),
            "composite index path '/b/[]/c' could not",
        ),
        (
            json!({"compositeIndexes": [pair("/a", "/a")]}),
            "'/a' appears twice in one composite",
        ),
        (
            json!({"compositeIndexes": [pair("/a", "/b"), pair("/a", "/b")]}),
            "different from every other",
        ),
        (
            json!({"compositeIndexes": [[{"path": "/a"}, {"path": "/b", "order": "up"}]]}),
            "not \"up\"",
        ),
        (
            json!({"compositeIndexes": [[{"path": "/a"}, {}]]}),
            "'path' is missing",
        ),
        (
            json!({"spatialIndexes": [{"types": ["Point"]}]}),
            "'path' is missing",
        ),
        (
            json!({"spatialIndexes": [{"path": "/loc"}]}),
            "path '/loc' could not be accepted",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "types": ["Circle"]}]}),
            "not \"Circle\"",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "types": []}]}),
            "at least one type",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "types": ["Point", "point"]}]}),
            "without duplicates",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*"}, {"path": "/l/*"}]}),
            "'/l/*' appears twice",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "boundingBox": {"xmin": 0, "ymin": 0, "xmax": 0, "ymax": 1}}]}),
            "xmin below xmax",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "boundingBox": {"xmin": 0, "ymin": 0, "xmax": 1}}]}),
            "'ymax' is missing",
        ),
        (
            json!({"spatialIndexes": [{"path": "/l/*", "boundingBox": {"xmin": "0", "ymin": 0, "xmax": 1, "ymax": 1}}]}),
            "'xmin' must be a number, not \"0\"",
        ),
        (
            json!({"vectorIndexes": [{"type": "flat"}]}),
            "'path' is missing",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v"}]}),
            "'type' is missing",
        ),
        (
            json!({"vectorIndexes": [{"path": "v", "type": "flat"}]}),
            "path 'v' could not be accepted",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "notFlat"}]}),
            "Index Type::notFlat is invalid",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "flat"}, {"path": "/\"v\"", "type": "diskANN"}]}),
            "appears twice in 'vectorIndexes'",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "flat", "quantizationByteSize": "8"}]}),
            "'quantizationByteSize' must be a whole number, not \"8\"",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "flat", "indexingSearchListSize": 30.5}]}),
            "'indexingSearchListSize' must be a whole number, not 30.5",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "diskANN", "quantizerType": 1}]}),
            "'quantizerType' must be a string",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "diskANN", "vectorIndexShardKey": ["country"]}]}),
            "The Vector Indexing Policy has an invalid Shard Path: country.",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "diskANN", "vectorIndexShardKey": ["/a", "/b", "/c"]}]}),
            "The number of shard paths defined in the Vector Indexing Policy: 3 exceeds the maximum: 1.",
        ),
        (
            json!({"vectorIndexes": [{"path": "/v", "type": "diskANN", "vectorIndexShardKey": "/country"}]}),
            "One of the specified inputs is invalid",
        ),
        (
            json!({"fullTextIndexes": [{"path": "abstract"}]}),
            "Full-text index specification at index (0) contains invalid path",
        ),
        (
            json!({"fullTextIndexes": [{"path": "/a"}, {"not_path": "abstract"}]}),
            "Missing path in full-text index specification at index (1)",
        ),
        (
            json!({"fullTextIndexes": [{"path": "/a"}, {"path": "/a"}]}),
            "appears twice in 'fullTextIndexes'",
        ),
    ];
    for (input, fragment) in cases {
        refused(input, fragment);
    }
}
