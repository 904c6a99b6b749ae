//! A hyper server that does nothing: it reads a request and answers with the bytes it was told to.
//!
//! What is left of its speed when a database answers instead is what `bench http` asks.

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io::Write;
use tokio::net::TcpListener;

/// Serves until the process is ended.
pub(crate) fn run(bytes: usize) -> Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    tokio.block_on(async move {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("cannot listen")?;
        let address = listener.local_addr()?;
        println!("{{\"ready\":true,\"http\":\"http://{address}\"}}");
        std::io::stdout().flush()?;
        let body = Bytes::from(vec![b'x'; bytes]);
        let runtime = headwater_runtime::Runtime::system();
        loop {
            let (stream, _) = listener.accept().await?;
            let _ = stream.set_nodelay(true);
            let body = body.clone();
            runtime.spawn("bare connection", async move {
                let service = service_fn(|request| answer(request, body.clone()));
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    body: Bytes,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    Ok(Response::new(Full::new(body)))
}
