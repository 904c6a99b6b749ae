//! To come.
pub(super) const TABLE: &[super::Function] = &[];
