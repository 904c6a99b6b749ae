//! PostgreSQL as a document store with a feed: one table, one publication, logical decoding.
//!
//! The cluster is private: its own directory, a random password, loopback only. It is durable as it comes
//! (fsync, synchronous commit, full page writes) and given what costs no durability: a large buffer, no
//! checkpoint and no vacuum while it is measured, prepared statements, a table filled in large
//! transactions so that decoding has little but rows to send. Bodies are `json`, which checks
//! them and keeps their text, as we do; `jsonb` would take more time.

pub(in crate::commands::bench) mod wire;

use super::Server;
use super::catalogue::{Program, said};
use super::process::{Process, free_address};
use crate::commands::bench::harness::{Harness, bar, rate};
use crate::commands::bench::http::load::{self, Channel, Requests, Target, Until};
use crate::commands::bench::http::{self, MANY, SEEN_WRITES, keys_to_read};
use crate::commands::bench::workload::{Key, Workload};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::{Changes, Connection, Statement};

/// Rows of a transaction while the table is filled.
const FILL_ROWS: u64 = 500;
/// How often a slot that is still in use is asked for again.
const SLOT_TRIES: u32 = 200;

const SCHEMA: &[&str] = &[
    "CREATE TABLE items (customer text, id text, body json NOT NULL, PRIMARY KEY (customer, id))",
    "CREATE PUBLICATION feed FOR TABLE items",
    "SELECT pg_create_logical_replication_slot('feed', 'pgoutput')",
];

/// A running cluster.
pub(in crate::commands::bench) struct Cluster {
    process: Process,
    pub(in crate::commands::bench) target: Target,
}

/// A cluster with one table and a feed.
pub(super) struct Postgres {
    _cluster: Cluster,
    target: Target,
    /// The number of the next item.
    written: Arc<AtomicU64>,
}

impl Cluster {
    /// Makes one with some settings and starts it.
    pub(in crate::commands::bench) fn start(
        harness: &Harness,
        program: &Program,
        more: &[&str],
    ) -> Result<Cluster> {
        let home = harness.dir("postgres");
        let password = format!("{:032x}", harness.clock.random_u128());
        let address = free_address()?;
        std::fs::create_dir_all(&home)?;
        std::fs::write(home.join("password"), &password)?;
        let user = user_to_run_as()?;
        hand_over(harness.root(), &home, user)?;
        let data = home.join("data");
        let mut initdb = program.sibling("initdb");
        initdb.arg("-D").arg(&data).arg("--pwfile").arg(home.join("password"));
        initdb.args(["-U", wire::USER, "-A", "password", "--encoding=UTF8", "--no-locale", "-N"]);
        said(as_user(initdb.current_dir(&home), user))
            .context("no cluster could be made; can the user it runs as reach --dir?")?;
        let mut command = program.command();
        command.arg("-D").arg(&data).current_dir(&home);
        for setting in settings(address.port()) {
            command.arg("-c").arg(setting);
        }
        for setting in more {
            command.arg("-c").arg(setting);
        }
        as_user(&mut command, user);
        // With this signal the whole cluster goes at once, its children included.
        let mut process = Process::start(harness, "postgres", command, Signal::QUIT)?;
        process.wait_until_listening(harness, address)?;
        Ok(Cluster { process, target: Target { address, password } })
    }

    /// CPU that its processes have taken, as far as they still run.
    pub(in crate::commands::bench) fn cpu(&self) -> Result<Duration> {
        self.process.cpu_of_children()
    }

    /// Runs statements. It listens a moment before it lets anybody in, so that is tried for a while.
    pub(in crate::commands::bench) fn make_schema(
        &self,
        harness: &Harness,
        statements: &'static [&'static str],
    ) -> Result<()> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        harness.run(async move {
            let mut tries = 0;
            let mut connection = loop {
                match Connection::connect(&target).await {
                    Ok(connection) => break connection,
                    Err(error) if tries > SLOT_TRIES => return Err(error),
                    Err(_) => tries += 1,
                }
                clock.sleep(Duration::from_millis(50)).await;
            };
            for statement in statements {
                connection.query(statement).await?;
            }
            Ok(())
        })
    }
}

impl Postgres {
    pub(super) fn start(harness: &Harness, program: &Program) -> Result<Postgres> {
        let cluster = Cluster::start(harness, program, &[])?;
        cluster.make_schema(harness, SCHEMA)?;
        let target = cluster.target.clone();
        Ok(Postgres { _cluster: cluster, target, written: Arc::default() })
    }

    fn inserts(&self) -> Requests {
        let (workload, written) = (Workload::new(), self.written.clone());
        Arc::new(move |_| {
            let number = written.fetch_add(1, Ordering::Relaxed);
            let (key, body) = (Key::of(number), workload.body(number, 0));
            wire::execute(Statement::Insert, &[key.customer.as_bytes(), key.id.as_bytes(), &body])
        })
    }

    fn rate(&self, harness: &Harness, requests: Requests) -> Result<Option<f64>> {
        let (clock, target) = (harness.clock.clone(), self.target.clone());
        let until = Until::Elapsed(harness.plan.window);
        let load =
            async move { load::run::<Connection>(&clock, &target, MANY, until, requests).await };
        harness.run(load).map(Some)
    }
}

/// What differs from the defaults.
fn settings(port: u16) -> Vec<String> {
    let port = format!("port={port}");
    let others = [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        "wal_level=logical",
        "max_connections=100",
        "shared_buffers=512MB",
        "max_wal_size=16GB",
        "checkpoint_timeout=1h",
        "autovacuum=off",
        "wal_sender_timeout=0",
    ];
    others.map(str::to_owned).into_iter().chain([port]).collect()
}

/// Whom the cluster runs as, when not as us: it refuses to run as root.
type User = Option<(u32, u32)>;

fn user_to_run_as() -> Result<User> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").context("cannot see who there is")?;
    let found = ["postgres", "nobody"].iter().find_map(|name| user_ids(&users, name));
    found.map(Some).context("PostgreSQL does not run as root, and there is no other user")
}

/// User and group of a name, as /etc/passwd has them.
fn user_ids(users: &str, name: &str) -> Option<(u32, u32)> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields.first() == Some(&name))?;
    Some((line.get(2)?.parse().ok()?, line.get(3)?.parse().ok()?))
}

/// Lets that user into its directory, past ours.
fn hand_over(root: &Path, home: &Path, user: User) -> Result<()> {
    std::fs::set_permissions(home, Permissions::from_mode(0o700))?;
    let Some((user, group)) = user else {
        return Ok(());
    };
    std::fs::set_permissions(root, Permissions::from_mode(0o711))?;
    for path in [home, &home.join("password")] {
        chown(path, Some(user), Some(group))
            .with_context(|| format!("cannot give {} away", path.display()))?;
    }
    Ok(())
}

fn as_user(command: &mut Command, user: User) -> &mut Command {
    if let Some((user, group)) = user {
        command.uid(user).gid(group);
    }
    command
}

/// One transaction of many rows.
fn insert_many(workload: &Workload, numbers: std::ops::Range<u64>) -> Result<String> {
    let mut text = String::from("INSERT INTO items VALUES ");
    for (place, number) in numbers.enumerate() {
        let (key, body) = (Key::of(number), String::from_utf8(workload.body(number, 0))?);
        ensure!(!body.contains('\''), "an item would have to be quoted");
        let comma = if place == 0 { "" } else { "," };
        text.push_str(&format!("{comma}('{}','{}','{body}')", key.customer, key.id));
    }
    Ok(text)
}

/// Starts to read a slot, which its last reader may not have left yet.
async fn follow(
    clock: &headwater_runtime::Runtime,
    target: &Target,
    slot: &str,
) -> Result<Changes> {
    for _ in 0..SLOT_TRIES {
        match Changes::follow(target, slot).await {
            Err(error) if error.to_string().contains("is active") => {}
            outcome => return outcome,
        }
        clock.sleep(Duration::from_millis(20)).await;
    }
    bail!("the slot {slot} stays in use")
}

impl Server for Postgres {
    fn fill(&self, harness: &Harness) -> Result<()> {
        let (target, written, items) =
            (self.target.clone(), self.written.clone(), harness.plan.items);
        let bar = bar(items, "filling postgres", "items");
        harness.run(async move {
            let (mut connection, workload) = (Connection::connect(&target).await?, Workload::new());
            for first in (0..items).step_by(usize::try_from(FILL_ROWS)?) {
                let numbers = first..(first + FILL_ROWS).min(items);
                connection.query(&insert_many(&workload, numbers)?).await?;
                bar.inc(FILL_ROWS);
            }
            connection.query("VACUUM ANALYZE items").await?;
            connection.query("CHECKPOINT").await?;
            written.store(items, Ordering::Relaxed);
            bar.finish_and_clear();
            Ok(())
        })
    }

    fn writes(&self, harness: &Harness) -> Result<Option<f64>> {
        self.rate(harness, self.inserts())
    }

    fn reads(&self, harness: &Harness) -> Result<Option<f64>> {
        let request = |key: Key| {
            wire::execute(Statement::Select, &[key.customer.as_bytes(), key.id.as_bytes()])
        };
        let requests = keys_to_read(harness.plan.items).map(request).collect();
        self.rate(harness, http::in_turn(requests))
    }

    fn feed(&self, harness: &Harness) -> Result<Option<f64>> {
        let (clock, target, items) =
            (harness.clock.clone(), self.target.clone(), harness.plan.items);
        let read = async move {
            // Nothing is ever confirmed, so the slot begins at its beginning every time.
            let mut changes = follow(&clock, &target, "feed").await?;
            let started = clock.elapsed();
            for _ in 0..items {
                changes.next().await?;
            }
            Ok::<_, anyhow::Error>(rate(items, clock.elapsed() - started))
        };
        harness.run(read).map(Some)
    }

    fn visible(&self, harness: &Harness) -> Result<Option<f64>> {
        let (clock, target, inserts) = (harness.clock.clone(), self.target.clone(), self.inserts());
        let measure = async move {
            let mut writer = Connection::open(&target).await?;
            // A slot of its own begins now; it goes away with its connection.
            let mut changes = Changes::follow_from_now(&target, "live").await?;
            let mut seen_after = Vec::new();
            for _ in 0..SEEN_WRITES {
                let (write, pause) = (inserts(0), clock.sleep(Duration::from_millis(2)));
                let writing = async {
                    pause.await;
                    let began = clock.elapsed();
                    writer.exchange(&write).await.map(|()| began)
                };
                let reading = async { changes.next().await.map(|()| clock.elapsed()) };
                let (began, seen) = tokio::join!(writing, reading);
                seen_after.push(seen?.saturating_sub(began?).as_secs_f64() * 1e6);
            }
            Ok::<_, anyhow::Error>(http::p99(seen_after))
        };
        harness.run(measure).map(Some)
    }

    /// Its processes share most of their memory, so that no sum of theirs would be fair.
    fn memory(&self, _: &Harness) -> Result<Option<f64>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let users =
            "root:x:0:0::/:/bin/sh\npostgresql:x:7:8::/:\npostgres:x:101:104:,,:/var:/bin\n";
        assert_eq!(user_ids(users, "postgres"), Some((101, 104)));
        assert_eq!(user_ids(users, "nobody"), None);
        assert_eq!(user_ids("nobody:x\n", "nobody"), None);
    }

    #[test]
    fn many_rows_are_one_statement() {
        let text = insert_many(&Workload::new(), 0..3).unwrap();
        assert!(text.starts_with("INSERT INTO items VALUES ('customer-"), "{text}");
        assert_eq!(text.matches("('customer-").count(), 3);
        assert_eq!(text.matches("'),('").count(), 2);
    }
}
