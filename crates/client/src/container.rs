//! A container: reads and writes of single items, with etags as preconditions.
//!
//! A container keeps the session token of its latest request, so that a read after a write sees that write in
//! any region.

use crate::client::Client;
use crate::connection::Answer;
use crate::error::{ClientError, Reason};
use crate::ranges::RangeCache;
use crate::request::Request;
use bytes::Bytes;
use headwater_model::PartitionKey;
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use headwater_protocol::session::SessionToken;
use hyper::Method;
use parking_lot::Mutex;
use std::sync::Arc;

/// A handle to a container. Cheap to clone; clones share the session and the cached ranges.
#[derive(Clone, Debug)]
pub struct Container {
    client: Client,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    database: String,
    id: String,
    session: Mutex<Option<SessionToken>>,
    ranges: Mutex<RangeCache>,
}

/// A condition on the current version of the item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// No condition.
    #[default]
    None,
    /// The item has this etag.
    IfMatch(String),
    /// The item does not have this etag; with `*`, the item does not exist.
    IfNoneMatch(String),
}

impl Precondition {
    fn apply(&self, request: Request) -> Request {
        match self {
            Precondition::None => request,
            Precondition::IfMatch(etag) => request.header(headers::IF_MATCH, etag),
            Precondition::IfNoneMatch(etag) => request.header(headers::IF_NONE_MATCH, etag),
        }
    }
}

/// An item as the server returned it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stored {
    /// The item; empty after a delete, or when only the etag was requested.
    pub body: Bytes,
    /// The item's etag, for the precondition of the next write.
    pub etag: String,
    /// Whether the write created the item.
    pub created: bool,
    /// The request charge.
    pub charge: f64,
}

impl Container {
    pub(crate) fn new(client: Client, database: &str, id: &str) -> Container {
        let state = State {
            database: database.to_owned(),
            id: id.to_owned(),
            session: Mutex::default(),
            ranges: Mutex::default(),
        };
        Container { client, state: Arc::new(state) }
    }

    /// The id of its database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.state.database
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// The client that sends its requests.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads its document: id, partition key, policies.
    ///
    /// # Errors
    /// [`Reason::NotFound`] when there is none.
    pub async fn definition(&self) -> Result<Bytes, ClientError> {
        self.client.read_container(self.database(), self.id()).await
    }

    /// Creates an item.
    ///
    /// # Errors
    /// [`Reason::AlreadyExists`] when its id or a unique key is taken.
    pub async fn create(
        &self,
        key: &PartitionKey,
        body: impl Into<Bytes>,
    ) -> Result<Stored, ClientError> {
        let request = Request::new(Method::POST, &self.items_route()).body(body);
        self.write(request, key, &Precondition::None).await
    }

    /// Creates an item, or replaces it if it exists.
    ///
    /// # Errors
    /// [`Reason::PreconditionFailed`] when the precondition does not hold.
    pub async fn upsert(
        &self,
        key: &PartitionKey,
        body: impl Into<Bytes>,
        precondition: &Precondition,
    ) -> Result<Stored, ClientError> {
        let request = Request::new(Method::POST, &self.items_route()).body(body);
        self.write(request.header(headers::IS_UPSERT, "True"), key, precondition).await
    }

    /// Replaces an existing item.
    ///
    /// # Errors
    /// [`Reason::NotFound`] or [`Reason::PreconditionFailed`].
    pub async fn replace(
        &self,
        key: &PartitionKey,
        id: &str,
        body: impl Into<Bytes>,
        precondition: &Precondition,
    ) -> Result<Stored, ClientError> {
        let request = Request::new(Method::PUT, &self.item_route(id)).body(body);
        self.write(request, key, precondition).await
    }

    /// Changes parts of an item; the body is `{"operations":[…]}`.
    ///
    /// # Errors
    /// [`Reason::NotFound`] or [`Reason::PreconditionFailed`].
    pub async fn patch(
        &self,
        key: &PartitionKey,
        id: &str,
        operations: impl Into<Bytes>,
        precondition: &Precondition,
    ) -> Result<Stored, ClientError> {
        let request = Request::new(Method::PATCH, &self.item_route(id)).body(operations);
        self.write(request, key, precondition).await
    }

    /// Deletes an item.
    ///
    /// # Errors
    /// [`Reason::NotFound`] or [`Reason::PreconditionFailed`].
    pub async fn delete(
        &self,
        key: &PartitionKey,
        id: &str,
        precondition: &Precondition,
    ) -> Result<(), ClientError> {
        let request = Request::new(Method::DELETE, &self.item_route(id));
        self.write(request, key, precondition).await.map(drop)
    }

    /// Reads an item; `None` if it does not exist.
    ///
    /// # Errors
    /// When the container does not exist, or the server refuses.
    pub async fn read(&self, key: &PartitionKey, id: &str) -> Result<Option<Stored>, ClientError> {
        let request = Request::new(Method::GET, &self.item_route(id));
        let request = self.with_session(request.header(headers::PARTITION_KEY, key));
        match self.send(request).await {
            Ok(answer) => Ok(Some(stored(answer))),
            Err(error) if error.reason() == Some(Reason::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        request: Request,
        key: &PartitionKey,
        precondition: &Precondition,
    ) -> Result<Stored, ClientError> {
        let request = precondition.apply(request.header(headers::PARTITION_KEY, key));
        Ok(stored(self.send(request).await?))
    }

    fn item_route(&self, id: &str) -> Route {
        let (db, coll) = (self.database().to_owned(), self.id().to_owned());
        Route::Item { db, coll, id: id.to_owned() }
    }

    /// Sends a request and records the session token of the response.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, ClientError> {
        let sent = self.client.send(request).await;
        match &sent {
            Ok(answer) => {
                if let Some(token) = answer.number::<SessionToken>(headers::SESSION_TOKEN) {
                    self.remember(token);
                }
            }
            Err(error) => match error.reason() {
                Some(Reason::RangeGone) => self.ranges_cache().lock().forget(),
                Some(Reason::ContainerReplaced | Reason::OwnerNotFound) => {
                    self.ranges_cache().lock().forget();
                    *self.state.session.lock() = None;
                }
                // Still behind after all attempts: the container was replaced, so the token is void.
                Some(Reason::SessionBehind) => *self.state.session.lock() = None,
                _ => {}
            },
        }
        sent
    }

    fn remember(&self, token: SessionToken) {
        let mut session = self.state.session.lock();
        let merged = session.as_mut().map(|known| known.merge(&token));
        if !matches!(merged, Some(Ok(()))) {
            // The first token, or one from another set of regions: the newer one wins.
            *session = Some(token);
        }
    }

    pub(crate) fn with_session(&self, request: Request) -> Request {
        let token = self.state.session.lock().clone();
        request.header_if(headers::SESSION_TOKEN, token)
    }

    pub(crate) fn ranges_cache(&self) -> &Mutex<RangeCache> {
        &self.state.ranges
    }
}

fn stored(answer: Answer) -> Stored {
    Stored {
        etag: answer.etag().unwrap_or_default(),
        created: answer.status == 201,
        charge: answer.charge(),
        body: answer.body,
    }
}
