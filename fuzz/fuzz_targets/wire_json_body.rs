//! Any bytes as a body in text, encoded to binary and decoded again.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::json_body(bytes));
