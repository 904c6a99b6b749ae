//! Runs programs that use third-party SDKs against a Headwater server, and records the results.
//!
//! Per client: install its SDK into a folder of its own under `target/compatibility`, start a fresh
//! server, run the program, read its results. A program prints one JSON line per check. A line with
//! `control` requests a restart of the server, which only the runner can do:
//!
//! ```text
//! {"client":"python","group":"items","check":"read","ok":true,"detail":""}
//! {"control":"restart"}                                    answered on its standard input by {"done":true}
//! ```
//!
//! A client whose language is not installed is skipped with a message. The runner stops only processes that it
//! started, by their id.

mod clients;
mod page;
pub(crate) mod process;
mod program;
mod results;
mod server;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use clients::{CLIENTS, Client};
use results::{Report, Results};

/// Runs the named clients, or all. Returns `false` if a check failed.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<bool> {
    let chosen = choose(names)?;
    let binary = build(root)?;
    let mut results = Results::default();
    for client in &chosen {
        println!("\n=== {}: {}", client.name, client.sdk);
        let report = run_client(root, client, &binary);
        report.print();
        results.add(report);
    }
    println!("\n{}", results.table());
    if names.is_empty() {
        page::write(root, &results)?;
    }
    println!("{}", results.closing_line());
    Ok(results.succeeded())
}

fn choose(names: &[&str]) -> Result<Vec<&'static Client>> {
    if names.is_empty() {
        return Ok(CLIENTS.iter().collect());
    }
    let find = |name: &&str| {
        let found = CLIENTS.iter().find(|client| client.name == *name);
        let known: Vec<&str> = CLIENTS.iter().map(|client| client.name).collect();
        found.with_context(|| format!("no client is called {name}; there are {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

/// Builds the server. Returns the path of a copy of its binary.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", "headwater"]).current_dir(root);
    ensure!(command.status().context("cargo cannot be started")?.success(), "the build failed");
    let target = target_dir(root);
    let binary = target.join("debug").join(format!("headwater{}", std::env::consts::EXE_SUFFIX));
    let home = root.join("target/compatibility");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    // Copied, so that a concurrent build does not replace the binary under test.
    let copy = home.join(format!("headwater{}", std::env::consts::EXE_SUFFIX));
    std::fs::copy(&binary, &copy)
        .with_context(|| format!("{} is not there after the build", binary.display()))?;
    Ok(copy)
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn run_client(root: &Path, client: &'static Client, binary: &Path) -> Report {
    let home = root.join("target/compatibility").join(client.home);
    match try_client(root, client, &home, binary) {
        Ok(report) => report,
        Err(error) => Report::broken(client.name, format!("{error:#}")),
    }
}

fn try_client(root: &Path, client: &'static Client, home: &Path, binary: &Path) -> Result<Report> {
    if let Some(missing) = client.needs.iter().find(|probe| !process::succeeds(probe)) {
        return Ok(Report::skipped(client.name, format!("`{}` is missing", missing.join(" "))));
    }
    let places = clients::Places { source: root.join("compatibility").join(client.home), home };
    std::fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    for step in client.install {
        let (status, said) = process::run(&mut step.command(&places), client.install_time)?;
        ensure!(status.success(), "installing failed at {}:\n{said}", step.text());
    }
    let server = server::Server::start(binary, &home.join("data"))?;
    program::run(client, &places, server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_chosen_by_name() {
        assert_eq!(choose(&[]).unwrap().len(), CLIENTS.len());
        assert_eq!(choose(&["python"]).unwrap()[0].name, "python");
        let error = choose(&["pyton"]).err().unwrap().to_string();
        assert!(error.contains("python"), "{error}");
    }
}
