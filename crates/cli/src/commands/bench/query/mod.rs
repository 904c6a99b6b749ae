//! `headwater bench query`: the same questions put to us, to PostgreSQL and to SQLite, over the wire.
//!
//! ```text
//! asked      the questions in three dialects, and the items they are about
//! ours       our server, four partitions
//! postgres   a private cluster, jsonb
//! sqlite     the library behind a bare HTTP server, JSON text
//! ```
//!
//! Look-ups are answers per second of 64 connections. What reads every item is items per second of CPU of
//! the server that answers, so that neither neighbours nor the number of cores are part of the figure.

mod asked;
mod ours;
mod postgres;
pub(super) mod sqlite;

use super::common::{Common, Size};
use super::harness::{Harness, Series, rate};
use super::machine;
use super::report::{Hold, Of, Report, Row, Unit};
use super::rivals::catalogue::{Cache, Found, Peer};
use anyhow::{Result, ensure};
use asked::{Asked, Orders};
use clap::Args;
use ours::Ours;
use std::path::PathBuf;
use std::time::Duration;

const ITEMS: u64 = 1_000_000;
const ITEMS_QUICK: u64 = 50_000;
/// How often a round asks what is quick; its first answers warm everybody up.
const WARMING: u64 = 3;
/// Writes of a round.
const WRITES: u64 = 5_000;
const WRITES_QUICK: u64 = 2_000;

pub(super) const HELP: &str = "\
Measure queries over the wire, next to PostgreSQL and SQLite

    headwater bench query --quick
    headwater bench query --only point,scan

Ours is `headwater serve --data` with four partitions, over HTTP/1.1 with signed requests. The peers have the
same items on this machine:

  postgres  a private cluster: jsonb, a primary key of customer and id, an index of an expression,
            prepared statements, 512 MB of buffers, no parallel plans
  sqlite    JSON text, the same indexes, one handle per connection, mapped into memory; behind a
            bare hyper server, as a library has no wire

Rows, by the name that --only takes:

  point      One item by id and partition key; also ÷ our own point read of it, in time per answer.
  equality   The ten items with a value, by an index.
  range      The first hundred items from a value on, in order, by an index.
  scan       The ids of one item in 64, by a field no index has.
  aggregate  Count, sum and maximum over all items.
  group      Count and average in six groups.
  join       A count over an array of four in every item.
  writes     CPU per write with the default policy and three paths in use ÷ with no index at all. An
             index of ours reads the change feed when it is asked, so the asking is counted too.

Look-ups are answers per second of 64 connections. What reads every item is items per second of CPU of the
server that answers. A row is the median of the rounds, its ratio the median of the rounds' own ratios;
\"limit\" is the best peer. ✓ and ✗ never change the exit code.

A PostgreSQL that is not there is left out with the reason; --install gets it into the cache directory.";

/// How to measure.
#[derive(Debug, Args)]
pub(crate) struct QueryArguments {
    #[command(flatten)]
    common: Common,
    /// Number of items in every database [default: 1000000, with --quick 50000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..=10_000_000))]
    items: Option<u64>,
    /// Fetch PostgreSQL if it is missing, into the cache directory
    #[arg(long)]
    install: bool,
    /// Directory of the installed peers [default: headwater/peers in the user's cache directory]
    #[arg(long, value_name = "DIR", env = "HEADWATER_PEERS_DIR")]
    cache: Option<PathBuf>,
    /// Measure these rows only, separated by commas
    #[arg(long, value_enum, value_name = "ROW", value_delimiter = ',')]
    only: Vec<Topic>,
    /// Measure Headwater alone
    #[arg(long)]
    alone: bool,
}

/// Rows that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Topic {
    Point,
    Equality,
    Range,
    Scan,
    Aggregate,
    Group,
    Join,
    Writes,
}

impl Topic {
    fn of(asked: Asked) -> Topic {
        match asked {
            Asked::Point => Topic::Point,
            Asked::Equality => Topic::Equality,
            Asked::Range => Topic::Range,
            Asked::Scan => Topic::Scan,
            Asked::Aggregate => Topic::Aggregate,
            Asked::Group => Topic::Group,
            Asked::Join => Topic::Join,
        }
    }
}

/// Who can be asked.
trait Database {
    fn name(&self) -> &'static str;
    /// Asks once and reads the answer to its end; how many rows it has.
    fn rows(&mut self, harness: &Harness, asked: Asked, number: u64) -> Result<u64>;
    /// Answers per second of 64 connections.
    fn rate(&self, harness: &Harness, asked: Asked) -> Result<f64>;
    /// CPU that the processes that answer have taken.
    fn cpu(&self) -> Result<Duration>;
}

pub(crate) fn run(arguments: &QueryArguments) -> Result<()> {
    let size = arguments.common.size(
        Size { items: ITEMS_QUICK, rounds: 3, window: Duration::from_millis(400) },
        Size { items: ITEMS, rounds: 5, window: Duration::from_secs(2) },
    );
    let size = Size { items: arguments.items.unwrap_or(size.items), ..size };
    let harness = arguments.common.harness(size, Vec::new())?;
    harness.end_in_order()?;
    let machine = machine::describe(&harness)?;
    let rows = rows(&harness, arguments)?;
    let report = Report { machine, rows };
    arguments.common.print(&report)
}

fn rows(harness: &Harness, arguments: &QueryArguments) -> Result<Vec<Row>> {
    let orders = Orders::new(harness.plan.items)?;
    let wants = |topic| arguments.only.is_empty() || arguments.only.contains(&topic);
    let mut ours = Ours::start(harness, &orders)?;
    if wants(Topic::Equality) || wants(Topic::Range) {
        ours.make_indexes(harness)?;
    }
    let mut peers = peers(harness, arguments, &orders)?;
    let mut rows = Vec::new();
    for asked in Asked::ALL.into_iter().filter(|asked| wants(Topic::of(*asked))) {
        harness.check_interrupted()?;
        if asked == Asked::Point {
            rows.push(beside_reads(harness, &ours)?);
        }
        check_answers(harness, asked, &mut ours, &mut peers)?;
        rows.push(match asked.reads_all() {
            true => read_all(harness, asked, &mut ours, &mut peers)?,
            false => look_up(harness, asked, &mut ours, &mut peers)?,
        });
    }
    if wants(Topic::Writes) {
        let count = if arguments.common.quick { WRITES_QUICK } else { WRITES };
        rows.push(write_costs(harness, &ours, count)?);
    }
    Ok(rows)
}

/// Everybody else, filled.
fn peers(
    harness: &Harness,
    arguments: &QueryArguments,
    orders: &Orders,
) -> Result<Vec<Box<dyn Database>>> {
    let mut peers: Vec<Box<dyn Database>> = Vec::new();
    if arguments.alone {
        return Ok(peers);
    }
    let cache = Cache::at(arguments.cache.clone())?;
    if let (Found::Absent(reason), true) = (cache.find(Peer::Postgres), arguments.install) {
        eprintln!("postgres: {reason}; installing it into {}", cache.dir().display());
        if let Err(error) = cache.install(Peer::Postgres) {
            eprintln!("postgres: {error:#}");
        }
    }
    let started = match cache.find(Peer::Postgres) {
        Found::Present(program) => {
            eprintln!("postgres: {}", program.version);
            postgres::Postgres::start(harness, &program, orders)
        }
        Found::Absent(reason) => {
            let how = cache.how_to_install(Peer::Postgres);
            Err(anyhow::anyhow!("{reason}; --install would run {how}"))
        }
    };
    harness.check_interrupted()?;
    match started {
        Ok(postgres) => peers.push(Box::new(postgres)),
        Err(error) => eprintln!("postgres is left out: {error:#}"),
    }
    eprintln!("sqlite: {}", sqlite::version());
    peers.push(Box::new(sqlite::Sqlite::start(harness, orders)?));
    Ok(peers)
}

/// Everybody must find as many rows as we do. Also warms them up.
fn check_answers(
    harness: &Harness,
    asked: Asked,
    ours: &mut Ours,
    peers: &mut [Box<dyn Database>],
) -> Result<()> {
    let times = if asked.reads_all() { 1 } else { WARMING };
    for number in 0..times {
        let found = ours.rows(harness, asked, number)?;
        ensure!(found > 0, "nothing is found: {}", asked.title());
        for peer in peers.iter_mut() {
            let theirs = peer.rows(harness, asked, number)?;
            ensure!(
                theirs == found,
                "{}: we find {found} rows and {} finds {theirs}",
                asked.title(),
                peer.name()
            );
        }
    }
    Ok(())
}

/// Figures of rounds.
#[derive(Default)]
struct Figures {
    ours: Series,
    limit: Series,
    ratio: Series,
    others: Vec<(&'static str, Series)>,
}

impl Figures {
    /// One round of ours and everybody else's.
    fn add(&mut self, ours: f64, others: &[(&'static str, f64)]) {
        self.ours.push(ours);
        if let Some(best) = others.iter().map(|(_, value)| *value).max_by(f64::total_cmp) {
            self.limit.push(best);
            self.ratio.push(ours / best);
        }
        for (name, value) in others {
            match self.others.iter_mut().find(|(known, _)| known == name) {
                Some((_, series)) => series.push(*value),
                None => {
                    let mut series = Series::default();
                    series.push(*value);
                    self.others.push((name, series));
                }
            }
        }
    }

    /// We should be ahead of the best.
    fn into_row(self, question: String) -> Row {
        let limit = self.limit.median();
        Row {
            ours: self.ours.median(),
            limit,
            ratio: self.ratio.median(),
            hold: limit.map(|_| Hold::AtLeast(Of::Ratio, 1.0)),
            others: (self.others.iter())
                .filter_map(|(name, series)| Some((*name, series.median()?)))
                .collect(),
            ..Row::new(question, Unit::PerSecond)
        }
    }
}

fn look_up(
    harness: &Harness,
    asked: Asked,
    ours: &mut Ours,
    peers: &mut [Box<dyn Database>],
) -> Result<Row> {
    let mut figures = Figures::default();
    harness.rounds(asked.title(), |_| {
        let own = ours.rate(harness, asked)?;
        let mut others = Vec::new();
        for peer in peers.iter_mut() {
            others.push((peer.name(), peer.rate(harness, asked)?));
        }
        figures.add(own, &others);
        Ok(())
    })?;
    Ok(figures.into_row(format!("{} ÷ best peer", asked.title())))
}

/// Items per second of CPU; how long an answer took is noted.
fn read_all(
    harness: &Harness,
    asked: Asked,
    ours: &mut Ours,
    peers: &mut [Box<dyn Database>],
) -> Result<Row> {
    let mut figures = Figures::default();
    let mut took: Vec<(&'static str, Series)> = Vec::new();
    harness.rounds(asked.title(), |round| {
        let mut measure = |database: &mut dyn Database| {
            let (cpu, began) = (database.cpu()?, harness.clock.elapsed());
            database.rows(harness, asked, u64::from(round))?;
            let wall = harness.clock.elapsed() - began;
            let spent = database.cpu()?.saturating_sub(cpu);
            let name = database.name();
            let place = took.iter().position(|(known, _)| *known == name);
            let place = place.unwrap_or_else(|| {
                took.push((name, Series::default()));
                took.len() - 1
            });
            took[place].1.push(wall.as_secs_f64() * 1e3);
            Ok::<f64, anyhow::Error>(rate(harness.plan.items, spent))
        };
        let own = measure(ours)?;
        let mut others = Vec::new();
        for peer in peers.iter_mut() {
            others.push((peer.name(), measure(peer.as_mut())?));
        }
        figures.add(own, &others);
        Ok(())
    })?;
    let spoken = took
        .iter()
        .map(|(name, series)| format!("{name} {:.0} ms", series.median().unwrap_or(0.0)));
    let note = format!("an answer took: {}", spoken.collect::<Vec<_>>().join(", "));
    let question = format!("{}, items per CPU-second ÷ best peer", asked.title());
    Ok(figures.into_row(question).noted(note))
}

/// Time per answer of a query that could have been a read, and of the read.
fn beside_reads(harness: &Harness, ours: &Ours) -> Result<Row> {
    let (mut query, mut read, mut ratio) =
        (Series::default(), Series::default(), Series::default());
    let question = "time of a query by id and key ÷ our own point read";
    harness.rounds(question, |_| {
        let queries = 1e6 / ours.rate(harness, Asked::Point)?;
        let reads = 1e6 / ours.read_rate(harness)?;
        query.push(queries);
        read.push(reads);
        ratio.push(queries / reads);
        Ok(())
    })?;
    Ok(Row {
        ours: query.median(),
        limit: read.median(),
        ratio: ratio.median(),
        hold: Some(Hold::AtMost(Of::Ratio, 1.5)),
        ..Row::new(question, Unit::Microseconds)
    })
}

fn write_costs(harness: &Harness, ours: &Ours, count: u64) -> Result<Row> {
    let mut written = ours.make_written(harness)?;
    let (mut indexed, mut bare, mut ratio) =
        (Series::default(), Series::default(), Series::default());
    let question = "CPU per write, default policy ÷ no index";
    harness.rounds(question, |_| {
        let (with, without) = ours.write_costs(harness, &mut written, count)?;
        indexed.push(with);
        bare.push(without);
        ratio.push(with / without);
        Ok(())
    })?;
    let row = Row {
        ours: indexed.median(),
        limit: bare.median(),
        ratio: ratio.median(),
        hold: Some(Hold::AtMost(Of::Ratio, 2.5)),
        ..Row::new(question, Unit::Microseconds)
    };
    Ok(row.noted("three paths are indexed, and asked for after the writes of a round"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_with_the_best_of_each_round() {
        let mut figures = Figures::default();
        figures.add(10.0, &[("postgres", 5.0), ("sqlite", 4.0)]);
        figures.add(30.0, &[("postgres", 10.0), ("sqlite", 20.0)]);
        figures.add(9.0, &[("postgres", 3.0), ("sqlite", 2.0)]);
        let row = figures.into_row("rows".to_owned());
        assert_eq!((row.ours, row.limit, row.ratio), (Some(10.0), Some(5.0), Some(2.0)));
        assert_eq!(row.hold, Some(Hold::AtLeast(Of::Ratio, 1.0)));
        assert_eq!(row.others, [("postgres", 5.0), ("sqlite", 4.0)]);
    }

    #[test]
    fn without_peers_nothing_holds_or_fails() {
        let mut figures = Figures::default();
        figures.add(10.0, &[]);
        let row = figures.into_row("rows".to_owned());
        assert!(row.hold.is_none() && row.limit.is_none() && row.ours.is_some());
    }
}
