//! Finds text that is banned from the repository.
//!
//! Three kinds: calls that bypass the simulation (time, randomness, tasks), marks of unfinished work, and
//! paths that exist on one machine only. clippy bans some of the calls as well, but does not check macros
//! or disabled code.
//!
//! A match must begin at the start of a word, so a module called `strand` may have a path. A comment line may
//! name a banned call, but not a banned path. The needles are written in two halves so that this file does not
//! match itself.

use super::finding::Finding;
use super::tree::{SourceFile, Tree};

/// The mark near the end of an excused line, followed by the reason.
const ALLOW: &str = concat!("tidy: ", "allow");

/// Needles that share a scope, a problem and a remedy.
struct Ban {
    needles: &'static [&'static str],
    scope: Scope,
    problem: &'static str,
    remedy: &'static str,
}

/// Where a ban applies.
#[derive(Clone, Copy)]
enum Scope {
    /// Rust code outside the runtime crate.
    OutsideRuntime,
    /// All Rust code.
    Code,
    /// All text written by people, including comments.
    Everywhere,
}

const BANS: &[Ban] = &[
    Ban {
        needles: &[concat!("SystemTime", "::now"), concat!("Instant", "::now")],
        scope: Scope::OutsideRuntime,
        problem: "reads the machine's clock",
        remedy: "take the time from headwater_runtime, so that a simulation can set it",
    },
    Ban {
        needles: &[concat!("ra", "nd::"), concat!("thread", "_rng"), concat!("get", "random")],
        scope: Scope::OutsideRuntime,
        problem: "draws a number that no seed controls",
        remedy: "take chance from headwater_runtime, so that one seed is one history",
    },
    Ban {
        needles: &[
            concat!("tokio::", "spawn"),
            concat!("task::", "spawn"),
            concat!("thread::", "spawn"),
            concat!("spawn", "_blocking"),
        ],
        scope: Scope::OutsideRuntime,
        problem: "starts a task that nobody owns",
        remedy: "start it through headwater_runtime, which knows how it ends",
    },
    Ban {
        needles: &[
            concat!("#[", "ignore"),
            concat!("to", "do!("),
            concat!("unimple", "mented!("),
            concat!("db", "g!("),
        ],
        scope: Scope::Code,
        problem: "marks unfinished work",
        remedy: "finish it, or take it out and say in a comment what breaks until it is done",
    },
    Ban {
        needles: &[
            concat!("/", "home/"),
            concat!("/", "root/"),
            concat!("/", "work/"),
            concat!("/", "tmp/"),
        ],
        scope: Scope::Everywhere,
        problem: "is a path of one machine",
        remedy: "use a relative path, or a temporary directory from tempfile",
    },
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files().flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in file.lines() {
        let found = BANS
            .iter()
            .filter(|ban| ban.scope.covers(file, line))
            .find_map(|ban| ban.find(line).map(|needle| (ban, needle)));
        let Some((ban, needle)) = found else { continue };
        let place = (file.path.as_str(), number);
        match excuse(line) {
            Some("") => findings.push(Finding::problem(
                place,
                format!("`{needle}` is allowed here without a reason"),
                format!("write the reason after `{ALLOW}`"),
            )),
            Some(_) => {}
            None => findings.push(Finding::problem(
                place,
                format!("`{needle}` {}", ban.problem),
                format!("{}; or end the line with `// {ALLOW} <reason>`", ban.remedy),
            )),
        }
    }
    findings
}

impl Scope {
    fn covers(self, file: &SourceFile, line: &str) -> bool {
        let is_code = file.is_rust() && !line.trim_start().starts_with("//");
        match self {
            Scope::OutsideRuntime => is_code && !file.path.starts_with("crates/runtime/"),
            Scope::Code => is_code,
            Scope::Everywhere => true,
        }
    }

    /// Returns whether a needle after this character is only the end of a longer word or path.
    fn continues_after(self, before: char) -> bool {
        match self {
            Scope::OutsideRuntime | Scope::Code => before.is_alphanumeric() || before == '_',
            // Characters before a relative path, the path of a URL, or a placeholder.
            Scope::Everywhere => before.is_alphanumeric() || "_-.~*$})]>".contains(before),
        }
    }
}

impl Ban {
    fn find(&self, line: &str) -> Option<&'static str> {
        let begins_here = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|before| self.scope.continues_after(before))
        };
        self.needles
            .iter()
            .find(|needle| line.match_indices(**needle).any(|(at, _)| begins_here(at)))
            .copied()
    }
}

/// Returns the reason for which a line is excused: `None` without the mark, empty without a reason.
fn excuse(line: &str) -> Option<&str> {
    let (_, reason) = line.split_once(ALLOW)?;
    Some(reason.trim_end_matches("-->").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(path: &str, line: &str, expected: Option<&str>) {
        let findings = check(&Tree::of(&[(path, line)]));
        assert!(findings.len() <= 1, "{line}: {findings:?}");
        let problem = findings.first().map(|found| found.problem.as_str());
        match (problem, expected) {
            (Some(problem), Some(expected)) => assert!(problem.contains(expected), "{problem}"),
            (problem, expected) => assert_eq!(problem, expected, "{path}: {line}"),
        }
    }

    const STORE: &str = "crates/store/src/ttl.rs";

    #[test]
    fn time_chance_and_tasks_come_from_the_runtime() {
        let clock = concat!("let now = Instant", "::now();");
        check_line(STORE, clock, Some("clock"));
        check_line("crates/store/tests/ttl.rs", clock, Some("clock"));
        check_line("crates/store/benches/ttl.rs", clock, Some("clock"));
        check_line("crates/runtime/src/clock.rs", clock, None);
        check_line("docs/time.md", clock, None);
        check_line(STORE, concat!("std::time::SystemTime", "::now()"), Some("clock"));
        check_line(STORE, concat!("use ra", "nd::Rng;"), Some("seed"));
        check_line(STORE, concat!("let mut dice = thread", "_rng();"), Some("seed"));
        check_line(STORE, concat!("get", "random::fill(&mut id)?;"), Some("seed"));
        check_line(STORE, concat!("tokio::", "spawn(work);"), Some("owns"));
        check_line(STORE, concat!("std::thread::", "spawn(work);"), Some("owns"));
        check_line(STORE, concat!("tokio::task::", "spawn_local(work);"), Some("owns"));
        check_line(STORE, concat!("handle.spawn", "_blocking(work);"), Some("owns"));
    }

    #[test]
    fn a_call_must_begin_where_a_word_begins() {
        check_line(STORE, concat!("use crate::stra", "nd::Thread;"), None);
        check_line(STORE, concat!("my_tokio::", "spawn(work);"), None);
    }

    #[test]
    fn comments_may_speak_about_calls() {
        check_line(STORE, concat!("    // unlike Instant", "::now, this can be set"), None);
        check_line(STORE, concat!("/// Replaces `tokio::", "spawn`."), None);
    }

    #[test]
    fn nothing_is_left_unfinished() {
        check_line(STORE, concat!("    #[", "ignore]"), Some("unfinished"));
        check_line(STORE, concat!("    #[", "ignore = \"slow\"]"), Some("unfinished"));
        check_line(STORE, concat!("    to", "do!()"), Some("unfinished"));
        check_line(STORE, concat!("    unimple", "mented!(\"later\")"), Some("unfinished"));
        check_line("crates/runtime/src/lib.rs", concat!("db", "g!(x);"), Some("unfinished"));
        check_line(STORE, "fn ignore() {}", None);
    }

    #[test]
    fn no_path_of_one_machine_stands_anywhere() {
        let home = concat!("/", "home/me/data");
        check_line(STORE, &format!("open(\"{home}\")"), Some("machine"));
        check_line(STORE, &format!("// keep it in {home}"), Some("machine"));
        check_line("README.md", &format!("cd {home}"), Some("machine"));
        check_line("README.md", &format!("see file://{home}"), Some("machine"));
        check_line(".ci/run", &format!("cd {home}"), Some("machine"));
        check_line("README.md", &format!("https://example.com{home}"), None);
        check_line("README.md", &format!("see docs{home} and ~{home}"), None);
        check_line("README.md", &format!("http://<host>{home}"), None);
        check_line(STORE, concat!("Path::new(\"/", "tmp/x\")"), Some("machine"));
    }

    #[test]
    fn a_line_is_excused_by_a_reason_and_only_by_one() {
        let clock = concat!("Instant", "::now();");
        let allow = concat!("tidy: ", "allow");
        check_line(STORE, &format!("{clock} // {allow} it times the benchmark itself"), None);
        check_line(STORE, &format!("{clock} // {allow}"), Some("without a reason"));
        let home = concat!("/", "home/app");
        check_line("README.md", &format!("{home} <!-- {allow} in the image -->"), None);
        check_line("README.md", &format!("{home} <!-- {allow} -->"), Some("without a reason"));
    }
}
