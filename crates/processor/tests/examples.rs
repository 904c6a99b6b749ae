//! Runs the examples and checks their results.

#![allow(clippy::unwrap_used)] // A failing step of a test should panic where it fails.
#![allow(dead_code)] // Each example has its own main function.

#[path = "../examples/copy_to_another_key.rs"]
mod copy_to_another_key;
#[path = "../examples/functions_trigger.rs"]
mod functions_trigger;
#[path = "../examples/observer.rs"]
mod observer;
#[path = "../examples/webhook.rs"]
mod webhook;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_copied_to_another_key_while_it_changes() {
    assert_eq!(copy_to_another_key::run().await.unwrap(), 150);
}

#[tokio::test]
async fn a_webhook_is_called_for_every_change_it_accepts() {
    assert_eq!(webhook::run().await.unwrap(), (19, 1));
}

#[tokio::test]
async fn the_observer_of_the_articles_is_opened_told_and_closed() {
    let said = observer::run().await.unwrap();
    assert!(said[0].starts_with("observer opened for"), "{said:?}");
    assert_eq!(said[1..4], ["changed: \"0\"", "changed: \"1\"", "changed: \"2\""]);
    assert_eq!(said[4], "observer closed: Shutdown");
}

#[tokio::test]
async fn the_functions_trigger_loses_what_was_thrown_at_in_compat_and_nothing_in_safe() {
    let [(_, compat), (_, safe)] = &functions_trigger::run().await.unwrap()[..] else { panic!() };
    assert_eq!((compat.len(), compat.contains("3")), (9, false), "{compat:?}");
    assert_eq!(safe.len(), 10, "{safe:?}");
}
