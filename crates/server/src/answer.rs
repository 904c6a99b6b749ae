//! What goes back to a client: a status, headers, bytes.

use bytes::Bytes;
use headwater_model::{Lsn, PartitionId};
use headwater_protocol::charge::Charge;
use headwater_protocol::{headers, session};
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Payload {
    Whole(Bytes),
    /// Pieces that come as they happen.
    Stream(mpsc::Receiver<Bytes>),
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
            Payload::Stream(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Payload::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Payload::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
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
}

impl Answer {
    pub(crate) fn empty(status: StatusCode) -> Answer {
        Answer {
            status,
            headers: HeaderMap::with_capacity(24),
            payload: Payload::Whole(Bytes::new()),
            charge: Charge::ONE,
            partition: None,
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

    pub(crate) fn charged(mut self, charge: Charge) -> Answer {
        self.charge = charge;
        self
    }

    /// A header whose value is a text of ours; one that cannot be a header is left out.
    pub(crate) fn header(mut self, name: &'static str, value: impl Display) -> Answer {
        if let Ok(value) = HeaderValue::try_from(value.to_string()) {
            self.headers.insert(HeaderName::from_static(name), value);
        }
        self
    }

    /// A header whose value is a number.
    pub(crate) fn number(mut self, name: &'static str, value: u64) -> Answer {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        self
    }

    /// A header whose value was made before.
    pub(crate) fn ready(mut self, name: &'static str, value: &HeaderValue) -> Answer {
        self.headers.insert(HeaderName::from_static(name), value.clone());
        self
    }

    pub(crate) fn header_if(self, name: &'static str, value: Option<impl Display>) -> Answer {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn etag(mut self, etag: impl Display) -> Answer {
        if let Ok(value) = HeaderValue::try_from(etag.to_string()) {
            self.headers.insert(ETAG, value);
        }
        self
    }

    /// Which partition served the request, and how far it is.
    pub(crate) fn served_by(mut self, partition: PartitionId, lsn: Lsn) -> Answer {
        self.partition = Some(partition);
        self.header(headers::SESSION_TOKEN, session::SessionToken::single(partition, lsn))
            .number(headers::PARTITION_KEY_RANGE_ID, u64::from(partition.get()))
            .number(headers::LSN, lsn.get())
    }

    /// The session token in the form of old clients: they take it apart themselves, and end at a form
    /// they do not know.
    pub(crate) fn with_old_session(self) -> Answer {
        let token = self.headers.get(headers::SESSION_TOKEN).and_then(|token| token.to_str().ok());
        let token = token.and_then(|token| token.parse::<session::SessionToken>().ok());
        self.header_if(headers::SESSION_TOKEN, token.map(|token| token.lsns_alone()))
    }

    pub(crate) fn into_response(self) -> Response<Payload> {
        let mut response = Response::new(self.payload);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
