//! Checks that the pages exist that visitors look for first.

use super::finding::Finding;
use super::tree::Tree;

const PAGES: &[(&str, &str)] = &[
    ("README.md", "say what Headwater is and the two commands that show it"),
    ("ARCHITECTURE.md", "draw the map of the crates and what each never knows"),
    ("CHANGELOG.md", "write one line per visible change, from the user's side"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    PAGES
        .iter()
        .filter(|(page, _)| !tree.exists(page))
        .map(|(page, remedy)| Finding::problem((page, 1), "the page is missing", *remedy))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_page_is_named() {
        let findings = check(&Tree::of(&[("README.md", "# H"), ("CHANGELOG.md", "# C")]));
        let missing: Vec<&str> = findings.iter().map(|found| found.file.as_str()).collect();
        assert_eq!(missing, ["ARCHITECTURE.md"]);
    }
}
