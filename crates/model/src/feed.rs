//! The parameters of a change feed read: mode, start and page limit.
//!
//! The protocol crate maps headers to them, and the store fills the page; neither is done here.

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

/// Where a change feed read begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedStart {
    /// At the oldest change.
    Beginning,
    /// After the newest change at the time of the request.
    Now,
    /// At the first change not before this time, compared in whole seconds.
    Time(Timestamp),
    /// After the position of an earlier page.
    After(Continuation),
}

/// The size limit of a page.
///
/// Changes of one transaction stay together, and a page holds at least one transaction. So a page may exceed
/// either number. The fields are read-only; [`PageLimit::new`] checks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PageLimit {
    /// The most changes on a page.
    pub items: u32,
    /// The most bytes of item bodies. In all-versions mode, previous bodies count as well.
    pub bytes: u32,
}

/// Why a page limit is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPageLimit {
    /// Zero items, or more than [`PageLimit::ITEMS_MAX`].
    #[error("page size is {0} items; ask for 1 to {max}", max = PageLimit::ITEMS_MAX)]
    Items(u32),
    /// Zero bytes, or more than [`PageLimit::BYTES_MAX`].
    #[error("page size is {0} bytes; ask for 1 to {max}", max = PageLimit::BYTES_MAX)]
    Bytes(u32),
}

impl PageLimit {
    /// The most items a reader may ask for.
    pub const ITEMS_MAX: u32 = 10_000;

    /// The most bytes a reader may ask for.
    pub const BYTES_MAX: u32 = 64 * 1024 * 1024;

    /// The limit for requests that specify none: 100 items, 4 MiB.
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
