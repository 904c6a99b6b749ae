//! A hyper server that does nothing: it reads a request and answers with what another server has answered.
//!
//! What is left of its speed when a database answers instead is what `bench http` asks.

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;

/// What it always answers.
struct Recorded {
    status: StatusCode,
    head: HeaderMap,
    body: Bytes,
}

/// Serves until the process is ended.
pub(crate) fn run(file: &Path) -> Result<()> {
    let recorded = Arc::new(Recorded::of(&std::fs::read(file)?)?);
    serve(|| {
        let recorded = recorded.clone();
        Ok(move |request| answer(request, recorded.clone()))
    })
}

/// A server on loopback that says where it is and serves until its process is ended; `connected` makes
/// what answers the requests of one connection.
pub(in crate::commands::bench) fn serve<A, F>(connected: impl Fn() -> Result<A>) -> Result<()>
where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send + 'static,
{
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async move {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        println!("{{\"ready\":true,\"http\":\"http://{address}\"}}");
        std::io::stdout().flush()?;
        let runtime = headwater_runtime::Runtime::system();
        loop {
            let (stream, _) = listener.accept().await?;
            let _ = stream.set_nodelay(true);
            let answer = connected()?;
            runtime.spawn("bare connection", async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    recorded: Arc<Recorded>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(recorded.body.clone()));
    *response.status_mut() = recorded.status;
    *response.headers_mut() = recorded.head.clone();
    Ok(response)
}

impl Recorded {
    fn of(answer: &[u8]) -> Result<Recorded> {
        let end = memchr::memmem::find(answer, b"\r\n\r\n").context("an answer without end")?;
        let (head, body) = (std::str::from_utf8(&answer[..end])?, &answer[end + 4..]);
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.get(9..12)).context("no status")?;
        let mut fields = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").context("a header without value")?;
            // The length and the date are hyper's to say.
            if !matches!(name, "content-length" | "date") {
                fields.append(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
            }
        }
        Ok(Recorded { status: status.parse()?, head: fields, body: Bytes::copy_from_slice(body) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_back_with_its_head_and_body() {
        let answer = b"HTTP/1.1 201 Created\r\netag: \"1\"\r\ncontent-length: 2\r\n\r\n{}";
        let recorded = Recorded::of(answer).unwrap();
        assert_eq!(recorded.status, 201);
        assert_eq!(recorded.head.len(), 1);
        assert_eq!(recorded.head["etag"], "\"1\"");
        assert_eq!(&recorded.body[..], b"{}");
    }
}
