//! A request's head as lines: what it asks for, and who asks.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::request(bytes));
