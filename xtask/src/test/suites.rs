//! What `cargo xtask test` runs, in order. To add a suite, add an entry to `SUITES`.
//!
//! A suite is one command anyone can paste into a shell. Cheap ones come first, so that a slip shows
//! early. Give a suite of its own to what must run in release, alone, or with an environment;
//! ordinary tests are already part of `tests`.

/// One command and what its success means.
pub(super) struct Suite {
    /// Shown in headings and in the summary.
    pub(super) name: &'static str,
    pub(super) command: &'static str,
    pub(super) args: &'static [&'static str],
    pub(super) env: &'static [(&'static str, &'static str)],
    pub(super) kind: Kind,
    pub(super) when: When,
    /// Without it the suite is skipped, and says so.
    pub(super) tool: Option<Tool>,
}

/// What a suite's success rests on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The exit status alone.
    Check,
    /// Also that at least one test ran: a misspelt filter passes by running nothing.
    Tests,
}

/// Which runs a suite is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Left out by `--quick`.
    Full,
}

/// What the suite needs and not every machine has.
pub(super) struct Tool {
    /// Succeeds if it is there.
    pub(super) probe: &'static [&'static str],
    /// What is missing otherwise, and how to get it.
    pub(super) missing: &'static str,
}

/// What only some users of our libraries ask for.
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
    // Licences, bans, sources: see deny.toml. These need no more than a build does.
    Suite {
        name: "dependencies",
        args: &["deny", "check", "bans", "licenses", "sources"],
        tool: Some(Tool {
            probe: &["cargo", "deny", "--version"],
            missing: "not installed; cargo install --locked cargo-deny@0.20.2",
        }),
        ..CARGO_CHECK
    },
    // The advisories are fetched anew each time, from elsewhere; where that cannot be, the rest still counts.
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
    // Optimised code plays many times the seeds, and a fast writer is killed at more interesting moments. The
    // command is among the packages because cargo chooses the features of dependencies by package: with it,
    // `readme` needs no release build of its own.
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
    // The processor is optimised in every profile, so many seeds need no release build either.
    Suite {
        name: "processor, many seeds",
        args: &["test", "--workspace", "--features", OPTIONAL, "--lib", "whatever_happens"],
        env: &[("HEADWATER_SEEDS", "10000")],
        when: When::Full,
        ..CARGO_TEST
    },
    // Pages in a real browser, which try what a page can try.
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
    // Official SDKs, installed in private folders; a language that is missing here is skipped.
    Suite {
        name: "compatibility",
        args: &["xtask", "compatibility"],
        when: When::Full,
        ..CARGO_TEST
    },
    // Backups to object stores, emulated by programs of others in private folders.
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
