//! HTTP for object stores, over the same hyper and rustls as the Headwater client.
//!
//! By default `object_store` depends on reqwest. This service replaces it and also keeps the last failure, because
//! messages need its error code and host, which the library keeps only as text.

use super::failure::Failure;
use anyhow::{Context, Result};
use bytes::Bytes;
use headwater_runtime::Runtime;
use http_body_util::{BodyExt, Limited};
use hyper::Uri;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

const AGENT: &str = concat!("headwater/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Time limit of a request. A part of a backup has 4 MiB, which takes long on a slow connection.
const REQUEST_TIME: Duration = Duration::from_secs(120);
/// Time limit of a request to a metadata service, which never answers outside of its cloud.
const METADATA_TIME: Duration = Duration::from_secs(3);
/// Idle connections are closed after this time, before servers and load balancers close them.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Largest body. The largest objects are whole segments, in the first backup format.
const BODY_BYTES_MAX: usize = 1 << 30;

/// Sends the requests of one object store.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client<HttpsConnector<Tcp>, HttpRequestBody>,
    runtime: Runtime,
    /// Whether credentials may be sent to other machines unencrypted.
    allows_http: bool,
    last_failure: Arc<Mutex<Option<Failure>>>,
}

impl Http {
    pub(super) fn new(allows_http: bool) -> Result<Http> {
        let mut tcp = Tcp::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIME));
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .build(tls);
        let last_failure = Arc::new(Mutex::new(None));
        Ok(Http { client, runtime: Runtime::system(), allows_http, last_failure })
    }

    /// Returns the failure of the last request, if it failed.
    pub(super) fn last_failure(&self) -> Option<Failure> {
        self.last_failure.lock().clone()
    }

    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let refuse = |kind: HttpErrorKind, failure: Failure| {
            let error = HttpError::new_boxed(kind, failure.cause().into());
            *self.last_failure.lock() = Some(failure);
            error
        };
        if uri.scheme_str() == Some("http") && !self.allows_http && !is_near(&uri) {
            return Err(refuse(HttpErrorKind::Unknown, Failure::plain_http(&uri)));
        }
        let limit = if is_metadata(&uri) { METADATA_TIME } else { REQUEST_TIME };
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let exchange = async {
            let (head, body) = self.client.request(request).await?.into_parts();
            let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, Box<dyn Error + Send + Sync>>((head, body))
        };
        let (head, body) = match self.runtime.timeout(limit, exchange).await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                let (kind, cause) = classify(&*error);
                return Err(refuse(kind, Failure::broken(&uri, cause)));
            }
            None => return Err(refuse(HttpErrorKind::Timeout, Failure::timed_out(&uri, limit))),
        };
        let failure = (!head.status.is_success())
            .then(|| Failure::refused(&method, &uri, head.status, &head.headers, &body));
        *self.last_failure.lock() = failure;
        Ok(HttpResponse::from_parts(head, Bytes::into(body)))
    }
}

type Answered<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Http {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answered<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.send(request))
    }
}

impl HttpConnector for Http {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        if options.get_config_value(&ClientConfigKey::ProxyUrl).is_some() {
            return Err(object_store::Error::NotSupported {
                source: "a proxy is set, and backups do not go through proxies".into(),
            });
        }
        Ok(HttpClient::new(self.clone()))
    }
}

/// Trusts the authorities of this machine, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`.
fn tls_config() -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns whether plain HTTP to this URI stays on this machine or its hypervisor.
fn is_near(uri: &Uri) -> bool {
    let host = host(uri);
    let is_loopback =
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    is_loopback || is_metadata(uri)
}

/// Returns whether this is the metadata service that provides a virtual machine with credentials.
fn is_metadata(uri: &Uri) -> bool {
    let host = host(uri);
    let is_link_local = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        // Amazon's address.
        IpAddr::V6(address) => address.segments()[..2] == [0xfd00, 0xec2],
    };
    host == "metadata.google.internal" || host.parse().is_ok_and(is_link_local)
}

fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Returns the kind of an error, which decides whether `object_store` retries, and its innermost cause.
fn classify(error: &(dyn Error + 'static)) -> (HttpErrorKind, String) {
    let mut kind = HttpErrorKind::Unknown;
    let mut cause = Some(error);
    let mut text = String::new();
    while let Some(inner) = cause {
        text = inner.to_string();
        if matches!(inner.downcast_ref(), Some(rustls::Error::InvalidCertificate(_))) {
            // Not retryable.
            return (HttpErrorKind::Unknown, format!("its certificate is not trusted, {text}"));
        }
        if kind == HttpErrorKind::Unknown {
            kind = kind_of(inner);
        }
        // `std::io::Error` does not return its inner error as its source.
        let inside = inner.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        cause = match inside {
            Some(inside) => Some(inside),
            None => inner.source(),
        };
    }
    (kind, text)
}

fn kind_of(error: &(dyn Error + 'static)) -> HttpErrorKind {
    if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        let is_cut =
            error.is_closed() || error.is_incomplete_message() || error.is_body_write_aborted();
        return if is_cut { HttpErrorKind::Request } else { HttpErrorKind::Unknown };
    }
    match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::TimedOut) => HttpErrorKind::Timeout,
        Some(
            ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof,
        ) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_stays_on_this_machine_and_its_hypervisor() {
        for near in [
            "http://127.0.0.1:10000/x",
            "http://localhost/x",
            "http://[::1]:9/x",
            "http://169.254.169.254/latest",
            "http://metadata.google.internal/x",
        ] {
            assert!(is_near(&near.parse().unwrap()), "{near}");
        }
        for far in ["http://10.0.0.1/x", "http://minio:9000/x", "http://127.0.0.1.example/x"] {
            assert!(!is_near(&far.parse().unwrap()), "{far}");
        }
    }
}
