use serde_json::json;

use super::*;

fn text_of(body: &[u8]) -> String {
    let mut out = Vec::new();
    write_value(&mut out, &parse_value(body).expect("the body is valid"));
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn refusal(body: &[u8]) -> String {
    let error = parse_value(body).expect_err("the body must be refused");
    assert_eq!(error.status(), 400, "{error}");
    error.message
}

#[test]
fn numbers_have_one_normal_form() {
    for (given, kept) in [
        ("3.0", "3"),
        ("3", "3"),
        ("-0.0", "0"),
        ("-0", "0"),
        ("0.0", "0"),
        ("-7.0", "-7"),
        ("1.5", "1.5"),
        ("1e3", "1000"),
        ("1E+2", "100"),
        ("0.1", "0.1"),
        ("9007199254740993", "9007199254740993"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e+19"),
        ("-9223372036854775809", "-9223372036854775808"),
        ("-1e19", "-1e+19"),
        ("1e300", "1e+300"),
        ("5e-324", "5e-324"),
        ("1e-400", "0"),
        ("123456789.12345679", "123456789.12345679"),
    ] {
        assert_eq!(text_of(given.as_bytes()), kept, "{given}");
        assert_eq!(text_of(kept.as_bytes()), kept, "{kept} is a fixed point");
    }
}

#[test]
fn order_escapes_and_nesting_are_kept() {
    for body in [
        r#"{"z":1,"a":{"y":[1,{"b":null,"a":true}],"x":""},"m":"é\n\"\\ 🦀"}"#,
        "[]",
        "{}",
        r#"[[],{},"",null,false]"#,
    ] {
        assert_eq!(text_of(body.as_bytes()), body);
    }
    assert_eq!(
        text_of(b" { \"a\" :\t1 ,\r\n\"b\": \"\\u0041\\ud83e\\udd80\" } \n"),
        r#"{"a":1,"b":"A🦀"}"#
    );
}

#[test]
fn bad_text_is_refused_with_what_and_where() {
    for (body, fragments) in [
        (
            &br#"{"a":1,"b":{"a":2,"a":3}}"#[..],
            &["duplicate key 'a'", "line 1"][..],
        ),
        (
            b"{\"id\":\"1\",\n\"\\u0069d\":2}",
            &["duplicate key 'id'", "line 2"],
        ),
        (b"{\"n\":1e400}", &["1e400", "out of", "line 1"]),
        (b"[1,\n -1E+999 ]", &["-1E+999", "line 2"]),
        (b"{\"a\":1} x", &["trailing characters", "column 9"]),
        (b"{\"a\":1}{}", &["trailing characters"]),
        (b"{\"a\":1", &["EOF", "{\"a\":1"]),
        (b"{\"a\" 1}", &["expected `:`"]),
        (b"{a:1}", &["key must be a string", "{a:1}"]),
        (b"[1,]", &["trailing comma"]),
        (b"[01]", &["invalid number"]),
        (b"NaN", &["expected value", "NaN"]),
        (b"'x'", &["expected value"]),
        (b"[\"\\ud800\"]", &["hex escape", "ud800"]),
        (b"[\"a\nb\"]", &["control character"]),
        (b"\xef\xbb\xbf{}", &["expected value"]),
        (b"{\"a\":\"\xff\"}", &["UTF-8", "0xff", "offset 6"]),
        (b"{\"a\":\"\xe2\x82", &["UTF-8", "0xe2", "offset 6"]),
        (b"", &["empty"]),
        (b" \n", &["empty"]),
    ] {
        let message = refusal(body);
        for fragment in fragments {
            assert!(message.contains(fragment), "{message:?} lacks {fragment:?}");
        }
    }
}

#[test]
fn depth_is_limited_exactly_and_safely() {
    let arrays = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
    let objects =
        |levels: usize| ["{\"a\":".repeat(levels), "1".into(), "}".repeat(levels)].concat();
    assert!(parse_value(&arrays(JSON_DEPTH_MAX)).is_ok());
    assert!(parse_value(objects(JSON_DEPTH_MAX).as_bytes()).is_ok());
    for levels in [JSON_DEPTH_MAX + 1, 1_000_000] {
        assert!(refusal(&arrays(levels)).contains("limit of 128"));
        assert!(refusal(objects(levels).as_bytes()).contains("limit of 128"));
    }
    assert!(refusal(&vec![b'['; 1_000_000]).contains("limit of 128"));
    let fits = parse_value(&arrays(JSON_DEPTH_MAX)).expect("at the limit");
    assert!(!too_deep(&fits));
    assert!(too_deep(&json!([fits])));
}

#[test]
fn only_an_object_is_an_object() {
    assert_eq!(parse_object(b"{\"a\":1}").expect("valid")["a"], 1);
    for (body, name) in [
        ("[1]", "an array"),
        ("null", "null"),
        ("\"x\"", "a string"),
        ("1", "a number"),
    ] {
        let error = parse_object(body.as_bytes()).expect_err(body);
        assert!(
            error.message.contains(name) && error.message.contains(body),
            "{error}"
        );
    }
}

#[test]
fn a_binary_body_is_recognised_by_its_first_byte() {
    let body = b"\x80\xed\x0e\x03\x82id\x81b\x81n\x00\x82pk\x82p2";
    let expected = json!({"id": "b", "n": 0, "pk": "p2"});
    assert_eq!(parse_object(body).map(Value::Object), Ok(expected));
    let whole_double = b"\x80\xcc\x00\x00\x00\x00\x00\x00\x08\x40";
    assert_eq!(parse_value(whole_double), Ok(json!(3)));
    let error = parse_object(whole_double).expect_err("a number");
    assert!(error.message.contains("a number: 3"), "{error}");
}

#[test]
fn decoded_values_get_the_same_numbers_and_depth() {
    let mut value = json!({"a": [3.0, -0.0, 1.5, 2], "b": {"c": 1e3}});
    normalise(&mut value, 0).expect("normal");
    assert_eq!(value, json!({"a": [3, 0, 1.5, 2], "b": {"c": 1000}}));
    let mut deep = json!(1);
    for _ in 0..=JSON_DEPTH_MAX {
        deep = json!([deep]);
    }
    let error = normalise(&mut deep, 0).expect_err("too deep");
    assert!(error.message.contains("limit of 128"), "{error}");
}

#[test]
fn long_values_are_cut_in_messages() {
    let long = "é".repeat(5_000);
    for body in [
        format!("{{\"{long}\":1,\"{long}\":2}}"),
        format!("\"{long}"),
        format!("1{}", "0".repeat(5_000)),
        format!("{}!", "é".repeat(5_000)),
    ] {
        let message = refusal(body.as_bytes());
        assert!(message.len() < 500, "{} bytes: {message}", message.len());
    }
    assert_eq!(shorten("short"), "short");
    assert_eq!(shorten(&long).chars().count(), SHOWN_CHARS_MAX + 1);
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_answered_and_what_is_accepted_is_a_fixed_point(
        body in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select(b"{}[]\",:0123456789.eE+-\\ntrufalse \xc3\xa9".to_vec()),
                1u8..=255,
            ],
            0..40,
        )
    ) {
        if body.first() != Some(&BINARY_MARK) && let Ok(value) = parse_value(&body) {
            let mut once = Vec::new();
            write_value(&mut once, &value);
            proptest::prop_assert_eq!(parse_value(&once), Ok(value));
        }
    }
}
