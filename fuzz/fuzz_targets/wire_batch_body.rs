//! Any bytes as the operations of a batch.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::batch_body(bytes));
