//! Functions of the item itself, and conditional functions.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Body, Function};
use crate::value::Value;

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "DOCUMENTID",
        arguments: "(item)",
        meaning: "The item's number in its container, taken from its `_rid`",
        count: (1, 1),
        body: Body::Pure(document_id),
        examples: &[
            ("DOCUMENTID({_rid: \"kHBCAJA3Q7gEAAAAAAAAAA==\"})", "4"),
            ("DOCUMENTID({id: \"a\"})", "undefined"),
        ],
    },
    Function {
        name: "IIF",
        arguments: "(condition, then, else)",
        meaning: "The second value if the condition is true, otherwise the third",
        count: (3, 3),
        body: Body::Pure(|arguments| {
            Some(arguments[if arguments[0].is_true() { 1 } else { 2 }].clone())
        }),
        examples: &[
            ("IIF(1 < 2, \"yes\", \"no\")", "\"yes\""),
            ("IIF(\"true\", 1, 2)", "2"),
            ("IIF(undefined, 1, 2)", "2"),
        ],
    },
];

/// A `_rid` is base64 with `-` for `/`; an item's number is its last eight bytes, low byte first.
#[expect(clippy::cast_precision_loss, reason = "an item's number stays below 2^53")]
fn document_id<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let rid = arguments[0].member("_rid");
    let bytes = STANDARD.decode(rid.as_text()?.replace('-', "/")).ok()?;
    let number: [u8; 8] = bytes.get(8..16)?.try_into().ok()?;
    Some(Value::number(u64::from_le_bytes(number) as f64))
}
