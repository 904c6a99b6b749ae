//! A finding of a tidy check: its place, the problem and the remedy.
//!
//! The remedy is mandatory.

use std::fmt;

/// Whether a finding fails the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    Problem,
    /// Shown, but does not fail the run.
    Warning,
}

/// One problem or warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Path from the root of the repository, with forward slashes.
    pub(crate) file: String,
    /// Counted from 1. A finding about a whole file has line 1, so that editors can jump to it.
    pub(crate) line: usize,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

impl Finding {
    pub(crate) fn problem(
        place: (&str, usize),
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding {
            severity: Severity::Problem,
            file: place.0.to_owned(),
            line: place.1,
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    pub(crate) fn warning(
        place: (&str, usize),
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { severity: Severity::Warning, ..Finding::problem(place, problem, remedy) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { severity, file, line, problem, remedy } = self;
        let prefix = match severity {
            Severity::Problem => "",
            Severity::Warning => "warning: ",
        };
        write!(f, "{file}:{line}: {prefix}{problem}\n    {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_names_place_problem_and_remedy() {
        let problem = Finding::problem(("a/b.rs", 7), "it is wrong", "do this");
        assert_eq!(problem.to_string(), "a/b.rs:7: it is wrong\n    do this");
        let warning = Finding::warning(("a/b.rs", 7), "it is odd", "look at it");
        assert_eq!(warning.to_string(), "a/b.rs:7: warning: it is odd\n    look at it");
    }
}
