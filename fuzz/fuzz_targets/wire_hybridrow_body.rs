//! Any bytes as rows of HybridRow, behind a right checksum too, decoded and encoded again.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::hybridrow_body(bytes));
