//! Runs the commands of the README and of the guide in order, and compares their output.
//!
//! A block fenced as `sh` holds commands. A block fenced as `console` holds commands after `$ ` and below
//! each its output, where `…` stands for anything. Commands run in an empty folder, against the server
//! that the README itself has started, on any port. `cargo run` means the command under test.
//!
//! Of a page of the guide only `console` blocks are run, all of them against a fresh server.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::Running;

/// Commands that are not run, with the reason.
const NOT_RUN: &[(&str, &str)] = &[("cargo xtask test", "it is what runs this test")];
/// The server's address in the README.
const ADDRESS: &str = "127.0.0.1:8080";

/// A command, and its output as shown in the README.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    line: usize,
    command: String,
    output: Option<String>,
}

/// Returns the commands of a page, in order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut language = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        match (language, line.strip_prefix("```")) {
            (None, Some(info)) => language = Some(info.split_whitespace().next().unwrap_or("")),
            (Some(_), Some(_)) => language = None,
            (Some("sh"), None) if !line.trim().is_empty() => {
                steps.push(Step { line: number, command: line.to_owned(), output: None });
            }
            (Some("console"), None) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    let (command, output) = (command.to_owned(), Some(String::new()));
                    steps.push(Step { line: number, command, output });
                }
                (None, Some(Step { output: Some(output), .. })) => {
                    writeln!(output, "{line}").unwrap()
                }
                (None, _) => panic!("line {number}: output without a command"),
            },
            _ => {}
        }
    }
    steps
}

/// Returns whether a text matches the page, in which `…` stands for anything within a line.
fn shows(page: &str, text: &str) -> bool {
    let (page, text): (Vec<&str>, Vec<&str>) = (page.lines().collect(), text.lines().collect());
    page.len() == text.len() && page.iter().zip(&text).all(|(page, line)| line_shows(page, line))
}

fn line_shows(page: &str, line: &str) -> bool {
    let mut parts = page.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The environment of a new user: an empty folder, and the command on the path.
struct Tour {
    /// The page under test.
    page: String,
    dir: tempfile::TempDir,
    servers: Vec<Running>,
    address: Option<String>,
}

impl Tour {
    fn new(page: &str) -> Tour {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(dir.path().join("here")).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_headwater"), bin.join("headwater")).unwrap();
        let cargo = "#!/bin/sh\n[ \"$1 $2 $3\" = 'run --release --' ] || exit 99\nshift 3\n\
                     exec headwater \"$@\"\n";
        write_program(&bin.join("cargo"), cargo);
        Tour { page: page.to_owned(), dir, servers: Vec::new(), address: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn shell(&self, command: &str) -> Command {
        let command = match &self.address {
            Some(address) => command.replace(ADDRESS, address),
            None => command.to_owned(),
        };
        let mut path = self.path("bin").into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut shell = support::without_settings(Command::new("bash"));
        shell.args(["-euo", "pipefail", "-c", &command]).env("PATH", path);
        shell.env("HEADWATER_CONFIG_DIR", self.path("config")).current_dir(self.path("here"));
        shell
    }

    fn run(&mut self, step: &Step) {
        if NOT_RUN.iter().any(|(command, _)| step.command.starts_with(command)) {
            return;
        }
        let words: Vec<&str> = step.command.split_whitespace().collect();
        if words.contains(&"serve") {
            return self.serve(&step.command);
        }
        let Step { line, command, .. } = step;
        // A terminal shows both, in the order in which they were printed.
        let shell = &mut self.shell(&format!("exec 2>&1\n{command}"));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let name = &self.page;
        assert!(output.status.success(), "{name}:{line}: {command}\n{printed}");
        let printed = match &self.address {
            Some(address) => printed.replace(address, ADDRESS),
            None => printed,
        };
        if let Some(page) = &step.output {
            let same = shows(page, &printed);
            assert!(same, "{name}:{line}: {command}\nprints\n{printed}and not\n{page}");
        }
    }

    /// A server, on any port; from here on it is the one that commands mean.
    fn serve(&mut self, command: &str) {
        let mut shell = self.shell(&format!("exec {command}"));
        for name in ["HEADWATER_HTTP", "HEADWATER_HTTPS"] {
            shell.env(name, "127.0.0.1:0");
        }
        let server = Running::of(shell);
        let ready = server.line();
        self.servers.push(server);
        let address = ready.split("http://").nth(1).and_then(|rest| rest.split(' ').next());
        let address = address.unwrap_or_else(|| panic!("{ready}")).trim_end_matches(',');
        self.address = Some(address.to_owned());
        let own =
            format!("headwater context add tour http://{address} && headwater context use tour");
        assert!(self.shell(&own).output().unwrap().status.success());
    }
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns every page below a folder, by its path.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_guide_does_what_it_says() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let mut followed = 0;
    for path in pages(&guide) {
        let text = std::fs::read_to_string(&path).unwrap();
        let shown: Vec<Step> =
            steps(&text).into_iter().filter(|step| step.output.is_some()).collect();
        if shown.is_empty() {
            continue;
        }
        let mut tour = Tour::new(&path.strip_prefix(&guide).unwrap().to_string_lossy());
        tour.serve("headwater serve --ephemeral");
        shown.iter().for_each(|step| tour.run(step));
        followed += 1;
    }
    assert!(followed >= 2, "only {followed} pages have commands to follow");
}

#[test]
fn the_readme_does_what_it_says_and_works_twice() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let steps = steps(&std::fs::read_to_string(page).unwrap());
    assert!(steps.iter().filter(|step| step.output.is_some()).count() >= 5, "there is a tour");
    let mut tour = Tour::new("README.md");
    for step in &steps {
        tour.run(step);
    }
    assert_eq!(tour.servers.len(), 1, "its first command starts a server");
    // A second run, on the data of the first. Positions have moved, so only success counts.
    for step in steps.iter().filter(|step| !step.command.contains("serve")) {
        tour.run(&Step { output: None, command: step.command.clone(), line: step.line });
    }
}

#[test]
fn blocks_of_commands_are_found_with_what_they_print() {
    let text = "```sh\na # x\n\nb\n```\n```rust\nfn c() {}\n```\n```console\n$ d\n1\n2\n$ e\n```\n";
    let step = |line, command: &str, output: Option<&str>| {
        let (command, output) = (command.to_owned(), output.map(str::to_owned));
        Step { line, command, output }
    };
    let expected = [
        step(2, "a # x", None),
        step(4, "b", None),
        step(10, "d", Some("1\n2\n")),
        step(13, "e", Some("")),
    ];
    assert_eq!(steps(text), expected);
}

#[test]
fn dots_stand_for_anything_within_a_line_and_nothing_else_does() {
    for (page, text, same) in [
        ("a\nb\n", "a\nb\n", true),
        ("a\n", "a\nb\n", false),
        ("a…c\n", "abbc\n", true),
        ("a…c\n", "abb\n", false),
        ("…\n", "anything\n", true),
        ("a…b…c\n", "a1b2c\n", true),
        ("a…b…c\n", "a1c\n", false),
        ("", "x\n", false),
        ("x\n", "", false),
    ] {
        assert_eq!(shows(page, text), same, "{page:?} {text:?}");
    }
}
