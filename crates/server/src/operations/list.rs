//! Serves lists: items in the order of their creation, and short lists of definitions.

use super::{Outcome, changes};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Target;
use crate::request::{Call, Scope};
use bytes::Bytes;
use headwater_model::KeyRange;
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::resource::FeedWriter;
use headwater_protocol::session::SessionToken;
use headwater_store::{Container, ScanPosition, ScanScope};
use hyper::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// Characters that a header cannot carry, or that a client would decode.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'"').add(b'#').add(b'?').add(b'/');

/// The path of a container by names, by which clients store its session token.
pub(crate) fn content_path(db: &str, coll: &str) -> String {
    path_of(&["dbs", db, "colls", coll])
}

/// Joins names to a path that a header can carry.
pub(super) fn path_of(names: &[&str]) -> String {
    let names = names.iter().map(|name| utf8_percent_encode(name, ESCAPED).to_string());
    names.collect::<Vec<_>>().join("/")
}

/// The session token of all ranges.
pub(super) fn session_of(container: &Container) -> String {
    let parts = container.ranges().into_iter();
    let parts = parts.map(|range| SessionToken::single(range.id, range.lsn).to_string());
    parts.collect::<Vec<_>>().join(",")
}

/// Handles `GET …/docs`.
pub(super) async fn items(call: &Call, target: &Target) -> Outcome {
    let container = &target.container;
    let scope = call.scope()?;
    super::items::check_session(call, container)?;
    let after = call.continuation().map(ScanPosition::from_text);
    let wanted = scan_scope(container, &scope)?;
    let page = container.list(&wanted, after.as_ref(), call.page_limit()?).await?;
    let size: usize = page.items.iter().map(|item| item.feed_bytes().len()).sum();
    let rid = container.rid().to_string();
    let mut body = Vec::with_capacity(size + 128);
    let mut writer = FeedWriter::new(&mut body, &rid, "Documents");
    for item in &page.items {
        let (start, end) = item.parts();
        writer.push_with(|out| {
            out.extend_from_slice(start);
            out.extend_from_slice(end);
        });
    }
    let count = writer.finish();
    let answer = Answer::json(StatusCode::OK, body)
        .charged(Charge::page(size))
        .header(headers::ITEM_COUNT, count)
        .header_if(headers::CONTINUATION, page.next);
    Ok(changes::served(container, &scope, answer))
}

/// Intersects everything that narrows a scan.
pub(super) fn scan_scope(container: &Container, scope: &Scope) -> Result<ScanScope, Failure> {
    if let (Some(key), None, None) = (&scope.key, &scope.range, &scope.hashes) {
        return Ok(ScanScope::Key(key.clone()));
    }
    let mut range = scope.hashes.clone().unwrap_or_else(KeyRange::full);
    if let Some(id) = scope.range {
        let ranges = container.ranges();
        let known = ranges.iter().find(|known| known.id == id);
        let known = known.ok_or(headwater_store::ItemReadError::RangeGone(id))?;
        let Some(inside) = known.range.intersect(&range) else {
            // Bounds outside of the range belong to another range: the client's map is outdated.
            return Err(headwater_store::ItemReadError::RangeGone(id).into());
        };
        range = inside;
    }
    if let Some(key) = &scope.key {
        let of_key = container.definition().partition_key().prefix_range(key);
        let of_key = of_key.map_err(headwater_store::ItemReadError::from)?;
        let empty = || Failure::bad_request("the partition key is not in that range");
        range = range.intersect(&of_key).ok_or_else(empty)?;
        if range == of_key {
            return Ok(ScanScope::Key(key.clone()));
        }
    }
    Ok(ScanScope::Hashes(range))
}

/// A page of documents that are all at hand.
pub(super) fn documents(call: &Call, key: &str, rid: &str, all: &[Bytes]) -> Outcome {
    page(call, key, rid, all.len(), |index| Ok(Some(all[index].clone())))
}

/// Builds one page of documents, and only those on it. Its continuation is the number of documents shown so far.
pub(super) fn page(
    call: &Call,
    key: &str,
    rid: &str,
    count: usize,
    show: impl Fn(usize) -> Result<Option<Bytes>, Failure>,
) -> Outcome {
    let shown = match call.continuation() {
        None => 0,
        Some(text) => text.parse::<usize>().map_err(|_| {
            Failure::bad_request(
                "Invalid Continuation Token: it is not one of this list; start without it",
            )
        })?,
    };
    let limit = call.page_limit()?;
    let mut body = Vec::with_capacity(1024);
    let mut writer = FeedWriter::new(&mut body, rid, key);
    let (mut next, mut bytes) = (shown, 0);
    while next < count && next - shown < limit.items as usize {
        if let Some(document) = show(next)? {
            // A page has one document at least.
            if bytes > 0 && bytes + document.len() > limit.bytes as usize {
                break;
            }
            bytes += document.len();
            writer.push(&document);
        }
        next += 1;
    }
    let on_page = writer.finish();
    let next = Some(next).filter(|next| *next < count);
    Ok(Answer::json(StatusCode::OK, body)
        .charged(Charge::METADATA_READ)
        .header(headers::ITEM_COUNT, on_page)
        .header_if(headers::CONTINUATION, next))
}

/// Answers with an empty list.
pub(super) fn nothing(call: &Call, key: &str, rid: &str) -> Outcome {
    documents(call, key, rid, &[])
}
