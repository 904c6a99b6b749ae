//! `headwater bench peers`: the same work on what one would pick instead of us.
//!
//! Ours is `headwater serve --data` with fsync, over HTTP. Beside it stand two servers that speak the
//! same protocol (cosmosdb-server from npm, cosmium written in Go), PostgreSQL with logical decoding and
//! Redis Streams with a sync per append. All are processes of their own on loopback, get the same items
//! from the same load generator over as many connections, and take turns in every round.
//!
//! ```text
//! catalogue     who they are, where they are found and how they are installed when asked to
//! process       a server that was started: its port, its memory, its end
//! cosmos        ours and the two that speak the same protocol
//! postgres/*    a private cluster, and the few messages of its protocol that are needed
//! redis         the same for Redis
//! stream        bytes that were read and not yet looked at
//! rounds        figures of rounds → rows with holds
//! ```
//!
//! Nothing is installed unless `--install` is given, nothing outside the cache directory ever. A peer that
//! is absent or fails is named with the reason; that is no error. The protocols are spoken by hand, six
//! messages of one and one form of the other: client libraries would put some thirty crates into the
//! server's binary, and their own costs into the peers' figures.

pub(super) mod catalogue;
mod cosmos;
pub(super) mod postgres;
mod process;
mod redis;
mod rounds;
mod stream;

use super::common::{Common, Size};
use super::harness::Harness;
use super::machine;
use super::report::{Report, Unit};
use anyhow::{Context, Result};
use catalogue::{Cache, Found, Peer};
use clap::Args;
use rounds::{Better, Question, Round};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

const ITEMS: u64 = 100_000;
const ITEMS_QUICK: u64 = 10_000;

pub(super) const HELP: &str = "\
Measure the server next to Cosmos DB emulators, PostgreSQL and Redis

    headwater bench peers --quick
    headwater bench peers --install --only postgres,redis

Ours is `headwater serve --data` with fsync, over HTTP/1.1 with signed requests. The peers:

  cosmosdb-server  @vercel/cosmosdb-server from npm; keeps items in memory only
  cosmium          github.com/pikami/cosmium, through Go's module proxy; in memory only as well
  postgres         PostgreSQL, a private cluster: fsync, one INSERT per transaction, prepared; the
                   feed is logical decoding with pgoutput, read with the streaming protocol
  redis            Redis Streams with appendfsync always; a figure beside ours, without a hold

All run on this machine, on loopback, get the same 1 KiB items over 64 connections from the same load
generator, and take turns: a row is the median of the rounds, its ratio the median of the rounds' own
ratios. \"limit\" is the peer that a row compares with. ✓ and ✗ never change the exit code.

What is on the machine is used: node, postgres and redis-server from the PATH or /usr/lib/postgresql, and
whatever is in the cache directory. A peer that is not there is left out, with the reason. --install gets
the missing ones from their registries (npm, go, apt-get download) into the cache directory and nowhere
else; without it nothing is fetched. PostgreSQL does not run as root: started by root, it runs as the user
postgres or nobody, who must be able to reach --dir and the cache directory.";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct PeersArguments {
    #[command(flatten)]
    common: Common,
    /// Number of items in every server [default: 100000, with --quick 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    items: Option<u64>,
    /// Fetch peers that are missing from their registries, into the cache directory
    #[arg(long)]
    install: bool,
    /// Directory of the installed peers [default: headwater/peers in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "HEADWATER_PEERS_DIR")]
    cache: Option<PathBuf>,
    /// Measure these peers only, separated by commas
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    only: Vec<Peer>,
}

/// What every server that is measured can be asked. `None`: it has nothing like it.
trait Server {
    /// Puts all items of the plan into it.
    fn fill(&self, harness: &Harness) -> Result<()>;
    /// Durable writes per second (or what it calls a write), 64 connections.
    fn writes(&self, harness: &Harness) -> Result<Option<f64>>;
    /// Reads of single items per second, 64 connections.
    fn reads(&self, harness: &Harness) -> Result<Option<f64>>;
    /// Changes per second of one reader that begins at the beginning.
    fn feed(&self, harness: &Harness) -> Result<Option<f64>>;
    /// Microseconds from the start of a write to its arrival at a waiting reader, p99.
    fn visible(&self, harness: &Harness) -> Result<Option<f64>>;
    /// Resident memory of its process, in bytes.
    fn memory(&self, harness: &Harness) -> Result<Option<f64>>;
}

/// A peer and what became of it, as the JSON has it.
#[derive(Clone, Debug, Serialize)]
struct Status {
    name: &'static str,
    /// Which one was measured.
    version: Option<String>,
    /// Why it is not there, or what went wrong with it.
    absent: Option<String>,
}

pub(crate) fn run(arguments: &PeersArguments) -> Result<()> {
    let size = arguments.common.size(
        Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_millis(500) },
        Size { items: ITEMS, rounds: 5, window: Duration::from_secs(2) },
    );
    let cache = Cache::at(arguments.cache.clone())?;
    let size = Size { items: arguments.items.unwrap_or(size.items), ..size };
    let harness = arguments.common.harness(size, Vec::new())?;
    harness.end_in_order()?;
    let machine = machine::describe(&harness)?;
    let mut field = Field::new(&harness)?;
    for peer in Peer::ALL {
        if arguments.only.is_empty() || arguments.only.contains(&peer) {
            field.invite(peer, &cache, arguments.install)?;
        }
    }
    let rows = field.compare()?;
    let statuses = field.end();
    let report = Report { machine, rows };
    if arguments.common.json {
        let mut value: serde_json::Value = serde_json::from_str(&report.to_json()?)?;
        value["peers"] = serde_json::to_value(&statuses)?;
        println!("{value}");
    } else {
        print!("{}{}", report.to_table(), describe(&statuses));
    }
    Ok(())
}

fn describe(statuses: &[Status]) -> String {
    let line = |status: &Status| match (&status.version, &status.absent) {
        (Some(version), None) => format!("{}: {version}\n", status.name),
        (_, Some(reason)) => format!("{} is absent: {reason}\n", status.name),
        (None, None) => String::new(),
    };
    format!("\n{}", statuses.iter().map(line).collect::<String>())
}

/// Everybody who takes part. Dropping it ends their processes.
struct Field<'a> {
    harness: &'a Harness,
    ours: cosmos::Cosmos,
    peers: Vec<(Peer, Box<dyn Server>)>,
    statuses: Vec<Status>,
}

impl<'a> Field<'a> {
    fn new(harness: &'a Harness) -> Result<Field<'a>> {
        let ours = cosmos::Cosmos::ours(harness)?;
        Ok(Field { harness, ours, peers: Vec::new(), statuses: Vec::new() })
    }

    /// Finds or installs a peer and starts it. That it is absent is not an error.
    fn invite(&mut self, peer: Peer, cache: &Cache, install: bool) -> Result<()> {
        self.harness.check_interrupted()?;
        let name = peer.name();
        let found = match cache.find(peer) {
            Found::Absent(reason) if install => {
                eprintln!("{name}: {reason}; installing it into {}", cache.dir().display());
                cache.install(peer).map(|()| cache.find(peer))
            }
            Found::Absent(reason) => {
                let how = cache.how_to_install(peer);
                Ok(Found::Absent(format!("{reason}; --install would run {how}")))
            }
            present @ Found::Present(_) => Ok(present),
        };
        let started = found.and_then(|found| match found {
            Found::Present(program) => {
                eprintln!("{name}: starting {}", program.version);
                let server = start(self.harness, peer, &program)?;
                Ok((program.version, server))
            }
            Found::Absent(reason) => Err(anyhow::anyhow!(reason)),
        });
        self.harness.check_interrupted()?;
        match started {
            Ok((version, server)) => {
                self.peers.push((peer, server));
                self.statuses.push(Status { name, version: Some(version), absent: None });
            }
            Err(error) => self.leave_out(peer, &error),
        }
        Ok(())
    }

    fn leave_out(&mut self, peer: Peer, error: &anyhow::Error) {
        let (name, reason) = (peer.name(), format!("{error:#}"));
        eprintln!("{name} is left out: {reason}");
        match self.statuses.iter_mut().find(|status| status.name == name) {
            Some(status) => status.absent = Some(reason),
            None => self.statuses.push(Status { name, version: None, absent: Some(reason) }),
        }
    }

    fn compare(&mut self) -> Result<Vec<super::report::Row>> {
        let items = self.harness.plan.items;
        self.ask_each("filling", |server, harness| server.fill(harness).map(|()| Some(0.0)))?;
        // Before anything else is written: what so many items take, and nothing more.
        let memory = self.ask_each("memory", |server, harness| server.memory(harness))?;
        let writes = self.ask("durable writes", |server, harness| server.writes(harness))?;
        let reads = self.ask("point reads", |server, harness| server.reads(harness))?;
        let feed = self.ask("feed", |server, harness| server.feed(harness))?;
        let visible = self.ask("write → reader", |server, harness| server.visible(harness))?;
        let question = |text: &str, rounds, better, unit| Question {
            text: text.to_owned(),
            rounds,
            better,
            unit,
        };
        let writes =
            question("durable writes, 64 connections", writes, Better::Higher, Unit::PerSecond);
        let reads = question("point reads, 64 connections", reads, Better::Higher, Unit::PerSecond);
        let feed = question("feed from the beginning", feed, Better::Higher, Unit::PerSecond);
        let visible =
            question("write → waiting reader, p99", visible, Better::Lower, Unit::Microseconds);
        let memory = question(
            &format!("resident memory, {items} items"),
            vec![memory],
            Better::Lower,
            Unit::Bytes,
        );
        let cosmos = &[Peer::CosmosdbServer, Peer::Cosmium][..];
        Ok(vec![
            writes.all("best Cosmos peer", cosmos, Some(2.0)),
            writes.against("PostgreSQL", &[Peer::Postgres], Some(2.0)),
            writes.against("Redis, sync per append", &[Peer::Redis], None),
            reads.all("best Cosmos peer", cosmos, Some(2.0)),
            reads.against("PostgreSQL", &[Peer::Postgres], None),
            feed.all("pgoutput", &[Peer::Postgres], Some(3.0)),
            visible.all("pgoutput", &[Peer::Postgres], Some(1.0)),
            memory.all("smallest Cosmos peer", cosmos, Some(0.2)),
        ])
    }

    /// As many rounds as the plan has, everybody in each of them.
    fn ask(
        &mut self,
        what: &str,
        ask: impl Fn(&dyn Server, &Harness) -> Result<Option<f64>>,
    ) -> Result<Vec<Round>> {
        let mut rounds = Vec::new();
        let harness = self.harness;
        harness.rounds(what, |_| {
            rounds.push(self.ask_each(what, &ask)?);
            Ok(())
        })?;
        Ok(rounds)
    }

    /// One round. A peer that fails takes part in no further one; we may not fail.
    fn ask_each(
        &mut self,
        what: &str,
        ask: impl Fn(&dyn Server, &Harness) -> Result<Option<f64>>,
    ) -> Result<Round> {
        let ours = ask(&self.ours, self.harness);
        // Whoever failed because of a signal has not failed.
        self.harness.check_interrupted()?;
        let ours = ours.with_context(|| format!("our own server failed at: {what}"))?;
        let mut round = Round { ours: ours.unwrap_or(0.0), others: Vec::new() };
        let mut failed = Vec::new();
        for (peer, server) in &self.peers {
            let theirs = ask(server.as_ref(), self.harness);
            self.harness.check_interrupted()?;
            match theirs {
                Ok(Some(value)) => round.others.push((*peer, value)),
                Ok(None) => {}
                Err(error) => failed.push((*peer, error.context(format!("it failed at: {what}")))),
            }
        }
        for (peer, error) in failed {
            self.peers.retain(|(known, _)| *known != peer);
            self.leave_out(peer, &error);
        }
        Ok(round)
    }

    fn end(self) -> Vec<Status> {
        self.statuses
    }
}

fn start(harness: &Harness, peer: Peer, program: &catalogue::Program) -> Result<Box<dyn Server>> {
    Ok(match peer {
        Peer::CosmosdbServer | Peer::Cosmium => {
            Box::new(cosmos::Cosmos::start(harness, peer, program)?)
        }
        Peer::Postgres => Box::new(postgres::Postgres::start(harness, program)?),
        Peer::Redis => Box::new(redis::Redis::start(harness, program)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_absent_is_said_with_the_reason() {
        let there = Status { name: "redis", version: Some("Redis 7".to_owned()), absent: None };
        let gone = Status { name: "cosmium", version: None, absent: Some("go says no".to_owned()) };
        let failed = Status { absent: Some("it failed".to_owned()), ..there.clone() };
        let expected =
            "\nredis: Redis 7\ncosmium is absent: go says no\nredis is absent: it failed\n";
        assert_eq!(describe(&[there, gone, failed]), expected);
    }
}
