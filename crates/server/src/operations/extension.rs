//! What Headwater answers beyond the protocol, under `/_headwater/`.
//!
//! ```text
//! GET  /_headwater/changes/{db}/{coll}           the change feed as server-sent events
//! GET  /_headwater/partitions/{db}/{coll}        ranges, their newest LSN and live bytes
//! POST /_headwater/partitions/{db}/{coll}/split  {"range":"0","at":"1F…"}   `at` may be left out
//! POST /_headwater/partitions/{db}/{coll}/merge  {"ranges":["1","2"]}
//!      /_headwater/backups                       see `backups.rs`
//! ```
//!
//! The event stream takes `mode=all`, `from=beginning|now` and `position=`, and a filter as `where=`,
//! `select=`, `ops=` and `changed=`. Every event has an id (`event_id`). A browser that reconnects sends the id of
//! its last event as `Last-Event-ID`; the stream resumes right behind that event, also inside a transaction. A
//! browser cannot send other headers: it passes a resource token as `token=`. With a token for one partition key it
//! hears of that key alone, and the stream ends when the token expires or its permission is deleted.
//!
//! Each block of events is charged as a page of the feed (`charging`). Without request units left, a new stream is
//! refused with 429; a stream under way waits and then continues.

use super::changes::{AskedFilter, Unread, filter_of, read_page};
use super::event_id::EventId;
use super::permissions::check_again;
use super::{Outcome, backups, no_id, target_of};
use crate::answer::{Answer, Payload};
use crate::budget::{Exceeded, Held, Peer, Resource};
use crate::failure::Failure;
use crate::gateway::{Gateway, Target};
use crate::pace::counted;
use crate::request::{Call, Caller, Scope};
use bytes::Bytes;
use headwater_model::{
    Epk, FeedMode, FeedStart, PageLimit, PartitionId, PartitionKey, PartitionKeyPath, Timestamp,
};
use headwater_protocol::auth::Grant;
use headwater_protocol::charge::Charge;
use headwater_protocol::operation::{Extension, ItemOperation};
use headwater_protocol::route::Route;
use headwater_runtime::Runtime;
use headwater_store::{
    Change, Container, FeedFilter, FeedPage, FeedRequest, ItemReadError, RangeInfo,
};
use hyper::header::HeaderName;
use hyper::{StatusCode, Uri};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;

/// Without changes for this long, a comment shows that the stream is alive.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Pages that may wait for a slow client; then the feed waits for it.
const PAGES_AHEAD: usize = 2;
/// A page is one transaction, so that the position before each is known.
const PAGE_ITEMS: u32 = 1;
const PAGE_BYTES: u32 = 1 << 20;
/// Making the events of a larger page takes milliseconds, which the background threads have.
const SHARED_PAGE_BYTES: usize = 256 << 10;
/// Bytes of events that are sent at once, and at most a page more.
const SENT_BYTES: usize = 64 << 10;
/// Bytes of the ids of one transaction, about. Beyond that, not each of its events has one.
const ID_BYTES_MAX: usize = 8 << 20;
/// A stream is charged and counted as a reader that waits for changes.
const OPERATION: ItemOperation = ItemOperation::ReadFeed { waits: true };
/// The header in which a browser that reconnects sends the id of its last event.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The token in the address of an event stream, escaped as a header would have it.
pub(crate) fn token_of(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))
}

pub(super) async fn answer(gateway: &Arc<Gateway>, call: &Call, extension: Extension) -> Outcome {
    let container = || {
        let (db, coll) = call.route.container().ok_or_else(|| no_id(call))?;
        gateway.container(db, coll)
    };
    match extension {
        Extension::StreamChanges => stream(gateway, call, target_of(gateway, call)?),
        Extension::ListPartitions => {
            let container = container()?;
            Ok(show(&container, &container.ranges()))
        }
        Extension::SplitPartition => split(call, &container()?).await,
        Extension::MergePartitions => merge(call, &container()?).await,
        Extension::BeginBackup => backups::begin(gateway).await,
        Extension::ReadBackupPartition => backups::partition(gateway, call),
        Extension::ReadBackupFile => backups::file(gateway, call),
        Extension::EndBackup => backups::end(gateway, call),
    }
}

#[derive(Deserialize)]
struct SplitBody {
    range: String,
    at: Option<String>,
}

#[derive(Deserialize)]
struct MergeBody {
    ranges: (String, String),
}

async fn split(call: &Call, container: &Container) -> Outcome {
    let body: SplitBody = body_of(call, r#"{"range":"0"}"#)?;
    let at = body.at.as_deref().map(Epk::from_hex).transpose();
    let at = at.map_err(|error| Failure::bad_request(format!("`at`: {error}")))?;
    Ok(show(container, &container.split(range_id(&body.range)?, at).await?))
}

async fn merge(call: &Call, container: &Container) -> Outcome {
    let body: MergeBody = body_of(call, r#"{"ranges":["1","2"]}"#)?;
    let (one, two) = (range_id(&body.ranges.0)?, range_id(&body.ranges.1)?);
    Ok(show(container, &container.merge(one, two).await?))
}

fn body_of<T: for<'a> Deserialize<'a>>(call: &Call, example: &str) -> Result<T, Failure> {
    let parsed = serde_json::from_slice(&call.body);
    parsed.map_err(|error| Failure::bad_request(format!("{error}; send {example}")))
}

fn range_id(text: &str) -> Result<PartitionId, Failure> {
    text.parse().map_err(|_| Failure::bad_request(format!("{text:?} is not the id of a range")))
}

fn show(container: &Container, ranges: &[RangeInfo]) -> Answer {
    let ranges: Vec<_> = ranges
        .iter()
        .map(|range| {
            let parents: Vec<String> = range.ancestors.iter().map(ToString::to_string).collect();
            json!({
                "id": range.id.to_string(),
                "minInclusive": range.range.min().to_hex(),
                "maxExclusive": range.range.max().to_hex(),
                "parents": parents,
                "lsn": range.lsn.get(),
                // Null where it is not known: the range is quarantined, or was split meanwhile.
                "liveBytes": container.live_bytes_in(range.id),
            })
        })
        .collect();
    Answer::json(StatusCode::OK, json!({ "ranges": ranges }).to_string())
}

/// What a listener asks for.
struct Listening {
    target: Arc<Target>,
    route: Route,
    mode: FeedMode,
    start: FeedStart,
    /// What was sent before; `None` for a stream that begins.
    sent: Option<EventId>,
    /// The partition key that was named or granted, or the whole container. It is also what pays.
    scope: Scope,
    /// What the listener's token permits, for as long as it does.
    grant: Option<Grant>,
    filter: FeedFilter,
    /// The memory of the filter.
    filter_memory: Option<Held>,
}

/// Which items are heard of: those of the key that was named, and of none beside the one that was granted.
fn key_of(
    named: Option<&str>,
    grant: Option<&Grant>,
    container: &Container,
) -> Result<Option<PartitionKey>, Failure> {
    let granted = grant.and_then(|grant| grant.partition_key.clone());
    let Some(named) = named.map(PartitionKey::parse).transpose()? else { return Ok(granted) };
    container.definition().partition_key().prefix_range(&named).map_err(ItemReadError::from)?;
    match granted {
        Some(granted) if granted != named => Err(super::permit::other_key()),
        _ => Ok(Some(named)),
    }
}

fn listening(call: &Call, target: Arc<Target>) -> Result<Listening, Failure> {
    let query = call.query.as_deref().unwrap_or_default();
    let raw = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let decode = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
    let value = |name: &str| raw(name).and_then(decode);
    // Forms write a space as a plus.
    let words = |name: &str| raw(name).and_then(|text| decode(&text.replace('+', " ")));
    let mode = match value("mode").as_deref() {
        None | Some("latest") => FeedMode::LatestVersion,
        Some("all") => FeedMode::AllVersionsAndDeletes,
        Some(_) => return Err(Failure::bad_request("mode is neither `latest` nor `all`")),
    };
    let last_id = call.header_utf8(&LAST_EVENT_ID)?.map(str::to_owned);
    let last_id = last_id.or_else(|| value("position")).filter(|text| !text.is_empty());
    let sent =
        last_id.map(|text| EventId::parse(&text).map_err(Failure::bad_request)).transpose()?;
    if sent.as_ref().is_some_and(|sent| sent.is_ahead_of(&target.container.ranges())) {
        return Err(Failure::bad_request(
            "the event id is ahead of the container; leave it out to start again",
        ));
    }
    let start = match (&sent, value("from").as_deref()) {
        (Some(sent), _) => FeedStart::After(sent.position().clone()),
        (None, None | Some("now")) => FeedStart::Now,
        (None, Some("beginning")) => FeedStart::Beginning,
        // As `toUTCString()` of a browser writes it.
        (None, Some(_)) => {
            let time = words("from").unwrap_or_default();
            FeedStart::Time(Timestamp::from_rfc1123(&time).map_err(|_| {
                let message = "from is neither `now`, `beginning` nor a time such as \
                               `Tue, 14 Nov 2023 22:13:20 GMT`";
                Failure::bad_request(message)
            })?)
        }
    };
    let texts = ["where", "select", "ops", "changed"].map(words);
    let [condition, columns, kinds, paths] = texts.each_ref().map(Option::as_deref);
    let asked = AskedFilter { condition, columns, kinds, paths };
    let (filter, filter_memory) = filter_of(&asked, &call.peer)?;
    filter.check(mode).map_err(Failure::from)?;
    let grant = match &call.caller {
        Caller::Guest(grant) => Some(grant),
        Caller::Owner | Caller::Reader => None,
    };
    let key = key_of(words("key").as_deref(), grant, &target.container)?;
    let scope = Scope { key, ..Scope::default() };
    let (route, grant) = (call.route.clone(), grant.cloned());
    Ok(Listening { target, route, mode, start, sent, scope, grant, filter, filter_memory })
}

fn stream(gateway: &Arc<Gateway>, call: &Call, target: Arc<Target>) -> Outcome {
    let listening = listening(call, target)?;
    listening.target.admit(gateway, &listening.scope)?;
    let (sender, receiver) = mpsc::channel(PAGES_AHEAD);
    let (listener, peer) = (gateway.clone(), call.peer.clone());
    let out = sender.clone();
    let events = async move { send_events(&listener, &peer, listening, &out).await };
    feed(&gateway.runtime, sender, events);
    let mut answer = Answer::text(StatusCode::OK, "text/event-stream", Bytes::new());
    answer.payload = Payload::Stream(receiver);
    Ok(answer)
}

/// Starts what sends the events of a stream. If it panics, the stream says so before it ends.
fn feed(
    runtime: &Runtime,
    out: mpsc::Sender<Bytes>,
    events: impl Future<Output = ()> + Send + 'static,
) {
    runtime.spawn_watched("event stream", events, move |ended| {
        if ended.is_err() {
            // Where the client does not read, it only ends.
            let _ = out.try_send(error_event("the event stream failed; please report this defect"));
        }
    });
}

/// Sends pages as events. A page for which there is no memory is dropped and read again when there is:
/// nothing is held for a client that does not read.
async fn send_events(
    gateway: &Arc<Gateway>,
    peer: &Arc<Peer>,
    listening: Listening,
    out: &mpsc::Sender<Bytes>,
) {
    let Listening { target, route, mode, mut start, mut sent, scope, grant, .. } = listening;
    let (filter, _held) = (listening.filter, listening.filter_memory);
    let container = &target.container;
    let is_filtered = !filter.is_empty();
    let limit = PageLimit::new(PAGE_ITEMS, PAGE_BYTES).unwrap_or_default();
    let is_over = || grant.as_ref().is_some_and(|grant| check_again(gateway, grant).is_err());
    let request = |start: FeedStart, wait: Duration| {
        let request = FeedRequest::new(start).mode(mode).limit(limit).wait(wait);
        let request = request.filter(filter.clone()).refuse_above(SHARED_PAGE_BYTES);
        match &scope.key {
            Some(key) => request.of_key(key.clone()),
            None => request,
        }
    };
    // "Now" must not move while a page is read a second time.
    if start == FeedStart::Now
        && let Ok(now) = container.start_position(&request(FeedStart::Now, Duration::ZERO))
    {
        start = FeedStart::After(now.clone());
        sent = Some(EventId::from(now));
    }
    let mut memory = None;
    while !gateway.is_stopping.load(Ordering::Acquire) && !is_over() {
        let free = target.admit_when_free(gateway, &scope, HEARTBEAT);
        let free = tokio::select! {
            free = gateway.unless_stopping(free) => free,
            () = out.closed() => return,
        };
        match free {
            Some(true) => {}
            Some(false) => {
                let comment = Bytes::from_static(b": waiting for request units\n\n");
                if out.send(comment).await.is_err() {
                    return;
                }
                continue;
            }
            None => return,
        }
        let asked = request(start.clone(), HEARTBEAT);
        let mut id = match sent
            .clone()
            .map_or_else(|| container.start_position(&asked).map(EventId::from), Ok)
        {
            Ok(id) => id,
            Err(error) => return end(out, &Failure::from(error).message).await,
        };
        let read = async {
            // Given back also when the client leaves and this is dropped.
            match peer.take(Resource::WaitingReaders, 1) {
                Ok(_waiting) => read_page(gateway, container, &asked, HEARTBEAT).await,
                Err(error) => Err(Unread::Failed(error.into())),
            }
        };
        let read = tokio::select! {
            read = read => read,
            () = out.closed() => return,
        };
        // The page may have been waited for, and the token have ended meanwhile.
        if is_over() {
            return;
        }
        let mut text = match read {
            Ok(page) => events_of(container, page, &mut id, mode, is_filtered),
            Err(Unread::Large) => {
                let container = container.clone();
                let whole = request(start.clone(), Duration::ZERO).refuse_above(usize::MAX);
                let mut its_id = id.clone();
                let events = async move {
                    let page = container.read_feed(&whole).await?;
                    let text = events_of(&container, page, &mut its_id, mode, is_filtered);
                    Ok((text, its_id))
                };
                match gateway.in_background("large event", events).await {
                    Ok((text, its_id)) => {
                        id = its_id;
                        text
                    }
                    Err(failure) => return end(out, &failure.message).await,
                }
            }
            Err(Unread::Ahead) => return end(out, "the position is ahead of everything").await,
            Err(Unread::Failed(failure)) => return end(out, &failure.message).await,
        };
        // What else there is now is sent along. An error comes again with the next read.
        while text.len() < SENT_BYTES {
            let next = request(FeedStart::After(id.position().clone()), Duration::ZERO);
            let read = container.read_feed(&next).await;
            let Some(page) = read.ok().filter(|page| !page.changes.is_empty()) else {
                break;
            };
            text.extend(events_of(container, page, &mut id, mode, is_filtered));
        }
        let charge = Charge::page(text.len());
        target.spend(gateway, OPERATION, &route, charge, &scope);
        let held = match memory.take() {
            Some(held) => resized(held, text.len()),
            None => peer.take(Resource::Sending, text.len()),
        };
        let Ok(held) = held else {
            let (bytes, patience) = (text.len(), gateway.config.limits.send_time);
            drop(text);
            let room = peer.take_when_free(Resource::Sending, bytes, &gateway.runtime, patience);
            let room = tokio::select! {
                room = room => room,
                () = out.closed() => return,
            };
            match room {
                Ok(held) => memory = Some(held),
                Err(exceeded) => return end(out, &exceeded.to_string()).await,
            }
            continue;
        };
        start = FeedStart::After(id.position().clone());
        sent = Some(id);
        if out.send(counted(text.into(), held)).await.is_err() {
            return;
        }
    }
}

fn resized(mut held: Held, bytes: usize) -> Result<Held, Exceeded> {
    held.resize(bytes)?;
    Ok(held)
}

/// Says why a stream ends.
async fn end(out: &mpsc::Sender<Bytes>, what: &str) {
    let _ = out.send(error_event(what)).await;
}

fn error_event(what: &str) -> Bytes {
    Bytes::from(format!("event: error\ndata: {}\n\n", json!({ "message": what })))
}

/// Writes the changes of a page that were not sent yet as events, and moves the id behind the page.
fn events_of(
    container: &Container,
    page: FeedPage,
    id: &mut EventId,
    mode: FeedMode,
    is_filtered: bool,
) -> Vec<u8> {
    let unsent: Vec<&Change> = page.changes.iter().filter(|change| !id.has_sent(change)).collect();
    if unsent.is_empty() {
        id.move_to(page.continuation);
        if page.changes.is_empty() && !is_filtered {
            return b": nothing new\n\n".to_vec();
        }
        // No event, but the browser keeps the id: it need not look at all of that again.
        return format!(": nothing new\nid: {id}\n\n").into_bytes();
    }
    let definition = container.definition();
    let paths = &definition.partition_key().paths;
    let mut text = Vec::new();
    let mut continuation = Some(page.continuation);
    // A position in hundreds of ranges is long, and a transaction can have thousands of changes.
    let interval = 1 + unsent.len() * id.to_string().len() / ID_BYTES_MAX;
    for (index, change) in unsent.iter().enumerate() {
        let is_last = index + 1 == unsent.len();
        match continuation.take_if(|_| is_last) {
            Some(continuation) => id.move_to(continuation),
            None => id.move_behind(change),
        }
        text.extend_from_slice(b"event: ");
        text.extend_from_slice(change.kind().as_str().as_bytes());
        if is_last || index % interval == 0 {
            text.extend_from_slice(format!("\nid: {id}").as_bytes());
        }
        text.extend_from_slice(b"\ndata: ");
        text.extend_from_slice(&data_of(change, mode, paths));
        text.extend_from_slice(b"\n\n");
    }
    text
}

/// One line: a line break inside of an item would end the event.
fn data_of(change: &Change, mode: FeedMode, paths: &[PartitionKeyPath]) -> Vec<u8> {
    let one_line = |bytes: &[u8]| -> Vec<u8> {
        // Between tokens a line break is white space; inside of a string it is escaped already.
        bytes.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
    };
    match mode {
        FeedMode::LatestVersion => one_line(change.body_slice()),
        FeedMode::AllVersionsAndDeletes => {
            let mut out = Vec::new();
            super::changes::write_envelope(change, paths, true, &mut out);
            one_line(&out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_event_stream_that_panics_ends_with_an_error_event() {
        let (sender, mut receiver) = mpsc::channel(PAGES_AHEAD);
        feed(&Runtime::system(), sender, async { panic!("in the middle") });
        let last = receiver.recv().await.unwrap();
        assert!(last.starts_with(b"event: error\ndata: {"), "{last:?}");
        assert_eq!(receiver.recv().await, None);
    }
}
