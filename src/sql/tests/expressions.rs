use super::{check, check_values, refusal};
use serde_json::json;

#[test]
fn three_valued_logic() {
    let undefined = || json!("undefined");
    check_values(&[
        ("true AND undefined", undefined()),
        ("undefined AND true", undefined()),
        ("false AND undefined", json!(false)),
        ("undefined AND false", json!(false)),
        ("true OR undefined", json!(true)),
        ("undefined OR true", json!(true)),
        ("false OR undefined", undefined()),
        ("NOT undefined", undefined()),
        ("NOT 1", undefined()),
        ("1 AND true", undefined()),
        ("'a' OR true", json!(true)),
        ("NOT false", json!(true)),
        ("!true", json!(false)),
    ]);
}

#[test]
fn comparison_and_types() {
    let undefined = || json!("undefined");
    check_values(&[
        ("1 = 1.0", json!(true)),
        ("1 = '1'", json!(false)),
        ("1 != '1'", json!(true)),
        ("1 <> 2", json!(true)),
        ("null = null", json!(true)),
        ("undefined = undefined", undefined()),
        ("undefined != 1", undefined()),
        ("null != undefined", undefined()),
        ("1 < '1'", undefined()),
        ("null < 1", undefined()),
        ("false < true", json!(true)),
        ("'B' < 'a'", json!(true)),
        ("[1, 2] = [1.0, 2]", json!(true)),
        ("[1] < [2]", undefined()),
        ("{a: 1, b: 2} = {b: 2, a: 1}", json!(true)),
        ("{a: 1} = {a: 1, b: undefined}", json!(true)),
        ("9007199254740993 = 9007199254740992", json!(false)),
        ("5 BETWEEN 1 AND 5", json!(true)),
        ("5 NOT BETWEEN 1 AND 4", json!(true)),
        ("'5' BETWEEN 1 AND 9", undefined()),
        ("3 IN (1, 2, 3.0)", json!(true)),
        ("3 NOT IN (1, 'x')", json!(true)),
        ("undefined IN (1)", undefined()),
        ("[1] IN ([1], 2)", json!(true)),
        ("1 IN (undefined, 1 + 0)", json!(true)),
        ("'abc' LIKE 'a%'", json!(true)),
        ("'abc' NOT LIKE 'a%'", json!(false)),
        ("'a%c' LIKE 'a!%c' ESCAPE '!'", json!(true)),
        ("'abc' LIKE LOWER('A%')", json!(true)),
        ("1 LIKE 'a'", undefined()),
    ]);
}

#[test]
fn arithmetic_and_precedence() {
    let undefined = || json!("undefined");
    check_values(&[
        ("1 + 2 * 3", json!(7)),
        ("(1 + 2) * 3", json!(9)),
        ("7 / 2", json!(3.5)),
        ("6 / 2", json!(3)),
        ("-7 % 3", json!(-1)),
        ("1 / 0", undefined()),
        ("1 + 'a'", undefined()),
        ("- 'a'", undefined()),
        ("+5 - -5", json!(10)),
        ("2 - 3 - 4", json!(-5)),
        ("0.1 + 0.2", json!(0.30000000000000004)),
        ("5 & 3", json!(1)),
        ("5 | 3", json!(7)),
        ("5 ^ 3", json!(6)),
        ("~5", json!(-6)),
        ("1 << 33", json!(2)),
        ("-16 >> 2", json!(-4)),
        ("-1 >>> 0", json!(4_294_967_295_u64)),
        ("1 + 1 = 2 AND NOT 1 = 2", json!(true)),
        ("true OR false AND false", json!(true)),
        ("'a' || 'b' || 'c' = 'abc'", json!(true)),
        ("'a' || 1", undefined()),
        ("undefined ?? null ?? 1", json!(null)),
        ("undefined ?? 'x'", json!("x")),
        ("1 = 1 ? 'y' : 'n'", json!("y")),
        ("undefined ? 1 : 2", json!(2)),
        ("false ? 1 : true ? 2 : 3", json!(2)),
        ("true ? undefined : 1", undefined()),
        ("-9223372036854775808", json!(i64::MIN)),
        ("0xFF", json!(255)),
        ("1e3", json!(1000)),
        ("NaN", undefined()),
    ]);
}

#[test]
fn values_and_steps() {
    let undefined = || json!("undefined");
    check_values(&[
        ("[1, undefined, 2]", json!([1, 2])),
        ("{a: undefined, 'b c': [{}]}", json!({"b c": [{}]})),
        ("[10, 20][1]", json!(20)),
        ("[10, 20][2]", undefined()),
        ("{a: {b: 5}}.a.b", json!(5)),
        ("{a: {b: 5}}['a'].b", json!(5)),
        ("{ab: 5}['a' || 'b']", json!(5)),
        ("[1, 2][3 - 2]", json!(2)),
        ("'abc'[0]", undefined()),
        ("{a: 1}[0]", undefined()),
        ("{order: 1}.order", json!(1)),
        ("'\\u00e9\\n\\'\\\"\\\\'", json!("é\n'\"\\")),
        ("\"it's\"", json!("it's")),
        ("(SELECT VALUE 1)", json!(1)),
        ("(SELECT 1 AS a, 2 AS b)", json!({"a": 1, "b": 2})),
        (
            "ARRAY(SELECT VALUE x * 2 FROM x IN [1, 2, 3] WHERE x > 1)",
            json!([4, 6]),
        ),
        ("(SELECT VALUE SUM(x) FROM x IN [1, 2, 3])", json!(6)),
        ("EXISTS(SELECT VALUE x FROM x IN [])", json!(false)),
        ("(SELECT VALUE x FROM x IN [])", undefined()),
    ]);
    assert!(
        refusal("SELECT VALUE (SELECT VALUE x FROM x IN [1, 2])")
            .message
            .contains("cardinality")
    );
}

#[test]
fn sources_of_every_kind() {
    let items = json!([{"id": "1", "meta": {"color": "blue", "size": "s"}, "deep": [[1, 2], [3]]}]);
    check(
        "SELECT p.id, kv.k, kv['v'] AS w FROM p JOIN kv IN OBJECTTOARRAY(p.meta)",
        &items,
        &json!([{"id": "1", "k": "color", "w": "blue"}, {"id": "1", "k": "size", "w": "s"}]),
    );
    check(
        "SELECT VALUE y FROM c JOIN x IN c.deep JOIN y IN x",
        &items,
        &json!([1, 2, 3]),
    );
    check(
        "SELECT VALUE y FROM x IN c.deep JOIN y IN x",
        &items,
        &json!([1, 2, 3]),
    );
    check(
        "SELECT VALUE x FROM c.deep[0] AS x",
        &items,
        &json!([[1, 2]]),
    );
    check(
        "SELECT VALUE deep FROM c.deep",
        &items,
        &json!([[[1, 2], [3]]]),
    );
    check("SELECT * FROM c.meta", &items, &json!([items[0]["meta"]]));
    check("SELECT * FROM x IN c.deep", &items, &json!([[1, 2], [3]]));
    check("SELECT VALUE x FROM x IN [1, 2]", &items, &json!([1, 2]));
    check(
        "SELECT VALUE m.color FROM c JOIN m IN (SELECT VALUE [c.meta])",
        &items,
        &json!(["blue"]),
    );
    check(
        "SELECT VALUE s FROM c JOIN (SELECT VALUE ARRAY(SELECT VALUE y + 1 FROM y IN x) FROM x IN c.deep) s",
        &items,
        &json!([[2, 3], [4]]),
    );
    // A subquery sees the names around it.
    check(
        "SELECT VALUE (SELECT VALUE COUNT(1) FROM x IN c.deep WHERE ARRAY_LENGTH(x) > ARRAY_LENGTH(c.deep) - 1) FROM c",
        &items,
        &json!([1]),
    );
    check(
        "SELECT VALUE n FROM (SELECT VALUE c.id FROM c) AS n",
        &items,
        &json!(["1"]),
    );
    check(
        "SELECT VALUE (SELECT VALUE c.meta.color FROM c) FROM c",
        &items,
        &json!(["blue"]),
    );
}
