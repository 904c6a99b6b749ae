//! `headwater completions` and `headwater man`: generates shell completions and manual pages from the command line.

use anyhow::{Context, Result};
use clap::Args;
use std::path::PathBuf;

/// The long help text of the command.
pub(crate) const HELP: &str = "\
Print a script that completes commands in a shell

    headwater completions bash > /etc/bash_completion.d/headwater
    headwater completions zsh > ~/.zfunc/_headwater";

/// The long help text of the command.
pub(crate) const MAN_HELP: &str = "\
Print the manual page, or write one per command into a directory

    headwater man | man -l -
    headwater man --out /usr/local/share/man/man1";

/// For which shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    shell: clap_complete::Shell,
}

/// Where to.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory for one page per command; without it, the first page is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completion script.
pub(crate) fn run(completions: &Completions) -> Result<()> {
    let mut script = Vec::new();
    let mut command = crate::help::command();
    clap_complete::generate(completions.shell, &mut command, "headwater", &mut script);
    print(&script)
}

/// Prints the first manual page, or writes all pages into a directory.
pub(crate) fn run_man(man: &Man) -> Result<()> {
    let command = crate::help::command();
    match &man.out {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .and_then(|()| clap_mangen::generate_to(command, dir))
                .with_context(|| format!("cannot write pages to {}", dir.display()))?;
            Ok(())
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print(&page)
        }
    }
}

/// Prints bytes to standard output. A pager that closes early is not a failure.
fn print(bytes: &[u8]) -> Result<()> {
    match std::io::Write::write_all(&mut std::io::stdout().lock(), bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
