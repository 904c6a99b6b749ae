//! Writes one valid encoding per fuzz target of the log, for the fuzzer to start from.
//!
//! `cargo run -p headwater-log --example write_fuzz_seeds -- fuzz/corpus`

use headwater_log::fuzzing;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let corpus = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".to_owned()));
    let examples = fuzzing::examples();
    let seeds = [
        ("log_entry", examples.entry),
        ("log_table", examples.table),
        ("log_manifest", examples.manifest),
        ("log_checkpoint", examples.checkpoint),
        ("log_directory", examples.directory),
    ];
    for (target, bytes) in seeds {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join("example"), bytes)?;
    }
    Ok(())
}
