//! Serves the ranges of a container, a list that is itself a change feed.
//!
//! Clients repeat the request with the last etag until the response is 304. A server that never responds with
//! 304 would keep them in a loop.

use super::Outcome;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_model::{PartitionId, PartitionRangeRid};
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::headers;
use headwater_protocol::resource::{self, FeedWriter, PkRange};
use headwater_store::{Container, RangeInfo};
use hyper::StatusCode;

/// Handles `…/pkranges`.
pub(super) fn collection(gateway: &Gateway, call: &Call, db: &str, coll: &str) -> Outcome {
    let container = gateway.container(db, coll)?;
    let ranges = container.ranges();
    let etag = etag_of(&ranges);
    let seen = call.if_none_match().map(|text| text.trim_matches('"'));
    let base = |answer: Answer| {
        answer
            .etag(format_args!("\"{etag}\""))
            .charged(Charge::METADATA_READ)
            .header(headers::ALT_CONTENT_PATH, super::list::content_path(db, coll))
            .header(headers::CONTENT_PATH, container.rid())
    };
    if seen == Some(etag.as_str()) {
        let answer = Answer::empty(StatusCode::NOT_MODIFIED);
        return Ok(base(answer).header(headers::ITEM_COUNT, 0));
    }
    let rid = container.rid().to_string();
    let mut body = Vec::with_capacity(512 * ranges.len());
    let mut writer = FeedWriter::new(&mut body, &rid, "PartitionKeyRanges");
    for range in &ranges {
        writer.push(&document(&container, range, ranges.len()));
    }
    let count = writer.finish();
    Ok(base(Answer::json(StatusCode::OK, body)).header(headers::ITEM_COUNT, count))
}

/// Handles `…/pkranges/{id}`.
pub(super) fn one(gateway: &Gateway, db: &str, coll: &str, id: &str) -> Outcome {
    let container = gateway.container(db, coll)?;
    let ranges = container.ranges();
    let wanted: Option<PartitionId> = id.parse().ok();
    let found = ranges.iter().find(|range| Some(range.id) == wanted);
    let range = found.ok_or_else(|| {
        let message = format!("range {id} is gone; list the ranges again");
        Failure::new(Code::PartitionKeyRangeGone, message)
    })?;
    let body = document(&container, range, ranges.len());
    Ok(Answer::json(StatusCode::OK, body).charged(Charge::METADATA_READ))
}

/// The etag of a list of ranges. Ids are never reused, so the newest id and the count identify the topology.
fn etag_of(ranges: &[RangeInfo]) -> String {
    let newest = ranges.iter().map(|range| range.id.get()).max().unwrap_or(0);
    format!("{newest}-{}", ranges.len())
}

fn document(container: &Container, range: &RangeInfo, count: usize) -> Vec<u8> {
    resource::pk_range(&PkRange {
        id: range.id,
        rid: PartitionRangeRid::new(container.rid(), u64::from(range.id.get())),
        range: &range.range,
        parents: &range.ancestors,
        throughput_fraction: 1.0 / count.max(1) as f64,
        lsn: range.lsn,
        etag: &container.etag().map(|etag| etag.to_string()).unwrap_or_default(),
        ts: container.timestamp().map_or(0, |time| time.as_seconds()),
    })
}
