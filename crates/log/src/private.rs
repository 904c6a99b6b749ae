//! Creates files and directories that only their owner can read: modes 0700 and 0600.
//!
//! Everything in a data directory is created here, except the tables of the index engine, which are in a
//! private directory. On systems without such modes nothing special happens.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Creates a directory and its parents with mode 0700. Existing directories keep their modes.
///
/// # Errors
/// Errors of the operating system.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Open options that create files with mode 0600.
#[must_use]
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Creates or replaces a file atomically: writes and syncs a temporary file, then renames it.
///
/// # Errors
/// Errors of the operating system.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = options().write(true).create(true).truncate(true).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(new, path)
}

/// Restricts a directory to its owner (mode 0700).
///
/// # Errors
/// Errors of the operating system.
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

/// Does nothing on systems without modes.
///
/// # Errors
/// Never.
#[cfg(not(unix))]
pub fn close_to_others(_: &Path) -> io::Result<()> {
    Ok(())
}
