//! Any bytes as one entry, as it is and behind a checksum that is right.

#![no_main]

use headwater_log::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    fuzzing::entry(bytes);
    fuzzing::sealed_entry(bytes);
});
