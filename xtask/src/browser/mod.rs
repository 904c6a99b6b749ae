//! `cargo xtask browser`: tests with a real browser what web pages can do to a server.
//!
//! A server without authentication runs on loopback, then one with the well-known key, and Chromium opens the same page under three names:
//!
//! * `evil.test`, a page of another origin;
//! * `rebound.test`, a page whose name points to the server after it was loaded (DNS rebinding). The
//!   collector serves the page and then passes every other request on to the server unchanged;
//! * `localhost`, a page of this machine.
//!
//! Each page tries to read and write (page.html). The first two must fail, the last one must succeed. Images,
//! scripts and `fetch` with `no-cors` carry no origin, so the server's log must show that it refused each of them.
//! This also holds when the server runs with the well-known key and the page knows that key.

mod exchange;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::compatibility::{build, process};
use exchange::{Request, answer, send};

const PAGE: &str = include_str!("page.html");
const POLL: Duration = Duration::from_millis(20);
/// Time limit for all three pages, which take a few seconds.
const TIME_MAX: Duration = Duration::from_secs(90);
/// Names of pages, in the order in which they are opened.
const PAGES: [&str; 3] = ["evil.test", "rebound.test", "localhost"];

/// An identity token with the well-known key, as the SDKs' test suites create it. Any page can create one.
const IDENTITY: &str = "eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjQwMDAwMDAwMDB9.QzJ5NnlEamY1L1Irb2IwTjhBN0NndjMwVlJESklXRUhM\
                        TSs0UURVNURFMm5ROW5EdVZUcW9iRDRiOG1HR3lQTWJJWm5xeU1zRWNhR1F5NjdYSXcvSnc9PQ";

/// The results of a page's attempts, by attempt.
type Outcome = BTreeMap<String, String>;

/// A child process that is killed on drop.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        process::end(&mut self.0);
    }
}

/// The ways to access a server without a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    NoAuthentication,
    WellKnownKey,
}

/// Runs the test. Returns `false` if a page succeeded where it must fail, or failed where it must succeed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let home = root.join("target/browser");
    if home.exists() {
        std::fs::remove_dir_all(&home).context("the profile of the last run cannot be removed")?;
    }
    let binary = build(root)?;
    let mut failed = 0;
    for access in [Access::NoAuthentication, Access::WellKnownKey] {
        failed += try_pages(&home.join(format!("{access:?}")), &binary, access)?;
    }
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let passed = 2 * PAGES.len() - failed;
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    Ok(failed == 0)
}

/// Opens the pages against one server. Returns how many of them failed.
fn try_pages(home: &Path, binary: &Path, access: Access) -> Result<usize> {
    std::fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let log = home.join("server.log");
    let (_server, address) = start_server(binary, access, &log)?;
    let is_open = access == Access::NoAuthentication;
    if is_open {
        fill(address)?;
    }
    let listener = TcpListener::bind("127.0.0.1:0").context("no port for the collector")?;
    let port = listener.local_addr()?.port();
    let _browser = start_browser(home, &format!("http://{}:{port}/page", PAGES[0]))?;
    let outcomes = collect(&listener, address)?;
    let databases = if is_open { send(address, "GET /dbs", "", "")? } else { String::new() };
    let log = std::fs::read_to_string(&log).context("the log of the server")?;
    let mut failed = 0;
    for name in PAGES {
        let outcome = outcomes.get(name);
        let mut problems = judge_probes(name, &log);
        if is_open || outcome.is_none() {
            problems.extend(judge(name, outcome, &databases));
        }
        let verdict = if problems.is_empty() { "ok" } else { "FAILED" };
        println!("page of {name}, {access:?} ... {verdict}");
        problems.iter().for_each(|problem| println!("    {problem}"));
        failed += usize::from(!problems.is_empty());
    }
    Ok(failed)
}

fn start_server(binary: &Path, access: Access, log: &Path) -> Result<(Ended, SocketAddr)> {
    let log = std::fs::File::create(log).context("the log of the server")?;
    let mut command = Command::new(binary);
    command.args(["serve", "--ephemeral", "--no-https", "--http", "127.0.0.1:0", "--ready-json"]);
    if access == Access::NoAuthentication {
        command.arg("--no-auth");
    }
    let mut child = command
        .env_remove("HEADWATER_KEY")
        .env("HEADWATER_LOG", "headwater_server::requests=info")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .with_context(|| format!("{} cannot be started", binary.display()))?;
    let output = child.stdout.take().context("the output was not piped")?;
    let server = Ended(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line).context("the ready line")?;
    let ready: serde_json::Value =
        serde_json::from_str(&line).with_context(|| format!("the ready line {line:?}"))?;
    let url = ready["http"].as_str().unwrap_or_default();
    let address = url.trim_start_matches("http://").parse();
    Ok((server, address.with_context(|| format!("the server's address {url:?}"))?))
}

/// Creates a container with one order.
fn fill(server: SocketAddr) -> Result<()> {
    send(server, "POST /dbs", "", r#"{"id":"shop"}"#)?;
    let container =
        r#"{"id":"orders","partitionKey":{"paths":["/customer"],"kind":"Hash","version":2}}"#;
    send(server, "POST /dbs/shop/colls", "", container)?;
    let key = "x-ms-documentdb-partitionkey: [\"ann\"]\r\n";
    send(server, "POST /dbs/shop/colls/orders/docs", key, r#"{"id":"1","customer":"ann"}"#)?;
    Ok(())
}

/// Starts Chromium with an empty profile in which `*.test` resolves to this machine.
fn start_browser(home: &Path, url: &str) -> Result<Ended> {
    let log = std::fs::File::create(home.join("chromium.log")).context("the browser's log")?;
    let browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg("--host-resolver-rules=MAP *.test 127.0.0.1")
        .arg(format!("--user-data-dir={}", home.join("profile").display()))
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn();
    browser.map(Ended).context("chromium cannot be started; install Debian's package chromium")
}

/// Serves the page under each name, until the last one has reported.
fn collect(listener: &TcpListener, server: SocketAddr) -> Result<BTreeMap<String, Outcome>> {
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    let mut outcomes = BTreeMap::new();
    let mut waited = Duration::ZERO;
    while outcomes.len() < PAGES.len() {
        let Ok((mut browser, _)) = listener.accept() else {
            ensure!(waited < TIME_MAX, "only {:?} reported in time", outcomes.keys());
            #[expect(clippy::disallowed_methods, reason = "this program has no runtime")]
            std::thread::sleep(POLL); // tidy: allow this program has no runtime
            waited += POLL;
            continue;
        };
        browser.set_nonblocking(false)?;
        let Some(request) = Request::read(&mut browser) else { continue };
        let name = request.host().to_owned();
        match request.path() {
            "/page" => {
                answer(&mut browser, "200 OK", "text/html", &page(&name, server));
            }
            "/report" => {
                let outcome = serde_json::from_str(&request.text()).context("a page's report")?;
                let next = PAGES.iter().skip_while(|page| **page != name).nth(1);
                let next = next.map(|next| format!("http://{next}:{port}/page"));
                answer(
                    &mut browser,
                    "200 OK",
                    "text/plain",
                    &next.unwrap_or("about:blank".to_owned()),
                );
                outcomes.insert(name, outcome);
            }
            _ if name == "rebound.test" => request.pass_on(server, &mut browser)?,
            _ => answer(&mut browser, "404 Not Found", "text/plain", ""),
        }
    }
    Ok(outcomes)
}

fn page(name: &str, server: SocketAddr) -> String {
    let target = if name == "rebound.test" { String::new() } else { format!("http://{server}") };
    let named = format!("http://{name}:{}", server.port());
    let settings = serde_json::json!({
        "name": name,
        "target": target,
        "named": named,
        "token": format!("type%3Daad%26ver%3D1.0%26sig%3D{IDENTITY}"),
    });
    PAGE.replace("SETTINGS", &settings.to_string())
}

/// Returns the attempts of a page whose result is wrong.
fn judge(name: &str, outcome: Option<&Outcome>, databases: &str) -> Vec<String> {
    let Some(outcome) = outcome else { return vec!["it did not report".to_owned()] };
    let is_ours = name == "localhost";
    let mut problems = Vec::new();
    let reads =
        [("read", "\"shop\""), ("metrics", "headwater_requests_total"), ("events", "event ")];
    for (what, secret) in reads {
        let got = outcome.get(what).map_or("nothing", String::as_str);
        if got.contains(secret) != is_ours {
            problems.push(format!("{what}: {}", got.chars().take(200).collect::<String>()));
        }
    }
    for how in ["write", "plain", "named", "form"] {
        if databases.contains(&format!("\"{name}-{how}\"")) != is_ours {
            let done = if is_ours { "was not created" } else { "was created" };
            let got = outcome.get(how).map_or("nothing", String::as_str);
            problems.push(format!("the database {name}-{how} {done}: {got}"));
        }
    }
    problems
}

/// Returns the requests without an origin that the server did not refuse, according to its log.
fn judge_probes(name: &str, log: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (how, path) in [
        ("image", format!("/dbs/{name}-image")),
        ("script", format!("/dbs/{name}-script")),
        ("opaque", format!("/dbs/{name}-opaque")),
        ("token", format!("/_headwater/changes/shop/{name}-token")),
    ] {
        let line = log.lines().find(|line| line.contains(&format!("path=\"{path}\"")));
        match line {
            Some(line) if line.contains(" status=403 ") => {}
            Some(line) => problems.push(format!("{how} is not refused: {line}")),
            None => problems.push(format!("{how} did not reach the server")),
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(read: &str, metrics: &str, events: &str) -> Outcome {
        let all = [("read", read), ("metrics", metrics), ("events", events)];
        all.into_iter().map(|(what, got)| (what.to_owned(), got.to_owned())).collect()
    }

    #[test]
    fn a_foreign_page_must_get_nothing_and_ours_everything() {
        let nothing = outcome("failed: TypeError", "403 {}", "error");
        let all = outcome("200 {\"id\":\"shop\"}", "200 headwater_requests_total 1", "event {}");
        let written = r#""localhost-write""localhost-plain""localhost-named""localhost-form""#;
        assert_eq!(judge("evil.test", Some(&nothing), written), [""; 0]);
        assert_eq!(judge("localhost", Some(&all), written), [""; 0]);
        assert_eq!(judge("evil.test", Some(&all), r#""evil.test-form""#).len(), 4);
        assert_eq!(judge("localhost", Some(&nothing), "").len(), 7);
        assert_eq!(judge("rebound.test", None, "").len(), 1);
    }

    #[test]
    fn requests_without_an_origin_must_be_refused() {
        let line = |path: &str, status| {
            format!("answered verb=GET path=\"{path}\" status={status} micros=1\n")
        };
        let refused =
            ["/dbs/a-image", "/dbs/a-script", "/dbs/a-opaque"].map(|path| line(path, 403));
        let token = "/_headwater/changes/shop/a-token";
        let log = refused.concat();
        assert_eq!(judge_probes("a", &(log.clone() + &line(token, 403))), [""; 0]);
        assert_eq!(judge_probes("a", &(log.clone() + &line(token, 404))).len(), 1);
        assert_eq!(judge_probes("a", &log).len(), 1);
    }
}
