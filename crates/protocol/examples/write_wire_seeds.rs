//! Writes what real clients send, per fuzz target of the wire, for the fuzzer to start from.
//!
//! `cargo run -p headwater-protocol --example write_wire_seeds -- fuzz/corpus`

use headwater_protocol::fuzzing;
use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let corpus = PathBuf::from(env::args().nth(1).unwrap_or_else(|| "fuzz/corpus".to_owned()));
    for (target, examples) in fuzzing::examples() {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        for (number, bytes) in examples.into_iter().enumerate() {
            fs::write(dir.join(format!("example-{number}")), bytes)?;
        }
    }
    Ok(())
}
