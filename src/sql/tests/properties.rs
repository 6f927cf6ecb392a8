//! What must hold for every text.

use crate::sql::ast::SelectQuery;
use crate::sql::{Query, parser, sdk_plan};
use proptest::prelude::*;
use serde_json::json;

/// Pieces that queries are made of, and some that they are not.
const PIECES: [&str; 96] = [
    "SELECT",
    "VALUE",
    "DISTINCT",
    "TOP",
    "FROM",
    "WHERE",
    "ORDER",
    "GROUP",
    "BY",
    "ASC",
    "DESC",
    "OFFSET",
    "LIMIT",
    "JOIN",
    "IN",
    "AS",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "LIKE",
    "ESCAPE",
    "EXISTS",
    "ARRAY",
    "ALL",
    "FIRST",
    "LAST",
    "UDF",
    "RANK",
    "null",
    "true",
    "false",
    "undefined",
    "c",
    "t",
    "c.a",
    "c.b",
    "c.tags",
    "c['x y']",
    "c[0]",
    "c.a.b",
    "1",
    "2.5",
    "-3",
    "0x1F",
    "1e400",
    "'s'",
    "\"é\"",
    "'%a_'",
    "'[a'",
    "@p",
    "@q",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "?",
    "??",
    "||",
    "|",
    "&",
    "^",
    "~",
    "!",
    "=",
    "!=",
    "<>",
    "<",
    "<=",
    ">",
    ">=",
    "<<",
    ">>",
    ">>>",
    "+",
    "-",
    "*",
    "/",
    "%",
    "COUNT(",
    "SUM(",
    "MAX(",
    "LOWER(",
    "REGEXMATCH(",
    "ST_DISTANCE(",
    "DATETIMEADD(",
    "--",
    "/*",
    "*/",
    "\\",
    "é😀",
];

fn soup() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..40)
        .prop_map(|pieces| format!("SELECT {}", pieces.join(" ")))
}

/// Expressions that parse.
fn expression() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "c.a",
        "c",
        "c['x y'].z",
        "c.tags[1]",
        "c.value",
        "1",
        "-2",
        "0.5",
        "1e30",
        "'it\\'s'",
        "\"é\"",
        "null",
        "true",
        "undefined",
        "@p",
        "[]",
        "{}",
        "18446744073709551615",
        "PI()",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(5, 60, 3, |inner| {
        let binary = proptest::sample::select(vec![
            "+", "-", "*", "/", "%", "=", "!=", "<>", "<", ">=", "AND", "OR", "??", "||", "|", "&",
            "^", "<<", ">>>",
        ]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            inner.clone().prop_map(|a| format!("({a})")),
            inner.clone().prop_map(|a| format!("NOT {a}")),
            inner.clone().prop_map(|a| format!("- {a}")),
            inner.clone().prop_map(|a| format!("~({a})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a}) NOT BETWEEN ({b}) AND ({c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) IN ({b}, 1)")),
            inner
                .clone()
                .prop_map(|a| format!("({a}) LIKE '%x' ESCAPE '!'")),
            inner.clone().prop_map(|a| format!("[{a}, 1]")),
            inner.clone().prop_map(|a| format!("{{k: {a}, 'l m': 2}}")),
            inner.clone().prop_map(|a| format!("LOWER({a})")),
            inner.clone().prop_map(|a| format!("({a})[{a}]")),
            inner
                .clone()
                .prop_map(|a| format!("ARRAY(SELECT VALUE t FROM t IN c.tags WHERE {a})")),
            inner.prop_map(|a| format!(
                "EXISTS(SELECT TOP 1 t AS x FROM c JOIN t IN c.a WHERE {a} ORDER BY c.a DESC)"
            )),
        ]
    })
}

fn parse(text: &str) -> Option<SelectQuery> {
    parser::parse(text).ok()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn token_soup_never_panics(text in soup()) {
        let parameters = [("@p".to_owned(), json!(1))];
        if let Ok(query) = Query::parse(&text, &parameters) {
            let items = [json!({"a": 1, "b": "x", "tags": [1, "y"]}), json!({"a": {"b": null}})];
            let _ = query.execute(items.into_iter());
        }
        let _ = sdk_plan(&text, &parameters, &["/a".to_owned()]);
    }

    #[test]
    fn any_text_never_panics(text in "\\PC*") {
        let _ = Query::parse(&text, &[]);
        let _ = Query::parse(&format!("SELECT VALUE {text}"), &[]);
    }

    #[test]
    fn printed_queries_parse_to_the_same_tree(expression in expression()) {
        let text = format!(
            "SELECT DISTINCT TOP 3 {expression} AS x, c.y FROM root AS c JOIN t IN c.tags WHERE {expression} GROUP BY c.y OFFSET 1 LIMIT @p"
        );
        let tree = parse(&text);
        prop_assert!(tree.is_some(), "does not parse: {text}");
        if let Some(tree) = tree {
            let printed = tree.to_string();
            let again = parse(&printed);
            prop_assert_eq!(again.as_ref(), Some(&tree), "{}", printed);
        }
    }

    #[test]
    fn printed_soup_parses_to_the_same_tree(text in soup()) {
        if let Some(tree) = parse(&text) {
            let printed = tree.to_string();
            let again = parse(&printed);
            prop_assert_eq!(again.as_ref(), Some(&tree), "{}", printed);
        }
    }
}

#[test]
fn the_deepest_query_runs_on_a_small_stack() {
    // Threads have 2 MB by default; unoptimised frames are the largest there are.
    let run = || {
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("NOT ", ""),
            ("ABS(", ")"),
            ("- ", ""),
        ] {
            let depth = crate::sql::EXPRESSION_DEPTH_MAX / 2 - 2;
            for text in [
                format!(
                    "SELECT VALUE {}1{}",
                    open.repeat(depth),
                    close.repeat(depth)
                ),
                format!(
                    "SELECT VALUE {}1{}",
                    open.repeat(20_000),
                    close.repeat(20_000)
                ),
            ] {
                if let Ok(query) = Query::parse(&text, &[]) {
                    query.execute(std::iter::empty()).unwrap();
                    let _ = query.syntax().to_string();
                }
            }
        }
        let nested = (0..40).fold("1".to_owned(), |inner, _| format!("(SELECT VALUE {inner})"));
        let query = Query::parse(&format!("SELECT VALUE {nested}"), &[]).unwrap();
        assert_eq!(query.execute(std::iter::empty()).unwrap(), [json!(1)]);
    };
    std::thread::Builder::new()
        .stack_size(2 * 1024 * 1024)
        .spawn(run)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn queries_travel_between_threads() {
    fn travels<T: Send + Sync>() {}
    travels::<Query>();
    fn moves<T: Send>() {}
    moves::<crate::sql::Execution>();
}
