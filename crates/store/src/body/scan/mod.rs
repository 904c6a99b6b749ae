//! The public interface of a scan: validates untrusted bytes and locates the values the store needs.
//!
//! Only this module creates a `Scanned`, so a `Scanned` proves that its bytes are an item. It borrows
//! the body and stores offsets into it; it never holds a copy of a value.

use std::borrow::Cow;

use super::error::BodyError;
use super::grammar::{LocatedValues, Region, Scanner};
use super::span::{ValueKind, ValueSpan};
use super::wanted::Wanted;
use super::words::{BODY_BYTES_MAX, Offset};

/// Bytes of system properties that a body may contain on top of the size limit. They are dropped on
/// write. Without this allowance, an item of maximum size could be read but not written back.
const SYSTEM_BYTES_MAX: usize = 1024;

/// Limits on the size and nesting of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of an item as the user sends it, without system properties. A body can never exceed
    /// 4 GiB, even if this limit is larger.
    pub item_bytes_max: usize,
    /// Nesting depth of objects and arrays; the item itself is the first level. At most 255, because
    /// each level takes stack.
    pub nesting_max: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { item_bytes_max: 2_097_152, nesting_max: 128 }
    }
}

/// The `ttl` property of an item. The caller decides which of these are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// There is no `ttl`.
    Absent,
    /// It is `null`.
    Null,
    /// It is a whole number in any notation: `10`, `10.0` and `1e1` are the same number.
    Integer(i64),
    /// It has any other value.
    Other,
}

/// A validated body and the locations of its `id`, `ttl`, wanted values and system properties.
#[derive(Clone, Debug)]
pub struct Scanned<'b> {
    body: &'b [u8],
    object: ValueSpan,
    found: LocatedValues,
}

/// Validates a body and locates its `id`, its `ttl`, the wanted values and the system properties in
/// one pass.
pub fn scan<'b>(body: &'b [u8], wanted: &Wanted) -> Result<Scanned<'b>, BodyError> {
    let limits = wanted.limits();
    check_size(body.len(), limits, SYSTEM_BYTES_MAX)?;
    let nesting_max = usize::from(limits.nesting_max);
    let object = ValueSpan { kind: ValueKind::Object, start: 0, end: 0 };
    let mut scanned = Scanned { body, object, found: LocatedValues::nothing(wanted.paths()) };
    scanned.object = Scanner::new(body, Some(wanted), nesting_max, &mut scanned.found)
        .item()
        .map_err(|fault| fault.explain(body, nesting_max))?;
    // Each region counts with its comma.
    let system_bytes: Offset =
        scanned.system().iter().map(|region| region.end - region.start + 1).sum();
    check_size(body.len() - system_bytes as usize, limits, 0)?;
    Ok(scanned)
}

/// Checks that untrusted bytes are a JSON object within the default limits. Names and values of
/// properties are not checked: `{"id":1}` passes.
pub fn validate(body: &[u8]) -> Result<(), BodyError> {
    validate_object(body, Limits::default())
}

/// `validate` within other limits.
pub(super) fn validate_object(body: &[u8], limits: Limits) -> Result<(), BodyError> {
    check_size(body.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    match Scanner::new(body, None, nesting_max, &mut LocatedValues::nothing(0)).item() {
        Ok(_) => Ok(()),
        Err(fault) => Err(fault.explain(body, nesting_max)),
    }
}

/// Checks that untrusted bytes are one JSON value of any kind; returns its span without the
/// whitespace around it.
pub fn validate_value(text: &[u8], limits: Limits) -> Result<ValueSpan, BodyError> {
    check_size(text.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    Scanner::new(text, None, nesting_max, &mut LocatedValues::nothing(0))
        .any_value()
        .map_err(|fault| fault.explain(text, nesting_max))
}

fn check_size(bytes: usize, limits: Limits, allowance: usize) -> Result<(), BodyError> {
    let limit = limits.item_bytes_max.min(BODY_BYTES_MAX - SYSTEM_BYTES_MAX);
    if bytes > limit + allowance { Err(BodyError::TooLarge { bytes, limit }) } else { Ok(()) }
}

impl<'b> Scanned<'b> {
    /// The bytes that were scanned.
    #[must_use]
    pub fn body(&self) -> &'b [u8] {
        self.body
    }

    /// The `id`, unescaped; `None` if the body has none.
    #[must_use]
    pub fn id(&self) -> Option<Cow<'b, str>> {
        self.found.id?.as_str(self.body)
    }

    /// The span of the `id`.
    #[must_use]
    pub fn id_span(&self) -> Option<ValueSpan> {
        self.found.id
    }

    /// The top-level `ttl`.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        let Some(span) = self.found.ttl else {
            return Ttl::Absent;
        };
        match span.kind {
            ValueKind::Null => Ttl::Null,
            ValueKind::Number => whole_number(self.body, span).map_or(Ttl::Other, Ttl::Integer),
            _ => Ttl::Other,
        }
    }

    /// The value at the wanted path with this index; `None` if the body has no such value.
    #[must_use]
    pub fn value(&self, path: usize) -> Option<ValueSpan> {
        self.values().get(path).copied().flatten()
    }

    /// One entry per wanted path, in the order the paths were given.
    #[must_use]
    pub fn values(&self) -> &[Option<ValueSpan>] {
        self.found.values.as_slice()
    }

    /// Whether the body contains system properties, which a write drops.
    #[must_use]
    pub fn has_system_properties(&self) -> bool {
        !self.system().is_empty()
    }

    /// The top-level object, without the whitespace around it.
    pub(super) fn object(&self) -> ValueSpan {
        self.object
    }

    pub(super) fn system(&self) -> &[Region] {
        self.found.system.as_slice()
    }
}

fn whole_number(body: &[u8], span: ValueSpan) -> Option<i64> {
    let text = std::str::from_utf8(span.text(body)).ok()?;
    // A double is formatted and parsed again, because `as` would truncate fractions.
    text.parse().ok().or_else(|| format!("{}", text.parse::<f64>().ok()?).parse().ok())
}

#[cfg(test)]
mod tests;
