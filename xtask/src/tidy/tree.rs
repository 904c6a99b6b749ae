//! The repository as text in memory, the only input of a tidy check.
//!
//! Checks take a `Tree` and return findings, so their tests are a few lines of text and never touch
//! a disk. The walk does not use git, so files are checked before they are added, and a source archive
//! without history can be checked too.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders of generated files.
const GENERATED: &[&str] =
    &["target", "node_modules", "fuzz/corpus", "fuzz/artifacts", "fuzz/target"];

/// Hidden folders with files of this repository. Others belong to tools.
const HIDDEN_BUT_OURS: &[&str] = &[".cargo", ".ci", ".github"];

/// Extensions of text that people write. Data (test vectors, lock files) is not read.
const TEXT: &[&str] =
    &["css", "html", "js", "md", "mjs", "py", "rs", "sh", "toml", "ts", "yaml", "yml"];

/// A text file and its path from the root, with forward slashes.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl SourceFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub(crate) fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }

    /// Returns the lines with their numbers, counted from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

/// Everything under the root: the text of sources and documents, and the names of all other files.
#[derive(Default)]
pub(crate) struct Tree {
    files: Vec<SourceFile>,
    /// Every file and folder, read or not, so that links can be followed.
    paths: BTreeSet<String>,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        tree.walk(root, "")?;
        Ok(tree)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter()
    }

    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Returns whether a file or folder exists at this path from the root. The root itself is "".
    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }

    fn walk(&mut self, root: &Path, folder: &str) -> Result<()> {
        let here = root.join(folder);
        let listing = std::fs::read_dir(&here)
            .with_context(|| format!("{} cannot be listed", here.display()))?;
        for entry in listing {
            let entry = entry.with_context(|| format!("{} cannot be listed", here.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().with_context(|| format!("{path} has no file type"))?;
            if kind.is_dir() {
                if is_ours(&path, &name) {
                    self.paths.insert(path.clone());
                    self.walk(root, &path)?;
                }
                continue;
            }
            if kind.is_file() && is_text(&path) {
                let text = std::fs::read_to_string(root.join(&path))
                    .with_context(|| format!("{path} cannot be read as text"))?;
                self.files.push(SourceFile { path: path.clone(), text });
            }
            self.paths.insert(path);
        }
        // Directory order differs between machines; findings should not.
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(())
    }
}

fn is_ours(path: &str, name: &str) -> bool {
    let generated = GENERATED.contains(&path) || GENERATED.contains(&name);
    let hidden = name.starts_with('.') && !HIDDEN_BUT_OURS.contains(&path);
    !generated && !hidden
}

fn is_text(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    match extension {
        Some(extension) => TEXT.contains(&extension),
        // Scripts without an extension.
        None => path.starts_with(".ci/"),
    }
}

#[cfg(test)]
impl Tree {
    /// A tree of these files and nothing else.
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            let folders = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
            tree.paths.extend(folders);
            tree.paths.insert((*path).to_owned());
            tree.files.push(SourceFile { path: (*path).to_owned(), text: (*text).to_owned() });
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_and_foreign_folders_are_left_alone() {
        assert!(is_ours("crates/log", "log"));
        assert!(is_ours(".ci", ".ci"));
        assert!(!is_ours("target", "target"));
        assert!(!is_ours("fuzz/corpus", "corpus"));
        assert!(!is_ours("console/node_modules", "node_modules"));
        assert!(!is_ours(".git", ".git"));
    }

    #[test]
    fn data_is_not_read_as_text() {
        assert!(is_text("crates/log/src/lib.rs"));
        assert!(is_text(".ci/run"));
        assert!(!is_text("crates/model/tests/vectors/rid.json"));
        assert!(!is_text("Cargo.lock"));
        assert!(!is_text("LICENSE-MIT"));
    }
}
