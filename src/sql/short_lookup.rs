//! Which queries are likely to be over at once: they look for a value, and a row of theirs costs little whatever the item holds.

use super::ast::{BinaryOp, Expr, Selection};
use super::query::{Query, Shape};
use super::wanted::Wanted;

impl Query {
    /// Whether the filter is a list of comparisons of a property with a value, one of them for equality, and the rest of the query is
    /// no more than properties.
    pub fn is_short_lookup(&self) -> bool {
        let syntax = self.syntax();
        let from_item = syntax.item_name().is_some()
            && syntax
                .from
                .as_ref()
                .is_some_and(|from| from.joins.is_empty());
        // Of computed properties all is wanted.
        if !from_item || *self.wanted() == Wanted::All || self.shape() != Shape::Streaming {
            return false;
        }
        let is_light = match &syntax.selection {
            Selection::Star(_) => true,
            Selection::Value(expr) => expr.as_path().is_some(),
            Selection::List(items) => items.iter().all(|item| item.expr.as_path().is_some()),
        };
        let conditions = match &syntax.filter {
            Some(Expr::And(all)) => all.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        let mut looks_for_value = false;
        let all_compare = conditions.iter().all(|condition| {
            looks_for_value |= matches!(condition, Expr::Binary(BinaryOp::Equal, ..));
            self.is_comparison(condition)
        });
        is_light && all_compare && looks_for_value
    }

    /// Whether a property is compared with a value.
    fn is_comparison(&self, condition: &Expr) -> bool {
        let Expr::Binary(op, left, right) = condition else {
            return false;
        };
        let compares = matches!(
            op,
            BinaryOp::Equal
                | BinaryOp::Less
                | BinaryOp::LessOrEqual
                | BinaryOp::Greater
                | BinaryOp::GreaterOrEqual
        );
        let pair = |path: &Expr, value: &Expr| {
            path.as_path().is_some()
                && self
                    .constant(value)
                    .is_some_and(|value| !value.is_object() && !value.is_array())
        };
        compares && (pair(left, right) || pair(right, left))
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::{ComputedProperties, Query};
    use serde_json::json;

    #[test]
    fn those_that_look_for_a_value_and_no_others() {
        for (text, is_short_lookup) in [
            ("SELECT * FROM c WHERE c.a = 5", true),
            ("SELECT VALUE c FROM c WHERE 'x' = c.a.b", true),
            ("SELECT c.a, c.b.d FROM c WHERE c.a = @p AND c.n > 5", true),
            ("SELECT TOP 5 * FROM c WHERE c.a = null", true),
            ("SELECT * FROM c", false),
            ("SELECT * FROM c WHERE c.a > 5", false),
            ("SELECT * FROM c WHERE c.a = c.b", false),
            ("SELECT * FROM c WHERE c.a = [1]", false),
            ("SELECT * FROM c WHERE c.a = 5 OR c.b = 6", false),
            (
                "SELECT * FROM c WHERE c.a = 5 AND (c.b = 6 OR c.d = 7)",
                false,
            ),
            (
                "SELECT * FROM c WHERE c.a = 5 AND REGEXMATCH(c.b, 'x')",
                false,
            ),
            ("SELECT c.a || c.b FROM c WHERE c.a = 5", false),
            ("SELECT * FROM c WHERE c.a = 5 ORDER BY c.b", false),
            ("SELECT DISTINCT c.b FROM c WHERE c.a = 5", false),
            ("SELECT VALUE COUNT(1) FROM c WHERE c.a = 5", false),
            (
                "SELECT VALUE t FROM c JOIN t IN c.tags WHERE c.a = 5",
                false,
            ),
            ("SELECT VALUE t FROM t IN c.tags WHERE t = 5", false),
        ] {
            let query = Query::parse(text, &[("@p".into(), json!(true))]).unwrap();
            assert_eq!(query.is_short_lookup(), is_short_lookup, "{text}");
        }
        let computed = ComputedProperties::parse([("x", "SELECT VALUE c.y FROM c")]).unwrap();
        let query = Query::parse_with("SELECT * FROM c WHERE c.a = 5", &[], &computed).unwrap();
        assert!(!query.is_short_lookup());
    }
}
