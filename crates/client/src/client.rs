//! The client of one account: endpoint, credential, options and the retry loop.

use crate::connection::{Answer, Connection};
use crate::container::Container;
use crate::credential::Credential;
use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::list::{self, Page, PageRequest};
use crate::regions::{AccountInfo, Routing};
use crate::request::Request;
use crate::retry::{Attempts, RetryPolicy, Route as NextRoute};
use bytes::Bytes;
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use headwater_runtime::Runtime;
use hyper::Method;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How a client behaves. The defaults are those of the official SDKs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What to retry, and how often.
    pub retry: RetryPolicy,
    /// The time limit of one request, without the time that a feed read asks the server to wait.
    pub request_time: Duration,
    /// A PEM file of certificate authorities to trust in addition to those of the machine.
    pub authorities: Option<PathBuf>,
    /// Whether to read the account's regions first. By default only if the endpoint is not on this machine.
    pub discover_regions: Option<bool>,
    /// Regions to read from, in order of preference.
    pub preferred_regions: Vec<String>,
    /// Text that names the program in the `user-agent` header, after this library's own name.
    pub user_agent_suffix: Option<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            retry: RetryPolicy::default(),
            request_time: Duration::from_secs(65),
            authorities: None,
            discover_regions: None,
            preferred_regions: Vec::new(),
            user_agent_suffix: None,
        }
    }
}

/// The result of a health check, which needs no credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether the server accepts requests.
    pub ready: bool,
    /// How far the server's clock is ahead of the local one, in seconds; negative if it is behind.
    pub clock_ahead_seconds: Option<i64>,
    /// How long the response took.
    pub took: Duration,
}

/// A client of one account. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client(Arc<State>);

#[derive(Debug)]
struct State {
    connection: Connection,
    routing: Routing,
    options: Options,
    runtime: Runtime,
}

impl Client {
    /// Creates a client. Sends nothing yet.
    ///
    /// # Errors
    /// When the file of authorities cannot be read.
    pub fn new(
        endpoint: Endpoint,
        credential: Credential,
        options: Options,
        runtime: Runtime,
    ) -> Result<Client, ClientError> {
        let connection = Connection::new(credential, &options, endpoint.is_tls(), runtime.clone())?;
        let routing = Routing::new(endpoint);
        Ok(Client(Arc::new(State { connection, routing, options, runtime })))
    }

    /// The endpoint that the client was created with.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        self.0.routing.given()
    }

    /// The runtime that provides time and randomness.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.0.runtime
    }

    /// Reads the account document. Later requests go to the regions it lists.
    ///
    /// # Errors
    /// When the account cannot be reached, or does not accept the credential.
    pub async fn account(&self) -> Result<AccountInfo, ClientError> {
        let given = self.0.routing.given().clone();
        let request = Request::new(Method::GET, &Route::Account);
        let mut attempts = Attempts::default();
        let answer = loop {
            match self.once(&given, &request).await {
                Ok(answer) => break answer,
                Err(error) => self.pause(&mut attempts, error, &request, &given).await?,
            };
        };
        let account = AccountInfo::parse(&answer.body).map_err(|what| self.bad_answer(what))?;
        self.0.routing.learn(&account, &self.0.options.preferred_regions);
        Ok(account)
    }

    /// Checks whether the server answers, and compares the clocks. Sends one request, without retries.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn health(&self) -> Result<Health, ClientError> {
        let before = self.0.runtime.elapsed();
        let mut request = Request::new(Method::GET, &Route::Account);
        "/health/ready".clone_into(&mut request.path);
        let answer = self.0.connection.send(self.endpoint(), &request).await?;
        let took = self.0.runtime.elapsed().saturating_sub(before);
        let ours = i64::try_from(self.0.runtime.unix_millis() / 1000).unwrap_or(i64::MAX);
        let clock_ahead_seconds =
            answer.date().map(|date| i64::try_from(date).unwrap_or(i64::MAX) - ours);
        // Azure has no such path and answers with an error below 500, which shows that it is reachable.
        Ok(Health { ready: answer.status < 500, clock_ahead_seconds, took })
    }

    /// The certificate authority of a Headwater server, as PEM; `None` if it has none.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn authority_pem(&self) -> Result<Option<String>, ClientError> {
        let mut request = Request::new(Method::GET, &Route::Account);
        "/_explorer/emulator.pem".clone_into(&mut request.path);
        let answer = self.0.connection.send(self.endpoint(), &request).await?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok((answer.status == 200 && text.contains("BEGIN CERTIFICATE")).then_some(text))
    }

    /// Reads a page of the account's databases, each as its document.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn databases(&self, page: &PageRequest) -> Result<Page, ClientError> {
        let request = page.apply(Request::new(Method::GET, &Route::Databases));
        list::page(self, self.send(request).await?)
    }

    /// Creates a database.
    ///
    /// # Errors
    /// [`Reason::AlreadyExists`](crate::Reason) when the id is taken.
    pub async fn create_database(&self, id: &str) -> Result<Bytes, ClientError> {
        let body = serde_json::json!({ "id": id }).to_string();
        let request = Request::new(Method::POST, &Route::Databases).body(body);
        Ok(self.send(request).await?.body)
    }

    /// Reads the document of a database.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason) when there is none.
    pub async fn read_database(&self, id: &str) -> Result<Bytes, ClientError> {
        let route = Route::Database { db: id.to_owned() };
        Ok(self.send(Request::new(Method::GET, &route)).await?.body)
    }

    /// Deletes a database with everything in it.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason) when there is none.
    pub async fn delete_database(&self, id: &str) -> Result<(), ClientError> {
        let route = Route::Database { db: id.to_owned() };
        self.send(Request::new(Method::DELETE, &route)).await.map(drop)
    }

    /// Reads a page of a database's containers, each as its document.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn containers(&self, db: &str, page: &PageRequest) -> Result<Page, ClientError> {
        let route = Route::Containers { db: db.to_owned() };
        let request = page.apply(Request::new(Method::GET, &route));
        list::page(self, self.send(request).await?)
    }

    /// Creates a container from its definition (JSON).
    ///
    /// # Errors
    /// [`Reason::AlreadyExists`](crate::Reason) when the id is taken.
    pub async fn create_container(
        &self,
        db: &str,
        definition: impl Into<Bytes>,
        throughput: Option<u32>,
    ) -> Result<Bytes, ClientError> {
        let route = Route::Containers { db: db.to_owned() };
        let request = Request::new(Method::POST, &route)
            .body(definition)
            .header_if(headers::OFFER_THROUGHPUT, throughput);
        Ok(self.send(request).await?.body)
    }

    /// Reads the document of a container.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason) when there is none.
    pub async fn read_container(&self, db: &str, id: &str) -> Result<Bytes, ClientError> {
        let route = Route::Container { db: db.to_owned(), coll: id.to_owned() };
        Ok(self.send(Request::new(Method::GET, &route)).await?.body)
    }

    /// Deletes a container with everything in it.
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason) when there is none.
    pub async fn delete_container(&self, db: &str, id: &str) -> Result<(), ClientError> {
        let route = Route::Container { db: db.to_owned(), coll: id.to_owned() };
        self.send(Request::new(Method::DELETE, &route)).await.map(drop)
    }

    /// A handle to a container. Sends nothing yet.
    #[must_use]
    pub fn container(&self, db: &str, id: &str) -> Container {
        Container::new(self.clone(), db, id)
    }

    /// Sends a request until it succeeds, fails for good, or has no attempts left.
    pub(crate) async fn send(&self, request: Request) -> Result<Answer, ClientError> {
        let discover = self.0.options.discover_regions;
        let discover = discover.unwrap_or(!self.endpoint().is_loopback());
        if discover && !self.0.routing.is_known() {
            self.account().await?;
        }
        let mut attempts = Attempts::default();
        loop {
            let endpoint = self.0.routing.endpoint(request.reads);
            match self.once(&endpoint, &request).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    let route = self.pause(&mut attempts, error, &request, &endpoint).await?;
                    if route == NextRoute::LookUp {
                        Box::pin(self.account()).await?;
                    }
                }
            }
        }
    }

    async fn once(&self, endpoint: &Endpoint, request: &Request) -> Result<Answer, ClientError> {
        let answer = self.0.connection.send(endpoint, request).await?;
        match answer.refusal() {
            Some(refusal) => Err(refusal.into()),
            None => Ok(answer),
        }
    }

    /// Waits before the next attempt, or returns the error if there is none.
    async fn pause(
        &self,
        attempts: &mut Attempts,
        error: ClientError,
        request: &Request,
        endpoint: &Endpoint,
    ) -> Result<NextRoute, ClientError> {
        let random = self.0.runtime.random();
        let Some(again) = attempts.next(&self.0.options.retry, &error, request.reads, random)
        else {
            return Err(error);
        };
        tracing::debug!(%error, wait = ?again.wait, "trying again");
        if again.route == NextRoute::Next {
            self.0.routing.pass_over(endpoint, request.reads);
        }
        self.0.runtime.sleep(again.wait).await;
        Ok(again.route)
    }

    pub(crate) fn bad_answer(&self, what: impl Into<String>) -> ClientError {
        ClientError::BadAnswer { endpoint: self.endpoint().to_string(), what: what.into() }
    }
}
