//! Limits on the cost of queries: shared memory, and cancellation when the client leaves.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use headwater_store::Options;
use std::time::Duration;
use support::World;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const DOCS: &str = "/dbs/db/colls/c/docs";
const HEAD: &[(&str, &str)] = &[
    ("x-ms-documentdb-isquery", "True"),
    ("content-type", "application/query+json"),
    ("x-ms-documentdb-partitionkey", "[\"p\"]"),
];

/// Holds some megabytes, for a minute if followed by [`LONG`].
const LARGE: &str = "SELECT VALUE COUNT(1) FROM c JOIN (SELECT VALUE ARRAY(SELECT VALUE CONCAT(c.s, ToString(x)) FROM x IN c.a)) z";
const LONG: &str = " JOIN x IN c.a JOIN y IN c.a JOIN v IN c.a JOIN w IN c.a";

fn body(text: &str) -> String {
    format!(r#"{{"query":"{text}"}}"#)
}

async fn world(together: usize) -> World {
    let mut options = Options::default();
    options.queries.memory_bytes_together = together;
    let world = World::with_options(options, |_| ()).await.with_container().await;
    let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let item = format!(
        r#"{{"id":"1","pk":"p","a":[{}],"s":"{}"}}"#,
        numbers.join(","),
        "x".repeat(10_000)
    );
    let key = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    assert_eq!(world.send("POST", DOCS, &key, &item).await.status, 201);
    world
}

/// Repeats a query until it gets this status.
async fn until(world: &World, text: &str, status: u16) {
    let mut last = 0;
    for _ in 0..1_000 {
        last = world.send("POST", DOCS, HEAD, &body(text)).await.status;
        if last == status {
            return;
        }
        world.runtime.sleep(Duration::from_millis(20)).await;
    }
    panic!("{last} instead of {status}: {text}");
}

/// Sends a query that holds memory for a minute. Repeats it if it is refused, because the response to the previous
/// query may still be counted.
async fn hold_memory(world: &World) -> TcpStream {
    let long = world.request("POST", DOCS, HEAD, body(&format!("{LARGE}{LONG}")).as_bytes());
    for _ in 0..100 {
        let mut stream = world.connect().await;
        stream.write_all(&long).await.unwrap();
        let first_byte = stream.read_u8();
        if world.runtime.timeout(Duration::from_millis(500), first_byte).await.is_none() {
            return stream;
        }
    }
    panic!("the long query is always refused");
}

/// A query that holds most of the memory keeps another one out until its client has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_share_memory_and_one_whose_client_has_left_gives_it_back() {
    let world = world(8 << 20).await;
    until(&world, LARGE, 200).await;
    let stream = hold_memory(&world).await;
    until(&world, LARGE, 429).await;
    let refused = world.send("POST", DOCS, HEAD, &body(LARGE)).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("x-ms-retry-after-ms").is_some(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.body).contains("try again"), "{refused:?}");
    drop(stream);
    let before = world.runtime.elapsed();
    until(&world, LARGE, 200).await;
    let took = world.runtime.elapsed() - before;
    assert!(took < Duration::from_secs(10), "the query lived on for {took:?}");
    world.stop().await;
}

#[tokio::test]
async fn a_query_beyond_its_memory_or_time_is_refused_with_a_reason() {
    let mut options = Options::default();
    options.queries.memory_bytes = 1 << 20;
    options.queries.time = Duration::from_millis(200);
    let world = World::with_options(options, |_| ()).await.with_container().await;
    let numbers: Vec<String> = (0..200).map(|number| number.to_string()).collect();
    let item =
        format!(r#"{{"id":"1","pk":"p","a":[{}],"s":"{}"}}"#, numbers.join(","), "x".repeat(100));
    let key = [("x-ms-documentdb-partitionkey", "[\"p\"]")];
    assert_eq!(world.send("POST", DOCS, &key, &item).await.status, 201);
    for (text, status, reason) in [
        ("SELECT DISTINCT c.s, x, y FROM c JOIN x IN c.a JOIN y IN c.a", 400, "bytes at once"),
        (
            "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a JOIN w IN c.a",
            408,
            "too long",
        ),
        ("SELECT VALUE c.id FROM c", 200, "Documents"),
    ] {
        let got = world.send("POST", DOCS, HEAD, &body(text)).await;
        assert_eq!(got.status, status, "{text}: {got:?}");
        assert!(String::from_utf8_lossy(&got.body).contains(reason), "{text}: {got:?}");
    }
    world.stop().await;
}
