//! The few messages of PostgreSQL's protocol (version 3) that a load needs: a password, a query, a
//! prepared statement, and the stream of logical replication. Answers are looked at, never kept.
//!
//! A message is one byte of kind, four of length (its own included) and a body. Every answer to a request
//! ends with `Z`, ready for the next one.

use super::super::stream::Stream;
use crate::commands::bench::http::load::{self, Channel, Target};
use anyhow::{Context, Result, bail, ensure};

pub(in crate::commands::bench) const USER: &str = "headwater";
/// Version 3.0, as every server since 2003 understands it.
const VERSION: i32 = 196_608;
/// Kind and length of a message.
const HEAD_BYTES: usize = 5;
/// What stands before the row of an `XLogData` message: its kind, two positions, a time.
const CHANGE_AT: usize = 25;

/// A statement that every connection has prepared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Statement {
    Insert,
    Select,
}

impl Statement {
    const ALL: [Statement; 2] = [Statement::Insert, Statement::Select];

    fn name(self) -> &'static str {
        match self {
            Statement::Insert => "insert",
            Statement::Select => "select",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Statement::Insert => "INSERT INTO items VALUES ($1, $2, $3)",
            Statement::Select => "SELECT body FROM items WHERE customer = $1 AND id = $2",
        }
    }
}

/// A message with its length.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&length(body.len() + 4));
    bytes.extend_from_slice(body);
    bytes
}

fn length(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_be_bytes()
}

/// Texts with a zero behind each.
fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| text.bytes().chain([0])).collect()
}

/// The first message of a connection, which has no kind.
fn hello(replication: bool) -> Vec<u8> {
    let mut body = VERSION.to_be_bytes().to_vec();
    body.extend(texts(&["user", USER, "database", "postgres"]));
    if replication {
        body.extend(texts(&["replication", "database"]));
    }
    body.push(0);
    let mut bytes = length(body.len() + 4).to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

/// Runs a prepared statement with these values.
pub(super) fn execute(statement: Statement, values: &[&[u8]]) -> Vec<u8> {
    execute_as(statement.name(), values)
}

/// Runs the statement that was prepared under a name.
pub(in crate::commands::bench) fn execute_as(name: &str, values: &[&[u8]]) -> Vec<u8> {
    // No name for the portal, all values as text.
    let mut bind = texts(&["", name]);
    bind.extend_from_slice(&0_i16.to_be_bytes());
    bind.extend_from_slice(&i16::try_from(values.len()).unwrap_or(i16::MAX).to_be_bytes());
    for value in values {
        bind.extend_from_slice(&length(value.len()));
        bind.extend_from_slice(value);
    }
    bind.extend_from_slice(&0_i16.to_be_bytes());
    let mut bytes = message(b'B', &bind);
    bytes.extend(message(b'E', &[0; 5]));
    bytes.extend(message(b'S', &[]));
    bytes
}

/// Prepares a statement under a name.
pub(in crate::commands::bench) fn prepare_as(name: &str, text: &str) -> Vec<u8> {
    let mut body = texts(&[name, text]);
    body.extend_from_slice(&0_i16.to_be_bytes());
    let mut bytes = message(b'P', &body);
    bytes.extend(message(b'S', &[]));
    bytes
}

/// The sentence in an error message: fields of one byte and a text each, `M` is the one for people.
fn error_text(body: &[u8]) -> String {
    let mut fields = body.split(|byte| *byte == 0);
    let text = fields.find_map(|field| field.strip_prefix(b"M"));
    String::from_utf8_lossy(text.unwrap_or(b"an error without a text")).into_owned()
}

/// How many rows `INSERT 0 1` or `SELECT 1` speaks of.
fn rows_of(tag: &[u8]) -> Option<u64> {
    let tag = std::str::from_utf8(tag).ok()?.trim_end_matches('\0');
    tag.rsplit(' ').next()?.parse().ok()
}

/// A connection on which statements are run.
pub(in crate::commands::bench) struct Connection(Stream);

impl Connection {
    /// Introduces itself and does nothing more.
    pub(in crate::commands::bench) async fn connect(target: &Target) -> Result<Connection> {
        Connection::begin(target, false).await
    }

    async fn begin(target: &Target, replication: bool) -> Result<Connection> {
        let mut connection = Connection(Stream::new(load::connect(target.address).await?));
        connection.0.send(&hello(replication)).await?;
        loop {
            let (kind, bytes) = connection.message().await?;
            let body = &connection.0.bytes()[HEAD_BYTES..bytes];
            let asked = body.first_chunk().map(|code| i32::from_be_bytes(*code));
            let asked = asked.filter(|_| kind == b'R');
            connection.0.consume(bytes);
            match (kind, asked) {
                (b'R', Some(0)) => {}
                (b'R', Some(3)) => {
                    let password = message(b'p', &texts(&[&target.password]));
                    connection.0.send(&password).await?;
                }
                (b'R', _) => bail!("PostgreSQL wants to know who we are in an unknown way"),
                (b'Z', _) => return Ok(connection),
                _ => {}
            }
        }
    }

    /// Waits for a whole message, which stays to be consumed; an error if it is one.
    async fn message(&mut self) -> Result<(u8, usize)> {
        self.0.need(HEAD_BYTES).await?;
        let head = self.0.bytes();
        let kind = head[0];
        let length = head[1..].first_chunk().map_or(0, |length| i32::from_be_bytes(*length));
        let bytes = usize::try_from(length).ok().filter(|length| *length >= 4);
        let bytes = bytes.context("a message of PostgreSQL has no length")? + 1;
        self.0.need(bytes).await?;
        if kind == b'E' {
            let text = error_text(&self.0.bytes()[HEAD_BYTES..bytes]);
            bail!("PostgreSQL says: {text}");
        }
        Ok((kind, bytes))
    }

    /// Reads until it is ready again; how many rows were read or written.
    async fn finish(&mut self) -> Result<Option<u64>> {
        let mut rows = None;
        loop {
            let (kind, bytes) = self.message().await?;
            if kind == b'C' {
                rows = rows_of(&self.0.bytes()[HEAD_BYTES..bytes]);
            }
            self.0.consume(bytes);
            if kind == b'Z' {
                return Ok(rows);
            }
        }
    }

    /// Runs a statement given as text.
    pub(in crate::commands::bench) async fn query(&mut self, text: &str) -> Result<Option<u64>> {
        self.0.send(&message(b'Q', &texts(&[text]))).await?;
        self.finish().await
    }
}

impl Connection {
    /// Sends messages and reads until it is ready again; how many rows that was about.
    pub(in crate::commands::bench) async fn ask(&mut self, messages: &[u8]) -> Result<Option<u64>> {
        self.0.send(messages).await?;
        self.finish().await
    }
}

impl Channel for Connection {
    async fn open(target: &Target) -> Result<Connection> {
        let mut connection = Connection::connect(target).await?;
        for statement in Statement::ALL {
            connection.0.send(&prepare_as(statement.name(), statement.text())).await?;
            connection.finish().await?;
        }
        Ok(connection)
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<()> {
        let rows = self.ask(request).await?;
        ensure!(rows == Some(1), "a statement was about {rows:?} rows instead of one");
        Ok(())
    }
}

/// The rows that logical decoding sends.
pub(super) struct Changes(Connection);

impl Changes {
    /// From where the slot stands.
    pub(super) async fn follow(target: &Target, slot: &str) -> Result<Changes> {
        let connection = Connection::begin(target, true).await?;
        Changes::start(connection, slot).await
    }

    async fn start(mut connection: Connection, slot: &str) -> Result<Changes> {
        let start = format!(
            "START_REPLICATION SLOT {slot} LOGICAL 0/0 \
             (proto_version '1', publication_names 'feed')"
        );
        connection.0.send(&message(b'Q', &texts(&[&start]))).await?;
        let (kind, bytes) = connection.message().await?;
        ensure!(kind == b'W', "PostgreSQL does not begin to send changes");
        connection.0.consume(bytes);
        Ok(Changes(connection))
    }

    /// From now on, with a slot that lives as long as the connection.
    pub(super) async fn follow_from_now(target: &Target, slot: &str) -> Result<Changes> {
        let mut connection = Connection::begin(target, true).await?;
        let create = format!("CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL pgoutput");
        connection.query(&create).await?;
        Changes::start(connection, slot).await
    }

    /// Waits for the next inserted row.
    pub(super) async fn next(&mut self) -> Result<()> {
        loop {
            let (kind, bytes) = self.0.message().await?;
            let is_row = kind == b'd' && is_insert(&self.0.0.bytes()[HEAD_BYTES..bytes]);
            self.0.0.consume(bytes);
            if is_row {
                return Ok(());
            }
        }
    }
}

/// Whether data of a replication stream is a row that was inserted (and not the beginning or the end of
/// a transaction, a description of a table, or a sign of life).
fn is_insert(data: &[u8]) -> bool {
    data.first() == Some(&b'w') && data.get(CHANGE_AT) == Some(&b'I')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_their_length() {
        assert_eq!(message(b'S', &[]), [b'S', 0, 0, 0, 4]);
        assert_eq!(message(b'Q', b"x\0"), [b'Q', 0, 0, 0, 6, b'x', 0]);
        let hello = hello(true);
        assert_eq!(usize::from(hello[3]), hello.len());
        assert!(hello.ends_with(b"replication\0database\0\0"));
    }

    #[test]
    fn a_prepared_statement_is_bound_executed_and_ended() {
        let bytes = execute(Statement::Select, &[b"ab", b"c"]);
        let bind = b"B\0\0\0\x1d\0select\0\0\0\0\x02\0\0\0\x02ab\0\0\0\x01c\0\0";
        let expected = [&bind[..], b"E\0\0\0\x09\0\0\0\0\0", b"S\0\0\0\x04"].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn errors_and_tags_are_understood() {
        let error = b"SERROR\0VERROR\0C42P01\0Mrelation \"x\" does not exist\0\0";
        assert_eq!(error_text(error), "relation \"x\" does not exist");
        assert_eq!(error_text(b""), "an error without a text");
        assert_eq!(rows_of(b"INSERT 0 1\0"), Some(1));
        assert_eq!(rows_of(b"SELECT 0\0"), Some(0));
        assert_eq!(rows_of(b"CHECKPOINT\0"), None);
    }

    #[test]
    fn only_inserted_rows_count() {
        let change = |kind| [&b"w"[..], &[0; 24], &[kind], b"rest"].concat();
        assert!(is_insert(&change(b'I')));
        for other in *b"BCRUDOTY" {
            assert!(!is_insert(&change(other)), "{other}");
        }
        assert!(!is_insert(b"k"));
        assert!(!is_insert(b""));
        let life = [&b"k"[..], &[0; 24], b"I"].concat();
        assert!(!is_insert(&life));
    }
}
