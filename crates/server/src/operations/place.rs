//! Chooses the threads on which a request runs.
//!
//! ```text
//! connection   one item, or one page of the change feed copied from the log; other connections wait meanwhile
//! shared       operations that may sort or scan many items; long queries yield there
//! background   computations that run for long before they yield, at a lower priority and on fewer threads than
//!              there are processors: large bodies, long queries, conditions of patches. A page of the change
//!              feed moves there when it turns out to be large (`changes`)
//! ```
//!
//! The choice never changes a response.

use crate::names;
use crate::request::{Call, Caller};
use headwater_model::ItemRid;
use headwater_protocol::headers;
use headwater_protocol::operation::{Action, ItemOperation, Operation, Resource};
use headwater_protocol::route::Route;

/// The largest body whose parsing takes no noticeable time.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The largest body that is parsed on the shared threads; a larger one takes milliseconds.
const SHARED_BODY_BYTES_MAX: usize = 256 << 10;

/// The longest query that is parsed on the shared threads; a longer one takes milliseconds.
const SHARED_QUERY_BYTES_MAX: usize = 16 << 10;

/// The threads on which a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The thread of the connection.
    Connection,
    /// The threads of the store.
    Shared,
    /// The threads for long computations.
    Background,
}

pub(crate) fn place_of(call: &Call) -> Place {
    let bytes = call.body.len();
    let is_long = match call.operation {
        Operation::Items(ItemOperation::Patch) => may_have_condition(&call.body),
        Operation::Items(ItemOperation::Query | ItemOperation::PlanQuery) => {
            bytes > SHARED_QUERY_BYTES_MAX
        }
        Operation::Define(_, Action::Query) => bytes > SHARED_QUERY_BYTES_MAX,
        _ => false,
    };
    if is_long || bytes > SHARED_BODY_BYTES_MAX {
        Place::Background
    } else if is_brief(call) {
        Place::Connection
    } else {
        Place::Shared
    }
}

fn is_brief(call: &Call) -> bool {
    if call.body.len() > BODY_BYTES_MAX {
        return false;
    }
    // The permission of a resource token may depend on an item that must be searched.
    if matches!(call.caller, Caller::Guest(_)) {
        return false;
    }
    match call.operation {
        Operation::Define(resource, _) => resource == Resource::Account,
        Operation::Extension(_) => false,
        Operation::Items(operation) => match operation {
            ItemOperation::ReadFeed { .. } => reads_one_log(call),
            ItemOperation::Create | ItemOperation::Upsert => !runs_triggers(call),
            ItemOperation::Read
            | ItemOperation::Replace
            | ItemOperation::Patch
            | ItemOperation::Delete => !names_rid(&call.route) && !runs_triggers(call),
            ItemOperation::List
            | ItemOperation::Query
            | ItemOperation::PlanQuery
            | ItemOperation::Transaction
            | ItemOperation::Bulk
            | ItemOperation::DeletePartitionKey
            | ItemOperation::ExecuteProcedure => false,
        },
    }
}

/// Whether a patch may have a condition, which takes time to evaluate. Any escaped character counts too,
/// because the name can be written with escapes.
fn may_have_condition(body: &[u8]) -> bool {
    let contains = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
    contains(b"\"condition\"") || contains(b"\\u")
}

/// Whether an item is named by its resource id, which requires a search.
fn names_rid(route: &Route) -> bool {
    matches!(route, Route::Item { id, .. } if ItemRid::parse(id).is_ok())
}

/// Whether a page of the change feed reads only the changes that are on it.
fn reads_one_log(call: &Call) -> bool {
    let picks = [
        &names::PARTITION_KEY,
        &names::FEED_WHERE,
        &names::FEED_SELECT,
        &names::FEED_OPS,
        &names::FEED_CHANGED,
    ];
    // All versions require a lookup of the version before each change.
    let is_of_latest = |name: &str| name.trim().eq_ignore_ascii_case("incremental feed");
    call.header(&names::A_IM).is_some_and(is_of_latest)
        && !picks.into_iter().any(|name| call.head.contains(name))
        && !call.head.contains(headers::START_EPK)
}

fn runs_triggers(call: &Call) -> bool {
    [headers::PRE_TRIGGER_INCLUDE, headers::POST_TRIGGER_INCLUDE]
        .into_iter()
        .any(|name| call.head.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Head;
    use hyper::Method;
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    fn place_with(verb: Method, route: Route, head: &[(&'static str, &str)], body: &[u8]) -> Place {
        let mut headers = HeaderMap::new();
        for (name, value) in head {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let head = Head::from(headers);
        let operation = Operation::classify(verb.as_str(), &route, |name| head.text(name)).unwrap();
        let body = bytes::Bytes::copy_from_slice(body);
        let (query, origin) = (None, String::new());
        let caller = Caller::Owner;
        let peer = crate::budget::Peer::for_tests();
        place_of(&Call { operation, route, query, head, body, caller, origin, peer })
    }

    #[test]
    fn single_items_and_plain_pages_of_the_feed_are_brief_and_nothing_that_searches() {
        let (db, coll) = ("db".to_owned(), "c".to_owned());
        let items = Route::Items { db: db.clone(), coll: coll.clone() };
        let item = |id: &str| Route::Item { db: db.clone(), coll: coll.clone(), id: id.to_owned() };
        let feed = (headers::A_IM, "Incremental feed");
        for (verb, route, head, expected) in [
            (Method::GET, Route::Account, vec![], true),
            (Method::GET, item("1"), vec![], true),
            (Method::PUT, item("1"), vec![], true),
            (Method::PATCH, item("1"), vec![], true),
            (Method::DELETE, item("1"), vec![], true),
            (Method::POST, items.clone(), vec![], true),
            (Method::POST, items.clone(), vec![(headers::IS_UPSERT, "True")], true),
            (Method::GET, items.clone(), vec![feed], true),
            (Method::GET, items.clone(), vec![feed, (headers::PREFER, "wait=9")], true),
            // An item named by its resource id must be searched.
            (Method::GET, item("AAAAAYAAAAEDAAAAAAAAAA=="), vec![], false),
            (Method::PUT, item("1"), vec![(headers::PRE_TRIGGER_INCLUDE, "t")], false),
            (Method::POST, items.clone(), vec![(headers::POST_TRIGGER_INCLUDE, "t")], false),
            (Method::POST, items.clone(), vec![(headers::IS_QUERY, "True")], false),
            (Method::POST, items.clone(), vec![(headers::IS_BATCH, "True")], false),
            (Method::GET, items.clone(), vec![], false),
            // A blank `A-IM` requests a list, which may sort thousands of rows.
            (Method::GET, items.clone(), vec![(headers::A_IM, " ")], false),
            (Method::GET, items.clone(), vec![(headers::A_IM, "Full-Fidelity Feed")], false),
            (Method::GET, items.clone(), vec![feed, (headers::FEED_WHERE, "c.a = 1")], false),
            (Method::GET, items.clone(), vec![feed, (headers::PARTITION_KEY, "[1]")], false),
            (Method::GET, items, vec![feed, (headers::START_EPK, "10")], false),
            (Method::GET, Route::Containers { db: db.clone() }, vec![], false),
            (Method::GET, Route::PkRanges { db: db.clone(), coll: coll.clone() }, vec![], false),
        ] {
            let found = place_with(verb.clone(), route.clone(), &head, b"");
            let expected = if expected { Place::Connection } else { Place::Shared };
            assert_eq!(found, expected, "{verb} {route:?} {head:?}");
        }
    }

    #[test]
    fn large_bodies_and_conditions_of_patches_are_left_to_background_threads() {
        let (db, coll) = ("db".to_owned(), "c".to_owned());
        let item = Route::Item { db: db.clone(), coll: coll.clone(), id: "1".to_owned() };
        for (body, expected) in [
            (r#"{"operations":[]}"#, Place::Connection),
            (r#"{"condition":"from c","operations":[]}"#, Place::Background),
            (r#"{"\u0063ondition":"from c","operations":[]}"#, Place::Background),
        ] {
            let found = place_with(Method::PATCH, item.clone(), &[], body.as_bytes());
            assert_eq!(found, expected, "{body}");
        }
        for (bytes, expected) in [
            (BODY_BYTES_MAX, Place::Connection),
            (BODY_BYTES_MAX + 1, Place::Shared),
            (SHARED_BODY_BYTES_MAX, Place::Shared),
            (SHARED_BODY_BYTES_MAX + 1, Place::Background),
        ] {
            let items = Route::Items { db: db.clone(), coll: coll.clone() };
            let found = place_with(Method::POST, items, &[], &vec![b' '; bytes]);
            assert_eq!(found, expected, "{bytes} bytes");
        }
    }
}
