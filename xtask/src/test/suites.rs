//! The suites that `cargo xtask test` runs, in order. To add a suite, add an entry to `SUITES`.
//!
//! A suite is one command that can be pasted into a shell. Cheap ones come first, so that simple mistakes
//! show early. Add a suite for tests that must run in release, alone, or with an environment;
//! ordinary tests are already part of `tests`.

/// One command, and how its result is judged.
pub(super) struct Suite {
    /// Shown in headings and in the summary.
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) env: &'static [(&'static str, &'static str)],
    pub(super) kind: Kind,
    pub(super) when: When,
    /// The required tool. Without it the suite is skipped with a message.
    pub(super) tool: Option<Tool>,
}

/// How a suite's success is determined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// By the exit status alone.
    Check,
    /// By the exit status, and at least one test must run: a misspelt filter would pass without running any.
    Tests,
}

/// The runs that a suite is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Left out by `--quick`.
    Full,
}

/// A tool that is not installed on every machine.
pub(super) struct Tool {
    /// A command that succeeds if the tool is installed.
    pub(super) probe: &'static [&'static str],
    /// The message if it is missing, with how to install it.
    pub(super) missing: &'static str,
}

/// Optional features of the libraries.
const OPTIONAL: &str = "headwater-processor/opentelemetry,headwater-client/entra";

pub(super) const SUITES: &[Suite] = &[
    Suite { name: "formatting", args: &["fmt", "--all", "--check"], ..CARGO_CHECK },
    Suite { name: "tidy", args: &["xtask", "tidy"], ..CARGO_CHECK },
    Suite {
        name: "clippy",
        args: &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            OPTIONAL,
            "--",
            "-D",
            "warnings",
        ],
        ..CARGO_CHECK
    },
    // Unit, integration and documentation tests of every crate.
    Suite {
        name: "tests",
        args: &["test", "--workspace", "--no-fail-fast", "--features", OPTIONAL],
        ..CARGO_TEST
    },
    Suite {
        name: "rustdoc",
        args: &["doc", "--workspace", "--no-deps"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
        ..CARGO_CHECK
    },
    // Licences, bans, sources: see deny.toml. These checks need no network beyond that of a build.
    Suite {
        name: "dependencies",
        args: &["deny", "check", "bans", "licenses", "sources"],
        tool: Some(Tool {
            probe: &["cargo", "deny", "--version"],
            missing: "not installed; cargo install --locked cargo-deny@0.20.2",
        }),
        ..CARGO_CHECK
    },
    // The advisories are downloaded on each run, so this suite is separate and is skipped without network access.
    Suite {
        name: "advisories",
        args: &["deny", "check", "advisories"],
        tool: Some(Tool {
            probe: &["cargo", "deny", "fetch", "db"],
            missing: "cargo-deny is not installed, or the advisories cannot be fetched from here; \
                      `cargo deny fetch db` says which",
        }),
        ..CARGO_CHECK
    },
    // Release builds run many more seeds, and kills hit a fast writer at more varied moments. The command-line
    // package is included because cargo unifies dependency features per selected package: with it, `readme`
    // needs no separate release build.
    Suite {
        name: "promises and kills, release",
        args: &[
            "test",
            "--release",
            "--no-fail-fast",
            "-p",
            "headwater",
            "-p",
            "headwater-simulation",
            "-p",
            "headwater-store",
            "--test",
            "promises",
            "--test",
            "kill",
        ],
        when: When::Full,
        ..CARGO_TEST
    },
    // The processor is optimised in every profile, so many seeds need no release build.
    Suite {
        name: "processor, many seeds",
        args: &["test", "--workspace", "--features", OPTIONAL, "--lib", "whatever_happens"],
        env: &[("HEADWATER_SEEDS", "10000")],
        when: When::Full,
        ..CARGO_TEST
    },
    // Attacks by web pages in a real browser.
    Suite {
        name: "browser",
        args: &["xtask", "browser"],
        when: When::Full,
        tool: Some(Tool {
            probe: &["chromium", "--version"],
            missing: "chromium is not installed; apt-get install chromium",
        }),
        ..CARGO_TEST
    },
    // Official SDKs, installed in private folders; languages that are not installed are skipped.
    Suite {
        name: "compatibility",
        args: &["xtask", "compatibility"],
        when: When::Full,
        ..CARGO_TEST
    },
    // Backups to third-party object store emulators, installed in private folders.
    Suite {
        name: "object stores",
        args: &["xtask", "objects"],
        when: When::Full,
        tool: Some(Tool {
            probe: &["npm", "--version"],
            missing: "npm is not installed; Azurite, which emulates Azure Blob Storage, comes from it",
        }),
        ..CARGO_TEST
    },
    Suite { name: "readme", args: &["xtask", "readme"], when: When::Full, ..CARGO_CHECK },
];

const CARGO_CHECK: Suite = Suite {
    name: "",
    command: "cargo",
    args: &[],
    env: &[],
    kind: Kind::Check,
    when: When::Always,
    tool: None,
};

const CARGO_TEST: Suite = Suite { kind: Kind::Tests, ..CARGO_CHECK };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_suite_has_a_name_of_its_own_and_something_to_run() {
        let names: BTreeSet<&str> = SUITES.iter().map(|suite| suite.name).collect();
        assert_eq!(names.len(), SUITES.len());
        assert!(!names.contains(""));
        assert!(SUITES.iter().all(|suite| !suite.args.is_empty()));
    }

    #[test]
    fn only_the_advisories_are_skipped_where_they_cannot_be_fetched() {
        let deny: Vec<&Suite> = SUITES.iter().filter(|one| one.args.contains(&"deny")).collect();
        for check in ["bans", "licenses", "sources", "advisories"] {
            let suite = deny.iter().find(|suite| suite.args.contains(&check));
            let tool = suite.and_then(|suite| suite.tool.as_ref());
            let fetches = tool.is_some_and(|tool| tool.probe.contains(&"fetch"));
            assert_eq!(fetches, check == "advisories", "{check}");
        }
    }

    #[test]
    fn what_plays_many_seeds_is_run_where_it_plays_most() {
        let in_release = |suite: &Suite| {
            suite.args.contains(&"headwater-simulation") && suite.args.contains(&"--release")
        };
        let told_how_many = |suite: &Suite| {
            suite.args.contains(&"whatever_happens")
                && suite.env.iter().any(|(name, _)| *name == "HEADWATER_SEEDS")
        };
        assert!(SUITES.iter().any(in_release), "headwater-simulation");
        assert!(SUITES.iter().any(told_how_many), "headwater-processor");
    }

    #[test]
    fn release_builds_are_left_out_of_quick_runs() {
        for suite in SUITES.iter().filter(|suite| suite.args.contains(&"--release")) {
            assert!(suite.when == When::Full, "{}", suite.name);
        }
    }
}
