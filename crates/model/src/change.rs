//! What one entry of the change feed did to an item.
//!
//! Upsert and patch are not kinds: the feed shows each of them as a create or a replace.

use std::fmt;

/// What happened to the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// The item did not exist before.
    Create,
    /// The item existed before and exists now, changed or not.
    Replace,
    /// The item was deleted or has expired.
    Delete,
}

impl ChangeKind {
    /// The word the all-versions feed uses in `operationType`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Create => "create",
            ChangeKind::Replace => "replace",
            ChangeKind::Delete => "delete",
        }
    }
}

impl fmt::Display for ChangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let all = [ChangeKind::Create, ChangeKind::Replace, ChangeKind::Delete];
        assert_eq!(all.map(ChangeKind::as_str), ["create", "replace", "delete"]);
        assert_eq!(format!("{:>8}", ChangeKind::Delete), "  delete");
    }
}
