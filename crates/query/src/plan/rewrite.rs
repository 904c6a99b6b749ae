//! Rewrites a query for one range, and describes what the client does with its rows.
//!
//! A range cannot compute the final answer, so it returns mergeable parts: sort keys next to the
//! payload, sums and counts instead of an average, groups with their keys.

use super::candidates::{constant, root_alias};
use super::document::{DistinctCount, QueryInfo};
use crate::ast::{Collection, Expression, Node, Projection, Select};
use crate::compile::column_names;
use crate::compile::grouping::{aggregate_kind, contains_aggregate, has_aggregates, is_one_row};
use crate::error::{Problem, QueryError, Span};
use crate::functions::AggregateKind;
use crate::lexer::ORDER_BY_FILTER;
use crate::query::Query;
use crate::value::write_text;

/// The plan's query information. `is_whole`: one range has all the items, so it answers a plain query itself.
pub(super) fn query_info(query: &Query, is_whole: bool) -> Result<QueryInfo, QueryError> {
    let tree = query.tree();
    if let Some((inner, alias)) = distinct_count(tree) {
        return Ok(QueryInfo {
            distinct_type: "Unordered",
            rewritten_query: inner.to_string(),
            has_select_value: matches!(tree.projection, Projection::Value(_)),
            d_count_info: Some(DistinctCount { d_count_alias: alias }),
            ..QueryInfo::default()
        });
    }
    if query.has_stages() {
        let problem = "A sub-query over the whole container with DISTINCT, TOP or aggregates";
        return Err(refuse(query, Problem::NotSupported(format!("{problem}, across ranges"))));
    }
    let grouped = !tree.group_by.is_empty() || has_aggregates(tree);
    let mut info = QueryInfo {
        distinct_type: if tree.distinct { "Unordered" } else { "None" },
        has_select_value: matches!(tree.projection, Projection::Value(_)),
        ..QueryInfo::default()
    };
    let is_plain = !grouped && !tree.distinct && tree.order_by.is_empty();
    if is_plain && is_whole && (tree.offset_limit.is_some() || tree.from.is_none()) {
        return Ok(info);
    }
    info = QueryInfo {
        top: count(query, tree.top.as_ref()),
        offset: count(query, tree.offset_limit.as_ref().map(|(offset, _)| offset)),
        limit: count(query, tree.offset_limit.as_ref().map(|(_, limit)| limit)),
        ..info
    };
    if grouped && !tree.order_by.is_empty() && !is_one_row(tree) {
        let problem = "ORDER BY together with GROUP BY or aggregates, across ranges";
        return Err(refuse(query, Problem::NotSupported(problem.to_owned())));
    }
    if grouped {
        group(query, tree, &mut info)?;
    } else if !tree.order_by.is_empty() {
        order(tree, &mut info);
    } else if tree.distinct && (tree.top.is_some() || tree.offset_limit.is_some()) {
        info.rewritten_query = without_window(tree).to_string();
    } else if tree.offset_limit.is_some() {
        info.rewritten_query = format!("{}{}", without_window(tree), window(&info));
    }
    Ok(info)
}

/// The plan of a query within one partition key whose rows a client cannot merge. All items of the key
/// are in one range, so nothing is merged. Only an order of groups needs a rewritten query, in the
/// envelope of sorted rows: clients keep plans that name nothing, and resume sorted ones by their keys.
pub(super) fn query_info_of_one_key(query: &Query) -> QueryInfo {
    let tree = query.tree();
    let mut info = QueryInfo {
        distinct_type: "None",
        has_select_value: matches!(tree.projection, Projection::Value(_)),
        ..QueryInfo::default()
    };
    let is_list = matches!(tree.projection, Projection::List(_));
    let sorts_groups = !tree.order_by.is_empty()
        && tree.order_by.iter().all(|item| tree.group_by.contains(&item.expression));
    let is_single = !query.has_stages() && root_alias(tree).is_some();
    if sorts_groups && is_list && is_single && !tree.distinct {
        info.top = count(query, tree.top.as_ref());
        info.offset = count(query, tree.offset_limit.as_ref().map(|(offset, _)| offset));
        info.limit = count(query, tree.offset_limit.as_ref().map(|(_, limit)| limit));
        order(tree, &mut info);
    }
    info
}

fn refuse(query: &Query, problem: Problem) -> QueryError {
    QueryError::new(problem, Span { start: 0, end: query.text().len() }, query.text())
}

fn count(query: &Query, expression: Option<&Expression>) -> Option<u64> {
    let count = constant(expression?, query.parameters())?.as_integer()?;
    u64::try_from(count).ok()
}

/// `SELECT COUNT(1) FROM (SELECT DISTINCT …)`: the inner query and the property for the count.
fn distinct_count(tree: &Select) -> Option<(&Select, String)> {
    let from = tree.from.as_ref()?;
    let Collection::Query(inner) = &from.first.collection else { return None };
    let plain = from.joins.is_empty()
        && tree.filter.is_none()
        && tree.group_by.is_empty()
        && tree.order_by.is_empty()
        && !from.first.each
        && inner.distinct
        && inner.order_by.is_empty()
        && inner.top.is_none()
        && inner.offset_limit.is_none()
        && inner.group_by.is_empty()
        && !has_aggregates(inner);
    let is_count = |expression: &Expression| {
        matches!(&expression.node, Node::Call(name, list)
            if aggregate_kind(name) == Some(AggregateKind::Count)
                && matches!(list.as_slice(), [Expression { node: Node::Literal(_), .. }]))
    };
    match &tree.projection {
        Projection::Value(expression) if plain && is_count(expression) => {
            Some((inner, String::new()))
        }
        Projection::List(columns) if plain && columns.len() == 1 => {
            let name = column_names(columns).pop()?;
            is_count(&columns[0].expression).then_some((inner, name))
        }
        _ => None,
    }
}

/// The query without `TOP` and `OFFSET LIMIT`, which do not apply to a single range.
fn without_window(tree: &Select) -> Select {
    Select { offset_limit: None, top: None, ..tree.clone() }
}

/// The most rows that one range must return, within the limit for a query. No range holds more rows.
fn window(info: &QueryInfo) -> String {
    match (info.offset, info.limit) {
        (Some(offset), Some(limit)) => {
            let rows = offset.saturating_add(limit).min(u64::from(u32::MAX));
            format!(" OFFSET 0 LIMIT {rows}")
        }
        _ => String::new(),
    }
}

/// Adds the sort keys next to the payload, and a place for the client's resume filter.
fn order(tree: &Select, info: &mut QueryInfo) {
    let mut items = Vec::new();
    for item in &tree.order_by {
        info.order_by.push(if item.descending { "Descending" } else { "Ascending" });
        info.order_by_expressions.push(item.expression.to_string());
        items.push(format!("{{\"item\": {}}}", item.expression));
    }
    if tree.distinct && is_ordered_distinct(tree) {
        info.distinct_type = "Ordered";
    }
    let root = root_alias(tree).or_else(|| source_alias(tree)).unwrap_or("root");
    let payload = match &tree.projection {
        Projection::All => root.to_owned(),
        Projection::Value(expression) => expression.to_string(),
        Projection::List(columns) => {
            let names = column_names(columns);
            object(
                names
                    .iter()
                    .zip(columns)
                    .map(|(name, column)| (name.as_str(), column.expression.to_string())),
            )
        }
    };
    let filter = match &tree.filter {
        Some(filter) => format!("(({filter}) AND ({ORDER_BY_FILTER}))"),
        None => format!("({ORDER_BY_FILTER})"),
    };
    // A row without a value must not appear, but in the envelope it would be a row without a payload.
    let filter = match &tree.projection {
        Projection::Value(expression) => format!("({filter} AND IS_DEFINED({expression}))"),
        Projection::All | Projection::List(_) => filter,
    };
    // The client drops equal rows after merging, so the number of rows that a range must send is unknown.
    let bounded = !tree.distinct;
    let top = info.top.filter(|_| bounded).map_or(String::new(), |top| format!("TOP {top} "));
    let window = if bounded { window(info) } else { String::new() };
    // A group has no resource id of its own; that of its first item serves.
    let rid = match tree.group_by.is_empty() {
        true => format!("{root}._rid"),
        false => format!("MIN({root}._rid) AS _rid"),
    };
    info.rewritten_query = format!(
        "SELECT {top}{rid}, [{}] AS orderByItems, {payload} AS payload{} WHERE {filter}{}{}{}",
        items.join(", "),
        from(tree),
        group_by(tree),
        order_by(tree),
        window,
    );
}

fn source_alias(tree: &Select) -> Option<&str> {
    tree.from.as_ref()?.first.alias.as_deref()
}

fn from(tree: &Select) -> String {
    tree.from.as_ref().map_or(String::new(), |from| format!(" FROM {from}"))
}

fn group_by(tree: &Select) -> String {
    let keys: Vec<_> = tree.group_by.iter().map(ToString::to_string).collect();
    if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) }
}

fn order_by(tree: &Select) -> String {
    let keys: Vec<_> = tree.order_by.iter().map(ToString::to_string).collect();
    if keys.is_empty() { String::new() } else { format!(" ORDER BY {}", keys.join(", ")) }
}

/// Whether equal rows are adjacent because the rows are their own sort key. The service reports this for
/// bare values only.
fn is_ordered_distinct(tree: &Select) -> bool {
    match (&tree.projection, tree.order_by.as_slice()) {
        (Projection::Value(expression), [only]) => only.expression == *expression,
        _ => false,
    }
}

/// Splits aggregates into mergeable parts, next to the keys of their groups.
fn group(query: &Query, tree: &Select, info: &mut QueryInfo) -> Result<(), QueryError> {
    let clauses = {
        let filter =
            tree.filter.as_ref().map_or(String::new(), |filter| format!(" WHERE {filter}"));
        info.group_by_expressions = tree.group_by.iter().map(ToString::to_string).collect();
        format!("{}{filter}{}{}", from(tree), group_by(tree), order_by(tree))
    };
    let items: Vec<_> = tree.group_by.iter().map(|key| format!("{{\"item\": {key}}}")).collect();
    let envelope = if items.is_empty() {
        String::new()
    } else {
        format!("[{}] AS groupByItems, ", items.join(", "))
    };
    match &tree.projection {
        Projection::Value(expression) => {
            let (text, kind) = mergeable(query, expression)?;
            info.aggregates.extend(kind);
            // The part of an aggregate is wrapped in an array, as in the service.
            let payload = if kind.is_some() { format!("[{text}]") } else { text };
            info.rewritten_query = if items.is_empty() {
                format!("SELECT VALUE {payload}{clauses}")
            } else {
                format!("SELECT {envelope}{payload} AS payload{clauses}")
            };
        }
        Projection::List(columns) => {
            let mut members = Vec::new();
            for (name, column) in column_names(columns).into_iter().zip(columns) {
                let (text, kind) = mergeable(query, &column.expression)?;
                info.group_by_alias_to_aggregate_type.insert(name.clone(), kind);
                members.push((name, text));
            }
            info.group_by_aliases = members.iter().map(|(name, _)| name.clone()).collect();
            let payload = object(members.iter().map(|(name, text)| (name.as_str(), text.clone())));
            info.rewritten_query = format!("SELECT {envelope}{payload} AS payload{clauses}");
        }
        Projection::All => {}
    }
    Ok(())
}

/// An expression in a form whose results from ranges can be merged, and its aggregate.
fn mergeable(
    query: &Query,
    expression: &Expression,
) -> Result<(String, Option<&'static str>), QueryError> {
    let call = match &expression.node {
        Node::Call(name, list) => aggregate_kind(name).zip(list.first()),
        _ => None,
    };
    let Some((kind, argument)) = call else {
        if contains_aggregate(expression) {
            let problem = "Compositions of aggregates and other expressions are not allowed across \
                           ranges; select the aggregate alone";
            return Err(QueryError::new(
                Problem::Meaning(problem.to_owned()),
                expression.span,
                query.text(),
            ));
        }
        return Ok((expression.to_string(), None));
    };
    let (name, text) = match kind {
        AggregateKind::Average => (
            "Average",
            format!("{{\"item\": {{\"sum\": SUM({argument}), \"count\": COUNT({argument})}}}}"),
        ),
        AggregateKind::Min => ("Min", extreme("MIN", "min", argument)),
        AggregateKind::Max => ("Max", extreme("MAX", "max", argument)),
        AggregateKind::Count => ("Count", item("COUNT", argument)),
        AggregateKind::Sum => ("Sum", item("SUM", argument)),
        AggregateKind::CountIf => ("CountIf", item("COUNTIF", argument)),
        AggregateKind::MakeList => ("MakeList", item("MAKELIST", argument)),
        AggregateKind::MakeSet => ("MakeSet", item("MAKESET", argument)),
    };
    Ok((text, Some(name)))
}

fn item(function: &str, argument: &Expression) -> String {
    format!("{{\"item\": {function}({argument})}}")
}

/// The count distinguishes an empty range, which has no extreme, from one that spoils the answer.
fn extreme(function: &str, key: &str, argument: &Expression) -> String {
    format!(
        "{{\"item\": {function}({argument}), \"item2\": {{\"{key}\": {function}({argument}), \
         \"count\": COUNT({argument})}}}}"
    )
}

fn object<'n>(members: impl Iterator<Item = (&'n str, String)>) -> String {
    let members: Vec<_> = members
        .map(|(name, text)| {
            let mut quoted = Vec::new();
            write_text(name, &mut quoted);
            format!("{}: {text}", String::from_utf8_lossy(&quoted))
        })
        .collect();
    format!("{{{}}}", members.join(", "))
}
