//! Parsers of client input accept or refuse any bytes, but never panic.
//!
//! A coverage-guided fuzzer (`fuzz/`) calls the same entry points, but needs another toolchain and more time
//! than a test run has. This test tries random mutations for seconds, from the same seeds (`fuzz/seeds`),
//! which include what the fuzzer found.

use headwater_protocol::fuzzing;
use std::fs;
use std::path::{Path, PathBuf};

/// Cases per entry point.
const CASES: u64 = 20_000;

/// Fragments with a meaning to parsers.
const PIECES: [&str; 24] = [
    "\"",
    "\\",
    "[",
    "{",
    "]",
    "}",
    ",",
    ":",
    "#",
    "=",
    "%",
    "%00",
    "%C3",
    ";",
    "&",
    "-1",
    "\n",
    "18446744073709551616",
    "1e999",
    "\\ud800",
    "é",
    "\u{0}",
    "/",
    "\\x",
];

/// A small seeded generator: the same bytes on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).expect("below a usize")
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("below 256")
    }

    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(20)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.byte()),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let piece = PIECES[self.below(PIECES.len())];
                    bytes.splice(at..at, piece.bytes());
                }
            }
        }
    }
}

/// The fuzzer's seeds for a target, ordered by name so that their mutations are the same on every run.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = fs::read_dir(&folder).expect("every target has seeds");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

fn check(target: &str, door: fn(&[u8])) {
    let examples = fuzzing::examples();
    let (_, mut examples) =
        examples.into_iter().find(|(name, _)| *name == target).expect("a target");
    examples.extend(seeds(target));
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for example in &examples {
        door(example);
    }
    for case in 0..CASES {
        let mut bytes = match case % 10 {
            0 => (0..dice.below(300)).map(|_| dice.byte()).collect(),
            _ => examples[dice.below(examples.len())].clone(),
        };
        dice.mutate(&mut bytes);
        let survived = std::panic::catch_unwind(|| door(&bytes));
        assert!(survived.is_ok(), "case {case}: {:?}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn requests() {
    check("wire_request", fuzzing::request);
}

#[test]
fn partition_keys() {
    check("wire_partition_key", fuzzing::partition_key);
}

#[test]
fn positions_of_feeds() {
    check("wire_position", fuzzing::position);
}

#[test]
fn session_tokens() {
    check("wire_session_token", fuzzing::session_token);
}

#[test]
fn authorizations() {
    check("wire_authorization", fuzzing::authorization);
}

#[test]
fn bodies_in_binary() {
    check("wire_binary_body", fuzzing::binary_body);
}

#[test]
fn bodies_in_text() {
    check("wire_json_body", fuzzing::json_body);
}

#[test]
fn batches() {
    check("wire_batch_body", fuzzing::batch_body);
}

#[test]
fn batches_in_hybridrow() {
    check("wire_hybridrow_body", fuzzing::hybridrow_body);
}
