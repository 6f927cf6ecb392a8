use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A body of the given values.
fn body(parts: &[&[u8]]) -> Vec<u8> {
    [&[FORMAT_BYTE][..]]
        .iter()
        .chain(parts)
        .copied()
        .flatten()
        .copied()
        .collect()
}

fn check(hex: &str, expected: Value) {
    let bytes: Vec<u8> = hex
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    assert_eq!(decode(&bytes).unwrap(), expected, "{hex}");
}

fn refuse(bytes: &[u8], fragment: &str) {
    let error = decode(bytes).unwrap_err();
    assert_eq!(error.status(), 400);
    assert!(error.message.contains(fragment), "{bytes:02X?}: {error}");
    assert!(error.message.len() < 300);
}

#[test]
fn the_observed_body() {
    check(
        "80 ED 0E 03 82 69 64 81 62 81 6E 00 82 70 6B 82 70 32",
        json!({"id": "b", "n": 0, "pk": "p2"}),
    );
}

#[test]
fn scalars() {
    check("80 D0", json!(null));
    check("80 D1", json!(false));
    check("80 D2", json!(true));
    check("80 00", json!(0));
    check("80 1F", json!(31));
    check("80 C7 FF FF FF FF FF FF FF FF", json!(u64::MAX));
    check("80 C8 FF", json!(255));
    check("80 C9 00 80", json!(-32768));
    check("80 CA FF FF FF FF", json!(-1));
    check("80 CB 00 00 00 00 00 00 00 80", json!(i64::MIN));
    check("80 CC 00 00 00 00 00 00 F8 3F", json!(1.5));
    check("80 CD 00 00 C0 3F", json!(1.5));
    check("80 CE 9A 99 99 99 99 99 B9 3F", json!(0.1));
    check("80 CF 00 3E", json!(1.5));
    check("80 CF 01 00", json!(2f64.powi(-24)));
    check("80 CF FF FB", json!(-65504.0));
    check("80 D7 FF", json!(255));
    check("80 D8 FF", json!(-1));
    check("80 D9 FF 7F", json!(32767));
    check("80 DA 00 00 00 80", json!(i32::MIN));
    check("80 DB 01 00 00 00 00 00 00 00", json!(1));
    check("80 DC FF FF FF FF", json!(u32::MAX));
}

#[test]
fn strings() {
    check("80 80", json!(""));
    check("80 82 C3 A9", json!("é"));
    check("80 C0 02 68 69", json!("hi"));
    check("80 C1 02 00 68 69", json!("hi"));
    check("80 C2 02 00 00 00 68 69", json!("hi"));
    check("80 20", json!("$s"));
    check("80 2C", json!("id"));
    check("80 3F", json!("_id"));
    let long = "x".repeat(300);
    let bytes = body(&[&[0xC1, 0x2C, 0x01], long.as_bytes()]);
    assert_eq!(decode(&bytes).unwrap(), json!(long));
}

#[test]
fn short_forms_of_strings() {
    check(
        "80 75 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE",
        json!("01234567-89ab-cdef-0123-456789abcdef"),
    );
    check(
        "80 76 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE",
        json!("01234567-89AB-CDEF-0123-456789ABCDEF"),
    );
    check(
        "80 77 10 32 54 76 98 BA DC FE 10 32 54 76 98 BA DC FE",
        json!("\"01234567-89ab-cdef-0123-456789abcdef\""),
    );
    check("80 78 05 10 32 0F", json!("0123f"));
    check("80 79 04 BA DC", json!("ABCD"));
    check("80 7A 07 13 53 1C 02", json!("2024-01"));
    check("80 7B 04 30 10 32", json!("0123"));
    check("80 7C 03 61 20 08", json!("abc"));
    check("80 7D 04 61 40 20 0C", json!("abcd"));
    check("80 7E 02 C8 34", json!("Hi"));
    check("80 7F 02 00 C8 34", json!("Hi"));
    check("80 71 01 00 66 6F 6F", json!("Zm9v"));
    check("80 71 01 01 66 6F", json!("Zm8="));
    check("80 71 01 FD 66", json!("Zg"));
    check("80 72 01 00 00 FB FF FE", json!("+//+"));
    check("80 73 01 00 FB FF FE", json!("-__-"));
    check("80 74 01 00 02 66", json!("Zg=="));
}

#[test]
fn containers() {
    check("80 E0", json!([]));
    check("80 E1 01", json!([1]));
    check("80 E2 02 01 D2", json!([1, true]));
    check("80 E3 02 00 01 D2", json!([1, true]));
    check("80 E4 02 00 00 00 01 D2", json!([1, true]));
    check("80 E5 02 02 01 D2", json!([1, true]));
    check("80 E6 02 00 02 00 01 D2", json!([1, true]));
    check("80 E7 02 00 00 00 02 00 00 00 01 D2", json!([1, true]));
    check("80 E5 00 00", json!([]));
    check("80 E8", json!({}));
    check("80 E9 2C 81 61", json!({"id": "a"}));
    check("80 EA 02 2C 01", json!({"id": 1}));
    check("80 EB 02 00 2C 01", json!({"id": 1}));
    check("80 EC 02 00 00 00 2C 01", json!({"id": 1}));
    check("80 ED 05 02 81 62 01 2C 02", json!({"b": 1, "id": 2}));
    check("80 EE 02 00 01 00 2C 01", json!({"id": 1}));
    check("80 EF 02 00 00 00 01 00 00 00 2C 01", json!({"id": 1}));
    check("80 E2 04 E2 02 00 01", json!([[0, 1]]));
    check("80 E1 E9 2C E1 E8", json!([{"id": [{}]}]));
}

#[test]
fn uniform_number_arrays() {
    check("80 F0 D7 03 01 02 FF", json!([1, 2, 255]));
    check("80 F1 D9 02 00 01 00 FF FF", json!([1, -1]));
    check("80 F0 CE 00", json!([]));
    check("80 F2 F0 D8 02 02 01 FF 02 FE", json!([[1, -1], [2, -2]]));
    check("80 F3 F1 D8 01 00 02 00 01 02", json!([[1], [2]]));
    let lists = vec![json!([7]); 255];
    let bytes = body(&[&[0xF2, 0xF0, 0xD7, 1, 255], &[7; 255]]);
    assert_eq!(decode(&bytes).unwrap(), json!(lists));
}

#[test]
fn references_point_back_to_strings() {
    check("80 E2 04 81 61 C3 03", json!(["a", "a"]));
    check("80 E2 05 81 61 C4 03 00", json!(["a", "a"]));
    check("80 E2 06 81 61 C5 03 00 00", json!(["a", "a"]));
    check("80 E2 07 81 61 C6 03 00 00 00", json!(["a", "a"]));
    check("80 EA 07 81 61 01 81 62 C3 03", json!({"a": 1, "b": "a"}));
    refuse(&[0x80, 0xC3, 0x01], "does not point back");
    refuse(&[0x80, 0xC3, 0x00], "does not point back");
    refuse(&[0x80, 0xC3, 0xC8], "does not point back");
    // Into a number, into another reference, and into a string that runs past the reference itself.
    refuse(&[0x80, 0xE2, 0x03, 0x01, 0xC3, 0x03], "marker 0x01");
    refuse(
        &[0x80, 0xE2, 0x06, 0x81, 0x61, 0xC3, 0x03, 0xC3, 0x05],
        "marker 0xC3",
    );
    refuse(
        &[0x80, 0xE2, 0x05, 0x82, 0xC3, 0xA9, 0xC3, 0x05],
        "41 bytes are needed",
    );
}

#[test]
fn references_cannot_blow_a_body_up() {
    let text = vec![b'x'; 0xFFFF];
    let references = REFERENCED_BYTES_MAX / text.len() + 1;
    let mut list = body(&[&[0xC1, 0xFF, 0xFF], &text]).split_off(1);
    list.extend([0xC3, 0x06].repeat(references));
    let length = u32::try_from(list.len()).unwrap().to_le_bytes();
    refuse(
        &body(&[&[0xE4], &length, &list]),
        "references repeat too much text",
    );
}

#[test]
fn arrays_cannot_blow_a_body_up() {
    refuse(
        &[0x80, 0xF3, 0xF1, 0xD7, 0x00, 0x00, 0xFF, 0xFF],
        "more values than bytes",
    );
    refuse(&[0x80, 0xF1, 0x01, 0xFF, 0xFF], "marker 0x01");
    refuse(&[0x80, 0xF1, 0xD7, 0xFF, 0xFF], "more values than bytes");
}

#[test]
fn what_cannot_be_read_is_named() {
    refuse(b"", "begin with the byte 0x80");
    refuse(b"{}", "begin with the byte 0x80");
    refuse(
        &[0x80, 0x40],
        "offset 1: the marker 0x40 needs a dictionary",
    );
    refuse(&[0x80, 0x67, 0x00], "marker 0x67");
    for marker in [
        0x68, 0x70, 0xD3, 0xD4, 0xD6, 0xDD, 0xDE, 0xDF, 0xF4, 0xF8, 0xFF,
    ] {
        refuse(
            &[0x80, marker],
            &format!("offset 1: the marker 0x{marker:02X}"),
        );
    }
    refuse(&[0x80, 0xE1, 0xE1, 0x55], "offset 3: the marker 0x55");
    refuse(&[0x80, 0xF0, 0x81, 0x01, 0x61], "marker 0x81");
    refuse(&[0x80, 0xF2, 0xF1, 0xD7, 0x01, 0x01, 0x01], "marker 0xF2");
}

#[test]
fn truncated_and_overlong_bodies() {
    let whole = [
        0x80, 0xED, 0x0B, 0x02, 0x2C, 0x81, 0x62, 0x81, 0x6E, 0xE5, 0x03, 0x01, 0xC9, 0x01, 0x00,
    ];
    assert_eq!(decode(&whole).unwrap(), json!({"id": "b", "n": [1]}));
    for length in 0..whole.len() {
        assert_eq!(
            decode(&whole[..length]).unwrap_err().status(),
            400,
            "{length}"
        );
    }
    refuse(&[0x80, 0x01, 0x02], "1 bytes follow the value");
    refuse(
        &[0x80, 0xC2, 0xFF, 0xFF, 0xFF, 0xFF],
        "4294967295 bytes are needed, 0 are left",
    );
    refuse(&[0x80, 0xE4, 0xFF, 0xFF, 0xFF, 0xFF], "length 4294967295");
    // A member that runs over the end of its array, an array that runs over the end of its parent.
    refuse(
        &[0x80, 0xE2, 0x01, 0xC9, 0x01, 0x00],
        "2 bytes are needed, 0 are left",
    );
    refuse(&[0x80, 0xE2, 0x03, 0xE2, 0x02, 0x01, 0x01], "length 2");
    refuse(
        &[0x80, 0xE5, 0x01, 0x05, 0x01],
        "announces 5 members and has 1",
    );
    refuse(&[0x80, 0xEA, 0x01, 0x2C], "1 bytes are needed");
}

#[test]
fn values_that_json_does_not_have() {
    for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        refuse(
            &body(&[&[0xCC], &float.to_le_bytes()]),
            "is not a json number",
        );
    }
    refuse(&[0x80, 0xCF, 0x00, 0x7C], "inf is not a json number");
    refuse(&[0x80, 0xCF, 0x01, 0x7C], "NaN is not a json number");
    refuse(&[0x80, 0x81, 0xFF], "not utf-8");
    refuse(&[0x80, 0xE9, 0x01, 0x01], "offset 2: the marker 0x01");
    refuse(
        &[0x80, 0xEA, 0x05, 0x2C, 0x01, 0x82, 0x69, 0x64],
        "the property 'id' occurs twice",
    );
    refuse(&[0x80, 0x7D, 0x01, 0x7F, 0x01], "not ascii");
    refuse(&[0x80, 0x71, 0x00, 0x01], "padding 0x01");
    refuse(&[0x80, 0x71, 0x01, 0x03, 0x66, 0x6F, 0x6F], "padding 0x03");
}

#[test]
fn nesting_has_a_bottom() {
    let nested = |levels: usize| body(&[&vec![0xE1; levels], &[0x00]]);
    assert!(decode(&nested(BINARY_DEPTH_MAX)).is_ok());
    refuse(
        &nested(BINARY_DEPTH_MAX + 1),
        "nested deeper than 128 levels",
    );
    refuse(&nested(1_000_000), "nested deeper than 128 levels");
    let around = |marker: &[u8]| body(&[&[0xE1; BINARY_DEPTH_MAX - 1], marker]);
    assert!(decode(&around(&[0xF0, 0xD7, 0x01, 0x01])).is_ok());
    assert!(decode(&around(&[0xF2, 0xF0, 0xD7, 0x01, 0x01, 0x01])).is_err());
}

/// Writes what the client's encoder writes, to read it back.
fn encode(out: &mut Vec<u8>, value: &Value) {
    let sized = |out: &mut Vec<u8>, first: u8, content: &[u8], count: usize| {
        if content.len() <= 0xFF && count <= 0xFF {
            out.extend([first, content.len() as u8, count as u8]);
        } else {
            out.push(first + 2);
            out.extend((content.len() as u32).to_le_bytes());
            out.extend((count as u32).to_le_bytes());
        }
        out.extend(content);
    };
    match value {
        Value::Null => out.push(0xD0),
        Value::Bool(value) => out.push(if *value { 0xD2 } else { 0xD1 }),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(small @ 0..=31), _) => out.push(small as u8),
            (_, Some(int)) => out.extend([&[0xCB][..], &int.to_le_bytes()].concat()),
            (Some(int), None) => out.extend([&[0xC7][..], &int.to_le_bytes()].concat()),
            _ => out.extend([&[0xCC][..], &number.as_f64().unwrap().to_le_bytes()].concat()),
        },
        Value::String(text) if text.len() < 64 => {
            out.push(0x80 + text.len() as u8);
            out.extend(text.as_bytes());
        }
        Value::String(text) => {
            out.push(0xC2);
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.as_bytes());
        }
        Value::Array(list) => {
            let mut content = Vec::new();
            list.iter().for_each(|value| encode(&mut content, value));
            sized(out, 0xE5, &content, list.len());
        }
        Value::Object(map) => {
            let mut content = Vec::new();
            for (name, value) in map {
                encode(&mut content, &Value::from(name.as_str()));
                encode(&mut content, value);
            }
            sized(out, 0xED, &content, map.len());
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300f64).prop_map(Value::from),
        ".{0,100}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((".{0,10}", inner), 0..8)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_the_client_writes_is_read(value in any_json()) {
        let mut bytes = vec![FORMAT_BYTE];
        encode(&mut bytes, &value);
        prop_assert_eq!(decode(&bytes).unwrap(), value);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&body(&[&bytes]));
    }

    #[test]
    fn damaged_bodies_are_read_or_refused(value in any_json(), at: prop::sample::Index, byte: u8) {
        let mut bytes = vec![FORMAT_BYTE];
        encode(&mut bytes, &value);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Err(error) = decode(&bytes) {
            prop_assert_eq!(error.status(), 400);
        }
    }
}
