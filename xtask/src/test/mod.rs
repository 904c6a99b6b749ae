//! Runs every suite, one after the other, and reports the results.
//!
//! The output of a suite is passed through while its result lines are counted. A failing suite
//! does not stop the run: one run should show everything that is wrong. The last line printed is
//! always `N passed, N failed`.

mod counts;
mod report;
mod suites;
mod toolchain;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use counts::Counts;
use report::{End, Outcome};
use suites::{SUITES, Suite, When};

/// Runs the suites. Returns `false` if one of them failed.
pub(crate) fn run(root: &Path, quick: bool) -> bool {
    let mut outcomes = Vec::new();
    if let Err(error) = toolchain::complete(root) {
        // Suites that need the missing component fail with a more precise message.
        eprintln!("warning: {error:#}");
    }
    if let Some(shortage) = toolchain::room(root) {
        eprintln!("warning: {shortage}");
    }
    for suite in SUITES.iter().filter(|suite| suite.when == When::Always || !quick) {
        outcomes.push(run_suite(suite, root));
    }
    println!("\n{}", report::table(&outcomes));
    println!("{}", report::closing_line(&outcomes));
    report::succeeded(&outcomes)
}

fn run_suite(suite: &Suite, root: &Path) -> Outcome {
    println!("\n=== {}: {}", suite.name, shell_line(suite));
    let mut counts = Counts::default();
    let (took, end) = timed(|| {
        if let Some(tool) = suite.tool.as_ref().filter(|tool| !toolchain::has(tool.probe, root)) {
            return End::Skipped { why: tool.missing.to_owned() };
        }
        match stream(suite, root, &mut counts) {
            Ok(succeeded) => End::of(suite.kind, succeeded, counts),
            Err(error) => End::Failed { why: format!("{error:#}") },
        }
    });
    match &end {
        End::Passed => println!("=== {}: ok, {:.1} s", suite.name, took.as_secs_f64()),
        End::Failed { why } => {
            println!("=== {}: FAILED, {:.1} s: {why}", suite.name, took.as_secs_f64());
        }
        End::Skipped { why } => println!("=== {}: skipped: {why}", suite.name),
    }
    Outcome { name: suite.name, counts, took, end }
}

/// Runs the command with its output passed through, and adds up the result lines in it.
fn stream(suite: &Suite, root: &Path, counts: &mut Counts) -> Result<bool> {
    let mut child = Command::new(suite.command)
        .args(suite.args)
        .envs(suite.env.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be started", suite.command))?;
    let output = child.stdout.take().context("the output was not piped")?;
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    // Read as bytes, because a test may print invalid UTF-8.
    while reader.read_until(b'\n', &mut line).context("the output cannot be read")? > 0 {
        let text = String::from_utf8_lossy(&line);
        // `print!`, which the test harness captures: a test of this function must not add to outer counts.
        print!("{text}");
        if let Some(found) = Counts::parse(text.trim_end()) {
            *counts += found;
        }
        line.clear();
    }
    let status = child.wait().context("the end of the command is unknown")?;
    Ok(status.success())
}

/// Returns the suite's command as a shell line.
fn shell_line(suite: &Suite) -> String {
    let quoted = |text: &str| {
        if text.contains(' ') { format!("'{text}'") } else { text.to_owned() }
    };
    let env = suite.env.iter().map(|(name, value)| format!("{name}={}", quoted(value)));
    let words = env.chain([suite.command.to_owned()]).chain(suite.args.iter().map(|a| quoted(a)));
    words.collect::<Vec<String>>().join(" ")
}

#[expect(clippy::disallowed_methods, reason = "times real commands, which no simulation runs")]
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let started = Instant::now(); // tidy: allow times real commands
    let result = work();
    (started.elapsed(), result)
}

#[cfg(test)]
mod tests {
    use super::suites::Kind;
    use super::*;

    fn bash(script: &'static [&'static str], kind: Kind) -> Outcome {
        let suite = Suite {
            name: "bash",
            command: "bash",
            args: script,
            env: &[("GREETING", "hello there")],
            kind,
            when: When::Always,
            tool: None,
        };
        run_suite(&suite, Path::new("."))
    }

    #[test]
    fn result_lines_of_a_command_are_added_up() {
        const SCRIPT: &str = "for n in 1 2; do
            echo \"test result: ok. $n passed; 0 failed; 0 ignored\"
        done";
        let outcome = bash(&["-c", SCRIPT], Kind::Tests);
        assert_eq!(outcome.counts, Counts { passed: 3, failed: 0, ignored: 0 });
        assert_eq!(outcome.end, End::Passed);
    }

    #[test]
    fn a_command_that_fails_after_its_tests_fails_the_suite() {
        const SCRIPT: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'; kill -9 $$";
        let outcome = bash(&["-c", SCRIPT], Kind::Tests);
        assert_eq!(outcome.counts.passed, 1);
        assert_eq!(outcome.end, End::Failed { why: "its command failed".to_owned() });
    }

    #[test]
    fn output_that_is_not_text_is_passed_on() {
        assert_eq!(bash(&["-c", r"printf '\xff\n'"], Kind::Check).end, End::Passed);
    }

    #[test]
    fn the_environment_reaches_the_command() {
        assert_eq!(
            bash(&["-c", "test \"$GREETING\" = 'hello there'"], Kind::Check).end,
            End::Passed
        );
    }

    #[test]
    fn a_suite_without_what_it_needs_is_skipped_and_says_how_to_get_it() {
        let suite = Suite {
            name: "needs a tool",
            command: "no-such-program",
            args: &[],
            env: &[],
            kind: Kind::Check,
            when: When::Always,
            tool: Some(suites::Tool { probe: &["no-such-program"], missing: "make it" }),
        };
        let end = run_suite(&suite, Path::new(".")).end;
        assert_eq!(end, End::Skipped { why: "make it".to_owned() });
    }

    #[test]
    fn a_command_that_cannot_be_started_fails_the_suite() {
        let suite = Suite {
            name: "cannot start",
            command: "no-such-program",
            args: &["--now"],
            env: &[("A", "b c")],
            kind: Kind::Check,
            when: When::Always,
            tool: None,
        };
        assert!(matches!(run_suite(&suite, Path::new(".")).end, End::Failed { .. }));
        assert_eq!(shell_line(&suite), "A='b c' no-such-program --now");
    }
}
