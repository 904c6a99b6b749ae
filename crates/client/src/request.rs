//! A request before it is signed: method, resource, headers and body.

use bytes::Bytes;
use headwater_protocol::headers;
use headwater_protocol::route::Route;
use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// The characters that a path segment must escape: all but letters, digits and `-_.~`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A request before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) verb: Method,
    pub(crate) path: String,
    pub(crate) link: String,
    pub(crate) resource_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
    /// Whether it only reads, so that it is safe to repeat.
    pub(crate) reads: bool,
    /// Additional time allowed for the response.
    pub(crate) wait: Duration,
}

impl Request {
    /// A request for the resource that a route names.
    pub(crate) fn new(verb: Method, route: &Route) -> Request {
        let links = route.links();
        let link = links.candidates().first().copied().unwrap_or_default().to_owned();
        Request {
            reads: verb == Method::GET,
            verb,
            path: path_of(route),
            link,
            resource_type: route.resource_type(),
            headers: Vec::new(),
            body: Bytes::new(),
            wait: Duration::ZERO,
        }
    }

    /// A request outside of the protocol, signed as one for the container.
    pub(crate) fn extension(verb: Method, db: &str, coll: &str, action: &str) -> Request {
        let route = Route::Container { db: db.to_owned(), coll: coll.to_owned() };
        let path = format!("/_headwater/partitions/{}/{}{action}", segment(db), segment(coll));
        Request { path, ..Request::new(verb, &route) }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl ToString) -> Request {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(crate) fn header_if(self, name: &'static str, value: Option<impl ToString>) -> Request {
        match value {
            Some(value) => self.header(name, value),
            None => self,
        }
    }

    pub(crate) fn body(self, body: impl Into<Bytes>) -> Request {
        let request = self.header(headers::CONTENT_TYPE, "application/json");
        Request { body: body.into(), ..request }
    }
}

fn segment(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The path of the routes this client uses.
fn path_of(route: &Route) -> String {
    let container = |db: &str, coll: &str| format!("/dbs/{}/colls/{}", segment(db), segment(coll));
    match route {
        Route::Databases => "/dbs".to_owned(),
        Route::Database { db } => format!("/dbs/{}", segment(db)),
        Route::Containers { db } => format!("/dbs/{}/colls", segment(db)),
        Route::Container { db, coll } => container(db, coll),
        Route::Items { db, coll } => format!("{}/docs", container(db, coll)),
        Route::Item { db, coll, id } => format!("{}/docs/{}", container(db, coll), segment(id)),
        Route::PkRanges { db, coll } => format!("{}/pkranges", container(db, coll)),
        Route::Backups => "/_headwater/backups".to_owned(),
        Route::Backup { id } => format!("/_headwater/backups/{}", segment(id)),
        Route::BackupFile { id, number } => {
            format!("/_headwater/backups/{}/files/{number}", segment(id))
        }
        Route::BackupPartition { id, number } => {
            format!("/_headwater/backups/{}/partitions/{number}", segment(id))
        }
        _ => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_protocol::route::parse;

    /// The server's own parser returns the same route for every path built here, whatever the ids are.
    #[test]
    fn paths_are_read_back_as_the_same_route() {
        for id in ["1", "a b", "é+%2F", "50%", "a?b=c#d", "[x]~"] {
            let (db, coll, id) = ("my db".to_owned(), "c+d".to_owned(), id.to_owned());
            let containers = Route::Containers { db: db.clone() };
            let items = Route::Items { db: db.clone(), coll: coll.clone() };
            let ranges = Route::PkRanges { db: db.clone(), coll: coll.clone() };
            let backup = Route::BackupFile { id: id.clone(), number: 7 };
            for route in [containers, items, ranges, backup, Route::Item { db, coll, id }] {
                let path = Request::new(Method::GET, &route).path;
                assert_eq!(parse(&path).unwrap(), route, "{path}");
            }
        }
    }
}
