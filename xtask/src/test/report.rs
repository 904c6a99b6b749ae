//! The report at the end of a test run: a table of the suites, and the closing line that CI reads.
//!
//! The closing line counts tests, but a run can fail without a failed test: a clippy warning, a compile
//! error, a crashed process. Such a suite counts as one failure, so `0 failed` always means success.

use std::fmt::Write;
use std::time::Duration;

use super::counts::Counts;
use super::suites::Kind;

/// How one suite ended.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) counts: Counts,
    pub(super) took: Duration,
    pub(super) end: End,
}

/// The verdict on a suite.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Passed,
    Failed { why: String },
    Skipped { why: String },
}

impl End {
    /// Derives the verdict on a suite from its exit status and its counts.
    pub(super) fn of(kind: Kind, succeeded: bool, counts: Counts) -> End {
        let why = if counts.failed > 0 {
            format!("{} failed", tests(counts.failed))
        } else if !succeeded {
            "its command failed".to_owned()
        } else if counts.ignored > 0 {
            format!("{} ignored; run it or delete it", tests(counts.ignored))
        } else if kind == Kind::Tests && counts.passed == 0 {
            "no test ran, so it proves nothing".to_owned()
        } else {
            return End::Passed;
        };
        End::Failed { why }
    }
}

fn tests(count: u64) -> String {
    if count == 1 { "1 test".to_owned() } else { format!("{count} tests") }
}

impl Outcome {
    /// Returns the failures that this suite adds to the closing line.
    fn failures(&self) -> u64 {
        match self.end {
            End::Failed { .. } => self.counts.failed.max(1),
            End::Passed | End::Skipped { .. } => 0,
        }
    }
}

pub(super) fn succeeded(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.failures() == 0)
}

/// Returns a table with one line per suite.
pub(super) fn table(outcomes: &[Outcome]) -> String {
    let mut table = format!("{:<24}{:>9}{:>9}{:>9}\n", "suite", "seconds", "passed", "failed");
    for outcome in outcomes {
        let Outcome { name, counts, took, end } = outcome;
        let verdict = match end {
            End::Passed => "ok".to_owned(),
            End::Failed { why } => format!("FAILED: {why}"),
            End::Skipped { why } => format!("skipped: {why}"),
        };
        let (seconds, passed, failed) = (took.as_secs_f64(), counts.passed, counts.failed);
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{name:<24}{seconds:>9.1}{passed:>9}{failed:>9}  {verdict}");
    }
    table
}

/// Returns the last line of every run, in the form that CI parses.
pub(super) fn closing_line(outcomes: &[Outcome]) -> String {
    let passed: u64 = outcomes.iter().map(|outcome| outcome.counts.passed).sum();
    let failed: u64 = outcomes.iter().map(Outcome::failures).sum();
    format!("{passed} passed, {failed} failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, ignored: u64) -> Counts {
        Counts { passed, failed, ignored }
    }

    fn outcome(counts: Counts, end: End) -> Outcome {
        Outcome { name: "suite", counts, took: Duration::from_millis(1250), end }
    }

    fn failed() -> End {
        End::Failed { why: "it did".to_owned() }
    }

    #[track_caller]
    fn check(kind: Kind, succeeded: bool, counts: Counts, expected: Option<&str>) {
        match (End::of(kind, succeeded, counts), expected) {
            (End::Failed { why }, Some(expected)) => assert!(why.contains(expected), "{why}"),
            (end, expected) => {
                assert_eq!((end, expected), (End::Passed, None), "{succeeded} {counts:?}");
            }
        }
    }

    #[test]
    fn verdicts() {
        check(Kind::Check, true, counts(0, 0, 0), None);
        check(Kind::Check, false, counts(0, 0, 0), Some("command failed"));
        check(Kind::Tests, true, counts(5, 0, 0), None);
        check(Kind::Tests, false, counts(5, 1, 0), Some("1 test failed"));
        check(Kind::Tests, false, counts(5, 0, 0), Some("command failed"));
        check(Kind::Tests, true, counts(5, 0, 2), Some("2 tests ignored"));
        check(Kind::Tests, true, counts(0, 0, 0), Some("no test ran"));
        // Counted as failed although the command claims success.
        check(Kind::Check, true, counts(5, 1, 0), Some("1 test failed"));
    }

    #[test]
    fn the_closing_line_counts_tests_and_suites_that_failed_without_one() {
        let green = [outcome(counts(5, 0, 0), End::Passed), outcome(counts(7, 0, 0), End::Passed)];
        assert_eq!(closing_line(&green), "12 passed, 0 failed");
        assert!(succeeded(&green));

        let skipped = [outcome(counts(0, 0, 0), End::Skipped { why: "no tool".to_owned() })];
        assert_eq!(closing_line(&skipped), "0 passed, 0 failed");
        assert!(succeeded(&skipped));

        let red = [outcome(counts(5, 3, 0), failed()), outcome(counts(0, 0, 0), failed())];
        assert_eq!(closing_line(&red), "5 passed, 4 failed");
        assert!(!succeeded(&red));

        let ignored = [outcome(counts(5, 0, 1), failed())];
        assert_eq!(closing_line(&ignored), "5 passed, 1 failed");
        assert!(!succeeded(&ignored));
    }

    #[test]
    fn the_table_says_why() {
        let table = table(&[outcome(counts(5, 3, 0), failed())]);
        let row = table.lines().nth(1).expect("a row under the heading");
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["suite", "1.2", "5", "3", "FAILED:", "it", "did"]);
    }
}
