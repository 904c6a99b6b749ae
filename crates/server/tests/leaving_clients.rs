//! A query whose client has left ends within 100 ms, over every kind of connection.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;
use support::World;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const DOCS: &str = "/dbs/db/colls/c/docs";
const HEAD: &[(&str, &str)] = &[
    ("x-ms-documentdb-isquery", "True"),
    ("content-type", "application/query+json"),
    ("x-ms-documentdb-partitionkey", "[\"p\"]"),
];
/// Holds some megabytes for a minute, if nothing ends it.
const QUERY: &str = r#"{"query":"SELECT VALUE COUNT(1) FROM c JOIN (SELECT VALUE ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a)) z JOIN x IN c.a JOIN y IN c.a JOIN v IN c.a JOIN w IN c.a"}"#;
/// What such a query holds at least: 200 texts of 10,000 bytes.
const QUERY_BYTES: u64 = 2_000_000;
/// Clients that leave at once, more than threads of the server.
const CROWD: usize = 8;
/// A busy machine delays single attempts, not most of them.
const ATTEMPTS: usize = 10;

/// How a client asks and leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// Over HTTP/1.1; the connection is closed.
    Http1,
    /// As many as a crowd over HTTP/1.1 at once; the connections are closed.
    Crowd,
    /// Over HTTP/1.1 with TLS; the connection is closed.
    Tls,
    /// Over HTTP/2; the connection is closed.
    Http2,
    /// Over HTTP/2; the request is given up, the connection stays.
    Http2Stream,
}

/// Waits until queries hold as much memory as they should; how long that took.
async fn until(world: &World, is_enough: impl Fn(u64) -> bool) -> Duration {
    let before = world.runtime.elapsed();
    loop {
        let bytes = world.account.figures().memory.queries;
        let took = world.runtime.elapsed() - before;
        if is_enough(bytes) {
            return took;
        }
        assert!(took < Duration::from_secs(30), "queries hold {bytes} bytes");
        world.runtime.sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until so many queries run.
async fn until_running(world: &World, count: usize) {
    until(world, |bytes| bytes >= QUERY_BYTES * count as u64).await;
}

/// Waits until no query runs; how long that took.
async fn until_over(world: &World) -> Duration {
    until(world, |bytes| bytes == 0).await
}

async fn connect_with_tls(world: &World) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let authority = world.server.authority_pem().unwrap();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(world.server.https().unwrap()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Asks over streams and closes them once the queries run; how long the last query ran on.
async fn close<S: AsyncWrite + Unpin>(world: &World, mut streams: Vec<S>) -> Duration {
    let request = world.request("POST", DOCS, HEAD, QUERY.as_bytes());
    for stream in &mut streams {
        stream.write_all(&request).await.unwrap();
        stream.flush().await.unwrap();
    }
    until_running(world, streams.len()).await;
    drop(streams);
    until_over(world).await
}

/// The same over HTTP/2, where the request alone can be given up.
async fn leave_http2(world: &World, closes: bool) -> Duration {
    let stream = world.connect().await;
    stream.set_nodelay(true).unwrap();
    let stream = stream.into_std().unwrap();
    let socket = stream.try_clone().unwrap();
    let stream = TokioIo::new(TcpStream::from_std(stream).unwrap());
    let client = http2::Builder::new(TokioExecutor::new()).handshake(stream);
    let (mut sender, connection) = client.await.unwrap();
    world.runtime.spawn("client", async move { drop(connection.await) });
    let mut request = Request::post(format!("http://{}{DOCS}", world.address()));
    for (name, value) in HEAD {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from_static(QUERY.as_bytes()))).unwrap();
    let mut answer = Box::pin(sender.send_request(request));
    tokio::select! {
        answer = answer.as_mut() => panic!("it was answered: {answer:?}"),
        () = until_running(world, 1) => {}
    }
    if closes {
        socket.shutdown(std::net::Shutdown::Both).unwrap();
    } else {
        drop(answer);
    }
    until_over(world).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_client_has_left_ends_within_100_ms() {
    let world = World::with(|config| {
        config.check_signatures = false;
        config.https = Some("127.0.0.1:0".parse().unwrap());
    });
    let world = world.await.with_container().await;
    let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let text = "x".repeat(10_000);
    let item = format!(r#"{{"id":"1","pk":"p","a":[{}],"s":"{text}"}}"#, numbers.join(","));
    let key = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    assert_eq!(world.send("POST", DOCS, &key, &item).await.status, 201);
    for leaving in
        [Leaving::Http1, Leaving::Crowd, Leaving::Tls, Leaving::Http2, Leaving::Http2Stream]
    {
        let mut times = Vec::new();
        for _ in 0..ATTEMPTS {
            times.push(match leaving {
                Leaving::Http1 => close(&world, vec![world.connect().await]).await,
                Leaving::Crowd => {
                    let mut streams = Vec::new();
                    for _ in 0..CROWD {
                        streams.push(world.connect().await);
                    }
                    close(&world, streams).await
                }
                Leaving::Tls => close(&world, vec![connect_with_tls(&world).await]).await,
                Leaving::Http2 => leave_http2(&world, true).await,
                Leaving::Http2Stream => leave_http2(&world, false).await,
            });
        }
        println!("{leaving:?}: {times:?}");
        let in_time = times.iter().filter(|time| **time < Duration::from_millis(100)).count();
        assert!(in_time > ATTEMPTS / 2, "{leaving:?}: {times:?}");
    }
    world.stop().await;
}
