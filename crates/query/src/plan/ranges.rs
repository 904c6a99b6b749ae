//! Ranges of hashed keys a query can match.

use headwater_model::{PartitionKey, PartitionKeyDefinition, PartitionKeyKind, PartitionKeyValue};

use super::candidates::Candidate;
use super::document::QueryRange;
use crate::query::Query;
use crate::value::{Kind, Value};

/// The ranges, sorted and disjoint. A query that reads no items, or whose filter no item satisfies, runs on
/// the first range only: it has one answer, not one for each range.
pub(super) fn ranges(query: &Query, definition: &PartitionKeyDefinition) -> Vec<QueryRange> {
    let ranges = if query.reads_items() { matching(query, definition) } else { Vec::new() };
    if ranges.is_empty() { vec![first()] } else { ranges }
}

/// The ranges of a query whose filter is not known yet.
pub(super) fn all_ranges(query: &Query) -> Vec<QueryRange> {
    vec![if query.reads_items() { QueryRange::full() } else { first() }]
}

/// The start of the first range, as the service writes it.
fn first() -> QueryRange {
    QueryRange::point(String::new())
}

/// The ranges in which items can match; empty if none can.
fn matching(query: &Query, definition: &PartitionKeyDefinition) -> Vec<QueryRange> {
    let paths: Vec<Vec<&str>> = definition
        .paths
        .iter()
        .map(|path| path.segments().iter().map(String::as_str).collect())
        .collect();
    let Some(candidates) = query.candidates(&paths) else {
        return vec![QueryRange::full()];
    };
    let mut ranges = Vec::with_capacity(candidates.len());
    for candidate in &candidates {
        match range(candidate, definition) {
            Some(found) => ranges.extend(found),
            None => return vec![QueryRange::full()],
        }
    }
    apart(ranges)
}

/// The range of one candidate; `None` if it is not specific enough, `Some(None)` if no item has such a key.
fn range(candidate: &Candidate, definition: &PartitionKeyDefinition) -> Option<Option<QueryRange>> {
    let mut values = Vec::new();
    for value in candidate {
        match value.as_ref().map(key_value) {
            Some(Some(value)) => values.push(value),
            // Values after a missing one do not narrow the range.
            Some(None) | None => break,
        }
    }
    let known = values.len();
    let key = PartitionKey::from_values(values);
    if known == definition.paths.len() {
        return Some(definition.epk(&key).ok().map(|epk| QueryRange::point(epk.to_hex())));
    }
    if known == 0 || definition.kind != PartitionKeyKind::MultiHash {
        return None;
    }
    Some(definition.prefix_range(&key).ok().map(|range| QueryRange {
        min: range.min().to_hex(),
        max: range.max().to_hex(),
        is_min_inclusive: true,
        is_max_inclusive: false,
    }))
}

fn key_value(value: &Value<'static>) -> Option<PartitionKeyValue> {
    Some(match value {
        Value::Null => PartitionKeyValue::Null,
        Value::Bool(value) => PartitionKeyValue::Bool(*value),
        Value::Number(number) => PartitionKeyValue::Number(number.value()),
        Value::String(text) => PartitionKeyValue::String(text.to_string()),
        // An object or array places an item as if the property were missing.
        _ if matches!(value.kind(), Kind::Array | Kind::Object) => PartitionKeyValue::Undefined,
        _ => return None,
    })
}

/// Sorts the ranges and removes those inside another.
fn apart(mut ranges: Vec<QueryRange>) -> Vec<QueryRange> {
    ranges.sort_by(|one, two| one.min.cmp(&two.min).then_with(|| two.max.cmp(&one.max)));
    let mut kept: Vec<QueryRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        let covered = kept.last().is_some_and(|last| {
            range.max < last.max || (range.max == last.max && range.min >= last.min)
        });
        if !covered {
            kept.push(range);
        }
    }
    kept
}
