//! Lays out help, manual pages and completions: wraps texts at 100 columns.
//!
//! Line breaks inside a paragraph of the source are ignored. Indented lines are examples and tables, and stay
//! unchanged.

use clap::{Arg, Command, CommandFactory};

/// Maximum width of a line.
const COLUMNS: usize = 100;
/// How far clap indents the text of an option.
const INDENT: usize = 10;

/// Returns the command line with its texts wrapped.
pub(crate) fn command() -> Command {
    laid_out(crate::Arguments::command())
}

fn laid_out(command: Command) -> Command {
    let about = command.get_long_about().map(|about| fill(&about.to_string(), COLUMNS));
    let command = match about {
        Some(about) => command.long_about(about),
        None => command,
    };
    command.mut_args(argument).mut_subcommands(laid_out)
}

fn argument(argument: Arg) -> Arg {
    let text = argument.get_long_help().or(argument.get_help());
    match text.map(|text| fill(&text.to_string(), COLUMNS - INDENT)) {
        Some(text) => argument.long_help(text),
        None => argument,
    }
}

/// Breaks paragraphs into lines of at most this many columns.
fn fill(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        if !is_prose {
            lines.push(line.to_owned());
        } else {
            for word in line.split(' ') {
                match lines.last_mut().filter(|_| is_open) {
                    Some(last) if last.chars().count() + 1 + word.chars().count() <= columns => {
                        last.push(' ');
                        last.push_str(word);
                    }
                    _ => lines.push(word.to_owned()),
                }
                is_open = true;
            }
        }
        is_open = is_prose;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Options of a command, apart from the connection's, above which they are grouped.
    const UNGROUPED_MAX: usize = 6;

    /// Calls `check` with every command that people see, and its name from `headwater` on.
    fn for_each_command(check: &mut dyn FnMut(&str, &mut Command)) {
        fn descend(path: &str, command: &mut Command, check: &mut dyn FnMut(&str, &mut Command)) {
            let path = format!("{path}{}", command.get_name());
            check(&path, command);
            let is_shown =
                |inner: &&mut Command| !inner.is_hide_set() && inner.get_name() != "help";
            for inner in command.get_subcommands_mut().filter(is_shown) {
                descend(&format!("{path} "), inner, check);
            }
        }
        let mut command = command();
        command.build();
        descend("", &mut command, check);
    }

    fn options(command: &Command) -> impl Iterator<Item = &Arg> {
        let is_own =
            |arg: &&Arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version");
        command.get_arguments().filter(is_own)
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_fits_100_columns() {
        for_each_command(&mut |path, command| {
            for line in command.render_long_help().to_string().lines() {
                assert!(line.chars().count() <= COLUMNS, "{path}: {line}");
            }
        });
    }

    #[test]
    fn every_command_shows_an_example_first() {
        for_each_command(&mut |path, command| {
            if command.has_subcommands() {
                return;
            }
            let help = command.render_long_help().to_string();
            let third = help.lines().nth(2).unwrap_or_default();
            let is_example = third.starts_with("    ") && third.contains(path);
            assert!(is_example, "{path} --help does not begin with an example:\n{help}");
        });
    }

    #[test]
    fn every_option_is_explained_and_many_are_grouped() {
        let mut count = 0;
        for_each_command(&mut |path, command| {
            let mut ungrouped = 0;
            for arg in options(command) {
                count += 1;
                let text = arg.get_long_help().map(ToString::to_string).unwrap_or_default();
                let first = text.chars().next();
                let id = arg.get_id();
                assert!(first.is_some_and(|c| !c.is_whitespace()), "{path}: {id} has no help");
                let is_plain = !arg.is_positional() && arg.get_help_heading().is_none();
                ungrouped += usize::from(is_plain);
            }
            assert!(ungrouped <= UNGROUPED_MAX, "{path} has {ungrouped} options without a heading");
        });
        assert!(count > 100, "{count} options were seen");
    }

    #[test]
    fn options_of_the_connection_and_no_others_are_under_that_heading() {
        let connection = ["key_file", "key_command", "authority", "region"];
        let mut headed = 0;
        for_each_command(&mut |path, command| {
            let is_headed = |arg: &&Arg| arg.get_help_heading() == Some("Connection");
            for arg in command.get_arguments().filter(is_headed) {
                let id = arg.get_id().as_str();
                assert!(connection.contains(&id), "{path}: {id} is no option of the connection");
                headed += 1;
            }
        });
        assert!(headed > 0, "no command has options of the connection");
    }

    #[test]
    fn paragraphs_are_filled_and_examples_stay() {
        let text = "Some words\nof a paragraph\n\n    an example  stays\n    as it is\nand more";
        let filled = "Some words of a\nparagraph\n\n    an example  stays\n    as it is\nand more";
        assert_eq!(fill(text, 15), filled);
        assert_eq!(fill("", 15), "");
        assert_eq!(fill("averyveryverylongword b", 5), "averyveryverylongword\nb");
    }
}
