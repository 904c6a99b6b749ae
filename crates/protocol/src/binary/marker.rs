//! The marker bytes of the format, and the table of system strings.
//!
//! Names follow the format's own: `L` is a length in bytes, `C` a count of elements, and the digit is
//! the width of both. All multi-byte fields are little-endian. Bytes without a name here, such as
//! `0x68` to `0x70`, are undefined and refused.

use std::ops::{Range, RangeInclusive};

pub(super) const PREAMBLE: u8 = 0x80;

/// The marker is the number itself.
pub(super) const LITERAL: Range<u8> = 0x00..0x20;
/// Every marker allowed at the place of a property name.
pub(super) const STRINGS: RangeInclusive<u8> = 0x20..=0xC6;

pub(super) const SYSTEM_STRING: Range<u8> = 0x20..0x40;
pub(super) const USER_STRING_1: Range<u8> = 0x40..0x60;
pub(super) const USER_STRING_2: Range<u8> = 0x60..0x68;

pub(super) const BASE64_L1: u8 = 0x71;
pub(super) const BASE64_L2: u8 = 0x72;
pub(super) const BASE64_URL_L1: u8 = 0x73;
pub(super) const BASE64_URL_L2: u8 = 0x74;
pub(super) const GUID_LOWER: u8 = 0x75;
pub(super) const GUID_UPPER: u8 = 0x76;
pub(super) const GUID_QUOTED: u8 = 0x77;
pub(super) const HEX_LOWER: u8 = 0x78;
pub(super) const HEX_UPPER: u8 = 0x79;
pub(super) const DATE_TIME: u8 = 0x7A;
pub(super) const PACKED_4: u8 = 0x7B;
pub(super) const PACKED_5: u8 = 0x7C;
pub(super) const PACKED_6: u8 = 0x7D;
pub(super) const PACKED_7_L1: u8 = 0x7E;
pub(super) const PACKED_7_L2: u8 = 0x7F;

/// The marker includes the length.
pub(super) const SHORT_STRING: Range<u8> = 0x80..0xC0;
pub(super) const STRING_L1: u8 = 0xC0;
pub(super) const STRING_L2: u8 = 0xC1;
pub(super) const STRING_L4: u8 = 0xC2;
pub(super) const REFERENCE_1: u8 = 0xC3;
pub(super) const REFERENCE_2: u8 = 0xC4;
pub(super) const REFERENCE_3: u8 = 0xC5;
pub(super) const REFERENCE_4: u8 = 0xC6;

/// The `NUMBER` markers are plain JSON numbers. The typed ones below carry the writer's type; only they
/// may be the element type of a uniform array.
pub(super) const NUMBER_UINT64: u8 = 0xC7;
pub(super) const NUMBER_UINT8: u8 = 0xC8;
pub(super) const NUMBER_INT16: u8 = 0xC9;
pub(super) const NUMBER_INT32: u8 = 0xCA;
pub(super) const NUMBER_INT64: u8 = 0xCB;
pub(super) const NUMBER_DOUBLE: u8 = 0xCC;
pub(super) const FLOAT32: u8 = 0xCD;
pub(super) const FLOAT64: u8 = 0xCE;
pub(super) const FLOAT16: u8 = 0xCF;

pub(super) const NULL: u8 = 0xD0;
pub(super) const FALSE: u8 = 0xD1;
pub(super) const TRUE: u8 = 0xD2;
pub(super) const GUID: u8 = 0xD3;
pub(super) const UINT8: u8 = 0xD7;
pub(super) const INT8: u8 = 0xD8;
pub(super) const INT16: u8 = 0xD9;
pub(super) const INT32: u8 = 0xDA;
pub(super) const INT64: u8 = 0xDB;
pub(super) const UINT32: u8 = 0xDC;
pub(super) const BINARY_L1: u8 = 0xDD;
pub(super) const BINARY_L2: u8 = 0xDE;
pub(super) const BINARY_L4: u8 = 0xDF;

pub(super) const ARRAY_0: u8 = 0xE0;
pub(super) const ARRAY_1: u8 = 0xE1;
pub(super) const ARRAY_L1: u8 = 0xE2;
pub(super) const ARRAY_L2: u8 = 0xE3;
pub(super) const ARRAY_L4: u8 = 0xE4;
pub(super) const ARRAY_LC1: u8 = 0xE5;
pub(super) const ARRAY_LC2: u8 = 0xE6;
pub(super) const ARRAY_LC4: u8 = 0xE7;
pub(super) const OBJECT_0: u8 = 0xE8;
pub(super) const OBJECT_1: u8 = 0xE9;
pub(super) const OBJECT_L1: u8 = 0xEA;
pub(super) const OBJECT_L2: u8 = 0xEB;
pub(super) const OBJECT_L4: u8 = 0xEC;
pub(super) const OBJECT_LC1: u8 = 0xED;
pub(super) const OBJECT_LC2: u8 = 0xEE;
pub(super) const OBJECT_LC4: u8 = 0xEF;

/// Arrays of numbers of one type, without a marker per number.
pub(super) const NUMBERS_C1: u8 = 0xF0;
pub(super) const NUMBERS_C2: u8 = 0xF1;
/// Arrays of equally long arrays of numbers of one type.
pub(super) const NUMBER_ARRAYS_C1: u8 = 0xF2;
pub(super) const NUMBER_ARRAYS_C2: u8 = 0xF3;

/// Strings encoded as one byte: `SYSTEM_STRING.start` plus the index in this table. The order is part of
/// the format: moving an entry renames properties.
const SYSTEM_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

/// The system string that a marker encodes, if any.
pub(super) fn system_string(marker: u8) -> Option<&'static str> {
    let place = marker.checked_sub(SYSTEM_STRING.start)?;
    SYSTEM_STRINGS.get(usize::from(place)).copied()
}

/// The marker that encodes a system string, if `text` is one.
pub(super) fn of_system_string(text: &str) -> Option<u8> {
    SYSTEM_STRING.zip(SYSTEM_STRINGS).find(|(_, entry)| *entry == text).map(|(marker, _)| marker)
}
