//! Any bytes as a body in binary JSON, decoded and encoded again.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::binary_body(bytes));
