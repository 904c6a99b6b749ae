//! Checks that the guide's index links every page, and that every page names its readers.
//!
//! `docs/guide/SUMMARY.md` is the index that mdBook builds the guide from: a page that it does not link is not in
//! the book. The first line below a page's heading names its readers:
//!
//! ```text
//! # Back up and restore
//!
//! For operators of a server, and for programs that embed the store.
//! ```

use super::finding::Finding;
use super::links;
use super::tree::{SourceFile, Tree};
use std::collections::BTreeSet;

const FOLDER: &str = "docs/guide/";
const INDEX: &str = "docs/guide/SUMMARY.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let in_guide = |file: &&SourceFile| file.path.starts_with(FOLDER) && file.is_markdown();
    let pages: Vec<&SourceFile> =
        tree.files().filter(in_guide).filter(|page| page.path != INDEX).collect();
    if pages.is_empty() {
        return Vec::new();
    }
    let Some(index) = tree.file(INDEX) else {
        let remedy = "list every page of the guide in it";
        return vec![Finding::problem((INDEX, 1), "the index is missing", remedy)];
    };
    let linked: BTreeSet<String> = links::targets(index)
        .into_iter()
        .filter_map(|link| links::resolve(INDEX, &link.path))
        .collect();
    let unlinked = pages.iter().filter(|page| !linked.contains(&page.path)).map(|page| {
        let problem = format!("`{INDEX}` has no link to the page");
        Finding::problem((&page.path, 1), problem, "add a line for it to the index")
    });
    let silent = pages.iter().filter(|page| !names_its_readers(&page.text)).map(|page| {
        let problem = "the page does not say for whom it is";
        let remedy = "begin the first line below its heading with `For`, and name its readers";
        Finding::problem((&page.path, 3), problem, remedy)
    });
    unlinked.chain(silent).collect()
}

/// Returns whether the first line below the heading names the readers.
fn names_its_readers(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let heading = lines.next().is_some_and(|line| line.starts_with("# "));
    heading && lines.next().is_some_and(|line| line.starts_with("For "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Back up\n\nFor operators.\n";

    #[track_caller]
    fn check_pages(pages: &[(&str, &str)], expected: &[(&str, &str)]) {
        let findings = check(&Tree::of(pages));
        let found: Vec<(&str, bool)> = findings
            .iter()
            .zip(expected)
            .map(|(found, (_, problem))| (found.file.as_str(), found.problem.contains(problem)))
            .collect();
        let wanted: Vec<(&str, bool)> = expected.iter().map(|(file, _)| (*file, true)).collect();
        assert_eq!(found, wanted, "{findings:?}");
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
    }

    #[test]
    fn every_page_is_linked_from_the_index() {
        let index = "# Summary\n\n- [Back up](backup.md)\n  - [Python](sdk/python.md)\n";
        let linked =
            [(INDEX, index), ("docs/guide/backup.md", PAGE), ("docs/guide/sdk/python.md", PAGE)];
        check_pages(&linked, &[]);
        let lost = ("docs/guide/sdk/go.md", PAGE);
        check_pages(&[&linked[..], &[lost]].concat(), &[("docs/guide/sdk/go.md", "no link")]);
        // A page that only another page links is not in the book.
        let other = ("docs/guide/backup.md", "# Back up\n\nFor operators. See [go](sdk/go.md).\n");
        let pages = [linked[0], other, linked[2], lost];
        check_pages(&pages, &[("docs/guide/sdk/go.md", "no link")]);
    }

    #[test]
    fn a_guide_without_an_index_is_a_mistake_and_no_guide_is_none() {
        check_pages(&[("docs/guide/backup.md", PAGE)], &[(INDEX, "missing")]);
        check_pages(&[("docs/internals/promises.md", "# Promises\n")], &[]);
    }

    #[test]
    fn every_page_says_for_whom_it_is() {
        let index = (INDEX, "- [Back up](backup.md)\n");
        let silent = [("docs/guide/backup.md", "for whom")];
        for text in ["# Back up\n\nRun this.\n", "# Back up\n", "For operators.\n", ""] {
            check_pages(&[index, ("docs/guide/backup.md", text)], &silent);
        }
    }
}
