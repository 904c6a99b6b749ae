//! Watches the HTTP/2 frames of a client, and limits those that no request accounts for.
//!
//! ```text
//! socket ──► TLS ──► frames ──► hyper
//!                       ├ no HTTP/2 preface: HTTP/1, passed on unread
//!                       ├ a head that has begun but not ended: reported to `Connection`
//!                       └ more frames than the connection may send: the connection fails
//! ```
//!
//! Every frame takes one unit of an allowance, which time, requests and payload refill. A client with requests
//! never exhausts it; one that sends only PING, SETTINGS, RST_STREAM or empty frames does. hyper limits some of
//! these kinds (streams reset before they are accepted, refused streams), but not most.
//!
//! Parses only the nine bytes of each frame's head. It stores no bytes and decodes no headers.

use crate::connection::Connection;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The bytes of a frame's head: length, kind, flags and stream.
const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// The memory of a head in several frames, whose fields are decoded as they arrive: a list of 32 KiB in small
/// fields, plus an undecoded field that spans frames.
const SPLIT_HEAD_BYTES: usize = 256 << 10;

/// Allowance of a new connection: several times its settings, windows and priorities.
const FRAMES_AT_FIRST: u64 = 256;
/// The maximum allowance: h2 processes this many frames in about a millisecond.
const FRAMES_SAVED_MAX: u64 = 2_048;
/// Refill for PINGs that measure the round trip, and for windows of event streams with small events.
const FRAMES_PER_SECOND: u64 = 100;
/// Refill for the head, body, priority, windows and cancellation of a request.
const FRAMES_PER_REQUEST: u64 = 16;
/// Refill for clients that open windows after each KiB they read; most do so after 32 KiB or more.
const BYTES_PER_FRAME: u64 = 1 << 10;

/// A byte stream that counts the frames of its client.
pub(crate) struct FrameWatch<S> {
    stream: S,
    connection: Arc<Connection>,
    reader: FrameReader,
    allowance: Allowance,
    /// The head whose memory or time is counted, by the number of its first frame.
    counted: Option<u64>,
    /// Whether the time of that head is counted.
    is_timed: bool,
    /// Bytes written so far.
    sent: u64,
}

impl<S> FrameWatch<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> FrameWatch<S> {
        let allowance = Allowance::new(connection.runtime.elapsed());
        let reader = FrameReader::default();
        FrameWatch {
            stream,
            connection,
            reader,
            allowance,
            counted: None,
            is_timed: false,
            sent: 0,
        }
    }

    /// Processes bytes that were read.
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (was_preface, before) = (self.reader.is_in_preface(), self.reader.frames);
        self.reader.read(bytes);
        if self.reader.place == Place::Http1 {
            return Ok(());
        }
        if was_preface && !self.reader.is_in_preface() {
            self.connection.speaks_http2();
        }
        let open = self.reader.open_head();
        if self.counted.is_some() && self.counted != open {
            (self.counted, self.is_timed) = (None, false);
            self.connection.head_ended();
        }
        if self.reader.head.is_some_and(|head| head.is_split) {
            self.counted = open;
            self.connection.hold_head(SPLIT_HEAD_BYTES).map_err(io::Error::other)?;
        }
        let frames = self.reader.frames - before;
        if self.allowance.left < frames {
            let now = self.connection.runtime.elapsed();
            let bytes = self.sent + self.reader.payload;
            self.allowance.refill(now, self.connection.request_count(), bytes);
        }
        let left = self.allowance.left.checked_sub(frames);
        let too_many = || io::Error::other("a client sends too many frames without requests");
        self.allowance.left = left.ok_or_else(too_many)?;
        Ok(())
    }

    /// Records that the stream has nothing to read.
    fn paused(&mut self) {
        let open = self.reader.open_head();
        if open.is_some() && !self.is_timed {
            (self.counted, self.is_timed) = (open, true);
            self.connection.head_waits();
        }
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent += *bytes as u64;
        }
    }
}

impl<S> fmt::Debug for FrameWatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameWatch").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FrameWatch<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.reader.place == Place::Http1 {
            return read;
        }
        match &read {
            Poll::Ready(Ok(())) => self.read(&buffer.filled()[before..])?,
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.paused(),
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FrameWatch<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A token bucket of frames. It is refilled only when exhausted, from the totals since the last refill.
#[derive(Debug)]
struct Allowance {
    left: u64,
    refilled_at: Duration,
    requests: u64,
    bytes: u64,
}

impl Allowance {
    fn new(now: Duration) -> Allowance {
        Allowance { left: FRAMES_AT_FIRST, refilled_at: now, requests: 0, bytes: 0 }
    }

    /// Adds the allowance earned by time, requests and bytes of payload. All three are totals.
    fn refill(&mut self, now: Duration, requests: u64, bytes: u64) {
        let millis = u64::try_from(now.saturating_sub(self.refilled_at).as_millis());
        let by_time = millis.unwrap_or(u64::MAX).saturating_mul(FRAMES_PER_SECOND) / 1000;
        let by_requests = (requests - self.requests).saturating_mul(FRAMES_PER_REQUEST);
        let by_bytes = (bytes - self.bytes) / BYTES_PER_FRAME;
        let earned = by_time.saturating_add(by_requests).saturating_add(by_bytes);
        self.left = self.left.saturating_add(earned).min(FRAMES_SAVED_MAX);
        (self.refilled_at, self.requests, self.bytes) = (now, requests, bytes);
    }
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the preface, after this many bytes.
    Preface(usize),
    Http1,
    /// In the head of a frame, after this many bytes.
    FrameHead(usize),
    /// In a payload, before this many remaining bytes.
    Payload(usize),
}

/// A header block that has begun but not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    /// The number of its first frame on the connection.
    began_at: u64,
    /// Whether it continues after its first frame.
    is_split: bool,
}

/// Parses the frames of a connection from bytes in arbitrary pieces. Invalid frames are left to h2.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FrameReader {
    place: Place,
    /// Length of the current frame, as far as it was read.
    length: usize,
    kind: u8,
    flags: u8,
    /// Frames started so far.
    frames: u64,
    /// Bytes of DATA frames started so far.
    payload: u64,
    head: Option<Head>,
}

impl Default for FrameReader {
    fn default() -> FrameReader {
        let (place, head) = (Place::Preface(0), None);
        FrameReader { place, length: 0, kind: 0, flags: 0, frames: 0, payload: 0, head }
    }
}

impl FrameReader {
    fn is_in_preface(&self) -> bool {
        matches!(self.place, Place::Preface(_))
    }

    fn open_head(&self) -> Option<u64> {
        self.head.map(|head| head.began_at)
    }

    fn read(&mut self, mut bytes: &[u8]) {
        while let [first, rest @ ..] = bytes {
            match self.place {
                Place::Http1 => return,
                Place::Payload(missing) => {
                    let (_, after) = bytes.split_at(missing.min(bytes.len()));
                    self.skip(missing, bytes.len() - after.len());
                    bytes = after;
                    continue;
                }
                Place::Preface(at) => {
                    self.place = match PREFACE.get(at + 1) {
                        _ if PREFACE[at] != *first => Place::Http1,
                        Some(_) => Place::Preface(at + 1),
                        None => Place::FrameHead(0),
                    };
                }
                Place::FrameHead(at) => self.read_head(at, *first),
            }
            bytes = rest;
        }
    }

    /// Processes a byte of a frame's head.
    fn read_head(&mut self, at: usize, byte: u8) {
        match at {
            0 => self.length = usize::from(byte),
            1 | 2 => self.length = self.length << 8 | usize::from(byte),
            3 => {
                self.kind = byte;
                self.frames += 1;
                if self.is_of_head() && self.head.is_none() {
                    self.head = Some(Head { began_at: self.frames, is_split: false });
                }
                if byte == DATA {
                    self.payload += self.length as u64;
                }
            }
            4 => self.flags = byte,
            _ => {}
        }
        self.place = Place::FrameHead(at + 1);
        if at + 1 == FRAME_HEAD_BYTES {
            self.skip(self.length, 0);
        }
    }

    /// Skips bytes of a payload. After the last one the frame ends.
    fn skip(&mut self, missing: usize, passed: usize) {
        if missing > passed {
            self.place = Place::Payload(missing - passed);
            return;
        }
        self.place = Place::FrameHead(0);
        if self.is_of_head() {
            let is_ended = self.flags & END_HEADERS != 0;
            self.head = self.head.filter(|_| !is_ended);
            self.head.iter_mut().for_each(|head| head.is_split = true);
        }
    }

    fn is_of_head(&self) -> bool {
        matches!(self.kind, HEADERS | PUSH_PROMISE | CONTINUATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_runtime::Simulation;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn read(pieces: &[&[u8]]) -> FrameReader {
        let mut reader = FrameReader::default();
        pieces.iter().for_each(|piece| reader.read(piece));
        reader
    }

    #[test]
    fn a_head_is_open_from_its_first_frame_to_the_one_that_ends_it() {
        let (begin, more) = (frame(HEADERS, 0, b"abc"), frame(CONTINUATION, 0, b""));
        let end = frame(CONTINUATION, END_HEADERS, b"d");
        let whole = frame(HEADERS, END_HEADERS, b"abcd");
        let open = |pieces: &[&[u8]]| {
            let reader = read(&[&[PREFACE.as_slice()], pieces].concat());
            reader.head.map(|head| (head.began_at, head.is_split))
        };
        assert_eq!(open(&[]), None);
        assert_eq!(open(&[&whole]), None);
        assert_eq!(open(&[&whole[..3]]), None);
        assert_eq!(open(&[&whole[..4]]), Some((1, false)));
        assert_eq!(open(&[&whole[..12]]), Some((1, false)));
        assert_eq!(open(&[&whole, &begin[..11]]), Some((2, false)));
        assert_eq!(open(&[&begin]), Some((1, true)));
        assert_eq!(open(&[&begin, &more, &end[..9]]), Some((1, true)));
        assert_eq!(open(&[&begin, &more, &end]), None);
        assert_eq!(open(&[&begin, &more, &end, &begin]), Some((4, true)));
        assert_eq!(open(&[&frame(PUSH_PROMISE, 0, b"abcd")]), Some((1, true)));
        assert_eq!(open(&[&frame(DATA, END_HEADERS, b"abcd")]), None);
    }

    #[test]
    fn frames_and_payload_are_counted_and_http1_is_not_looked_at() {
        let mut bytes = PREFACE.to_vec();
        bytes.extend(frame(4, 0, b""));
        bytes.extend(frame(HEADERS, END_HEADERS, &[0x82; 30]));
        bytes.extend(frame(DATA, 1, &[7; 70_000]));
        bytes.extend(frame(0xfa, 0xff, &[9; 300]));
        let reader = read(&[&bytes]);
        assert_eq!((reader.frames, reader.payload, reader.place), (4, 70_000, Place::FrameHead(0)));
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "PRI * HTTP/1.1\r\n\r\n",
            "P",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r",
        ] {
            let reader = read(&[text.as_bytes()]);
            let is_short = PREFACE.starts_with(text.as_bytes());
            assert_eq!(reader.is_in_preface(), is_short, "{text}");
            let place = if is_short { Place::Preface(text.len()) } else { Place::Http1 };
            assert_eq!((reader.frames, reader.head, reader.place), (0, None, place), "{text}");
        }
    }

    /// Uses frames of every kind, including invalid ones, and bytes that are not frames.
    #[test]
    fn bytes_are_read_the_same_however_they_are_cut() {
        let random = Simulation::new(7).node().runtime();
        let below = |limit: u64| usize::try_from(random.random() % limit).unwrap();
        let byte = || random.random().to_le_bytes()[0];
        for round in 0..500 {
            let mut bytes = PREFACE.to_vec();
            for _ in 0..below(20) {
                let length = [below(10), below(1_000), below(20_000)][below(3)];
                bytes.extend(frame(byte() % 12, byte(), &vec![byte(); length]));
            }
            match below(4) {
                0 => bytes.truncate(below(bytes.len() as u64)),
                1 => bytes.extend((0..below(200)).map(|_| byte())),
                2 => bytes[below(24)] ^= 1 << below(8),
                _ => {}
            }
            let whole = read(&[&bytes]);
            let mut reader = FrameReader::default();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let cut = (below(3) * below(4_000) + below(12)).min(rest.len());
                let (piece, after) = rest.split_at(cut);
                reader.read(piece);
                rest = after;
            }
            assert_eq!(reader, whole, "round {round}");
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(read(&single), whole, "round {round}");
        }
    }

    #[test]
    fn time_requests_and_payload_refill_the_allowance_up_to_a_limit() {
        let second = Duration::from_secs(1);
        let refilled = |now: Duration, requests, bytes| {
            let mut allowance = Allowance::new(second);
            allowance.left = 3;
            allowance.refill(now, requests, bytes);
            allowance.left
        };
        assert_eq!(refilled(second, 0, 0), 3);
        assert_eq!(refilled(second * 2, 0, 0), 3 + FRAMES_PER_SECOND);
        assert_eq!(refilled(second, 5, 0), 3 + 5 * FRAMES_PER_REQUEST);
        assert_eq!(refilled(second, 0, 10 * BYTES_PER_FRAME + 9), 3 + 10);
        assert_eq!(refilled(second * 1000, 0, 0), FRAMES_SAVED_MAX);
        assert_eq!(refilled(Duration::MAX, u64::MAX, u64::MAX), FRAMES_SAVED_MAX);
        let mut allowance = Allowance::new(second);
        allowance.left = 0;
        for _ in 0..2 {
            allowance.refill(second * 2, 5, 5000);
        }
        let once = FRAMES_PER_SECOND + 5 * FRAMES_PER_REQUEST + 4;
        assert_eq!(allowance.left, once, "nothing is earned twice");
    }
}
