//! Writes the page of supported features per client: `docs/internals/compatibility.md`.
//!
//! The page depends only on the results of a full run, in the order of the table of clients. Equal results
//! therefore give equal bytes.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::clients::CLIENTS;
use super::results::{End, Report, Results};

const FILE: &str = "docs/internals/compatibility.md";
const HEAD: &str = "\
# Compatibility

For developers who want to know what an SDK can do against Headwater.

Made by `cargo xtask compatibility`; do not edit. Each column is a program written with an official,
unmodified client from its registry, run against a fresh server with several partitions. The programs
are in `compatibility/`.

`yes`: it works. `no`: the check fails. `not offered`: the SDK has no such operation. Empty: the program
has no such check.
";

/// Writes the page.
pub(super) fn write(root: &Path, results: &Results) -> Result<()> {
    std::fs::write(root.join(FILE), text(results)).context(FILE)?;
    println!("{FILE} is written");
    Ok(())
}

fn text(results: &Results) -> String {
    let mut page = HEAD.to_owned();
    let shown: Vec<&Report> = results.reports.iter().filter(|r| !r.checks.is_empty()).collect();
    page.push_str("\n| client | SDK | passed |\n|---|---|---|\n");
    for report in &results.reports {
        let sdk = CLIENTS.iter().find(|client| client.name == report.client);
        let sdk = sdk.map_or("", |client| client.sdk);
        let passed = match &report.end {
            End::Skipped(_) => "not run".to_owned(),
            End::Finished | End::Broken(_) => {
                format!("{} of {}", report.passed(), report.tried())
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| {} | {sdk} | {passed} |", report.client);
    }
    for (group, checks) in groups(&shown) {
        let heads: Vec<&str> = shown.iter().map(|report| report.client).collect();
        let _ = writeln!(page, "\n## {}\n\n| | {} |", capital(group), heads.join(" | "));
        let _ = writeln!(page, "|---|{}", "---|".repeat(shown.len()));
        for check in checks {
            let cells: Vec<&str> = shown.iter().map(|report| cell(report, group, check)).collect();
            let _ = writeln!(page, "| {check} | {} |", cells.join(" | "));
        }
    }
    page
}

/// Returns the groups and their checks, in the order of their first appearance.
fn groups<'a>(reports: &[&'a Report]) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut order: Vec<&str> = Vec::new();
    let mut members: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for check in reports.iter().flat_map(|report| &report.checks) {
        if !order.contains(&check.group.as_str()) {
            order.push(&check.group);
        }
        let known = members.entry(&check.group).or_default();
        if !known.contains(&check.check.as_str()) {
            known.push(&check.check);
        }
    }
    order.into_iter().map(|group| (group, members.remove(group).unwrap_or_default())).collect()
}

fn cell(report: &Report, group: &str, check: &str) -> &'static str {
    let found = report.checks.iter().find(|known| known.group == group && known.check == check);
    match found {
        Some(found) if !found.offered => "not offered",
        Some(found) if found.ok => "yes",
        Some(_) => "no",
        None => "",
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::super::results::Check;
    use super::*;

    fn report(client: &'static str, checks: &[(&str, &str, bool)]) -> Report {
        let mut report = Report::new(client);
        report.checks = checks
            .iter()
            .map(|(group, check, ok)| Check {
                group: (*group).to_owned(),
                check: (*check).to_owned(),
                ok: *ok,
                detail: "varies".to_owned(),
                offered: *group != "bulk",
            })
            .collect();
        report
    }

    #[test]
    fn a_row_per_check_and_a_column_per_client() {
        let results = Results {
            reports: vec![
                report("python", &[("items", "read", true), ("ttl", "expires", false)]),
                report(
                    "go",
                    &[("items", "read", true), ("items", "patch", true), ("bulk", "all", true)],
                ),
                Report::skipped("cobol", "missing".to_owned()),
            ],
        };
        let page = text(&results);
        assert!(page.contains("## Items\n\n| | python | go |\n|---|---|---|\n| read | yes | yes |\n| patch |  | yes |"), "{page}");
        assert!(page.contains("| expires | no |  |"), "{page}");
        assert!(page.contains("| all |  | not offered |"), "{page}");
        assert!(page.contains("| Go azcosmos 1.5.0 | 2 of 2 |"), "{page}");
        assert!(page.contains("| cobol |  | not run |"), "{page}");
        assert!(!page.contains("varies"), "details differ from run to run");
    }
}
