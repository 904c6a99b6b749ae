//! Which requests are answered on the thread of their connection.
//!
//! What others on that thread wait for meanwhile has to be little: one item, or one page of the change feed
//! as it lies in the log. Whatever may compute, sort or look through many items is done elsewhere, where
//! it takes nobody's turn. Deciding this never changes an answer.

use crate::names;
use crate::request::{Call, Caller};
use headwater_model::ItemRid;
use headwater_protocol::headers::{self, PostItems};
use headwater_protocol::route::Route;
use hyper::Method;

pub(crate) fn is_brief(call: &Call) -> bool {
    // What a guest may do can depend on an item that has to be looked for.
    if matches!(call.caller, Caller::Guest(_)) {
        return false;
    }
    match (&call.route, &call.verb) {
        (Route::Account, _) => true,
        (Route::Items { .. }, &Method::GET) => reads_one_log(call),
        (Route::Items { .. }, &Method::POST) => {
            let posted = PostItems::of(|name| call.header(name));
            matches!(posted, PostItems::Create | PostItems::Upsert) && !runs_triggers(call)
        }
        // An item that is named by its resource id has to be looked for.
        (Route::Item { id, .. }, _) => ItemRid::parse(id).is_err() && !runs_triggers(call),
        _ => false,
    }
}

/// Whether it is a page of the change feed for which nothing is read that is not on it.
fn reads_one_log(call: &Call) -> bool {
    let picks = [
        &names::PARTITION_KEY,
        &names::FEED_WHERE,
        &names::FEED_SELECT,
        &names::FEED_OPS,
        &names::FEED_CHANGED,
    ];
    call.head.contains(&names::A_IM)
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
    use hyper::header::{HeaderMap, HeaderName, HeaderValue};

    fn is_brief_with(verb: Method, route: Route, head: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in head {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        let (query, body, origin) = (None, bytes::Bytes::new(), String::new());
        let caller = Caller::Owner;
        let peer = crate::budget::Peer::for_tests();
        is_brief(&Call { verb, route, query, head: headers.into(), body, caller, origin, peer })
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
            (Method::GET, items.clone(), vec![feed, (headers::FEED_WHERE, "c.a = 1")], false),
            (Method::GET, items.clone(), vec![feed, (headers::PARTITION_KEY, "[1]")], false),
            (Method::GET, items, vec![feed, (headers::START_EPK, "10")], false),
            (Method::GET, Route::Containers { db: db.clone() }, vec![], false),
            (Method::GET, Route::PkRanges { db: db.clone(), coll: coll.clone() }, vec![], false),
        ] {
            let found = is_brief_with(verb.clone(), route.clone(), &head);
            assert_eq!(found, expected, "{verb} {route:?} {head:?}");
        }
    }
}
