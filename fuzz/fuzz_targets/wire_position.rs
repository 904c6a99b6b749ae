//! Any text as a position in the feed or an item's etag.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::position(bytes));
