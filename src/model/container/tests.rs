use serde_json::json;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// A minimal definition with these properties added or replaced.
fn body(extra: Value) -> Map<String, Value> {
    let mut body = object(
        json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}),
    );
    body.extend(object(extra));
    body
}

fn create(extra: Value) -> Result<ContainerDefinition> {
    ContainerDefinition::from_json(&body(extra))
}

fn created(extra: Value) -> ContainerDefinition {
    create(extra.clone()).unwrap_or_else(|error| panic!("{extra}: {error}"))
}

fn refused<T: std::fmt::Debug>(result: Result<T>, status: u16, fragment: &str) {
    let error = result.expect_err(fragment);
    assert_eq!(error.status(), status, "{error}");
    assert!(
        error.message.contains(fragment),
        "'{fragment}' is not in '{error}'"
    );
    assert!(error.message.chars().count() < 500, "{error}");
}

fn embeddings(dimensions: i64) -> Value {
    json!({"vectorEmbeddings": [
        {"path": "/v", "dataType": "float32", "dimensions": dimensions, "distanceFunction": "cosine"}
    ]})
}

#[test]
fn defaults_are_filled_in_as_the_server_returns_them() {
    let definition = created(json!({"defaultTtl": 3600}));
    assert_eq!(
        Value::Object(definition.to_json()),
        json!({
            "id": "c",
            "indexingPolicy": {
                "indexingMode": "consistent", "automatic": true,
                "includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/\"_etag\"/?"}]
            },
            "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
            "uniqueKeyPolicy": {"uniqueKeys": []},
            "conflictResolutionPolicy": {
                "mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""
            },
            "geospatialConfig": {"type": "Geography"},
            "defaultTtl": 3600,
        })
    );
}

#[test]
fn system_and_unknown_properties_are_dropped() {
    let definition = created(
        json!({"_rid": "x", "_self": "y", "_etag": "z", "_ts": 1, "_docs": "docs/",
                                    "statistics": [], "newInTheNextVersion": {"a": 1}}),
    );
    assert_eq!(definition, created(json!({})));
}

#[test]
fn everything_valid_is_returned_survives_the_disk_and_can_be_put_back() {
    let cases = [
        json!({"defaultTtl": -1}),
        json!({"defaultTtl": 2147483647}),
        json!({"analyticalStorageTtl": -1}),
        json!({"analyticalStorageTtl": 0}),
        json!({"analyticalStorageTtl": 86400}),
        json!({"defaultTtl": 60, "ttlPropertyPath": "/createdAt"}),
        json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/email", "/a/b"]}, {"paths": ["/\"x y\""]}]}}),
        json!({"conflictResolutionPolicy": {"mode": "LastWriterWins", "conflictResolutionPath": "/when",
                                            "conflictResolutionProcedure": ""}}),
        json!({"conflictResolutionPolicy": {"mode": "Custom", "conflictResolutionPath": "",
                                            "conflictResolutionProcedure": "dbs/d/colls/c/sprocs/s"}}),
        json!({"computedProperties": [{"name": "cp_x", "query": "SELECT VALUE LOWER(c.x) FROM c"}]}),
        json!({"computedProperties": []}),
        json!({"changeFeedPolicy": {"retentionDuration": 10}}),
        json!({"changeFeedPolicy": {"retentionDuration": 0}}),
        json!({"geospatialConfig": {"type": "Geometry"}}),
        json!({"vectorEmbeddingPolicy": embeddings(4096)}),
        json!({"fullTextPolicy": {"defaultLanguage": "en-US"}}),
        json!({"fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/abstract"}]}}),
        json!({"fullTextPolicy": {"defaultLanguage": "de-DE",
                                  "fullTextPaths": [{"path": "/text", "language": "fr-FR"}]}}),
        json!({"clientEncryptionPolicy": {"policyFormatVersion": 2, "includedPaths": [
            {"path": "/ssn", "clientEncryptionKeyId": "dek", "encryptionType": "Deterministic",
             "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256"}]}}),
        json!({"materializedViewDefinition": {"sourceCollectionId": "s", "definition": "SELECT c.a FROM c"}}),
        json!({"globalSecondaryIndexDefinition": {"sourceCollectionId": "s", "definition": "SELECT c.a FROM c"}}),
    ];
    for extra in cases {
        let definition = created(extra.clone());
        let json = definition.to_json();
        for (name, value) in object(extra.clone()) {
            assert_eq!(json.get(&name), Some(&value), "{name}");
        }
        let bytes = rmp_serde::to_vec(&definition).unwrap();
        assert_eq!(
            rmp_serde::from_slice::<ContainerDefinition>(&bytes).unwrap(),
            definition,
            "{extra}"
        );
        let answer =
            with_system_properties(Owner::Container, json, "r", "dbs/d/colls/c/", "\"e\"", 1);
        assert_eq!(
            definition.replaced_by(&answer).as_ref(),
            Ok(&definition),
            "{extra}"
        );
        assert_eq!(
            ContainerDefinition::from_json(&answer).as_ref(),
            Ok(&definition),
            "{extra}"
        );
    }
}

#[test]
fn values_are_brought_into_their_usual_form() {
    let cases = [
        (json!({"defaultTtl": null}), "defaultTtl", None),
        (json!({"defaultTtl": 60.0}), "defaultTtl", Some(json!(60))),
        (
            json!({"analyticalStorageTtl": 5.0}),
            "analyticalStorageTtl",
            Some(json!(5)),
        ),
        (
            json!({"analyticalStorageTtl": null}),
            "analyticalStorageTtl",
            None,
        ),
        (
            json!({"geospatialConfig": {"type": "geometry"}}),
            "geospatialConfig",
            Some(json!({"type": "Geometry"})),
        ),
        (
            json!({"uniqueKeyPolicy": null}),
            "uniqueKeyPolicy",
            Some(json!({"uniqueKeys": []})),
        ),
        (
            json!({"uniqueKeyPolicy": {}}),
            "uniqueKeyPolicy",
            Some(json!({"uniqueKeys": []})),
        ),
        (
            json!({"conflictResolutionPolicy": {"mode": "lastWriterWins"}}),
            "conflictResolutionPolicy",
            Some(
                json!({"mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""}),
            ),
        ),
        (
            json!({"conflictResolutionPolicy": {"mode": "custom"}}),
            "conflictResolutionPolicy",
            Some(
                json!({"mode": "Custom", "conflictResolutionPath": "", "conflictResolutionProcedure": ""}),
            ),
        ),
    ];
    for (extra, name, expected) in cases {
        assert_eq!(
            created(extra.clone()).to_json().get(name),
            expected.as_ref(),
            "{extra}"
        );
    }
}

#[test]
fn bad_ids_and_missing_parts() {
    let long = "x".repeat(256);
    for id in ["", "a/b", "a\\b", "a#b", "a?b", "a ", &long] {
        refused(create(json!({"id": id})), 400, "less than '255' characters");
    }
    refused(
        create(json!({"id": 5})),
        400,
        "'id' must be a string, not 5",
    );
    refused(create(json!({"id": null})), 400, "'id' is missing");
    refused(
        create(json!({"partitionKey": null})),
        400,
        "'partitionKey' is missing",
    );
    refused(
        create(json!({"partitionKey": {"paths": ["/pk/"]}})),
        400,
        "trailing slash",
    );
    refused(
        ContainerDefinition::from_json(&Map::new()),
        400,
        "'id' is missing",
    );
}

#[test]
fn a_property_in_the_wrong_case_is_a_mistake() {
    refused(
        create(json!({"defaultTTL": 60})),
        400,
        "'defaultTTL' is written 'defaultTtl'",
    );
    refused(create(json!({"DefaultTtl": 60})), 400, "'defaultTtl'");
    refused(
        create(json!({"indexingpolicy": {}})),
        400,
        "'indexingPolicy'",
    );
    refused(
        create(json!({"fulltextPolicy": {}})),
        400,
        "'fullTextPolicy'",
    );
    refused(
        created(json!({})).replaced_by(&body(json!({"defaultTTL": 60}))),
        400,
        "'defaultTtl'",
    );
}

#[test]
fn time_to_live_rules() {
    for bad in [
        json!(0),
        json!(-2),
        json!(-10),
        json!(1.5),
        json!("60"),
        json!(true),
        json!({}),
        json!(2147483648i64),
    ] {
        let message = bad.to_string();
        refused(create(json!({"defaultTtl": bad})), 400, &message);
    }
    for ttl in [json!(-1), json!(60)] {
        let clash = json!({"defaultTtl": ttl, "indexingPolicy": {"indexingMode": "none"}});
        refused(
            create(clash.clone()),
            400,
            "Indexing mode value cannot be 'none'",
        );
        refused(create(clash.clone()), 400, "defaultTtl");
        // From both sides: TTL on while the mode is none, and the mode to none while TTL is on.
        let unindexed = created(json!({"indexingPolicy": {"indexingMode": "none"}}));
        refused(
            unindexed.replaced_by(&body(clash.clone())),
            400,
            "Indexing mode value cannot be 'none'",
        );
        let living = created(json!({"defaultTtl": ttl}));
        refused(
            living.replaced_by(&body(clash)),
            400,
            "Indexing mode value cannot be 'none'",
        );
    }
    created(json!({"defaultTtl": 60, "indexingPolicy": {"indexingMode": "lazy"}}));
    created(
        json!({"defaultTtl": null, "indexingPolicy": {"indexingMode": "none", "automatic": false}}),
    );
    refused(
        create(json!({"ttlPropertyPath": "/t"})),
        400,
        "'ttlPropertyPath' \"/t\" needs a 'defaultTtl'",
    );
}

#[test]
fn bad_policies_are_refused_and_the_value_is_named() {
    let keys = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"paths": [format!("/k{i}")]}))
            .collect()
    };
    let paths = |n: usize| -> Vec<Value> { (0..n).map(|i| json!(format!("/k{i}"))).collect() };
    let computed: Vec<_> = (0..21)
        .map(|i| json!({"name": format!("c{i}"), "query": "SELECT VALUE 1 FROM c"}))
        .collect();
    let encrypted = |name: &str, value: Value| {
        let mut entry = json!({"path": "/ssn", "clientEncryptionKeyId": "dek", "encryptionType": "Randomized",
                               "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256"});
        entry[name] = value;
        json!({"clientEncryptionPolicy": {"includedPaths": [entry]}})
    };
    let embedding = |name: &str, value: Value| {
        let mut policy = embeddings(8);
        policy["vectorEmbeddings"][0][name] = value;
        json!({"vectorEmbeddingPolicy": policy})
    };
    let cases = [
        (
            json!({"uniqueKeyPolicy": []}),
            "'uniqueKeyPolicy' must be an object",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": {}}}),
            "'uniqueKeys' must be an array",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{}]}}),
            "'paths' is missing",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": []}]}}),
            "at least one path",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": [1]}]}}),
            "'paths' must be an array of strings, not 1",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a/?"]}]}}),
            "'/a/?' could not be accepted",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a", "/\"a\""]}]}}),
            "without duplicates",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a", "/b"]}, {"paths": ["/b", "/a"]}]}}),
            "different",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": keys(11)}}),
            "'uniqueKeys' has 11 elements",
        ),
        (
            json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": paths(17)}]}}),
            "'paths' has 17 elements",
        ),
        (
            json!({"indexingPolicy": {"indexingMode": "eager"}}),
            "not \"eager\"",
        ),
        (json!({"analyticalStorageTtl": -2}), "not -2"),
        (
            json!({"analyticalStorageTtl": 2147483648i64}),
            "not 2147483648",
        ),
        (json!({"analyticalStorageTtl": "60"}), "not \"60\""),
        (
            json!({"defaultTtl": 60, "ttlPropertyPath": 5}),
            "'ttlPropertyPath' must be a string, not 5",
        ),
        (
            json!({"defaultTtl": 60, "ttlPropertyPath": "t"}),
            "path 't' could not be accepted",
        ),
        (
            json!({"conflictResolutionPolicy": {"mode": "FirstWins"}}),
            "not \"FirstWins\"",
        ),
        (
            json!({"conflictResolutionPolicy": {"conflictResolutionPath": "ts"}}),
            "path 'ts' could not be accepted",
        ),
        (
            json!({"conflictResolutionPolicy": {"conflictResolutionPath": 1}}),
            "must be a string, not 1",
        ),
        (
            json!({"conflictResolutionPolicy": {"mode": "Custom", "conflictResolutionPath": "/a"}}),
            "'/a' goes with",
        ),
        (
            json!({"conflictResolutionPolicy": {"conflictResolutionProcedure": "p"}}),
            "'p' goes with",
        ),
        (
            json!({"conflictResolutionPolicy": "Custom"}),
            "must be an object",
        ),
        (json!({"geospatialConfig": {}}), "'type' is missing"),
        (
            json!({"geospatialConfig": {"type": "Flat"}}),
            "not \"Flat\"",
        ),
        (
            json!({"geospatialConfig": {"type": "Geometry"}, "indexingPolicy": {"spatialIndexes": [{"path": "/l/*"}]}}),
            "the spatial index on '/l/*' needs a 'boundingBox'",
        ),
        (
            json!({"computedProperties": {}}),
            "One of the specified inputs is invalid",
        ),
        (
            json!({"computedProperties": computed}),
            "'computedProperties' has 21 elements",
        ),
        (
            json!({"computedProperties": [{"query": "SELECT VALUE 1 FROM c"}]}),
            "'name' is missing",
        ),
        (
            json!({"computedProperties": [{"name": "x"}]}),
            "'query' is missing",
        ),
        (
            json!({"computedProperties": [{"name": "", "query": "SELECT VALUE 1 FROM c"}]}),
            "name ''",
        ),
        (
            json!({"computedProperties": [{"name": "_ts", "query": "SELECT VALUE 1 FROM c"}]}),
            "name '_ts'",
        ),
        (
            json!({"computedProperties": [{"name": "x", "query": "SELECT VALUE 1 FROM c"},
                                          {"name": "x", "query": "SELECT VALUE 2 FROM c"}]}),
            "name 'x'",
        ),
        (
            json!({"computedProperties": [{"name": "x", "query": "SELECT c.a FROM c"}]}),
            "not 'SELECT c.a FROM c'",
        ),
        (
            json!({"computedProperties": [{"name": "x", "query": ""}]}),
            "must be 'SELECT VALUE",
        ),
        (
            json!({"changeFeedPolicy": {}}),
            "'retentionDuration' is missing",
        ),
        (
            json!({"changeFeedPolicy": {"retentionDuration": -1}}),
            "not -1",
        ),
        (
            json!({"changeFeedPolicy": {"retentionDuration": 1.5}}),
            "not 1.5",
        ),
        (
            json!({"changeFeedPolicy": {"retentionDuration": 10_000_000}}),
            "not 10000000",
        ),
        (
            json!({"clientEncryptionPolicy": {"policyFormatVersion": 3}}),
            "must be 1 or 2, not 3",
        ),
        (
            encrypted("path", json!("ssn")),
            "path 'ssn' could not be accepted",
        ),
        (
            encrypted("clientEncryptionKeyId", json!("")),
            "'clientEncryptionKeyId' is missing",
        ),
        (encrypted("encryptionType", json!("Plain")), "not \"Plain\""),
        (
            encrypted("encryptionAlgorithm", json!("ROT13")),
            "not \"ROT13\"",
        ),
        (
            json!({"materializedViewDefinition": {}}),
            "'definition' is missing",
        ),
        (
            json!({"globalSecondaryIndexDefinition": "x"}),
            "must be an object",
        ),
        (
            json!({"vectorEmbeddingPolicy": {}}),
            "'vectorEmbeddings' is missing",
        ),
        (
            json!({"vectorEmbeddingPolicy": {"vectorEmbeddings": {}}}),
            "must be an array",
        ),
        (
            embedding("path", json!("v")),
            "path 'v' could not be accepted",
        ),
        (
            embedding("dataType", json!("float33")),
            "The Vector Embedding Policy has an invalid DataType:float33",
        ),
        (
            embedding("distanceFunction", json!("handMeasured")),
            "The Vector Embedding Policy has an invalid DistanceFunction:handMeasured",
        ),
        (
            embedding("dimensions", json!(8000)),
            "The Vector Embedding Policy has Dimensions:8000 which is more than the maximum supported value",
        ),
        (
            embedding("dimensions", json!(-1)),
            "The Vector Embedding Policy has Dimensions:-1",
        ),
        (embedding("dimensions", json!(0)), "Dimensions:0"),
        (embedding("dimensions", json!("8")), "Dimensions:\"8\""),
        (
            embedding("dimensions", json!(null)),
            "'dimensions' is missing",
        ),
        (
            json!({"vectorEmbeddingPolicy": {"vectorEmbeddings": [
                embeddings(8)["vectorEmbeddings"][0], embeddings(8)["vectorEmbeddings"][0]]}}),
            "'/v' appears twice",
        ),
        (
            json!({"fullTextPolicy": {}}),
            "'defaultLanguage' is missing",
        ),
        (
            json!({"fullTextPolicy": {"defaultLanguage": "spa-SPA"}}),
            "The Full Text Policy contains an unsupported language spa-SPA. Supported languages are:",
        ),
        (
            json!({"fullTextPolicy": {"defaultLanguage": ""}}),
            "The Full Text Policy contains an unsupported language . Supported",
        ),
        (
            json!({"fullTextPolicy": {"defaultLanguage": "en-US",
                                      "fullTextPaths": [{"path": "/a", "language": "spa-SPA"}]}}),
            "contains an unsupported language spa-SPA",
        ),
        (
            json!({"fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "abstract"}]}}),
            "The Full Text Policy contains an invalid Path: abstract",
        ),
        (
            json!({"fullTextPolicy": {"defaultLanguage": "en-US", "fullTextPaths": [{"path": "/a"}, {"path": "/a"}]}}),
            "'/a' appears twice",
        ),
        (
            json!({"indexingPolicy": {"fullTextIndexes": [{"path": "/path"}]}}),
            "The path of the Full Text Index /path does not match the path specified in the Full Text Policy",
        ),
    ];
    for (extra, fragment) in cases {
        refused(create(extra.clone()), 400, fragment);
        // A PUT is checked as a create is.
        refused(created(json!({})).replaced_by(&body(extra)), 400, fragment);
    }
}

#[test]
fn vector_indexes_must_fit_their_embeddings() {
    let index = |index: Value, dimensions: i64| {
        create(json!({
            "vectorEmbeddingPolicy": embeddings(dimensions),
            "indexingPolicy": {"vectorIndexes": [index]},
        }))
    };
    for (good, dimensions) in [
        (json!({"path": "/v", "type": "flat"}), 505),
        (json!({"path": "/\"v\"", "type": "flat"}), 3),
        (
            json!({"path": "/v", "type": "quantizedFlat", "quantizationByteSize": 256}),
            256,
        ),
        (
            json!({"path": "/v", "type": "quantizedFlat", "quantizationByteSize": 512}),
            4096,
        ),
        (
            json!({"path": "/v", "type": "diskANN", "quantizationByteSize": 1, "indexingSearchListSize": 25}),
            4096,
        ),
        (
            json!({"path": "/v", "type": "diskANN", "indexingSearchListSize": 500}),
            4096,
        ),
    ] {
        let definition = index(good.clone(), dimensions).unwrap();
        assert_eq!(
            definition.to_json()["indexingPolicy"]["vectorIndexes"],
            json!([good])
        );
    }
    for (bad, dimensions, fragment) in [
        (
            json!({"path": "/w", "type": "flat"}),
            8,
            "path::/w not matching in Embedding's path.",
        ),
        (
            json!({"path": "/v", "type": "flat"}),
            506,
            "more than the maximum supported value 505",
        ),
        (
            json!({"path": "/v", "type": "quantizedFlat", "quantizationByteSize": 0}),
            256,
            "The Vector Indexing Policy parameter QuantizationByteSize value :: 0 is out of range. The allowed range is \
             between 1 and 256.",
        ),
        (
            json!({"path": "/v", "type": "quantizedFlat", "quantizationByteSize": 513}),
            550,
            "QuantizationByteSize value :: 513 is out of range. The allowed range is between 1 and 512.",
        ),
        (
            json!({"path": "/v", "type": "diskANN", "indexingSearchListSize": 5}),
            256,
            "IndexingSearchListSize value :: 5 is out of range. The allowed range is between 25 and 500.",
        ),
        (
            json!({"path": "/v", "type": "diskANN", "indexingSearchListSize": 501}),
            256,
            "value :: 501 is out of range",
        ),
    ] {
        refused(index(bad, dimensions), 400, fragment);
    }
    refused(
        create(json!({"indexingPolicy": {"vectorIndexes": [{"path": "/v", "type": "flat"}]}})),
        400,
        "The Vector Indexing Policy's path::/v not matching in Embedding's path.",
    );
}

#[test]
fn a_replacement_resets_what_it_leaves_out() {
    let rich = created(json!({
        "defaultTtl": 60,
        "ttlPropertyPath": "/t",
        "analyticalStorageTtl": 5,
        "computedProperties": [{"name": "x", "query": "SELECT VALUE 1 FROM c"}],
        "geospatialConfig": {"type": "Geometry"},
        "changeFeedPolicy": {"retentionDuration": 5},
        "fullTextPolicy": {"defaultLanguage": "en-US"},
        "vectorEmbeddingPolicy": embeddings(8),
        "indexingPolicy": {"indexingMode": "lazy", "vectorIndexes": [{"path": "/v", "type": "flat"}]},
    }));
    assert_eq!(rich.replaced_by(&body(json!({}))), Ok(created(json!({}))));
    for off in [json!({}), json!({"defaultTtl": null})] {
        let living = created(json!({"defaultTtl": 60}));
        assert_eq!(
            living.replaced_by(&body(off)).unwrap().default_ttl,
            DefaultTtl::Off
        );
    }
    let on = created(json!({}))
        .replaced_by(&body(json!({"defaultTtl": -1})))
        .unwrap();
    assert_eq!(on.default_ttl, DefaultTtl::NoDefault);
}

#[test]
fn a_replacement_keeps_what_is_set_at_creation() {
    let extra = json!({
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/email", "/a/b"]}]},
        "conflictResolutionPolicy": {"mode": "Custom", "conflictResolutionProcedure": "p"},
        "clientEncryptionPolicy": {"policyFormatVersion": 1, "includedPaths": []},
        "materializedViewDefinition": {"definition": "SELECT c.a FROM c"},
    });
    let definition = created(extra.clone());
    assert_eq!(
        definition.replaced_by(&body(json!({}))).as_ref(),
        Ok(&definition)
    );
    assert_eq!(
        definition.replaced_by(&body(extra)).as_ref(),
        Ok(&definition)
    );
    let reordered = json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/a/b", "/email"]}]}});
    assert_eq!(
        definition.replaced_by(&body(reordered)).as_ref(),
        Ok(&definition)
    );

    for keys in [
        json!([]),
        json!([{"paths": ["/email"]}]),
        json!([{"paths": ["/email", "/a/b"]}, {"paths": ["/c"]}]),
    ] {
        let change = json!({"uniqueKeyPolicy": {"uniqueKeys": keys}});
        refused(
            definition.replaced_by(&body(change)),
            403,
            "unique keys of the container 'c' cannot be changed",
        );
    }
    let added = json!({"uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/email"]}]}});
    refused(
        created(json!({})).replaced_by(&body(added)),
        403,
        "cannot be changed",
    );
    for change in [
        json!({"conflictResolutionPolicy": {"mode": "LastWriterWins"}}),
        json!({"clientEncryptionPolicy": {"policyFormatVersion": 2, "includedPaths": []}}),
        json!({"materializedViewDefinition": {"definition": "SELECT c.b FROM c"}}),
        json!({"globalSecondaryIndexDefinition": {"definition": "SELECT c.b FROM c"}}),
    ] {
        refused(
            definition.replaced_by(&body(change)),
            400,
            "is set when it is created and cannot be changed",
        );
    }
}

#[test]
fn a_replacement_is_of_the_same_container() {
    let definition = created(json!({}));
    refused(
        definition.replaced_by(&body(json!({"id": "other"}))),
        400,
        "the id 'other' in the body is not that",
    );
    refused(
        definition.replaced_by(&body(json!({"id": null}))),
        400,
        "'id' is missing",
    );

    for same in [
        json!({"paths": ["/pk"], "kind": "Hash", "version": 2}),
        json!({"paths": ["/pk"]}),
        json!({"paths": ["/pk"], "kind": null, "version": null}),
        json!(null),
    ] {
        let put = body(json!({"partitionKey": same.clone()}));
        assert_eq!(
            definition.replaced_by(&put).as_ref(),
            Ok(&definition),
            "{same}"
        );
    }
    for other in [
        json!({"paths": ["/other"]}),
        json!({"paths": ["/pk"], "version": 1}),
    ] {
        let put = body(json!({"partitionKey": other}));
        refused(
            definition.replaced_by(&put),
            400,
            "the partition key of the container 'c' cannot be changed",
        );
    }
    refused(
        definition.replaced_by(&body(json!({"partitionKey": "/pk"}))),
        400,
        "must be an object",
    );
}

#[test]
fn vectors_can_be_added_and_removed_but_not_changed() {
    let vectors = |dimensions: i64, kind: &str| {
        json!({"vectorEmbeddingPolicy": embeddings(dimensions),
               "indexingPolicy": {"vectorIndexes": [{"path": "/v", "type": kind}]}})
    };
    let plain = created(json!({}));
    let definition = created(vectors(256, "flat"));
    assert_eq!(
        plain.replaced_by(&body(vectors(256, "flat"))).as_ref(),
        Ok(&definition)
    );
    assert_eq!(
        definition.replaced_by(&body(json!({}))).as_ref(),
        Ok(&plain)
    );
    assert_eq!(
        definition.replaced_by(&body(vectors(256, "flat"))).as_ref(),
        Ok(&definition)
    );

    refused(
        definition.replaced_by(&body(
            json!({"indexingPolicy": vectors(256, "flat")["indexingPolicy"]}),
        )),
        400,
        "The Vector Indexing Policy's path::/v not matching in Embedding's path.",
    );
    refused(
        definition.replaced_by(&body(vectors(256, "quantizedFlat"))),
        400,
        "Paths in existing vector indexing policy cannot be modified in Collection Replace",
    );
    refused(
        definition.replaced_by(&body(vectors(384, "flat"))),
        400,
        "Paths in existing embedding policy cannot be modified in Collection Replace",
    );
}
