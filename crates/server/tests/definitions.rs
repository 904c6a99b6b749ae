//! Definitions other than items: client encryption keys, and the policies and statistics of containers.

#![allow(clippy::unwrap_used)] // a failed test names the line

mod support;

use serde_json::{Value, json};
use support::World;

const KEYS: &str = "/dbs/db/clientencryptionkeys";

fn key(id: &str, wrapped: &str) -> Value {
    json!({
        "id": id,
        "encryptionAlgorithm": "AEAD_AES_256_CBC_HMAC_SHA256",
        "wrappedDataEncryptionKey": wrapped,
        "keyWrapMetadata":
            {"name": "m", "type": "TEST", "value": "https://vault/k/1", "algorithm": "RSA-OAEP"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn client_encryption_keys_are_kept_as_they_were_sent() {
    let world = World::new().await.with_container().await;
    let created = world.send("POST", KEYS, &[], &key("k1", "QUJD").to_string()).await;
    assert_eq!(created.status, 201, "{created:?}");
    let document = created.json();
    let rid = document["_rid"].as_str().unwrap();
    let own_link = document["_self"].as_str().unwrap();
    assert!(own_link.ends_with(&format!("/clientencryptionkeys/{rid}/")), "{own_link}");
    for (name, value) in key("k1", "QUJD").as_object().unwrap() {
        assert_eq!(&document[name], value, "{name}");
    }
    let again = world.send("POST", KEYS, &[], &key("k1", "QUJD").to_string()).await;
    assert_eq!(again.status, 409);

    let path = format!("{KEYS}/k1");
    let read = world.send("GET", &path, &[], "").await;
    assert_eq!(read.json(), document);
    let etag = read.header("etag").unwrap();
    let same = world.send("GET", &path, &[("If-None-Match", etag)], "").await;
    assert_eq!(same.status, 304);

    let rewrapped = key("k1", "REVG").to_string();
    let stale = world.send("PUT", &path, &[("If-Match", "\"x\"")], &rewrapped).await;
    assert_eq!(stale.status, 412);
    let replaced = world.send("PUT", &path, &[("If-Match", etag)], &rewrapped).await;
    assert_eq!(
        (replaced.status, &replaced.json()["wrappedDataEncryptionKey"]),
        (200, &json!("REVG"))
    );

    world.send("POST", KEYS, &[], &key("k2", "QUJD").to_string()).await;
    let ids = |list: Value| -> Vec<Value> {
        let keys = list["ClientEncryptionKeys"].as_array().unwrap();
        keys.iter().map(|key| key["id"].clone()).collect()
    };
    assert_eq!(ids(world.send("GET", KEYS, &[], "").await.json()), ["k1", "k2"]);
    let query = json!({"query": "SELECT * FROM c WHERE c.id = @id",
        "parameters": [{"name": "@id", "value": "k2"}]});
    let head = [("x-ms-documentdb-isquery", "True"), ("Content-Type", "application/query+json")];
    let found = world.send("POST", KEYS, &head, &query.to_string()).await;
    assert_eq!(ids(found.json()), ["k2"]);

    for (verb, path, body, status) in [
        ("GET", format!("{KEYS}/k3"), String::new(), 404),
        ("PUT", format!("{KEYS}/k3"), key("k3", "QUJD").to_string(), 404),
        ("DELETE", format!("{KEYS}/k1"), String::new(), 405),
        ("POST", KEYS.to_owned(), json!({"id": "k4"}).to_string(), 400),
        ("POST", KEYS.to_owned(), key("", "QUJD").to_string(), 400),
        ("POST", "/dbs/none/clientencryptionkeys".to_owned(), key("k", "Q").to_string(), 404),
    ] {
        let refused = world.send(verb, &path, &[], &body).await;
        assert_eq!(refused.status, status, "{verb} {path}: {refused:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_says_what_is_in_its_ranges_when_it_is_asked() {
    let world = World::new().await.with_container().await;
    for id in 0..20 {
        let pk = if id < 15 { "big" } else { "small" };
        let body = json!({"id": id.to_string(), "pk": pk, "x": "x".repeat(2000)}).to_string();
        let head = [("x-ms-documentdb-partitionkey", format!("[\"{pk}\"]"))];
        let head = [(head[0].0, head[0].1.as_str())];
        assert_eq!(world.send("POST", "/dbs/db/colls/c/docs", &head, &body).await.status, 201);
    }
    let container = "/dbs/db/colls/c";
    let plain = world.send("GET", container, &[], "").await;
    assert!(plain.json().get("statistics").is_none());
    assert!(plain.header("x-ms-resource-usage").is_none());

    let head = [
        ("x-ms-documentdb-populatepartitionstatistics", "True"),
        ("x-ms-documentdb-populatequotainfo", "true"),
    ];
    let told = world.send("GET", container, &head, "").await;
    let body = told.json();
    let range = &body["statistics"][0];
    assert_eq!(body["statistics"].as_array().unwrap().len(), 1);
    assert_eq!((&range["id"], &range["documentCount"]), (&json!("0"), &json!(20)));
    assert_eq!(range["sampledDistinctPartitionKeyCount"], 2);
    assert!(range["sizeInKB"].as_u64().unwrap() >= 38, "{range}");
    let largest = &range["partitionKeys"][0];
    assert_eq!(largest["partitionKey"], json!(["big"]));
    assert!(largest["sizeInKB"].as_u64().unwrap() >= 28, "{largest}");
    let usage = told.header("x-ms-resource-usage").unwrap();
    assert!(usage.contains("documentsCount=20;"), "{usage}");
    assert!(told.header("x-ms-resource-quota").unwrap().contains("collectionSize="));

    // A client that sends back the container it read does not change the definition.
    let replaced = world.send("PUT", container, &[], &String::from_utf8_lossy(&told.body)).await;
    assert_eq!(replaced.status, 200, "{replaced:?}");
    assert!(replaced.json().get("statistics").is_none());
    world.stop().await;
}

/// Returns the ids of a list, read in pages of two.
async fn listed(world: &World, path: &str, key: &str) -> Vec<String> {
    let (mut ids, mut continuation) = (Vec::new(), None::<String>);
    for _ in 0..100 {
        let mut head = vec![("x-ms-max-item-count", "2")];
        head.extend(continuation.as_deref().map(|text| ("x-ms-continuation", text)));
        let page = world.send("GET", path, &head, "").await;
        assert_eq!(page.status, 200, "{page:?}");
        let page_ids = page.json()[key].as_array().unwrap().clone();
        ids.extend(page_ids.iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        match page.header("x-ms-continuation") {
            Some(next) => continuation = Some(next.to_owned()),
            None => return ids,
        }
    }
    panic!("the list has no end");
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_and_containers_are_listed_in_the_order_of_their_creation() {
    let world = World::new().await;
    let names = ["m", "z", "a", "Z", "b", "0"];
    for name in names {
        let database = world.send("POST", "/dbs", &[], &json!({"id": name}).to_string()).await;
        assert_eq!(database.status, 201, "{database:?}");
        let definition =
            json!({"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
        let container = world.send("POST", "/dbs/m/colls", &[], &definition.to_string()).await;
        assert_eq!(container.status, 201, "{container:?}");
    }
    assert_eq!(listed(&world, "/dbs", "Databases").await, names);
    assert_eq!(listed(&world, "/dbs/m/colls", "DocumentCollections").await, names);

    // A recreated database or container is the newest one.
    for (path, body) in [
        ("/dbs/", json!({"id": "z"})),
        ("/dbs/m/colls/", json!({"id": "z", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}})),
    ] {
        assert_eq!(world.send("DELETE", &format!("{path}z"), &[], "").await.status, 204);
        let collection = path.trim_end_matches('/');
        assert_eq!(world.send("POST", collection, &[], &body.to_string()).await.status, 201);
    }
    let names = ["m", "a", "Z", "b", "0", "z"];
    assert_eq!(listed(&world, "/dbs", "Databases").await, names);
    assert_eq!(listed(&world, "/dbs/m/colls", "DocumentCollections").await, names);
    world.stop().await;
}

/// The Java SDK's test suite compares these bounds with those of the service.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_of_a_new_container_meet_where_the_service_s_do() {
    let world = World::new().await.with_container().await;
    let (ones, two) = ("5".repeat(31), "A".repeat(31));
    let ends = |digits: &str| format!("{}{}", digits, "F".repeat(32 - digits.len()));
    let last = |first: char, end: char| format!("{first}{}{end}", "F".repeat(30));
    let v2 = json!({"paths": ["/pk"], "kind": "Hash", "version": 2});
    let levels = json!({"paths": ["/a", "/b"], "kind": "MultiHash", "version": 2});
    let v1 = json!({"paths": ["/pk"], "kind": "Hash", "version": 1});
    for (number, (key, throughput, expected)) in [
        (&levels, 12_000, vec![ends("1")]),
        (&v2, 12_000, vec![ends("1")]),
        (&v2, 18_000, vec![format!("1{ones}"), format!("2{two}")]),
        (&levels, 24_000, vec![ends("0"), last('1', 'E'), last('2', 'D')]),
        (&v1, 12_000, vec!["05C1DFFFFFFFFC".to_owned()]),
        (&v1, 18_000, vec!["05C1D5AB55AB54".to_owned(), "05C1E5AB55AB54".to_owned()]),
    ]
    .into_iter()
    .enumerate()
    {
        let definition = json!({"id": format!("r{number}"), "partitionKey": key}).to_string();
        let throughput = throughput.to_string();
        let head = [("x-ms-offer-throughput", throughput.as_str())];
        let created = world.send("POST", "/dbs/db/colls", &head, &definition).await;
        assert_eq!(created.status, 201, "{created:?}");
        let path = format!("/dbs/db/colls/r{number}/pkranges");
        let ranges = world.send("GET", &path, &[], "").await.json();
        let ranges = ranges["PartitionKeyRanges"].as_array().unwrap().clone();
        let bounds = |name: &str| -> Vec<String> {
            ranges.iter().map(|range| range[name].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(bounds("minInclusive")[1..], expected, "{definition}");
        assert_eq!(bounds("maxExclusive")[..expected.len()], expected, "{definition}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spatial_indexes_that_do_not_fit_the_geometry_type_are_refused() {
    let world = World::new().await.with_container().await;
    let definition = |kind: &str, bounds: Option<[i32; 4]>| {
        let mut index = json!({"path": "/at/*", "types": ["Point", "Polygon"]});
        if let Some([xmin, ymin, xmax, ymax]) = bounds {
            index["boundingBox"] = json!({"xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax});
        }
        json!({
            "id": "s", "partitionKey": {"paths": ["/pk"], "kind": "Hash"},
            "geospatialConfig": {"type": kind}, "indexingPolicy": {"spatialIndexes": [index]},
        })
        .to_string()
    };
    let sides = Some([-5, -5, 5, 5]);
    for (body, expected) in [
        (definition("Geometry", None), "'/at/*' has no boundingBox"),
        (definition("Geometry", Some([5, -5, -5, 5])), "'xmax' not greater than 'xmin'"),
        (definition("Geography", sides), "Geography must not have"),
        (definition("Globe", None), "Geography"),
    ] {
        let refused = world.send("POST", "/dbs/db/colls", &[], &body).await;
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert_eq!(refused.status, 400, "{body}: {message}");
        assert!(message.contains(expected), "{message}");
    }
    let good = definition("Geometry", sides);
    assert_eq!(world.send("POST", "/dbs/db/colls", &[], &good).await.status, 201);
    assert_eq!(world.send("PUT", "/dbs/db/colls/s", &[], &good).await.status, 200);
    // The type and its indexes can only change together.
    let bare = definition("Geometry", None);
    assert_eq!(world.send("PUT", "/dbs/db/colls/s", &[], &bare).await.status, 400);
    let globe = definition("Geography", None);
    assert_eq!(world.send("PUT", "/dbs/db/colls/s", &[], &globe).await.status, 200);
    world.stop().await;
}

/// Clients search for the reason in the format of the service's partitions.
#[tokio::test(flavor = "multi_thread")]
async fn policies_of_vectors_and_texts_that_do_not_fit_are_refused() {
    let world = World::new().await.with_container().await;
    let definition = |dimensions: u32, kind: &str, language: &str| {
        json!({
            "id": "v", "partitionKey": {"paths": ["/pk"], "kind": "Hash"},
            "vectorEmbeddingPolicy": {"vectorEmbeddings": [{"path": "/v", "dataType": "float32",
                "dimensions": dimensions, "distanceFunction": "cosine"}]},
            "fullTextPolicy": {"defaultLanguage": language, "fullTextPaths": []},
            "indexingPolicy": {"vectorIndexes": [{"path": "/v", "type": kind}]},
        })
        .to_string()
    };
    for (body, expected) in [
        (definition(9000, "flat", "en-US"), "Dimensions:9000 which is more than the maximum"),
        (definition(10, "round", "en-US"), "Index Type::round is invalid"),
        (
            definition(10, "flat", "x"),
            r#"unsupported language x. Supported languages are: \"en-US"#,
        ),
    ] {
        let refused = world.send("POST", "/dbs/db/colls", &[], &body).await;
        let message = refused.json()["message"].to_string();
        let message: String = serde_json::from_str(&message).unwrap();
        assert_eq!(refused.status, 400, "{message}");
        assert!(message.starts_with(r#"Message: {"Errors":["The "#), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let good = definition(10, "flat", "en-US");
    assert_eq!(world.send("POST", "/dbs/db/colls", &[], &good).await.status, 201);
    assert_eq!(world.send("PUT", "/dbs/db/colls/v", &[], &good).await.status, 200);
    let other = definition(11, "flat", "en-US");
    assert_eq!(world.send("PUT", "/dbs/db/colls/v", &[], &other).await.status, 400);
    world.stop().await;
}

/// A page of scripts ends at its limit in bytes; the large ones here need several pages.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_large_scripts_comes_in_pages_of_four_mib() {
    let world = World::new().await.with_container().await;
    let path = "/dbs/db/colls/c/sprocs";
    let source = format!("function f() {{}} // {}", "x".repeat(1 << 20));
    for number in 0..7 {
        let script = json!({ "id": number.to_string(), "body": source }).to_string();
        assert_eq!(world.send("POST", path, &[], &script).await.status, 201);
    }
    let (mut counts, mut continuation) = (Vec::new(), None::<String>);
    loop {
        let head: Vec<_> =
            continuation.as_deref().map(|text| ("x-ms-continuation", text)).into_iter().collect();
        let page = world.send("GET", path, &head, "").await;
        assert_eq!(page.status, 200);
        assert!(page.body.len() < (4 << 20) + 1_000, "{} bytes", page.body.len());
        counts.push(page.json()["StoredProcedures"].as_array().unwrap().len());
        match page.header("x-ms-continuation") {
            Some(next) => continuation = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(counts, [3, 3, 1]);
    let query = [
        ("x-ms-documentdb-isquery", "True"),
        ("content-type", "application/query+json"),
        ("x-ms-max-item-count", "100"),
    ];
    let found = world.send("POST", path, &query, r#"{"query":"SELECT VALUE c.id FROM c"}"#).await;
    assert_eq!(found.json()["StoredProcedures"].as_array().unwrap().len(), 7);
    world.stop().await;
}
