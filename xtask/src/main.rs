//! The project's automation, run as `cargo xtask <command>`.
//!
//! Everything CI does is a command here, so it runs the same way on your machine. The two main parts are
//! `tidy`, the rules that no compiler checks, as functions over text; and `test`, a table of
//! suites (`test/suites.rs`) that one loop runs, streams and counts.
//!
//! This crate uses no other crate of the workspace. It must build in seconds, and work when they do not compile.

mod browser;
mod compatibility;
mod fuzz;
mod hostile;
mod objects;
mod readme;
mod soak;
mod test;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const HELP: &str = "\
Headwater's automation.

usage: cargo xtask <command>

commands:
  test [--quick]  Everything that must be green before a change is done: formatting, clippy, tidy,
                  all tests in the dev profile, the long-running suites in release, rustdoc, and
                  licences and advisories when cargo-deny is installed (advisories also have to
                  be within reach; otherwise they are skipped). Every suite runs even if an
                  earlier one fails. --quick leaves out the release suites and the README's
                  commands.
                  The last line is `N passed, N failed`: the tests of all suites, where a suite
                  that fails without a failing test (clippy, a compile error, an ignored test)
                  counts as one failure.
  ci [--quick]    The same as test: what CI runs is what you run.
  tidy            The rules no compiler checks: which crate may use which, no wall clock, chance or
                  bare task outside crates/runtime, a header on every file, nothing unfinished,
                  file sizes, links between documents, an index of the guide with every page, no
                  paths of one machine, and a test behind each promise in
                  docs/internals/promises.md. A line is excused by ending it with
                  `// tidy: allow <reason>`.
  readme          Runs the blocks of README.md that are fenced as ```sh tested, so that the first
                  commands a newcomer types keep working.
  browser         Pages in a real browser (Debian's chromium) that try to read and write at a server:
                  a foreign page, one whose name points here, and one of this machine.
  compatibility [client...]
                  Programs written with official clients (Python, JavaScript, Go, ...), run against
                  our server. Their SDKs are installed under target/compatibility. A run of all
                  clients writes docs/internals/compatibility.md.
  objects         Backups to Azurite, Microsoft's emulator of Azure Blob Storage, and to moto's S3. Both are
                  installed under target/objects.
  soak [--minutes N] [--seed N]
                  Writers, readers of the feed and hostile clients at once, on a release build that is
                  split, merged and killed meanwhile; ten minutes unless told otherwise. A short one
                  is part of test.
  fuzz [--seconds N] [--jobs N] [target...]
                  The fuzz targets of fuzz/, a minute each and one at a time unless told otherwise,
                  from the seeds in fuzz/seeds. Needs a nightly toolchain and cargo-fuzz; see
                  fuzz/README.md.
  hostile [--seconds N]
                  Attacks, damage to every file, power cuts and kills, on a release build. Each attack takes
                  five seconds unless told otherwise and prints what it sent, the server's memory and the
                  latency of a neighbour. It fails when the neighbour's p99 is more than five times what it
                  was before the attack; 2 ms or less always passes. Short forms are part of test. Needs a
                  quiet machine.
  help            This text.

To add a suite, add an entry to xtask/src/test/suites.rs.
";

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Browser,
    Compatibility { clients: Vec<&'a str> },
    Fuzz(fuzz::Settings),
    Help,
    Hostile(hostile::Settings),
    Objects,
    Readme,
    Soak(soak::Settings),
    Test { quick: bool },
    Tidy,
}

impl<'a> Command<'a> {
    fn parse(arguments: &[&'a str]) -> Result<Command<'a>> {
        match arguments {
            [] | ["help" | "--help" | "-h"] | [_, "--help" | "-h"] => Ok(Command::Help),
            ["browser"] => Ok(Command::Browser),
            ["compatibility", clients @ ..]
                if !clients.iter().any(|name| name.starts_with('-')) =>
            {
                Ok(Command::Compatibility { clients: clients.to_vec() })
            }
            ["fuzz", settings @ ..] => Ok(Command::Fuzz(fuzz::Settings::parse(settings)?)),
            ["hostile", settings @ ..] => Ok(Command::Hostile(hostile::Settings::parse(settings)?)),
            ["objects"] => Ok(Command::Objects),
            ["readme"] => Ok(Command::Readme),
            ["soak", settings @ ..] => Ok(Command::Soak(soak::Settings::parse(settings)?)),
            ["test" | "ci"] => Ok(Command::Test { quick: false }),
            ["test" | "ci", "--quick"] => Ok(Command::Test { quick: true }),
            ["tidy"] => Ok(Command::Tidy),
            other => {
                bail!("no such command: {}; `cargo xtask help` lists them", other.join(" "))
            }
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a command. Returns `false` if it found a problem, after printing it.
fn run(arguments: &[String]) -> Result<bool> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match Command::parse(&arguments)? {
        Command::Help => {
            print!("{HELP}");
            Ok(true)
        }
        Command::Browser => browser::run(&root()?),
        Command::Compatibility { clients } => compatibility::run(&root()?, &clients),
        Command::Fuzz(settings) => fuzz::run(&root()?, &settings),
        Command::Objects => objects::run(&root()?),
        Command::Readme => readme::run(&root()?),
        Command::Hostile(settings) => hostile::run(&root()?, &settings),
        Command::Soak(settings) => soak::run(&root()?, &settings),
        Command::Test { quick } => Ok(test::run(&root()?, quick)),
        Command::Tidy => tidy::run(&root()?),
    }
}

/// Returns the root of the repository: the folder above this crate.
fn root() -> Result<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().context("xtask has no parent folder")?;
    Ok(root.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: Option<Command<'_>>) {
        assert_eq!(Command::parse(arguments).ok(), expected, "arguments {arguments:?}");
    }

    #[test]
    fn command_lines() {
        check(&[], Some(Command::Help));
        check(&["--help"], Some(Command::Help));
        check(&["test", "--help"], Some(Command::Help));
        check(&["test"], Some(Command::Test { quick: false }));
        check(&["ci"], Some(Command::Test { quick: false }));
        check(&["test", "--quick"], Some(Command::Test { quick: true }));
        check(&["tidy"], Some(Command::Tidy));
        check(&["readme"], Some(Command::Readme));
        check(&["browser"], Some(Command::Browser));
        check(&["objects"], Some(Command::Objects));
        check(&["compatibility"], Some(Command::Compatibility { clients: vec![] }));
        let clients = vec!["go", "python"];
        check(&["compatibility", "go", "python"], Some(Command::Compatibility { clients }));
        check(&["compatibility", "--all"], None);
        let settings = fuzz::Settings { seconds: 60, jobs: 1, targets: vec![] };
        check(&["fuzz"], Some(Command::Fuzz(settings)));
        check(&["hostile", "--seconds", "0"], None);
        let settings = hostile::Settings { seconds: 9 };
        check(&["hostile", "--seconds", "9"], Some(Command::Hostile(settings)));
        check(&["soak"], Some(Command::Soak(soak::Settings::default())));
        let settings = soak::Settings { minutes: 2, seed: Some(7) };
        check(&["soak", "--seed", "7", "--minutes", "2"], Some(Command::Soak(settings)));
        check(&["soak", "--minutes"], None);
        check(&["soak", "--minutes", "0"], None);
        check(&["soak", "--hours", "1"], None);
        check(&["tidy", "--quick"], None);
        check(&["test", "--quik"], None);
        check(&["tset"], None);
    }
}
