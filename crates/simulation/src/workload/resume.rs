//! Checks readers whose position a power cut took, in a store with durability `os`.
//!
//! ```text
//! reader at 8                 left 1 2 3 4 5             refused: 8 is ahead of the newest LSN
//! reader at 8                 left 1 2 3 4 5, then 6-9   answered: new writes have passed the position
//! ```
//!
//! A reader that is refused restarts. So does one whose position new writes have passed: the store cannot detect
//! it, but the simulation can. Readers at or before the end of their logs continue with all the usual checks,
//! with one exception. A reader of latest versions skips a superseded version. If the power cut takes the
//! newer one, that reader does not receive the older one.

use super::Scene;
use super::checks::{Delivered, position_at};
use super::reader::{Reader, Request, Scope, draw_limit, refused};
use crate::invariants::{Checked, Invariant, require};
use crate::sabotage::Sabotage;
use crate::setup::Setup;
use crate::world::Aftermath;
use headwater_model::{KeyRange, Lsn};
use headwater_runtime::Random;
use headwater_store::{Container, FeedError, FeedPage};
use parking_lot::Mutex;

impl Reader {
    /// Compares its position with the logs that a power cut left.
    pub(crate) fn compare_with(&mut self, aftermath: &Aftermath, setup: &Setup) {
        self.is_ahead = self.positions.iter().any(|position| {
            let is_behind = |(range, end): &(KeyRange, Lsn)| {
                position.after > *end && position.range.intersect(range).is_some()
            };
            aftermath.ends.iter().any(is_behind)
        });
        for key in &aftermath.undone {
            if let Some(after) = position_at(&self.positions, setup.epk(*key)) {
                self.delivered.excuse(*key, after);
            }
        }
    }

    /// Returns a request for each part of its position.
    fn requests(&mut self, scene: &Scene, random: &mut Random) -> Vec<Request> {
        self.ranges.clear();
        let count = match self.scope {
            Scope::Ranges => scene.store.container.ranges().len(),
            _ => 1,
        };
        let requests = (0..count).filter_map(|_| self.request(scene, random));
        requests.filter(|request| !request.before.is_empty()).collect()
    }
}

/// Returns the first position of a request above the newest LSN of its range, with that LSN.
fn position_ahead(container: &Container, request: &Request) -> Option<(Lsn, Lsn)> {
    let ranges = container.ranges();
    request.before.iter().find_map(|position| {
        let ahead = ranges.iter().find(|range| {
            position.after > range.lsn && position.range.intersect(&range.range).is_some()
        });
        ahead.map(|range| (position.after, range.lsn))
    })
}

/// Reads from a position that a power cut took, checks the answer, and restarts the reader.
pub(super) async fn resume(scene: &Scene, reader: &Mutex<Reader>, random: &mut Random) {
    let requests = reader.lock().requests(scene, random);
    for request in requests {
        let ahead = position_ahead(&scene.store.container, &request);
        let asked = request.request.clone().limit(draw_limit(&scene.setup, random));
        let reading = scene.store.container.read_feed(&asked);
        let Some(result) = scene.call("a page", reading).await else {
            return;
        };
        let mut reader = reader.lock();
        let is_answered = scene.setup.profile.sabotage == Some(Sabotage::PositionsAheadAreAnswered);
        let checked = match &result {
            Err(FeedError::PositionAhead { .. }) if is_answered => check_not_ahead(ahead),
            Err(FeedError::PositionAhead { asked, newest }) => {
                let line = format!("{}: position {asked} is ahead of {newest}", reader.name);
                scene.witness.tell(&scene.runtime, &line, |_| ());
                check_refusal(ahead, *asked, *newest)
            }
            Ok(page) => check_answer(scene, &reader, &request, page, ahead),
            Err(error) => {
                refused(scene, &mut reader, &request, error);
                Ok(())
            }
        };
        scene.witness.judge(checked.map_err(|mut violation| {
            violation.what = format!("{}: {}", reader.name, violation.what);
            violation
        }));
    }
    reader.lock().begin_again();
}

fn check_refusal(ahead: Option<(Lsn, Lsn)>, asked: Lsn, newest: Lsn) -> Checked {
    require(ahead.is_some() && asked > newest, Invariant::PositionsStayValid, || {
        format!("position {asked} was refused as ahead of {newest}, which it is not")
    })
}

fn check_not_ahead(ahead: Option<(Lsn, Lsn)>) -> Checked {
    require(ahead.is_none(), Invariant::APositionAheadIsRefused, || {
        format!("{ahead:?} (position, newest LSN) was answered")
    })
}

/// Checks that a page after a position that new writes have passed has their changes in order.
fn check_answer(
    scene: &Scene,
    reader: &Reader,
    request: &Request,
    page: &FeedPage,
    ahead: Option<(Lsn, Lsn)>,
) -> Checked {
    check_not_ahead(ahead)?;
    let Request { before, start, about, .. } = request;
    Delivered::default().take(page, reader.mode, before, *start, about)?;
    let line = format!("{}: passed, {:?}", reader.name, page.changes);
    scene
        .witness
        .tell(&scene.runtime, &line, |known| reader.meet_changes(page, &scene.setup, known))
        .map(drop)
}
