//! Decoders of bytes on disk accept any input: they return a value or an error, but never panic.
//!
//! Random mutations for a few seconds. A coverage-guided fuzzer (`fuzz/`) uses the same entry points, but needs
//! another toolchain and more time than a test run has.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

use headwater_log::fuzzing::{self, Examples};
use headwater_runtime::Random;

/// Cases per decoder.
const CASES: u64 = 20_000;
/// Opening a whole log takes longer.
const DIRECTORIES: u64 = 10_000;

/// Numbers that break arithmetic.
const EXTREMES: [u64; 9] =
    [0, 1, 63, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, u64::MAX - 1, u64::MAX];

fn random_bytes(random: &mut Random) -> Vec<u8> {
    let length = random.below(300);
    (0..length).map(|_| (random.number() & 0xFF) as u8).collect()
}

/// Applies a few changes, each of a kind that real damage or an attacker would make.
fn mutate(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.index(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => {
                let width = *random.pick(&[1, 2, 4, 8]);
                let extreme = random.pick(&EXTREMES).to_le_bytes();
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&extreme[..end - at]);
            }
            3 => {
                // Small numbers are plausible counts and lengths.
                bytes[at] = *random.pick(&[0, 1, 2, 3, 4]);
            }
            4 => {
                let end = (at + random.index(60)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                let to = random.index(bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                let end = (at + random.index(60)).min(bytes.len());
                bytes.drain(at..end);
            }
        }
    }
    bytes
}

fn check(cases: u64, example: impl Fn(&Examples) -> &Vec<u8>, decode: impl Fn(&[u8])) {
    let examples = fuzzing::examples();
    let example = example(&examples);
    decode(example);
    let mut random = Random::seeded(1);
    for case in 0..cases {
        let bytes = match case % 10 {
            0 => random_bytes(&mut random),
            _ => mutate(example, &mut random),
        };
        let survived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| decode(&bytes)));
        assert!(survived.is_ok(), "case {case}: {bytes:?}");
    }
}

#[test]
fn entries() {
    check(CASES, |examples| &examples.entry, fuzzing::entry);
}

#[test]
fn entries_with_a_right_checksum() {
    check(CASES, |examples| &examples.entry, fuzzing::sealed_entry);
}

#[test]
fn offset_tables() {
    check(CASES, |examples| &examples.table, fuzzing::table);
    // `table` appends the right checksum, so the example must not have its own.
    let content = |table: &[u8]| table[..table.len().saturating_sub(4)].to_vec();
    check(CASES, |examples| &examples.table, |bytes| fuzzing::table(&content(bytes)));
}

#[test]
fn manifests() {
    check(CASES, |examples| &examples.manifest, fuzzing::manifest);
    let content = |manifest: &[u8]| manifest[..manifest.len().saturating_sub(4)].to_vec();
    check(CASES, |examples| &examples.manifest, |bytes| fuzzing::manifest(&content(bytes)));
}

#[test]
fn checkpoints_of_dead_bits() {
    check(CASES, |examples| &examples.checkpoint, fuzzing::checkpoint);
    let content = |bits: &[u8]| bits[..bits.len().saturating_sub(4)].to_vec();
    check(CASES, |examples| &examples.checkpoint, |bytes| fuzzing::checkpoint(&content(bytes)));
}

#[test]
fn whole_directories() {
    check(DIRECTORIES, |examples| &examples.directory, fuzzing::directory);
}
