//! Rows, as a table for people and as JSON for programs.

use super::machine::Machine;
use anyhow::Result;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    PerSecond,
    Microseconds,
    Milliseconds,
    /// Bytes, shown in megabytes of a million bytes.
    Bytes,
    /// So many times something else.
    Times,
}

/// Which figure of a row a hold is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Ratio,
    Ours,
}

/// Where the design wants a row to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hold {
    AtLeast(Of, f64),
    AtMost(Of, f64),
}

/// One answered question.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) question: String,
    pub(crate) unit: Unit,
    pub(crate) ours: Option<f64>,
    /// What the bare machine can do, where that means something.
    pub(crate) limit: Option<f64>,
    pub(crate) ratio: Option<f64>,
    /// Nothing when the row is there for information.
    pub(crate) hold: Option<Hold>,
    /// The same of others, in the order of their columns.
    pub(crate) others: Vec<(&'static str, f64)>,
    /// How it was measured, as far as the help does not say.
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(question: impl Into<String>, unit: Unit) -> Row {
        Row {
            question: question.into(),
            unit,
            ours: None,
            limit: None,
            ratio: None,
            hold: None,
            others: Vec::new(),
            note: String::new(),
        }
    }

    /// Says how it was measured.
    pub(crate) fn noted(self, note: impl Into<String>) -> Row {
        Row { note: note.into(), ..self }
    }

    /// Whether the row is where the design wants it. Nothing was measured: it is not.
    fn holds(&self) -> Option<bool> {
        let value = |of| match of {
            Of::Ratio => self.ratio,
            Of::Ours => self.ours,
        };
        self.hold.map(|hold| match hold {
            Hold::AtLeast(of, bound) => value(of).is_some_and(|value| value >= bound),
            Hold::AtMost(of, bound) => value(of).is_some_and(|value| value <= bound),
        })
    }

    fn hold_text(&self) -> Option<String> {
        let bound = |of, bound| match of {
            Of::Ratio => plain(bound),
            Of::Ours => self.unit.show(bound),
        };
        self.hold.map(|hold| match hold {
            Hold::AtLeast(of, value) => format!("≥ {}", bound(of, value)),
            Hold::AtMost(of, value) => format!("≤ {}", bound(of, value)),
        })
    }
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond => format!("{}/s", short(value)),
            Unit::Microseconds => format!("{} µs", plain(value)),
            Unit::Milliseconds => format!("{} ms", plain(value)),
            Unit::Bytes => format!("{} MB", plain(value / 1e6)),
            Unit::Times => format!("{} ×", plain(value)),
        }
    }
}

/// A number with three digits that matter.
fn plain(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

fn short(value: f64) -> String {
    match value {
        size if size >= 1e6 => format!("{} M", plain(value / 1e6)),
        size if size >= 1e4 => format!("{} k", plain(value / 1e3)),
        _ => plain(value),
    }
}

/// The JSON of a row. The first six names are promised; the rest may change.
#[derive(Serialize)]
struct JsonRow<'a> {
    question: &'a str,
    #[serde(serialize_with = "three_digits")]
    ours: Option<f64>,
    #[serde(serialize_with = "three_digits")]
    limit: Option<f64>,
    #[serde(serialize_with = "three_digits")]
    ratio: Option<f64>,
    hold: Option<String>,
    holds: Option<bool>,
    unit: Unit,
    #[serde(flatten)]
    others: BTreeMap<&'static str, f64>,
    note: &'a str,
}

/// More would only be noise.
fn three_digits<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(rounded).serialize(serializer)
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Everything a run found out.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Row>,
}

const HEAD: [&str; 6] = ["question", "ours", "limit", "ratio", "hold", ""];

impl Report {
    pub(crate) fn to_json(&self) -> Result<String> {
        #[derive(Serialize)]
        struct Json<'a> {
            machine: &'a Machine,
            rows: Vec<JsonRow<'a>>,
        }
        fn json(row: &Row) -> JsonRow<'_> {
            JsonRow {
                question: &row.question,
                ours: row.ours,
                limit: row.limit,
                ratio: row.ratio,
                hold: row.hold_text(),
                holds: row.holds(),
                unit: row.unit,
                others: row.others.iter().map(|(name, value)| (*name, rounded(*value))).collect(),
                note: &row.note,
            }
        }
        let rows = self.rows.iter().map(json).collect();
        let machine = &self.machine;
        Ok(serde_json::to_string(&Json { machine, rows })?)
    }

    pub(crate) fn to_table(&self) -> String {
        let others = self.others();
        let mut lines = vec![HEAD.iter().chain(&others).map(|&name| name.to_owned()).collect()];
        for row in &self.rows {
            let figure =
                |value: Option<f64>| value.map_or(String::new(), |value| row.unit.show(value));
            let mut line = vec![
                row.question.clone(),
                figure(row.ours),
                figure(row.limit),
                row.ratio.map_or(String::new(), plain),
                row.hold_text().unwrap_or_default(),
                match row.holds() {
                    Some(true) => "✓".to_owned(),
                    Some(false) => "✗".to_owned(),
                    None => String::new(),
                },
            ];
            line.extend(others.iter().map(|name| {
                let other = row.others.iter().find(|(known, _)| known == name);
                figure(other.map(|(_, value)| *value))
            }));
            lines.push(line);
        }
        let mut text = format!("{}\n\n", self.machine);
        align(&lines, &mut text);
        self.add_notes(&mut text);
        text
    }

    /// Everybody who is beside us in some row, in the order of appearance.
    fn others(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in self.rows.iter().flat_map(|row| &row.others) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    fn add_notes(&self, text: &mut String) {
        text.push('\n');
        for row in self.rows.iter().filter(|row| !row.note.is_empty()) {
            let _ = writeln!(text, "{}: {}", row.question, row.note);
        }
        text.push_str(
            "\nA ratio is the median of the rounds' own ratios. Machines are noisy: what runs beside this \
             moves\nthe figures by a factor and the ratios by some percent. \
             --help explains the rows.\n",
        );
        if self.machine.is_busy() {
            text.push_str(
                "\nThis machine was busy before we began. A thread that waits for the disk then waits for a \
                 core\nas well, so the rows of writes say more about the scheduler than about any store.\n",
            );
        }
    }
}

/// Questions to the left, figures to the right.
fn align(lines: &[Vec<String>], text: &mut String) {
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len)).map(width).collect();
    for line in lines {
        let mut shown = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(shown, "  {cell:>width$}");
        }
        text.push_str(shown.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let machine = Machine {
            cores: 2,
            processor: "a processor".to_owned(),
            load: 0.1,
            disk: "a disk".to_owned(),
            durability: "fsync",
            items: 1000,
            rounds: 3,
            optimised: true,
        };
        let commits = Row {
            ours: Some(12_345.678),
            limit: Some(15_000.0),
            ratio: Some(0.823_045),
            hold: Some(Hold::AtLeast(Of::Ratio, 0.8)),
            others: vec![("fjall", 1900.0), ("sqlite", 900.0)],
            ..Row::new("commits", Unit::PerSecond)
        };
        let cpu = Row {
            ours: Some(25.0),
            hold: Some(Hold::AtMost(Of::Ours, 20.0)),
            others: vec![("sqlite", 30.0)],
            ..Row::new("CPU", Unit::Microseconds)
        };
        let reads = Row { ours: Some(1.25e6), ..Row::new("reads", Unit::PerSecond) };
        Report { machine, rows: vec![commits, cpu, reads] }
    }

    #[test]
    fn the_table_is_aligned_and_says_what_holds() {
        let table = report().to_table();
        let lines: Vec<&str> = table.lines().skip(2).take(4).collect();
        let expected = [
            "question      ours   limit  ratio     hold      fjall  sqlite",
            "commits   12.3 k/s  15 k/s   0.82    ≥ 0.8  ✓  1900/s   900/s",
            "CPU          25 µs                 ≤ 20 µs  ✗           30 µs",
            "reads     1.25 M/s",
        ];
        assert_eq!(lines, expected, "{table}");
    }

    #[test]
    fn the_json_has_the_promised_names() {
        let json = report().to_json().unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let first = &value["rows"][0];
        assert_eq!(first["question"], "commits");
        assert_eq!(first["ours"], 12345.678);
        assert_eq!(first["limit"], 15000.0);
        assert_eq!(first["ratio"], 0.823);
        assert_eq!(first["hold"], "≥ 0.8");
        assert_eq!(first["holds"], true);
        assert_eq!(first["sqlite"], 900.0);
        assert_eq!(value["rows"][1]["holds"], false);
        assert!(value["rows"][2]["holds"].is_null());
        assert!(value["rows"][2]["limit"].is_null());
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let row =
            Row { hold: Some(Hold::AtLeast(Of::Ratio, 0.5)), ..Row::new("feed", Unit::PerSecond) };
        assert_eq!(row.holds(), Some(false));
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, expected) in
            [(0.0, "0"), (0.123, "0.12"), (9.999, "10"), (12.34, "12.3"), (123.4, "123")]
        {
            assert_eq!(plain(value), expected);
        }
        assert_eq!(Unit::PerSecond.show(1_234_567.0), "1.23 M/s");
        assert_eq!(Unit::PerSecond.show(9_999.0), "9999/s");
        assert_eq!(Unit::Bytes.show(19_500_000.0), "19.5 MB");
    }
}
