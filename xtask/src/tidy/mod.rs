//! Checks the rules of this repository that no compiler checks.
//!
//! Each check is a function from the text of the tree to findings, in a file of its own whose tests
//! show it failing. They are textual on purpose: a rule that needs a parser is a lint, and belongs
//! to clippy. Where text is too blunt, a line is excused by its last words,
//! `// tidy: allow <reason>`.

mod banned_text;
mod dependencies;
mod finding;
mod guide;
mod headers;
mod links;
mod promises;
mod required;
mod sizes;
mod tree;

use std::path::Path;

use anyhow::Result;

use finding::Severity;
use tree::Tree;

/// Runs every check and prints the findings. Returns `false` if there is a problem.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let metadata = dependencies::metadata(root)?;

    let mut findings = dependencies::check(&metadata, &tree);
    findings.extend(banned_text::check(&tree));
    findings.extend(headers::check(&tree));
    findings.extend(sizes::check(&tree));
    findings.extend(links::check(&tree));
    findings.extend(guide::check(&tree));
    findings.extend(promises::check(&tree));
    findings.extend(required::check(&tree));

    for finding in &findings {
        println!("{finding}");
    }
    let warnings = findings.iter().filter(|found| found.severity == Severity::Warning).count();
    let problems = findings.len() - warnings;
    println!("tidy: {} files, {problems} problems, {warnings} warnings", tree.files().count());
    Ok(problems == 0)
}
