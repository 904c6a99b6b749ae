//! What a reader says when it asks for a page of the change feed: which changes, from where, and how
//! many.
//!
//! Which headers say so is the protocol's business; how a page is filled is the store's.

use crate::{Continuation, Timestamp};

/// Which changes a reader sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FeedMode {
    /// Each item that exists, once, at its newest change. No deletes.
    #[default]
    LatestVersion,
    /// Every create, replace and delete, as far back as they are kept.
    AllVersionsAndDeletes,
}

/// Where a reader begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// At the first change there is.
    Beginning,
    /// After the newest change there is now.
    Now,
    /// At the first change not before this time, compared in whole seconds.
    Time(Timestamp),
    /// After what was already read.
    After(Continuation),
}

/// How large a page may become before it is cut.
///
/// Changes of one transaction stay together and a page holds at least one of them, so a page may
/// exceed either number. Fields are for reading; [`PageLimit::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PageLimit {
    /// Changes on a page.
    pub items: u32,
    /// Bytes of their bodies; with all versions, also of the bodies before the changes.
    pub bytes: u32,
}

/// Why there is no such limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPageLimit {
    /// No items, or more than we put on one page.
    #[error("page size is {0} items; ask for 1 to {max}", max = PageLimit::ITEMS_MAX)]
    Items(u32),
    /// No bytes, or more than we put on one page.
    #[error("page size is {0} bytes; ask for 1 to {max}", max = PageLimit::BYTES_MAX)]
    Bytes(u32),
}

impl PageLimit {
    /// The most items a reader may ask for.
    pub const ITEMS_MAX: u32 = 10_000;

    /// The most bytes a reader may ask for.
    pub const BYTES_MAX: u32 = 64 * 1024 * 1024;

    /// For readers that do not say: 100 items, 4 MiB.
    pub const DEFAULT: PageLimit = PageLimit { items: 100, bytes: 4 * 1024 * 1024 };

    /// A limit of 1 to 10 000 items and 1 byte to 64 MiB.
    pub const fn new(items: u32, bytes: u32) -> Result<PageLimit, BadPageLimit> {
        if items == 0 || items > PageLimit::ITEMS_MAX {
            return Err(BadPageLimit::Items(items));
        }
        if bytes == 0 || bytes > PageLimit::BYTES_MAX {
            return Err(BadPageLimit::Bytes(bytes));
        }
        Ok(PageLimit { items, bytes })
    }

    /// This many items and the default number of bytes.
    pub const fn items(items: u32) -> Result<PageLimit, BadPageLimit> {
        PageLimit::new(items, PageLimit::DEFAULT.bytes)
    }
}

impl Default for PageLimit {
    fn default() -> PageLimit {
        PageLimit::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        const MIB: u32 = 1024 * 1024;
        let checked = |items, bytes| PageLimit::new(items, bytes).map(|l| (l.items, l.bytes));
        assert_eq!(checked(1, 1), Ok((1, 1)));
        assert_eq!(checked(10_000, 64 * MIB), Ok((10_000, 64 * MIB)));
        assert_eq!(checked(0, 1), Err(BadPageLimit::Items(0)));
        assert_eq!(checked(10_001, 1), Err(BadPageLimit::Items(10_001)));
        assert_eq!(checked(1, 0), Err(BadPageLimit::Bytes(0)));
        assert_eq!(checked(1, 64 * MIB + 1), Err(BadPageLimit::Bytes(64 * MIB + 1)));
        assert_eq!(PageLimit::items(100), Ok(PageLimit::DEFAULT));
        assert_eq!(BadPageLimit::Items(0).to_string(), "page size is 0 items; ask for 1 to 10000");
    }
}
