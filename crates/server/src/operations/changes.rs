//! The change feed over HTTP: one page, or 304 with the position up to which there was nothing.

use super::permissions::check_again;
use super::{Outcome, items};
use crate::answer::{Answer, Payload};
use crate::budget::{Held, Peer, Resource};
use crate::config::StartTimes;
use crate::failure::Failure;
use crate::gateway::{Gateway, PAGE_BYTES, Target, unfinished};
use crate::names;
use crate::request::{Call, Caller, Scope};
use bytes::Bytes;
use headwater_model::{Continuation, FeedMode, FeedStart, KeyRange, Lsn, PartitionId};
use headwater_protocol::charge::Charge;
use headwater_protocol::feed::{self, Envelope, FeedHeaders, FeedRequest as Asked, TimeStart};
use headwater_protocol::headers;
use headwater_protocol::resource::FeedWriter;
use headwater_store::{
    BadFilter, Change, Container, FeedError, FeedFilter, FeedPage, FeedRequest, Halves, Timestamp,
};
use hyper::StatusCode;
use hyper::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};
use std::sync::Arc;
use std::time::Duration;

/// What a character of a filter takes once it is understood: 60 to 75 bytes were measured.
const FILTER_BYTES_PER_CHARACTER: usize = 80;

pub(super) async fn read(gateway: &Arc<Gateway>, call: &Call, target: &Target) -> Outcome {
    let container = &target.container;
    let asked = asked(gateway, call)?;
    let scope = call.scope()?;
    items::check_session(call, container)?;
    if asked.position_only {
        return position_only(container, &asked, &scope);
    }
    if let Some(newest) = newest_elsewhere(container, &scope) {
        return Ok(unchanged(container, &scope, &format!("\"{newest}\"")));
    }
    // Held for the whole read: a page that is there at once is read under a limit too.
    let _waiting = match call.operation.waits_for_changes() {
        true => Some(call.peer.take(Resource::WaitingReaders, 1)?),
        false => None,
    };
    let (filter, _filter_memory) = filter_in_headers(call)?;
    let mut memory = Some(gateway.hold_page(&call.peer).await?);
    let wait = call.wait(gateway.config.limits.wait_max);
    let request = request_of(&asked, &scope).limit(call.page_limit()?);
    let mut request = request.filter(filter).refuse_above(PAGE_BYTES);
    let names_format = call.header(headers::CHANGE_FEED_WIRE_FORMAT).is_some();
    let previous = shows_previous(gateway, call, container);
    let form = Form { mode: asked.mode, names_format, previous };
    // What is wrong with a request is said by whoever reads it alone.
    if let Ok(Some(halves)) = container.halves(&request) {
        match read_by_two(gateway, container, form, halves).await {
            Ok(page) => return Ok(Answer { memory, ..served(container, &scope, page) }),
            Err(Unread::Failed(failure)) => return Err(failure),
            Err(Unread::Ahead | Unread::Large) => {}
        }
    }
    let mut read = read_page(gateway, container, &request, Duration::ZERO).await;
    if let Ok(page) = &read
        && page.changes.is_empty()
        && !wait.is_zero()
    {
        // Thousands may wait, and what is new by then is little: it is counted when it is there.
        memory = None;
        request = request.behind(page);
        read = read_page(gateway, container, &request, wait).await;
        if let Caller::Guest(grant) = &call.caller {
            check_again(gateway, grant)?;
        }
    }
    let peer = &call.peer;
    let written = match read {
        // A reader ahead of us (a container made anew, say) is told to stay where it is.
        Err(Unread::Ahead) => return Ok(unchanged(container, &scope, &etag_of(&asked))),
        Err(Unread::Failed(failure)) => return Err(failure),
        Err(Unread::Large) => {
            let memory = match memory {
                Some(held) => held,
                None => gateway.hold_page(peer).await?,
            };
            let (container, peer) = (container.clone(), peer.clone());
            let written = async move {
                let page = container.read_feed(&request.refuse_above(usize::MAX)).await?;
                Written::new(&container, form, &page, Some(memory), &peer)
            };
            gateway.in_background("large page", written).await?
        }
        Ok(page) => Written::new(container, form, &page, memory, peer)?,
    };
    let etag = quoted(&written.continuation);
    // A filter that has looked at enough for one page says so with an empty one: 304 would mean the end.
    if written.count == 0 && !written.unfinished {
        return Ok(unchanged(container, &scope, &etag));
    }
    let charge = Charge::page(written.body.len());
    let answer = Answer::json(StatusCode::OK, written.body).charged(charge).etag(etag);
    let answer = answer.number(&names::ITEM_COUNT, written.count as u64);
    Ok(Answer { memory: Some(written.memory), ..served(container, &scope, answer) })
}

/// A page as it is sent.
struct Written {
    body: Vec<u8>,
    count: usize,
    continuation: Continuation,
    unfinished: bool,
    memory: Held,
}

impl Written {
    /// Writes the body of a page, if there is memory for both.
    fn new(
        container: &Container,
        form: Form,
        page: &FeedPage,
        memory: Option<Held>,
        peer: &Arc<Peer>,
    ) -> Result<Written, Failure> {
        // A transaction is never cut, so a page of one can be far beyond the limit of a page.
        let room = room_for(form, page);
        let memory = match memory {
            Some(mut held) if room > PAGE_BYTES / 2 => {
                held.resize(2 * room)?;
                held
            }
            Some(held) => held,
            None => peer.take(Resource::Sending, 2 * room)?,
        };
        Ok(Written {
            body: body_of(container, form, page),
            count: page.changes.len(),
            continuation: page.continuation.clone(),
            unfinished: page.unfinished,
            memory,
        })
    }
}

/// A large page, half of it read on another thread if one is free.
async fn read_by_two(
    gateway: &Arc<Gateway>,
    container: &Container,
    form: Form,
    halves: Halves,
) -> Result<Answer, Unread> {
    let (there, its_halves) = (container.clone(), halves.clone());
    let first = || {
        let page = halves.first()?;
        let mut body = Vec::with_capacity(room_for(form, &page));
        let rid = container.rid().to_string();
        let writer = FeedWriter::new(&mut body, &rid, "Documents");
        write_changes(container, form, &page, writer);
        Ok::<_, FeedError>((page.changes.len(), page.continuation, body))
    };
    let second = move || {
        let page = its_halves.second()?;
        let mut body = Vec::with_capacity(room_for(form, &page));
        write_changes(&there, form, &page, FeedWriter::piece(&mut body));
        Ok::<_, FeedError>((page.changes.len(), page.continuation, body))
    };
    let (first, second) = gateway.runtime.beside("half a page", first, second).await;
    let (before, first_ends, mut body) = first?;
    let (behind, second_ends, mut rest) = second.ok_or_else(|| Unread::Failed(unfinished()))??;
    if before > 0 && behind > 0 {
        body.push(b',');
    }
    FeedWriter::piece(&mut rest).finish_behind(before + behind);
    // The position of a page is that of its last change.
    let continuation = if behind > 0 { second_ends } else { first_ends };
    let charge = Charge::page(body.len() + rest.len());
    let mut answer = Answer::json(StatusCode::OK, Bytes::new());
    answer.payload = Payload::Pieces(vec![rest.into(), body.into()]);
    let answer = answer.charged(charge).etag(quoted(&continuation));
    Ok(answer.number(&names::ITEM_COUNT, (before + behind) as u64))
}

/// A position as an etag is written.
fn quoted(continuation: &Continuation) -> String {
    format!("\"{}\"", continuation.to_string().trim_matches('"'))
}

/// Whether changes come with the item before them.
///
/// A container with a policy for all versions is read by programs that know the service, and there a policy
/// alone does not bring these images; the SDKs' own suites look whether they are absent. Where there is no
/// policy the service has no such feed at all, so nobody expects less than everything.
fn shows_previous(gateway: &Gateway, call: &Call, container: &Container) -> bool {
    let retention = container.definition().all_versions_retention();
    let has_policy = retention.is_some_and(|retention| !retention.is_zero());
    match call.header(headers::FEED_PREVIOUS) {
        Some(_) => call.flag(headers::FEED_PREVIOUS),
        None => gateway.config.previous_images || !has_policy,
    }
}

/// How far a range is that does not hold the key a reader is after.
///
/// The Go client goes through all ranges and names its key to each. One that cannot hold the key has
/// nothing to say; that the range is gone would send the client in circles.
fn newest_elsewhere(container: &Container, scope: &Scope) -> Option<Lsn> {
    let (Some(id), Some(key), None) = (scope.range, &scope.key, &scope.hashes) else {
        return None;
    };
    let of_key = container.definition().partition_key().prefix_range(key).ok()?;
    let range = container.ranges().into_iter().find(|range| range.id == id)?;
    range.range.intersect(&of_key).is_none().then_some(range.lsn)
}

fn asked(gateway: &Gateway, call: &Call) -> Result<Asked, Failure> {
    let headers = FeedHeaders {
        a_im: call.header(&names::A_IM),
        if_none_match: call.header(IF_NONE_MATCH),
        if_modified_since: call.header(IF_MODIFIED_SINCE),
        version: call.header(&names::VERSION),
        start: call.header(headers::FEED_START),
    };
    let time_start = match gateway.config.start_times {
        StartTimes::ByVersion => TimeStart::ByVersion,
        StartTimes::Changes => TimeStart::ChangesAtOnce,
        StartTimes::Position => TimeStart::PositionFirst,
    };
    let asked = Asked::parse(&headers, time_start)?;
    asked.ok_or_else(|| Failure::bad_request("A-IM is empty; leave it out or name a feed"))
}

fn filter_in_headers(call: &Call) -> Result<(FeedFilter, Option<Held>), Failure> {
    let asked = AskedFilter {
        condition: call.header_utf8(&names::FEED_WHERE)?,
        columns: call.header_utf8(&names::FEED_SELECT)?,
        kinds: call.header_utf8(&names::FEED_OPS)?,
        paths: call.header_utf8(&names::FEED_CHANGED)?,
    };
    filter_of(&asked, &call.peer)
}

/// A filter as a client words it, in headers or in an address.
#[derive(Default)]
pub(super) struct AskedFilter<'a> {
    pub(super) condition: Option<&'a str>,
    pub(super) columns: Option<&'a str>,
    pub(super) kinds: Option<&'a str>,
    pub(super) paths: Option<&'a str>,
}

/// The filter, and its memory.
pub(super) fn filter_of(
    asked: &AskedFilter<'_>,
    peer: &Arc<Peer>,
) -> Result<(FeedFilter, Option<Held>), Failure> {
    let texts = [asked.condition, asked.columns, asked.kinds, asked.paths];
    let memory = match texts.into_iter().flatten().map(str::len).sum::<usize>() {
        0 => None,
        bytes => Some(peer.take(Resource::Filters, bytes * FILTER_BYTES_PER_CHARACTER)?),
    };
    let parsed = || -> Result<FeedFilter, BadFilter> {
        let mut filter = FeedFilter::new();
        if let Some(condition) = asked.condition {
            filter = filter.matching(condition)?;
        }
        if let Some(columns) = asked.columns {
            filter = filter.showing(columns)?;
        }
        if let Some(kinds) = asked.kinds {
            filter = filter.only_named(kinds)?;
        }
        if let Some(paths) = asked.paths {
            let paths: Vec<&str> = paths.split(',').collect();
            filter = filter.when_changed(&paths)?;
        }
        Ok(filter)
    };
    let filter = parsed().map_err(|error| Failure::bad_request(format!("{error}.")))?;
    Ok((filter, memory))
}

pub(super) fn request_of(asked: &Asked, scope: &Scope) -> FeedRequest {
    let mut request = FeedRequest::new(asked.start.clone()).mode(asked.mode);
    if let Some(range) = scope.range {
        request = request.of_range(range);
    }
    if let Some(key) = &scope.key {
        request = request.of_key(key.clone());
    }
    if let Some(hashes) = &scope.hashes {
        request = request.of_hashes(hashes.clone());
    }
    request
}

/// Why there is no page.
pub(super) enum Unread {
    /// The position is ahead of everything.
    Ahead,
    /// It takes too long to make on a thread on which others wait.
    Large,
    Failed(Failure),
}

impl From<FeedError> for Unread {
    fn from(error: FeedError) -> Unread {
        match error {
            FeedError::PositionAhead { .. } => Unread::Ahead,
            FeedError::LargePage { .. } => Unread::Large,
            other => Unread::Failed(other.into()),
        }
    }
}

/// Reads a page, and waits for one until there is a change or the server stops. The caller holds the permit
/// of a waiting reader.
pub(super) async fn read_page(
    gateway: &Arc<Gateway>,
    container: &Container,
    request: &FeedRequest,
    wait: Duration,
) -> Result<FeedPage, Unread> {
    let at_once = request.clone().wait(Duration::ZERO);
    if wait.is_zero() {
        return Ok(container.read_feed(&at_once).await?);
    }
    let waiting = at_once.clone().wait(wait);
    match gateway.unless_stopping(container.read_feed(&waiting)).await {
        Some(page) => Ok(page?),
        // What there is now; the client comes back to whoever serves next.
        None => Ok(container.read_feed(&at_once).await?),
    }
}

/// The answer of the old articles: where a time is, and nothing else.
fn position_only(container: &Container, asked: &Asked, scope: &Scope) -> Outcome {
    let FeedStart::Time(time) = asked.start else {
        return Err(Failure::bad_request("only a start by time has a position of its own"));
    };
    let position = position_at(container, scope, time)?;
    Ok(unchanged(container, scope, &quoted(&position)))
}

fn position_at(
    container: &Container,
    scope: &Scope,
    time: Timestamp,
) -> Result<Continuation, Failure> {
    let ranges = container.ranges();
    let wanted: Vec<_> =
        ranges.iter().filter(|range| scope.range.is_none_or(|id| range.id == id)).collect();
    let mut positions = Vec::with_capacity(wanted.len());
    for range in &wanted {
        positions.extend(container.positions_at(range.id, time)?);
    }
    match &positions[..] {
        [] => {
            let gone = scope.range.map(FeedError::RangeGone);
            Err(gone.unwrap_or(FeedError::ContainerGone).into())
        }
        [one] => Ok(Continuation::Single(one.after)),
        _ => Continuation::composite(container.rid(), positions)
            .map_err(|error| FeedError::Continuation(error).into()),
    }
}

fn etag_of(asked: &Asked) -> String {
    match &asked.start {
        FeedStart::After(position) => quoted(position),
        _ => "\"0\"".to_owned(),
    }
}

fn unchanged(container: &Container, scope: &Scope, etag: &str) -> Answer {
    let answer = Answer::empty(StatusCode::NOT_MODIFIED).etag(etag);
    served(container, scope, answer.number(&names::ITEM_COUNT, 0))
}

/// The partition that answered, if it was one.
///
/// Where there were several, a client that asked for all of the container can take their tokens apart.
/// One that asked for a part of it expects one token, and some clients end at several: it gets none.
pub(super) fn served(container: &Container, scope: &Scope, answer: Answer) -> Answer {
    let by_range = scope.range.and_then(|id| Some((id, container.newest(id)?)));
    let by_key = || container.locate(scope.key.as_ref()?).ok();
    let is_part = scope.key.is_some() || scope.hashes.is_some();
    match by_range.or_else(by_key).or_else(|| only_partition(container, scope)) {
        Some((partition, lsn)) => answer.served_by(partition, lsn),
        None if is_part => answer,
        None => answer.header(&names::SESSION_TOKEN, super::list::session_of(container)),
    }
}

/// The partition all of the scope is in: of a prefix of a key, of a range of hashes, of everything.
fn only_partition(container: &Container, scope: &Scope) -> Option<(PartitionId, Lsn)> {
    let of_key = |key| container.definition().partition_key().prefix_range(key).ok();
    let wanted = scope.hashes.clone().or_else(|| of_key(scope.key.as_ref()?));
    let is_wanted = |range: &KeyRange| wanted.as_ref().is_none_or(|wanted| range.overlaps(wanted));
    let ranges = container.ranges();
    let mut touched = ranges.iter().filter(|known| is_wanted(&known.range));
    let one = touched.next()?;
    touched.next().is_none().then_some((one.id, one.lsn))
}

/// What changes look like.
#[derive(Clone, Copy)]
struct Form {
    mode: FeedMode,
    /// Latest versions are wrapped as well.
    names_format: bool,
    previous: bool,
}

fn body_of(container: &Container, form: Form, page: &FeedPage) -> Vec<u8> {
    let rid = container.rid().to_string();
    let mut body = Vec::with_capacity(room_for(form, page));
    let writer = FeedWriter::new(&mut body, &rid, "Documents");
    write_changes(container, form, page, writer).finish();
    body
}

/// About as many bytes as a page becomes.
fn room_for(form: Form, page: &FeedPage) -> usize {
    let previous = |change: &Change| match (form.mode, change.previous()) {
        (FeedMode::AllVersionsAndDeletes, Some(item)) if form.previous => item.feed_bytes().len(),
        _ => 0,
    };
    let of_change = |change: &Change| change.body_slice().len() + previous(change) + 1;
    page.changes.iter().map(of_change).sum::<usize>() + 128
}

fn write_changes<'w>(
    container: &Container,
    form: Form,
    page: &FeedPage,
    mut writer: FeedWriter<'w>,
) -> FeedWriter<'w> {
    let definition = container.definition();
    for change in &page.changes {
        match form.mode {
            FeedMode::LatestVersion if form.names_format => writer.push_with(|out| {
                feed::write_wrapped(
                    change.body_slice(),
                    change.lsn(),
                    change.timestamp().as_seconds(),
                    out,
                );
            }),
            FeedMode::LatestVersion => writer.push(change.body_slice()),
            FeedMode::AllVersionsAndDeletes => {
                let paths = &definition.partition_key().paths;
                writer.push_with(|out| write_envelope(change, paths, form.previous, out));
            }
        }
    }
    writer
}

pub(super) fn write_envelope(
    change: &Change,
    paths: &[headwater_model::PartitionKeyPath],
    shows_previous: bool,
    out: &mut Vec<u8>,
) {
    let current = change.current_bytes();
    let previous = change.previous_bytes().filter(|_| shows_previous);
    Envelope {
        kind: change.kind(),
        lsn: change.lsn(),
        crts: change.timestamp().as_seconds(),
        current: current.as_deref(),
        previous: previous.as_deref(),
        previous_lsn: change.previous_lsn(),
        ttl_expired: change.is_expiry(),
        id: change.id(),
        partition_key: &change.partition_key(),
        paths,
    }
    .write_into(out);
}
