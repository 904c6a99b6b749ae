//! SQLite with the items as JSON text: a primary key of two texts, an index of an expression.
//!
//! A library has no wire, so it stands behind the bare hyper server of `bench http`: every request is the
//! name of a question and its values, every answer a JSON array. Each connection has its own handle, and
//! nothing is written while it is asked.

use super::Database;
use super::asked::{Asked, Orders, Value};
use crate::commands::bench::harness::{Harness, bar};
use crate::commands::bench::http::load::{self, Connection, Target, Until};
use crate::commands::bench::http::{MANY, Process, bare};
use crate::commands::bench::workload::Key;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use rusqlite::{Connection as Handle, OpenFlags, params};
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Rows of a transaction while the table is filled.
const FILL_ROWS: u64 = 1_000;
/// More than any database here has.
const MAPPED_BYTES: i64 = 16 << 30;

/// A filled database and the server in front of it.
pub(super) struct Sqlite {
    process: Process,
    orders: Orders,
}

impl Sqlite {
    pub(super) fn start(harness: &Harness, orders: &Orders) -> Result<Sqlite> {
        let dir = harness.dir("sqlite");
        std::fs::create_dir_all(&dir)?;
        let file = dir.join("items.db");
        fill(harness, &file, orders)?;
        let file = file.to_str().context("the directory is not UTF-8")?;
        let process = Process::start(harness, &["bench", "sqlite-http", file])?;
        Ok(Sqlite { process, orders: orders.clone() })
    }
}

/// The version that is compiled in.
pub(super) fn version() -> String {
    format!("SQLite {}", rusqlite::version())
}

fn fill(harness: &Harness, file: &Path, orders: &Orders) -> Result<()> {
    let mut handle = Handle::open(file)?;
    handle.pragma_update(None, "journal_mode", "WAL")?;
    handle.pragma_update(None, "synchronous", "OFF")?;
    handle.execute_batch(
        "CREATE TABLE items (customer TEXT, id TEXT, body TEXT, PRIMARY KEY (customer, id))",
    )?;
    let items = harness.plan.items;
    let bar = bar(items, "filling sqlite", "items");
    for first in (0..items).step_by(usize::try_from(FILL_ROWS)?) {
        harness.check_interrupted()?;
        let transaction = handle.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO items VALUES (?, ?, ?)")?;
            for number in first..(first + FILL_ROWS).min(items) {
                let (key, body) = (Key::of(number), String::from_utf8(orders.body(number))?);
                insert.execute(params![key.customer, key.id, body])?;
            }
        }
        transaction.commit()?;
        bar.inc(FILL_ROWS);
    }
    handle.execute_batch(
        "CREATE INDEX items_rank ON items (json_extract(body, '$.rank')); ANALYZE",
    )?;
    handle.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    bar.finish_and_clear();
    Ok(())
}

/// The server, until its process is ended. Each connection has a handle of its own.
pub(crate) fn serve(file: &Path) -> Result<()> {
    bare::serve(|| {
        let handle = Arc::new(Mutex::new(open(file)?));
        Ok(move |request| answer(request, handle.clone()))
    })
}

fn open(file: &Path) -> Result<Handle> {
    let handle = Handle::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    handle.pragma_update(None, "mmap_size", MAPPED_BYTES)?;
    Ok(handle)
}

async fn answer(
    request: Request<Incoming>,
    handle: Arc<Mutex<Handle>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
    let found = body.map_err(anyhow::Error::from).and_then(|body| ask(&handle, &body));
    let mut response = match &found {
        Ok((text, _)) => Response::new(Full::new(Bytes::from(text.clone()))),
        Err(error) => Response::new(Full::new(Bytes::from(format!("{error:#}")))),
    };
    match found {
        Ok((_, rows)) => {
            response.headers_mut().insert("x-ms-item-count", rows.into());
        }
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    Ok(response)
}

/// The rows of a question as a JSON array, and how many there are.
fn ask(handle: &Handle, request: &[u8]) -> Result<(Vec<u8>, u64)> {
    let mut lines = std::str::from_utf8(request)?.lines();
    let asked = lines.next().and_then(Asked::of_name).context("no such question")?;
    let mut statement = handle.prepare_cached(asked.sqlite())?;
    for (place, value) in (1..=asked.parameters()).zip(lines) {
        match value.parse::<i64>().ok().filter(|_| asked != Asked::Scan && asked != Asked::Point) {
            Some(number) => statement.raw_bind_parameter(place, number)?,
            None => statement.raw_bind_parameter(place, value)?,
        }
    }
    let mut rows = statement.raw_query();
    let (mut text, mut count) = (vec![b'['], 0);
    while let Some(row) = rows.next()? {
        if count > 0 {
            text.push(b',');
        }
        text.extend_from_slice(row.get_ref(0)?.as_bytes()?);
        count += 1;
    }
    text.push(b']');
    Ok((text, count))
}

fn request(asked: Asked, values: &[Value]) -> Vec<u8> {
    let lines: Vec<String> =
        std::iter::once(asked.name().to_owned()).chain(values.iter().map(Value::plain)).collect();
    let body = lines.join("\n");
    let head =
        format!("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n", body.len());
    [head, body].concat().into_bytes()
}

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn rows(&mut self, harness: &Harness, asked: Asked, number: u64) -> Result<u64> {
        let request = request(asked, &self.orders.values(asked, number));
        let address = self.process.address;
        harness.run(async move {
            let got = Connection::open(address).await?.ask(&request).await?;
            ensure!(got.status == 200, "SQLite answered with status {}", got.status);
            Ok(got.items)
        })
    }

    fn rate(&self, harness: &Harness, asked: Asked) -> Result<f64> {
        let (clock, target) = (harness.clock.clone(), Target::at(self.process.address));
        let (orders, until) = (self.orders.clone(), Until::Elapsed(harness.plan.window));
        let requests = Arc::new(move |number| request(asked, &orders.values(asked, number)));
        harness.run(
            async move { load::run::<Connection>(&clock, &target, MANY, until, requests).await },
        )
    }

    fn cpu(&self) -> Result<Duration> {
        self.process.cpu()
    }
}
