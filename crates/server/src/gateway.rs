//! From a request to its answer: route, caller, operation, limits, body.
//!
//! Nothing here knows sockets, and nothing below it knows HTTP bodies.

use crate::answer::{Answer, Payload};
use crate::backups::Backups;
use crate::body;
use crate::budget::{Budgets, Exceeded, Held, Peer, Resource, UNCOUNTED_BYTES};
use crate::certificate::Certificates;
use crate::config::Config;
use crate::connection::{Connection, Connections};
use crate::failure::Failure;
use crate::head::Head;
use crate::metrics::Metrics;
use crate::names;
use crate::operations::{self, Place};
use crate::pace::counted_value;
use crate::request::{Call, Caller};
use crate::throughput::Throughput;
use crate::units::ContainerUnits;
use crate::web::WebRules;
use foldhash::fast::RandomState;
use headwater_protocol::auth::{self, Access, AuthError, Token};
use headwater_protocol::error::Code;
use headwater_protocol::headers;
use headwater_protocol::operation::{ItemOperation, Operation};
use headwater_protocol::route::{self, Route};
use headwater_runtime::{Bell, Runtime, TaskFailure};
use headwater_store::{Account, Container, Database};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, DATE, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use parking_lot::RwLock;
use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What each request is logged under, at the level `info`.
const REQUESTS: &str = "headwater_server::requests";
/// What a page is counted as while it is made: the items on it, and the body they are written into.
pub(crate) const PAGE_BYTES: usize = 8 << 20;
/// Containers whose names are remembered; beyond it the memory starts anew.
const NAMES_MAX: usize = 10_000;
const VERSION: HeaderValue = HeaderValue::from_static("2020-07-15");
const SCHEMA_VERSION: HeaderValue = HeaderValue::from_static("1.16");
const SERVICE: HeaderValue =
    HeaderValue::from_static(concat!("version=", env!("CARGO_PKG_VERSION")));
/// A browser takes no answer for a script or a style sheet by its bytes.
const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store, no-cache");

type Names<T> = HashMap<String, T, RandomState>;

/// Everything requests share.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) config: Config,
    pub(crate) account: Account,
    pub(crate) runtime: Runtime,
    /// Threads for long computations, one fewer than processors.
    background: Runtime,
    pub(crate) metrics: Metrics,
    pub(crate) throughput: Throughput,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) budgets: Arc<Budgets>,
    pub(crate) connections: Connections,
    pub(crate) backups: Backups,
    web: WebRules,
    pub(crate) is_stopping: AtomicBool,
    /// Tasks of the server that panicked.
    stopped_tasks: AtomicUsize,
    /// Rung when the server stops, for those who wait.
    pub(crate) stopping: Bell,
    /// Containers by the names in the path. A dropped one is noticed when it is asked.
    names: RwLock<Names<Names<Arc<Target>>>>,
}

/// A container as a path names it, with what every answer about it says.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) container: Container,
    /// Names as the client wrote them, by which it finds its session again.
    path: HeaderValue,
    rid: HeaderValue,
    pub(crate) units: ContainerUnits,
    /// Whether it was created without a partition key: then a request without one means the empty key.
    pub(crate) has_system_key: bool,
}

impl Target {
    fn new(container: Container, units: ContainerUnits, db: &str, coll: &str) -> Target {
        let value = |text: String| {
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
        };
        let path = value(operations::content_path(db, coll));
        let rid = value(container.rid().to_string());
        let has_system_key = container.definition().partition_key().system_key;
        Target { path, rid, units, has_system_key, container }
    }

    /// Says which container an answer is about.
    pub(crate) fn name(&self, answer: Answer) -> Answer {
        answer.ready(&names::ALT_CONTENT_PATH, &self.path).ready(&names::CONTENT_PATH, &self.rid)
    }

    /// Its resource id, as a client may name it.
    pub(crate) fn rid(&self) -> &[u8] {
        self.rid.as_bytes()
    }
}

impl Gateway {
    pub(crate) fn new(
        config: Config,
        account: Account,
        runtime: Runtime,
        background: Runtime,
        certificates: Option<Certificates>,
    ) -> Gateway {
        Gateway {
            metrics: Metrics::new(),
            throughput: Throughput::new(config.enforce_throughput),
            budgets: Budgets::new(&config.limits),
            connections: Connections::default(),
            backups: Backups::default(),
            web: WebRules::new(&config),
            is_stopping: AtomicBool::new(false),
            stopped_tasks: AtomicUsize::new(0),
            stopping: Bell::default(),
            names: RwLock::default(),
            config,
            account,
            runtime,
            background,
            certificates,
        }
    }

    /// Notes how a task of the server ended that should not end before the server.
    pub(crate) fn note_end(&self, ended: Result<(), TaskFailure>) {
        if ended.is_err() {
            self.stopped_tasks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many background tasks panicked, of the server and of the store.
    pub(crate) fn stopped_tasks(&self) -> usize {
        self.account.stopped_tasks().len() + self.stopped_tasks.load(Ordering::Relaxed)
    }

    /// Answers a request, whatever it is.
    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
    ) -> (Response<Payload>, Option<Held>) {
        let started = self.runtime.elapsed();
        let is_logged = tracing::enabled!(target: REQUESTS, tracing::Level::INFO);
        let path = is_logged.then(|| request.uri().path().to_owned());
        let activity = self.activity_of(request.headers());
        let cors_origin = self.web.cors_origin(request.headers());
        let (verb, is_http2) = (request.method().clone(), request.version() == Version::HTTP_2);
        let mut operation = None;
        let stream = is_http2.then(|| body::hold_stream(connection, request.headers()));
        let (answered, stream) = match stream.transpose() {
            Ok(stream) => (self.answer(request, connection, &mut operation).await, stream),
            Err(failure) => (Err(failure), None),
        };
        let count = |answer: &mut Answer| count(answer, &connection.peer, is_http2);
        // A change that was made is not refused afterwards.
        let may_refuse = operation.is_none_or(Operation::only_reads);
        let answered = answered.and_then(|mut answer| match count(&mut answer) {
            Ok(()) => Ok(answer),
            Err(exceeded) if may_refuse => Err(exceeded.into()),
            Err(_) => Ok(answer.without_body()),
        });
        let answer = answered.unwrap_or_else(|failure| {
            let activity = text_of(&activity);
            tracing::debug!(activity, code = ?failure.code, message = failure.message, "refused");
            let mut refusal = failure.into_answer(activity);
            match count(&mut refusal) {
                Ok(()) => refusal,
                Err(_) => refusal.without_body(),
            }
        });
        let took = self.runtime.elapsed().saturating_sub(started);
        self.metrics.observe(&verb, operation, answer.status, took);
        if let Some(path) = path {
            let (status, micros) = (answer.status.as_u16(), took.as_micros());
            let activity = text_of(&activity);
            tracing::info!(target: REQUESTS, activity, %verb, path, status, micros, "answered");
        }
        let (millis, micros) = (took.as_millis(), took.as_micros() % 1000);
        let duration = format_args!("{millis}.{micros:03}");
        let mut answer = answer.header(&names::REQUEST_DURATION_MS, duration);
        let charge = answer.charge;
        answer = answer.header(&names::REQUEST_CHARGE, charge);
        // Over HTTP/2 a head can wait for the socket while others are made.
        let activity = match is_http2 {
            true => counted_value(&activity, connection.queue_head(stream)),
            false => activity,
        };
        finish(&mut answer.headers, activity, cors_origin);
        answer.into_response()
    }

    /// Answers a request, and says which operation it is as soon as that is known.
    async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        connection: &Arc<Connection>,
        known: &mut Option<Operation>,
    ) -> Result<Answer, Failure> {
        self.web.admit(&request)?;
        if request.method() == Method::OPTIONS {
            return Ok(Answer::empty(StatusCode::NO_CONTENT));
        }
        if let Some(answer) = operations::service::answer(self, &request) {
            return Ok(answer);
        }
        if self.is_stopping.load(Ordering::Relaxed) {
            let message = "the server is shutting down; try again in a moment";
            return Err(Failure::new(Code::ServiceUnavailable, message));
        }
        let path = path_of(request.uri());
        let route = route::parse(&path)?;
        let caller = self.caller(&request, &route, &path)?;
        let origin = match route {
            Route::Account => origin_of(&request, connection.scheme),
            _ => String::new(),
        };
        let (parts, body) = request.into_parts();
        let is_http2 = parts.version == Version::HTTP_2;
        let head = Head::from(parts.headers);
        let operation = Operation::classify(parts.method.as_str(), &route, |name| head.text(name))
            .ok_or_else(|| operations::not_supported(&format!("the method {}", parts.method)))?;
        *known = Some(operation);
        let (body, _memory) = body::receive(connection, is_http2, body, &self.background).await?;
        // Taken when the body is there: a sender that stalls keeps no request out. Readers that wait for
        // changes have a limit of their own, where they wait: they would keep all other requests out.
        let is_waiting = operation.waits_for_changes();
        let _permit = match is_waiting {
            true => None,
            false => Some(connection.peer.take_request()?),
        };
        let call = Call {
            operation,
            route,
            query: parts.uri.query().map(str::to_owned),
            head,
            body,
            caller,
            origin,
            peer: connection.peer.clone(),
        };
        let threads = match operations::place_of(&call) {
            Place::Connection => {
                return run_here(&self.runtime, pin!(operations::answer(self, &call))).await;
            }
            Place::Shared => &self.runtime,
            Place::Background => &self.background,
        };
        let memory = match makes_page(operation) {
            true => Some(self.hold_page(&call.peer).await?),
            false => None,
        };
        let answer = self.answer_on(threads, call).await?;
        Ok(Answer { memory: memory.or(answer.memory), ..answer })
    }

    /// Takes the memory of a page before it is made; others wait until it is sent.
    pub(crate) async fn hold_page(&self, peer: &Arc<Peer>) -> Result<Held, Failure> {
        self.hold_answer(peer, PAGE_BYTES).await
    }

    /// Takes the memory of an answer before it is made.
    pub(crate) async fn hold_answer(
        &self,
        peer: &Arc<Peer>,
        bytes: usize,
    ) -> Result<Held, Failure> {
        let patience = self.config.limits.memory_time;
        let held = peer.take_when_free(Resource::Sending, bytes, &self.runtime, patience);
        Ok(Box::pin(held).await?)
    }

    /// Answers what may take long, on threads that serve no connections.
    async fn answer_on(self: &Arc<Self>, threads: &Runtime, call: Call) -> Result<Answer, Failure> {
        let gateway = self.clone();
        // Boxed first: it is large, and each layer below would move it.
        let work = Box::pin(async move { operations::answer(&gateway, &call).await });
        run_on(threads, "operation", work).await
    }

    /// Does what computes for long before it can yield.
    pub(crate) async fn in_background<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        run_on(&self.background, name, work).await
    }

    /// The request's own id if it is one, or a new one.
    fn activity_of(&self, head: &HeaderMap) -> HeaderValue {
        let is_one = |value: &&HeaderValue| value.to_str().is_ok_and(headers::is_activity_id);
        match head.get(&names::ACTIVITY_ID).filter(is_one) {
            Some(given) => given.clone(),
            None => uuid_of(self.runtime.random_u128()),
        }
    }

    fn caller(
        &self,
        request: &Request<Incoming>,
        route: &Route,
        path: &str,
    ) -> Result<Caller, Failure> {
        if !self.config.check_signatures {
            return Ok(Caller::Owner);
        }
        let head = request.headers();
        let text = |name: &HeaderName| head.get(name).and_then(|value| value.to_str().ok());
        // A browser that opens an event stream cannot send headers.
        let in_address = || match route {
            Route::ChangeStream { .. } => operations::extension::token_of(request.uri()),
            _ => None,
        };
        let token = match (text(&AUTHORIZATION), in_address()) {
            (Some(header), _) => auth::parse_token(header)?,
            // Any page can make a browser ask for an address, and some keys are known to all of them.
            (None, Some(token)) => match auth::parse_token(token)? {
                token @ Token::Resource { .. } => token,
                Token::Master { .. } | Token::Aad { .. } => return Err(no_resource_token()),
            },
            (None, None) => return Err(AuthError::MissingAuthorization.into()),
        };
        let now = self.runtime.unix_millis() / 1000;
        let access = match token {
            Token::Master { sig } => {
                let (x_ms_date, date) = (text(&names::X_MS_DATE), text(&DATE));
                let verb = request.method().as_str();
                let access = auth::verify_request(
                    &self.config.keys,
                    verb,
                    route,
                    path,
                    (x_ms_date, date),
                    &sig,
                )?;
                if let (Some(skew), Some(date)) = (self.config.clock_skew, x_ms_date.or(date)) {
                    auth::check_date(now, date, skew)?;
                }
                access
            }
            Token::Resource { sig } => {
                let grant = auth::open(&self.config.keys.primary, &sig, now)?;
                operations::check_living(self, &grant)?;
                return Ok(Caller::Guest(grant));
            }
            Token::Aad { jwt } => {
                auth::verify_aad(&self.config.keys, &jwt, now, self.config.any_identity)?
            }
        };
        Ok(match access {
            Access::ReadWrite => Caller::Owner,
            Access::ReadOnly => Caller::Reader,
        })
    }

    /// Waits for something, but not beyond the end of the server.
    pub(crate) async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopping = self.stopping.listen();
        if self.is_stopping.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            done = work => Some(done),
            () = stopping.rang() => None,
        }
    }

    pub(crate) fn database(&self, name: &str) -> Result<Database, Failure> {
        let found = self.account.find_database(name);
        found.ok_or_else(|| Failure::owner_not_found("database", name))
    }

    /// The container a path names, by names or resource ids.
    pub(crate) fn container(&self, db: &str, coll: &str) -> Result<Container, Failure> {
        Ok(self.target(db, coll)?.container.clone())
    }

    /// How metrics name a container. They need no key, so others than this machine's programs do not learn
    /// names from them.
    pub(crate) fn metrics_label(&self, database: &Database, container: &Container) -> String {
        match self.config.is_local() {
            true => format!("{}/{}", database.id(), container.id()),
            false => container.rid().to_string(),
        }
    }

    /// Releases the memory of containers that were dropped.
    pub(crate) fn forget_dropped(&self) {
        let mut names = self.names.write();
        for colls in names.values_mut() {
            colls.retain(|_, target| !target.container.is_dropped());
        }
        names.retain(|_, colls| !colls.is_empty());
    }

    /// The same as [`Gateway::container`], with what answers about it say.
    pub(crate) fn target(&self, db: &str, coll: &str) -> Result<Arc<Target>, Failure> {
        let known = self.names.read().get(db).and_then(|colls| colls.get(coll)).cloned();
        if let Some(target) = known.filter(|target| !target.container.is_dropped()) {
            return Ok(target);
        }
        let database = self.database(db)?;
        let found = database.find_container(coll);
        let container = found.ok_or_else(|| Failure::owner_not_found("container", coll))?;
        let label = self.metrics_label(&database, &container);
        let units = self.metrics.units.of(label, &container.definition());
        let target = Arc::new(Target::new(container, units, db, coll));
        let mut names = self.names.write();
        if names.values().map(HashMap::len).sum::<usize>() >= NAMES_MAX {
            names.clear();
        }
        names.entry(db.to_owned()).or_default().insert(coll.to_owned(), target.clone());
        Ok(target)
    }
}

/// An address carries a token of another kind.
fn no_resource_token() -> Failure {
    let message = "the token in the address is no resource token; send an account key's signature or an \
                   identity token in the header authorization";
    Failure::new(Code::Unauthorized, message)
}

async fn run_on<T: Send + 'static>(
    threads: &Runtime,
    name: &'static str,
    work: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    Box::pin(threads.run(name, work)).await.unwrap_or_else(|failure| Err(panicked(&failure)))
}

/// Does something on this thread.
async fn run_here<T>(
    runtime: &Runtime,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let done = runtime.watch("operation", work).await;
    done.unwrap_or_else(|failure| Err(panicked(&failure)))
}

fn panicked(failure: &TaskFailure) -> Failure {
    let message = format!("the operation failed: {failure}; please report this defect");
    Failure::new(Code::InternalServerError, message)
}

/// What was done elsewhere ended without an answer.
pub(crate) fn unfinished() -> Failure {
    let message = "the operation did not end; this is a defect of the server, please report it";
    Failure::new(Code::InternalServerError, message)
}

/// Whether an operation answers with a page of unknown size. A read of the change feed takes the memory of its
/// page itself: a reader that waits for changes holds none.
fn makes_page(operation: Operation) -> bool {
    !matches!(operation, Operation::Items(ItemOperation::ReadFeed { .. })) && operation.only_reads()
}

/// Counts the memory of an answer's body.
fn count(answer: &mut Answer, peer: &Arc<Peer>, is_http2: bool) -> Result<(), Exceeded> {
    let bytes = answer.payload.byte_count();
    let uncounted = if is_http2 { 0 } else { UNCOUNTED_BYTES };
    match &mut answer.memory {
        _ if bytes <= uncounted => answer.memory = None,
        Some(memory) => memory.resize(bytes)?,
        memory => *memory = Some(peer.take(Resource::Sending, bytes)?),
    }
    Ok(())
}

fn uuid_of(random: u128) -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (place, byte) in random.to_be_bytes().into_iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xf)];
        at += 2;
    }
    // Digits and hyphens can always be a header.
    HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
}

/// An activity id for people; it is one of ours or was checked.
fn text_of(activity: &HeaderValue) -> &str {
    activity.to_str().unwrap_or_default()
}

/// The path of a request. Some clients do not escape the `?` of an id, and no item has a query.
fn path_of(uri: &Uri) -> Cow<'_, str> {
    let path = uri.path();
    match uri.query() {
        Some(query) if path.starts_with("/dbs/") && path.contains("/docs/") => {
            format!("{path}%3F{query}").into()
        }
        _ => path.into(),
    }
}

/// Scheme, host and port by which the client reached us.
fn origin_of(request: &Request<Incoming>, scheme: &'static str) -> String {
    let host = request.headers().get("host").and_then(|value| value.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    let plain = |host: &&str| {
        host.len() < 256
            && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b))
    };
    format!("{scheme}://{}/", host.filter(plain).unwrap_or("localhost"))
}

/// What every answer carries.
fn finish(head: &mut HeaderMap, activity: HeaderValue, cors_origin: Option<HeaderValue>) {
    head.insert(&names::ACTIVITY_ID, activity);
    head.insert(&names::VERSION, VERSION);
    head.insert(&names::SCHEMA_VERSION, SCHEMA_VERSION);
    head.insert(&names::SERVICE_VERSION, SERVICE);
    head.insert(CACHE_CONTROL, NO_STORE);
    head.insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    if let Some(origin) = cors_origin {
        operations::service::allow_cross_origin(head, origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_operation_that_panics_is_answered_500() {
        let work = async { panic!("on the thread of its connection") };
        let failure = run_here::<()>(&Runtime::system(), work).await.unwrap_err();
        assert_eq!(failure.code, Code::InternalServerError);
        assert!(failure.message.contains("on the thread of its connection"), "{}", failure.message);
    }

    #[test]
    fn an_activity_id_has_all_its_digits() {
        let id = uuid_of(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id, "01234567-89ab-cdef-0123-456789abcdef");
        assert!(headers::is_activity_id(id.to_str().unwrap()));
    }

    #[test]
    fn a_question_mark_in_an_id_is_part_of_the_path() {
        for (uri, expected) in [
            ("/dbs/d/colls/c/docs/a?b", "/dbs/d/colls/c/docs/a%3Fb"),
            ("/dbs/d/colls/c/docs/a%3Fb", "/dbs/d/colls/c/docs/a%3Fb"),
            ("/dbs/d/colls/c?x=1", "/dbs/d/colls/c"),
            ("/_headwater/changes/docs/c?from=now", "/_headwater/changes/docs/c"),
        ] {
            assert_eq!(path_of(&uri.parse().unwrap()), expected, "{uri}");
        }
    }
}
