//! Which properties of an item a query looks at.

use super::ast::{Collection, Expr, SelectQuery, Selection, Source, Step};
use super::computed::ComputedProperties;
use super::query::returns_items;
use std::borrow::Cow;
use std::fmt;

/// The top-level properties that a query looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The whole item.
    All,
    /// Only these.
    Only(Vec<String>),
}

impl Wanted {
    pub(super) fn of(query: &SelectQuery, computed: &ComputedProperties) -> Self {
        // What a computed property looks at is not followed.
        let (Some(item), true) = (query.item_name(), computed.is_empty()) else {
            return Self::All;
        };
        let mut collector = Collector {
            item,
            names: Some(Vec::new()),
        };
        collector.query(query, true);
        collector.names.map_or(Self::All, Self::Only)
    }

    /// Whether it is enough to know that there is an item.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Only(names) if names.is_empty())
    }
}

/// Gathers the names; none once the whole item is wanted.
struct Collector<'q> {
    item: &'q str,
    names: Option<Vec<String>>,
}

impl Collector<'_> {
    fn want(&mut self, name: &str) {
        if let Some(names) = &mut self.names
            && !names.iter().any(|known| known == name)
        {
            names.push(name.to_owned());
        }
    }

    /// A path from a bound name; a name that hides the item's only makes for more.
    fn path(&mut self, root: &str, steps: &[Step]) {
        if root == self.item {
            match steps.first() {
                Some(Step::Property(name)) => self.want(name),
                _ => self.names = None,
            }
        }
        for step in steps {
            if let Step::Computed(expr) = step {
                self.expr(expr);
            }
        }
    }

    fn query(&mut self, query: &SelectQuery, outermost: bool) {
        if let Some(from) = &query.from {
            // The first source of the outermost query is the item itself.
            let skipped = usize::from(outermost);
            let sources = std::iter::once(&from.first).chain(&from.joins);
            sources.skip(skipped).for_each(|source| self.source(source));
        }
        match &query.selection {
            _ if outermost && returns_items(query) => {}
            Selection::Star(_) => {
                if outermost {
                    self.names = None;
                }
            }
            Selection::Value(expr) => self.expr(expr),
            Selection::List(items) => items.iter().for_each(|item| self.expr(&item.expr)),
        }
        query.filter.iter().for_each(|filter| self.expr(filter));
        self.exprs(&query.group_by);
        query.order_by.iter().for_each(|item| self.expr(&item.expr));
    }

    fn source(&mut self, source: &Source) {
        match &source.collection {
            Collection::Path { root, steps, .. } => self.path(root, steps),
            Collection::Subquery(query) => self.query(query, false),
            Collection::Expr(expr) => self.expr(expr),
        }
    }

    fn exprs(&mut self, exprs: &[Expr]) {
        exprs.iter().for_each(|expr| self.expr(expr));
    }

    fn expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Name(name, _) => self.path(name, &[]),
            Expr::Member(base, steps) => match base.as_ref() {
                Expr::Name(name, _) => self.path(name, steps),
                _ => expr.parts().into_iter().for_each(|part| self.expr(part)),
            },
            Expr::Subquery(_, query) => self.query(query, false),
            _ => expr.parts().into_iter().for_each(|part| self.expr(part)),
        }
    }
}

/// Shown in logs and tests.
impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Cow<'_, str> = match self {
            Self::All => "*".into(),
            Self::Only(names) => names.join(",").into(),
        };
        f.write_str(&shown)
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::{ComputedProperties, ItemReader, Query};
    use serde_json::json;

    #[test]
    fn only_what_is_looked_at() {
        for (query, wanted) in [
            (
                "SELECT * FROM c WHERE c.n = 5 AND c.a.b = c['x y']",
                "n,a,x y",
            ),
            ("SELECT VALUE c FROM c WHERE c.n = 5 ORDER BY c.o", "n,o"),
            ("SELECT * FROM root WHERE root.n > 1", "n"),
            ("SELECT c.id, c.name FROM c", "id,name"),
            ("SELECT c FROM c", "*"),
            ("SELECT VALUE c[@p] FROM c", "*"),
            ("SELECT VALUE {a: c} FROM c", "*"),
            ("SELECT VALUE COUNT(1) FROM c WHERE IS_DEFINED(c.n)", "n"),
            ("SELECT VALUE t FROM c JOIN t IN c.tags", "tags"),
            (
                "SELECT VALUE 1 FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = c.x)",
                "tags,x",
            ),
            ("SELECT VALUE (SELECT * FROM c) FROM c", "*"),
            (
                "SELECT VALUE ARRAY(SELECT * FROM t IN c.tags) FROM c",
                "tags",
            ),
            ("SELECT c.g, MAX(c.n) FROM c GROUP BY c.g", "g,n"),
            ("SELECT VALUE x FROM x IN c.tags", "*"),
            ("SELECT * FROM c", ""),
        ] {
            let parsed = Query::parse(query, &[("@p".into(), json!("a"))]).unwrap();
            assert_eq!(parsed.wanted().to_string(), wanted, "{query}");
        }
        let computed = ComputedProperties::parse([("x", "SELECT VALUE c.y FROM c")]).unwrap();
        let parsed = Query::parse_with("SELECT c.x FROM c", &[], &computed).unwrap();
        assert_eq!(parsed.wanted().to_string(), "*");
    }

    #[test]
    fn reads_the_wanted_properties() {
        let text =
            br#"{"id":"1","n":5,"deep":{"a":[1,{"b":"\u00e9"}]},"n\u0061me":"x","last":null}"#;
        let query =
            Query::parse("SELECT c.deep, c.name, c.none FROM c WHERE c.n = 5", &[]).unwrap();
        let mut reader = ItemReader::new(query.wanted());
        let read = reader.read(text).unwrap();
        assert_eq!(
            *read,
            json!({"n": 5, "deep": {"a": [1, {"b": "é"}]}, "name": "x"})
        );
        assert_eq!(
            query.project(read).unwrap(),
            [json!({"deep": {"a": [1, {"b": "é"}]}, "name": "x"})]
        );
    }

    #[test]
    fn rows_that_are_items() {
        for (query, is) in [
            ("SELECT * FROM c WHERE c.n = 5", true),
            ("SELECT VALUE c FROM root AS c", true),
            ("SELECT TOP 5 * FROM c", true),
            ("SELECT * FROM c.a", false),
            ("SELECT VALUE c.a FROM c", false),
            ("SELECT VALUE c FROM c JOIN t IN c.t", false),
            ("SELECT c FROM c", false),
        ] {
            assert_eq!(
                Query::parse(query, &[]).unwrap().returns_items(),
                is,
                "{query}"
            );
        }
    }
}
