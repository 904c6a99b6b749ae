//! Files and directories that only their owner can read: modes 0700 and 0600.
//!
//! Everything in a data directory is made through here, except the tables of the index engine. Those lie in a
//! directory that is closed to others. Where the system has no such modes, this does nothing special.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Creates a directory and those above it, each for its owner alone. One that exists stays as it is.
///
/// # Errors
/// What the operating system says.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Options under which a new file is for its owner alone.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Puts a file in the place of another, or of none. It is there whole or not at all.
///
/// # Errors
/// What the operating system says.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = options().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

/// Closes a directory to everybody but its owner.
///
/// # Errors
/// What the operating system says.
#[cfg(unix)]
pub fn close_to_others(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let mut permissions = std::fs::metadata(dir)?.permissions();
    if permissions.mode() & 0o077 == 0 {
        return Ok(());
    }
    permissions.set_mode(0o700);
    std::fs::set_permissions(dir, permissions)
}

/// Closes a directory to everybody but its owner, where the system has modes.
///
/// # Errors
/// None here.
#[cfg(not(unix))]
pub fn close_to_others(_: &Path) -> io::Result<()> {
    Ok(())
}
