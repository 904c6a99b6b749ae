//! Catches panics of tasks, logs them with the task's name and reports them to the task's owner.
//!
//! A simulated node never catches a panic: there a panic is a failed test.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;

/// A task that ended without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// The name the task was started with.
    pub name: &'static str,
    /// The panic message.
    pub message: String,
}

impl std::fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the task `{}` panicked: {}", self.name, self.message)
    }
}

impl std::error::Error for TaskFailure {}

/// Runs a task to its end. Logs and returns a panic if `survives`, and resumes it otherwise.
pub(crate) async fn watch<T>(
    name: &'static str,
    survives: bool,
    task: impl Future<Output = T>,
) -> Result<T, TaskFailure> {
    let mut task = std::pin::pin!(task);
    let ended = poll_fn(|context| {
        // Unwind safe: the task's state is dropped with it and its owner gets the failure, so no half-changed
        // state is used again.
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))) {
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(panic) => Poll::Ready(Err(panic)),
        }
    });
    let panic = match ended.await {
        Ok(value) => return Ok(value),
        Err(panic) => panic,
    };
    if !survives {
        resume_unwind(panic);
    }
    let failure = TaskFailure { name, message: message_of(&*panic) };
    tracing::error!(task = name, message = failure.message, "a task panicked; please report it");
    Err(failure)
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::{Runtime, TaskFailure, TaskGroup};
    use std::time::Duration;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn the_owner_of_a_task_learns_how_it_ended() {
        let runtime = Runtime::system();
        let group = TaskGroup::new(runtime.clone());
        let (tell, told) = oneshot::channel();
        group.spawn_watched("good", |_| async {}, |ended| tell.send(ended).unwrap());
        assert_eq!(told.await.unwrap(), Ok(()));
        let (tell, told) = oneshot::channel();
        let number = 7;
        let task = |_| async move { panic!("number {number}") };
        group.spawn_watched("bad", task, |ended| tell.send(ended).unwrap());
        let failure = TaskFailure { name: "bad", message: "number 7".to_owned() };
        assert_eq!(told.await.unwrap(), Err(failure));
        // A task that panicked does not block the shutdown of its group.
        let ended = runtime.timeout(Duration::from_secs(60), group.shutdown()).await;
        assert!(ended.is_some());
    }

    #[tokio::test]
    async fn whoever_waits_for_a_task_learns_what_it_panicked_with() {
        let runtime = Runtime::system();
        let failure = runtime.run("sum", async { panic!("no numbers") }).await;
        let failure: TaskFailure = failure.map(|(): ()| ()).unwrap_err();
        assert_eq!(failure.to_string(), "the task `sum` panicked: no numbers");
    }

    #[test]
    #[should_panic(expected = "in a simulation")]
    fn a_panic_in_a_simulation_fails_its_test() {
        let simulation = crate::Simulation::new(1);
        let runtime = simulation.node().runtime();
        simulation.run(async move {
            runtime.spawn("bad", async { panic!("in a simulation") });
            runtime.sleep(Duration::from_secs(1)).await;
        });
    }
}
