//! On which threads a request is answered.
//!
//! ```text
//! connection   one item, or one page of the change feed as it lies in the log: others on the thread wait
//! shared       what may sort or look through many items; long queries take turns there
//! background   what computes for long before it can yield, at a lower priority and on fewer threads than
//!              there are processors: large bodies, long queries, conditions of patches. A page of the change
//!              feed moves there when it turns out to be large (`changes`)
//! ```
//!
//! Deciding this never changes an answer.

use crate::names;
use crate::request::{Call, Caller};
use headwater_model::ItemRid;
use headwater_protocol::headers;
use headwater_protocol::operation::{Action, ItemOperation, Operation, Resource};
use headwater_protocol::route::Route;

/// Parsing a larger body takes a noticeable time.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Parsing a larger body takes milliseconds.
const SHARED_BODY_BYTES_MAX: usize = 256 << 10;

/// Understanding a longer query takes milliseconds.
const SHARED_QUERY_BYTES_MAX: usize = 16 << 10;

/// Where a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the thread of its connection.
    Connection,
    /// On the threads of the store.
    Shared,
    /// On threads for long computations.
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
    // What a guest may do can depend on an item that has to be looked for.
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

/// Whether a patch may have a condition, which computes. Some patches without one are taken for one with it:
/// a name can be written with escapes.
fn may_have_condition(body: &[u8]) -> bool {
    let contains = |text: &[u8]| body.windows(text.len()).any(|window| window == text);
    contains(b"\"condition\"") || contains(b"\\u")
}

/// An item named by its resource id has to be looked for.
fn names_rid(route: &Route) -> bool {
    matches!(route, Route::Item { id, .. } if ItemRid::parse(id).is_ok())
}

/// Whether a page of the change feed reads nothing that is not on it.
fn reads_one_log(call: &Call) -> bool {
    let picks = [
        &names::PARTITION_KEY,
        &names::FEED_WHERE,
        &names::FEED_SELECT,
        &names::FEED_OPS,
        &names::FEED_CHANGED,
    ];
    // With all versions, the one before each change has to be looked for.
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
            // By its resource id it has to be looked for.
            (Method::GET, item("AAAAAYAAAAEDAAAAAAAAAA=="), vec![], false),
            (Method::PUT, item("1"), vec![(headers::PRE_TRIGGER_INCLUDE, "t")], false),
            (Method::POST, items.clone(), vec![(headers::POST_TRIGGER_INCLUDE, "t")], false),
            (Method::POST, items.clone(), vec![(headers::IS_QUERY, "True")], false),
            (Method::POST, items.clone(), vec![(headers::IS_BATCH, "True")], false),
            (Method::GET, items.clone(), vec![], false),
            // A blank name of a feed asks for a list, which may sort thousands of rows.
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
