//! The plan of a query that a client runs itself on every partition: the query rewritten so that
//! partial results can be merged, and how to merge them.

use super::ast::{Call, Collection, Count, Expr, SelectItem, SelectQuery, Selection, Step, Window};
use super::bind::{
    aggregates, bind, column_names, is_descending, is_vector_distance, selection_aggregates,
};
use super::computed::ComputedProperties;
use super::error::{Fault, Span};
use super::functions::Aggregate;
use super::parser;
use super::partition::{PartitionKeys, partition_keys};
use super::program::Program;
use crate::model::error::{Error, Result};
use serde_json::{Map, Value, json};

/// Clients put `true`, or where they resume, in this place.
const FILTER_PLACEHOLDER: &str = "({documentdb-formattableorderbyquery-filter})";

/// What a client can merge: the names of its header, with commas between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features(Vec<String>);

impl Features {
    pub fn parse(header: &str) -> Self {
        Self(
            header
                .split(',')
                .map(|name| name.trim().to_ascii_lowercase())
                .collect(),
        )
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// How to run a query on several partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct SdkPlan {
    /// The `queryInfo` of the answer.
    pub query_info: Value,
    /// What a client must be able to merge.
    pub needs: Vec<&'static str>,
    /// The partition keys that the filter allows.
    pub partition_keys: PartitionKeys,
}

impl SdkPlan {
    /// Refuses a client that cannot merge what the plan needs.
    pub fn check(&self, features: &Features) -> Result<()> {
        match self.needs.iter().find(|need| !features.has(need)) {
            None => Ok(()),
            Some(need) => Err(refusal(&format!(
                "The query contains features that the calling client does not support: {need}."
            ))),
        }
    }

    /// The plan that sends the query as it is: right where there is only one partition.
    pub fn as_it_is() -> Self {
        Self {
            query_info: Info::default().render(String::new()),
            needs: Vec::new(),
            partition_keys: PartitionKeys::All,
        }
    }

    /// The whole answer; `query_ranges` are ranges of effective partition keys.
    pub fn render(&self, query_ranges: Value) -> Value {
        json!({
            "partitionedQueryExecutionInfoVersion": 2,
            "queryInfo": self.query_info,
            "queryRanges": query_ranges,
        })
    }
}

/// Plans a query over a container with these partition key paths.
pub fn sdk_plan(
    text: &str,
    parameters: &[(String, Value)],
    key_paths: &[String],
) -> Result<SdkPlan> {
    let fault = |fault: Fault| fault.into_error(text);
    let query = parser::parse(text).map_err(fault)?;
    // Computed properties read as any others.
    let stages = bind(&query, parameters, &ComputedProperties::default()).map_err(fault)?;
    let partition_keys = partition_keys(&query, parameters, key_paths);
    let mut planner = Planner { needs: Vec::new() };
    let (info, rewritten) = planner.plan(&query, &stages, partition_keys.is_single())?;
    let rewritten = rewritten.map(|query| query.to_string()).unwrap_or_default();
    Ok(SdkPlan {
        query_info: info.render(rewritten),
        needs: planner.needs,
        partition_keys,
    })
}

/// A refusal that is no matter of a place in the text.
fn refusal(message: &str) -> Error {
    Error::bad_request(json!({"Errors": [message]}).to_string())
}

#[derive(Default)]
struct Info {
    distinct_type: Option<&'static str>,
    top: Option<u64>,
    window: Option<(u64, u64)>,
    order_by: Vec<(bool, String)>,
    group_by: Vec<String>,
    /// Of the columns of a select list: alias and aggregate.
    columns: Vec<(String, Option<Aggregate>)>,
    aggregates: Vec<Aggregate>,
    has_select_value: bool,
    distinct_count_alias: Option<String>,
    non_streaming: bool,
}

impl Info {
    fn render(self, rewritten: String) -> Value {
        let order = |(descending, _): &(bool, String)| {
            if *descending {
                "Descending"
            } else {
                "Ascending"
            }
        };
        let types: Map<String, Value> = self
            .columns
            .iter()
            .map(|(alias, aggregate)| (alias.clone(), json!(aggregate.map(Aggregate::plan_name))))
            .collect();
        let aliases: Vec<&String> = self.columns.iter().map(|(alias, _)| alias).collect();
        json!({
            "distinctType": self.distinct_type.unwrap_or("None"),
            "top": self.top,
            "offset": self.window.map(|(offset, _)| offset),
            "limit": self.window.map(|(_, limit)| limit),
            "orderBy": self.order_by.iter().map(order).collect::<Vec<_>>(),
            "orderByExpressions": self.order_by.iter().map(|(_, e)| e).collect::<Vec<_>>(),
            "groupByExpressions": self.group_by,
            "groupByAliases": aliases,
            "aggregates": self.aggregates.iter().map(|a| a.plan_name()).collect::<Vec<_>>(),
            "groupByAliasToAggregateType": types,
            "rewrittenQuery": rewritten,
            "hasSelectValue": self.has_select_value,
            "dCountInfo": self.distinct_count_alias.map(|alias| json!({"dCountAlias": alias})),
            "hasNonStreamingOrderBy": self.non_streaming,
        })
    }
}

struct Planner {
    needs: Vec<&'static str>,
}

impl Planner {
    fn need(&mut self, feature: &'static str) {
        if !self.needs.contains(&feature) {
            self.needs.push(feature);
        }
    }

    /// What to tell the client, and the query to run instead of the original one, if any.
    fn plan(
        &mut self,
        query: &SelectQuery,
        stages: &[Program],
        single: bool,
    ) -> Result<(Info, Option<SelectQuery>)> {
        if let Some(planned) = self.distinct_count(query) {
            return Ok(planned);
        }
        let Some((last, before)) = stages.split_last() else {
            return Err(Error::internal("a query without stages"));
        };
        if !before.iter().all(Program::is_item_wise) {
            return Err(refusal(
                "A subquery in FROM that looks at all items cannot run on several partitions.",
            ));
        }
        let mut info = Info {
            has_select_value: matches!(query.selection, Selection::Value(_)),
            ..Info::default()
        };
        let mut rewritten = query.clone();
        if query.distinct {
            self.need("Distinct");
            info.distinct_type = Some(if is_ordered_distinct(query) {
                "Ordered"
            } else {
                "Unordered"
            });
        }
        let grouped = !query.group_by.is_empty() || selection_aggregates(&query.selection);
        let mut changed = if grouped {
            self.group(query, &mut rewritten, &mut info)?;
            true
        } else if query.order_by.is_empty() {
            false
        } else {
            self.order(query, &mut rewritten, &mut info)?;
            true
        };
        // What the client filters or merges first, it must also cut first.
        let cut_by_client = query.distinct || grouped;
        if let Some(top) = last.top {
            self.need("Top");
            info.top = Some(top);
            if cut_by_client {
                rewritten.top = None;
                changed = true;
            } else if changed {
                rewritten.top = Some(Count::Literal(top));
            }
        }
        if let Some(window) = last.window {
            let plain = !cut_by_client && query.order_by.is_empty();
            if !(single && plain) {
                self.need("OffsetAndLimit");
                info.window = Some((window.offset, window.limit));
                rewritten.window = (!cut_by_client).then(|| Window {
                    offset: Count::Literal(0),
                    limit: Count::Literal(window.offset.saturating_add(window.limit)),
                });
                changed = true;
            }
        }
        Ok((info, changed.then_some(rewritten)))
    }

    /// `SELECT VALUE COUNT(1) FROM (SELECT DISTINCT …)`: the distinct rows, which the client counts.
    fn distinct_count(&mut self, query: &SelectQuery) -> Option<(Info, Option<SelectQuery>)> {
        let from = query
            .from
            .as_ref()
            .filter(|from| from.joins.is_empty() && !from.first.iterate)?;
        let Collection::Subquery(inner) = &from.first.collection else {
            return None;
        };
        let plain = query.filter.is_none()
            && query.group_by.is_empty()
            && query.top.is_none()
            && query.window.is_none()
            && inner.distinct
            && inner.group_by.is_empty()
            && inner.top.is_none()
            && inner.window.is_none()
            && !selection_aggregates(&inner.selection);
        let (expr, alias) = match &query.selection {
            Selection::Value(expr) => (expr, String::new()),
            Selection::List(items) => match items.as_slice() {
                [item] => (
                    &item.expr,
                    item.alias.clone().unwrap_or_else(|| "$1".to_owned()),
                ),
                _ => return None,
            },
            Selection::Star(_) => return None,
        };
        let counts = matches!(expr, Expr::Call(call)
            if Aggregate::from_name(&call.name) == Some(Aggregate::Count)
                && matches!(call.arguments.as_slice(), [Expr::Literal(_)]));
        if !(plain && counts) {
            return None;
        }
        self.need("DCount");
        self.need("Distinct");
        let info = Info {
            distinct_type: Some("Unordered"),
            has_select_value: alias.is_empty(),
            distinct_count_alias: Some(alias),
            ..Info::default()
        };
        let mut rewritten = inner.as_ref().clone();
        rewritten.order_by.clear();
        Some((info, Some(rewritten)))
    }

    fn order(
        &mut self,
        query: &SelectQuery,
        rewritten: &mut SelectQuery,
        info: &mut Info,
    ) -> Result<()> {
        self.need("OrderBy");
        if query.order_by.len() > 1 {
            self.need("MultipleOrderBy");
        }
        let item_name = query
            .item_name()
            .ok_or_else(|| refusal("Order-by over correlated collections is not supported."))?;
        for item in &query.order_by {
            if is_vector_distance(&item.expr) {
                self.need("NonStreamingOrderBy");
                info.non_streaming = true;
            }
            let descending = is_descending(item);
            info.order_by.push((descending, item.expr.to_string()));
        }
        let name = Expr::Name(item_name.to_owned(), Span::default());
        let rid = Expr::Member(
            Box::new(name.clone()),
            vec![Step::Property("_rid".to_owned())],
        );
        let items = query
            .order_by
            .iter()
            .map(|item| object([("item", item.expr.clone())]));
        let payload = match &query.selection {
            Selection::Star(_) => name,
            Selection::Value(expr) => expr.clone(),
            Selection::List(items) => columns(items),
        };
        rewritten.filter = Some(order_filter(query));
        rewritten.distinct = false;
        rewritten.selection = Selection::List(vec![
            SelectItem {
                expr: rid,
                alias: None,
            },
            select(Expr::Array(items.collect()), "orderByItems"),
            select(payload, "payload"),
        ]);
        Ok(())
    }

    fn group(
        &mut self,
        query: &SelectQuery,
        rewritten: &mut SelectQuery,
        info: &mut Info,
    ) -> Result<()> {
        if !query.group_by.is_empty() {
            self.need("GroupBy");
            if !query.order_by.is_empty() {
                return Err(refusal(
                    "'ORDER BY' is not supported in presence of GROUP BY.",
                ));
            }
        }
        let keys = query
            .group_by
            .iter()
            .map(|key| object([("item", key.clone())]));
        let keys = Expr::Array(keys.collect());
        info.group_by = query.group_by.iter().map(ToString::to_string).collect();
        let payload = match &query.selection {
            Selection::Value(expr) => match self.partial(expr)? {
                Some((aggregate, partial)) => {
                    info.aggregates.push(aggregate);
                    Expr::Array(vec![partial])
                }
                None => expr.clone(),
            },
            Selection::List(items) => {
                let mut properties = Vec::with_capacity(items.len());
                for (item, name) in items.iter().zip(column_names(items)) {
                    let partial = self.partial(&item.expr)?;
                    let aggregate = partial.as_ref().map(|(aggregate, _)| *aggregate);
                    let expr = partial.map_or_else(|| item.expr.clone(), |(_, expr)| expr);
                    info.columns.push((name.clone(), aggregate));
                    properties.push((name, expr));
                }
                let count = info.columns.iter().filter(|(_, a)| a.is_some()).count();
                if query.group_by.is_empty() {
                    self.need("NonValueAggregate");
                }
                if count > 1 {
                    self.need("MultipleAggregates");
                }
                Expr::Object(properties)
            }
            Selection::Star(_) => return Err(Error::internal("a grouped star was bound")),
        };
        rewritten.distinct = false;
        rewritten.selection = match (&query.selection, query.group_by.is_empty()) {
            (Selection::Value(_), true) => Selection::Value(payload),
            (_, true) => Selection::List(vec![select(payload, "payload")]),
            (_, false) => Selection::List(vec![
                select(keys, "groupByItems"),
                select(payload, "payload"),
            ]),
        };
        Ok(())
    }

    /// An aggregate as partitions report it; none for an expression without one.
    fn partial(&mut self, expr: &Expr) -> Result<Option<(Aggregate, Expr)>> {
        if !aggregates(expr) {
            return Ok(None);
        }
        let aggregate = match expr {
            Expr::Call(call) => Aggregate::from_name(&call.name).map(|a| (a, call)),
            _ => None,
        };
        let Some((aggregate, call)) = aggregate else {
            return Err(refusal(
                "Compositions of aggregates and other expressions are not allowed.",
            ));
        };
        self.need("Aggregate");
        match aggregate {
            Aggregate::CountIf => self.need("CountIf"),
            Aggregate::MakeList | Aggregate::MakeSet => self.need("ListAndSetAggregate"),
            _ => {}
        }
        let renamed = |name: &str| {
            Expr::Call(Call {
                name: name.to_owned(),
                ..call.clone()
            })
        };
        let own = || Expr::Call(call.clone());
        let with_count = |name: &str| object([(name, own()), ("count", renamed("COUNT"))]);
        let partial = match aggregate {
            Aggregate::Average => object([(
                "item",
                object([("sum", renamed("SUM")), ("count", renamed("COUNT"))]),
            )]),
            Aggregate::Min => object([("item", own()), ("item2", with_count("min"))]),
            Aggregate::Max => object([("item", own()), ("item2", with_count("max"))]),
            _ => object([("item", own())]),
        };
        Ok(Some((aggregate, partial)))
    }
}

/// The filter, the client's place, and for a bare value that it is defined.
fn order_filter(query: &SelectQuery) -> Expr {
    let placeholder = Expr::Name(FILTER_PLACEHOLDER.to_owned(), Span::default());
    let mut filter = match &query.filter {
        Some(filter) => Expr::And(vec![filter.clone(), placeholder]),
        None => placeholder,
    };
    if let Selection::Value(expr) = &query.selection {
        let defined = Expr::Call(Call {
            name: "IS_DEFINED".to_owned(),
            user_defined: false,
            arguments: vec![expr.clone()],
            span: Span::default(),
        });
        filter = Expr::And(vec![filter, defined]);
    }
    filter
}

fn object<const N: usize>(properties: [(&str, Expr); N]) -> Expr {
    Expr::Object(
        properties
            .into_iter()
            .map(|(name, expr)| (name.to_owned(), expr))
            .collect(),
    )
}

fn select(expr: Expr, alias: &str) -> SelectItem {
    SelectItem {
        expr,
        alias: Some(alias.to_owned()),
    }
}

fn columns(items: &[SelectItem]) -> Expr {
    let exprs = items.iter().map(|item| item.expr.clone());
    Expr::Object(column_names(items).into_iter().zip(exprs).collect())
}

/// Whether equal rows come one after the other: the value itself is the only order.
fn is_ordered_distinct(query: &SelectQuery) -> bool {
    match (&query.selection, query.order_by.as_slice()) {
        (Selection::Value(expr), [item]) => *expr == item.expr,
        _ => false,
    }
}
