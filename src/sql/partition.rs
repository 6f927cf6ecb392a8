//! Which partition keys a filter allows, as far as equalities on the key paths tell.

use super::ast::{BinaryOp, Expr, SelectQuery, Step};
use super::compare::equal;
use serde_json::Value;

/// More keys than this are not listed: the query goes everywhere.
const KEYS_MAX: usize = 1_000;

/// The full partition keys of the items that a query can match.
#[derive(Clone, Debug, PartialEq)]
pub enum PartitionKeys {
    /// No bound is known.
    All,
    /// Only these, each with one value for every key path; none at all if the filter
    /// contradicts itself.
    Only(Vec<Vec<Value>>),
}

impl PartitionKeys {
    pub fn is_single(&self) -> bool {
        matches!(self, Self::Only(keys) if keys.len() <= 1)
    }
}

/// Looks for `c.key = value` and `c.key IN (…)` among the conditions that must all hold, also as
/// alternatives of one OR.
pub fn partition_keys(
    query: &SelectQuery,
    parameters: &[(String, Value)],
    key_paths: &[String],
) -> PartitionKeys {
    let (Some(filter), Some(root)) = (&query.filter, query.item_name()) else {
        return PartitionKeys::All;
    };
    let Some(paths) = key_paths
        .iter()
        .map(|path| split(path))
        .collect::<Option<Vec<_>>>()
    else {
        return PartitionKeys::All;
    };
    let search = Search { root, parameters };
    let mut keys: Vec<Vec<Value>> = vec![Vec::new()];
    for path in &paths {
        let Some(values) = search.values(filter, path) else {
            return PartitionKeys::All;
        };
        if keys.len().saturating_mul(values.len()) > KEYS_MAX {
            return PartitionKeys::All;
        }
        keys = keys
            .iter()
            .flat_map(|key| {
                values
                    .iter()
                    .map(|value| [key.as_slice(), std::slice::from_ref(value)].concat())
            })
            .collect();
    }
    if paths.is_empty() {
        PartitionKeys::All
    } else {
        PartitionKeys::Only(keys)
    }
}

/// `/a/"b c"` as its names.
fn split(path: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = path;
    while let Some(after) = rest.strip_prefix('/') {
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (name, left) = match quote {
            Some(quote) => after.get(1..)?.split_once(quote)?,
            None => after.split_at(after.find('/').unwrap_or(after.len())),
        };
        names.push(name.to_owned());
        rest = left;
    }
    (rest.is_empty() && !names.is_empty()).then_some(names)
}

struct Search<'q> {
    root: &'q str,
    parameters: &'q [(String, Value)],
}

impl Search<'_> {
    /// The values a path may have where the condition holds; none if they are not bounded.
    fn values(&self, condition: &Expr, path: &[String]) -> Option<Vec<Value>> {
        match condition {
            Expr::And(operands) => operands
                .iter()
                .filter_map(|operand| self.values(operand, path))
                .reduce(|a, b| {
                    a.into_iter()
                        .filter(|x| b.iter().any(|y| equal(x, y)))
                        .collect()
                }),
            Expr::Or(operands) => {
                let mut all = Vec::new();
                for operand in operands {
                    for value in self.values(operand, path)? {
                        push_new(&mut all, value)?;
                    }
                }
                Some(all)
            }
            Expr::Binary(BinaryOp::Equal, left, right) => {
                if self.is_path(left, path) {
                    self.constant(right).map(|value| vec![value])
                } else if self.is_path(right, path) {
                    self.constant(left).map(|value| vec![value])
                } else {
                    None
                }
            }
            Expr::In {
                not: false,
                needle,
                items,
            } if self.is_path(needle, path) => {
                let mut all = Vec::new();
                for item in items {
                    push_new(&mut all, self.constant(item)?)?;
                }
                Some(all)
            }
            Expr::Call(call) if !call.user_defined => match call.arguments.as_slice() {
                [items, needle]
                    if call.name.eq_ignore_ascii_case("ARRAY_CONTAINS")
                        && self.is_path(needle, path) =>
                {
                    self.elements(items)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The elements of a written or given array.
    fn elements(&self, expr: &Expr) -> Option<Vec<Value>> {
        let values: Vec<Value> = match expr {
            Expr::Array(items) => items
                .iter()
                .map(|item| self.constant(item))
                .collect::<Option<_>>()?,
            _ => constant(expr, self.parameters)?.as_array()?.clone(),
        };
        let mut all = Vec::new();
        for value in values {
            if value.is_array() || value.is_object() {
                return None;
            }
            push_new(&mut all, value)?;
        }
        Some(all)
    }

    fn is_path(&self, expr: &Expr, path: &[String]) -> bool {
        let Some((name, steps)) = expr.as_path() else {
            return false;
        };
        name == self.root
            && steps.len() == path.len()
            && steps
                .iter()
                .zip(path)
                .all(|(step, name)| matches!(step, Step::Property(p) if p == name))
    }

    /// A written or given value that can be a partition key.
    fn constant(&self, expr: &Expr) -> Option<Value> {
        constant(expr, self.parameters)
            .filter(|v| !v.is_array() && !v.is_object())
            .cloned()
    }
}

/// A value that is written in the query or given with it.
pub fn constant<'v>(expr: &'v Expr, parameters: &'v [(String, Value)]) -> Option<&'v Value> {
    match expr {
        Expr::Literal(value) => Some(value),
        Expr::Parameter(name, _) => parameters
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value),
        _ => None,
    }
}

/// Adds a value once; none when there are too many.
fn push_new(values: &mut Vec<Value>, value: Value) -> Option<()> {
    if !values.iter().any(|known| equal(known, &value)) {
        values.push(value);
    }
    (values.len() <= KEYS_MAX).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parser::parse;
    use serde_json::json;

    #[test]
    fn keys_follow_from_equalities() {
        for (filter, paths, expected) in [
            ("c.k = 5", &["/k"][..], Some(json!([[5]]))),
            ("5 = c.k AND c.x > 1", &["/k"], Some(json!([[5]]))),
            ("c.k = @p", &["/k"], Some(json!([["v"]]))),
            ("c.k IN (1, 2, 1.0)", &["/k"], Some(json!([[1], [2]]))),
            ("c.k = 1 OR c.k = 2", &["/k"], Some(json!([[1], [2]]))),
            ("c.k = 1 AND c.k = 2", &["/k"], Some(json!([]))),
            ("c.k = 1 OR c.x = 2", &["/k"], None),
            (
                "ARRAY_CONTAINS([1, 2], c.k)",
                &["/k"],
                Some(json!([[1], [2]])),
            ),
            ("ARRAY_CONTAINS([1, [2]], c.k)", &["/k"], None),
            ("ARRAY_CONTAINS(c.x, c.k)", &["/k"], None),
            ("c.k > 1", &["/k"], None),
            ("NOT (c.k = 1)", &["/k"], None),
            ("c.k = c.x", &["/k"], None),
            ("c.k = []", &["/k"], None),
            (
                "c.a.b.c = null AND c.a.c = false",
                &["/a/b/c", "/a/c"],
                Some(json!([[null, false]])),
            ),
            ("c.a.b.c = null", &["/a/b/c", "/a/c"], None),
            ("c[\"x y\"] = 1", &["/\"x y\""], Some(json!([[1]]))),
            ("d.k = 1", &["/k"], None),
        ] {
            let query = parse(&format!("SELECT * FROM c WHERE {filter}")).unwrap();
            let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
            let keys = partition_keys(&query, &[("@p".into(), json!("v"))], &paths);
            let shown = match keys {
                PartitionKeys::All => None,
                PartitionKeys::Only(keys) => Some(json!(keys)),
            };
            assert_eq!(shown, expected, "{filter}");
        }
    }
}
