//! Checks that the guide's page of all commands and options matches the output of `--help`.

#![allow(clippy::unwrap_used)] // a test that cannot continue should say where

mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use support::headwater;

const PAGE: &str = "docs/guide/command-reference.md";
/// If this variable is set, the test writes the page instead of comparing it.
const WRITE: &str = "HEADWATER_WRITE_PAGES";
const HEAD: &str = "\
# Options of every command

For users of the `headwater` command.

```sh
headwater --help
```

Made from `--help` by `HEADWATER_WRITE_PAGES=1 cargo test -p headwater --test command_reference`; do not edit.
[Commands](commands.md) explains what the commands share.
";

#[test]
fn the_page_of_commands_is_what_help_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let mut expected = HEAD.to_owned();
    describe(&[], &mut expected);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{PAGE} is not what --help prints; run this test with {WRITE}=1");
}

/// Adds the help of a command, and of the commands below it.
fn describe(command: &[&str], page: &mut String) {
    let help = help_of(command);
    let name = [&["headwater"][..], command].concat().join(" ");
    writeln!(page, "\n## `{name}`\n\n```text\n{}\n```", help.trim_end()).unwrap();
    for below in subcommands(&help) {
        describe(&[command, &[below]].concat(), page);
    }
}

fn help_of(command: &[&str]) -> String {
    let arguments = [command, &["--help"]].concat();
    let mut command = headwater(&arguments);
    // The width of a terminal, which is absent here.
    command.env_remove("COLUMNS").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    // Trailing white space is removed, as some editors do.
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Returns the names below `Commands:`.
fn subcommands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty());
    // A line that continues a description is indented further.
    let names =
        listed.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").collect()
}
