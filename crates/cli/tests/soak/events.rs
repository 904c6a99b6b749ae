//! A listener like a browser: server-sent events, resumed by the id of the last event.
//!
//! Every event has an id, so a connection that breaks inside a transaction repeats none of its events.

use crate::readers::Log;
use crate::world::{DATABASE, ITEMS, PARTITION_KEYS, World};
use crate::writers::key_name;
use bytes::Bytes;
use headwater_model::FeedMode;
use headwater_protocol::route::Route;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Read timeout, longer than the server's interval of keep-alives.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The events that a listener has received over all its connections.
#[derive(Default)]
struct Heard {
    last_id: Option<String>,
    /// Events of incomplete transactions.
    page: Vec<Value>,
}

/// Listens from the beginning of the feed to its end.
pub(crate) async fn listen(world: Arc<World>, mode: FeedMode) -> Log {
    let keys: Vec<String> = (0..PARTITION_KEYS).map(key_name).collect();
    let mut log = Log::new(mode, &keys);
    let mut heard = Heard::default();
    while !log.is_done() {
        if let Some(body) = connect(&world, mode, heard.last_id.as_deref()).await {
            hear(&world, body, &mut log, &mut heard).await;
        }
        world.pause(20).await;
    }
    log
}

async fn connect(world: &World, mode: FeedMode, position: Option<&str>) -> Option<Incoming> {
    let route = Route::Container { db: DATABASE.to_owned(), coll: ITEMS.to_owned() };
    let (token, date) = world.sign("GET", &route);
    let mode = if mode == FeedMode::LatestVersion { "latest" } else { "all" };
    let address = world.address();
    let uri = format!("http://{address}/_headwater/changes/{DATABASE}/{ITEMS}");
    let mut request = hyper::Request::get(format!("{uri}?from=beginning&mode={mode}"))
        .header("authorization", token)
        .header("x-ms-date", date);
    if let Some(position) = position {
        request = request.header("last-event-id", position);
    }
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.request(request.body(Empty::new()).unwrap()).await.ok()?;
    let status = answer.status().as_u16();
    if status != 200 {
        world.complain(format!("an event stream from {position:?} was answered {status}"));
        return None;
    }
    Some(answer.into_body())
}

async fn hear(world: &World, mut body: Incoming, log: &mut Log, heard: &mut Heard) {
    let mut pending: Vec<u8> = Vec::new();
    while !log.is_done() {
        let frame = world.runtime.timeout(SILENCE_MAX, body.frame()).await;
        let Some(Some(Ok(frame))) = frame else { return };
        let Ok(data) = frame.into_data() else { continue };
        pending.extend_from_slice(&data);
        while let Some(end) = pending.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = pending.drain(..end + 2).collect();
            let event = String::from_utf8(event).unwrap();
            let field = |name: &str| {
                event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
            };
            let Some(data) = field("data: ") else { continue };
            if field("event: ").as_deref() == Some("error") {
                world.complain(format!("an event stream said: {data}"));
                return;
            }
            heard.page.push(serde_json::from_str(&data).unwrap());
            let Some(id) = field("id: ") else {
                world.complain(format!("an event has no id: {event}"));
                return;
            };
            // An id with this character is inside a transaction.
            if !id.contains('~') {
                world.note_page();
                log.add(heard.page.drain(..));
            }
            heard.last_id = Some(id);
        }
    }
}
