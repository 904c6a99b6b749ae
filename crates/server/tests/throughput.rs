//! Throughput decides how many partitions there are, as it does in the service.

#![allow(clippy::unwrap_used)] // a test that cannot go on should say where

mod support;

use serde_json::{Value, json};
use support::World;

const COLLS: &str = "/dbs/db/colls";
const LARGE: &str = r#"{"id":"large","partitionKey":{"paths":["/pk"],"kind":"Hash"}}"#;

async fn ranges(world: &World, container: &str) -> usize {
    let got = world.send("GET", &format!("{COLLS}/{container}/pkranges"), &[], "").await;
    assert_eq!(got.status, 200);
    got.json()["PartitionKeyRanges"].as_array().unwrap().len()
}

async fn offer_of(world: &World, rid: &Value) -> Value {
    let offers = world.send("GET", "/offers", &[], "").await.json();
    let all = offers["Offers"].as_array().unwrap();
    all.iter().find(|offer| offer["offerResourceId"] == *rid).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_much_throughput_has_several_partitions() {
    let world = World::new().await.with_container().await;
    assert_eq!(ranges(&world, "c").await, 1);
    let head = [("x-ms-offer-throughput", "30000")];
    assert_eq!(world.send("POST", COLLS, &head, LARGE).await.status, 201);
    assert_eq!(ranges(&world, "large").await, 5);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raising_throughput_beyond_what_partitions_can_give_splits_them() {
    let world = World::new().await.with_container().await;
    let container = world.send("GET", "/dbs/db/colls/c", &[], "").await.json();
    let mut offer = offer_of(&world, &container["_rid"]).await;
    let path = format!("/offers/{}", offer["id"].as_str().unwrap());
    for (units, expected) in [(10_000, 1), (11_000, 2), (50_000, 5), (400, 5)] {
        offer["content"]["offerThroughput"] = json!(units);
        let got = world.send("PUT", &path, &[], &offer.to_string()).await;
        assert_eq!(got.status, 200, "{units}");
        assert_eq!(got.header("x-ms-offer-replace-pending"), Some("false"));
        assert_eq!(ranges(&world, "c").await, expected, "{units}");
    }
    world.stop().await;
}
