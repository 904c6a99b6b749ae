//! The text of every error message: lower case, no full stop, the object and its value, and a remedy after the
//! semicolon.
//!
//! Unit tests next to the code check when each error is returned.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use headwater_model::*;

fn epk(hex: &str) -> Epk {
    Epk::from_hex(hex).unwrap()
}

fn range(min: &str, max: &str) -> KeyRange {
    KeyRange::new(epk(min), epk(max)).unwrap()
}

#[test]
fn messages() {
    for (error, expected) in [
        (
            BadLsn.to_string(),
            "a log position is a decimal number below 18446744073709551615; send back one we returned",
        ),
        (
            BadPartitionId.to_string(),
            "a partition key range id is a decimal number such as 0; read the ids from `pkranges`",
        ),
        (
            BadEtag.to_string(),
            "etag is not of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx; send the `_etag` that was read",
        ),
        (
            BadEpk::OddLength { digits: 3 }.to_string(),
            "effective partition key has 3 hex digits; send an even number of them",
        ),
        (
            BadEpk::NotHex { position: 4 }.to_string(),
            "effective partition key has no hex digit at byte 4; send only 0-9 and A-F",
        ),
        (
            BadEpk::TooLong { digits: 1026 }.to_string(),
            "effective partition key has 1026 hex digits; send at most 1024",
        ),
        (
            KeyRangeError::Empty { min: epk("20"), max: epk("10") }.to_string(),
            "range 20..10 is empty; its end must be higher than its start",
        ),
        (
            KeyRangeError::NotInside { key: epk("30"), range: range("10", "20") }.to_string(),
            "30 does not divide range 10..20; choose a key inside it and above its start",
        ),
        (
            KeyRangeError::NotAdjacent { one: range("", "20"), other: range("30", "FF") }
                .to_string(),
            "ranges ..20 and 30..FF do not touch; merge only neighbours",
        ),
        (BadPageLimit::Items(0).to_string(), "page size is 0 items; ask for 1 to 10000"),
        (BadPageLimit::Bytes(0).to_string(), "page size is 0 bytes; ask for 1 to 67108864"),
        (
            BadTimestamp::Form.to_string(),
            "date is not of the form `Tue, 14 Nov 2023 22:13:20 GMT`; send an RFC 1123 date",
        ),
        (
            BadTimestamp::NotInCalendar.to_string(),
            "date does not exist; check its day, month and time",
        ),
        (
            BadTimestamp::Weekday.to_string(),
            "date is not on the weekday it names; check which of the two is meant",
        ),
        (
            BadTimestamp::BeforeEpoch.to_string(),
            "date is before 1970; to read everything, leave it out",
        ),
        (IdError::Empty.to_string(), "id is empty; give it at least one character"),
        (
            IdError::TooLong { length: 256, limit: 255, unit: "characters" }.to_string(),
            "id has 256 characters; give it fewer. Ensure to provide a unique non-empty string less than '255' characters. Use at most 255",
        ),
        (
            IdError::ForbiddenCharacter { character: '?' }.to_string(),
            "id contains '?'; remove every / \\ ? and #",
        ),
        (
            IdError::ControlCharacter { character: '\n' }.to_string(),
            "id contains the control character '\\n'; remove it",
        ),
        (IdError::TrailingSpace.to_string(), "id ends in a space; remove it"),
        (
            BadRid::NotBase64.to_string(),
            "resource id is not base64 with - for /; copy it from a `_rid` property",
        ),
        (
            BadRid::Length { bytes: 6 }.to_string(),
            "resource id has 6 bytes, which no resource has; copy it from a `_rid` property",
        ),
        (
            BadRid::WrongResource { expected: "a container" }.to_string(),
            "resource id is not that of a container; use the `_rid` of a container",
        ),
        (
            BadRid::UnknownKind { nibble: 15 }.to_string(),
            "resource id has kind 0xf, which does not exist; copy it from a `_rid` property",
        ),
    ] {
        check(&error, expected);
    }
}

#[test]
fn messages_about_partition_keys() {
    use BadPartitionKeyDefinition as Definition;
    let kind = PartitionKeyKind::Hash;
    let problem = BadPartitionKeyPath::NoLeadingSlash;
    for (error, expected) in [
        (
            BadPartitionKey::NotJson { column: 4 }.to_string(),
            r#"partition key is not valid JSON at column 4; send an array such as ["a"]"#,
        ),
        (
            BadPartitionKey::NotArray.to_string(),
            r#"partition key is not a JSON array; send ["a"] rather than "a""#,
        ),
        (
            BadPartitionKey::NotScalar { index: 1 }.to_string(),
            "partition key component 1 is an object or an array; send a string, number, boolean or null, or {} for a missing property",
        ),
        (
            BadPartitionKey::TooManyComponents.to_string(),
            "partition key has more than 8 components; send one for each path",
        ),
        (
            BadPartitionKey::TooLong { bytes: 9000 }.to_string(),
            "partition key text is 9000 bytes; send at most 8192",
        ),
        (
            BadPartitionKeyBytes::Truncated.to_string(),
            "partition key bytes end early; the index row is damaged, rebuild it from the log",
        ),
        (
            BadPartitionKeyBytes::Unexpected { byte: 7, position: 3 }.to_string(),
            "partition key bytes have 0x07 at 3; the index row is damaged, rebuild it from the log",
        ),
        (
            BadPartitionKeyBytes::NotUtf8.to_string(),
            "partition key bytes hold a string that is not UTF-8; the index row is damaged, rebuild it from the log",
        ),
        (
            BadPartitionKeyBytes::TooManyComponents.to_string(),
            "partition key bytes hold more than 8 components; the index row is damaged, rebuild it from the log",
        ),
        (
            BadPartitionKeyBytes::TrailingBytes { excess: 2 }.to_string(),
            "partition key bytes go on for 2 bytes after their end; use `decode_prefix` if more is meant to follow",
        ),
        (
            BadPartitionKeyPath::NoLeadingSlash.to_string(),
            "partition key path does not start with a slash; write /name",
        ),
        (
            BadPartitionKeyPath::EmptySegment.to_string(),
            "partition key path has an empty segment; write a property name after each slash",
        ),
        (
            BadPartitionKeyPath::UnclosedQuote.to_string(),
            "partition key path has an opening quote without a closing one; close it or write \\\" inside",
        ),
        (
            BadPartitionKeyPath::TextAfterQuote.to_string(),
            "partition key path goes on after a closing quote; put a slash there",
        ),
        (
            BadPartitionKeyPath::TooLong { bytes: 1025 }.to_string(),
            "partition key path is 1025 bytes; use at most 1024",
        ),
        (
            Definition::NotJson("missing field `paths`".to_owned()).to_string(),
            r#"partition key definition is not valid: missing field `paths`; send {"paths":["/pk"],"kind":"Hash","version":2}"#,
        ),
        (
            Definition::Path { path: "pk".to_owned(), problem }.to_string(),
            "partition key is refused. The partition key component definition path 'pk' could not be accepted: partition key path does not start with a slash; write /name",
        ),
        (
            Definition::NotOnePath { kind, paths: 2 }.to_string(),
            "partition key is refused. Too many partition key paths (2) specified. A maximum of 1 is allowed. The partition key of kind Hash has 2 paths; give it exactly one, or use MultiHash",
        ),
        (
            Definition::LevelCount { paths: 4 }.to_string(),
            "partition key is refused. Too many partition key paths (4) specified. A maximum of 3 is allowed. The partition key of kind MultiHash has 4 paths; give it 1 to 3",
        ),
        (
            Definition::DuplicatePath("/a".parse().unwrap()).to_string(),
            "partition key path /a occurs twice; each level needs its own property",
        ),
        (
            Definition::UnknownKind("hash".to_owned()).to_string(),
            r#"partition key kind "hash" does not exist; use Hash, MultiHash or Range"#,
        ),
        (
            Definition::UnknownVersion(3).to_string(),
            "partition key version 3 does not exist; use 2, or 1 for containers made long ago",
        ),
        (
            Definition::MultiHashVersion.to_string(),
            r#"partition key of kind MultiHash has version 1; set "version": 2"#,
        ),
        (
            PartitionKeyError::ComponentCount { expected: 3, actual: 1 }.to_string(),
            "partition key has 1 components; this container needs 3, one for each path",
        ),
        (
            PartitionKeyError::PrefixLength { max: 3, actual: 4 }.to_string(),
            "partition key prefix has 4 components; send 1 to 3 of them",
        ),
        (
            PartitionKeyError::ValueTooLong { index: 0, bytes: 2049 }.to_string(),
            "partition key component 0 is 2049 bytes; use at most 2048",
        ),
        (
            PartitionKeyError::NotFinite { index: 0 }.to_string(),
            "partition key component 0 is not a finite number; use one JSON can express",
        ),
    ] {
        check(&error, expected);
    }
}

#[test]
fn messages_about_continuations() {
    use BadContinuation::*;
    for (error, expected) in [
        (Empty, "continuation is empty; leave it out to read from the beginning"),
        (
            Position,
            "continuation is not a log position we return; send back the `etag` of the last page",
        ),
        (Form, "continuation is not one of ours; send back the `etag` of the last page"),
        (
            Version(2),
            "continuation has version 2, which is not known here; read from a newer server",
        ),
        (Damaged, "continuation is damaged; send back the `etag` of the last page unchanged"),
        (Ranges, "continuation has ranges out of order or overlapping; sort and merge them"),
        (
            TooManyRanges { ranges: 10_001 },
            "continuation has 10001 ranges; read at most 10000 at once",
        ),
        (
            TooLong { bytes: 2_000_000 },
            "continuation is 2000000 bytes; read fewer ranges to stay below 1048576",
        ),
    ] {
        check(&error.to_string(), expected);
    }
}

#[track_caller]
fn check(error: &str, expected: &str) {
    assert_eq!(error, expected);
    assert!(!error.starts_with(char::is_uppercase), "starts in upper case: {error}");
    assert!(!error.ends_with('.'), "ends in a full stop: {error}");
    assert!(error.contains("; "), "does not say what to do: {error}");
}
