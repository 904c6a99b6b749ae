//! Runs a [`LeaseRunner`](crate::runner::LeaseRunner), which pulls batches itself, until the lease ends.

use super::lane::{Job, LaneFailure, catch_panic};
use super::shared::Shared;
use super::tenure::Tenure;
use crate::event::Event;
use crate::runner::{AnyRunner, LeaseSession};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Runs a runner until it returns or the lease is lost. Returning before the lease ends counts as a failure.
pub(crate) async fn run(
    shared: Arc<Shared>,
    tenure: Arc<Tenure>,
    mut runner: Box<dyn AnyRunner>,
    jobs: mpsc::Receiver<Job>,
) -> Option<LaneFailure> {
    let session = LeaseSession { tenure: tenure.clone(), jobs, shared: shared.clone() };
    let outcome = tokio::select! {
        biased;
        () = tenure.fence.ended() => return None,
        outcome = catch_panic(runner.run(session)) => outcome,
    };
    let error = match outcome {
        Ok(Ok(())) if tenure.fence.is_leaving() => return None,
        Ok(Ok(())) => "the runner returned before its lease ended".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(panicked) => panicked,
    };
    let lease = tenure.lease.lease.clone();
    shared.tell(Event::HandlerFailed { lease, attempt: 1, error });
    Some(LaneFailure::LetGo)
}
