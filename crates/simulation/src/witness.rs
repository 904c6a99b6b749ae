//! The witness records every event in the history, checks it against the model, and keeps the first violation.

use crate::history::History;
use crate::invariants::{Checked, Invariant, Violation};
use crate::model::{Model, Moment};
use headwater_model::PartitionId;
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A shared handle to the history and the model. Clones share their state.
#[derive(Clone, Debug)]
pub struct Witness(Arc<Mutex<Testimony>>);

/// The state of a witness.
#[derive(Debug)]
pub struct Testimony {
    /// The events so far.
    pub history: History,
    /// The reference model.
    pub model: Model,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Faults since the store was opened.
    pub faults: FaultsSoFar,
    /// The last moment with no call in progress. What becomes visible later was written later. This holds for
    /// no other moment, because a write carries the time at which it began.
    pub quiet_since: Moment,
}

/// Faults that excuse failing calls, since the store was opened.
#[derive(Debug, Default)]
pub struct FaultsSoFar {
    /// Whether any fault was injected that lets calls fail.
    pub any: bool,
    /// Whether the disk was full at some time.
    pub full_disk: bool,
    /// The event from which on every sync fails, while that lasts.
    pub syncs_fail_since: Option<u64>,
    /// Partitions that have reported that they refuse writes, with the event of the first report.
    pub refusing: BTreeMap<PartitionId, u64>,
}

impl Witness {
    /// Creates the witness of an empty container.
    #[must_use]
    pub fn new(model: Model, lines_kept: usize) -> Witness {
        Witness(Arc::new(Mutex::new(Testimony {
            history: History::new(lines_kept),
            model,
            violation: None,
            faults: FaultsSoFar::default(),
            quiet_since: Moment::default(),
        })))
    }

    /// Records a line and runs a closure on the state, atomically.
    pub fn tell<T>(
        &self,
        runtime: &Runtime,
        line: &str,
        then: impl FnOnce(&mut Testimony) -> T,
    ) -> T {
        let mut testimony = self.0.lock();
        testimony.history.note(runtime.elapsed(), line);
        testimony.model.clock_shows(runtime.unix_millis());
        then(&mut testimony)
    }

    /// Records a line at a moment with no call in progress.
    pub fn tell_quiet(&self, runtime: &Runtime, line: &str) {
        self.tell(runtime, line, |known| known.quiet_since = known.model.moment());
    }

    /// Runs a closure on the state without recording an event.
    pub fn ask<T>(&self, then: impl FnOnce(&mut Testimony) -> T) -> T {
        then(&mut self.0.lock())
    }

    /// Keeps a violation, if it is the first.
    pub fn judge(&self, checked: Checked) {
        if let Err(violation) = checked {
            self.0.lock().violation.get_or_insert(violation);
        }
    }

    /// Reports a violation.
    pub fn object(&self, invariant: Invariant, what: impl Into<String>) {
        self.judge(Err(Violation { invariant, what: what.into() }));
    }

    /// Returns whether there is a violation, after which the run should stop.
    #[must_use]
    pub fn has_objected(&self) -> bool {
        self.0.lock().violation.is_some()
    }
}

/// Formats an error with all its causes.
pub(crate) fn explain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
