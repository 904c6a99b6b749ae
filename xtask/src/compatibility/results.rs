//! The results of the programs, per client and per check.

use std::fmt::Write;

use serde::Deserialize;

/// The result of one check, as a program prints it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Check {
    pub(super) group: String,
    pub(super) check: String,
    pub(super) ok: bool,
    #[serde(default)]
    pub(super) detail: String,
    /// Whether the client offers the operation. A check of a missing operation neither passes nor fails.
    #[serde(default = "yes")]
    pub(super) offered: bool,
}

fn yes() -> bool {
    true
}

/// The results of one client.
pub(super) struct Report {
    pub(super) client: &'static str,
    pub(super) checks: Vec<Check>,
    pub(super) end: End,
}

/// How a program ended.
pub(super) enum End {
    Finished,
    /// A requirement is not installed.
    Skipped(String),
    /// The program ended before its last check, or could not be started.
    Broken(String),
}

impl Report {
    pub(super) fn new(client: &'static str) -> Report {
        Report { client, checks: Vec::new(), end: End::Finished }
    }

    pub(super) fn skipped(client: &'static str, why: String) -> Report {
        Report { end: End::Skipped(why), ..Report::new(client) }
    }

    pub(super) fn broken(client: &'static str, why: String) -> Report {
        Report { end: End::Broken(why), ..Report::new(client) }
    }

    pub(super) fn push(&mut self, check: Check) {
        if check.offered && !check.ok {
            println!("{}: FAILED {}: {}: {}", self.client, check.group, check.check, check.detail);
        }
        self.checks.push(check);
    }

    pub(super) fn stop(&mut self, why: String) {
        self.end = End::Broken(why);
    }

    /// Records the exit of the program. Success must mean that all its checks passed; a mismatch counts as a crash.
    pub(super) fn ended(&mut self, succeeded: bool) {
        let is_green = self.failed() == 0 && self.tried() > 0;
        if matches!(self.end, End::Finished) && succeeded != is_green {
            self.stop("the program ended before its last check".to_owned());
        }
    }

    /// Adds the end of a broken program's error output.
    pub(super) fn explained_by(mut self, said: &str) -> Report {
        if let End::Broken(why) = &mut self.end {
            let tail: Vec<&str> = said.lines().rev().take(15).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            let _ = write!(why, "\n{}", tail.join("\n"));
        }
        self
    }

    pub(super) fn passed(&self) -> usize {
        self.checks.iter().filter(|check| check.offered && check.ok).count()
    }

    fn failed(&self) -> usize {
        self.checks.iter().filter(|check| check.offered && !check.ok).count()
    }

    /// Returns the number of checks that were run.
    pub(super) fn tried(&self) -> usize {
        self.passed() + self.failed()
    }

    /// Returns the failures for the closing line. A broken program counts as one more failure.
    fn failures(&self) -> usize {
        self.failed() + usize::from(matches!(self.end, End::Broken(_)))
    }

    pub(super) fn print(&self) {
        let (passed, failed) = (self.passed(), self.failed());
        match &self.end {
            End::Finished => println!("=== {}: {passed} passed, {failed} failed", self.client),
            End::Skipped(why) => println!("=== {}: skipped: {why}", self.client),
            End::Broken(why) => {
                println!("=== {}: BROKEN after {passed} passed: {why}", self.client)
            }
        }
    }
}

/// The reports of a run.
#[derive(Default)]
pub(super) struct Results {
    pub(super) reports: Vec<Report>,
}

impl Results {
    pub(super) fn add(&mut self, report: Report) {
        self.reports.push(report);
    }

    pub(super) fn succeeded(&self) -> bool {
        self.reports.iter().all(|report| report.failures() == 0)
    }

    /// Returns a table with one line per client.
    pub(super) fn table(&self) -> String {
        let mut table = format!("{:<16}{:>8}{:>8}\n", "client", "passed", "failed");
        for report in &self.reports {
            let note = match &report.end {
                End::Finished => String::new(),
                End::Skipped(why) => format!("  skipped: {why}"),
                End::Broken(why) => format!("  BROKEN: {}", why.lines().next().unwrap_or_default()),
            };
            let (passed, failed) = (report.passed(), report.failures());
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{:<16}{passed:>8}{failed:>8}{note}", report.client);
        }
        table
    }

    /// Returns the closing line in the form of cargo's, so that `cargo xtask test` counts checks like tests.
    pub(super) fn closing_line(&self) -> String {
        let passed: usize = self.reports.iter().map(Report::passed).sum();
        let failed: usize = self.reports.iter().map(Report::failures).sum();
        let verdict = if failed == 0 { "ok" } else { "FAILED" };
        format!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ok: bool) -> Check {
        let (group, check) = ("items".into(), "read".into());
        Check { group, check, ok, detail: String::new(), offered: true }
    }

    #[test]
    fn what_a_client_does_not_offer_neither_passes_nor_fails() {
        let line = r#"{"client":"go","group":"bulk","check":"x","ok":true,"offered":false}"#;
        let mut report = Report::new("go");
        report.push(serde_json::from_str(line).unwrap());
        assert_eq!((report.passed(), report.failures(), report.tried()), (0, 0, 0));
        report.ended(true);
        assert_eq!(report.failures(), 1, "a program that tries nothing proves nothing");
    }

    #[test]
    fn a_program_that_ends_early_is_a_failure() {
        let mut crashed = Report::new("python");
        crashed.push(check(true));
        crashed.ended(false);
        assert_eq!(crashed.failures(), 1);

        let mut silent = Report::new("python");
        silent.ended(true);
        assert_eq!(silent.failures(), 1, "a program without checks proves nothing");

        let mut red = Report::new("python");
        red.push(check(false));
        red.ended(false);
        assert_eq!(red.failures(), 1);
        assert!(matches!(red.end, End::Finished));
    }

    #[test]
    fn the_closing_line_counts_checks() {
        let mut green = Report::new("python");
        green.push(check(true));
        green.ended(true);
        let skipped = Report::skipped("go", "`go version` is missing".to_owned());
        let results = Results { reports: vec![green, skipped] };
        assert!(results.succeeded());
        assert_eq!(results.closing_line(), "test result: ok. 1 passed; 0 failed; 0 ignored");
    }
}
