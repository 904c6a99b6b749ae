//! `cargo xtask objects`: tests backups against third-party object stores on loopback.
//!
//! Installs Azurite (npm) and moto (PyPI) in the versions that `compatibility/objects` pins, under
//! `target/objects`, and runs `crates/cli/tests/objects`, which starts one of them for each test. Without Python the
//! tests of S3 are skipped.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::compatibility::process;

const INSTALL_TIME: Duration = Duration::from_secs(300);
/// Probes for the requirements of Azurite.
const NODE: [&[&str]; 2] = [&["node", "--version"], &["npm", "--version"]];
const PYTHON: &[&str] = &["python3", "-m", "venv", "--help"];

/// Runs the tests. Returns `false` if one failed.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let missing = NODE.iter().find(|probe| !process::succeeds(probe));
    ensure!(missing.is_none(), "Node.js and npm are not installed; Azurite needs them");
    let source = root.join("compatibility/objects");
    let home = root.join("target/objects");
    std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let azurite = install_azurite(&source, &home)?;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut tests = Command::new(cargo);
    tests.args(["test", "-p", "headwater", "--test", "objects", "--"]).current_dir(root);
    tests.env("HEADWATER_AZURITE", azurite);
    if process::succeeds(PYTHON) {
        tests.env("HEADWATER_MOTO", install_moto(&source, &home)?);
    } else {
        println!("the tests of S3 are left out: `{}` fails", PYTHON.join(" "));
        tests.args(["--skip", "s3_"]);
    }
    Ok(tests.status().context("cargo cannot be started")?.success())
}

/// Installs Azurite. Returns the path of its blob service program.
fn install_azurite(source: &Path, home: &Path) -> Result<std::path::PathBuf> {
    for file in ["package.json", "package-lock.json"] {
        let copied = std::fs::copy(source.join(file), home.join(file));
        copied.with_context(|| format!("cannot copy {file}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--prefer-offline", "--no-save"]);
    install(npm.arg("--ignore-scripts").arg("--prefix").arg(home))?;
    Ok(home.join("node_modules/azurite/dist/src/blob/main.js"))
}

/// Installs moto. Returns the path of the Python that has it.
fn install_moto(source: &Path, home: &Path) -> Result<std::path::PathBuf> {
    let environment = home.join("venv");
    install(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    install(pip.arg(source.join("requirements.txt")))?;
    Ok(environment.join("bin/python"))
}

fn install(command: &mut Command) -> Result<()> {
    let (status, said) = process::run(command, INSTALL_TIME)?;
    let program = command.get_program().display();
    ensure!(status.success(), "installing with {program} failed:\n{said}");
    Ok(())
}
