use crate::sql::{Features, PartitionKeys, Query, SdkPlan, sdk_plan};
use serde_json::{Value, json};

fn info(query: &str) -> Value {
    let parameters = [("@n".to_owned(), json!(7))];
    sdk_plan(query, &parameters, &["/key".to_owned()])
        .unwrap_or_else(|e| panic!("{query}\n{e}"))
        .query_info
}

/// Whether `part` holds within `whole`.
fn assert_has(whole: &Value, part: &Value, query: &str) {
    for (name, expected) in part.as_object().unwrap() {
        assert_eq!(&whole[name], expected, "{query}: {name}");
    }
}

const PLACE: &str = "({documentdb-formattableorderbyquery-filter})";

#[test]
fn rewritten_queries() {
    for (query, rewritten) in [
        ("SELECT * FROM c WHERE c.x = 1", String::new()),
        ("SELECT TOP 5 * FROM c", String::new()),
        ("SELECT DISTINCT c.x FROM c", String::new()),
        ("SELECT * FROM Root r ORDER BY r.b", format!("SELECT r._rid, [{{\"item\": r.b}}] AS orderByItems, r AS payload\nFROM Root AS r\nWHERE {PLACE}\nORDER BY r.b")),
        ("SELECT TOP @n c.a, c.x + 1 FROM c WHERE c.y = 'z' ORDER BY c.b DESC, c.d ASC", format!("SELECT TOP 7 c._rid, [{{\"item\": c.b}}, {{\"item\": c.d}}] AS orderByItems, {{\"a\": c.a, \"$1\": (c.x + 1)}} AS payload\nFROM c\nWHERE ((c.y = \"z\") AND {PLACE})\nORDER BY c.b DESC, c.d ASC")),
        ("SELECT DISTINCT VALUE c.b FROM c ORDER BY c.b OFFSET 2 LIMIT 3", format!("SELECT c._rid, [{{\"item\": c.b}}] AS orderByItems, c.b AS payload\nFROM c\nWHERE ({PLACE} AND IS_DEFINED(c.b))\nORDER BY c.b")),
        ("SELECT * FROM c ORDER BY c.b OFFSET 2 LIMIT 3", format!("SELECT c._rid, [{{\"item\": c.b}}] AS orderByItems, c AS payload\nFROM c\nWHERE {PLACE}\nORDER BY c.b\nOFFSET 0 LIMIT 5")),
        ("SELECT * FROM c OFFSET @n LIMIT 2", "SELECT *\nFROM c\nOFFSET 0 LIMIT 9".into()),
        ("SELECT * FROM c WHERE c.key = 5 OFFSET 1 LIMIT 2", String::new()),
        ("SELECT DISTINCT TOP 5 VALUE c.n FROM c", "SELECT DISTINCT VALUE c.n\nFROM c".into()),
        ("SELECT VALUE COUNT(1) FROM c", "SELECT VALUE [{\"item\": COUNT(1)}]\nFROM c".into()),
        ("SELECT TOP 3 VALUE AVG(c.x) FROM c", "SELECT VALUE [{\"item\": {\"sum\": SUM(c.x), \"count\": COUNT(c.x)}}]\nFROM c".into()),
        ("SELECT VALUE MAX(c.x) FROM c", "SELECT VALUE [{\"item\": MAX(c.x), \"item2\": {\"max\": MAX(c.x), \"count\": COUNT(c.x)}}]\nFROM c".into()),
        ("SELECT SUM(c.x), COUNT(1) AS k FROM c", "SELECT {\"$1\": {\"item\": SUM(c.x)}, \"k\": {\"item\": COUNT(1)}} AS payload\nFROM c".into()),
        ("SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g OFFSET 1 LIMIT 2", "SELECT [{\"item\": c.g}] AS groupByItems, {\"g\": c.g, \"k\": {\"item\": COUNT(1)}} AS payload\nFROM c\nGROUP BY c.g".into()),
        ("SELECT VALUE MIN(c.x) FROM c GROUP BY c.g", "SELECT [{\"item\": c.g}] AS groupByItems, [{\"item\": MIN(c.x), \"item2\": {\"min\": MIN(c.x), \"count\": COUNT(c.x)}}] AS payload\nFROM c\nGROUP BY c.g".into()),
        ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.x FROM c) AS t", "SELECT DISTINCT VALUE c.x\nFROM c".into()),
    ] {
        let info = info(query);
        assert_eq!(info["rewrittenQuery"], rewritten, "{query}");
        // What a client sends must run here.
        let sent = rewritten.replace("{documentdb-formattableorderbyquery-filter}", "true");
        if !sent.is_empty() {
            Query::parse(&sent, &[]).unwrap_or_else(|e| panic!("{sent}\n{e}"));
        }
    }
}

#[test]
fn what_clients_merge() {
    for (query, expected) in [
        (
            "SELECT * FROM c",
            json!({"distinctType": "None", "top": null, "offset": null, "limit": null, "orderBy": [], "aggregates": [], "hasSelectValue": false, "dCountInfo": null, "hasNonStreamingOrderBy": false}),
        ),
        ("SELECT TOP 5 * FROM c", json!({"top": 5})),
        (
            "SELECT * FROM c OFFSET 1 LIMIT 2",
            json!({"offset": 1, "limit": 2}),
        ),
        (
            "SELECT * FROM c WHERE c.key = 1 OFFSET 1 LIMIT 2",
            json!({"offset": null, "limit": null}),
        ),
        (
            "SELECT c.a FROM c ORDER BY c.a, c['b c'] DESC",
            json!({"orderBy": ["Ascending", "Descending"], "orderByExpressions": ["c.a", "c[\"b c\"]"]}),
        ),
        (
            "SELECT DISTINCT VALUE c.a FROM c ORDER BY c.a",
            json!({"distinctType": "Ordered", "hasSelectValue": true}),
        ),
        (
            "SELECT DISTINCT c.a FROM c ORDER BY c.a",
            json!({"distinctType": "Unordered"}),
        ),
        (
            "SELECT VALUE COUNTIF(c.a) FROM c",
            json!({"aggregates": ["CountIf"], "groupByAliases": [], "groupByAliasToAggregateType": {}}),
        ),
        (
            "SELECT AVG(c.a) FROM c",
            json!({"aggregates": [], "groupByAliases": ["$1"], "groupByAliasToAggregateType": {"$1": "Average"}}),
        ),
        (
            "SELECT c.g, MAKESET(c.a) AS s FROM c GROUP BY c.g",
            json!({"groupByExpressions": ["c.g"], "groupByAliases": ["g", "s"], "groupByAliasToAggregateType": {"g": null, "s": "MakeSet"}}),
        ),
        (
            "SELECT COUNT(1) AS k FROM (SELECT DISTINCT c.x FROM c)",
            json!({"dCountInfo": {"dCountAlias": "k"}, "distinctType": "Unordered"}),
        ),
        (
            "SELECT c.id FROM c ORDER BY VectorDistance(c.v, [1])",
            json!({"orderBy": ["Descending"], "hasNonStreamingOrderBy": true}),
        ),
    ] {
        assert_has(&info(query), &expected, query);
    }
}

#[test]
fn needs_are_checked_against_the_client() {
    let python = Features::parse(
        "Aggregate,CompositeAggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,NonStreamingOrderBy,HybridSearch,CountIf,WeightedRankFusion",
    );
    let spaced = Features::parse("Aggregate, GroupBy, MultipleAggregates, NonValueAggregate");
    for (query, for_python, for_spaced) in [
        ("SELECT * FROM c", true, true),
        ("SELECT VALUE COUNT(1) FROM c", true, true),
        ("SELECT COUNT(1), SUM(c.x) FROM c", false, true),
        ("SELECT c.g, COUNT(1) FROM c GROUP BY c.g", false, true),
        ("SELECT * FROM c ORDER BY c.x", true, false),
        ("SELECT DISTINCT c.x FROM c", true, false),
    ] {
        let planned = sdk_plan(query, &[], &[]).unwrap();
        assert_eq!(planned.check(&python).is_ok(), for_python, "{query}");
        assert_eq!(planned.check(&spaced).is_ok(), for_spaced, "{query}");
    }
    let passed = SdkPlan::as_it_is();
    assert!(passed.check(&Features::default()).is_ok());
    assert_eq!(passed.query_info["rewrittenQuery"], "");
}

#[test]
fn what_cannot_be_merged_is_refused() {
    for (query, message) in [
        (
            "SELECT VALUE {'s': SUM(c.x)} FROM c",
            "Compositions of aggregates",
        ),
        ("SELECT MIN(c.x) / 2 FROM c", "Compositions of aggregates"),
        ("SELECT c.g FROM c GROUP BY c.g ORDER BY c.g", "ORDER BY"),
        ("SELECT VALUE x FROM x IN c.a ORDER BY x.b", "correlated"),
        (
            "SELECT VALUE t FROM (SELECT TOP 1 VALUE c.x FROM c) AS t",
            "several partitions",
        ),
    ] {
        let error = sdk_plan(query, &[], &[]).expect_err(query);
        assert_eq!(error.status(), 400);
        assert!(error.message.contains(message), "{query}: {error}");
        // Where there is one partition, or the server merges, the query itself runs.
        assert!(Query::parse(query, &[]).is_ok(), "{query}");
    }
}

#[test]
fn the_answer_and_its_keys() {
    let planned = sdk_plan(
        "SELECT * FROM c WHERE c.key = 'x'",
        &[],
        &["/key".to_owned()],
    )
    .unwrap();
    assert_eq!(
        planned.partition_keys,
        PartitionKeys::Only(vec![vec![json!("x")]])
    );
    let answer = planned.render(json!([{"min": "", "max": "FF"}]));
    assert_eq!(answer["partitionedQueryExecutionInfoVersion"], 2);
    assert_eq!(answer["queryRanges"][0]["max"], "FF");
}
