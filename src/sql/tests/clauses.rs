use super::{check, check_with, refusal};
use crate::sql::{Condition, ConditionOutcome, Query};
use serde_json::{Value, json};

fn people() -> Value {
    json!([
        {"id": "1", "pk": "a", "n": 3, "name": "Ada", "tags": ["x", "y"]},
        {"id": "2", "pk": "a", "n": 1, "name": "Bob", "tags": ["y"]},
        {"id": "3", "pk": "b", "n": 2, "name": null, "tags": []},
        {"id": "4", "pk": "b", "name": "Dee"},
    ])
}

fn ids(query: &str, expected: &[&str]) {
    check(query, &people(), &json!(expected));
}

#[test]
fn queries_of_read_many() {
    check_with(
        "SELECT * FROM c WHERE ( ( c.id = @param_id0 AND c.pk = @param_pk00 ) OR ( c.id = @param_id1 AND c.pk = @param_pk10 ) )",
        &json!({"@param_id0": "1", "@param_pk00": "a", "@param_id1": "3", "@param_pk10": "x"}),
        &people(),
        &json!([people()[0]]),
    );
    check_with(
        "SELECT VALUE c.id FROM c WHERE c.id IN (@a, @b) AND IS_DEFINED(c.n) = false",
        &json!({"@a": "4", "@b": "1"}),
        &people(),
        &json!(["4"]),
    );
}

#[test]
fn queries_of_offer_feeds() {
    let offers = json!([{"resource": "x", "id": "1"}, {"resource": "y", "id": "2"}]);
    check_with(
        "SELECT * FROM root r WHERE r.resource=@link",
        &json!({"@link": "y"}),
        &offers,
        &json!([offers[1]]),
    );
    check(
        "SELECT * from root where root.resource = \"x\"",
        &offers,
        &json!([offers[0]]),
    );
    check(
        "SELECT * FROM ROOT WHERE ROOT.resource = 'x'",
        &offers,
        &json!([offers[0]]),
    );
}

#[test]
fn order_by_rows_of_clients_that_merge() {
    check(
        r#"SELECT VALUE {"_rid": c._rid, "orderByItems": [{"item": c.n}], "payload": c} FROM c WHERE (c.n > 1) AND true ORDER BY c.n"#,
        &json!([{"_rid": "r2", "n": 3}, {"_rid": "r1", "n": 2}, {"_rid": "r0", "n": 1}]),
        &json!([
            {"_rid": "r1", "orderByItems": [{"item": 2}], "payload": {"_rid": "r1", "n": 2}},
            {"_rid": "r2", "orderByItems": [{"item": 3}], "payload": {"_rid": "r2", "n": 3}},
        ]),
    );
    check(
        r#"SELECT c._rid, [{"item": c.n}] AS orderByItems, c AS payload FROM c WHERE (true) ORDER BY c.n DESC"#,
        &json!([{"_rid": "r2"}]),
        &json!([{"_rid": "r2", "orderByItems": [{}], "payload": {"_rid": "r2"}}]),
    );
}

#[test]
fn select_lists_and_names() {
    let one = json!([{"id": "1", "a": {"b c": [7, 8]}, "value": 1}]);
    for (query, row) in [
        (
            "SELECT c.id, c.a[\"b c\"], c.a['b c'][0], 1+1 FROM c",
            json!({"id": "1", "b c": [7, 8], "$1": 7, "$2": 2}),
        ),
        (
            "SELECT c.id AS key, c.value val FROM c",
            json!({"key": "1", "val": 1}),
        ),
        ("SELECT c FROM c", json!({"c": one[0]})),
        ("SELECT c.missing, c.id FROM c", json!({"id": "1"})),
        (
            "SELECT VALUE {'x': c.missing, y: [c.missing, c.id]} FROM c",
            json!({"y": ["1"]}),
        ),
        ("SELECT VALUE b FROM c.a.b", json!("gone")),
    ] {
        let expected = if row == json!("gone") {
            json!([])
        } else {
            json!([row])
        };
        check(query, &one, &expected);
    }
    check("SELECT VALUE c.missing FROM c", &one, &json!([]));
    check("SELECT 1, 'x' AS y", &one, &json!([{"$1": 1, "y": "x"}]));
    check(
        "SELECT VALUE b FROM c.a['b c'] AS b",
        &one,
        &json!([[7, 8]]),
    );
    check("SELECT VALUE b FROM b IN c.a['b c']", &one, &json!([7, 8]));
}

#[test]
fn filters_order_and_windows() {
    ids("SELECT VALUE c.id FROM c WHERE c.n >= 2", &["1", "3"]);
    ids("SELECT VALUE c.id FROM c WHERE c.n != 2", &["1", "2"]);
    ids(
        "SELECT VALUE c.id FROM c WHERE c.name != null",
        &["1", "2", "4"],
    );
    ids("SELECT VALUE c.id FROM c WHERE NOT (c.n = 2)", &["1", "2"]);
    ids(
        "SELECT VALUE c.id FROM c WHERE c.n BETWEEN 1 AND 2 AND c.pk = 'a'",
        &["2"],
    );
    ids("SELECT VALUE c.id FROM c WHERE c.name LIKE '%d%'", &["1"]);
    ids(
        "SELECT VALUE c.id FROM c ORDER BY c.n",
        &["4", "2", "3", "1"],
    );
    ids(
        "SELECT VALUE c.id FROM c ORDER BY c.n DESC",
        &["1", "3", "2", "4"],
    );
    ids(
        "SELECT VALUE c.id FROM c ORDER BY c.pk DESC, c.n ASC",
        &["4", "3", "2", "1"],
    );
    ids(
        "SELECT VALUE c.id FROM c ORDER BY c.name",
        &["3", "1", "2", "4"],
    );
    ids("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n", &["4", "2"]);
    ids(
        "SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 1 LIMIT 2",
        &["2", "3"],
    );
    ids("SELECT VALUE c.id FROM c OFFSET 3 LIMIT 5", &["4"]);
    ids("SELECT TOP 0 VALUE c.id FROM c", &[]);
    ids("SELECT DISTINCT VALUE c.pk FROM c", &["a", "b"]);
    ids(
        "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk DESC",
        &["b", "a"],
    );
    check_with(
        "SELECT TOP @t VALUE c.id FROM c",
        &json!({"@t": 1}),
        &people(),
        &json!(["1"]),
    );
}

#[test]
fn joins_and_subqueries() {
    ids(
        "SELECT VALUE c.id || t FROM c JOIN t IN c.tags",
        &["1x", "1y", "2y"],
    );
    ids(
        "SELECT VALUE t || u FROM c JOIN t IN c.tags JOIN u IN c.tags WHERE c.id='1'",
        &["xx", "xy", "yx", "yy"],
    );
    ids("SELECT VALUE t FROM t IN c.tags", &["x", "y", "y"]);
    ids(
        "SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'x')",
        &["1"],
    );
    ids(
        "SELECT VALUE c.id FROM c JOIN (SELECT VALUE t FROM t IN c.tags WHERE t = 'y')",
        &["1", "2"],
    );
    ids(
        "SELECT VALUE t FROM c JOIN (SELECT VALUE t FROM t IN c.tags WHERE t = 'y') AS t",
        &["y", "y"],
    );
    ids(
        "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags",
        &["x", "y"],
    );
    check(
        "SELECT c.id, ARRAY(SELECT VALUE UP FROM UP IN c.tags) AS up, (SELECT VALUE COUNT(1) FROM t IN c.tags) AS k FROM c WHERE c.pk = 'a'",
        &people(),
        &json!([{"id": "1", "up": ["x", "y"], "k": 2}, {"id": "2", "up": ["y"], "k": 1}]),
    );
    check(
        "SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.pk FROM c) AS t",
        &people(),
        &json!([2]),
    );
    check(
        "SELECT VALUE s.id FROM (SELECT c.id FROM c WHERE c.n > 1) AS s",
        &people(),
        &json!(["1", "3"]),
    );
    check(
        "SELECT VALUE ALL(SELECT VALUE t FROM t IN c.tags WHERE t = 'y') FROM c",
        &people(),
        &json!([false, true, true, true]),
    );
    check(
        "SELECT VALUE FIRST(SELECT VALUE t FROM t IN c.tags) FROM c",
        &people(),
        &json!(["x", "y"]),
    );
}

#[test]
fn aggregates_and_groups() {
    for (query, expected) in [
        ("SELECT VALUE COUNT(1) FROM c", json!([4])),
        ("SELECT VALUE COUNT(c.n) FROM c", json!([3])),
        (
            "SELECT COUNT(1) AS k, SUM(c.n) AS s, AVG(c.n) AS a, MIN(c.n) AS l, MAX(c.n) AS h FROM c",
            json!([{"k": 4, "s": 6, "a": 2, "l": 1, "h": 3}]),
        ),
        (
            "SELECT COUNT(1), SUM(c.n) FROM c",
            json!([{"$1": 4, "$2": 6}]),
        ),
        ("SELECT VALUE SUM(c.name) FROM c", json!([])),
        ("SELECT VALUE MAX(c.name) FROM c", json!(["Dee"])),
        ("SELECT VALUE MIN(c.name) FROM c", json!([null])),
        ("SELECT VALUE MIN(c.tags) FROM c", json!([])),
        ("SELECT VALUE AVG(c.n) FROM c WHERE false", json!([])),
        ("SELECT VALUE SUM(c.n) FROM c WHERE false", json!([0])),
        ("SELECT VALUE COUNT(1) FROM c WHERE false", json!([0])),
        ("SELECT VALUE COUNTIF(c.n > 1) FROM c", json!([2])),
        (
            "SELECT VALUE MAKELIST(c.pk) FROM c",
            json!([["a", "a", "b", "b"]]),
        ),
        ("SELECT VALUE MAKESET(c.pk) FROM c", json!([["a", "b"]])),
        ("SELECT VALUE COUNT(1) + 1 FROM c", json!([5])),
        (
            "SELECT c.pk, COUNT(1) AS k FROM c GROUP BY c.pk",
            json!([{"pk": "a", "k": 2}, {"pk": "b", "k": 2}]),
        ),
        ("SELECT VALUE c.pk FROM c GROUP BY c.pk", json!(["a", "b"])),
        (
            "SELECT c.pk || '!' AS p FROM c GROUP BY c.pk",
            json!([{"p": "a!"}, {"p": "b!"}]),
        ),
        (
            "SELECT SUM(c.n) AS s FROM c GROUP BY c.pk",
            json!([{"s": 4}, {"s": 2}]),
        ),
        (
            "SELECT c.n, COUNT(1) AS k FROM c WHERE c.pk='b' GROUP BY c.n",
            json!([{"n": 2, "k": 1}, {"k": 1}]),
        ),
        (
            "SELECT VALUE {\"payload\": {\"k\": {\"item\": COUNT(1)}}, \"g\": [{\"item\": c.pk}]} FROM c GROUP BY c.pk",
            json!([{"payload": {"k": {"item": 2}}, "g": [{"item": "a"}]}, {"payload": {"k": {"item": 2}}, "g": [{"item": "b"}]}]),
        ),
        (
            "SELECT t, COUNT(1) AS k FROM c JOIN t IN c.tags GROUP BY t",
            json!([{"t": "x", "k": 1}, {"t": "y", "k": 2}]),
        ),
        (
            "SELECT c.o.a AS a, COUNT(1) AS k FROM c GROUP BY c.o",
            json!([{"k": 4}]),
        ),
        (
            "SELECT VALUE COUNT(1) FROM c GROUP BY c.pk OFFSET 1 LIMIT 1",
            json!([2]),
        ),
        (
            "SELECT c.pk FROM c GROUP BY c.pk ORDER BY c.pk DESC",
            json!([{"pk": "b"}, {"pk": "a"}]),
        ),
    ] {
        check(query, &people(), &expected);
    }
}

#[test]
fn conditions_of_patches() {
    let item = json!({"n": 5, "tags": ["x"]});
    for (text, holds) in [
        ("from c where c.n = 5", true),
        ("FROM c WHERE c.n > 5", false),
        ("from c", true),
        ("from c where c.missing = 1", false),
        ("from c join t in c.tags where t = 'x'", false),
    ] {
        let parsed = Condition::parse(text);
        if text.contains("join") {
            assert!(parsed.is_err());
        } else {
            let evaluated = parsed.unwrap().evaluate(&item, 0, 10).unwrap();
            assert!(
                matches!(evaluated, ConditionOutcome::Done { holds: found, .. } if found == holds),
                "{text}: {evaluated:?}"
            );
        }
    }
    assert!(Condition::parse("where c.n = 5").is_err());
    assert!(Condition::parse("from c where c.n = 5 order by c.n").is_err());
}

#[test]
fn refusals_name_code_and_place() {
    for (query, start, end, code, message) in [
        (
            "SELECT * FRO c",
            9,
            12,
            "SC1001",
            "Syntax error, incorrect syntax near 'FRO'. Expected",
        ),
        ("SELECT é FROM", 13, 13, "SC1001", "unexpected end"),
        ("", 0, 0, "SC1001", "unexpected end"),
        ("SELECT * FROM c WHERE", 21, 21, "SC1001", "unexpected end"),
        (
            "SELECT VALUE 'é' = d.x FROM c",
            19,
            20,
            "SC2001",
            "Identifier 'd' could not be resolved.",
        ),
        (
            "SELECT nope(1)",
            7,
            11,
            "SC2005",
            "'nope' is not a recognized built-in function name.",
        ),
        ("SELECT IS_NULL(1, 2)", 7, 14, "SC2050", "IS_NULL"),
        (
            "SELECT * FROM c JOIN t IN c.t",
            7,
            8,
            "SC2040",
            "single input set",
        ),
        ("SELECT * FROM c GROUP BY c.x", 7, 8, "SC2041", "GROUP BY"),
        ("SELECT COUNT(SUM(1)) FROM c", 13, 16, "SC2101", "SUM"),
        (
            "SELECT * FROM c WHERE COUNT(1) > 1",
            22,
            27,
            "SC2101",
            "COUNT",
        ),
        ("SELECT c.x, COUNT(1) FROM c", 7, 8, "SC2102", "'c'"),
        (
            "SELECT * FROM c ORDER BY c.x + 1",
            25,
            32,
            "2206",
            "document path",
        ),
        ("SELECT * FROM c WHERE c.x = @p", 28, 30, "SC2007", "@p"),
        ("SELECT udf.f(1)", 11, 12, "SC2202", "user-defined"),
    ] {
        let error = refusal(query);
        assert_eq!(error.status(), 400);
        let body: Value = serde_json::from_str(&error.message).unwrap();
        let first = &body["errors"][0];
        assert_eq!(first["code"], code, "{query} {first}");
        assert_eq!(
            first["location"],
            json!({"start": start, "end": end}),
            "{query} {first}"
        );
        assert!(
            first["message"].as_str().unwrap().contains(message),
            "{query} {first}"
        );
        assert_eq!(first["severity"], "Error");
    }
}

#[test]
fn bounds_are_kept() {
    let deep = format!("SELECT VALUE {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    let long = format!("SELECT VALUE 1{}", "+1".repeat(100_000));
    let pyramid = format!(
        "SELECT VALUE {}",
        (0..100).fold("1".to_owned(), |e, _| format!("({e}{})", "+1".repeat(100)))
    );
    let not = format!("SELECT VALUE {} true", "NOT ".repeat(10_000));
    let joins = format!("SELECT VALUE 1 FROM c {}", "JOIN t IN c.t ".repeat(6));
    let list = format!("SELECT VALUE 1 IN (0{})", ",1".repeat(16_000));
    let text = format!("SELECT VALUE '{}'", "x".repeat(512 * 1024));
    for query in [deep, long, pyramid, not, joins, list, text] {
        assert!(
            refusal(&query).message.contains("SC1010"),
            "{}",
            &query[..40]
        );
    }
    let wide = format!(
        "SELECT VALUE c.id FROM c WHERE false{}",
        " OR c.id = '1'".repeat(30_000)
    );
    check(&wide, &json!([{"id": "1"}]), &json!(["1"]));
    let most = format!("SELECT VALUE {}1{}", "(".repeat(120), ")".repeat(120));
    check(&most, &json!([]), &json!([1]));
}

#[test]
fn a_join_product_runs_out_of_steps() {
    let item = json!({"a": vec![0; 1000]});
    let query = Query::parse(
        "SELECT VALUE 1 FROM c JOIN a IN c.a JOIN b IN c.a JOIN d IN c.a WHERE false",
        &[],
    )
    .unwrap();
    let error = query.execute([item].into_iter()).unwrap_err();
    assert!(error.message.contains("steps"), "{error}");
}

#[test]
fn no_condition_works_for_long_without_steps() {
    let numbers: Vec<u32> = (0..3_000).collect();
    let text = "x".repeat(100_000);
    let same = text.clone();
    let item = json!({"id": "1", "numbers": numbers, "text": text, "same": same});
    let wide = vec!["c.id = '2'"; 2_000].join(" OR ");
    let list = vec!["c.none"; 2_000].join(", ");
    for condition in [
        // A last source without rows.
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers JOIN b IN c.numbers JOIN z IN b.none)"
            .to_owned(),
        // Work that each row repeats.
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE ARRAY_SUM(c.numbers) = -1)".to_owned(),
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE ARRAY_MAX(c.numbers) = -1)".to_owned(),
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE c.numbers != c.numbers)".to_owned(),
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE c.text != c.same)".to_owned(),
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE CONTAINS(c.text, 'y'))".to_owned(),
        "EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE STRINGEQUALS(c.text, 'y', true))"
            .to_owned(),
        format!("EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE {wide})"),
        format!("EXISTS(SELECT VALUE 1 FROM a IN c.numbers WHERE a IN ({list}))"),
    ] {
        let parsed = Condition::parse(&format!("FROM c WHERE {condition}")).unwrap();
        let outcome = parsed.evaluate(&item, 0, 100_000).unwrap();
        let start: String = condition.chars().take(80).collect();
        assert_eq!(outcome, ConditionOutcome::OutOfSteps, "{start}");
    }
}
