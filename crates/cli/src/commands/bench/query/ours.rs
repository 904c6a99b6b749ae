//! Our own server with four partitions, asked over HTTP as an SDK asks it.
//!
//! The container has the default policy less `/address/*`, so that the scan has to be one. Indexes are made
//! for what is asked, so each question is asked once and then waited for.

use super::Database;
use super::asked::{Asked, Orders, Value};
use crate::commands::bench::harness::{Harness, bar};
use crate::commands::bench::http::load::{self, Connection, Requests, Signer, Target, Until};
use crate::commands::bench::http::{self, MANY, Process};
use crate::commands::bench::workload::BODY_BYTES;
use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The container that is asked.
const ORDERS: &str = "orders";
const POLICY: &str = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/address/*"}]}"#;
/// The default policy, as a container without one gets it.
const EVERYTHING: &str = r#"{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"}]}"#;
const NOTHING: &str = r#"{"indexingMode":"none","automatic":false}"#;
/// Items of a container before the cost of writes is measured: enough for indexes to be worth it.
const WRITTEN_BEFORE: u64 = 5_000;
/// What is asked of the containers that are written to; each makes an index.
const FILTERS: [&str; 3] =
    ["c.rank = 1", "c.placed = \"2026-13-01\"", "c.revision = \"r99999999\""];
/// Rows on a page.
const PAGE_ROWS: u64 = 1_000;
/// How often the progress of an index is looked at.
const LOOKS_MAX: u32 = 6_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A server with a filled container.
pub(super) struct Ours {
    process: Process,
    signer: Signer,
    orders: Orders,
}

impl Ours {
    pub(super) fn start(harness: &Harness, orders: &Orders) -> Result<Ours> {
        let process = Process::serve_with(harness, &harness.dir("ours"), &["--partitions", "4"])?;
        let signer = Signer::new(&harness.clock)?;
        let ours = Ours { process, signer, orders: orders.clone() };
        ours.post(harness, "/dbs", r#"{"id":"shop"}"#.to_owned())?;
        ours.create(harness, ORDERS, POLICY)?;
        let bar = bar(harness.plan.items, "filling ours", "items");
        ours.write(harness, ORDERS, 0..harness.plan.items, &|count| bar.inc(count))?;
        bar.finish_and_clear();
        Ok(ours)
    }

    fn post(&self, harness: &Harness, path: &'static str, body: String) -> Result<()> {
        let (signer, address) = (self.signer.clone(), self.process.address);
        harness.run(async move {
            let request = signer.request("POST", path, "", body.as_bytes());
            let got = Connection::open(address).await?.ask(&request).await?;
            ensure!(got.status == 201, "{path} answered with status {}", got.status);
            Ok(())
        })
    }

    fn create(&self, harness: &Harness, name: &str, policy: &str) -> Result<()> {
        let body = format!(
            r#"{{"id":"{name}","partitionKey":{{"paths":["/customer"],"kind":"Hash","version":2}},"indexingPolicy":{policy}}}"#
        );
        self.post(harness, "/dbs/shop/colls", body)
    }

    /// Creates items, `MANY` at a time.
    fn write(
        &self,
        harness: &Harness,
        container: &str,
        numbers: std::ops::Range<u64>,
        done: &dyn Fn(u64),
    ) -> Result<()> {
        const STEP: u64 = 5_000;
        let path = format!("/dbs/shop/colls/{container}/docs");
        // Every create has the same path, so one signature serves all of them.
        let head = self.signer.request("POST", &path, "", &[b'x'; BODY_BYTES]);
        let head = head[..head.len() - BODY_BYTES].to_vec();
        let (orders, next) = (self.orders.clone(), Arc::new(AtomicU64::new(numbers.start)));
        let requests: Requests = Arc::new(move |_| {
            let number = next.fetch_add(1, Ordering::Relaxed);
            [&head[..], &orders.body(number)].concat()
        });
        let mut at = numbers.start;
        while at < numbers.end {
            harness.check_interrupted()?;
            let step = (numbers.end - at).min(STEP);
            let (clock, target) = (harness.clock.clone(), Target::at(self.process.address));
            let (requests, until) = (requests.clone(), Until::Answered(step));
            harness.run(async move {
                load::run::<Connection>(&clock, &target, MANY, until, requests).await
            })?;
            at += step;
            done(step);
        }
        Ok(())
    }

    /// Asks what makes indexes, and waits until they are there.
    pub(super) fn make_indexes(&mut self, harness: &Harness) -> Result<()> {
        for asked in [Asked::Equality, Asked::Range] {
            self.rows(harness, asked, 0)?;
        }
        self.wait_for_indexes(harness, ORDERS)
    }

    fn wait_for_indexes(&self, harness: &Harness, container: &str) -> Result<()> {
        let path = format!("/dbs/shop/colls/{container}");
        let (clock, signer) = (harness.clock.clone(), self.signer.clone());
        let address = self.process.address;
        harness.run(async move {
            let mut connection = Connection::open(address).await?;
            for _ in 0..LOOKS_MAX {
                let got = connection.ask(&signer.request("GET", &path, "", b"")).await?;
                let indexed =
                    got.indexed.context("a container does not say how far its indexes are")?;
                if indexed == 100 {
                    return Ok(());
                }
                clock.sleep(BETWEEN_LOOKS).await;
            }
            bail!("the indexes of {path} are never ready")
        })
    }

    /// Point reads per second of the items that point queries ask for.
    pub(super) fn read_rate(&self, harness: &Harness) -> Result<f64> {
        let requests = http::in_turn(http::read_requests(harness, &self.signer));
        self.requests_per_second(harness, requests)
    }

    fn requests_per_second(&self, harness: &Harness, requests: Requests) -> Result<f64> {
        let (clock, address) = (harness.clock.clone(), self.process.address);
        let window = harness.plan.window;
        harness.run(async move { load::rate(&clock, address, MANY, window, requests).await })
    }

    fn query(&self, asked: Asked, number: u64, head: &str) -> Vec<u8> {
        let values = self.orders.values(asked, number);
        let key = match (asked, values.first()) {
            (Asked::Point, Some(key)) => {
                format!("x-ms-documentdb-partitionkey: [{}]\r\n", key.json())
            }
            _ => "x-ms-documentdb-query-enablecrosspartition: True\r\n".to_owned(),
        };
        let named = ["@a", "@b"].into_iter().zip(&values);
        let parameters: Vec<String> = named.map(|(name, value)| parameter(name, value)).collect();
        let body =
            format!(r#"{{"query":"{}","parameters":[{}]}}"#, asked.ours(), parameters.join(","));
        self.query_request(ORDERS, &format!("{key}{head}"), &body)
    }

    fn query_request(&self, container: &str, head: &str, body: &str) -> Vec<u8> {
        let head = format!(
            "Content-Type: application/query+json\r\nx-ms-documentdb-isquery: True\r\n\
             x-ms-max-item-count: {PAGE_ROWS}\r\n{head}"
        );
        let path = format!("/dbs/shop/colls/{container}/docs");
        self.signer.request("POST", &path, &head, body.as_bytes())
    }

    /// Two containers for the cost of writes: with indexes of three paths, and without any.
    pub(super) fn make_written(&self, harness: &Harness) -> Result<Written> {
        for (name, policy) in [("indexed", EVERYTHING), ("bare", NOTHING)] {
            self.create(harness, name, policy)?;
            self.write(harness, name, 0..WRITTEN_BEFORE, &|_| ())?;
        }
        self.ask_filters(harness, "indexed")?;
        self.wait_for_indexes(harness, "indexed")?;
        Ok(Written { next: WRITTEN_BEFORE })
    }

    fn ask_filters(&self, harness: &Harness, container: &str) -> Result<()> {
        let ask = |filter: &str| {
            let text = format!("SELECT VALUE 1 FROM c WHERE {filter}").replace('"', "'");
            let head = "x-ms-documentdb-query-enablecrosspartition: True\r\n";
            self.query_request(container, head, &format!(r#"{{"query":"{text}"}}"#))
        };
        let (requests, address) = (FILTERS.map(ask), self.process.address);
        harness.run(async move {
            let mut connection = Connection::open(address).await?;
            for request in requests {
                let got = connection.ask(&request).await?;
                ensure!(got.status == 200, "a filter answered with status {}", got.status);
            }
            Ok(())
        })
    }

    /// Microseconds of CPU per write with indexes that are up to date afterwards, and without any.
    pub(super) fn write_costs(
        &self,
        harness: &Harness,
        written: &mut Written,
        count: u64,
    ) -> Result<(f64, f64)> {
        let numbers = written.next..written.next + count;
        written.next += count;
        let cost = |container: &str| {
            let cpu = self.cpu()?;
            self.write(harness, container, numbers.clone(), &|_| ())?;
            if container == "indexed" {
                // An index reads what was written when it is asked, which is part of the price.
                self.ask_filters(harness, container)?;
            }
            let spent = self.cpu()?.saturating_sub(cpu);
            Ok::<f64, anyhow::Error>(spent.as_secs_f64() * 1e6 / count as f64)
        };
        Ok((cost("indexed")?, cost("bare")?))
    }
}

/// How many items the containers for the cost of writes have.
pub(super) struct Written {
    next: u64,
}

fn parameter(name: &str, value: &Value) -> String {
    format!(r#"{{"name":"{name}","value":{}}}"#, value.json())
}

impl Database for Ours {
    fn name(&self) -> &'static str {
        "headwater"
    }

    fn rows(&mut self, harness: &Harness, asked: Asked, number: u64) -> Result<u64> {
        let first = self.query(asked, number, "");
        let (mut rows, mut request) = (0, first);
        let address = self.process.address;
        let mut connection = harness.run(async move { Connection::open(address).await })?;
        loop {
            harness.check_interrupted()?;
            let (got, again) = harness.run(async move {
                let got = connection.ask(&request).await?;
                ensure!(got.status == 200, "{} answered with status {}", asked.name(), got.status);
                Ok((got, connection))
            })?;
            connection = again;
            rows += got.items;
            let Some(continuation) = got.continuation else { return Ok(rows) };
            request = self.query(asked, number, &format!("x-ms-continuation: {continuation}\r\n"));
        }
    }

    fn rate(&self, harness: &Harness, asked: Asked) -> Result<f64> {
        let count = 5_000.min(harness.plan.items);
        // Signed before, as signing is the client's work.
        let requests = (0..count).map(|number| self.query(asked, number, "")).collect();
        self.requests_per_second(harness, http::in_turn(requests))
    }

    fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sent_as_json() {
        assert_eq!(parameter("@a", &Value::Number(7)), r#"{"name":"@a","value":7}"#);
        let text = Value::Text("ann".to_owned());
        assert_eq!(parameter("@b", &text), r#"{"name":"@b","value":"ann"}"#);
    }
}
