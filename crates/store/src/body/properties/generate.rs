//! Generators of unusual but legal JSON text, and of damage to it.

use proptest::collection::vec;
use proptest::prelude::*;

/// Whitespace, usually none.
fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => Just(" "), 1 => Just("\n  "), 1 => Just("\t\r\n")]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any::<i64>().prop_map(|number| number.to_string()),
        4 => proptest::num::f64::NORMAL.prop_map(|number| format!("{number:e}")),
        2 => "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?",
        1 => Just("-0".to_owned()),
        1 => Just("1e308".to_owned()),
        1 => Just("123456789012345678901234567890.000".to_owned()),
        1 => Just("9".repeat(305)),
    ]
}

/// One character of a string, plain or escaped.
fn character() -> impl Strategy<Value = String> {
    let plain = |character: char| match character {
        '\0'..' ' | '"' | '\\' => "x".to_owned(),
        _ => character.to_string(),
    };
    prop_oneof![
        8 => "[a-z]",
        2 => any::<char>().prop_map(plain),
        1 => any::<char>().prop_map(|character| {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units).iter();
            units.map(|unit| format!("\\u{unit:04x}")).collect()
        }),
        1 => prop::sample::select(vec![
            "\\\"", "\\\\", "\\/", "\\b", "\\f", "\\n", "\\r", "\\t", "\\u0000", "\\uD83D\\uDE00",
            "é", "😀", "\u{7f}",
        ]).prop_map(String::from),
    ]
}

/// A string with its quotes.
pub(super) fn string() -> impl Strategy<Value = String> {
    vec(character(), 0..24).prop_map(|characters| format!("\"{}\"", characters.concat()))
}

/// A name from a small set, so that duplicates, system properties and wanted paths occur.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "a", "\\u0061", "b", "c", "", "id", "ttl", "_ts", "_rid", "_etag", "_self", "_lsn",
            "_attachments", "\\u005fts", "longer than a word", "longer than a worm",
        ]).prop_map(|name| format!("\"{name}\"")),
        6 => string(),
    ]
}

/// Any value, with whitespace around it.
pub(super) fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number(),
        string(),
    ];
    leaf.prop_recursive(4, 48, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..8).prop_map(|elements| format!("[{}]", elements.join(","))),
            object_of(inner, 0..8),
        ]
    })
    .prop_flat_map(|value| {
        (space(), space()).prop_map(move |(before, after)| format!("{before}{value}{after}"))
    })
}

fn object_of(
    value: impl Strategy<Value = String>,
    size: std::ops::Range<usize>,
) -> impl Strategy<Value = String> {
    let member = (space(), name(), space(), space(), value).prop_map(
        |(before, name, after, inside, value)| format!("{before}{name}{after}:{inside}{value}"),
    );
    (vec(member, size), space()).prop_map(|(members, end)| {
        if members.is_empty() { format!("{{{end}}}") } else { format!("{{{}}}", members.join(",")) }
    })
}

/// An object that is legal except for duplicate names and ids that are not strings.
pub(super) fn object() -> impl Strategy<Value = String> {
    object_of(value(), 0..10)
}

/// A wide object of short names, in which duplicates are rare but occur.
pub(super) fn wide_object() -> impl Strategy<Value = String> {
    vec("[a-z]{1,3}|\\\\u006[1-9][a-z]{0,2}", 0..150)
        .prop_map(|names| {
            names.iter().map(|name| format!("\"{name}\":0")).collect::<Vec<_>>().join(",")
        })
        .prop_map(|members| format!("{{{members}}}"))
}

/// One way to damage bytes.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    Overwrite(prop::sample::Index, u8),
    Insert(prop::sample::Index, u8),
    Delete(prop::sample::Index),
    Truncate(prop::sample::Index),
    /// Copies a range of bytes to another place.
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

pub(super) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let index = any::<prop::sample::Index>;
    let byte = || {
        prop_oneof![
            any::<u8>(),
            prop::sample::select(b"{}[]\",:\\u0123456789eE+-. \ntfn\x00\x1f\xc3\xff".to_vec()),
        ]
    };
    let one = prop_oneof![
        (index(), byte()).prop_map(|(at, byte)| Damage::Overwrite(at, byte)),
        (index(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        index().prop_map(Damage::Delete),
        index().prop_map(Damage::Truncate),
        (index(), index(), 1..12_usize)
            .prop_map(|(from, to, length)| Damage::Copy(from, to, length)),
    ];
    vec(one, 0..4)
}

pub(super) fn damaged(body: &str, damages: &[Damage]) -> Vec<u8> {
    let mut bytes = body.as_bytes().to_vec();
    for damage in damages {
        let size = bytes.len();
        match damage {
            Damage::Insert(at, byte) => bytes.insert(at.index(size + 1), *byte),
            _ if size == 0 => {}
            Damage::Overwrite(at, byte) => bytes[at.index(size)] = *byte,
            Damage::Delete(at) => drop(bytes.remove(at.index(size))),
            Damage::Truncate(at) => bytes.truncate(at.index(size)),
            Damage::Copy(from, to, length) => {
                let start = from.index(size);
                let stretch = bytes[start..(start + length).min(size)].to_vec();
                let to = to.index(size);
                bytes.splice(to..to, stretch);
            }
        }
    }
    bytes
}
