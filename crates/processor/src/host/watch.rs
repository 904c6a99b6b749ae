//! Monitors the host once a second: a suspended machine, blocked handler threads, stalled leases.
//!
//! Decides nothing. Sessions check their own deadlines; this module only wakes them when their timers are
//! unreliable, because timers stand still while a machine is suspended.

use super::shared::Shared;
use super::tenure::Tenure;
use crate::event::{Event, StallCause};
use crate::lag::Lag;
use crate::position::Position;
use headwater_runtime::Stop;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);
/// How long a handler may block its thread before an event reports it.
const BLOCKED: Duration = Duration::from_secs(1);

/// The progress of a lease at the last check.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    reached: Option<Position>,
    since: Option<Duration>,
    told: bool,
    lag: Option<Lag>,
}

impl Progress {
    /// How far behind it was.
    pub(crate) fn lag(&self) -> Option<Lag> {
        self.lag
    }
}

/// Checks every second until the host is stopped.
pub(crate) async fn run(shared: Arc<Shared>, mut stop: Stop) {
    while !stop.is_requested() {
        let before = shared.runtime.elapsed();
        tokio::select! {
            biased;
            () = stop.requested() => return,
            () = shared.runtime.sleep(LOOK) => {}
        }
        let now = shared.runtime.elapsed();
        if now.saturating_sub(before) > LOOK * 2 {
            shared.woke.ring();
        }
        for tenure in shared.tenures() {
            if let Some(since) = tenure.blocked_for(now).filter(|since| *since >= BLOCKED) {
                tell_blocked(&shared, &tenure, since);
            }
            look_at(&shared, &tenure, now);
            tell_lag(&shared, &tenure);
        }
    }
}

/// Reports that a handler blocks its thread, once per call.
pub(crate) fn tell_blocked(shared: &Shared, tenure: &Tenure, since: Duration) {
    if since >= BLOCKED && tenure.note_blocked() {
        shared.tell(Event::HandlerBlocks { lease: tenure.lease.lease.clone(), since });
    }
}

/// Reports that a lease makes no progress, once until it does again.
fn look_at(shared: &Shared, tenure: &Tenure, now: Duration) {
    let (reached, waiting) = {
        let watermark = tenure.watermark.lock();
        (watermark.reached().cloned(), watermark.unhandled() > 0)
    };
    let mut progress = tenure.progress.lock();
    if !waiting || reached != progress.reached || progress.since.is_none() {
        *progress = Progress { reached, since: Some(now), told: false, lag: progress.lag };
        return;
    }
    let since = now.saturating_sub(progress.since.unwrap_or(now));
    if since >= shared.options.stall_after && !progress.told {
        progress.told = true;
        let cause =
            match (tenure.blocked_for(now).filter(|time| *time >= BLOCKED), tenure.failing()) {
                (Some(_), _) => StallCause::Blocked,
                (None, Some(error)) => StallCause::Failing(error),
                (None, None) => StallCause::Unanswered,
            };
        shared.tell(Event::Stalled { lease: tenure.lease.lease.clone(), since, cause });
    }
}

/// Reports how far behind a lease is, when that changed.
fn tell_lag(shared: &Shared, tenure: &Tenure) {
    let lag = tenure.lag(shared.server_time().as_seconds());
    let before = tenure.progress.lock().lag.replace(lag);
    if before != Some(lag) {
        shared.tell(Event::Behind { lease: tenure.lease.lease.clone(), lag });
    }
}
