//! Redis Streams with a sync per append: one stream, one entry per item.
//!
//! Its protocol is one form: a request is a list of texts, an answer is a tree of lists and texts. An
//! answer is never built, only walked to its end.

use super::Server;
use super::catalogue::Program;
use super::process::{Process, free_address};
use super::stream::Stream;
use crate::commands::bench::harness::{Harness, rate};
use crate::commands::bench::http::load::{self, Channel, Requests, Target, Until};
use crate::commands::bench::http::{self, MANY, SEEN_WRITES};
use crate::commands::bench::workload::{Key, Workload};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Entries of a page.
const PAGE_ITEMS: usize = 1000;

/// A running Redis.
pub(super) struct Redis {
    process: Process,
    target: Target,
    appends: Requests,
}

impl Redis {
    pub(super) fn start(harness: &Harness, program: &Program) -> Result<Redis> {
        let (address, dir) = (free_address()?, harness.dir("redis"));
        std::fs::create_dir_all(&dir)?;
        let password = format!("{:032x}", harness.clock.random_u128());
        let file = dir.join("redis.conf");
        write_private(&file, &settings(address.port(), &password))?;
        let mut command = program.command();
        command.arg(&file).current_dir(&dir);
        let mut process = Process::start(harness, "redis", command, Signal::KILL)?;
        process.wait_until_listening(harness, address)?;
        Ok(Redis { process, target: Target { address, password }, appends: appends() })
    }
}

/// Nothing that would cost it time without making it more durable.
fn settings(port: u16, password: &str) -> String {
    format!(
        "bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave \"\"\nappendonly yes\n\
         appendfsync always\nauto-aof-rewrite-percentage 0\n"
    )
}

/// A file that only we can read.
fn write_private(path: &std::path::Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

fn appends() -> Requests {
    let (workload, written) = (Workload::new(), AtomicU64::new(0));
    Arc::new(move |_| {
        let number = written.fetch_add(1, Ordering::Relaxed);
        let customer = Key::of(number).customer;
        append(customer.as_bytes(), &workload.body(number, 0))
    })
}

/// Two fields, so that an entry can be told from its fields by the length of the list.
fn append(customer: &[u8], body: &[u8]) -> Vec<u8> {
    request(&[b"XADD", b"orders", b"*", b"customer", customer, b"body", body])
}

fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// How far an answer has been walked.
#[derive(Debug)]
struct Walk {
    at: usize,
    /// Values that are still to come.
    pending: u64,
    entries: usize,
    /// Where the id of the newest entry begins and ends.
    id: (usize, usize),
    id_is_next: bool,
}

impl Walk {
    fn new() -> Walk {
        Walk { at: 0, pending: 1, entries: 0, id: (0, 0), id_is_next: false }
    }

    /// Goes on as far as the bytes reach; whether the answer has ended.
    fn go(&mut self, bytes: &[u8]) -> Result<bool> {
        while self.pending > 0 {
            let rest = &bytes[self.at.min(bytes.len())..];
            let Some(line) = rest.windows(2).position(|window| window == b"\r\n") else {
                return Ok(false);
            };
            let text = std::str::from_utf8(&rest[..line])?;
            let Some((kind, value)) = text.split_at_checked(1) else {
                bail!("an answer of Redis has an empty line");
            };
            let begin = self.at + line + 2;
            match kind {
                "+" | ":" => self.at = begin,
                "-" => bail!("Redis says: {value}"),
                "$" => {
                    // Minus one is the absence of a text.
                    let length = usize::try_from(value.parse::<i64>()?);
                    let end = length.map_or(begin, |length| begin + length + 2);
                    if end > bytes.len() {
                        return Ok(false);
                    }
                    if std::mem::take(&mut self.id_is_next) {
                        self.id = (begin, end.saturating_sub(2));
                        self.entries += 1;
                    }
                    self.at = end;
                }
                "*" => {
                    let length = u64::try_from(value.parse::<i64>()?).unwrap_or(0);
                    ensure!(length < 1 << 20, "a list of {length} values");
                    self.pending += length;
                    self.id_is_next = length == 2;
                    self.at = begin;
                }
                _ => bail!("an answer of Redis begins with {kind:?}"),
            }
            self.pending -= 1;
        }
        Ok(true)
    }
}

/// A connection to Redis.
struct Connection(Stream);

impl Connection {
    /// How many stream entries the answer has, and the id of the last one.
    async fn ask(&mut self, request: &[u8]) -> Result<(usize, Vec<u8>)> {
        self.0.send(request).await?;
        let mut walk = Walk::new();
        while !walk.go(self.0.bytes())? {
            self.0.fill().await?;
        }
        let id = self.0.bytes()[walk.id.0..walk.id.1].to_vec();
        self.0.consume(walk.at);
        Ok((walk.entries, id))
    }
}

impl Channel for Connection {
    async fn open(target: &Target) -> Result<Connection> {
        let mut connection = Connection(Stream::new(load::connect(target.address).await?));
        connection.ask(&request(&[b"AUTH", target.password.as_bytes()])).await?;
        Ok(connection)
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.ask(request).await.map(drop)
    }
}

impl Server for Redis {
    fn fill(&self, harness: &Harness) -> Result<()> {
        http::fill::<Connection>(harness, &self.target, "redis", &self.appends)
    }

    fn writes(&self, harness: &Harness) -> Result<Option<f64>> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        let (requests, until) = (self.appends.clone(), Until::Elapsed(harness.plan.window));
        let load =
            async move { load::run::<Connection>(&clock, &target, MANY, until, requests).await };
        harness.run(load).map(Some)
    }

    /// A stream has no keys.
    fn reads(&self, _: &Harness) -> Result<Option<f64>> {
        Ok(None)
    }

    fn feed(&self, harness: &Harness) -> Result<Option<f64>> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        let items = usize::try_from(harness.plan.items)?;
        let read = async move {
            let mut connection = Connection::open(&target).await?;
            let (mut read, mut from) = (0, b"-".to_vec());
            let count = PAGE_ITEMS.to_string();
            let started = clock.elapsed();
            while read < items {
                let page =
                    request(&[b"XRANGE", b"orders", &from, b"+", b"COUNT", count.as_bytes()]);
                let (entries, last) = connection.ask(&page).await?;
                ensure!(entries > 0, "the stream ended after {read} entries");
                from = [&b"("[..], &last].concat();
                read += entries;
            }
            Ok::<_, anyhow::Error>(rate(read as u64, clock.elapsed() - started))
        };
        harness.run(read).map(Some)
    }

    fn visible(&self, harness: &Harness) -> Result<Option<f64>> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        let measure = async move {
            let mut reader = Connection::open(&target).await?;
            let mut writer = Connection::open(&target).await?;
            let newest = request(&[b"XREVRANGE", b"orders", b"+", b"-", b"COUNT", b"1"]);
            let (_, mut last) = reader.ask(&newest).await?;
            let write = append(b"x", &[b'x'; 1000]);
            let mut seen_after = Vec::new();
            for _ in 0..SEEN_WRITES {
                let waiting =
                    request(&[b"XREAD", b"BLOCK", b"10000", b"STREAMS", b"orders", &last]);
                let pause = clock.sleep(Duration::from_millis(2));
                let writing = async {
                    pause.await;
                    let began = clock.elapsed();
                    writer.ask(&write).await.map(|_| began)
                };
                let reading = async {
                    let (_, id) = reader.ask(&waiting).await?;
                    Ok::<_, anyhow::Error>((clock.elapsed(), id))
                };
                let (began, read) = tokio::join!(writing, reading);
                let (seen, id) = read?;
                last = Some(id).filter(|id| !id.is_empty()).context("no entry came")?;
                seen_after.push(seen.saturating_sub(began?).as_secs_f64() * 1e6);
            }
            Ok::<_, anyhow::Error>(http::p99(seen_after))
        };
        harness.run(measure).map(Some)
    }

    fn memory(&self, _: &Harness) -> Result<Option<f64>> {
        self.process.resident_bytes().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_list_of_texts() {
        assert_eq!(request(&[b"AUTH", b"x y"]), b"*2\r\n$4\r\nAUTH\r\n$3\r\nx y\r\n");
    }

    const PAGE: &[u8] =
        b"*2\r\n*2\r\n$3\r\n1-0\r\n*4\r\n$1\r\na\r\n$4\r\nx\r\ny\r\n$1\r\nb\r\n$0\r\n\r\n\
                          *2\r\n$3\r\n1-1\r\n*4\r\n$1\r\na\r\n$1\r\nx\r\n$1\r\nb\r\n$1\r\ny\r\n";

    /// Walks an answer that comes byte by byte, followed by another one.
    #[track_caller]
    fn check(answer: &[u8], entries: usize, id: &str) {
        let mut walk = Walk::new();
        for length in 0..answer.len() {
            assert!(!walk.go(&answer[..length]).unwrap(), "ended after {length} bytes");
        }
        let more = [answer, b"+OK\r\n"].concat();
        assert!(walk.go(&more).unwrap());
        assert_eq!((walk.at, walk.entries), (answer.len(), entries));
        assert_eq!(&answer[walk.id.0..walk.id.1], id.as_bytes());
    }

    #[test]
    fn answers_end_where_they_end_however_they_arrive() {
        check(b"+OK\r\n", 0, "");
        check(b":1\r\n", 0, "");
        check(b"$-1\r\n", 0, "");
        check(b"*-1\r\n", 0, "");
        check(b"*0\r\n", 0, "");
        check(b"$3\r\n1-0\r\n", 0, "");
        // A page of two entries has a list of two around it, whose first value is no text.
        check(PAGE, 2, "1-1");
    }

    #[test]
    fn what_waiting_readers_get_is_understood() {
        let waiting =
            b"*1\r\n*2\r\n$6\r\norders\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*4\r\n$1\r\na\r\n$1\r\nx\r\n\
                        $1\r\nb\r\n$1\r\ny\r\n";
        let mut walk = Walk::new();
        assert!(walk.go(waiting).unwrap());
        assert_eq!(&waiting[walk.id.0..walk.id.1], b"7-0");
    }

    #[test]
    fn errors_and_nonsense_are_errors() {
        for answer in [&b"-ERR no\r\n"[..], b"?\r\n", b"\r\n", b"*9999999999\r\n", b"$x\r\n"] {
            assert!(Walk::new().go(answer).is_err(), "{answer:?}");
        }
    }
}
