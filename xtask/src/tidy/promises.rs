//! Checks that every promise to users has a test.
//!
//! `docs/internals/promises.md` lists the promises in a table. The check looks up each test in the file that its row
//! names. It does not run the tests: `cargo xtask test` runs all of them.
//!
//! ```text
//! | promise                                  | test                       | file                     |
//! |------------------------------------------|----------------------------|--------------------------|
//! | An acknowledged write survives `kill -9` | `acknowledged_is_durable`  | `crates/.../kill.rs`     |
//! ```
//!
//! A row may name several tests, separated by commas. The file is a path from the root, or a link.

use super::finding::Finding;
use super::links;
use super::tree::Tree;

const PAGE: &str = "docs/internals/promises.md";

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
struct Promise {
    line: usize,
    tests: Vec<String>,
    /// The path from the root of the repository.
    file: String,
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return Vec::new();
    };
    let promises = parse(&page.text);
    if promises.is_empty() {
        let remedy = "write a table with the columns promise, test and file";
        return vec![Finding::problem((PAGE, 1), "the page lists no promise", remedy)];
    }
    promises.iter().flat_map(|promise| check_promise(promise, tree)).collect()
}

fn check_promise(promise: &Promise, tree: &Tree) -> Vec<Finding> {
    let place = (PAGE, promise.line);
    if promise.tests.is_empty() {
        let remedy = "write the test and put its name into the second column";
        return vec![Finding::problem(place, "the promise names no test", remedy)];
    }
    let Some(source) = tree.file(&promise.file) else {
        let problem = format!("the file `{}` does not exist", promise.file);
        return vec![Finding::problem(place, problem, "name the file the test is in")];
    };
    let missing = promise.tests.iter().filter(|test| !has_test(&source.text, test));
    let report = |test: &String| {
        let problem = format!("`{}` has no test function called `{test}`", promise.file);
        Finding::problem(place, problem, "write the test, or correct its name or its file")
    };
    missing.map(report).collect()
}

/// Parses the rows of every table whose columns are promise, test and file.
fn parse(page: &str) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut in_table = false;
    for (index, line) in page.lines().enumerate() {
        let Some(row) = cells(line) else {
            in_table = false;
            continue;
        };
        let is_rule = row.iter().all(|cell| cell.chars().all(|c| c == '-' || c == ':'));
        match row.as_slice() {
            _ if is_rule => {}
            [promise, test, file] if !in_table => {
                let heads = [promise, test, file].map(|cell| cell.to_lowercase());
                in_table =
                    heads[0] == "promise" && heads[1].starts_with("test") && heads[2] == "file";
            }
            _ if !in_table => {}
            [_, tests, file] => {
                promises.push(Promise { line: index + 1, tests: names(tests), file: path(file) })
            }
            // A row without all columns is kept as a promise without a test, so it is reported.
            _ => promises.push(Promise { line: index + 1, tests: vec![], file: String::new() }),
        }
    }
    promises
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?;
    let inside = inside.strip_suffix('|').unwrap_or(inside);
    Some(inside.split('|').map(str::trim).collect())
}

fn names(cell: &str) -> Vec<String> {
    let names = cell.split(',').map(|name| name.trim().trim_matches('`'));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn path(cell: &str) -> String {
    let target = cell.split_once("](").and_then(|(_, rest)| rest.split_once(')'));
    match target {
        Some((target, _)) => links::resolve(PAGE, target).unwrap_or_else(|| target.to_owned()),
        None => cell.trim_matches('`').to_owned(),
    }
}

/// Returns whether `source` has a function `name` with a test attribute.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().collect();
    let is_attribute = |line: &&str| line.contains("#[") && line.contains("test");
    lines.iter().enumerate().any(|(index, line)| {
        let above = lines[..index].iter().rev().take_while(|line| !ends_an_item(line));
        defines(line, name) && (is_attribute(line) || above.into_iter().any(is_attribute))
    })
}

fn defines(line: &str, name: &str) -> bool {
    let Some((_, rest)) = line.split_once("fn ") else {
        return false;
    };
    let after = rest.trim_start().strip_prefix(name);
    let is_comment = line.trim_start().starts_with("//");
    !is_comment && after.is_some_and(|after| after.starts_with(['(', '<']))
}

/// Returns whether a line ends the previous item. The attributes of a function follow that line.
fn ends_an_item(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.ends_with(['}', '{', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# Promises\n\n| Promise | Test name | File |\n|---|:--|--:|\n";
    const KILL: &str = "crates/store/tests/kill.rs";

    #[track_caller]
    fn check_row(row: &str, source: &str, expected: Option<&str>) {
        let page = format!("{HEAD}{row}\n");
        let findings = check(&Tree::of(&[(PAGE, &page), (KILL, source)]));
        assert!(findings.len() <= 1, "{row}: {findings:?}");
        match (findings.first(), expected) {
            (Some(found), Some(expected)) => {
                assert!(found.problem.contains(expected), "{}", found.problem);
                assert_eq!((found.file.as_str(), found.line), (PAGE, 5));
            }
            (found, expected) => {
                assert_eq!(found.is_some(), expected.is_some(), "{row}: {source}");
            }
        }
    }

    const ROW: &str = "| Durable | `is_durable` | `crates/store/tests/kill.rs` |";

    #[test]
    fn a_promise_needs_a_test_of_that_name() {
        check_row(ROW, "#[test]\nfn is_durable() {}\n", None);
        check_row(ROW, "#[tokio::test]\nasync fn is_durable() {}\n", None);
        check_row(ROW, "#[test]\n/// Why.\n#[cfg(unix)]\nfn is_durable() {}\n", None);
        check_row(ROW, "proptest! {\n    #[test]\n    fn is_durable(n in 0..9) {}\n}\n", None);
        check_row(ROW, "", Some("is_durable"));
        check_row(ROW, "#[test]\nfn is_durable_too() {}\n", Some("is_durable"));
        check_row(ROW, "fn is_durable() {}\n", Some("is_durable"));
        check_row(ROW, "#[test]\nfn other() {}\nfn is_durable() {}\n", Some("is_durable"));
        check_row(ROW, "#[test]\n// fn is_durable() {}\nfn other() {}\n", Some("is_durable"));
    }

    #[test]
    fn a_row_may_name_several_tests_and_link_to_the_file() {
        let source = "#[test]\nfn one() {}\n\n#[test]\nfn two() {}\n";
        let link = "[kill](../../crates/store/tests/kill.rs)";
        check_row(&format!("| Durable | `one`, `two` | {link} |"), source, None);
        check_row(&format!("| Durable | `one`, `three` | {link} |"), source, Some("three"));
    }

    #[test]
    fn a_promise_without_test_or_file_is_reported() {
        check_row("| Durable | | `crates/store/tests/kill.rs` |", "", Some("names no test"));
        check_row("| Durable |", "", Some("names no test"));
        check_row("| Durable | `a` | `crates/gone.rs` |", "", Some("does not exist"));
    }

    #[test]
    fn a_page_without_promises_is_a_mistake_but_no_page_is_none() {
        assert_eq!(check(&Tree::of(&[(PAGE, "# Promises\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[(PAGE, "| a | b | c |\n|-|-|-|\n| d | e | f |\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[])), []);
    }
}
