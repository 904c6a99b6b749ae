//! Receives the body of a request, within the memory budget of its sender.
//!
//! Memory is counted once a body outgrows what is not counted: first a step, then, when the sender has shown
//! that it sends, the whole body. A body of unknown length counts as the largest there may be until it ends.
//! Where there is no memory left, the sender waits: over HTTP/1.1 its bytes stay in the socket. Over HTTP/2
//! they would be stored on arrival, so it is refused at once. What has arrived stays counted meanwhile.
//!
//! A body in binary JSON is counted with the text it usually becomes before more of it is received, so that a
//! body that has arrived does not wait for memory.

use crate::budget::{Held, Resource, UNCOUNTED_BYTES};
use crate::config::Limits;
use crate::connection::Connection;
use crate::failure::Failure;
use bytes::{Bytes, BytesMut};
use headwater_protocol::binary::{self, BinaryError};
use headwater_protocol::error::Code;
use headwater_runtime::Runtime;
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::{Body, Incoming};
use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

/// The amount counted for a body before its sender has sent as much.
const STEP_BYTES: usize = 64 << 10;
/// The largest text of a binary body that is decoded on the connection's thread.
const SMALL_TEXT_BYTES: usize = 32 << 10;
/// Bytes of text that a byte of binary JSON becomes at most, unless the body repeats itself by references.
const TEXT_PER_BINARY_BYTE: usize = 4;
/// The shortest text a binary body is expected to become: names can take a byte each.
const TEXT_BYTES_MIN: usize = 4 << 10;
/// The memory of a request over HTTP/2 besides its head and body.
const STREAM_BYTES: usize = 2 << 10;
/// The number of header fields whose map entries are included in [`STREAM_BYTES`].
const USUAL_FIELDS: usize = 32;
/// The memory per entry of the header map, which grows by doubling: 75 to 165 bytes were measured.
const FIELD_BYTES: usize = 160;

/// Counts the memory of a request over HTTP/2, of which a connection has many at a time, and of the head of its
/// answer, which takes its place.
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
    let mut collected = pin!(collect(connection, is_http2, body));
    // Most bodies are there at once.
    let mut waits = None;
    let collected = poll_fn(|context| {
        let polled = collected.as_mut().poll(context);
        if polled.is_pending() {
            waits.get_or_insert_with(|| connection.body_waits());
        }
        polled
    });
    let collected = connection.runtime.timeout(limits.body_time, collected).await;
    drop(waits);
    let Some(collected) = collected else {
        let message = "the body did not arrive in time; send it faster or in smaller requests";
        return Err(Failure::new(Code::RequestTimeout, message));
    };
    let (bytes, mut held) = collected?;
    if binary::is_binary(&bytes) {
        return decode(connection, bytes, held, background).await;
    }
    if let Some(held) = &mut held {
        held.resize(bytes.len())?;
    }
    Ok((bytes, held))
}

/// What the text of a binary body usually has at most.
fn usual_text_bytes(binary: usize, limits: &Limits) -> usize {
    let usual = binary.saturating_mul(TEXT_PER_BINARY_BYTE).max(TEXT_BYTES_MIN);
    usual.min(limits.body_bytes)
}

/// Decodes binary JSON: within the memory that was counted for its text, or, if the text is longer than usual,
/// within that of the longest one.
async fn decode(
    connection: &Connection,
    bytes: Bytes,
    held: Option<Held>,
    background: &Runtime,
) -> Result<Received, Failure> {
    let limits = connection.limits();
    let usual = usual_text_bytes(bytes.len(), limits);
    let counted = |text: Vec<u8>, held: Option<Held>| match held {
        Some(mut held) => held.resize(text.len()).map(|()| (Bytes::from(text), Some(held))),
        None => Ok((Bytes::from(text), None)),
    };
    match decode_within(&bytes, usual, background).await? {
        Ok(text) => return Ok(counted(text, held)?),
        Err(error) if usual == limits.body_bytes => return Err(bad_binary(&error)),
        Err(_) => {}
    }
    let room = bytes.len() + limits.body_bytes;
    let held = match held {
        // It does not wait: senders that each hold some and wait for more would wait for each other.
        Some(mut held) => held.resize(room).map(|()| held)?,
        None => {
            let (peer, runtime) = (&connection.peer, &connection.runtime);
            let room = peer.take_when_free(Resource::Receiving, room, runtime, limits.memory_time);
            room.await?
        }
    };
    let text = decode_within(&bytes, limits.body_bytes, background).await?;
    Ok(counted(text.map_err(|error| bad_binary(&error))?, Some(held))?)
}

/// Decodes at most `text_bytes` of text: a short text on this thread, a longer one on the background threads.
async fn decode_within(
    bytes: &Bytes,
    text_bytes: usize,
    background: &Runtime,
) -> Result<Result<Vec<u8>, BinaryError>, Failure> {
    let limits = binary::Limits::of_text_bytes(text_bytes);
    if text_bytes <= SMALL_TEXT_BYTES {
        return Ok(binary::decode(bytes, limits));
    }
    let bytes = bytes.clone();
    let decoded = background.run("decode", async move { binary::decode(&bytes, limits) }).await;
    decoded.map_err(|failure| Failure::new(Code::InternalServerError, failure.to_string()))
}

fn bad_binary(error: &BinaryError) -> Failure {
    Failure::bad_request(format!("the binary body: {error}"))
}

/// Receives the bytes of a body. What is returned as memory covers them, and the text of a binary body.
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
    let (mut held, mut room): (Option<Held>, _) = (None, uncounted);
    let mut is_binary = false;
    while let Some(frame) = body.frame().await {
        let broken = |_| Failure::bad_request("the body ended before it was complete");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        if length == 0 {
            is_binary = binary::is_binary(&data);
        }
        length += data.len();
        if length > limits.body_bytes {
            return Err(too_large(limits.body_bytes));
        }
        if length > room {
            room = if length > STEP_BYTES || is_binary { whole } else { STEP_BYTES.min(whole) };
            let text = if is_binary { usual_text_bytes(room, limits) } else { 0 };
            let (peer, runtime) = (&connection.peer, &connection.runtime);
            match &mut held {
                Some(held) => held.grow_when_free(room + text, runtime, patience).await?,
                None => {
                    let (receiving, bytes) = (Resource::Receiving, room + text);
                    let taken = peer.take_when_free(receiving, bytes, runtime, patience);
                    held = Some(taken.await?);
                }
            }
        }
        // A body that arrives as one piece is not copied.
        if first.is_empty() && joined.is_empty() {
            first = data;
            continue;
        }
        joined.reserve(room.max(length) - joined.len());
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    Ok((if joined.is_empty() { first } else { joined.freeze() }, held))
}

fn too_large(limit: usize) -> Failure {
    Failure::too_large(&format!("send at most {limit} bytes"))
}
