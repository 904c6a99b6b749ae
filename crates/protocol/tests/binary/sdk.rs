//! The codecs of the official Rust client and of Headwater read each other's output.

use crate::values::{ROOM, any_value, as_doubles, decoded, hex};
use azure_data_cosmos_driver::binary_json as sdk;
use headwater_protocol::binary::{decode, encode};
use proptest::prelude::*;
use serde_json::{Value, json};

proptest! {
    #[test]
    fn what_the_client_sends_is_understood(value in any_value()) {
        prop_assert_eq!(as_doubles(decoded(&sdk::encode(&value)).unwrap()), as_doubles(value.clone()));
        let typed = sdk::to_vec(&value).unwrap();
        prop_assert_eq!(as_doubles(decoded(&typed).unwrap()), as_doubles(value));
    }

    #[test]
    fn what_we_answer_is_understood_by_the_client(value in any_value()) {
        let body = encode(value.to_string().as_bytes()).unwrap();
        prop_assert!(sdk::is_binary(&body));
        prop_assert_eq!(&sdk::decode(&body).unwrap(), &value);
        prop_assert_eq!(&sdk::from_slice::<Value>(&body).map(as_doubles).unwrap(), &as_doubles(value));
    }

    #[test]
    fn the_client_reads_the_same_text_from_a_body_as_we_do(value in any_value()) {
        let body = sdk::encode(&value);
        let theirs: Value = serde_json::from_slice(&sdk::transcode_to_text(&body).unwrap()).unwrap();
        prop_assert_eq!(decoded(&body).unwrap(), theirs);
    }
}

/// The body of a `create_item` as captured from the client (1.1.0-beta.1).
#[test]
fn a_captured_request_is_understood() {
    let captured = hex("80 ed 22 04 81 66 cc 00 00 00 00 00 00 08 40 82 69 64 83 6f 2d 31 \
         81 6e cb 2c 01 00 00 00 00 00 00 82 70 6b 81 70");
    decoded_text(&captured, r#"{"f":3,"id":"o-1","n":300,"pk":"p"}"#);
}

/// A typed item, so that the client's typed reader is used, not only its tree.
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Order {
    id: String,
    lines: Vec<Line>,
    total: f64,
    note: Option<String>,
    _etag: String,
    _ts: i64,
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Line {
    name: String,
    count: u32,
    price: f64,
}

#[test]
fn a_typed_item_goes_there_and_back() {
    let line = |name: &str, count, price| Line { name: name.to_owned(), count, price };
    let order = Order {
        id: "o-1".to_owned(),
        lines: vec![line("tea", 3, 4.5), line("\u{2615} \"strong\"", 1, 3.0)],
        total: 16.5,
        note: None,
        _etag: "\"00000000-0000-0000-0000-000000000000\"".to_owned(),
        _ts: 1_700_000_000,
    };
    let sent = sdk::to_vec(&order).unwrap();
    let stored = decoded(&sent).unwrap();
    assert_eq!(as_doubles(stored.clone()), as_doubles(json!(order)));
    let answered = encode(stored.to_string().as_bytes()).unwrap();
    assert_eq!(sdk::from_slice::<Order>(&answered).unwrap(), order);
}

#[test]
fn the_deepest_item_of_the_client_is_understood() {
    let text = format!("{}1{}", "[".repeat(256), "]".repeat(256));
    let sent = sdk::transcode_to_binary(text.as_bytes()).unwrap();
    decoded_text(&sent, &text);
    sdk::decode(&encode(text.as_bytes()).unwrap()).unwrap();
}

#[track_caller]
fn decoded_text(body: &[u8], text: &str) {
    let ours = decode(body, ROOM);
    assert_eq!(ours.as_deref(), Ok(text.as_bytes()));
}
