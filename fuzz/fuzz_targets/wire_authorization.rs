//! Any text as an authorization header, a resource token or an identity token.

#![no_main]

use headwater_protocol::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| fuzzing::authorization(bytes));
