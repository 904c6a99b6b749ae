//! Writes lists, `{"_rid":"<parent>","<Key>":[…],"_count":n}`, of any kind of resource.

use crate::route::Route;
use std::io::Write as _;

/// Writes a list into a buffer, copying each entry unchanged.
#[derive(Debug)]
pub struct FeedWriter<'a> {
    out: &'a mut Vec<u8>,
    count: usize,
}

impl<'a> FeedWriter<'a> {
    /// Starts a list. `rid` is the parent's, or empty; `key` is the name of the array.
    #[must_use = "a list ends with `finish`"]
    pub fn new(out: &'a mut Vec<u8>, rid: &str, key: &str) -> FeedWriter<'a> {
        out.extend_from_slice(b"{\"_rid\":");
        // Writing to a `Vec` does not fail, here and below.
        let _ = serde_json::to_writer(&mut *out, rid);
        out.push(b',');
        let _ = serde_json::to_writer(&mut *out, key);
        out.extend_from_slice(b":[");
        FeedWriter { out, count: 0 }
    }

    /// Continues a list in another buffer. The caller adds the comma between two non-empty pieces.
    #[must_use = "a list ends with `finish_behind`"]
    pub fn piece(out: &'a mut Vec<u8>) -> FeedWriter<'a> {
        FeedWriter { out, count: 0 }
    }

    /// Adds an entry of JSON.
    pub fn push(&mut self, entry: &[u8]) {
        self.push_with(|out| out.extend_from_slice(entry));
    }

    /// Adds an entry that `write` appends.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count > 0 {
            self.out.push(b',');
        }
        write(self.out);
        self.count += 1;
    }

    /// The number of entries so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Ends the list and returns the number of entries, for `x-ms-item-count`.
    pub fn finish(self) -> usize {
        self.finish_behind(0)
    }

    /// Ends a list that has `before` entries in earlier pieces; returns the total number.
    pub fn finish_behind(self, before: usize) -> usize {
        let count = before + self.count;
        let _ = write!(self.out, "],\"_count\":{count}}}");
        count
    }
}

impl Route {
    /// The name of the array in a list of this route; `None` if the route is not a list.
    #[must_use]
    pub fn feed_key(&self) -> Option<&'static str> {
        Some(match self {
            Route::Databases => "Databases",
            Route::Containers { .. } => "DocumentCollections",
            Route::Items { .. } => "Documents",
            Route::PkRanges { .. } => "PartitionKeyRanges",
            Route::StoredProcedures { .. } => "StoredProcedures",
            Route::Triggers { .. } => "Triggers",
            Route::Udfs { .. } => "UserDefinedFunctions",
            Route::Conflicts { .. } => "Conflicts",
            Route::Schemas { .. } => "Schemas",
            Route::Users { .. } => "Users",
            Route::Permissions { .. } => "Permissions",
            Route::ClientEncryptionKeys { .. } => "ClientEncryptionKeys",
            Route::Offers => "Offers",
            // Every client spells it like this.
            Route::Addresses => "Addresss",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_copied_as_they_are() {
        for (entries, expected) in [
            (vec![], r#"{"_rid":"a=","Documents":[],"_count":0}"#),
            (vec!["{\"n\": 1.50}"], r#"{"_rid":"a=","Documents":[{"n": 1.50}],"_count":1}"#),
            (vec!["1", "[2]"], r#"{"_rid":"a=","Documents":[1,[2]],"_count":2}"#),
        ] {
            let mut out = Vec::new();
            let mut list = FeedWriter::new(&mut out, "a=", "Documents");
            entries.iter().for_each(|entry| list.push(entry.as_bytes()));
            assert_eq!(list.finish(), entries.len());
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn a_list_in_two_buffers_is_the_same_list() {
        let mut whole = Vec::new();
        let mut list = FeedWriter::new(&mut whole, "a=", "Documents");
        ["1", "2", "3"].iter().for_each(|entry| list.push(entry.as_bytes()));
        list.finish();
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let mut list = FeedWriter::new(&mut one, "a=", "Documents");
        list.push(b"1");
        let before = list.count();
        one.push(b',');
        let mut list = FeedWriter::piece(&mut two);
        list.push(b"2");
        list.push(b"3");
        assert_eq!(list.finish_behind(before), 3);
        assert_eq!([one, two].concat(), whole);
    }

    #[test]
    fn exactly_lists_have_a_key() {
        for path in [
            "/",
            "/dbs",
            "/dbs/a",
            "/dbs/a/colls",
            "/dbs/a/colls/b",
            "/dbs/a/colls/b/docs",
            "/dbs/a/colls/b/docs/1",
            "/dbs/a/colls/b/operations/partitionkeydelete",
            "/dbs/a/users/u/permissions",
            "/offers",
            "/offers/x",
        ] {
            let route = crate::route::parse(path).unwrap();
            assert_eq!(route.feed_key().is_some(), route.is_feed(), "{path}");
        }
    }
}
