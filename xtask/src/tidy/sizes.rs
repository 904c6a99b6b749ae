//! Limits the length of source files.
//!
//! A file over the hard limit has two purposes, or its tests belong in a file of their own. A file over the soft
//! limit only gets a warning, because some code is one long sequence.

use super::finding::Finding;
use super::tree::Tree;

const LINES_MAX: usize = 1500;
const LINES_LOOK: usize = 900;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.is_rust()) {
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            findings.push(Finding::problem(
                (&file.path, LINES_MAX + 1),
                format!("{lines} lines; the limit is {LINES_MAX}"),
                "split it by what it does, or move its tests to a file of their own",
            ));
        } else if lines > LINES_LOOK {
            findings.push(Finding::warning(
                (&file.path, LINES_LOOK + 1),
                format!("{lines} lines; past {LINES_LOOK} a file often has two jobs"),
                "look whether it wants splitting",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::*;

    #[track_caller]
    fn check_lines(lines: usize, expected: &[Severity]) {
        let text = "x\n".repeat(lines);
        let findings = check(&Tree::of(&[("crates/log/src/lib.rs", &text)]));
        let severities: Vec<Severity> = findings.iter().map(|found| found.severity).collect();
        assert_eq!(severities, expected, "{lines} lines");
    }

    #[test]
    fn long_files_are_mentioned_and_very_long_ones_refused() {
        check_lines(1, &[]);
        check_lines(LINES_LOOK, &[]);
        check_lines(LINES_LOOK + 1, &[Severity::Warning]);
        check_lines(LINES_MAX, &[Severity::Warning]);
        check_lines(LINES_MAX + 1, &[Severity::Problem]);
    }

    #[test]
    fn documents_may_be_as_long_as_they_need() {
        let text = "x\n".repeat(LINES_MAX + 1);
        assert_eq!(check(&Tree::of(&[("CHANGELOG.md", &text)])), []);
    }
}
