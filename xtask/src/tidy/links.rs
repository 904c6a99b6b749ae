//! Checks that the links between documents have targets.
//!
//! Only relative links to files, folders and headings are checked, because network addresses change
//! independently. Fenced and inline code is skipped.

use super::finding::Finding;
use super::tree::{SourceFile, Tree};

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let pages = tree.files().filter(|file| file.is_markdown());
    pages.flat_map(|page| check_page(page, tree)).collect()
}

fn check_page(page: &SourceFile, tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Link { line, path: target, heading } in targets(page) {
        let path = match target.as_str() {
            "" => Some(page.path.clone()),
            _ => resolve(&page.path, &target),
        };
        let problem = match path {
            Some(path) if !tree.exists(&path) => {
                format!("the link to `{target}` leads to `{path}`, which does not exist")
            }
            Some(path) => match (tree.file(&path), heading) {
                (Some(to), Some(heading)) if to.is_markdown() && !has_heading(to, &heading) => {
                    format!(
                        "the link to `{target}#{heading}` leads to a heading that `{path}` does not have"
                    )
                }
                _ => continue,
            },
            None => format!("the link to `{target}` leads out of the repository"),
        };
        let remedy = "correct the link, or bring back what it points to";
        findings.push(Finding::problem((&page.path, line), problem, remedy));
    }
    findings
}

/// A relative link.
pub(crate) struct Link {
    line: usize,
    /// As written in the page, without the heading; empty for the page itself.
    pub(crate) path: String,
    heading: Option<String>,
}

/// Returns the relative links of a page.
pub(crate) fn targets(page: &SourceFile) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, text) in prose(page) {
        let text = without_code(text);
        let links = inline_targets(&text).into_iter().chain(definition_target(&text));
        let relative = links.filter_map(relative_path);
        found.extend(relative.map(|(path, heading)| Link { line, path, heading }));
    }
    found
}

/// Returns the lines of a page outside of fenced code, with their numbers.
fn prose(page: &SourceFile) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence: Option<&str> = None;
    for (number, line) in page.lines() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => found.push((number, line)),
        }
    }
    found
}

fn has_heading(page: &SourceFile, anchor: &str) -> bool {
    let headings = prose(page).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor_of(line)).any(|found| found == anchor)
}

/// Returns the anchor that hosting sites and mdBook give a heading.
fn anchor_of(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns the line without its code spans.
fn without_code(line: &str) -> String {
    let pieces: Vec<&str> = line.split('`').collect();
    // A backtick without a partner opens no span, so what follows it stays.
    let closed = pieces.len() - 1 + pieces.len() % 2;
    let is_prose = |index: usize| index.is_multiple_of(2) || index >= closed;
    let kept = pieces.iter().enumerate().filter(|(index, _)| is_prose(*index));
    kept.map(|(_, piece)| *piece).collect()
}

/// Returns the targets of `[text](target)` and `![text](target)`.
fn inline_targets(prose: &str) -> Vec<&str> {
    let starts = prose.match_indices("](").map(|(at, opening)| at + opening.len());
    starts.filter_map(|start| prose[start..].split_once(')')).map(|(target, _)| target).collect()
}

/// Returns the target of `[label]: target`; footnotes have none.
fn definition_target(prose: &str) -> Option<&str> {
    let rest = prose.trim_start().strip_prefix('[')?;
    let (label, target) = rest.split_once("]:")?;
    (!label.starts_with('^') && !label.contains(']')).then_some(target)
}

/// Returns the path and the heading in a target, or `None` if it is a network address.
fn relative_path(target: &str) -> Option<(String, Option<String>)> {
    let without_title = target.split_whitespace().next()?;
    let bare = without_title.trim_start_matches('<').trim_end_matches('>');
    let is_address = bare.contains("://") || bare.starts_with("mailto:");
    let (path, heading) = match bare.split_once('#') {
        Some((path, heading)) => (path, Some(heading.to_owned())),
        None => (bare, None),
    };
    let is_link = !path.is_empty() || heading.is_some();
    (!is_address && is_link).then(|| (path.replace("%20", " "), heading))
}

/// Resolves `target` on `page` to a path from the root, or `None` if it leaves the root.
pub(crate) fn resolve(page: &str, target: &str) -> Option<String> {
    let (mut parts, target) = match target.strip_prefix('/') {
        Some(from_root) => (Vec::new(), from_root),
        None => {
            let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
            (folder.split('/').filter(|part| !part.is_empty()).collect(), target)
        }
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_text(text: &str, expected_lines: &[usize]) {
        let tree = Tree::of(&[
            ("docs/guide.md", text),
            (
                "docs/decisions/0001-a-log.md",
                "# A log\n\n## Context, and `why`\n\n```sh\n# no heading\n```\n",
            ),
            ("README.md", "# Headwater"),
        ]);
        let lines: Vec<usize> = check(&tree).iter().map(|found| found.line).collect();
        assert_eq!(lines, expected_lines, "{text}");
    }

    #[test]
    fn links_to_files_and_folders_are_followed() {
        check_text("[a](decisions/0001-a-log.md)", &[]);
        check_text("[a](decisions/0001-a-log.md#a-log \"why\")", &[]);
        check_text("[a](decisions) and [b](decisions/)", &[]);
        check_text("[a](../README.md), [b](/README.md), [c](../)", &[]);
        check_text("one\n[a](decisions/0002-gone.md)", &[2]);
        check_text("![a](picture.png)", &[1]);
        check_text("[a](../../README.md)", &[1]);
        check_text("[a](/guide.md)", &[1]);
        check_text("[a](README.md) and [b](gone.md)", &[1, 1]);
    }

    #[test]
    fn definitions_are_links_too() {
        check_text("[log]: decisions/0001-a-log.md", &[]);
        check_text("[log]: decisions/gone.md", &[1]);
        check_text("[^1]: not a link", &[]);
    }

    #[test]
    fn headings_of_pages_are_followed() {
        check_text("[a](decisions/0001-a-log.md#context-and-why)", &[]);
        check_text("[a](decisions/0001-a-log.md#gone)", &[1]);
        check_text("[a](decisions/0001-a-log.md#no-heading)", &[1]);
        check_text("# Here\n[a](#here)", &[]);
        check_text("[a](#here)", &[1]);
        check_text("[a](https://example.com/page#gone)", &[]);
    }

    #[test]
    fn addresses_and_code_are_not_followed() {
        check_text("[a](https://example.com/gone.md) [b](mailto:a@example.com)", &[]);
        check_text("```text\n[a](gone.md)\n```\n[b](gone.md)", &[4]);
        check_text("`[a](gone.md)` but [b](gone.md)", &[1]);
        check_text("a lone ` and [b](gone.md)", &[1]);
    }
}
