//! The query plan document, field by field as SDKs read it.

use std::collections::BTreeMap;

use headwater_model::PartitionKeyDefinition;
use serde::Serialize;

use super::{ranges, rewrite};
use crate::error::QueryError;
use crate::query::Query;

/// The response to a query-plan request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct PlanDocument {
    /// Always 2.
    pub partitioned_query_execution_info_version: u32,
    /// How to run and merge the query.
    pub query_info: QueryInfo,
    /// The ranges to run it on.
    pub query_ranges: Vec<QueryRange>,
}

/// How to run a query on one range, and what the client must do with the rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueryInfo {
    /// `None`, `Unordered` or `Ordered`.
    pub distinct_type: &'static str,
    /// The most rows in all.
    pub top: Option<u64>,
    /// The rows to skip in all.
    pub offset: Option<u64>,
    /// The most rows after those skipped.
    pub limit: Option<u64>,
    /// `Ascending` or `Descending`, one for each sort key.
    pub order_by: Vec<&'static str>,
    /// The sort keys.
    pub order_by_expressions: Vec<String>,
    /// The expressions that define groups.
    pub group_by_expressions: Vec<String>,
    /// The properties of a grouped row, in order.
    pub group_by_aliases: Vec<String>,
    /// The aggregate of a `SELECT VALUE`.
    pub aggregates: Vec<&'static str>,
    /// The aggregate of each property of a grouped row; `null` if it has none.
    pub group_by_alias_to_aggregate_type: BTreeMap<String, Option<&'static str>>,
    /// The query text for each range; empty if it is the original.
    pub rewritten_query: String,
    /// Whether rows are bare values.
    pub has_select_value: bool,
    /// How to count distinct rows.
    pub d_count_info: Option<DistinctCount>,
    /// Whether sorted rows come out of order.
    pub has_non_streaming_order_by: bool,
}

/// How to count distinct rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DistinctCount {
    /// The property that receives the count; empty for a bare value.
    pub d_count_alias: String,
}

/// A range of hashed keys, as upper-case hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QueryRange {
    /// The lower bound.
    pub min: String,
    /// The upper bound.
    pub max: String,
    /// Whether `min` is part of the range.
    pub is_min_inclusive: bool,
    /// Whether `max` is part of the range.
    pub is_max_inclusive: bool,
}

impl QueryRange {
    pub(super) fn full() -> QueryRange {
        QueryRange {
            min: String::new(),
            max: "FF".to_owned(),
            is_min_inclusive: true,
            is_max_inclusive: false,
        }
    }

    pub(super) fn point(key: String) -> QueryRange {
        QueryRange { min: key.clone(), max: key, is_min_inclusive: true, is_max_inclusive: true }
    }
}

impl PlanDocument {
    /// Whether each group is one bare aggregate, `SELECT VALUE AVG(c.n) … GROUP BY …`. Clients disagree on
    /// the format of its partial results.
    pub fn groups_bare_aggregates(&self) -> bool {
        let info = &self.query_info;
        !info.aggregates.is_empty() && !info.group_by_expressions.is_empty()
    }

    /// The features that a client must advertise to follow this plan.
    pub fn features(&self) -> Vec<&'static str> {
        let info = &self.query_info;
        let grouped_aggregates = info.group_by_alias_to_aggregate_type.values().flatten().count();
        let lists = |kinds: &[&str]| {
            info.aggregates
                .iter()
                .chain(info.group_by_alias_to_aggregate_type.values().flatten())
                .any(|kind| kinds.contains(kind))
        };
        let wanted = [
            ("Aggregate", !info.aggregates.is_empty() && info.group_by_expressions.is_empty()),
            ("NonValueAggregate", grouped_aggregates > 0 && info.group_by_expressions.is_empty()),
            ("MultipleAggregates", grouped_aggregates > 1),
            ("GroupBy", !info.group_by_expressions.is_empty()),
            ("CountIf", lists(&["CountIf"])),
            ("ListAndSetAggregate", lists(&["MakeList", "MakeSet"])),
            ("DCount", info.d_count_info.is_some()),
            ("Distinct", info.distinct_type != "None"),
            ("OrderBy", info.order_by.len() == 1),
            ("MultipleOrderBy", info.order_by.len() > 1),
            ("OffsetAndLimit", info.offset.is_some()),
            ("Top", info.top.is_some()),
            ("NonStreamingOrderBy", info.has_non_streaming_order_by),
        ];
        wanted.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name).collect()
    }
}

/// The plan of a query within one partition key, which needs no merging.
pub(crate) fn plan_of_one_key(query: &Query) -> PlanDocument {
    PlanDocument {
        partitioned_query_execution_info_version: 2,
        query_info: rewrite::query_info_of_one_key(query),
        query_ranges: vec![QueryRange::full()],
    }
}

/// The plan of a query over a container with this partition key.
pub(crate) fn plan(
    query: &Query,
    definition: &PartitionKeyDefinition,
) -> Result<PlanDocument, QueryError> {
    plan_over(query, ranges::ranges(query, definition))
}

/// The plan over every key, whatever the filter says.
pub(crate) fn plan_over_all_keys(query: &Query) -> Result<PlanDocument, QueryError> {
    plan_over(query, ranges::all_ranges(query))
}

fn plan_over(query: &Query, query_ranges: Vec<QueryRange>) -> Result<PlanDocument, QueryError> {
    let is_whole = matches!(query_ranges.as_slice(), [only] if only.min == only.max);
    Ok(PlanDocument {
        partitioned_query_execution_info_version: 2,
        query_info: rewrite::query_info(query, is_whole)?,
        query_ranges,
    })
}
