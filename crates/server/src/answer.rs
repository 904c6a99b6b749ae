//! What goes back to a client: a status, headers, bytes.

use crate::budget::Held;
use crate::names;
use bytes::Bytes;
use headwater_model::{Lsn, PartitionId};
use headwater_protocol::charge::Charge;
use headwater_protocol::session;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IntoHeaderName};
use hyper::{Response, StatusCode};
use std::convert::Infallible;
use std::fmt::Display;
use std::io::{Cursor, Write};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Payload {
    Whole(Bytes),
    /// The last first, none of them empty.
    Pieces(Vec<Bytes>),
    /// Pieces that come as they happen.
    Stream(mpsc::Receiver<Bytes>),
}

impl Payload {
    /// How many bytes there are already.
    pub(crate) fn byte_count(&self) -> usize {
        match self {
            Payload::Whole(bytes) => bytes.len(),
            Payload::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            Payload::Stream(_) => 0,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Payload::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Payload::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Payload::Pieces(pieces) => {
                Poll::Ready(pieces.pop().map(|piece| Ok(Frame::data(piece))))
            }
            Payload::Stream(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Payload::Whole(bytes) => bytes.is_empty(),
            Payload::Pieces(pieces) => pieces.is_empty(),
            Payload::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Payload::Pieces(pieces) => {
                SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum())
            }
            Payload::Stream(_) => SizeHint::default(),
        }
    }
}

/// An answer in the making.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Payload,
    pub(crate) charge: Charge,
    /// The partition that served the request, for its budget.
    pub(crate) partition: Option<PartitionId>,
    /// The memory it takes from `sending`, as far as it is counted.
    pub(crate) memory: Option<Held>,
}

impl Answer {
    pub(crate) fn empty(status: StatusCode) -> Answer {
        Answer {
            status,
            headers: HeaderMap::with_capacity(24),
            payload: Payload::Whole(Bytes::new()),
            charge: Charge::ONE,
            partition: None,
            memory: None,
        }
    }

    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Answer {
        let mut answer = Answer::empty(status);
        answer.payload = Payload::Whole(body.into());
        answer.headers.insert(CONTENT_TYPE, JSON);
        answer
    }

    pub(crate) fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
        let mut answer = Answer::empty(status);
        answer.payload = Payload::Whole(body.into());
        answer.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    }

    /// The status and headers alone, for which no memory is counted.
    pub(crate) fn without_body(mut self) -> Answer {
        self.payload = Payload::Whole(Bytes::new());
        self.memory = None;
        self.headers.remove(CONTENT_TYPE);
        self
    }

    #[inline]
    pub(crate) fn charged(mut self, charge: Charge) -> Answer {
        self.charge = charge;
        self
    }

    /// A header whose value is a text of ours; one that cannot be a header is left out.
    #[inline]
    pub(crate) fn header(mut self, name: impl IntoHeaderName, value: impl Display) -> Answer {
        if let Some(value) = value_of(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// A header whose value is a number.
    #[inline]
    pub(crate) fn number(mut self, name: impl IntoHeaderName, value: u64) -> Answer {
        self.headers.insert(name, HeaderValue::from(value));
        self
    }

    /// A header whose value was made before.
    #[inline]
    pub(crate) fn ready(mut self, name: impl IntoHeaderName, value: &HeaderValue) -> Answer {
        self.headers.insert(name, value.clone());
        self
    }

    pub(crate) fn header_if(
        self,
        name: impl IntoHeaderName,
        value: Option<impl Display>,
    ) -> Answer {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn etag(self, etag: impl Display) -> Answer {
        self.header(ETAG, etag)
    }

    /// Which partition served the request, and how far it is.
    #[inline]
    pub(crate) fn served_by(mut self, partition: PartitionId, lsn: Lsn) -> Answer {
        self.partition = Some(partition);
        self.header(&names::SESSION_TOKEN, session::SessionToken::single(partition, lsn))
            .number(&names::PARTITION_KEY_RANGE_ID, u64::from(partition.get()))
            .number(&names::LSN, lsn.get())
    }

    /// The session token in the form of old clients: they take it apart themselves, and end at a form
    /// they do not know.
    pub(crate) fn with_old_session(self) -> Answer {
        let token = self.headers.get(&names::SESSION_TOKEN).and_then(|token| token.to_str().ok());
        let token = token.and_then(|token| token.parse::<session::SessionToken>().ok());
        self.header_if(&names::SESSION_TOKEN, token.map(|token| token.lsns_alone()))
    }

    pub(crate) fn into_response(self) -> (Response<Payload>, Option<Held>) {
        let mut response = Response::new(self.payload);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        (response, self.memory)
    }
}

/// A text as the value of a header. Nearly all of them are short and need no other place meanwhile.
fn value_of(value: impl Display) -> Option<HeaderValue> {
    let mut place = Cursor::new([0; 96]);
    let value = match write!(place, "{value}") {
        Ok(()) => {
            let length = usize::try_from(place.position()).unwrap_or(0);
            HeaderValue::from_bytes(&place.get_ref()[..length])
        }
        Err(_) => HeaderValue::try_from(value.to_string()),
    };
    value.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_texts_become_headers_and_what_cannot_be_one_does_not() {
        for length in [0, 1, 95, 96, 97, 5000] {
            let text = "x".repeat(length);
            assert_eq!(value_of(&text).unwrap().as_bytes(), text.as_bytes());
        }
        assert_eq!(value_of("a\nb"), None);
        assert_eq!(value_of("a\n".repeat(100)), None);
    }
}
