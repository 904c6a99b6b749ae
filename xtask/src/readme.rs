//! Runs the README's commands, so that the first commands of a new user keep working.
//!
//! A block is run if its fence is marked `tested`:
//!
//! ````text
//! ```sh tested
//! cargo run -- --version
//! ```
//! ````
//!
//! Hosting sites use only the first word of a fence, so the mark is invisible to readers. Each
//! block is one bash script, run from the root of the repository, and fails at its first failing
//! command. A README without such a block is not an error: not every command can run unattended.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

const FILE: &str = "README.md";
const FENCE: &str = "```sh tested";

/// One fenced script, with the line it starts on.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    line: usize,
    script: String,
}

/// Runs every marked block. Returns `false` if one of them failed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(root.join(FILE))
        .with_context(|| format!("{FILE} cannot be read"))?;
    let blocks = blocks(&text);
    if blocks.is_empty() {
        println!("{FILE} has no block fenced as {FENCE}; nothing to run");
        return Ok(true);
    }
    let mut failed = 0;
    for block in &blocks {
        println!("{FILE}:{}\n{}", block.line, block.script);
        let status = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &block.script])
            .current_dir(root)
            .status()
            .context("bash cannot be started")?;
        if !status.success() {
            println!("{FILE}:{}: the commands of this block failed, {status}", block.line);
            failed += 1;
        }
    }
    // The form of cargo's own line, so that `cargo xtask test` counts blocks like tests.
    let verdict = if failed == 0 { "ok" } else { "FAILED" };
    let passed = blocks.len() - failed;
    println!("test result: {verdict}. {passed} passed; {failed} failed; 0 ignored");
    Ok(failed == 0)
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match open.take() {
            None if line.trim_end() == FENCE => {
                open = Some(Block { line: index + 1, script: String::new() });
            }
            None => {}
            Some(block) if line.trim_end() == "```" => blocks.push(block),
            Some(mut block) => {
                block.script.push_str(line);
                block.script.push('\n');
                open = Some(block);
            }
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_taken() {
        let text = "# Title\n\n```sh\nrm -r data\n```\n\n```sh tested\necho one\necho two\n```\n";
        let expected = Block { line: 7, script: "echo one\necho two\n".to_owned() };
        assert_eq!(blocks(text), [expected]);
    }

    #[test]
    fn a_block_that_never_ends_is_not_run() {
        assert_eq!(blocks("```sh tested\necho one\n"), []);
    }
}
