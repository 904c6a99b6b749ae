//! Writes the reference files of the format on disk, `tests/old_formats/v<format>`.
//!
//! `cargo run -p headwater-log --example write_fixture -- crates/log/tests/old_formats/v1`
//!
//! A released format never changes: a new one gets a new number and a new directory, and
//! `tests/old_formats.rs` still opens the old one.

#[path = "../tests/support/fixture.rs"]
mod fixture;

use headwater_log::LocalLog;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(target) = env::args().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("say where to, such as crates/log/tests/old_formats/v1"));
    };
    let disk = fixture::write();
    for (path, bytes) in fixture::files(&disk) {
        let path = target.join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        fs::write(path, bytes)?;
    }
    for (name, partition) in [("parent", fixture::PARENT), ("child", fixture::CHILD)] {
        let shared = Arc::new(disk.clone());
        let (options, runtime) = (fixture::options(), fixture::runtime());
        let opened = LocalLog::open(shared, Path::new(name), partition, options, runtime);
        let log = opened.map_err(io::Error::other)?.log;
        fs::write(target.join(name).with_extension("txt"), fixture::tell(&log))?;
    }
    Ok(())
}
