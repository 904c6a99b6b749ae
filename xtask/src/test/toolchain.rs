//! Checks that the tools and the disk space for a test run are available.
//!
//! `rust-toolchain.toml` names the compiler and its components, and rustup installs both.
//! Where a toolchain was installed without them, the components are added here. Anything larger is
//! left to the user or to `.ci/run`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Components of the toolchain, each with a command that succeeds if it is installed.
const COMPONENTS: &[(&str, &[&str])] =
    &[("clippy", &["cargo", "clippy", "--version"]), ("rustfmt", &["cargo", "fmt", "--version"])];

/// Installs missing components of the toolchain.
pub(super) fn complete(root: &Path) -> Result<()> {
    let missing = COMPONENTS.iter().filter(|(_, probe)| !has(probe, root));
    for (component, _) in missing {
        println!("adding the toolchain component {component}");
        let status = Command::new("rustup")
            .args(["component", "add", component])
            .current_dir(root)
            .status()
            .with_context(|| format!("{component} is missing and rustup cannot be started"))?;
        ensure!(status.success(), "rustup could not add {component}, {status}");
    }
    Ok(())
}

/// Disk space that a run from a clean clone needs, in GB.
const ROOM: u64 = 12;

/// Returns a warning if the disk has less free space than a run from a clean clone needs. Without the warning, the
/// only sign would be a panic of the compiler.
pub(super) fn room(root: &Path) -> Option<String> {
    let output = Command::new("df").args(["-Pk", "."]).current_dir(root).output().ok()?;
    let free = free_gigabytes(&String::from_utf8_lossy(&output.stdout))?;
    (free < ROOM).then(|| {
        format!(
            "{free} GB are free here; a run from a clean clone takes up to {ROOM} GB. \
             `cargo clean` removes what earlier builds left"
        )
    })
}

/// Parses the free space from the fourth column of `df -Pk`.
fn free_gigabytes(printed: &str) -> Option<u64> {
    let kilobytes: u64 = printed.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kilobytes / 1_000_000)
}

/// Returns whether a command without side effects succeeds, which shows that its program is installed.
pub(super) fn has(probe: &[&str], root: &Path) -> bool {
    let Some((program, args)) = probe.split_first() else {
        return false;
    };
    let mut command = Command::new(program);
    command.args(args).current_dir(root);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_room_is_read_from_what_df_prints() {
        let printed = "Filesystem 1024-blocks Used Available Capacity Mounted on\n\
                       /dev/vda 264000000 90000000 6291456 94% /\n";
        assert_eq!(free_gigabytes(printed), Some(6));
        assert_eq!(free_gigabytes("Filesystem 1024-blocks\n"), None);
        assert_eq!(free_gigabytes(""), None);
    }

    #[test]
    fn a_tool_is_there_if_its_probe_succeeds() {
        let here = Path::new(".");
        assert!(has(&["cargo", "--version"], here));
        assert!(!has(&["cargo", "no-such-command"], here));
        assert!(!has(&["no-such-program"], here));
        assert!(!has(&[], here));
    }
}
