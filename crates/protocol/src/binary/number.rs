//! Decodes the fourteen number encodings and writes them as JSON.
//!
//! A double with an integral value is written as an integer (`3`, not `3.0`), as the service does. Where
//! digits would not parse as the same double (`-0.0`, and beyond 64 bits) it is written as a float.
//! Every number written here parses as the same double.

use super::error::BinaryError;
use super::input::Input;
use super::marker;
use super::text::Text;
use std::io::Write;

/// One past the largest double that is written as an integer.
const INTEGERS_END: f64 = 18_446_744_073_709_551_616.0;
/// The smallest double that is written as an integer.
const INTEGERS_START: f64 = -9_223_372_036_854_775_808.0;

/// A decoded number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
}

/// Reads the number that follows a marker.
pub(super) fn read(input: &mut Input<'_>, marker: u8) -> Result<Number, BinaryError> {
    let number = match marker {
        marker if marker::LITERAL.contains(&marker) => Number::Signed(marker.into()),
        marker::NUMBER_UINT8 | marker::UINT8 => Number::Signed(input.byte()?.into()),
        marker::INT8 => Number::Signed(i8::from_le_bytes(input.array()?).into()),
        marker::NUMBER_INT16 | marker::INT16 => {
            Number::Signed(i16::from_le_bytes(input.array()?).into())
        }
        marker::NUMBER_INT32 | marker::INT32 => {
            Number::Signed(i32::from_le_bytes(input.array()?).into())
        }
        marker::NUMBER_INT64 | marker::INT64 => Number::Signed(i64::from_le_bytes(input.array()?)),
        marker::UINT32 => Number::Signed(u32::from_le_bytes(input.array()?).into()),
        marker::NUMBER_UINT64 => Number::Unsigned(u64::from_le_bytes(input.array()?)),
        marker::NUMBER_DOUBLE | marker::FLOAT64 => {
            Number::Double(f64::from_le_bytes(input.array()?))
        }
        marker::FLOAT32 => Number::Double(f32::from_le_bytes(input.array()?).into()),
        marker::FLOAT16 => Number::Double(half(u16::from_le_bytes(input.array()?))),
        other => return Err(input.bad_marker(other)),
    };
    match number {
        Number::Double(double) if !double.is_finite() => {
            Err(BinaryError::NotFinite { at: input.value_at() })
        }
        finite => Ok(finite),
    }
}

/// Whether the elements of a uniform array may have this type.
pub(super) fn is_uniform_type(marker: u8) -> bool {
    matches!(marker, marker::FLOAT32..=marker::FLOAT16 | marker::UINT8..=marker::UINT32)
}

/// Writes a number as JSON.
pub(super) fn write(text: &mut Text, number: Number) -> Result<(), BinaryError> {
    text.formatted(|text| match number {
        Number::Signed(integer) => Ok(serde_json::to_writer(text, &integer)?),
        Number::Unsigned(integer) => Ok(serde_json::to_writer(text, &integer)?),
        Number::Double(double) if is_integer(double) => write!(text, "{double:.0}"),
        Number::Double(double) => Ok(serde_json::to_writer(text, &double)?),
    })
}

fn is_integer(double: f64) -> bool {
    let negative_zero = double == 0.0 && double.is_sign_negative();
    double.fract() == 0.0 && (INTEGERS_START..INTEGERS_END).contains(&double) && !negative_zero
}

/// Converts a half-precision float to the double of the same value. The conversion is exact.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1F);
    let fraction = f64::from(bits & 0x03FF);
    match exponent {
        0 => sign * fraction * 2f64.powi(-24),
        31 => f64::NAN,
        _ => sign * (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}
