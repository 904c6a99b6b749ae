//! Receives the body of a request, within the memory budget of its sender.
//!
//! Small bodies are not counted. A larger one is counted in two steps: first a fixed amount, then the whole
//! body once the sender has sent that much. A body of unknown length counts as the largest allowed until it
//! ends. Over HTTP/1.1 a sender waits for memory while its bytes stay in the socket. Over HTTP/2 the bytes
//! would be buffered on arrival, so the request is refused at once.

use crate::budget::{Held, Resource, UNCOUNTED_BYTES};
use crate::connection::Connection;
use crate::failure::Failure;
use bytes::{Bytes, BytesMut};
use headwater_protocol::binary;
use headwater_protocol::error::Code;
use headwater_runtime::Runtime;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use std::time::Duration;

/// The amount counted for a body before its sender has sent as much.
const STEP_BYTES: usize = 64 << 10;
/// The largest text of a binary body that is decoded on the connection's thread.
const SMALL_TEXT_BYTES: usize = 32 << 10;
/// The memory of a request over HTTP/2 in addition to its head and body.
const STREAM_BYTES: usize = 2 << 10;
/// The number of header fields whose map entries are included in [`STREAM_BYTES`].
const USUAL_FIELDS: usize = 32;
/// The memory per entry of the header map, which grows by doubling: 75 to 165 bytes were measured.
const FIELD_BYTES: usize = 160;

/// Reserves memory for a request over HTTP/2, of which a connection has many at a time.
pub(crate) fn hold_stream(connection: &Connection, head: &HeaderMap) -> Result<Held, Failure> {
    let lengths = head.iter().map(|(name, value)| name.as_str().len() + value.len());
    let places = head.len().saturating_sub(USUAL_FIELDS) * FIELD_BYTES;
    let bytes = lengths.sum::<usize>() + places + STREAM_BYTES;
    Ok(connection.peer.take(Resource::Receiving, bytes)?)
}

/// A complete body and its memory reservation.
pub(crate) type Received = (Bytes, Option<Held>);

/// Receives a body. Binary JSON that decodes to a large text is decoded on the background threads.
pub(crate) async fn receive(
    connection: &Connection,
    is_http2: bool,
    body: Incoming,
    background: &Runtime,
) -> Result<Received, Failure> {
    if body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    let limits = connection.limits();
    if body.size_hint().lower() > limits.body_bytes as u64 {
        return Err(too_large(limits.body_bytes));
    }
    let collected = collect(connection, is_http2, body);
    let Some(collected) = connection.runtime.timeout(limits.body_time, collected).await else {
        let message = "the body did not arrive in time; send it faster or in smaller requests";
        return Err(Failure::new(Code::RequestTimeout, message));
    };
    let (bytes, held) = collected?;
    if binary::is_binary(&bytes) {
        return decode(connection, bytes, held, background).await;
    }
    Ok((bytes, held))
}

/// Decodes binary JSON. A few KB can become megabytes of text, so unless the text is small, memory is
/// reserved before it is decoded.
async fn decode(
    connection: &Connection,
    bytes: Bytes,
    held: Option<Held>,
    background: &Runtime,
) -> Result<Received, Failure> {
    let of_text = binary::Limits::of_text_bytes;
    if bytes.len() <= SMALL_TEXT_BYTES
        && let Ok(text) = binary::decode(&bytes, of_text(SMALL_TEXT_BYTES))
    {
        return Ok((Bytes::from(text), held));
    }
    let limits = *connection.limits();
    let (peer, runtime) = (&connection.peer, &connection.runtime);
    // Release first: requests that hold memory while they wait for more would deadlock.
    drop(held);
    let receiving = Resource::Receiving;
    let room = bytes.len() + limits.body_bytes;
    let mut held = peer.take_when_free(receiving, room, runtime, limits.memory_time).await?;
    let decoded = background
        .run("decode", async move { binary::decode(&bytes, of_text(limits.body_bytes)) })
        .await;
    let text = decoded
        .map_err(|failure| Failure::new(Code::InternalServerError, failure.to_string()))?
        .map_err(|error| Failure::bad_request(format!("the binary body: {error}")))?;
    held.resize(text.len())?;
    Ok((Bytes::from(text), Some(held)))
}

async fn collect(
    connection: &Connection,
    is_http2: bool,
    mut body: Incoming,
) -> Result<Received, Failure> {
    let limits = connection.limits();
    let uncounted = if is_http2 { 0 } else { UNCOUNTED_BYTES };
    let patience = if is_http2 { Duration::ZERO } else { limits.memory_time };
    let whole = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let whole = whole.unwrap_or(limits.body_bytes);
    let (mut first, mut joined, mut length) = (Bytes::new(), BytesMut::new(), 0);
    let (mut held, mut counted) = (None, uncounted);
    while let Some(frame) = body.frame().await {
        let broken = |_| Failure::bad_request("the body ended before it was complete");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        length += data.len();
        if length > limits.body_bytes {
            return Err(too_large(limits.body_bytes));
        }
        if length > counted {
            let wanted = if length <= STEP_BYTES { STEP_BYTES.min(whole) } else { whole };
            let (peer, runtime) = (&connection.peer, &connection.runtime);
            // Release the first step first: senders that hold memory while they wait for more would deadlock.
            drop(held.take());
            let receiving = Resource::Receiving;
            held = Some(peer.take_when_free(receiving, wanted, runtime, patience).await?);
            counted = wanted;
        }
        // A body that arrives as one piece is not copied.
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        joined.reserve(counted.max(length) - joined.len());
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    let bytes = if joined.is_empty() { first } else { joined.freeze() };
    if let Some(held) = &mut held {
        held.resize(bytes.len())?;
    }
    Ok((bytes, held))
}

fn too_large(limit: usize) -> Failure {
    Failure::too_large(&format!("send at most {limit} bytes"))
}
