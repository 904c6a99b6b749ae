//! Accepts requests that real SDKs signed, and refuses the same requests when modified.
//!
//! The signature vectors were computed by SDKs. The traces are requests of Python, JS and documentdb. Their
//! signatures were not recorded, so each request is signed here by a second implementation of the SDKs' rule,
//! from the path alone.

#![allow(clippy::unwrap_used)] // a failed test names the line

use headwater_protocol::auth::{
    Access, EMULATOR_KEY, Key, Keys, Signable, Token, parse_token, sign, verify_master,
    verify_request,
};
use headwater_protocol::route;
use serde_json::Value;

const DATE: &str = "Tue, 01 Nov 1994 08:12:31 GMT";

const TRACES: [&str; 3] = [
    include_str!("vectors/trace_python.json"),
    include_str!("vectors/trace_js.json"),
    include_str!("vectors/trace_documentdb.json"),
];

fn cases(json: &str) -> Vec<Value> {
    serde_json::from_str(json).unwrap()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer}: {value}"))
}

fn sig(header: &str) -> String {
    match parse_token(header).unwrap() {
        Token::Master { sig } => sig.into_owned(),
        other => panic!("{other:?}"),
    }
}

fn emulator() -> Keys {
    Keys::new(Key::from_base64(EMULATOR_KEY).unwrap())
}

#[test]
fn signatures_are_those_of_the_sdks() {
    let cases = cases(include_str!("vectors/auth_signature.json"));
    assert!(cases.len() >= 26);
    for case in cases {
        let by_name = case["input"]["nameBased"].as_bool().unwrap();
        let link = text(&case, "/input/resourceLink");
        let link = if by_name { link.to_owned() } else { link.to_lowercase() };
        let keys = Keys::new(Key::from_base64(text(&case, "/input/masterKey")).unwrap());
        let signable = Signable {
            verb: text(&case, "/input/verb"),
            resource_type: text(&case, "/input/resourceType"),
            links: &[&link],
            x_ms_date: Some(text(&case, "/input/x-ms-date")),
            date: None,
        };
        let header = text(&case, "/expected/authorizationHeader");
        assert_eq!(sign(&keys.primary, &signable), header, "{case}");
        for form in [header, text(&case, "/expected/token"), &header.replace("%3D", "%3d")] {
            assert_eq!(sig(form), text(&case, "/expected/signature"));
            assert_eq!(verify_master(&keys, &signable, &sig(form)), Ok(Access::ReadWrite));
        }
        let other = Signable { resource_type: "other", ..signable };
        let refused = verify_master(&keys, &other, &sig(header)).unwrap_err().to_string();
        let payload = text(&case, "/expected/stringToSign");
        let (verb, rest) = payload.split_once('\n').unwrap();
        let (_, rest) = rest.split_once('\n').unwrap();
        assert!(refused.contains(&format!("'{verb}\nother\n{rest}'")), "{refused}");
    }
}

/// Implements the SDKs' rule for the signed type and link, from the path alone.
fn signed_by_clients(path: &str) -> (String, String) {
    let decoded = |segment: &str| {
        percent_encoding::percent_decode_str(segment).decode_utf8().unwrap().into_owned()
    };
    let segments: Vec<String> =
        path.split('/').filter(|segment| !segment.is_empty()).map(decoded).collect();
    match segments.as_slice() {
        [] => (String::new(), String::new()),
        [offers, rid] if offers == "offers" => ("offers".to_owned(), rid.to_lowercase()),
        [owner @ .., operations, _] if operations == "operations" => {
            ("colls".to_owned(), owner.join("/"))
        }
        [parent @ .., kind] if parent.len() % 2 == 0 => (kind.clone(), parent.join("/")),
        all => (all[all.len() - 2].clone(), all.join("/")),
    }
}

#[test]
fn every_recorded_request_is_let_in() {
    let keys = emulator();
    let mut requests = 0;
    for operation in TRACES.iter().flat_map(|trace| cases(trace)) {
        for request in operation["expected"]["requests"].as_array().unwrap() {
            let (verb, path) = (text(request, "/method"), text(request, "/path"));
            let (resource_type, link) = signed_by_clients(path);
            let signable = Signable {
                verb,
                resource_type: &resource_type,
                links: &[&link],
                x_ms_date: Some(DATE),
                date: None,
            };
            let sig = sig(&sign(&keys.primary, &signable));
            let route = route::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let dates = (Some(DATE), None);
            let verified = verify_request(&keys, verb, &route, path, dates, &sig);
            assert_eq!(verified, Ok(Access::ReadWrite), "{verb} {path}");
            let verb = if verb == "GET" { "PUT" } else { "GET" };
            assert!(verify_request(&keys, verb, &route, path, dates, &sig).is_err(), "{path}");
            requests += 1;
        }
    }
    assert_eq!(requests, 257, "all recorded requests");
}

/// The Python SDK sends the type of the addressed resource in a header of its own.
#[test]
fn routes_are_what_python_takes_them_for() {
    let mut compared = 0;
    for operation in cases(TRACES[0]) {
        for request in operation["expected"]["requests"].as_array().unwrap() {
            let named = &request["headers"]["x-ms-thinclient-proxy-resource-type"];
            let Some(named) = named.as_str() else { continue };
            let path = text(request, "/path");
            let expected = match named {
                "databaseaccount" => "",
                // The route counts a delete by partition key as an operation of the container.
                "partitionkey" => "colls",
                other => other,
            };
            assert_eq!(route::parse(path).unwrap().resource_type(), expected, "{path}");
            compared += 1;
        }
    }
    assert!(compared > 50, "{compared}");
}

#[test]
fn deletes_by_partition_key_are_signed_in_two_ways() {
    let keys = emulator();
    let path = "/dbs/a/colls/b/operations/partitionkeydelete";
    let route = route::parse(path).unwrap();
    for (resource_type, expected) in [("colls", true), ("partitionkey", true), ("docs", false)] {
        let signable = Signable {
            verb: "POST",
            resource_type,
            links: &["dbs/a/colls/b"],
            x_ms_date: Some(DATE),
            date: None,
        };
        let sig = sig(&sign(&keys.primary, &signable));
        let verified = verify_request(&keys, "POST", &route, path, (Some(DATE), None), &sig);
        assert_eq!(verified.is_ok(), expected, "{resource_type}");
    }
}

/// .NET and Java read ranges by resource id and sign only that id, in lower case.
#[test]
fn resource_ids_are_let_in() {
    let keys = emulator();
    for (path, resource_type, link) in [
        ("/dbs/AAAAAQ==/colls/AAAAAYAAAAE=/pkranges", "pkranges", "aaaaayaaaae="),
        ("/dbs/AAAAAQ%3D%3D/colls/AAAAAYAAAAE%3D/pkranges", "pkranges", "aaaaayaaaae="),
        ("/offers/QH8O", "offers", "qh8o"),
    ] {
        let signable = Signable {
            verb: "GET",
            resource_type,
            links: &[link],
            x_ms_date: Some(DATE),
            date: None,
        };
        let sig = sig(&sign(&keys.primary, &signable));
        let route = route::parse(path).unwrap();
        let verified = verify_request(&keys, "GET", &route, path, (Some(DATE), None), &sig);
        assert_eq!(verified, Ok(Access::ReadWrite), "{path}");
    }
}
