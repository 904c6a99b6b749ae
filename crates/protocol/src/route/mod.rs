//! Parses paths into routes.
//!
//! Paths alternate types and names: `/dbs/{db}/colls/{coll}/docs/{id}`. Clients may add a trailing slash
//! or double the leading one, and differ in what they escape. A segment is decoded once, after splitting,
//! and a plus stays a plus. A name may also be a resource id. Only the catalog can tell the two apart,
//! so names are passed on unchanged.
//!
//! Headwater's own paths are below `/_headwater/`; each is about one container or one backup.
//!
//! This module ignores methods and headers: `POST /dbs/a/colls/b/docs` is `Items` for every operation.
//! [`crate::operation`] tells them apart.

mod link;

pub use link::Links;

use crate::error::Code;
use percent_encoding::percent_decode_str;

/// The longest path accepted. The longest ids, with every byte escaped, take about 10 000 bytes.
const PATH_BYTES_MAX: usize = 16 * 1024;

/// The maximum number of segments: a database, container and item take six.
const SEGMENTS_MAX: usize = 6;

/// The resource that a path names. Names are decoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)] // Field names say it all: the names along the path.
pub enum Route {
    /// `/`
    Account,
    /// `/dbs`
    Databases,
    /// `/dbs/{db}`
    Database { db: String },
    /// `/dbs/{db}/colls`
    Containers { db: String },
    /// `/dbs/{db}/colls/{coll}`
    Container { db: String, coll: String },
    /// `…/docs`
    Items { db: String, coll: String },
    /// `…/docs/{id}`
    Item { db: String, coll: String, id: String },
    /// `…/pkranges`
    PkRanges { db: String, coll: String },
    /// `…/pkranges/{id}`
    PkRange { db: String, coll: String, id: String },
    /// `…/sprocs`
    StoredProcedures { db: String, coll: String },
    /// `…/sprocs/{id}`
    StoredProcedure { db: String, coll: String, id: String },
    /// `…/triggers`
    Triggers { db: String, coll: String },
    /// `…/triggers/{id}`
    Trigger { db: String, coll: String, id: String },
    /// `…/udfs`
    Udfs { db: String, coll: String },
    /// `…/udfs/{id}`
    Udf { db: String, coll: String, id: String },
    /// `…/conflicts`
    Conflicts { db: String, coll: String },
    /// `…/conflicts/{id}`
    Conflict { db: String, coll: String, id: String },
    /// `…/schemas`
    Schemas { db: String, coll: String },
    /// `…/schemas/{id}`
    Schema { db: String, coll: String, id: String },
    /// `…/operations/partitionkeydelete`
    PartitionKeyDelete { db: String, coll: String },
    /// `/dbs/{db}/users`
    Users { db: String },
    /// `/dbs/{db}/users/{user}`
    User { db: String, user: String },
    /// `/dbs/{db}/users/{user}/permissions`
    Permissions { db: String, user: String },
    /// `/dbs/{db}/users/{user}/permissions/{id}`
    Permission { db: String, user: String, id: String },
    /// `/dbs/{db}/clientencryptionkeys`
    ClientEncryptionKeys { db: String },
    /// `/dbs/{db}/clientencryptionkeys/{id}`
    ClientEncryptionKey { db: String, id: String },
    /// `/offers`
    Offers,
    /// `/offers/{rid}`
    Offer { rid: String },
    /// `/addresses`, which clients in direct mode request.
    Addresses,
    /// `/_headwater/changes/{db}/{coll}`
    ChangeStream { db: String, coll: String },
    /// `/_headwater/partitions/{db}/{coll}`
    Partitions { db: String, coll: String },
    /// `/_headwater/partitions/{db}/{coll}/split`
    PartitionSplit { db: String, coll: String },
    /// `/_headwater/partitions/{db}/{coll}/merge`
    PartitionMerge { db: String, coll: String },
    /// `/_headwater/backups`
    Backups,
    /// `/_headwater/backups/{id}`
    Backup { id: String },
    /// `/_headwater/backups/{id}/files/{number}`
    BackupFile { id: String, number: usize },
    /// `/_headwater/backups/{id}/partitions/{number}`
    BackupPartition { id: String, number: usize },
}

/// Why a path is not a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// No resource has such a path.
    #[error("path names no resource; use one such as /dbs/{{db}}/colls/{{coll}}/docs/{{id}}")]
    Unknown,
    /// The path has more than an id after `/offers`, as clients send that take a link for an id.
    #[error("an offer is named by its id alone: /offers/{{id}}")]
    Offer,
    /// A segment is not UTF-8 once decoded.
    #[error("path is not UTF-8; percent-encode the UTF-8 bytes of each id")]
    Encoding,
    /// The path is longer than any path to a resource.
    #[error("path is {bytes} bytes; paths to resources stay below {PATH_BYTES_MAX}")]
    TooLong {
        /// The length of the path.
        bytes: usize,
    },
}

impl RouteError {
    /// The status code of the response.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            RouteError::Unknown => Code::NotFound,
            RouteError::Offer | RouteError::Encoding | RouteError::TooLong { .. } => {
                Code::BadRequest
            }
        }
    }
}

/// Parses a path. A query string is ignored.
///
/// # Errors
/// When no resource has such a path.
pub fn parse(path: &str) -> Result<Route, RouteError> {
    let mut segments = [""; SEGMENTS_MAX];
    let count = split(path, &mut segments)?;
    match &segments[..count] {
        [] => Ok(Route::Account),
        ["dbs"] => Ok(Route::Databases),
        ["offers"] => Ok(Route::Offers),
        ["addresses"] => Ok(Route::Addresses),
        ["offers", rid] => Ok(Route::Offer { rid: name(rid)? }),
        ["offers", ..] => Err(RouteError::Offer),
        ["dbs", db] => Ok(Route::Database { db: name(db)? }),
        ["dbs", db, kind] => below_database(name(db)?, kind),
        ["dbs", db, kind, id] => in_database(name(db)?, kind, name(id)?),
        ["dbs", db, "colls", coll, kind] => below_container(name(db)?, name(coll)?, kind),
        ["dbs", db, "users", user, "permissions"] => {
            Ok(Route::Permissions { db: name(db)?, user: name(user)? })
        }
        ["dbs", db, "users", user, "permissions", id] => {
            Ok(Route::Permission { db: name(db)?, user: name(user)?, id: name(id)? })
        }
        ["dbs", db, "colls", coll, "operations", "partitionkeydelete"] => {
            Ok(Route::PartitionKeyDelete { db: name(db)?, coll: name(coll)? })
        }
        ["dbs", db, "colls", coll, kind, id] => {
            in_container(name(db)?, name(coll)?, kind, name(id)?)
        }
        ["_headwater", "backups"] => Ok(Route::Backups),
        ["_headwater", "backups", id, rest @ ..] => backup(name(id)?, rest),
        ["_headwater", kind, db, coll, rest @ ..] => extension(kind, name(db)?, name(coll)?, rest),
        _ => Err(RouteError::Unknown),
    }
}

/// Splits the path at its slashes and returns the number of segments.
fn split<'a>(path: &'a str, segments: &mut [&'a str; SEGMENTS_MAX]) -> Result<usize, RouteError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(RouteError::TooLong { bytes: path.len() });
    }
    let path = trimmed(path);
    if path.is_empty() {
        return Ok(0);
    }
    let mut count = 0;
    for segment in path.split('/') {
        if segment.is_empty() {
            return Err(RouteError::Unknown);
        }
        *segments.get_mut(count).ok_or(RouteError::Unknown)? = segment;
        count += 1;
    }
    Ok(count)
}

/// Removes the query, leading slashes and one trailing slash.
fn trimmed(path: &str) -> &str {
    let path = path.split_once('?').map_or(path, |(path, _)| path).trim_start_matches('/');
    path.strip_suffix('/').unwrap_or(path)
}

fn name(segment: &str) -> Result<String, RouteError> {
    // Most names need no decoding, and copying is several times faster than decoding byte by byte.
    if !segment.contains('%') {
        return Ok(segment.to_owned());
    }
    let decoded = percent_decode_str(segment).decode_utf8().map_err(|_| RouteError::Encoding)?;
    Ok(decoded.into_owned())
}

fn below_database(db: String, kind: &str) -> Result<Route, RouteError> {
    match kind {
        "colls" => Ok(Route::Containers { db }),
        "users" => Ok(Route::Users { db }),
        "clientencryptionkeys" => Ok(Route::ClientEncryptionKeys { db }),
        _ => Err(RouteError::Unknown),
    }
}

fn in_database(db: String, kind: &str, id: String) -> Result<Route, RouteError> {
    match kind {
        "colls" => Ok(Route::Container { db, coll: id }),
        "users" => Ok(Route::User { db, user: id }),
        "clientencryptionkeys" => Ok(Route::ClientEncryptionKey { db, id }),
        _ => Err(RouteError::Unknown),
    }
}

fn below_container(db: String, coll: String, kind: &str) -> Result<Route, RouteError> {
    match kind {
        "docs" => Ok(Route::Items { db, coll }),
        "pkranges" => Ok(Route::PkRanges { db, coll }),
        "sprocs" => Ok(Route::StoredProcedures { db, coll }),
        "triggers" => Ok(Route::Triggers { db, coll }),
        "udfs" => Ok(Route::Udfs { db, coll }),
        "conflicts" => Ok(Route::Conflicts { db, coll }),
        "schemas" => Ok(Route::Schemas { db, coll }),
        _ => Err(RouteError::Unknown),
    }
}

fn in_container(db: String, coll: String, kind: &str, id: String) -> Result<Route, RouteError> {
    match kind {
        "docs" => Ok(Route::Item { db, coll, id }),
        "pkranges" => Ok(Route::PkRange { db, coll, id }),
        "sprocs" => Ok(Route::StoredProcedure { db, coll, id }),
        "triggers" => Ok(Route::Trigger { db, coll, id }),
        "udfs" => Ok(Route::Udf { db, coll, id }),
        "conflicts" => Ok(Route::Conflict { db, coll, id }),
        "schemas" => Ok(Route::Schema { db, coll, id }),
        _ => Err(RouteError::Unknown),
    }
}

fn extension(kind: &str, db: String, coll: String, rest: &[&str]) -> Result<Route, RouteError> {
    match (kind, rest) {
        ("changes", []) => Ok(Route::ChangeStream { db, coll }),
        ("partitions", []) => Ok(Route::Partitions { db, coll }),
        ("partitions", ["split"]) => Ok(Route::PartitionSplit { db, coll }),
        ("partitions", ["merge"]) => Ok(Route::PartitionMerge { db, coll }),
        _ => Err(RouteError::Unknown),
    }
}

fn backup(id: String, rest: &[&str]) -> Result<Route, RouteError> {
    let number = |text: &str| text.parse().map_err(|_| RouteError::Unknown);
    match rest {
        [] => Ok(Route::Backup { id }),
        ["files", file] => Ok(Route::BackupFile { id, number: number(file)? }),
        ["partitions", partition] => Ok(Route::BackupPartition { id, number: number(partition)? }),
        _ => Err(RouteError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(db: &str, coll: &str, id: &str) -> Route {
        Route::Item { db: db.to_owned(), coll: coll.to_owned(), id: id.to_owned() }
    }

    #[test]
    fn paths_as_clients_write_them() {
        let (db, coll) = ("d".to_owned(), "c".to_owned());
        for (path, expected) in [
            ("", Route::Account),
            ("/", Route::Account),
            ("//", Route::Account),
            ("/?x=/dbs", Route::Account),
            ("/dbs", Route::Databases),
            ("//dbs/", Route::Databases),
            ("/dbs/d", Route::Database { db: db.clone() }),
            ("/dbs/d/", Route::Database { db: db.clone() }),
            ("/dbs/d/colls", Route::Containers { db: db.clone() }),
            ("/dbs/d/colls/c/", Route::Container { db: db.clone(), coll: coll.clone() }),
            ("/dbs/d/colls/c/docs/", Route::Items { db: db.clone(), coll: coll.clone() }),
            ("/dbs/d/colls/c/docs/1/", item("d", "c", "1")),
            ("/dbs/d/colls/c/docs/a%20b%2Bc%25d%26%C3%A9/", item("d", "c", "a b+c%d&é")),
            ("/dbs/d/colls/c/docs/a%20b+c%25d&%C3%A9", item("d", "c", "a b+c%d&é")),
            ("/dbs/d/colls/c/docs/a%2Fb", item("d", "c", "a/b")), // decoded after splitting
            ("/dbs/d/colls/c/docs/a%252Fb", item("d", "c", "a%2Fb")), // decoded once
            ("/dbs/d/colls/c/docs/100%", item("d", "c", "100%")),
            ("/dbs/dbs/colls/colls/docs/docs", item("dbs", "colls", "docs")),
            ("/dbs/d/colls/c/pkranges", Route::PkRanges { db: db.clone(), coll: coll.clone() }),
            (
                "/dbs/d/colls/c/operations/partitionkeydelete",
                Route::PartitionKeyDelete { db: db.clone(), coll: coll.clone() },
            ),
            ("/dbs/d/users/u", Route::User { db: db.clone(), user: "u".to_owned() }),
            ("/offers", Route::Offers),
            ("/offers/QH8O/", Route::Offer { rid: "QH8O".to_owned() }),
            ("//addresses/?$resolveFor=dbs", Route::Addresses),
            (
                "/_headwater/changes/d/c?from=now",
                Route::ChangeStream { db: db.clone(), coll: coll.clone() },
            ),
            (
                "/_headwater/partitions/d/c/",
                Route::Partitions { db: db.clone(), coll: coll.clone() },
            ),
            (
                "/_headwater/partitions/d/c/split",
                Route::PartitionSplit { db: db.clone(), coll: coll.clone() },
            ),
            (
                "/_headwater/partitions/%64/c/merge",
                Route::PartitionMerge { db: db.clone(), coll: coll.clone() },
            ),
            ("/_headwater/backups", Route::Backups),
            ("/_headwater/backups/ab", Route::Backup { id: "ab".to_owned() }),
            (
                "/_headwater/backups/ab/files/7?offset=1",
                Route::BackupFile { id: "ab".to_owned(), number: 7 },
            ),
            (
                "/_headwater/backups/ab/partitions/0",
                Route::BackupPartition { id: "ab".to_owned(), number: 0 },
            ),
        ] {
            assert_eq!(parse(path), Ok(expected), "{path}");
        }
    }

    #[test]
    fn paths_that_name_nothing() {
        for (path, status) in [
            ("/db", 404),
            ("/DBS", 404),
            ("/dbs/d/docs", 404),
            ("/dbs//colls", 404),
            ("/dbs/d//", 404),
            ("/dbs/d/colls/c/docs/1/attachments", 404),
            ("/dbs/d/colls/c/docs/1/attachments/2", 404),
            ("/dbs/d/users/u/docs", 404),
            ("/dbs/d/colls/c/operations/other", 404),
            ("/_headwater/partitions/d", 404),
            ("/_headwater/partitions/d/c/other", 404),
            ("/_headwater/changes/d/c/split", 404),
            ("/_headwater/backups/ab/files", 404),
            ("/_headwater/backups/ab/files/x", 404),
            ("/_headwater/backups/ab/files/-1", 404),
            ("/_headwater/backups/ab/files/99999999999999999999", 404),
            ("/offers/a/b", 400),
            ("/dbs/%FF", 400),
            (&format!("/dbs/{}", "a".repeat(PATH_BYTES_MAX)), 400),
        ] {
            let refused = parse(path).unwrap_err();
            assert_eq!(refused.code().status(), status, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_makes_the_parser_panic(path in "\\PC{0,100}") {
            if let Ok(route) = parse(&path) {
                let _ = route.links_for(&path);
            }
        }

        /// Escaped names are decoded to the original names.
        #[test]
        fn names_come_back(db in "\\PC{1,20}", coll in "\\PC{1,20}", id in "\\PC{1,20}") {
            use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
            let [d, c, i] = [&db, &coll, &id].map(|name| utf8_percent_encode(name, NON_ALPHANUMERIC));
            let path = format!("/dbs/{d}/colls/{c}/docs/{i}");
            prop_assert_eq!(parse(&path), Ok(item(&db, &coll, &id)));
        }

        #[test]
        fn path_like_texts_do_not_panic(
            path in "(/|dbs|colls|docs|users|permissions|offers|pkranges|operations|%|%2|%41|a|\\?){0,16}"
        ) {
            if let Ok(route) = parse(&path) {
                let links = route.links_for(&path);
                prop_assert!(!links.candidates().is_empty());
            }
        }
    }
}
