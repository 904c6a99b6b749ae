//! Splits and merges ranges and runs maintenance, concurrently with the rest of the workload.

use super::Scene;
use crate::invariants::Invariant;
use headwater_runtime::Random;
use headwater_store::{CatalogError, RangeInfo, StorageError};

/// Maximum number of ranges; more only make a world slow.
const RANGES_MAX: usize = 7;

/// Splits and merges ranges.
pub(super) async fn reshape(scene: Scene, mut random: Random) {
    for _ in 0..2 + random.below(5) {
        scene.rest(&mut random).await;
        if scene.should_stop() {
            return;
        }
        let container = &scene.store.container;
        let ranges = container.ranges();
        let split = ranges.len() < 2 || (ranges.len() < RANGES_MAX && random.chance(50));
        let changed = if split {
            let range = random.pick(&ranges).clone();
            // At a key, in the middle, or where it cannot be.
            let at = random.chance(60).then(|| random.pick(&scene.setup.keys).epk.clone());
            let line = format!("split {} at {:?}", range.id, at.as_ref().map(|at| at.to_hex()));
            scene.witness.tell(&scene.runtime, &line, |_| ());
            scene.call("a split", container.split(range.id, at)).await
        } else {
            let low = random.index(ranges.len() - 1);
            let (one, two) = (ranges[low].id, ranges[low + 1].id);
            let line = format!("merge {one} and {two}");
            scene.witness.tell(&scene.runtime, &line, |_| ());
            scene.call("a merge", container.merge(one, two)).await
        };
        if let Some(changed) = changed {
            report(&scene, changed);
        }
    }
}

fn report(scene: &Scene, changed: Result<Vec<RangeInfo>, CatalogError>) {
    let line = match &changed {
        Ok(ranges) => {
            let ids: Vec<String> = ranges.iter().map(|range| range.id.to_string()).collect();
            format!("ranges {} are there", ids.join(", "))
        }
        Err(error) => format!("ranges stay as they are: {error}"),
    };
    let excused = scene.witness.tell(&scene.runtime, &line, |known| known.faults.any);
    match changed {
        Ok(_) | Err(CatalogError::Topology(_)) => {}
        Err(CatalogError::Storage(_)) if excused || scene.disk.is_out_of_power() => {}
        Err(error) => {
            scene.witness.object(Invariant::NothingFailsWithoutAFault, error.to_string());
        }
    }
}

/// Runs maintenance at random times: deletes expired items and compacts.
pub(super) async fn maintain(scene: Scene, mut random: Random) {
    for _ in 0..random.below(8) {
        scene.rest(&mut random).await;
        if scene.should_stop() {
            return;
        }
        let Some(done) = scene.call("maintenance", scene.store.account.maintain()).await else {
            return;
        };
        let line = match &done {
            Ok(()) => "maintained".to_owned(),
            Err(error) => format!("maintenance failed: {error}"),
        };
        let excused = scene.witness.tell(&scene.runtime, &line, |known| known.faults.any);
        if let Err(error) = done {
            excuse(&scene, excused, &error);
        }
    }
}

fn excuse(scene: &Scene, excused: bool, error: &StorageError) {
    if !excused && !scene.disk.is_out_of_power() {
        scene.witness.object(Invariant::NothingFailsWithoutAFault, error.to_string());
    }
}
