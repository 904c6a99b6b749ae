//! Reads how many tests ran from cargo's output.
//!
//! The test harness ends each binary with one line; a suite is the sum of them:
//!
//! ```text
//! test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
//! ```
//!
//! A binary that crashes prints no such line, so its exit status is checked as well.

use std::ops::AddAssign;

/// Numbers of passed, failed and ignored tests of one or many binaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

impl Counts {
    /// Parses a line of output. `None` if it is not a result line.
    pub(super) fn parse(line: &str) -> Option<Counts> {
        let (_, rest) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let count = |of: &str| {
            let field = rest.split(';').map(str::trim).find_map(|field| field.strip_suffix(of))?;
            field.trim_end().parse().ok()
        };
        Some(Counts {
            passed: count("passed")?,
            failed: count("failed")?,
            ignored: count("ignored")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(u64, u64, u64)>) {
        let expected = expected.map(|(passed, failed, ignored)| Counts { passed, failed, ignored });
        assert_eq!(Counts::parse(line), expected, "{line}");
    }

    #[test]
    fn result_lines() {
        let tail = "0 measured; 0 filtered out; finished in 0.01s";
        check(&format!("test result: ok. 5 passed; 0 failed; 1 ignored; {tail}"), Some((5, 0, 1)));
        check(
            &format!("test result: FAILED. 12 passed; 3 failed; 0 ignored; {tail}"),
            Some((12, 3, 0)),
        );
        check("test result: ok. 2 passed; 0 failed; 0 ignored", Some((2, 0, 0)));
        check("test feed::result ... ok", None);
        check("test result: ok. many passed; 0 failed; 0 ignored", None);
        check("running 5 tests", None);
        check("5 passed, 0 failed", None);
    }

    #[test]
    fn counts_add_up() {
        let mut sum = Counts { passed: 1, failed: 2, ignored: 3 };
        sum += Counts { passed: 10, failed: 20, ignored: 30 };
        assert_eq!(sum, Counts { passed: 11, failed: 22, ignored: 33 });
    }
}
