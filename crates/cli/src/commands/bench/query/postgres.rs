//! PostgreSQL with the items as `jsonb`: a primary key of two texts, an index of an expression.
//!
//! Every question is prepared on every connection. No plan uses several processes: what is counted is the
//! CPU an answer takes, and helpers would end before they could be looked at.

use super::Database;
use super::asked::{Asked, Orders, Value};
use crate::commands::bench::harness::{Harness, bar};
use crate::commands::bench::http::MANY;
use crate::commands::bench::http::load::{self, Channel, Target, Until};
use crate::commands::bench::rivals::catalogue::Program;
use crate::commands::bench::rivals::postgres::Cluster;
use crate::commands::bench::rivals::postgres::wire::{Connection, execute_as, prepare_as};
use crate::commands::bench::workload::Key;
use anyhow::{Context, Result};
use std::sync::Arc;
use std::time::Duration;

/// Rows of a transaction while the table is filled.
const FILL_ROWS: u64 = 500;

const SCHEMA: &[&str] = &[
    "CREATE TABLE items (customer text, id text, body jsonb NOT NULL, PRIMARY KEY (customer, id))",
];
const FILLED: &[&str] = &[
    "CREATE INDEX items_rank ON items (((body->>'rank')::bigint))",
    "VACUUM ANALYZE items",
    "CHECKPOINT",
];

/// A filled cluster.
pub(super) struct Postgres {
    cluster: Cluster,
    orders: Orders,
    /// The connection whose questions are looked at one by one.
    connection: Option<Prepared>,
}

impl Postgres {
    pub(super) fn start(harness: &Harness, program: &Program, orders: &Orders) -> Result<Postgres> {
        let cluster = Cluster::start(harness, program, &["max_parallel_workers_per_gather=0"])?;
        cluster.make_schema(harness, SCHEMA)?;
        let (target, items, inside) = (cluster.target.clone(), harness.plan.items, orders.clone());
        let bar = bar(items, "filling postgres", "items");
        harness.run(async move {
            let mut connection = Connection::connect(&target).await?;
            for first in (0..items).step_by(usize::try_from(FILL_ROWS)?) {
                let numbers = first..(first + FILL_ROWS).min(items);
                connection.query(&insert_many(&inside, numbers)?).await?;
                bar.inc(FILL_ROWS);
            }
            for statement in FILLED {
                connection.query(statement).await?;
            }
            bar.finish_and_clear();
            Ok(())
        })?;
        Ok(Postgres { cluster, orders: orders.clone(), connection: None })
    }
}

/// One transaction of many rows.
fn insert_many(orders: &Orders, numbers: std::ops::Range<u64>) -> Result<String> {
    let mut text = String::from("INSERT INTO items VALUES ");
    for (place, number) in numbers.enumerate() {
        let body = String::from_utf8(orders.body(number))?;
        let key = Key::of(number);
        let comma = if place == 0 { "" } else { "," };
        text.push_str(&format!("{comma}('{}','{}','{body}')", key.customer, key.id));
    }
    Ok(text)
}

fn request(asked: Asked, values: &[Value]) -> Vec<u8> {
    let values: Vec<String> = values.iter().map(Value::plain).collect();
    let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
    execute_as(asked.name(), &values)
}

/// A connection that has prepared every question.
struct Prepared(Connection);

impl Channel for Prepared {
    async fn open(target: &Target) -> Result<Prepared> {
        let mut connection = Connection::connect(target).await?;
        for asked in Asked::ALL {
            connection.ask(&prepare_as(asked.name(), asked.postgres())).await?;
        }
        Ok(Prepared(connection))
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        self.0.ask(request).await.map(drop)
    }
}

impl Database for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn rows(&mut self, harness: &Harness, asked: Asked, number: u64) -> Result<u64> {
        let request = request(asked, &self.orders.values(asked, number));
        let (target, known) = (self.cluster.target.clone(), self.connection.take());
        let (rows, connection) = harness.run(async move {
            let mut connection = match known {
                Some(connection) => connection,
                None => Prepared::open(&target).await?,
            };
            let rows = connection.0.ask(&request).await?.context("no number of rows")?;
            Ok((rows, connection))
        })?;
        // It stays open, so that its CPU can be looked at.
        self.connection = Some(connection);
        Ok(rows)
    }

    fn rate(&self, harness: &Harness, asked: Asked) -> Result<f64> {
        let (clock, target) = (harness.clock.clone(), self.cluster.target.clone());
        let (orders, until) = (self.orders.clone(), Until::Elapsed(harness.plan.window));
        let requests = Arc::new(move |number| request(asked, &orders.values(asked, number)));
        harness
            .run(async move { load::run::<Prepared>(&clock, &target, MANY, until, requests).await })
    }

    fn cpu(&self) -> Result<Duration> {
        self.cluster.cpu()
    }
}
