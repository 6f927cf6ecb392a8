use super::{check, check_values, check_with, refusal, value_of};
use serde_json::{Value, json};

fn undefined() -> Value {
    json!("undefined")
}

#[test]
fn strings() {
    check_values(&[
        ("CONCAT('a', 'b', 'c')", json!("abc")),
        ("CONCAT('a', 1)", undefined()),
        ("CONTAINS('Hello', 'ell')", json!(true)),
        ("CONTAINS('Hello', 'ELL', true)", json!(true)),
        ("CONTAINS('HÉ', 'é', true)", json!(true)),
        ("CONTAINS(1, 'a')", undefined()),
        ("CONTAINS_ANY_CI('Hello', 'x', 'HELL')", json!(true)),
        ("CONTAINS_ANY_CS('Hello', undefined, 'x')", undefined()),
        ("CONTAINS_ALL_CS('Hello', 'H', 'lo')", json!(true)),
        ("CONTAINS_ALL_CI('Hello', undefined, 'x')", json!(false)),
        ("STARTSWITH('Hello', 'he')", json!(false)),
        ("STARTSWITH('Hello', 'he', true)", json!(true)),
        ("ENDSWITH('Hello', 'lo')", json!(true)),
        ("STRINGEQUALS('a', 'A', true)", json!(true)),
        ("INDEX_OF('héllo', 'l')", json!(2)),
        ("INDEX_OF('abcabc', 'b', 2)", json!(4)),
        ("INDEX_OF('abc', 'x')", json!(-1)),
        ("LASTINDEXOF('abcabc', 'b')", json!(4)),
        ("LASTINDEXOF('abcabc', 'b', 3)", json!(1)),
        ("LEFT('héllo', 2)", json!("hé")),
        ("RIGHT('héllo', 3)", json!("llo")),
        ("RIGHT('abc', 10)", json!("abc")),
        ("LENGTH('héllo')", json!(5)),
        ("LOWER('ÀB')", json!("àb")),
        ("UPPER('àb')", json!("ÀB")),
        ("TRIM('  a ')", json!("a")),
        ("LTRIM('xxa', 'x')", json!("a")),
        ("RTRIM('axyx', 'xy')", json!("a")),
        ("REPLACE('aXbX', 'X', 'yy')", json!("ayybyy")),
        ("REPLACE('a', '', 'b')", undefined()),
        ("REPLICATE('ab', 3)", json!("ababab")),
        ("REPLICATE('ab', -1)", undefined()),
        ("REPLICATE('ab', 5001)", undefined()),
        ("REVERSE('héy')", json!("yéh")),
        ("SUBSTRING('hello', 1, 3)", json!("ell")),
        ("SUBSTRING('hello', -1, 3)", json!("")),
        ("SUBSTRING('hello', 3, 30)", json!("lo")),
        ("STRINGJOIN(['a', 'b'], '-')", json!("a-b")),
        ("STRINGJOIN(['a', 1], '-')", undefined()),
        ("STRINGSPLIT('a-b-', '-')", json!(["a", "b", ""])),
        (
            "TOSTRING({a: [1, 2.5, 'x']})",
            json!("{\"a\":[1,2.5,\"x\"]}"),
        ),
        ("TOSTRING('x')", json!("x")),
        ("STRINGTONUMBER(' 12.5 ')", json!(12.5)),
        ("STRINGTONUMBER('x')", undefined()),
        ("STRINGTOBOOLEAN('true')", json!(true)),
        ("STRINGTOBOOLEAN('TRUE')", undefined()),
        ("STRINGTONULL('null')", json!(null)),
        ("STRINGTOARRAY('[1, {}]')", json!([1, {}])),
        ("STRINGTOOBJECT('{\"a\": 1}')", json!({"a": 1})),
        ("STRINGTOOBJECT('[1]')", undefined()),
    ]);
}

#[test]
fn regular_expressions() {
    check_values(&[
        ("REGEXMATCH('abcd', 'B.D')", json!(false)),
        ("REGEXMATCH('abcd', 'B.D', 'i')", json!(true)),
        ("REGEXMATCH('a\\nb', '^b$', 'm')", json!(true)),
        ("REGEXMATCH('a\\nb', 'a.b', 's')", json!(true)),
        ("REGEXMATCH('ab', 'a b', 'x')", json!(true)),
        ("REGEXMATCH(5, 'a')", undefined()),
        ("REGEXMATCH('abc', LOWER('B'))", json!(true)),
    ]);
    check(
        "SELECT VALUE REGEXMATCH(c.s, '^[a-z]+$') FROM c",
        &json!([{"s": "abc"}, {"s": "A"}, {}]),
        &json!([true, false]),
    );
    for pattern in ["(", "a{1000}{1000}{1000}", "(?=a)", "(a)\\\\1"] {
        let error = refusal(&format!("SELECT VALUE REGEXMATCH('a', '{pattern}')"));
        assert!(error.message.contains("regular expression"), "{error}");
        let error = refusal(&format!("SELECT VALUE REGEXMATCH('a', LOWER('{pattern}'))"));
        assert!(error.message.contains("regular expression"), "{error}");
    }
    assert!(
        refusal("SELECT VALUE REGEXMATCH('a', 'a', 'q')")
            .message
            .contains("'q'")
    );
    // Backtracking engines never finish this one.
    let text = format!("REGEXMATCH('{}b', '^(a+)+$')", "a".repeat(5_000));
    assert_eq!(value_of(&text), json!(false));
}

#[test]
fn numbers() {
    check_values(&[
        ("ABS(-2)", json!(2)),
        ("ABS('x')", undefined()),
        ("SQRT(-1)", undefined()),
        ("CEILING(1.2)", json!(2)),
        ("FLOOR(-1.2)", json!(-2)),
        ("ROUND(2.5)", json!(3)),
        ("ROUND(-0.5)", json!(-1)),
        ("TRUNC(-2.7)", json!(-2)),
        ("SIGN(-3)", json!(-1)),
        ("SIGN(0)", json!(0)),
        ("POWER(2, 10)", json!(1024)),
        ("POWER(10, 400)", undefined()),
        ("LOG(8, 2)", json!(3)),
        ("LOG10(1000)", json!(3)),
        ("EXP(0)", json!(1)),
        ("DEGREES(PI())", json!(180)),
        ("COT(0)", undefined()),
        ("ATN2(0, -1) = PI()", json!(true)),
        ("SQUARE(3)", json!(9)),
        ("NUMBERBIN(37.752, 0.1)", json!(37.7)),
        ("NUMBERBIN(-1, 10)", json!(-10)),
        ("NUMBERBIN(1, 0)", undefined()),
        ("RAND() >= 0 AND RAND() < 1", json!(true)),
        ("RAND() = RAND()", json!(false)),
        (
            "INTADD(9007199254740993, 1)",
            json!(9_007_199_254_740_994_i64),
        ),
        ("INTADD(9223372036854775807, 1)", undefined()),
        ("INTADD(1, 0.5)", undefined()),
        ("INTSUB(1, 2)", json!(-1)),
        ("INTMUL(3, 4)", json!(12)),
        ("INTDIV(7, 2)", json!(3)),
        ("INTDIV(7, 0)", undefined()),
        ("INTDIV(-9223372036854775808, -1)", undefined()),
        ("INTMOD(-12, 5)", json!(-2)),
        ("INTBITAND(15, 25)", json!(9)),
        ("INTBITOR(56, 100)", json!(124)),
        ("INTBITXOR(56, 100)", json!(92)),
        ("INTBITNOT(65)", json!(-66)),
        ("INTBITLEFTSHIFT(1, 40)", json!(1_i64 << 40)),
        ("INTBITRIGHTSHIFT(-16, 2)", json!(-4)),
    ]);
}

#[test]
fn arrays_and_sets() {
    check_values(&[
        ("ARRAY_AVG([1, 2, 3, 4])", json!(2.5)),
        ("ARRAY_AVG([])", undefined()),
        ("ARRAY_SUM([1, undefined, 2])", json!(3)),
        ("ARRAY_SUM([1, 'a'])", undefined()),
        ("ARRAY_MEDIAN([3, 1, 2])", json!(2)),
        ("ARRAY_MEDIAN([1, 2, 3, 4])", json!(2.5)),
        ("ARRAY_MAX([1, 'a', null])", json!("a")),
        ("ARRAY_MIN([1, 'a', null])", json!(null)),
        ("ARRAY_MAX([[1]])", undefined()),
        ("ARRAY_CONCAT([1], [2], [3])", json!([1, 2, 3])),
        ("ARRAY_CONCAT([1], 2)", undefined()),
        ("ARRAY_CONTAINS([1, 2], 2.0)", json!(true)),
        ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1})", json!(false)),
        ("ARRAY_CONTAINS([{a: 1, b: 2}], {a: 1}, true)", json!(true)),
        ("ARRAY_CONTAINS('x', 'x')", undefined()),
        ("ARRAY_CONTAINS([1], undefined)", undefined()),
        ("ARRAY_CONTAINS_ANY([1, 2], 3, 2)", json!(true)),
        ("ARRAY_CONTAINS_ANY([1, 2], 3, undefined)", undefined()),
        ("ARRAY_CONTAINS_ALL([1, 2], 1, 2)", json!(true)),
        ("ARRAY_CONTAINS_ALL([1, 2], 5, undefined)", json!(false)),
        ("ARRAY_LENGTH([1, 2])", json!(2)),
        ("ARRAY_SLICE([1, 2, 3], -2)", json!([2, 3])),
        ("ARRAY_SLICE([1, 2, 3], 1, 1)", json!([2])),
        ("ARRAY_SLICE([1, 2, 3], 9)", json!([])),
        ("ARRAY_SLICE([1, 2, 3], 0, -1)", json!([])),
        ("CHOOSE(2, 'a', 'b')", json!("b")),
        ("CHOOSE(0, 'a', 'b')", undefined()),
        (
            "OBJECTTOARRAY({a: 1}, 'n', 'm')",
            json!([{"n": "a", "m": 1}]),
        ),
        ("SETUNION([1, 2, 2], [2, 3])", json!([1, 2, 3])),
        ("SETINTERSECT([1, 2, 'A'], ['A', 1, 1])", json!(["A", 1])),
        ("SETDIFFERENCE([1, 2, 2, 3], [3])", json!([1, 2])),
        ("SETEQUAL([1, 2, 2], [2, 1.0])", json!(true)),
        ("IIF(1 = 1, 'a', 'b')", json!("a")),
        ("IIF('x', 'a', 'b')", json!("b")),
    ]);
}

#[test]
fn a_given_array_is_searched_by_halves() {
    check_with(
        "SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(@ids, c.id)",
        &json!({"@ids": ["3", 1, "1", null, [2]]}),
        &json!([{"id": "1"}, {"id": "2"}, {"id": [2]}, {}, {"id": null}]),
        &json!(["1", [2], null]),
    );
}

#[test]
fn dates() {
    check_values(&[
        (
            "DATETIMEADD('mm', 1, '2020-01-31T00:00:00')",
            json!("2020-02-29T00:00:00.0000000Z"),
        ),
        (
            "DATETIMEADD('yyyy', -1, '2020-02-29')",
            json!("2019-02-28T00:00:00.0000000Z"),
        ),
        (
            "DATETIMEADD('ns', 150, '2020-01-01')",
            json!("2020-01-01T00:00:00.0000001Z"),
        ),
        ("DATETIMEADD('dd', 1.5, '2020-01-01')", undefined()),
        (
            "DATETIMEADD('dd', 9223372036854775807, '2020-01-01')",
            undefined(),
        ),
        (
            "DATETIMEADD('yyyy', 9223372036854775807, '2020-01-01')",
            undefined(),
        ),
        ("DATETIMEADD('century', 1, '2020-01-01')", undefined()),
        (
            "DATETIMEDIFF('yyyy', '2019-12-31T23:59:59', '2020-01-01')",
            json!(1),
        ),
        (
            "DATETIMEDIFF('hh', '2020-01-01T00:59:59', '2020-01-01T01:00:00')",
            json!(1),
        ),
        (
            "DATETIMEDIFF('ms', '1969-12-31T23:59:59.9995', '1970-01-01')",
            json!(1),
        ),
        (
            "DATETIMEPART('ns', '2016-05-29T08:30:00.1301617')",
            json!(130_161_700),
        ),
        ("DATETIMEPART('week', '2016-05-29')", undefined()),
        (
            "DATETIMEBIN('2021-01-08T18:35:00', 'hh', 5)",
            json!("2021-01-08T15:00:00.0000000Z"),
        ),
        (
            "DATETIMEBIN('2021-01-08T18:35:00', 'mm')",
            json!("2021-01-01T00:00:00.0000000Z"),
        ),
        ("DATETIMEBIN('2021-01-08', 'dd', 0)", undefined()),
        (
            "DATETIMEBIN('2021-01-08', 'dd', 1, '1600-01-01')",
            undefined(),
        ),
        (
            "DATETIMEFROMPARTS(2017, 4, 20, 13, 15, 20, 3456789)",
            json!("2017-04-20T13:15:20.3456789Z"),
        ),
        ("DATETIMEFROMPARTS(2017, 2, 29)", undefined()),
        (
            "DATETIMEFORMAT('2024-10-09 14:40:20.5', 'd/M/yy h:mm tt f FF \\\\d')",
            json!("9/10/24 2:40 PM 5 5 d"),
        ),
        ("DATETIMETOTICKS('1970-01-02')", json!(864_000_000_000_i64)),
        ("DATETIMETOTIMESTAMP('1970-01-01T00:00:01.5')", json!(1500)),
        ("TICKSTODATETIME(-1)", json!("1969-12-31T23:59:59.9999999Z")),
        ("TIMESTAMPTODATETIME(1e300)", undefined()),
        ("TIMESTAMPTODATETIME(9223372036854775807)", undefined()),
        (
            "YEAR('2024-01-10') + MONTH('2024-01-10') + DAY('2024-01-10')",
            json!(2035),
        ),
        (
            "GETCURRENTDATETIME()",
            json!("2023-11-14T22:13:20.1230000Z"),
        ),
        ("GETCURRENTTIMESTAMP()", json!(1_700_000_000_123_i64)),
        ("GETCURRENTTICKS()", json!(17_000_000_001_230_000_i64)),
        ("NOW('ss', 1) = AGO('ss', -1)", json!(true)),
        ("IS_DATETIME('2024-12-12T20:21:25Z')", json!(true)),
        ("IS_DATETIME('2024-12-12T20Z')", json!(false)),
    ]);
}

#[test]
fn types() {
    check_values(&[
        ("IS_DEFINED(undefined)", json!(false)),
        ("IS_DEFINED(null)", json!(true)),
        ("IS_NULL(undefined)", json!(false)),
        ("IS_ARRAY([])", json!(true)),
        ("IS_OBJECT([])", json!(false)),
        ("IS_PRIMITIVE('x')", json!(true)),
        ("IS_PRIMITIVE(undefined)", json!(false)),
        ("IS_INTEGER(1.0)", json!(true)),
        ("IS_INTEGER(1.5)", json!(false)),
        ("IS_FINITE_NUMBER(1 / 0)", json!(false)),
        (
            "IS_BOOL(true) AND IS_NUMBER(1) AND IS_STRING('')",
            json!(true),
        ),
    ]);
    check(
        "SELECT VALUE DOCUMENTID(c) FROM c",
        &json!([{"_rid": "36ZyAPW+uN8NAAAAAAAAAA=="}]),
        &json!([13]),
    );
}

#[test]
fn vectors() {
    check_values(&[
        ("VECTORDISTANCE([1, 0], [1, 0])", json!(1)),
        (
            "VECTORDISTANCE([1, 2], [3, 4], false, {distanceFunction: 'dotproduct'})",
            json!(11),
        ),
        (
            "VECTORDISTANCE([0, 0], [3, 4], false, {distanceFunction: 'euclidean'})",
            json!(5),
        ),
        ("VECTORDISTANCE([1], [1, 2])", undefined()),
    ]);
    let items = json!([{"id": "far", "v": [0, 1]}, {"id": "near", "v": [1, 0.1]}]);
    check(
        "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])",
        &items,
        &json!(["near", "far"]),
    );
    check(
        "SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, [1, 0], true, {'distanceFunction': 'euclidean'})",
        &items,
        &json!(["near", "far"]),
    );
}

#[test]
fn full_text() {
    check_values(&[
        (
            "FULLTEXTCONTAINS('The red Bicycle, new.', 'RED bicycle')",
            json!(true),
        ),
        ("FULLTEXTCONTAINS('The red bicycle', 'cycle')", json!(false)),
        ("FULLTEXTCONTAINSALL('a b c', 'c', 'a b')", json!(true)),
        ("FULLTEXTCONTAINSALL('a b c', 'a c')", json!(false)),
        ("FULLTEXTCONTAINSANY('a b c', 'x', 'b')", json!(true)),
        ("FULLTEXTCONTAINS(1, 'b')", undefined()),
    ]);
}

#[test]
fn slow_regular_expressions_run_out_of_steps() {
    let text = "ab".repeat(500_000);
    for (pattern, runs) in [
        ("^(ab)*$", true),
        ("b.*b", true),
        ("(a|b)*a(a|b){900}c", false),
        ("[^c]{0,999}c", false),
    ] {
        let parameters = [("@p".to_owned(), json!(pattern))];
        for query in [
            "SELECT VALUE RegexMatch(c.text, @p) FROM c",
            "SELECT VALUE RegexMatch(c.text, c.pattern) FROM c",
        ] {
            let item = json!({"text": text, "pattern": pattern});
            let parsed = crate::sql::Query::parse(query, &parameters).unwrap();
            let found = parsed.execute([item].into_iter());
            assert_eq!(found.is_ok(), runs, "{pattern}");
            assert!(runs || found.unwrap_err().message.contains("steps"));
        }
    }
}

#[test]
fn slow_patterns_run_out_of_steps() {
    let text = "a".repeat(1_000_000);
    for (pattern, runs) in [
        ("%a".to_owned(), true),
        ("a%a%a".to_owned(), true),
        (format!("%{}b", "a".repeat(100_000)), false),
    ] {
        let parameters = [("@p".to_owned(), json!(pattern))];
        for query in [
            "SELECT VALUE c.text LIKE @p FROM c",
            "SELECT VALUE c.text LIKE c.pattern FROM c",
        ] {
            let item = json!({"text": text, "pattern": pattern});
            let parsed = crate::sql::Query::parse(query, &parameters).unwrap();
            let found = parsed.execute([item].into_iter());
            assert_eq!(found.is_ok(), runs, "{query}");
            assert!(runs || found.unwrap_err().message.contains("steps"));
        }
    }
}

#[test]
fn growing_values_run_out_of_steps() {
    let item = json!({"s": "x".repeat(1_000_000)});
    for expression in [
        format!("CONCAT({})", vec!["c.s"; 500].join(", ")),
        "REPLACE(c.s, 'x', c.s)".to_owned(),
        format!("[{}]", vec!["c"; 500].join(", ")),
        "STRINGJOIN(STRINGSPLIT(c.s, 'x'), c.s)".to_owned(),
    ] {
        let query = format!("SELECT VALUE {expression} FROM c");
        let error = crate::sql::Query::parse(&query, &[])
            .unwrap()
            .execute([item.clone()].into_iter())
            .unwrap_err();
        assert!(error.message.contains("steps"), "{error}");
    }
}

/// Every function of the public reference, by its page.
const REFERENCE: &str = "
    AVG COUNT MAX MIN SUM COUNTIF MAKELIST MAKESET
    ARRAY_AVG ARRAY_CONCAT ARRAY_CONTAINS ARRAY_CONTAINS_ALL ARRAY_CONTAINS_ANY ARRAY_LENGTH ARRAY_MAX ARRAY_MEDIAN ARRAY_MIN
    ARRAY_SLICE ARRAY_SUM CHOOSE OBJECTTOARRAY SETDIFFERENCE SETEQUAL SETINTERSECT SETUNION
    IIF
    AGO DATETIMEADD DATETIMEBIN DATETIMEDIFF DATETIMEFORMAT DATETIMEFROMPARTS DATETIMEPART DATETIMETOTICKS DATETIMETOTIMESTAMP DAY
    GETCURRENTDATETIME GETCURRENTDATETIMESTATIC GETCURRENTTICKS GETCURRENTTICKSSTATIC GETCURRENTTIMESTAMP GETCURRENTTIMESTAMPSTATIC
    MONTH NOW TICKSTODATETIME TIMESTAMPTODATETIME YEAR
    DOCUMENTID
    ABS ACOS ASIN ATAN ATN2 CEILING COS COT DEGREES EXP FLOOR INTADD INTBITAND INTBITLEFTSHIFT INTBITNOT INTBITOR INTBITRIGHTSHIFT
    INTBITXOR INTDIV INTMOD INTMUL INTSUB LOG LOG10 NUMBERBIN PI POWER RADIANS RAND ROUND SIGN SIN SQRT SQUARE TAN TRUNC
    ST_AREA ST_DISTANCE ST_INTERSECTS ST_ISVALID ST_ISVALIDDETAILED ST_WITHIN
    CONCAT CONTAINS CONTAINS_ALL_CI CONTAINS_ALL_CS CONTAINS_ANY_CI CONTAINS_ANY_CS ENDSWITH INDEX_OF LASTINDEXOF LEFT LENGTH LOWER
    LTRIM REGEXMATCH REPLACE REPLICATE REVERSE RIGHT RTRIM STARTSWITH STRINGEQUALS STRINGJOIN STRINGSPLIT STRINGTOARRAY
    STRINGTOBOOLEAN STRINGTONULL STRINGTONUMBER STRINGTOOBJECT SUBSTRING TOSTRING TRIM UPPER
    IS_ARRAY IS_BOOL IS_DATETIME IS_DEFINED IS_FINITE_NUMBER IS_INTEGER IS_NULL IS_NUMBER IS_OBJECT IS_PRIMITIVE IS_STRING
    FULLTEXTCONTAINS FULLTEXTCONTAINSALL FULLTEXTCONTAINSANY VECTORDISTANCE";

#[test]
fn the_whole_reference_is_there() {
    for name in REFERENCE.split_ascii_whitespace() {
        let known = crate::sql::functions::find(name).is_some()
            || crate::sql::functions::Aggregate::from_name(name).is_some();
        assert!(known, "{name}");
        let lower = name.to_ascii_lowercase();
        assert_eq!(
            crate::sql::functions::find(&lower).is_some(),
            crate::sql::functions::find(name).is_some()
        );
    }
}
