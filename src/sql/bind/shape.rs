//! What the shape of a syntax tree says, before names have a meaning.

use crate::sql::ast::{self, Expr};
use crate::sql::functions::{Aggregate, vector};

/// The names of a select list: the alias, the last property of a path, or `$1`, `$2`, ….
pub fn column_names(items: &[ast::SelectItem]) -> Vec<String> {
    let mut unnamed = 0;
    let mut name = |item: &ast::SelectItem| {
        if let Some(alias) = &item.alias {
            return alias.clone();
        }
        let last = match &item.expr {
            Expr::Name(name, _) => Some(name),
            Expr::Member(_, steps) => match steps.last() {
                Some(ast::Step::Property(name)) => Some(name),
                _ => None,
            },
            _ => None,
        };
        last.cloned().unwrap_or_else(|| {
            unnamed += 1;
            format!("${unnamed}")
        })
    };
    items.iter().map(&mut name).collect()
}

pub fn is_order_key(expr: &Expr) -> bool {
    is_vector_distance(expr) || expr.as_path().is_some_and(|(_, steps)| !steps.is_empty())
}

pub fn is_vector_distance(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if call.name.eq_ignore_ascii_case("VectorDistance"))
}

/// The direction of an order: the nearest vectors come first unless the query says otherwise.
pub fn is_descending(item: &ast::OrderItem) -> bool {
    if item.explicit {
        return item.descending;
    }
    match &item.expr {
        Expr::Call(call) if is_vector_distance(&item.expr) => {
            vector::nearest_is_greatest(call.arguments.get(3))
        }
        _ => false,
    }
}

/// Whether a selection has an aggregate of its own (not one of a subquery).
pub fn selection_aggregates(selection: &ast::Selection) -> bool {
    match selection {
        ast::Selection::Star(_) => false,
        ast::Selection::Value(expr) => aggregates(expr),
        ast::Selection::List(items) => items.iter().any(|item| aggregates(&item.expr)),
    }
}

/// Whether an expression has an aggregate of its own (not one of a subquery).
pub fn aggregates(expr: &Expr) -> bool {
    let own = matches!(expr, Expr::Call(call)
        if !call.user_defined && Aggregate::from_name(&call.name).is_some());
    own || expr.parts().into_iter().any(aggregates)
}
