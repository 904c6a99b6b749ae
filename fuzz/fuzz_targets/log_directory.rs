//! Any bytes as whole directories, opened, read and compacted.

#![no_main]

use headwater_log::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::directory(bytes));
