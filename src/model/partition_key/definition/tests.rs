use super::*;

fn definition(value: Value) -> PartitionKeyDefinition {
    PartitionKeyDefinition::from_json(&value).unwrap()
}

fn key(header: &str) -> PartitionKey {
    PartitionKey::parse_header(header).unwrap()
}

#[test]
fn negative_zero_is_zero() {
    let hash = definition(json!({"paths": ["/n"], "version": 2}));
    let item = json!({"n": -0.0});
    assert_eq!(
        hash.epk(&hash.extract(item.as_object().unwrap()).unwrap()),
        hash.epk(&key("[0]"))
    );
}

#[test]
fn definitions_are_read_with_their_defaults() {
    let cases = [
        (
            json!({"paths": ["/pk"]}),
            json!({"paths": ["/pk"], "kind": "Hash", "version": 1}),
        ),
        (
            json!({"paths": ["/pk"], "kind": null, "version": null}),
            json!({"paths": ["/pk"], "kind": "Hash", "version": 1}),
        ),
        (
            json!({"paths": ["/a/b"], "kind": "hash", "version": 2}),
            json!({"paths": ["/a/b"], "kind": "Hash", "version": 2}),
        ),
        (
            json!({"paths": ["/a", "/b", "/c"], "kind": "MultiHash", "version": 2}),
            json!({"paths": ["/a", "/b", "/c"], "kind": "MultiHash", "version": 2}),
        ),
        (
            json!({"paths": ["/a"], "kind": "MultiHash"}),
            json!({"paths": ["/a"], "kind": "MultiHash", "version": 2}),
        ),
        (
            json!({"paths": ["/_partitionKey"], "systemKey": true, "version": 2}),
            json!({"paths": ["/_partitionKey"], "kind": "Hash", "version": 2, "systemKey": true}),
        ),
    ];
    for (given, echoed) in cases {
        let definition = definition(given);
        assert_eq!(definition.to_json(), echoed);
        let bytes = rmp_serde::to_vec(&definition).unwrap();
        assert_eq!(
            rmp_serde::from_slice::<PartitionKeyDefinition>(&bytes).unwrap(),
            definition
        );
    }
}

#[test]
fn bad_definitions_are_refused() {
    let cases = [
        (json!("/pk"), "must be an object"),
        (json!({}), "'paths' must be a list"),
        (json!({"paths": []}), "'paths' must be a list"),
        (json!({"paths": "/pk"}), "'paths' must be a list"),
        (json!({"paths": [1]}), "a path must be a string"),
        (
            json!({"paths": ["pk"]}),
            "component definition path 'pk' could not be accepted",
        ),
        (
            json!({"paths": ["/pk/"]}),
            "not contain a trailing slash or wildcard",
        ),
        (
            json!({"paths": ["/a", "/b"]}),
            "Too many partition key paths",
        ),
        (
            json!({"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash"}),
            "Too many partition key paths",
        ),
        (
            json!({"paths": ["/a", "/\"a\""], "kind": "MultiHash"}),
            "named only once",
        ),
        (
            json!({"paths": ["/a"], "kind": "MultiHash", "version": 1}),
            "needs 'version' 2",
        ),
        (json!({"paths": ["/a"], "kind": "Range"}), "\"Range\""),
        (json!({"paths": ["/a"], "version": 3}), "must be 1 or 2"),
        (json!({"paths": ["/a"], "version": "2"}), "must be 1 or 2"),
        (json!({"paths": ["/a"], "systemKey": 1}), "'systemKey'"),
    ];
    for (given, fragment) in cases {
        let error = PartitionKeyDefinition::from_json(&given).unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(error.message.contains(fragment), "{given}: {error}");
    }
}

#[test]
fn keys_are_extracted_from_items() {
    let hash = json!({"paths": ["/a/b"], "version": 2});
    let multi = json!({"paths": ["/t", "/u", "/v"], "kind": "MultiHash"});
    let system = json!({"paths": ["/_partitionKey"], "systemKey": true});
    let cases = [
        (&hash, json!({"a": {"b": "x"}}), "[\"x\"]"),
        (&hash, json!({"a": {"b": 5}}), "[5]"),
        (&hash, json!({"a": {"b": null}}), "[null]"),
        (&hash, json!({"a": {"b": false}}), "[false]"),
        (&hash, json!({"a": {}}), "[{}]"),
        (&hash, json!({"a": "b"}), "[{}]"),
        (&multi, json!({"t": "T", "v": 1}), "[\"T\",{},1]"),
        (&system, json!({"_partitionKey": "x"}), "[\"x\"]"),
        (&system, json!({}), "[]"),
    ];
    for (given, item, expected) in cases {
        let extracted = definition(given.clone())
            .extract(item.as_object().unwrap())
            .unwrap();
        assert_eq!(extracted, key(expected), "{item}");
    }
    for value in [json!({}), json!([1])] {
        let item = json!({"a": {"b": value}});
        let extracted = definition(hash.clone()).extract(item.as_object().unwrap());
        assert_eq!(extracted.unwrap(), key("[{}]"), "{item}");
    }
}

#[test]
fn keys_have_a_longest_length() {
    let limit = KEY_BYTES_MAX;
    for version in [1, 2] {
        let definition = definition(json!({"paths": ["/pk"], "version": version}));
        let item = |length| Map::from_iter([("pk".to_owned(), Value::from("k".repeat(length)))]);
        let longest = definition.extract(&item(limit)).unwrap();
        assert_eq!(definition.complete(longest.clone()).unwrap(), longest);
        let error = definition.extract(&item(limit + 1)).unwrap_err();
        assert_eq!(error.status(), 400);
        assert!(
            error.message.contains(&limit.to_string()) && error.message.len() < 300,
            "{error}"
        );
        assert!(
            definition
                .complete(PartitionKey(vec![KeyComponent::String(
                    "k".repeat(limit + 1)
                )]))
                .is_err()
        );
    }
}

#[test]
fn point_operations_need_all_levels() {
    let hash = definition(json!({"paths": ["/pk"]}));
    let multi = definition(json!({"paths": ["/t", "/u"], "kind": "MultiHash"}));
    let system = definition(json!({"paths": ["/_partitionKey"], "systemKey": true}));
    for (definition, header) in [
        (&hash, "[1]"),
        (&hash, "[{}]"),
        (&multi, "[1,2]"),
        (&system, "[]"),
    ] {
        assert_eq!(definition.complete(key(header)).unwrap(), key(header));
    }
    assert_eq!(system.complete(key("[{}]")).unwrap(), key("[]"));
    for (definition, header) in [
        (&hash, "[]"),
        (&hash, "[1,2]"),
        (&multi, "[1]"),
        (&multi, "[1,2,3]"),
    ] {
        let error = definition.complete(key(header)).unwrap_err();
        assert_eq!((error.status(), error.substatus()), (400, 1001), "{header}");
    }
}

#[test]
fn hierarchical_keys_hash_level_by_level() {
    let multi = definition(json!({"paths": ["/t", "/u", "/v"], "kind": "MultiHash"}));
    let single = definition(json!({"paths": ["/t"], "version": 2}));
    let hash = |header: &str| single.epk(&key(header)).to_hex();
    let t = "017A5127EDEAEAFD8E3C9E8C0081CB34";
    let cases = [
        (r#"["T"]"#, t.to_owned()),
        (
            r#"["T","U"]"#,
            format!("{t}179BE6732892B835A99D02FFA3F050F5"),
        ),
        (
            r#"["tenant",1,true]"#,
            format!(
                "3B67F777541374F849FC7793DE5DF915{}{}",
                hash("[1]"),
                hash("[true]")
            ),
        ),
        (
            r#"["partitionKey",null,false]"#,
            format!(
                "013AEFCF77FA271571CF665A58C933F1{}{}",
                hash("[null]"),
                hash("[false]")
            ),
        ),
        ("[]", String::new()),
    ];
    for (header, expected) in cases {
        assert_eq!(multi.epk(&key(header)).to_hex(), expected, "{header}");
    }
}

#[test]
fn prefixes_cover_their_keys() {
    let multi = definition(json!({"paths": ["/t", "/u"], "kind": "MultiHash"}));
    let (min, max) = multi.prefix_range(&key(r#"["T"]"#));
    assert_eq!(min.to_hex(), "017A5127EDEAEAFD8E3C9E8C0081CB34");
    assert_eq!(max.to_hex(), "017A5127EDEAEAFD8E3C9E8C0081CB34FF");
    let inside = multi.epk(&key(r#"["T","U"]"#));
    assert!(min <= inside && inside < max);
    assert_eq!(multi.prefix_range(&key("[]")), (Epk::min(), Epk::max()));
    assert_eq!(
        multi.prefix_range(&key(r#"["T","U"]"#)),
        (inside.clone(), inside.successor())
    );

    let v1 = definition(json!({"paths": ["/pk"]}));
    let (min, max) = v1.prefix_range(&key(r#"["a"]"#));
    assert_eq!(
        (min.to_hex(), max.to_hex()),
        ("05C1D78593652C086200".into(), "05C1D78593652C086201".into())
    );
}

#[test]
fn definitions_are_compared_by_meaning() {
    let stored = definition(json!({"paths": ["/pk"], "kind": "Hash", "version": 1}));
    for (other, same) in [
        (json!({"paths": ["/pk"]}), true),
        (json!({"paths": ["/\"pk\""], "systemKey": false}), true),
        (json!({"paths": ["/pk"], "version": 2}), false),
        (json!({"paths": ["/other"]}), false),
        (json!({"paths": ["/pk"], "kind": "MultiHash"}), false),
    ] {
        assert_eq!(
            stored.same_definition(&definition(other.clone())),
            same,
            "{other}"
        );
    }
}
