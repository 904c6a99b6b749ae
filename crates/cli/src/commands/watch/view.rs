//! The state of a processor at one moment, and its display: a table for people, lines of JSON for programs. Sends no
//! requests. Two successive views give the speed of a lease.

use crate::commands::leases::to_json;
use headwater_model::Lsn;
use headwater_processor::lag::Lag;
use headwater_processor::{LeaseInfo, Position, Snapshot, Unit};
use std::collections::BTreeMap;
use std::time::Duration;

/// One processor at one moment.
pub(crate) struct View {
    processor: String,
    paused: bool,
    hosts: Vec<Host>,
    rows: Vec<Row>,
    unreadable: Vec<String>,
    total: Lag,
}

/// A host of the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    leases: usize,
    draining: bool,
}

/// One lease.
struct Row {
    lease: String,
    owner: Option<String>,
    position: Option<String>,
    lsn: Option<Lsn>,
    lag: Lag,
    age: Option<Duration>,
    state: &'static str,
    /// Transactions per second since the last view; none in the first view.
    rate: Option<f64>,
    json: serde_json::Value,
}

/// Positions of the leases in the last view.
#[derive(Default)]
pub(crate) struct Before {
    at: Duration,
    positions: BTreeMap<(String, String), Lsn>,
}

impl View {
    /// Builds a view. `lags` has one entry per lease, in the same order.
    pub(crate) fn new(unit: &Unit, snapshot: &Snapshot, lags: &[Lag]) -> View {
        let row = |(info, lag): (&LeaseInfo, &Lag)| Row {
            lease: info.lease.token.clone(),
            owner: info.lease.owner.clone(),
            position: info.lease.position.as_ref().map(plain),
            lsn: info.lease.position.as_ref().and_then(Position::lsn),
            lag: *lag,
            age: info.age,
            state: snapshot.activity(info).as_str(),
            rate: None,
            json: to_json(unit, snapshot, info),
        };
        let rows: Vec<Row> = snapshot.leases.iter().zip(lags).map(row).collect();
        View {
            processor: unit.namespace().as_str().to_owned(),
            paused: snapshot.control.paused,
            hosts: hosts(snapshot, &rows),
            rows,
            unreadable: snapshot.unreadable.clone(),
            total: Lag::total(lags.iter().copied()),
        }
    }

    /// Computes the speeds since the last view, and makes this view the last one.
    pub(crate) fn compare(views: &mut [View], before: &mut Before, now: Duration) {
        let passed = now.saturating_sub(before.at).as_secs_f64();
        let mut positions = BTreeMap::new();
        for view in views {
            for row in &mut view.rows {
                let Some(lsn) = row.lsn else { continue };
                let which = (view.processor.clone(), row.lease.clone());
                let moved = before.positions.get(&which).and_then(|then| rate(*then, lsn, passed));
                row.rate = moved;
                positions.insert(which, lsn);
            }
        }
        *before = Before { at: now, positions };
    }

    /// Returns everything about one processor as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        let host = |host: &Host| {
            let Host { name, leases, draining } = host;
            serde_json::json!({ "name": name, "leases": leases, "draining": draining })
        };
        let lease = |row: &Row| {
            let mut json = row.json.clone();
            json["transactions"] = row.lag.transactions.into();
            json["seconds"] = row.lag.time.map(|time| time.as_secs()).into();
            json["perSecond"] = row.rate.into();
            json
        };
        serde_json::json!({
            "processor": self.processor,
            "paused": self.paused,
            "transactions": self.total.transactions,
            "seconds": self.total.time.map(|time| time.as_secs()),
            "hosts": self.hosts.iter().map(host).collect::<Vec<_>>(),
            "leases": self.rows.iter().map(lease).collect::<Vec<_>>(),
            "unreadable": self.unreadable,
        })
    }

    /// Renders the table. Names are shortened where a line would exceed this width.
    pub(crate) fn lines(&self, columns: Option<usize>) -> Vec<String> {
        let paused = if self.paused { "  (paused)" } else { "" };
        let mut lines = vec![format!("{}{paused}", self.processor)];
        for Host { name, leases, draining } in &self.hosts {
            let leaving = if *draining { ", about to leave" } else { "" };
            lines.push(format!("  host {name}: {leases} leases{leaving}"));
        }
        let mut table = vec![
            ["lease", "owner", "position", "behind", "for", "/s", "age", "state"]
                .map(str::to_owned),
        ];
        table.extend(self.rows.iter().map(Row::cells));
        let [behind, time] = lag(self.total);
        let rate = self.rows.iter().map(|row| row.rate).sum::<Option<f64>>();
        let none = String::new;
        let total = "total".to_owned();
        table.push([total, none(), none(), behind, time, per_second(rate), none(), none()]);
        lines.extend(aligned(&table, columns));
        lines.extend(self.unreadable.iter().map(|id| format!("  {id} is no lease")));
        match columns {
            Some(columns) => lines.into_iter().map(|line| shortened(&line, columns)).collect(),
            None => lines,
        }
    }
}

impl Row {
    fn cells(&self) -> [String; 8] {
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let [behind, time] = lag(self.lag);
        let age = self.age.map_or_else(|| "?".to_owned(), |age| format!("{} s", age.as_secs()));
        let (owner, position) = (or(&self.owner), or(&self.position));
        let rate = per_second(self.rate);
        [self.lease.clone(), owner, position, behind, time, rate, age, self.state.to_owned()]
    }
}

/// Returns the hosts that announce themselves and those that own a lease. Hosts of .NET and Java do not announce
/// themselves.
fn hosts(snapshot: &Snapshot, rows: &[Row]) -> Vec<Host> {
    let mut hosts: BTreeMap<&str, Host> = BTreeMap::new();
    let host = |name: &str| Host { name: name.to_owned(), leases: 0, draining: false };
    for member in &snapshot.members {
        let name = member.host.name.as_str();
        hosts.insert(name, Host { draining: member.draining, ..host(name) });
    }
    for owner in rows.iter().filter_map(|row| row.owner.as_deref()) {
        hosts.entry(owner).or_insert_with(|| host(owner)).leases += 1;
    }
    hosts.into_values().collect()
}

/// Computes transactions per second. None for a lease that was moved back.
fn rate(before: Lsn, after: Lsn, seconds: f64) -> Option<f64> {
    let moved = after.get().checked_sub(before.get())?;
    (seconds > 0.0).then(|| moved as f64 / seconds)
}

fn plain(position: &Position) -> String {
    position.as_str().trim_matches('"').to_owned()
}

fn lag(lag: Lag) -> [String; 2] {
    let behind = lag.transactions.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let time = lag.time.map_or_else(|| "?".to_owned(), |time| format!("{} s", time.as_secs()));
    [behind, time]
}

fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

/// The left-aligned columns, which may be shortened down to `NAME_MIN` characters.
const NAMES: [usize; 2] = [0, 1];
const NAME_MIN: usize = 8;
const STATE: usize = 7;

/// Aligns a table with minimal widths: names to the left, numbers to the right.
fn aligned(table: &[[String; 8]], columns: Option<usize>) -> Vec<String> {
    let mut widths = widths(table);
    if let Some(columns) = columns {
        let total = |widths: &[usize; 8]| widths.iter().map(|width| width + 2).sum::<usize>();
        while total(&widths) > columns {
            let widest = if widths[NAMES[0]] >= widths[NAMES[1]] { NAMES[0] } else { NAMES[1] };
            if widths[widest] <= NAME_MIN {
                break;
            }
            widths[widest] -= 1;
        }
    }
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            match NAMES.contains(&column) || column == STATE {
                true => format!("{:<width$}", shortened(cell, width)),
                false => format!("{cell:>width$}"),
            }
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

fn widths(table: &[[String; 8]]) -> [usize; 8] {
    let width = |column: usize| {
        table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    std::array::from_fn(width)
}

/// Shortens a text to at most `most` characters. Drops the middle, because names differ at both ends.
fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most || most == 0 {
        return text.to_owned();
    }
    let front = most / 2;
    let start: String = text.chars().take(front).collect();
    let end: String = text.chars().skip(length - (most - front - 1)).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(lease: &str, owner: Option<&str>, lsn: u64) -> Row {
        let lag = Lag { transactions: Some(7), time: Some(Duration::from_secs(3)) };
        Row {
            lease: lease.to_owned(),
            owner: owner.map(str::to_owned),
            position: Some(lsn.to_string()),
            lsn: Some(Lsn::new(lsn)),
            lag,
            age: Some(Duration::from_secs(2)),
            state: "running",
            rate: None,
            json: serde_json::json!({ "lease": lease }),
        }
    }

    fn view(rows: Vec<Row>) -> View {
        let total = Lag::total(rows.iter().map(|row| row.lag));
        let (hosts, unreadable) = (Vec::new(), Vec::new());
        View { processor: "p".to_owned(), paused: false, hosts, rows, unreadable, total }
    }

    #[test]
    fn two_looks_say_how_fast_a_lease_moves_and_one_says_nothing() {
        let mut before = Before::default();
        let look = |lsns: [u64; 2], before: &mut Before, seconds: u64| {
            let rows = vec![row("0", None, lsns[0]), row("1", None, lsns[1])];
            let mut views = [view(rows)];
            View::compare(&mut views, before, Duration::from_secs(seconds));
            views[0].rows.iter().map(|row| row.rate).collect::<Vec<_>>()
        };
        assert_eq!(look([10, 20], &mut before, 100), [None, None]);
        assert_eq!(look([15, 20], &mut before, 102), [Some(2.5), Some(0.0)]);
        assert_eq!(look([5, 21], &mut before, 103), [None, Some(1.0)], "one was set back");
        assert_eq!(look([6, 21], &mut before, 103), [None, None], "no time has passed");
    }

    #[test]
    fn a_table_is_as_wide_as_its_widest_cell() {
        let mut view = view(vec![row("0", Some("a-long-name"), 12_345), row("17", None, 9)]);
        view.paused = true;
        view.rows[0].rate = Some(2.25);
        view.rows[1].rate = Some(0.5);
        view.hosts = vec![Host { name: "h".to_owned(), leases: 2, draining: true }];
        let expected = [
            "p  (paused)",
            "  host h: 2 leases, about to leave",
            "  lease  owner        position  behind  for   /s  age  state",
            "  0      a-long-name     12345       7  3 s  2.2  2 s  running",
            "  17     -                   9       7  3 s  0.5  2 s  running",
            "  total                             14  3 s  2.8",
        ];
        assert_eq!(view.lines(None), expected);
        let json = view.json();
        assert_eq!(
            (&json["transactions"], &json["leases"][0]["perSecond"]),
            (&14.into(), &2.25.into())
        );
        assert_eq!(
            (&json["hosts"][0]["name"], &json["leases"][1]["lease"]),
            (&"h".into(), &"17".into())
        );
    }

    #[test]
    fn what_is_not_known_is_shown_as_such() {
        let mut one = row("0", None, 1);
        (one.lag, one.age) = (Lag { transactions: None, time: None }, None);
        let view = view(vec![one]);
        let lines = view.lines(None);
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            ["0", "-", "1", "?", "?", "-", "?", "running"]
        );
        assert_eq!(view.json()["leases"][0]["transactions"], serde_json::Value::Null);
    }

    #[test]
    fn where_a_terminal_is_narrow_names_lose_their_middle_and_numbers_nothing() {
        let lease = "1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF";
        let view = view(vec![row(lease, Some("host-60e745cc18b631f4"), 12_345)]);
        assert!(view.lines(None)[2].contains(lease));
        let lines = view.lines(Some(80));
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
        assert!(lines[2].contains("…") && lines[2].contains("-FF") && lines[2].contains("12345"));
        assert_eq!(view.lines(Some(200)), view.lines(None));
        let narrow = view.lines(Some(20));
        assert!(narrow.iter().all(|line| line.chars().count() <= 20), "{narrow:#?}");
        assert_eq!(shortened("abcdefgh", 5), "ab…gh");
        assert_eq!((shortened("abc", 3), shortened("abc", 1)), ("abc".to_owned(), "…".to_owned()));
    }
}
