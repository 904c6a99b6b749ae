//! What every measurement needs: a place on the disk, tasks, two clocks, rounds and their median.
//!
//! Two clocks, because two things are asked. What waits (for a disk, for another task) is timed on the
//! wall. What only computes is timed in CPU, of the thread or of the whole process: a neighbour that
//! takes the core for a while then changes nothing but the patience needed.

use super::Topic;
use anyhow::{Context, Result, ensure};
use headwater_runtime::Runtime;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Items in the stores that are read.
    pub(crate) items: u64,
    pub(crate) rounds: u32,
    /// How long a round of something that waits for the disk takes.
    pub(crate) window: Duration,
    /// Everything, when empty.
    pub(crate) only: Vec<Topic>,
}

impl Plan {
    pub(crate) fn wants(&self, topic: Topic) -> bool {
        self.only.is_empty() || self.only.contains(&topic)
    }

    pub(crate) fn wants_any(&self, topics: &[Topic]) -> bool {
        topics.iter().any(|topic| self.wants(*topic))
    }
}

/// Where measurements run.
pub(crate) struct Harness {
    pub(crate) plan: Plan,
    pub(crate) clock: Runtime,
    /// Cores this process may use.
    pub(crate) cores: usize,
    tokio: tokio::runtime::Runtime,
    scratch: TempDir,
    interrupted: Arc<AtomicBool>,
}

impl Harness {
    /// Makes a directory of its own in `parent`, which goes away with the harness.
    pub(crate) fn new(plan: Plan, parent: PathBuf) -> Result<Harness> {
        std::fs::create_dir_all(&parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
        let scratch = tempfile::Builder::new()
            .prefix("headwater-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot write to {}", parent.display()))?;
        Ok(Harness {
            plan,
            clock: Runtime::system(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            tokio: start_tokio()?,
            scratch,
            interrupted: Arc::default(),
        })
    }

    /// From now on a signal does not end this process at once, as those it has started would be left
    /// running; it is looked at between two measurements.
    pub(crate) fn end_in_order(&self) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let (seen, clock) = (self.interrupted.clone(), self.clock.clone());
        self.run(async move {
            let mut interrupted = signal(SignalKind::interrupt())?;
            let mut terminated = signal(SignalKind::terminate())?;
            clock.spawn("signals", async move {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
                seen.store(true, Ordering::Relaxed);
                eprintln!("ending what was started …");
            });
            Ok(())
        })
    }

    /// An error after such a signal.
    pub(crate) fn check_interrupted(&self) -> Result<()> {
        ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    }

    /// A directory for one store; it is made by whoever opens it.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// All of them.
    pub(crate) fn root(&self) -> &Path {
        self.scratch.path()
    }

    /// Makes room on the disk for what comes next.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let dir = self.dir(name);
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    /// Runs a task on a worker of the runtime, as a server's would, and waits for it.
    pub(crate) fn run<T, F>(&self, task: F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.tokio.block_on(in_task(&self.clock, task))
    }

    /// Repeats a measurement; `round` is told which one it is.
    pub(crate) fn rounds(
        &self,
        what: &str,
        mut round: impl FnMut(u32) -> Result<()>,
    ) -> Result<()> {
        let bar = bar(u64::from(self.plan.rounds), what, "rounds");
        for number in 0..self.plan.rounds {
            self.check_interrupted()?;
            round(number)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// A runtime as a server has it.
pub(crate) fn start_tokio() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Starts a task and waits for what it returns.
pub(crate) async fn in_task<T, F>(clock: &Runtime, task: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (sender, result) = oneshot::channel();
    clock.spawn("bench", async move {
        let _ = sender.send(task.await);
    });
    result.await.context("a task of the benchmark panicked")?
}

/// A bar on standard error; nothing where that is not a terminal.
pub(crate) fn bar(length: u64, what: &str, unit: &str) -> ProgressBar {
    let template =
        format!("{{msg:28}} {{wide_bar}} {{human_pos}}/{{human_len}} {unit}  {{eta:>4}}");
    let bar = ProgressBar::new(length).with_message(what.to_owned());
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// CPU time of all threads of this process.
pub(crate) fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Times work that only computes, on the one thread that does it.
pub(crate) struct ThreadTimer {
    thread: std::thread::ThreadId,
    cpu: Duration,
}

impl ThreadTimer {
    pub(crate) fn start() -> ThreadTimer {
        ThreadTimer { thread: std::thread::current().id(), cpu: thread_cpu() }
    }

    /// CPU since the start.
    pub(crate) fn stop(&self) -> Result<Duration> {
        ensure!(
            std::thread::current().id() == self.thread,
            "the task moved to another thread while it was timed"
        );
        Ok(thread_cpu().saturating_sub(self.cpu))
    }
}

/// So many things in so much time, per second.
pub(crate) fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

/// One figure per round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(Vec<f64>);

impl Series {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle one; with an even number the mean of the two in the middle.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            return sorted.get(middle).copied();
        }
        let below = sorted.get(middle.checked_sub(1)?)?;
        Some((below + sorted.get(middle)?) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[f64], expected: Option<f64>) {
        assert_eq!(Series(values.to_vec()).median(), expected, "{values:?}");
    }

    #[test]
    fn medians() {
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0], Some(5.0));
        check(&[9.0, 1.0, 2.0], Some(2.0));
    }
}
