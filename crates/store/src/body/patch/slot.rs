//! The place that a pointer addresses, and the edits that can be made there.
//!
//! A slot knows the end of the part before it and the start of the part after it, so removing a
//! member or an element also removes exactly one comma:
//!
//! ```text
//! [ 1 , 2 , 3 ]        remove 1: from its start to the start of the next      [ 2 , 3 ]
//!                      remove 3: from the end of the one before to its end    [ 1 , 2 ]
//! ```
//!
//! Whitespace elsewhere stays. Each edit consumes the slot, because its offsets are invalid
//! afterwards.

use std::ops::Range;

use super::{OperationProblem, Pointer};
use crate::body::cursor::{elements, member, members, root};
use crate::body::text::push_string;
use crate::body::{ValueKind, ValueSpan};

/// The place of one object member or array element, which may exist or not.
#[derive(Debug)]
pub(super) struct Slot<'p> {
    /// The name of a member; `None` for an element.
    name: Option<&'p str>,
    /// The member or element that exists there.
    pub(super) current: Option<Part>,
    /// Number of parts in the object or array.
    pub(super) length: usize,
    /// Whether the pointer addresses the end of an array: an index of `length`, or `-`.
    pub(super) is_end: bool,
    /// End offset of the part before this one.
    previous_end: Option<usize>,
    /// Start offset of the part after this one.
    next_start: Option<usize>,
    /// End offset of the last part, or of the opening bracket if there is none.
    last_end: usize,
}

/// A member or an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Offset of its first byte; for a member this is the quote before its name.
    start: usize,
    pub(super) value: ValueSpan,
}

impl<'p> Slot<'p> {
    /// Finds the place that a pointer addresses. Its parent must exist.
    pub(super) fn find(item: &[u8], pointer: &'p Pointer) -> Result<Slot<'p>, OperationProblem> {
        let not_found = OperationProblem::PathNotFound;
        let mut parent = root(item).ok_or(not_found.clone())?;
        for segment in pointer.parents() {
            parent = match parent.kind {
                ValueKind::Object => member(item, parent, segment).ok_or(not_found.clone())?,
                ValueKind::Array => {
                    let slot = Slot::element(item, parent, segment)?;
                    let length = slot.length;
                    slot.current.ok_or(OperationProblem::IndexOutOfRange { length })?.value
                }
                _ => return Err(not_found),
            };
        }
        match parent.kind {
            ValueKind::Object => Ok(Slot::member(item, parent, pointer.last())),
            ValueKind::Array => Slot::element(item, parent, pointer.last()),
            _ => Err(not_found),
        }
    }

    fn member(item: &[u8], object: ValueSpan, name: &'p str) -> Slot<'p> {
        let parts = members(item, object).map(|member| {
            let part = Part { start: member.start as usize, value: member.value };
            (part, member.is_named(item, name))
        });
        Slot { is_end: false, ..Slot::among(parts, object, Some(name)) }
    }

    fn element(item: &[u8], array: ValueSpan, segment: &str) -> Result<Slot<'p>, OperationProblem> {
        let wanted = match segment {
            "-" => None,
            _ => Some(
                index(segment)
                    .ok_or_else(|| OperationProblem::NotAnIndex { segment: segment.to_owned() })?,
            ),
        };
        let parts = elements(item, array).enumerate().map(|(index, value)| {
            (Part { start: value.start as usize, value }, Some(index) == wanted)
        });
        let slot = Slot::among(parts, array, None);
        Ok(Slot { is_end: wanted.is_none_or(|wanted| wanted == slot.length), ..slot })
    }

    /// Picks the wanted part and records the offsets of its neighbours.
    fn among(
        parts: impl Iterator<Item = (Part, bool)>,
        parent: ValueSpan,
        name: Option<&'p str>,
    ) -> Slot<'p> {
        let mut slot = Slot {
            name,
            current: None,
            length: 0,
            is_end: false,
            previous_end: None,
            next_start: None,
            last_end: parent.start as usize + 1,
        };
        for (part, is_wanted) in parts {
            // The first match counts: duplicate names occur only in bytes that are not an item.
            if is_wanted && slot.current.is_none() {
                slot.previous_end = (slot.length > 0).then_some(slot.last_end);
                slot.current = Some(part);
            } else if slot.current.is_some() && slot.next_start.is_none() {
                slot.next_start = Some(part.start);
            }
            slot.length += 1;
            slot.last_end = part.value.end as usize;
        }
        slot
    }

    /// Whether this is an element of an array.
    pub(super) fn is_element(&self) -> bool {
        self.name.is_none()
    }

    /// Inserts a part after the last one.
    pub(super) fn append(self, item: &mut Vec<u8>, value: &[u8]) {
        let mut text = Vec::with_capacity(value.len() + self.name.map_or(0, str::len) + 4);
        if self.length > 0 {
            text.push(b',');
        }
        if let Some(name) = self.name {
            push_string(&mut text, name);
            text.push(b':');
        }
        text.extend_from_slice(value);
        replace(item, self.last_end..self.last_end, &text);
    }

    /// Inserts an element before `part`, which must be the current part.
    pub(super) fn insert(self, item: &mut Vec<u8>, part: Part, value: &[u8]) {
        let text = [value, b","].concat();
        replace(item, part.start..part.start, &text);
    }

    /// Replaces the value of `part`, which must be the current part.
    pub(super) fn overwrite(self, item: &mut Vec<u8>, part: Part, value: &[u8]) {
        replace(item, part.value.range(), value);
    }

    /// Removes `part`, which must be the current part, and one comma if there are other parts.
    pub(super) fn remove(self, item: &mut Vec<u8>, part: Part) {
        let end = part.value.end as usize;
        let cut = match (self.previous_end, self.next_start) {
            (_, Some(next)) => part.start..next,
            (Some(previous), None) => previous..end,
            (None, None) => part.start..end,
        };
        replace(item, cut, b"");
    }
}

fn replace(item: &mut Vec<u8>, range: Range<usize>, text: &[u8]) {
    item.splice(range, text.iter().copied());
}

/// An array index: digits without leading zeros.
fn index(segment: &str) -> Option<usize> {
    let is_plain = segment.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain || (segment.len() > 1 && segment.starts_with('0')) {
        return None;
    }
    segment.parse().ok()
}
