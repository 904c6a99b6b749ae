//! `headwater completions` and `headwater man`: what the command line says about itself.

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use std::path::PathBuf;

/// For which shell.
#[derive(Debug, Args)]
#[command(
    after_help = "For example:  headwater completions bash > /etc/bash_completion.d/headwater"
)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

/// Where to.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write one page per command here, instead of printing the first one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the script.
pub(crate) fn run(completions: &Completions) -> Result<()> {
    let mut script = Vec::new();
    let mut command = crate::Arguments::command();
    clap_complete::generate(completions.shell, &mut command, "headwater", &mut script);
    print(&script)
}

/// Prints or writes the pages.
pub(crate) fn run_man(man: &Man) -> Result<()> {
    let command = crate::Arguments::command();
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

/// A pager that was closed early is no failure.
fn print(bytes: &[u8]) -> Result<()> {
    match std::io::Write::write_all(&mut std::io::stdout().lock(), bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
