//! The public face of a scan: from untrusted bytes to a checked body with its landmarks.
//!
//! A `Scanned` can only come from here, so whoever holds one holds bytes that are an item. It
//! borrows the body and remembers offsets into it; it never holds a copy of a value.

use std::borrow::Cow;

use super::error::BodyError;
use super::grammar::{Found, Region, Scanner};
use super::span::{ValueKind, ValueSpan};
use super::wanted::Wanted;
use super::words::{BODY_BYTES_MAX, Offset};

/// How many bytes of system properties a body may bring beyond the size limit. They are dropped on
/// write; without this, an item of the full size could be read but not written back.
const SYSTEM_BYTES_MAX: usize = 1024;

/// What a body may be at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Size of an item as the user sends it, system properties not counted. No body can exceed
    /// 4 GiB, whatever this says.
    pub item_bytes_max: usize,
    /// How deep objects and arrays nest, the item itself being the first level. A byte, because
    /// each level takes stack.
    pub nesting_max: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { item_bytes_max: 2_097_152, nesting_max: 128 }
    }
}

/// What an item says about its time to live. Which of these are allowed is for the caller to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// There is no `ttl`.
    Absent,
    /// It is `null`.
    Null,
    /// It is a whole number, however written: `10`, `10.0` and `1e1` are the same number.
    Integer(i64),
    /// It is anything else.
    Other,
}

/// A body that has been checked, and where its landmarks are.
#[derive(Clone, Debug)]
pub struct Scanned<'b> {
    body: &'b [u8],
    object: ValueSpan,
    found: Found,
}

/// Checks a body by every rule and finds its `id`, its `ttl`, the wanted values and the system
/// properties, in one pass.
pub fn scan<'b>(body: &'b [u8], wanted: &Wanted) -> Result<Scanned<'b>, BodyError> {
    let limits = wanted.limits();
    check_size(body.len(), limits, SYSTEM_BYTES_MAX)?;
    let nesting_max = usize::from(limits.nesting_max);
    let object = ValueSpan { kind: ValueKind::Object, start: 0, end: 0 };
    let mut scanned = Scanned { body, object, found: Found::nothing(wanted.paths()) };
    scanned.object = Scanner::new(body, Some(wanted), nesting_max, &mut scanned.found)
        .item()
        .map_err(|fault| fault.explain(body, nesting_max))?;
    // Each with its comma.
    let system_bytes: Offset =
        scanned.system().iter().map(|region| region.end - region.start + 1).sum();
    check_size(body.len() - system_bytes as usize, limits, 0)?;
    Ok(scanned)
}

/// Checks that untrusted bytes are a JSON object within the default limits. What its properties are
/// called and hold is not looked at: `{"id":1}` passes.
pub fn validate(body: &[u8]) -> Result<(), BodyError> {
    validate_object(body, Limits::default())
}

/// `validate` within other limits.
pub(super) fn validate_object(body: &[u8], limits: Limits) -> Result<(), BodyError> {
    check_size(body.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    match Scanner::new(body, None, nesting_max, &mut Found::nothing(0)).item() {
        Ok(_) => Ok(()),
        Err(fault) => Err(fault.explain(body, nesting_max)),
    }
}

/// Checks that untrusted bytes are one JSON value of any kind; returns where it stands, without the
/// whitespace around it.
pub fn validate_value(text: &[u8], limits: Limits) -> Result<ValueSpan, BodyError> {
    check_size(text.len(), limits, 0)?;
    let nesting_max = usize::from(limits.nesting_max);
    Scanner::new(text, None, nesting_max, &mut Found::nothing(0))
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

    /// Where the `id` stands.
    #[must_use]
    pub fn id_span(&self) -> Option<ValueSpan> {
        self.found.id
    }

    /// What the top-level `ttl` says.
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

    /// The value at the wanted path of this index; `None` if the body has nothing there.
    #[must_use]
    pub fn value(&self, path: usize) -> Option<ValueSpan> {
        self.values().get(path).copied().flatten()
    }

    /// One entry per wanted path, in the order the paths were given.
    #[must_use]
    pub fn values(&self) -> &[Option<ValueSpan>] {
        self.found.values.as_slice()
    }

    /// Whether the body brought system properties, which will be dropped.
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
    // Through text the second time, because `as` would cut off what is no whole number.
    text.parse().ok().or_else(|| format!("{}", text.parse::<f64>().ok()?).parse().ok())
}

#[cfg(test)]
mod tests;
