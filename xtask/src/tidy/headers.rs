//! Checks that every source file begins with a header that states its purpose.
//!
//! A header that only repeats the file name carries no information. The check ignores the words of that name and
//! the words that fit any file, and requires a few others:
//!
//! ```text
//! feed.rs   //! Feed module. Contains the feed types.          nothing left: refused
//! feed.rs   //! Reads one page of a partition's change feed.   reads, one, page, ...: fine
//! ```

use super::finding::Finding;
use super::tree::{SourceFile, Tree};

/// Minimum number of words that are neither filler nor part of the file name.
const TELLING_WORDS_MIN: usize = 3;

/// Words that fit every file and therefore do not count.
const FILLER: &str = "all an and are code contains crate defines file for functions helper helpers \
    here implementation implements in is its lib main methods mod module of or placeholder related \
    struct structs stuff test tests that the things this to types various with";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let ours = |file: &&SourceFile| {
        let folders = ["crates/", "examples/", "fuzz/", "xtask/"];
        file.is_rust() && folders.iter().any(|folder| file.path.starts_with(folder))
    };
    tree.files().filter(ours).filter_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Option<Finding> {
    let problem = match header(&file.text) {
        None => "the file does not begin with a `//!` header",
        Some(header) if telling_words(&header, &file.path) < TELLING_WORDS_MIN => {
            "the header says no more than the file's name does"
        }
        Some(_) => return None,
    };
    Some(Finding::problem(
        (&file.path, 1),
        problem,
        "say in a `//!` header what the file is for, its one idea and its limits",
    ))
}

/// Returns the text of the leading `//!` lines, if the first line is one.
fn header(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).collect();
    if lines.is_empty() { None } else { Some(lines.join("\n")) }
}

fn telling_words(header: &str, path: &str) -> usize {
    let of_name: Vec<String> = words(name(path)).collect();
    words(header)
        .filter(|word| !FILLER.split(' ').any(|filler| filler == word))
        .filter(|word| !of_name.contains(word))
        .count()
}

/// Returns the name of the file, or that of its folder where the language dictates the file name.
fn name(path: &str) -> &str {
    let parts = path.rsplit(['/', '.']).skip(1);
    let mut telling = parts.filter(|part| !["lib", "main", "mod", "src"].contains(part));
    telling.next().unwrap_or(path)
}

/// Returns the words in lower case. Single letters, such as the `s` after an apostrophe, do not count.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1);
    words.map(str::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(path: &str, text: &str, fine: bool) {
        assert_eq!(check(&Tree::of(&[(path, text)])).is_empty(), fine, "{path}: {text}");
    }

    #[test]
    fn headers_must_say_something() {
        let feed = "crates/store/src/partition/feed.rs";
        check_text(feed, "//! Reads one page of a partition's change feed.\n", true);
        check_text(feed, "//! Feed.\n//!\n//! Reads one page after a position.\n", true);
        check_text(
            feed,
            "//! Feed module. Contains the FeedReader struct and helper functions for the feed.\n",
            false,
        );
        check_text(feed, "//! feed.rs\n", false);
        check_text(feed, "//!\n", false);
        check_text("crates/log/src/lib.rs", "//! placeholder\n", false);
    }

    #[test]
    fn a_file_is_called_after_its_folder_where_the_language_names_it() {
        assert_eq!(name("crates/store/src/partition/feed.rs"), "feed");
        assert_eq!(name("crates/store/src/partition/mod.rs"), "partition");
        assert_eq!(name("crates/store/src/lib.rs"), "store");
        assert_eq!(name("xtask/src/main.rs"), "xtask");
    }

    #[test]
    fn the_header_is_the_first_thing_in_the_file() {
        let feed = "crates/store/src/partition/feed.rs";
        check_text(feed, "use std::fmt;\n//! Reads one page of a feed.\n", false);
        check_text(feed, "\n//! Reads one page of a feed.\n", false);
        check_text(feed, "// Reads one page of a feed.\n", false);
        check_text("fuzz/fuzz_targets/entry.rs", "#![no_main]\n", false);
        check_text("xtask/src/main.rs", "fn main() {}\n", false);
        check_text(feed, "", false);
    }

    #[test]
    fn other_people_s_files_are_not_judged() {
        check_text("docs/sample.rs", "fn main() {}\n", true);
        check_text("crates/log/FORMAT.md", "# Format\n", true);
    }
}
