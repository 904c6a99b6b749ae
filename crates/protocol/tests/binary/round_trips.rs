//! Round trips from text to binary and back lose nothing.

use crate::values::{ROOM, any_double, any_value, as_doubles, decoded};
use headwater_protocol::binary::{NESTING_MAX, decode, encode};
use proptest::prelude::*;
use serde_json::Value;

proptest! {
    #[test]
    fn values_survive(value in any_value()) {
        let body = encode(value.to_string().as_bytes()).unwrap();
        let back = decoded(&body).unwrap();
        prop_assert_eq!(as_doubles(back), as_doubles(value));
    }

    #[test]
    fn doubles_survive_to_the_last_bit(double in any_double()) {
        let text = serde_json::to_vec(&double).unwrap();
        let back = decode(&encode(&text).unwrap(), ROOM).unwrap();
        let back: f64 = std::str::from_utf8(&back).unwrap().parse().unwrap();
        prop_assert_eq!(back.to_bits(), double.to_bits());
    }

    #[test]
    fn integers_survive_as_integers(integer in any::<i64>(), unsigned in any::<u64>()) {
        for text in [integer.to_string(), unsigned.to_string()] {
            prop_assert_eq!(decode(&encode(text.as_bytes()).unwrap(), ROOM).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn any_text_that_is_json_can_be_encoded(bytes in "[\\[\\]{}:,\"a0-9.eE+-]{0,24}") {
        let judged: Result<Value, _> = serde_json::from_str(&bytes);
        prop_assert_eq!(encode(bytes.as_bytes()).is_ok(), judged.is_ok());
    }
}

#[test]
fn the_order_of_members_and_their_repeats_survive() {
    let text = br#"{"z":1,"id":"x","a":{"y":[],"b":null},"z":2}"#;
    assert_eq!(decode(&encode(text).unwrap(), ROOM).as_deref(), Ok(text.as_slice()));
}

#[test]
fn the_deepest_nesting_survives_on_a_small_stack() {
    let nested = || {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            let text = format!("{}1{}", open.repeat(NESTING_MAX), close.repeat(NESTING_MAX));
            let body = encode(text.as_bytes()).unwrap();
            assert_eq!(decode(&body, ROOM).unwrap(), text.as_bytes());
        }
    };
    // Half of the default stack of a worker thread.
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(nested).unwrap();
    thread.join().unwrap();
}
