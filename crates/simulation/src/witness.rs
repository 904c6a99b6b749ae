//! Whoever sees something tells the witness, who writes it down, asks the model, and remembers the first
//! thing that cannot be true.

use crate::history::History;
use crate::invariants::{Checked, Invariant, Violation};
use crate::model::{Model, Moment};
use headwater_model::PartitionId;
use headwater_runtime::Runtime;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the head of this file. Clones are the same witness.
#[derive(Clone, Debug)]
pub struct Witness(Arc<Mutex<Testimony>>);

/// What a witness knows.
#[derive(Debug)]
pub struct Testimony {
    /// What happened.
    pub history: History,
    /// What must be.
    pub model: Model,
    /// The first thing that cannot be true.
    pub violation: Option<Violation>,
    /// Since the store was opened.
    pub faults: FaultsSoFar,
    /// When nothing was last under way. What becomes visible later was written later; of any other
    /// moment that is not so, because a write carries the time at which it was begun.
    pub quiet_since: Moment,
}

/// Faults that excuse failing calls, since the store was opened.
#[derive(Debug, Default)]
pub struct FaultsSoFar {
    /// Whether anything was done to the machine that lets calls fail.
    pub any: bool,
    /// Whether the disk was full at some time.
    pub full_disk: bool,
    /// The event from which on every sync fails, while that lasts.
    pub syncs_fail_since: Option<u64>,
    /// Partitions that have said that they refuse writes, and at which event first.
    pub refusing: BTreeMap<PartitionId, u64>,
}

impl Witness {
    /// A witness of an empty container.
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

    /// Writes a line down and does something with what is known, at one moment.
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

    /// Writes a line down at a moment when nothing is under way.
    pub fn tell_quiet(&self, runtime: &Runtime, line: &str) {
        self.tell(runtime, line, |known| known.quiet_since = known.model.moment());
    }

    /// Looks at what is known, without a trace.
    pub fn ask<T>(&self, then: impl FnOnce(&mut Testimony) -> T) -> T {
        then(&mut self.0.lock())
    }

    /// Remembers what cannot be true, if it is the first.
    pub fn judge(&self, checked: Checked) {
        if let Err(violation) = checked {
            self.0.lock().violation.get_or_insert(violation);
        }
    }

    /// Something is broken.
    pub fn object(&self, invariant: Invariant, what: impl Into<String>) {
        self.judge(Err(Violation { invariant, what: what.into() }));
    }

    /// Whether something cannot be true; there is no point in going on then.
    #[must_use]
    pub fn has_objected(&self) -> bool {
        self.0.lock().violation.is_some()
    }
}

/// An error with all its causes.
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
