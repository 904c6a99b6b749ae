//! Messages between a server and a worker, over a socket.
//!
//! A message is its length (four bytes, little-endian, of all that follows), a kind (one byte) and texts. A text
//! is its length (four bytes; all ones for a missing text) and its UTF-8 bytes. Messages are at most
//! [`MESSAGE_BYTES_MAX`] long. Anything else is an error: neither side trusts the other.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::os::unix::net::UnixStream;

/// The longest message: a query page inside a script is up to 32 MiB, plus overhead.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The length that marks a missing text.
const MISSING: u32 = u32::MAX;

/// Bytes read from the socket at once.
const CHUNK_BYTES: usize = 16 << 10;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The worker is ready for a script. No texts.
    Ready,
    /// Run a procedure or trigger.
    Run,
    /// The script calls its collection: operation, options, body.
    Ask,
    /// The answer to a collection call.
    Answer,
    /// The script has ended: response, request, log.
    Done,
    /// The script or function has failed: the error, as JSON.
    Failed,
    /// Load user-defined functions: limits.
    Open,
    /// Call a function: name, source at its first call, arguments.
    Call,
    /// The result of a function; missing if undefined.
    Value,
    /// End of the calls of these functions.
    Close,
}

const KINDS: [Kind; 10] = [
    Kind::Ready,
    Kind::Run,
    Kind::Ask,
    Kind::Answer,
    Kind::Done,
    Kind::Failed,
    Kind::Open,
    Kind::Call,
    Kind::Value,
    Kind::Close,
];

/// A message as received.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    texts: std::vec::IntoIter<Option<String>>,
}

impl Message {
    /// The next text, if it is there.
    pub(super) fn text(&mut self) -> Option<String> {
        self.texts.next().flatten()
    }

    /// The next text; an error if it is missing.
    pub(super) fn needed_text(&mut self) -> Result<String> {
        self.text().ok_or_else(|| malformed("a text is missing"))
    }

    /// All remaining texts.
    pub(super) fn rest(self) -> Vec<Option<String>> {
        self.texts.collect()
    }
}

/// One end of the socket between a server and a worker.
pub(super) struct Channel {
    stream: UnixStream,
    /// Bytes received that are not yet a complete message.
    received: Vec<u8>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Channel {
        Channel { stream, received: Vec::new() }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is too long; nothing was sent then.
    pub(super) fn send(&mut self, kind: Kind, texts: &[Option<&str>]) -> Result<()> {
        let length = texts.iter().fold(1, |sum, text| sum + 4 + text.map_or(0, str::len));
        let too_long = || Error::new(ErrorKind::InvalidInput, "the message is too long");
        if length > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        let mut bytes = Vec::with_capacity(4 + length);
        bytes.extend(u32::try_from(length).map_err(|_| too_long())?.to_le_bytes());
        bytes.push(kind as u8);
        for text in texts {
            let length = text.map_or(Ok(MISSING), |text| u32::try_from(text.len()));
            bytes.extend(length.map_err(|_| too_long())?.to_le_bytes());
            bytes.extend(text.unwrap_or_default().as_bytes());
        }
        self.stream.write_all(&bytes)
    }

    /// Receives the next message. Each time the socket's timeout passes without a byte, `keep_waiting` decides
    /// whether to continue.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when `keep_waiting` returns false, [`ErrorKind::UnexpectedEof`] when the peer closed.
    pub(super) fn receive(&mut self, keep_waiting: impl Fn() -> bool) -> Result<Message> {
        let mut chunk = [0; CHUNK_BYTES];
        loop {
            if let Some(message) = self.take_message()? {
                return Ok(message);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut if keep_waiting() => {}
                    ErrorKind::WouldBlock => return Err(ErrorKind::TimedOut.into()),
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Takes the first message out of the buffer, if it is complete.
    fn take_message(&mut self) -> Result<Option<Message>> {
        let Some((length, rest)) = self.received.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        let Some(bytes) = rest.get(..length) else {
            return Ok(None);
        };
        let message = parse(bytes)?;
        if self.received.len() == 4 + length {
            // The usual case: frees the buffer, so that a large one is not kept.
            self.received = Vec::new();
        } else {
            self.received.drain(..4 + length);
        }
        Ok(Some(message))
    }
}

fn parse(bytes: &[u8]) -> Result<Message> {
    let (kind, mut rest) = bytes.split_first().ok_or_else(|| malformed("it is empty"))?;
    let kind = *KINDS.get(usize::from(*kind)).ok_or_else(|| malformed("its kind is unknown"))?;
    let mut texts = Vec::new();
    while !rest.is_empty() {
        let cut = || malformed("a text is cut off");
        let (length, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length);
        if length == MISSING {
            texts.push(None);
            rest = after;
            continue;
        }
        let (text, after) = after.split_at_checked(length as usize).ok_or_else(cut)?;
        let text = std::str::from_utf8(text).map_err(|_| malformed("a text is not UTF-8"))?;
        texts.push(Some(text.to_owned()));
        rest = after;
    }
    Ok(Message { kind, texts: texts.into_iter() })
}

pub(super) fn malformed(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("malformed message: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), Channel::new(other))
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        let (mut one, mut other) = pair();
        for kind in KINDS {
            one.send(kind, &[Some("ü"), None, Some("")]).unwrap();
            one.send(Kind::Ready, &[]).unwrap();
            let mut got = other.receive(|| true).unwrap();
            assert_eq!((got.kind, got.text().as_deref(), got.text()), (kind, Some("ü"), None));
            assert_eq!(got.rest(), [Some(String::new())]);
            let got = other.receive(|| true).unwrap();
            assert_eq!((got.kind, got.rest().len()), (Kind::Ready, 0));
        }
        drop(one);
        let ended = other.receive(|| true).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0x7f][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 99],
            &[3, 0, 0, 0, 1, 0, 0],
            &[6, 0, 0, 0, 1, 9, 0, 0, 0, b'a'],
            &[6, 0, 0, 0, 1, 1, 0, 0, 0, 0xff],
        ] {
            let (mut one, mut other) = pair();
            one.stream.write_all(bytes).unwrap();
            let error = other.receive(|| true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bytes:?}");
        }
    }

    #[test]
    fn a_receiver_that_stops_waiting_stops() {
        let (one, mut other) = pair();
        other.stream.set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
        let error = other.receive(|| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(one);
    }
}
