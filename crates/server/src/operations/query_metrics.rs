//! Formats the metrics of a query: its figures, and the indexes that it used.
//!
//! Values that are not measured are zero.

use crate::request::{Call, Scope};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headwater_protocol::headers;
use headwater_store::Container;
use headwater_store::query::{IndexUsage, QueryPage};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::time::Duration;

/// The measured times and the size of the result.
pub(super) struct Measurements {
    pub(super) compiling: Duration,
    pub(super) running: Duration,
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// Formats the query metrics, if requested.
pub(super) fn figures(call: &Call, page: &QueryPage, measured: &Measurements) -> Option<String> {
    if !call.flag(headers::POPULATE_QUERY_METRICS) {
        return None;
    }
    // A measured time is never shown as zero, even if it is below two decimals.
    let millis = |time: Duration| (time.as_secs_f64() * 1000.0).max(0.01);
    let (compiling, running) = (millis(measured.compiling), millis(measured.running));
    let figures = [
        ("totalExecutionTimeInMs", format!("{:.2}", compiling + running)),
        ("queryCompileTimeInMs", format!("{compiling:.2}")),
        ("queryLogicalPlanBuildTimeInMs", "0.00".to_owned()),
        ("queryPhysicalPlanBuildTimeInMs", "0.00".to_owned()),
        ("queryOptimizationTimeInMs", "0.00".to_owned()),
        ("VMExecutionTimeInMs", format!("{running:.2}")),
        ("indexLookupTimeInMs", "0.00".to_owned()),
        ("instructionCount", page.steps.to_string()),
        ("documentLoadTimeInMs", "0.00".to_owned()),
        ("systemFunctionExecuteTimeInMs", "0.00".to_owned()),
        ("userFunctionExecuteTimeInMs", "0.00".to_owned()),
        ("retrievedDocumentCount", page.items_read.to_string()),
        ("retrievedDocumentSize", page.bytes_read.to_string()),
        ("outputDocumentCount", measured.rows.to_string()),
        ("outputDocumentSize", measured.bytes.to_string()),
        ("writeOutputTimeInMs", "0.00".to_owned()),
        ("indexUtilizationRatio", format!("{:.2}", hit_ratio(measured.rows, page.items_read))),
    ];
    let words: Vec<String> =
        figures.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Some(words.join(";"))
}

/// The fraction of the items read that is in the result; 1 if none were read.
#[expect(clippy::cast_precision_loss, reason = "a ratio of two digits")]
fn hit_ratio(rows: usize, items: usize) -> f64 {
    if items == 0 { 1.0 } else { (rows as f64 / items as f64).min(1.0) }
}

/// Formats the used and potential indexes in the requested form, if requested. The partition key of the request
/// counts as a used index.
pub(super) fn indexes(
    call: &Call,
    container: &Container,
    scope: &Scope,
    usage: &IndexUsage,
) -> Option<String> {
    if !call.flag(headers::POPULATE_INDEX_METRICS_V2) && !call.flag(headers::POPULATE_INDEX_METRICS)
    {
        return None;
    }
    let mut used = usage.used.clone();
    if scope.key.as_ref().is_some_and(|key| !key.components().is_empty()) {
        let definition = container.definition();
        let paths = definition.partition_key().paths.iter().map(|path| format!("{path}/?"));
        used.extend(paths.filter(|path| !usage.used.contains(path)));
    }
    if call.flag(headers::POPULATE_INDEX_METRICS_V2) {
        let list = |paths: &[String]| -> Vec<Value> {
            paths.iter().map(|path| json!({ "IndexSpec": path })).collect()
        };
        let composite = |orders: &[Vec<String>]| -> Vec<Value> {
            orders.iter().map(|paths| json!({ "IndexSpecs": paths })).collect()
        };
        let document = json!({
            "Utilized": {
                "SingleIndexes": list(&used),
                "CompositeIndexes": composite(&usage.used_composites),
            },
            "Potential": {
                "SingleIndexes": list(&usage.potential),
                "CompositeIndexes": composite(&usage.potential_composites),
            },
        });
        return Some(utf8_percent_encode(&document.to_string(), NON_ALPHANUMERIC).to_string());
    }
    let list = |paths: &[String]| -> Vec<Value> {
        let entry = |path: &String| {
            json!({
                "FilterExpression": "",
                "IndexSpec": path,
                "FilterPreciseSet": true,
                "IndexPreciseSet": true,
                "IndexImpactScore": "High",
            })
        };
        paths.iter().map(entry).collect()
    };
    let composite = |orders: &[Vec<String>]| -> Vec<Value> {
        let entry = |paths: &Vec<String>| {
            json!({
                "IndexSpecs": paths,
                "IndexPreciseSet": true,
                "IndexImpactScore": "High",
            })
        };
        orders.iter().map(entry).collect()
    };
    let document = json!({
        "UtilizedSingleIndexes": list(&used),
        "PotentialSingleIndexes": list(&usage.potential),
        "UtilizedCompositeIndexes": composite(&usage.used_composites),
        "PotentialCompositeIndexes": composite(&usage.potential_composites),
    });
    Some(STANDARD.encode(document.to_string()))
}
