//! Which web pages get an answer, over the wire: foreign names, foreign pages, preflights.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use headwater_protocol::auth::{EMULATOR_KEY, Key, Keys};
use headwater_server::Config;
use support::{Got, World};

const NEW_DATABASE: &str = r#"{"id":"from-a-page"}"#;

/// A request as a page makes it; without authentication that is all it takes.
async fn ask(world: &World, line: &str, head: &str, body: &str) -> Got {
    let length = body.len();
    let request = format!("{line} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}");
    world.send_raw(request.as_bytes()).await
}

async fn without_authentication() -> World {
    World::with(|config| config.check_signatures = false).await
}

fn own_key(config: &mut Config) {
    config.keys = Keys::new(Key::from_base64("QUJD").unwrap());
}

fn is_silent(got: &Got) -> bool {
    !got.head.iter().any(|(name, _)| name.starts_with("access-control-"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_can_neither_read_nor_write() {
    let world = without_authentication().await;
    for origin in ["https://evil.test", "http://localhost.evil.test", "null"] {
        let head = format!("Host: localhost\r\nOrigin: {origin}\r\n");
        for (line, body) in [
            ("GET /dbs", ""),
            ("GET /metrics", ""),
            ("GET /health/live", ""),
            ("GET /_headwater/changes/db/c", ""),
            ("OPTIONS /dbs", ""),
            // Without preflight: a plain POST of text.
            ("POST /dbs", NEW_DATABASE),
        ] {
            let got = ask(&world, line, &head, body).await;
            assert_eq!(got.status, 403, "{origin} {line}");
            assert!(is_silent(&got), "{origin} {line}: {got:?}");
        }
    }
    let refused =
        ask(&world, "GET /dbs", "Host: localhost\r\nOrigin: https://evil.test\r\n", "").await;
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("https://evil.test") && message.contains("--cors-origin"),
        "{message}"
    );
    assert!(world.account.databases().is_empty(), "nothing was written");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_name_that_points_here_can_neither_read_nor_write() {
    let world = without_authentication().await;
    let port = world.address().port();
    for (line, body) in [
        ("GET /dbs", ""),
        ("GET /metrics", ""),
        ("GET /health/live", ""),
        ("POST /dbs", NEW_DATABASE),
        ("GET http://evil.test/dbs", ""),
    ] {
        let head = format!("Host: evil.test:{port}\r\n");
        assert_eq!(ask(&world, line, &head, body).await.status, 403, "{line}");
    }
    assert!(world.account.databases().is_empty(), "nothing was written");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_this_machine_or_a_listed_one_reads_and_writes() {
    let world = World::with(|config| {
        config.check_signatures = false;
        config.hosts = vec!["box.example".to_owned()];
        config.cors_origins = vec!["https://app.example".to_owned()];
    })
    .await;
    for (host, origin) in [
        ("localhost:1", "http://localhost:3000"),
        ("127.0.0.1", "https://127.0.0.1:8443"),
        ("[::1]:8080", "http://[::1]:5173"),
        ("box.example", "https://app.example"),
    ] {
        let head = format!("Host: {host}\r\nOrigin: {origin}\r\n");
        for line in ["OPTIONS /dbs", "GET /dbs", "GET /metrics"] {
            let got = ask(&world, line, &head, "").await;
            assert!(got.status < 300, "{origin} {line}: {got:?}");
            assert_eq!(got.header("access-control-allow-origin"), Some(origin), "{line}");
            assert_eq!(got.header("vary"), Some("origin"), "{line}");
            let exposed = got.header("access-control-expose-headers").unwrap();
            assert!(exposed.contains("x-ms-continuation"), "{exposed}");
        }
    }
    let head = "Host: localhost\r\nOrigin: http://localhost:3000\r\n";
    assert_eq!(ask(&world, "POST /dbs", head, NEW_DATABASE).await.status, 201);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_of_its_own_a_server_gives_leave_to_listed_pages_alone() {
    let world = World::with(|config| {
        own_key(config);
        config.cors_origins = vec!["https://app.example".to_owned()];
    })
    .await;
    for (origin, expected) in [
        ("https://app.example", Some("https://app.example")),
        ("http://localhost:3000", None),
        ("null", None),
    ] {
        let head = format!("Host: db.example\r\nOrigin: {origin}\r\n");
        for (line, status) in [("OPTIONS /dbs", 204), ("GET /dbs", 401), ("GET /health/live", 200)]
        {
            let got = ask(&world, line, &head, "").await;
            assert_eq!(got.status, status, "{origin} {line}");
            assert_eq!(got.header("access-control-allow-origin"), expected, "{origin} {line}");
            assert_eq!(is_silent(&got), expected.is_none(), "{origin} {line}");
        }
    }
    for (host, status) in [("10.0.0.7:8080", 200), ("evil.test", 403)] {
        let got = ask(&world, "GET /metrics", &format!("Host: {host}\r\n"), "").await;
        assert_eq!(got.status, status, "{host}");
    }
    world.stop().await;
}

/// An identity token that carries the well-known key, as a page can make it.
fn forged_token() -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let jwt = format!(
        "{}.{}.{}",
        encode(r#"{"alg":"RS256"}"#),
        encode(r#"{"exp":4000000000}"#),
        encode(EMULATOR_KEY)
    );
    format!("type%3Daad%26ver%3D1.0%26sig%3D{jwt}")
}

/// An image, a script or a `fetch` with `no-cors` sends a GET without `Origin`.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_can_not_probe_the_data_without_an_origin_header() {
    let open = without_authentication().await;
    let well_known = World::new().await;
    for world in [open, well_known] {
        for site in ["cross-site", "same-site", "anything"] {
            for line in
                ["GET /dbs", "GET /metrics", "GET /health/live", "GET /_headwater/changes/d/c"]
            {
                let head = format!("Host: localhost\r\nSec-Fetch-Site: {site}\r\n");
                let got = ask(&world, line, &head, "").await;
                assert_eq!(got.status, 403, "{site} {line}");
                assert!(is_silent(&got), "{site} {line}: {got:?}");
            }
        }
        for site in ["none", "same-origin"] {
            let head = format!("Host: localhost\r\nSec-Fetch-Site: {site}\r\n");
            assert_eq!(ask(&world, "GET /health/live", &head, "").await.status, 200, "{site}");
        }
        for (origin, status) in [("http://localhost:3000", 200), ("https://evil.test", 403)] {
            let head =
                format!("Host: localhost\r\nOrigin: {origin}\r\nSec-Fetch-Site: same-site\r\n");
            let got = ask(&world, "GET /health/live", &head, "").await;
            assert_eq!(got.status, status, "{origin}");
        }
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_carries_only_resource_tokens() {
    let world = World::new().await.with_container().await;
    let path = "/_headwater/changes/db/c";
    let master = world.signature("GET", path, &world.date());
    for token in [forged_token(), forged_token().replace("%3D", "="), master] {
        let line = format!("GET {path}?from=beginning&token={token}");
        let got = ask(&world, &line, "Host: localhost\r\n", "").await;
        assert_eq!(got.status, 401, "{token}: {got:?}");
    }
    // In the header it is as good as the key.
    let head = format!("Host: localhost\r\nAuthorization: {}\r\n", forged_token());
    assert_eq!(ask(&world, "GET /dbs", &head, "").await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_is_taken_for_a_script_by_its_bytes() {
    let world = without_authentication().await;
    for line in ["GET /dbs", "GET /metrics", "GET /nothing", "OPTIONS /dbs"] {
        let got = ask(&world, line, "Host: localhost\r\n", "").await;
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"), "{line}");
    }
    world.stop().await;
}
