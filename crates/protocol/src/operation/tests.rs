//! Tests of the classification of requests by method, path and headers.

use super::*;
use crate::route;

fn classify(method: &str, path: &str, head: &[(&'static str, &'static str)]) -> Option<Operation> {
    let route = route::parse(path).unwrap();
    Operation::classify(method, &route, |name| {
        head.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    })
}

const DOCS: &str = "/dbs/d/colls/c/docs";

#[test]
fn a_post_of_items_is_one_of_seven_operations() {
    let (plan, batch) = ((headers::IS_QUERY_PLAN, "True"), (headers::IS_BATCH, "true"));
    let (query, upsert) = ((headers::IS_QUERY, "TRUE"), (headers::IS_UPSERT, "True"));
    let query_json = (headers::CONTENT_TYPE, "Application/Query+JSON; charset=utf-8");
    let json = (headers::CONTENT_TYPE, "application/json");
    let each = (headers::BATCH_ATOMIC, "False");
    let feed = (headers::A_IM, "Incremental Feed");
    for (head, expected) in [
        (vec![], ItemOperation::Create),
        (vec![json], ItemOperation::Create),
        (vec![feed], ItemOperation::Create),
        (vec![each], ItemOperation::Create),
        (vec![upsert], ItemOperation::Upsert),
        (vec![query], ItemOperation::Query),
        (vec![query_json], ItemOperation::Query),
        (vec![query, upsert], ItemOperation::Query),
        (vec![batch], ItemOperation::Transaction),
        (vec![batch, query, query_json], ItemOperation::Transaction),
        (vec![batch, each], ItemOperation::Bulk),
        (vec![batch, each, query], ItemOperation::Bulk),
        (vec![plan, json], ItemOperation::PlanQuery), // Python, JavaScript
        (vec![plan, query, query_json], ItemOperation::PlanQuery), // Rust
        (vec![plan, batch], ItemOperation::PlanQuery),
        (vec![(headers::IS_QUERY_PLAN, "False"), query], ItemOperation::Query),
        (vec![(headers::IS_QUERY, "1")], ItemOperation::Create),
    ] {
        assert_eq!(classify("POST", DOCS, &head), Some(Operation::Items(expected)), "{head:?}");
    }
}

#[test]
fn only_a_read_of_the_feed_waits() {
    let (feed, wait) = ((headers::A_IM, "Incremental Feed"), (headers::PREFER, "wait=5"));
    let of = |method, path, head: &[_]| classify(method, path, head).unwrap();
    assert!(of("GET", DOCS, &[feed, wait]).waits_for_changes());
    let read = Operation::Items(ItemOperation::ReadFeed { waits: false });
    assert_eq!(of("GET", DOCS, &[feed]), read);
    assert_eq!(of("GET", DOCS, &[feed, (headers::PREFER, "wait=0")]), read);
    let list = Operation::Items(ItemOperation::List);
    assert_eq!(of("GET", DOCS, &[wait]), list);
    assert_eq!(of("GET", DOCS, &[(headers::A_IM, " "), wait]), list);
    for (method, path) in [
        ("POST", DOCS),
        ("GET", "/dbs/d/colls/c/docs/1"),
        ("GET", "/dbs/d/colls/c/pkranges"),
        ("GET", "/dbs"),
        ("POST", "/dbs/d/colls/c/sprocs/p"),
        ("GET", "/_headwater/changes/d/c"),
    ] {
        assert!(!of(method, path, &[feed, wait]).waits_for_changes(), "{method} {path}");
    }
}

#[test]
fn headers_turn_nothing_else_into_a_read() {
    let head = [
        (headers::IS_QUERY, "True"),
        (headers::CONTENT_TYPE, headers::QUERY_JSON),
        (headers::IS_QUERY_PLAN, "True"),
        (headers::A_IM, "Incremental Feed"),
    ];
    for (method, path, access) in [
        ("POST", "/dbs/d/colls/c/sprocs/p", Access::Write),
        ("PUT", "/dbs/d/colls/c/docs/1", Access::Write),
        ("PATCH", "/dbs/d/colls/c/docs/1", Access::Write),
        ("DELETE", "/dbs/d/colls/c/docs/1", Access::Write),
        ("POST", "/dbs/d/colls/c/operations/partitionkeydelete", Access::Write),
        ("PUT", "/dbs/d/colls/c", Access::Write),
        ("DELETE", "/dbs/d", Access::Write),
        ("PUT", "/offers/o", Access::Write),
        ("POST", "/dbs/d/users/u/permissions", Access::ManagePermissions),
        ("GET", "/dbs/d/users/u/permissions/p", Access::ManagePermissions),
        ("POST", "/_headwater/partitions/d/c/split", Access::ManagePartitions),
        ("POST", "/_headwater/partitions/d/c/merge", Access::ManagePartitions),
        ("POST", "/_headwater/backups", Access::BackUp),
        ("GET", "/_headwater/backups/b/files/0", Access::BackUp),
        ("GET", "/_headwater/backups/b/partitions/0", Access::BackUp),
        ("DELETE", "/_headwater/backups/b", Access::BackUp),
        // Queries of definitions are reads.
        ("POST", "/dbs", Access::Read),
        ("POST", "/dbs/d/users", Access::Read),
        ("POST", "/dbs/d/colls/c/sprocs", Access::Read),
    ] {
        let operation = classify(method, path, &head).unwrap();
        assert_eq!(operation.access(), access, "{method} {path}: {operation:?}");
    }
}

#[test]
fn definitions_are_named_by_resource_and_action() {
    let upsert = (headers::IS_UPSERT, "True");
    let query = (headers::IS_QUERY, "True");
    for (method, path, head, resource, action) in [
        ("GET", "/", None, Resource::Account, Action::Read),
        ("GET", "/dbs", None, Resource::Database, Action::List),
        ("POST", "/dbs", Some(upsert), Resource::Database, Action::Create),
        ("POST", "/dbs/d/colls", Some(upsert), Resource::Container, Action::Create),
        ("POST", "/dbs/d/colls", Some(query), Resource::Container, Action::Query),
        ("PUT", "/dbs/d/colls/c", None, Resource::Container, Action::Replace),
        ("POST", "/dbs/d/users", Some(upsert), Resource::User, Action::Upsert),
        ("POST", "/dbs/d/colls/c/triggers", None, Resource::Trigger, Action::Create),
        ("DELETE", "/dbs/d/colls/c/udfs/f", None, Resource::UserDefinedFunction, Action::Delete),
        ("GET", "/dbs/d/colls/c/pkranges", None, Resource::PartitionKeyRange, Action::List),
        ("GET", "/offers/o", None, Resource::Offer, Action::Read),
    ] {
        let head: Vec<_> = head.into_iter().collect();
        let expected = Some(Operation::Define(resource, action));
        assert_eq!(classify(method, path, &head), expected, "{method} {path}");
    }
}

#[test]
fn methods_that_do_not_apply_are_no_operation() {
    for (method, path) in [
        ("PUT", DOCS),
        ("BREW", DOCS),
        ("get", DOCS),
        ("HEAD", "/dbs/d/colls/c/docs/1"),
        ("POST", "/dbs/d/colls/c/docs/1"),
        ("POST", "/"),
        ("POST", "/dbs/d"),
        ("PATCH", "/dbs/d/colls/c"),
        ("POST", "/dbs/d/colls/c/triggers/t"),
        ("GET", "/dbs/d/colls/c/operations/partitionkeydelete"),
        ("POST", "/_headwater/changes/d/c"),
        ("GET", "/_headwater/partitions/d/c/split"),
        ("GET", "/_headwater/backups"),
        ("GET", "/_headwater/backups/b"),
        ("PUT", "/_headwater/backups/b/files/0"),
    ] {
        assert_eq!(classify(method, path, &[]), None, "{method} {path}");
    }
}
