//! What names in a query stand for: places in the item.

use super::condition::IndexPath;
use crate::{
    index::Indexer,
    model::indexing_policy::Segment,
    sql::{
        Query,
        ast::{Collection, Expr, From, Source, Step},
    },
};

/// The path that an expression is, from the item; for ORDER BY and aggregates.
pub fn item_path(query: &Query, indexer: &Indexer, expr: &Expr) -> Option<IndexPath> {
    let scope = scope_of(&NameScope::default(), query.syntax().from.as_ref()?, true)?;
    let (name, steps) = expr.as_path()?;
    if query.syntax().item_name() != Some(name) {
        return None;
    }
    let (path, exact) = scope.path(query, indexer, name, steps)?;
    (exact && !path.segments.is_empty()).then_some(path)
}

/// What names stand for: places in the item.
#[derive(Clone, Default)]
pub struct NameScope<'q> {
    names: Vec<Name<'q>>,
}

#[derive(Clone)]
struct Name<'q> {
    name: &'q str,
    segments: Vec<Segment>,
    /// It is the whole item, and not one of its parts.
    is_item: bool,
}

impl<'q> NameScope<'q> {
    /// The path behind a name and steps, and whether the value at it is the value meant.
    pub fn path(
        &self,
        query: &Query,
        indexer: &Indexer,
        name: &str,
        steps: &[Step],
    ) -> Option<(IndexPath, bool)> {
        let known = self.names.iter().rev().find(|known| known.name == name)?;
        let mut segments = known.segments.clone();
        let mut exact = known.is_item;
        for step in steps {
            match step {
                Step::Property(property) => segments.push(Segment::Property(property.clone())),
                Step::Index(_) => {
                    segments.push(Segment::AnyElement);
                    exact = false;
                }
                Step::Computed(_) => return None,
            }
        }
        // What the container computes is not in the item, and the index may know it, may know what it was before, or not.
        if let Some(Segment::Property(first)) = segments.first()
            && query.computed(first) != indexer.computed(first)
        {
            return None;
        }
        Some((IndexPath::new(&indexer.paths, segments), exact))
    }
}

/// The names that a FROM clause adds; `None` if its first source is not of the item.
pub fn scope_of<'q>(
    outer: &NameScope<'q>,
    from: &'q From,
    outermost: bool,
) -> Option<NameScope<'q>> {
    let mut scope = outer.clone();
    let first = std::iter::once((&from.first, outermost));
    for (source, of_item) in first.chain(from.joins.iter().map(|join| (join, false))) {
        match name_of(&scope, source, of_item) {
            Some(name) => scope.names.push(name),
            None if of_item => return None,
            // Something that is not of the item hides a name that may be.
            None => scope
                .names
                .retain(|known| Some(known.name) != hidden_name(source)),
        }
    }
    Some(scope)
}

fn hidden_name(source: &Source) -> Option<&str> {
    match (&source.alias, &source.collection) {
        (Some(alias), _) => Some(alias),
        (None, Collection::Path { root, steps, .. }) if steps.is_empty() => Some(root),
        _ => None,
    }
}

fn name_of<'q>(scope: &NameScope<'q>, source: &'q Source, of_item: bool) -> Option<Name<'q>> {
    let Collection::Path { root, steps, .. } = &source.collection else {
        return None;
    };
    let mut segments = if of_item {
        Vec::new()
    } else {
        let known = scope.names.iter().rev().find(|known| known.name == root)?;
        known.segments.clone()
    };
    for step in steps {
        let Step::Property(name) = step else {
            return None;
        };
        segments.push(Segment::Property(name.clone()));
    }
    if source.iterate {
        segments.push(Segment::AnyElement);
    }
    let last = steps.last().and_then(|step| match step {
        Step::Property(name) => Some(name.as_str()),
        _ => None,
    });
    let name = source.alias.as_deref().or(last).unwrap_or(root);
    let is_item = segments.is_empty();
    Some(Name {
        name,
        segments,
        is_item,
    })
}
