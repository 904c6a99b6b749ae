//! Any text as the partition key header; understood, it says the same again.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::partition_key(bytes));
