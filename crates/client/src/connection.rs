//! HTTP and TLS: sends one request and reads one response. Never retries, except once with a new identity token.

use crate::client::Options;
use crate::credential::Credential;
use crate::endpoint::Endpoint;
use crate::error::{ClientError, Reason, Refusal};
use crate::request::Request;
use crate::token::Token;
use bytes::Bytes;
use headwater_protocol::auth::parse_http_date;
use headwater_protocol::headers;
use headwater_runtime::Runtime;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{HeaderMap, HeaderValue};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The protocol version of the current official SDKs.
const API_VERSION: &str = "2020-07-15";
const USER_AGENT: &str = concat!("headwater/", env!("CARGO_PKG_VERSION"));
/// The largest response body. Pages hold at most 4 MiB of items; some servers send slightly more.
const BODY_BYTES_MAX: usize = 64 << 20;
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The first byte of a TLS record that holds an alert.
const TLS_ALERT: u8 = 21;
/// The time limit of the plain request that detects a TLS server.
const ALERT_TIME: Duration = Duration::from_secs(3);
/// Closes idle connections before servers and load balancers do.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// A response of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty())
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.header(name)?.parse().ok()
    }

    pub(crate) fn etag(&self) -> Option<String> {
        self.header(headers::ETAG).map(str::to_owned)
    }

    pub(crate) fn charge(&self) -> f64 {
        self.number(headers::REQUEST_CHARGE).unwrap_or(0.0)
    }

    /// The server's `date` header, in seconds since 1970.
    pub(crate) fn date(&self) -> Option<u64> {
        parse_http_date(self.header(headers::DATE)?).ok()
    }

    /// The refusal, if the status is an error. 304 (nothing newer) is not an error.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        if self.status < 400 {
            return None;
        }
        let substatus = self.number(headers::SUBSTATUS).unwrap_or(0);
        let mut refusal = Refusal::new(Reason::of(self.status, substatus), &self.body);
        refusal.activity = self.header(headers::ACTIVITY_ID).map(str::to_owned);
        refusal.oldest = self.header(headers::FEED_OLDEST).map(str::to_owned);
        let wait = self.number::<f64>(headers::RETRY_AFTER_MS).filter(|wait| *wait >= 0.0);
        refusal.retry_after = wait.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        Some(refusal)
    }
}

/// The connection pool of one account.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    credential: Credential,
    runtime: Runtime,
    request_time: Duration,
    user_agent: HeaderValue,
}

impl Connection {
    pub(crate) fn new(
        credential: Credential,
        options: &Options,
        needs_tls: bool,
        runtime: Runtime,
    ) -> Result<Connection, ClientError> {
        let user_agent = user_agent(options.user_agent_suffix.as_deref())?;
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(options.authorities.as_deref(), needs_tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .build(tls);
        let request_time = options.request_time;
        Ok(Connection { http, credential, runtime, request_time, user_agent })
    }

    /// Sends a request once. An error status is a response, not an error.
    pub(crate) async fn send(
        &self,
        endpoint: &Endpoint,
        request: &Request,
    ) -> Result<Answer, ClientError> {
        let patience = self.request_time + request.wait;
        let exchange = self.authorized(endpoint, request);
        let answered = self.runtime.timeout(patience, exchange).await;
        answered.unwrap_or_else(|| {
            Err(ClientError::TimedOut { endpoint: endpoint.to_string(), after: patience })
        })
    }

    /// Sends a request. After a 401, gets a new identity token and sends the request once more: a token may be
    /// revoked before it expires. A refused request has changed nothing.
    async fn authorized(
        &self,
        endpoint: &Endpoint,
        request: &Request,
    ) -> Result<Answer, ClientError> {
        let Credential::Tokens(tokens) = &self.credential else {
            return self.exchange(endpoint, self.message(endpoint, request, None)?).await;
        };
        let token = tokens.get(&self.runtime).await.map_err(ClientError::NoToken)?;
        let message = self.message(endpoint, request, Some(&token))?;
        let answer = self.exchange(endpoint, message).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        tokens.forget(&token).await;
        let newer = tokens.get(&self.runtime).await.map_err(ClientError::NoToken)?;
        if newer == token {
            return Ok(answer);
        }
        self.exchange(endpoint, self.message(endpoint, request, Some(&newer))?).await
    }

    fn message(
        &self,
        endpoint: &Endpoint,
        request: &Request,
        token: Option<&Token>,
    ) -> Result<hyper::Request<Full<Bytes>>, ClientError> {
        let now = self.runtime.unix_millis() / 1000;
        let verb = request.verb.as_str();
        let (token, date) =
            self.credential.headers(verb, request.resource_type, &request.link, now, token);
        let mut message = hyper::Request::builder()
            .method(&request.verb)
            .uri(format!("{endpoint}{}", request.path))
            .header(headers::AUTHORIZATION, token)
            .header(headers::X_MS_DATE, date)
            .header(headers::VERSION, API_VERSION)
            .header("accept", "application/json")
            .header("user-agent", &self.user_agent);
        for (name, value) in &request.headers {
            message = message.header(*name, value);
        }
        let built = message.body(Full::new(request.body.clone()));
        built.map_err(|error| ClientError::BadRequest(format!("cannot build the request: {error}")))
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        message: hyper::Request<Full<Bytes>>,
    ) -> Result<Answer, ClientError> {
        let broken = |source| ClientError::Broken { endpoint: endpoint.to_string(), source };
        let answer = match self.http.request(message).await {
            Ok(answer) => answer,
            Err(error) => return Err(self.explain(endpoint, error).await),
        };
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(broken)?.to_bytes();
        Ok(Answer { status: parts.status.as_u16(), head: parts.headers, body })
    }

    /// Classifies a failed exchange.
    async fn explain(
        &self,
        endpoint: &Endpoint,
        error: hyper_util::client::legacy::Error,
    ) -> ClientError {
        let is_other_scheme = match endpoint.is_tls() {
            true => has_cause(&error, |cause| matches!(cause, rustls::Error::InvalidMessage(_))),
            false => {
                has_cause(&error, hyper::Error::is_parse)
                    && speaks_tls(endpoint, &self.runtime).await
            }
        };
        if is_other_scheme {
            return ClientError::WrongScheme { right: endpoint.with_other_scheme() };
        }
        let (is_connect, is_untrusted) = (error.is_connect(), is_about_certificates(&error));
        let (endpoint, source) = (endpoint.to_string(), Box::new(error));
        match (is_connect, is_untrusted) {
            (_, true) => ClientError::Untrusted { endpoint, source },
            (true, false) => ClientError::Unreachable { endpoint, source },
            (false, false) => ClientError::Broken { endpoint, source },
        }
    }
}

/// Whether the server's certificate was rejected.
fn is_about_certificates(error: &(dyn Error + 'static)) -> bool {
    has_cause(error, |cause: &rustls::Error| matches!(cause, rustls::Error::InvalidCertificate(_)))
}

/// Whether one of the causes is an error of this type that passes the check. `io::Error::source` skips the error
/// that it wraps, hence `get_ref`.
fn has_cause<E: Error + 'static>(
    error: &(dyn Error + 'static),
    check: impl Fn(&E) -> bool,
) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if inner.downcast_ref().is_some_and(&check) {
            return true;
        }
        let inside = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside),
            None => inner.source(),
        };
    }
    false
}

/// Whether the server answers a plain HTTP request with a TLS alert.
async fn speaks_tls(endpoint: &Endpoint, runtime: &Runtime) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(endpoint.address()).await.ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.ok()?;
        stream.read_u8().await.ok()
    };
    let first = runtime.timeout(ALERT_TIME, exchange).await.flatten();
    first == Some(TLS_ALERT)
}

/// The `user-agent` header: this library, then the suffix from the options.
fn user_agent(suffix: Option<&str>) -> Result<HeaderValue, ClientError> {
    let whole = suffix.map_or_else(|| USER_AGENT.to_owned(), |more| format!("{USER_AGENT} {more}"));
    let odd = |_| ClientError::BadRequest(format!("{whole:?} is not a valid user-agent"));
    HeaderValue::from_str(&whole).map_err(odd)
}

/// The TLS configuration with the machine's certificate authorities and those of a file.
fn tls_config(authorities: Option<&Path>, needed: bool) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    if needed {
        let native = rustls_native_certs::load_native_certs();
        // Machines often have some unreadable certificates; those are skipped.
        roots.add_parsable_certificates(native.certs);
    }
    if let Some(file) = authorities {
        add_file(&mut roots, file)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| authorities_error("TLS itself", error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

fn add_file(roots: &mut RootCertStore, file: &Path) -> Result<(), ClientError> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).map_err(|error| authorities_error(&name, error))?;
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate = certificate.map_err(|error| authorities_error(&name, error))?;
        roots.add(certificate).map_err(|error| authorities_error(&name, error))?;
        found += 1;
    }
    if found == 0 {
        return Err(authorities_error(&name, "it holds no certificate"));
    }
    Ok(())
}

fn authorities_error(
    file: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ClientError {
    ClientError::Authorities { file: file.to_owned(), source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_behind_this_library_and_cannot_add_headers() {
        assert_eq!(user_agent(None).unwrap(), USER_AGENT);
        let named = user_agent(Some("CosmosDBTriggerFunctions")).unwrap();
        assert_eq!(named, format!("{USER_AGENT} CosmosDBTriggerFunctions"));
        assert!(user_agent(Some("a\r\nx: y")).is_err());
    }
}
