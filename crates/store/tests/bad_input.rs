//! Invalid input: each case returns a typed error with a remedy, does not panic, and changes nothing.
//!
//! A single function calls the store and compares its state before and after; the rest are cases.

#![allow(clippy::unwrap_used)] // a failed test names the line

use bytes::Bytes;
use headwater_model::{BadContinuation, BadPageLimit, IdError, PartitionKeyError};
use headwater_store::{
    Account, BatchError, BodyError, CatalogError, Container, ContainerDefinition, Continuation,
    Database, DefinitionError, Epk, FeedError, FeedRequest, FeedStart, ItemReadError, ItemWrite,
    KeyRange, Lsn, Options, PageLimit, PartitionId, PartitionKey, PartitionKeyDefinition, Patch,
    PatchError, Remedy, ScanPosition, ScanScope, Timestamp, TopologyError, WriteError,
};
use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A store with a few items.
struct Bench {
    account: Account,
    database: Database,
    /// One partition, key `/pk`, expiry allowed, unique `/n`.
    items: Container,
    /// Two partitions, key `/t` and `/u`.
    levels: Container,
}

impl Bench {
    async fn new() -> Bench {
        let mut options = Options::default();
        options.segment_bytes = 4 << 10;
        options.history = Duration::ZERO;
        options.maintenance_interval = Duration::ZERO;
        let account = Account::ephemeral_with(options).await.unwrap();
        let database = account.create_database("db").await.unwrap();
        let plain = ContainerDefinition::new("items", "/pk").unwrap();
        let definition = plain.with_default_ttl(-1).with_unique_key(&["/n"]);
        let items = database.create_container_with(definition, 1).await.unwrap();
        let key = PartitionKeyDefinition::multi_hash(&["/t", "/u"]).unwrap();
        let definition = ContainerDefinition::with_partition_key("levels", &key).unwrap();
        let levels = database.create_container_with(definition, 2).await.unwrap();
        items.create(r#"{"id":"1","pk":"a","n":1,"text":"one","list":[1]}"#).await.unwrap();
        items.create(r#"{"id":"2","pk":"a","n":2}"#).await.unwrap();
        levels.create(r#"{"id":"1","t":"x","u":"y"}"#).await.unwrap();
        Bench { account, database, items, levels }
    }

    /// The state that a rejected request must not change.
    async fn state(&self) -> String {
        let mut state = self.account.state_hash().unwrap();
        for database in self.account.databases() {
            state += &format!("\n{} {:?}", database.id(), database.etag());
            for container in database.containers() {
                state += &format!("\n{:?} {:?}", container.etag(), container.ranges());
            }
        }
        state
    }

    /// Asserts that an attempt fails with the expected error, that its text contains `says`, and that nothing changed.
    async fn refused<T: Debug, E: Error>(
        &self,
        name: &str,
        attempt: impl Future<Output = Result<T, E>>,
        is_expected: impl Fn(&E) -> bool,
        says: &str,
    ) {
        let before = self.state().await;
        let error = match attempt.await {
            Err(error) => error,
            Ok(accepted) => panic!("{name}: accepted: {accepted:?}"),
        };
        assert!(is_expected(&error), "{name}: another error: {error:?}");
        check_text(name, &error, says);
        assert_eq!(self.state().await, before, "{name}: something changed");
    }

    async fn body<'a>(
        &self,
        name: &str,
        body: impl Into<Bytes>,
        is_expected: impl Fn(&WriteError) -> bool + 'a,
        says: &str,
    ) {
        let body = body.into();
        let create = self.items.create(body.clone());
        self.refused(&format!("create {name}"), create, &is_expected, says).await;
        let upsert = self.items.upsert(body.clone());
        self.refused(&format!("upsert {name}"), upsert, &is_expected, says).await;
        let replace = self.items.replace("1", body.clone());
        self.refused(&format!("replace {name}"), replace, &is_expected, says).await;
        let batch = self.items.batch("a", vec![ItemWrite::upsert(body)]);
        let in_batch = |error: &BatchError| is_expected(&error.error);
        self.refused(&format!("batch {name}"), batch, in_batch, "nothing was applied").await;
    }
}

/// Asserts that an error with its sources is a single short line and contains `says`.
fn check_text(name: &str, error: &dyn Error, says: &str) {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(deeper) = source {
        text = format!("{text}: {deeper}");
        source = deeper.source();
    }
    assert!(text.contains(says), "{name}: says {text:?}, not {says:?}");
    assert!(!text.contains('\n') && text.len() < 400, "{name}: {text}");
}

fn nested(levels: usize) -> String {
    let inside = levels - 1;
    format!(r#"{{"id":"1","pk":"a","x":{}{}}}"#, "[".repeat(inside), "]".repeat(inside))
}

/// A body of exactly this many bytes.
fn sized(bytes: usize) -> String {
    let frame = r#"{"id":"big","pk":"a","n":"big","p":""}"#.len();
    let padding = "p".repeat(bytes - frame);
    format!(r#"{{"id":"big","pk":"a","n":"big","p":"{padding}"}}"#)
}

#[tokio::test]
async fn bodies_that_are_not_items() {
    let bench = Bench::new().await;
    let is = |check: fn(&BodyError) -> bool| move |error: &WriteError| matches!(error, WriteError::Body(body) if check(body));
    let malformed = is(|error| matches!(error, BodyError::Malformed { .. }));
    let truncated = is(|error| matches!(error, BodyError::Truncated { .. }));
    let no_object = is(|error| matches!(error, BodyError::NotAnObject { .. }));
    let duplicate = is(|error| matches!(error, BodyError::DuplicateKey { .. }));
    let not_finite = is(|error| matches!(error, BodyError::NotFinite { .. }));
    let not_utf8 = is(|error| matches!(error, BodyError::NotUtf8 { .. }));
    let bad_id = is(|error| matches!(error, BodyError::IdNotAString { .. }));
    for (name, body) in [
        ("two values", r#"{"id":"1","pk":"a"} {}"#),
        ("a comment", r#"{"id":"1","pk":"a"/*no*/}"#),
        ("single quotes", r#"{'id':'1'}"#),
        ("a trailing comma", r#"{"id":"1","pk":"a",}"#),
        ("a bare word", r#"{"id":"1","pk":"a","x":nil}"#),
        ("not a number", r#"{"id":"1","pk":"a","x":NaN}"#),
        ("infinity", r#"{"id":"1","pk":"a","x":-Infinity}"#),
        ("a plus sign", r#"{"id":"1","pk":"a","x":+1}"#),
        ("a leading zero", r#"{"id":"1","pk":"a","x":01}"#),
        ("a bad escape", r#"{"id":"1","pk":"a","x":"\q"}"#),
    ] {
        bench.body(name, body, malformed, "expected").await;
    }
    let newline = "{\"id\":\"1\",\"pk\":\"a\",\"x\":\"\n\"}";
    bench.body("a raw newline", newline, malformed, "must be escaped").await;
    for (name, body) in [("nothing", ""), ("half an item", r#"{"id":"1","pk":"#)] {
        bench.body(name, body, truncated, "send the whole text").await;
    }
    for (name, body) in [("a list", "[]"), ("null", "null"), ("a text", "\"a\""), ("one", "1")] {
        bench.body(name, body, no_object, "must be a json object").await;
    }
    for (name, body) in [
        ("a property twice", r#"{"id":"1","pk":"a","x":1,"x":1}"#),
        ("twice inside", r#"{"id":"1","pk":"a","x":{"y":1,"y":2}}"#),
        ("twice by an escape", r#"{"id":"1","pk":"a","xy":1,"\u0078y":2}"#),
        ("two ids", r#"{"id":"1","pk":"a","id":"1"}"#),
        ("two keys", r#"{"id":"1","pk":"a","pk":"b"}"#),
    ] {
        bench.body(name, body, duplicate, "keep one of them").await;
    }
    for number in ["1e999", "-1e999", "123456789e400"] {
        let body = format!(r#"{{"id":"1","pk":"a","x":{number}}}"#);
        bench.body(number, body, not_finite, "send it as a string").await;
    }
    for bytes in [&b"\xff"[..], b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82"] {
        let mut body = br#"{"id":"1","pk":"a","x":""#.to_vec();
        body.extend_from_slice(bytes);
        body.extend_from_slice(br#""}"#);
        bench.body("bytes that are not text", body, not_utf8, "encode the body as utf-8").await;
    }
    let lone = is(|error| matches!(error, BodyError::LoneSurrogate { .. }));
    bench.body("half a pair", r#"{"id":"1","pk":"a","x":"\ud800"}"#, lone, "both halves").await;
    for id in ["1", "null", "true", "{}", "[\"1\"]"] {
        let body = format!(r#"{{"id":{id},"pk":"a"}}"#);
        bench.body(&format!("id {id}"), body, bad_id, "must be a string").await;
    }
    let deep = is(|error| matches!(error, BodyError::TooDeep { limit: 128, .. }));
    bench.body("129 levels", nested(129), deep, "flatten it").await;
    bench.body("many levels", nested(100_000), deep, "flatten it").await;
    let large = is(|error| matches!(error, BodyError::TooLarge { limit: 2_097_152, .. }));
    bench.body("2 MB and a byte", sized(2_097_153), large, "split it").await;
    bench.body("9 MB", sized(9_000_000), large, "split it").await;
}

#[tokio::test]
async fn ids_that_are_not_allowed() {
    let bench = Bench::new().await;
    let long = "x".repeat(1024);
    for (id, says) in [
        ("", "at least one character"),
        (long.as_str(), "Use at most 1023"),
        ("a\u{0}b", "remove it"),
    ] {
        let is_id = |error: &WriteError| matches!(error, WriteError::Id(_));
        let items = &bench.items;
        let body = format!(r#"{{"id":{},"pk":"a"}}"#, serde_json::to_string(id).unwrap());
        bench.refused("create", items.create(body.clone()), is_id, says).await;
        bench.refused("upsert", items.upsert(body.clone()), is_id, says).await;
        bench.refused("replace", items.replace(id, body), is_id, says).await;
        bench.refused("delete", items.delete("a", id), is_id, says).await;
        let patch = items.patch("a", id, Patch::new());
        bench.refused("patch", patch, is_id, says).await;
        let batch = items.batch("a", vec![ItemWrite::read("1"), ItemWrite::read(id)]);
        let in_batch =
            |error: &BatchError| error.index == 1 && matches!(error.error, WriteError::Id(_));
        bench.refused("batch", batch, in_batch, says).await;
        let is_id = |error: &ItemReadError| {
            matches!(error, ItemReadError::Id(_)) && error.remedy() == Remedy::FixRequest
        };
        bench.refused("read", items.read("a", id), is_id, says).await;
    }
    let long = "x".repeat(256);
    for (id, says) in [
        ("", "at least one character"),
        (long.as_str(), "Use at most 255"),
        ("a/b", "remove every"),
        ("a\u{7}b", "remove it"),
        ("a ", "remove it"),
    ] {
        let is_id = |error: &CatalogError| matches!(error, CatalogError::Id(_));
        let (account, database) = (&bench.account, &bench.database);
        bench.refused("create a database", account.create_database(id), is_id, says).await;
        bench.refused("find a database", account.database(id), is_id, says).await;
        bench.refused("drop a database", account.drop_database(id), is_id, says).await;
        bench.refused("find a container", database.container(id), is_id, says).await;
        bench.refused("drop a container", database.drop_container(id), is_id, says).await;
        let define = async { ContainerDefinition::new(id, "/pk") };
        let is_id = |error: &DefinitionError| matches!(error, DefinitionError::Id(_));
        bench.refused("define a container", define, is_id, says).await;
    }
}

#[tokio::test]
async fn partition_keys_that_do_not_fit() {
    let bench = Bench::new().await;
    let (items, levels) = (&bench.items, &bench.levels);
    let body = r#"{"id":"1","pk":"a"}"#;
    let mismatch = |error: &WriteError| matches!(error, WriteError::PartitionKeyMismatch { .. });
    for key in [PartitionKey::from("b"), 1.into(), ().into(), ["a", "b"].into()] {
        let write = ItemWrite::upsert(body).partition_key(key.clone());
        bench.refused("another key", items.write(write), mismatch, "the key the item has").await;
        let write = ItemWrite::replace("1", body).partition_key(key);
        bench.refused("another key", items.write(write), mismatch, "the key the item has").await;
    }
    let count = |error: &WriteError| {
        matches!(error, WriteError::PartitionKey(PartitionKeyError::ComponentCount { .. }))
    };
    for key in [PartitionKey::empty(), ["a", "b"].into()] {
        let delete = items.delete(key.clone(), "1");
        bench.refused("delete", delete, count, "one for each path").await;
        let patch = items.patch(key.clone(), "1", Patch::new());
        bench.refused("patch", patch, count, "one for each path").await;
        let all = items.delete_partition_key(key.clone());
        bench.refused("delete all", all, count, "one for each path").await;
        let read = |error: &ItemReadError| matches!(error, ItemReadError::PartitionKey(_));
        bench.refused("read", items.read(key, "1"), read, "one for each path").await;
    }
    bench.refused("a prefix", levels.delete("x", "1"), count, "needs 2").await;
    bench.refused("a prefix", levels.delete_partition_key("x"), count, "needs 2").await;

    let long = "k".repeat(2049);
    let too_long = |error: &WriteError| {
        matches!(error, WriteError::PartitionKey(PartitionKeyError::ValueTooLong { .. }))
    };
    let write = items.create(format!(r#"{{"id":"1","pk":"{long}"}}"#));
    bench.refused("a long key", write, too_long, "use at most 2048").await;
    let delete = items.delete(long.as_str(), "1");
    bench.refused("a long key", delete, too_long, "use at most 2048").await;
    let not_finite = |error: &WriteError| {
        matches!(error, WriteError::PartitionKey(PartitionKeyError::NotFinite { .. }))
    };
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let delete = items.delete(number, "1");
        bench.refused("no number", delete, not_finite, "one JSON can express").await;
    }
}

#[tokio::test]
async fn times_to_live_that_are_not_allowed() {
    let bench = Bench::new().await;
    for ttl in ["0", "null", "-2", "\"5\"", "1.5", "2147483648", "-2147483649", "[1]", "true"] {
        let body = format!(r#"{{"id":"1","pk":"a","ttl":{ttl}}}"#);
        let is_ttl = |error: &WriteError| {
            matches!(error, WriteError::Ttl) && error.remedy() == Remedy::FixRequest
        };
        bench.body(&format!("ttl {ttl}"), body, is_ttl, "-1, or 1 to 2147483647").await;
        let patch = Patch::new().set("/ttl", ttl).unwrap();
        let patch = bench.items.patch("a", "1", patch);
        bench.refused("a patched ttl", patch, is_ttl, "-1, or 1 to 2147483647").await;
    }
}

#[tokio::test]
async fn writes_that_meet_something_else() {
    let bench = Bench::new().await;
    let items = &bench.items;
    let body = r#"{"id":"1","pk":"a"}"#;
    let exists = |error: &WriteError| matches!(error, WriteError::AlreadyExists { .. });
    bench.refused("create", items.create(body), exists, "replace or upsert").await;
    let missing = |error: &WriteError| {
        matches!(error, WriteError::NotFound { .. }) && error.remedy() == Remedy::RereadItem
    };
    let replace = items.replace("9", r#"{"id":"9","pk":"a"}"#);
    bench.refused("replace", replace, missing, "or create it").await;
    bench.refused("delete", items.delete("a", "9"), missing, "or create it").await;
    bench.refused("delete elsewhere", items.delete("b", "1"), missing, "partition key").await;
    let patch = items.patch("a", "9", Patch::new().set("/x", "1").unwrap());
    bench.refused("patch", patch, missing, "or create it").await;
    let unique =
        |error: &WriteError| matches!(error, WriteError::UniqueKey { other, .. } if other == "2");
    let taken = items.upsert(r#"{"id":"1","pk":"a","n":2.0}"#);
    bench.refused("a value that is taken", taken, unique, "change its values").await;
    let changed = |error: &WriteError| {
        matches!(error, WriteError::EtagMismatch { .. }) && error.remedy() == Remedy::RereadItem
    };
    for etag in ["", "\"\"", "\"0\"", "nonsense", "00000003-0000-0000-0000-6f7700010000"] {
        for write in [
            ItemWrite::replace("1", body).if_match(etag),
            ItemWrite::upsert(body).if_match(etag),
            ItemWrite::delete("a", "1").if_match(etag),
            ItemWrite::patch("a", "1", Patch::new().set("/x", "1").unwrap()).if_match(etag),
        ] {
            bench.refused("an old etag", items.write(write), changed, "read it again").await;
        }
    }
    let only_new = ItemWrite::upsert(body).if_none_match("*");
    bench.refused("only if absent", items.write(only_new), changed, "read it again").await;
}

#[tokio::test]
async fn patches_that_cannot_be_applied() {
    let bench = Bench::new().await;
    let many = (0..11).map(|_| r#"{"op":"set","path":"/x","value":1}"#).collect::<Vec<_>>();
    let many = format!("[{}]", many.join(","));
    for (text, says) in [
        ("", "stops short"),
        ("{}", "malformed"),
        (r#"{"operations":3}"#, "malformed"),
        (r#"[{"op":"jump","path":"/x"}]"#, "malformed"),
        (r#"[{"op":"set","path":"x","value":1}]"#, ""),
        (r#"[{"op":"set","path":"/x~2","value":1}]"#, ""),
        (r#"[{"op":"set","path":"/x"}]"#, "malformed"),
        (many.as_str(), "send several patches"),
    ] {
        let parse = async { Patch::parse(text.as_bytes()) };
        bench.refused(text, parse, |_: &PatchError| true, says).await;
    }
    let patch = Patch::new;
    for (patch, says) in [
        (patch().set("/id", "\"2\""), "cannot be patched"),
        (patch().remove("/id"), "cannot be patched"),
        (patch().set("/pk", "\"b\""), "cannot be patched"),
        (patch().remove("/pk"), "cannot be patched"),
        (patch().set("/_etag", "1"), "cannot be patched"),
        (patch().set("/_ts", "1"), "cannot be patched"),
        (patch().move_value("/pk", "/other"), "cannot be patched"),
        (patch().move_value("/text", "/id"), "cannot be patched"),
        (patch().replace("/none", "1"), "create it with add or set"),
        (patch().remove("/none"), "create it with add or set"),
        (patch().set("/none/deeper", "1"), "parents first"),
        (patch().set("/list/7", "1"), "out of range"),
        (patch().add("/list/01", "1"), "use an index"),
        (patch().increment("/text", 1), "only a number"),
        (patch().move_value("/list", "/list/0"), "move to another place"),
        (patch().set("/fine", "1").unwrap().remove("/none"), "operations[1]"),
        (patch().set("/x", format!("\"{}\"", "p".repeat(2_097_152))), "split it"),
        (patch().set("/x", nested(128)), "flatten it"),
    ] {
        let (patch, name) = match patch {
            Ok(patch) => (patch, says),
            Err(error) => {
                check_text("a patch", &error, says);
                continue;
            }
        };
        let refused = |error: &WriteError| {
            let expected = matches!(error, WriteError::Patch(_) | WriteError::Body(_));
            expected && error.remedy() == Remedy::FixRequest
        };
        bench.refused(name, bench.items.patch("a", "1", patch), refused, says).await;
    }
    let patch = || ItemWrite::patch("a", "1", Patch::new().set("/x", "1").unwrap());
    let unmet = bench.items.write(patch().condition(Arc::new(|_| Ok(false))));
    let is_unmet = |error: &WriteError| matches!(error, WriteError::ConditionFalse { .. });
    bench.refused("a false condition", unmet, is_unmet, "read it again").await;
    let broken = bench.items.write(patch().condition(Arc::new(|_| Err("no such field".into()))));
    let is_broken = |error: &WriteError| matches!(error, WriteError::Condition(_));
    bench.refused("a broken condition", broken, is_broken, "no such field").await;
}

#[tokio::test]
async fn batches_beyond_their_limits() {
    let bench = Bench::new().await;
    let items = &bench.items;
    let is = |index: usize, check: fn(&WriteError) -> bool| {
        move |error: &BatchError| error.index == index && check(&error.error)
    };
    let empty = is(0, |error| matches!(error, WriteError::EmptyBatch));
    bench.refused("nothing", items.batch("a", vec![]), empty, "at least one").await;
    let many = (0..101).map(|_| ItemWrite::read("1")).collect();
    let too_many =
        is(0, |error| matches!(error, WriteError::TooManyOperations { count: 101, limit: 100 }));
    bench.refused("101 reads", items.batch("a", many), too_many, "at most 100").await;
    let write = |number: usize| {
        let padding = "p".repeat(1_048_576);
        ItemWrite::create(format!(
            r#"{{"id":"b{number}","pk":"a","n":"b{number}","p":"{padding}"}}"#
        ))
    };
    let large = is(1, |error| matches!(error, WriteError::BatchTooLarge { .. }));
    bench.refused("2 MB", items.batch("a", vec![write(0), write(1)]), large, "split it").await;
    let foreign = is(1, |error| matches!(error, WriteError::PartitionKeyMismatch { .. }));
    let fine = || ItemWrite::upsert(r#"{"id":"7","pk":"a","n":7}"#);
    let other = ItemWrite::upsert(r#"{"id":"8","pk":"b"}"#);
    bench.refused("two keys", items.batch("a", vec![fine(), other]), foreign, "send the key").await;
    let other = ItemWrite::delete("b", "1");
    bench.refused("two keys", items.batch("a", vec![fine(), other]), foreign, "send the key").await;
    for (last, check) in [
        (
            ItemWrite::create(r#"{"id":"1","pk":"a"}"#),
            (|error| matches!(error, WriteError::AlreadyExists { .. })) as fn(&WriteError) -> bool,
        ),
        (ItemWrite::create(r#"{"id":"7","pk":"a"}"#), |error| {
            matches!(error, WriteError::AlreadyExists { .. })
        }),
        (ItemWrite::delete("a", "9"), |error| matches!(error, WriteError::NotFound { .. })),
        (ItemWrite::read("9"), |error| matches!(error, WriteError::NotFound { .. })),
        (ItemWrite::upsert(r#"{"id":"8","pk":"a","n":7}"#), |error| {
            matches!(error, WriteError::UniqueKey { .. })
        }),
        (ItemWrite::delete("a", "1").if_match("\"0\""), |error| {
            matches!(error, WriteError::EtagMismatch { .. })
        }),
        (ItemWrite::patch("a", "1", Patch::new().remove("/none").unwrap()), |error| {
            matches!(error, WriteError::Patch(_))
        }),
    ] {
        let name = format!("{last:?} behind two others");
        let writes = vec![fine(), ItemWrite::delete("a", "2"), last];
        let batch = items.batch("a", writes);
        bench.refused(&name, batch, is(2, check), "operation 2 of the batch").await;
    }
}

#[tokio::test]
async fn container_definitions_that_are_not_allowed() {
    let bench = Bench::new().await;
    let key = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;
    let with = |rest: &str| format!(r#"{{"id":"c",{key},{rest}}}"#);
    let keys = [r#"{"paths":["/a"]}"#; 11].join(",");
    let paths: Vec<String> = (0..17).map(|number| format!("\"/p{number}\"")).collect();
    let cases = [
        (String::new(), "not valid"),
        ("[]".to_owned(), "not a JSON object"),
        (format!("{{{key}}}"), "id is missing"),
        (format!(r#"{{"id":7,{key}}}"#), "id is missing"),
        (r#"{"id":"c"}"#.to_owned(), "partitionKey is missing"),
        (r#"{"id":"c","partitionKey":null}"#.to_owned(), "not valid"),
        (r#"{"id":"c","partitionKey":{"paths":[]}}"#.to_owned(), "exactly one"),
        (r#"{"id":"c","partitionKey":{"paths":["pk"]}}"#.to_owned(), "could not be accepted"),
        (r#"{"id":"c","partitionKey":{"paths":["/a","/b"]}}"#.to_owned(), "MultiHash"),
        (
            r#"{"id":"c","partitionKey":{"paths":["/a","/b"],"kind":"MultiHash"}}"#.to_owned(),
            "set \"version\": 2",
        ),
        (
            r#"{"id":"c","partitionKey":{"paths":["/a","/b","/c","/d"],"kind":"MultiHash","version":2}}"#
                .to_owned(),
            "give it 1 to 3",
        ),
        (
            r#"{"id":"c","partitionKey":{"paths":["/a","/a"],"kind":"MultiHash","version":2}}"#
                .to_owned(),
            "its own property",
        ),
        (r#"{"id":"c","partitionKey":{"paths":["/a"],"kind":"None"}}"#.to_owned(), "use Hash"),
        (r#"{"id":"c","partitionKey":{"paths":["/a"],"version":3}}"#.to_owned(), "use 2"),
        (with(r#""defaultTtl":0"#), "use -1, or 1 to 2147483647"),
        (with(r#""defaultTtl":-2"#), "use -1, or 1 to 2147483647"),
        (with(r#""defaultTtl":2147483648"#), "use -1, or 1 to 2147483647"),
        (with(r#""defaultTtl":"5""#), "not a whole number"),
        (with(r#""defaultTtl":1.5"#), "not a whole number"),
        (with(r#""uniqueKeyPolicy":{"uniqueKeys":3}"#), "list of path lists"),
        (with(r#""uniqueKeyPolicy":{"uniqueKeys":[{}]}"#), "list of path lists"),
        (with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":[7]}]}"#), "list of path lists"),
        (with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":["a"]}]}"#), "unique key path"),
        (with(r#""uniqueKeyPolicy":{"uniqueKeys":[{"paths":[]}]}"#), "at most 10 unique keys"),
        (with(&format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{keys}]}}"#)), "at most 10"),
        (
            with(&format!(r#""uniqueKeyPolicy":{{"uniqueKeys":[{{"paths":[{}]}}]}}"#, paths.join(","))),
            "at most 16 paths",
        ),
        (with(r#""changeFeedPolicy":{"retentionDuration":-1}"#), "minutes up to 525600"),
        (with(r#""changeFeedPolicy":{"retentionDuration":525601}"#), "minutes up to 525600"),
        (with(r#""changeFeedPolicy":{"retentionDuration":"1"}"#), "minutes up to 525600"),
    ];
    for (json, says) in &cases {
        let define = async { ContainerDefinition::from_json(json) };
        bench.refused(json, define, |_: &DefinitionError| true, says).await;
    }
    let plain = || ContainerDefinition::new("new", "/pk").unwrap();
    let is_definition = |error: &CatalogError| matches!(error, CatalogError::Definition(_));
    let database = &bench.database;
    for (definition, partitions, says) in [
        (plain(), 0, "use 1 to 1000"),
        (plain(), 1001, "use 1 to 1000"),
        (plain().with_default_ttl(0), 1, "use -1, or 1 to 2147483647"),
        (plain().with_default_ttl(-7), 1, "use -1, or 1 to 2147483647"),
        (plain().with_unique_key(&["no slash"]), 1, "unique key path"),
        (plain().with_unique_key(&[]), 1, "at most 10 unique keys"),
    ] {
        let create = database.create_container_with(definition, partitions);
        bench.refused("create", create, is_definition, says).await;
    }
    for attempt in ["items", "levels"] {
        let same = ContainerDefinition::new(attempt, "/other").unwrap();
        let exists = |error: &CatalogError| matches!(error, CatalogError::AlreadyExists { .. });
        let create = database.create_container(same.clone());
        bench.refused("the same id", create, exists, "choose another id").await;
        let immutable = |error: &CatalogError| matches!(error, CatalogError::Immutable { .. });
        let replace = database.replace_container(same);
        bench.refused("another key", replace, immutable, "create a new container").await;
    }
    let same_key = ContainerDefinition::new("items", "/pk").unwrap().with_unique_key(&["/m"]);
    let immutable = |error: &CatalogError| matches!(error, CatalogError::Immutable { .. });
    let replace = database.replace_container(same_key);
    bench.refused("other unique keys", replace, immutable, "create a new container").await;
    let missing = |error: &CatalogError| matches!(error, CatalogError::NotFound { .. });
    let account = &bench.account;
    bench.refused("no container", database.container("none"), missing, "create it first").await;
    bench.refused("no container", database.drop_container("none"), missing, "create it").await;
    let replace = database.replace_container(plain());
    bench.refused("no container", replace, missing, "create it first").await;
    bench.refused("no database", account.database("none"), missing, "create it first").await;
    bench.refused("no database", account.drop_database("none"), missing, "create it").await;
    let exists = |error: &CatalogError| matches!(error, CatalogError::AlreadyExists { .. });
    let create = account.create_database("db");
    bench.refused("the same database", create, exists, "choose another id").await;
}

#[tokio::test]
async fn positions_that_lead_nowhere() {
    let bench = Bench::new().await;
    let (items, levels) = (&bench.items, &bench.levels);
    let other = ContainerDefinition::new("other", "/pk").unwrap();
    let other = bench.database.create_container_with(other, 2).await.unwrap();
    let page = other.read_feed(&FeedRequest::new(FeedStart::Beginning)).await.unwrap();
    let foreign = page.continuation;
    let wrong = |error: &FeedError| {
        matches!(error, FeedError::WrongContainer) && error.remedy() == Remedy::RefreshContainer
    };
    for container in [items, levels] {
        let request = FeedRequest::after(foreign.clone());
        bench.refused("another's", container.read_feed(&request), wrong, "start again").await;
    }
    let fix = |error: &FeedError| error.remedy() == Remedy::FixRequest;
    for lsn in [4, 1_000_000, u64::MAX - 1] {
        let request = FeedRequest::after(Continuation::Single(Lsn::new(lsn)));
        let ahead = |error: &FeedError| {
            matches!(error, FeedError::PositionAhead { newest, .. } if newest.get() == 2)
                && fix(error)
        };
        let read = items.read_feed(&request);
        bench.refused("the future", read, ahead, "is ahead of the newest change").await;
        let request = request.all_versions().wait(Duration::from_secs(60));
        let read = items.read_feed(&request);
        bench.refused("the future", read, ahead, "is ahead of the newest change").await;
    }

    // A reader with positions for one half reads the whole container.
    let half = levels.ranges()[0].range.clone();
    let (low, high) = half.split_at(&Epk::from_hex("10").unwrap()).unwrap();
    let both = KeyRange::new(low.min().clone(), Epk::from_hex("30").unwrap()).unwrap();
    let page = levels.read_feed(&FeedRequest::new(FeedStart::Now).of_hashes(both)).await.unwrap();
    let missing = |error: &FeedError| matches!(error, FeedError::PositionMissing(_)) && fix(error);
    let request = FeedRequest::after(page.continuation);
    bench.refused("half", levels.read_feed(&request), missing, "from the beginning or").await;

    let unsupported =
        |error: &FeedError| matches!(error, FeedError::UnsupportedStart(_)) && fix(error);
    let request = FeedRequest::new(FeedStart::Time(Timestamp::from_seconds(5))).all_versions();
    let read = items.read_feed(&request);
    bench.refused("all versions", read, unsupported, "from now or from a position").await;
    let gone = |error: &FeedError| {
        matches!(error, FeedError::RangeGone(_)) && error.remedy() == Remedy::RefreshRanges
    };
    for id in [1, 7, u32::MAX] {
        let request = FeedRequest::new(FeedStart::Beginning).of_range(PartitionId::new(id));
        bench.refused("no range", items.read_feed(&request), gone, "list the ranges").await;
        let at = async { items.positions_at(PartitionId::new(id), Timestamp::from_seconds(0)) };
        bench.refused("no range", at, gone, "list the ranges").await;
    }
    let empty = |error: &FeedError| matches!(error, FeedError::EmptyScope) && fix(error);
    let beginning = || FeedRequest::new(FeedStart::Beginning);
    let range = levels.ranges()[1].id;
    let nothing = beginning().of_range(range).of_hashes(high.clone());
    bench.refused("no overlap", levels.read_feed(&nothing), empty, "leave one of them out").await;
    let nothing = beginning().of_hashes(high).of_hashes(low).of_range(range);
    bench.refused("no overlap", levels.read_feed(&nothing), empty, "leave one of them out").await;
    let prefix = |error: &FeedError| matches!(error, FeedError::PartitionKey(_)) && fix(error);
    for key in [PartitionKey::empty(), ["a", "b"].into()] {
        let request = beginning().of_key(key);
        bench.refused("no prefix", items.read_feed(&request), prefix, "send 1 to 1").await;
    }
}

#[tokio::test]
async fn positions_before_what_is_kept() {
    let bench = Bench::new().await;
    for number in 100..300 {
        let body = format!(r#"{{"id":"1","pk":"a","n":{number},"p":"{}"}}"#, "p".repeat(200));
        bench.items.upsert(body).await.unwrap();
    }
    bench.account.maintain().await.unwrap();
    let request = FeedRequest::after(Continuation::Single(Lsn::ZERO)).all_versions();
    let mut kept = Lsn::ZERO;
    let before = |error: &FeedError| match error {
        FeedError::BeforeRetention { asked, oldest, missing, .. } => {
            *asked == Lsn::ZERO && *oldest > Lsn::ZERO && *missing == oldest.get()
        }
        _ => false,
    };
    bench.refused("too old", bench.items.read_feed(&request), before, "Resume from there").await;
    if let Err(FeedError::BeforeRetention { oldest, .. }) = bench.items.read_feed(&request).await {
        kept = oldest;
    }
    let request = FeedRequest::after(Continuation::Single(kept)).all_versions();
    let page = bench.items.read_feed(&request).await.unwrap();
    assert_eq!(page.changes[0].lsn(), kept.next(), "the position in the error is valid");
}

#[tokio::test]
async fn texts_that_are_no_positions() {
    let bench = Bench::new().await;
    let page = bench.levels.read_feed(&FeedRequest::new(FeedStart::Beginning)).await.unwrap();
    let token = page.continuation.to_string();
    let is = |_: &BadContinuation| true;
    for (text, says) in [
        ("", "leave it out"),
        ("\"\"", "leave it out"),
        ("*", "send back the `etag`"),
        ("-1", "send back the `etag`"),
        ("99999999999999999999999", "send back the `etag`"),
        ("18446744073709551615", "send back the `etag`"),
        ("\u{1F30A}", "send back the `etag`"),
    ] {
        let parse = async { text.parse::<Continuation>() };
        bench.refused(text, parse, is, says).await;
    }
    // Every damaged token is rejected.
    let bare = token.trim_matches('"');
    for at in 0..bare.len() {
        let mut damaged = bare.as_bytes().to_vec();
        damaged[at] = if damaged[at] == b'B' { b'C' } else { b'B' };
        let damaged = String::from_utf8(damaged).unwrap();
        assert!(damaged.parse::<Continuation>().is_err(), "{bare} became {damaged}");
        let cut = bare[..at].parse::<Continuation>();
        assert!(cut.is_err(), "{bare} cut to {at}");
    }
    assert_eq!(token.parse::<Continuation>().unwrap(), page.continuation);

    for (items, bytes) in [(0, 1), (10_001, 1), (1, 0), (1, u32::MAX)] {
        let limit = async { PageLimit::new(items, bytes) };
        bench.refused("a page limit", limit, |_: &BadPageLimit| true, "ask for 1 to").await;
    }
    let id = async { headwater_model::ItemId::new("") };
    bench.refused("an id", id, |error: &IdError| *error == IdError::Empty, "at least one").await;
}

#[tokio::test]
async fn scan_positions_that_lead_nowhere() {
    let bench = Bench::new().await;
    let one = PageLimit::items(1).unwrap();
    let page = bench.items.scan(&ScanScope::Container, None, one).await.unwrap();
    let of_items = page.next.unwrap();
    let bad = |error: &ItemReadError| {
        matches!(error, ItemReadError::BadPosition) && error.remedy() == Remedy::FixRequest
    };
    let read = bench.levels.scan(&ScanScope::Container, Some(&of_items), one);
    bench.refused("another's", read, bad, "start again without it").await;
    let long = "A".repeat(20_000);
    for text in ["", "A", "%%%", "AAAA", "__________8", "nonsense", "\u{1F30A}", &long] {
        let position = ScanPosition::from_text(text);
        let read = bench.items.scan(&ScanScope::Container, Some(&position), one);
        bench.refused(text, read, bad, "start again without it").await;
    }
    let gone = |error: &ItemReadError| {
        matches!(error, ItemReadError::RangeGone(_)) && error.remedy() == Remedy::RefreshRanges
    };
    let scope = ScanScope::Range(PartitionId::new(9));
    bench.refused("no range", bench.items.scan(&scope, None, one), gone, "list the ranges").await;
    let wrong = |error: &ItemReadError| matches!(error, ItemReadError::PartitionKey(_));
    for key in [PartitionKey::empty(), ["a", "b", "c"].into()] {
        let scope = ScanScope::Key(key);
        let read = bench.items.scan(&scope, None, one);
        bench.refused("a key that does not fit", read, wrong, "components").await;
    }
}

#[tokio::test]
async fn ranges_that_cannot_be_reshaped() {
    let bench = Bench::new().await;
    let levels = &bench.levels;
    let definition = ContainerDefinition::new("three", "/pk").unwrap();
    let three = bench.database.create_container_with(definition, 3).await.unwrap();
    let (id, nowhere) = (PartitionId::new, PartitionId::new(9));
    let is = |check: fn(&TopologyError) -> bool| move |error: &CatalogError| matches!(error, CatalogError::Topology(error) if check(error));
    let gone = is(|error| matches!(error, TopologyError::RangeGone(_)));
    bench.refused("split", levels.split(nowhere, None), gone, "list the ranges again").await;
    bench.refused("merge", levels.merge(id(0), nowhere), gone, "list the ranges again").await;
    bench.refused("merge", levels.merge(nowhere, id(0)), gone, "list the ranges again").await;
    let apart = is(|error| matches!(error, TopologyError::NotNeighbours(..)));
    bench.refused("apart", three.merge(id(0), id(2)), apart, "only neighbours").await;
    bench.refused("itself", three.merge(id(1), id(1)), apart, "only neighbours").await;
    let outside = is(|error| matches!(error, TopologyError::SplitPoint(_)));
    let bounds = three.ranges()[1].range.clone();
    for at in [Epk::min(), Epk::max(), bounds.min().clone(), bounds.max().clone()] {
        let split = three.split(id(1), Some(at));
        bench.refused("outside", split, outside, "choose one inside it").await;
    }
    // The store still works after all rejections.
    three.create(r#"{"id":"1","pk":"a"}"#).await.unwrap();
    three.split(id(1), None).await.unwrap();
}

/// Input at the limits is accepted, so the limits are exactly as documented.
#[tokio::test]
async fn the_largest_that_is_allowed() {
    let bench = Bench::new().await;
    let items = &bench.items;
    items.upsert(nested(128)).await.unwrap();
    let stored = items.upsert(sized(2_097_152)).await.unwrap().into_item();
    assert!(stored.to_bytes().len() > 2_097_152);
    // An item of maximum size that was read can be written back.
    items.replace("big", stored.to_bytes()).await.unwrap();
    let id = "x".repeat(1023);
    items.create(format!(r#"{{"id":"{id}","pk":"a","n":"long"}}"#)).await.unwrap();
    assert!(items.read("a", &id).await.unwrap().is_some());
    let key = "k".repeat(2048);
    items.create(format!(r#"{{"id":"1","pk":"{key}"}}"#)).await.unwrap();
    assert!(items.read(key.as_str(), "1").await.unwrap().is_some());
    for ttl in ["-1", "1", "2147483647", "1e1"] {
        let body = format!(r#"{{"id":"ttl","pk":"a","n":"ttl","ttl":{ttl}}}"#);
        items.upsert(body).await.unwrap();
    }
    let write =
        |number| ItemWrite::create(format!(r#"{{"id":"{number}","pk":"many","n":{number}}}"#));
    items.batch("many", (0..100).map(write).collect()).await.unwrap();
    let names = "n".repeat(255);
    let database = bench.account.create_database(&names).await.unwrap();
    let definition = ContainerDefinition::new(&names, "/pk").unwrap();
    let wide = database.create_container_with(definition, 1000).await.unwrap();
    assert_eq!(wide.ranges().len(), 1000);
    database.drop_container(&names).await.unwrap();
}
