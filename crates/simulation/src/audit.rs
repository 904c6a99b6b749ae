//! Audits the whole store while no other call is in progress.
//!
//! No time passes during an audit, so point reads, scans and the feed show the same moment and must agree.
//! After a restart, the audit also determines the outcome of calls that were never answered.

use crate::invariants::{Invariant, require};
use crate::model::{Key, Seen};
use crate::sabotage::Sabotage;
use crate::workload::checks::check_ranges;
use crate::workload::reader::{self, Reader, Scope};
use crate::workload::writer::{look_at, observe};
use crate::workload::{Scene, SharedReader};
use headwater_model::{FeedStart, KeyRange, PartitionId, Timestamp};
use headwater_runtime::Random;
use headwater_store::{FeedError, FeedRequest, ScanScope};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// State that is kept from one audit to the next.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    ranges: BTreeMap<PartitionId, KeyRange>,
}

/// Runs all checks. After a restart, it settles the calls in doubt.
pub(crate) async fn audit(
    scene: &Scene,
    readers: &[SharedReader],
    remembered: &mut Remembered,
    after_restart: bool,
    random: &mut Random,
) {
    scene.witness.tell_quiet(&scene.runtime, "audit");
    let Some(truth) = read_all(scene).await else {
        return;
    };
    if after_restart {
        let settled = scene.witness.ask(|known| known.model.settle(&truth));
        scene.witness.judge(settled);
    }
    check_unique(scene, &truth);
    check_map(scene, remembered).await;
    scan_all(scene, &truth, random).await;
    read_late(scene, &truth, random).await;
    for reader in readers {
        if scene.witness.has_objected() {
            return;
        }
        reader::drain(scene, reader, random).await;
        check_reader(scene, reader, &truth);
    }
}

fn check_reader(scene: &Scene, reader: &Mutex<Reader>, truth: &BTreeMap<Key, Seen>) {
    let checked = scene.witness.ask(|known| reader.lock().check_end(truth, &scene.setup, known));
    scene.witness.judge(checked);
}

/// Reads every item by point reads.
async fn read_all(scene: &Scene) -> Option<BTreeMap<Key, Seen>> {
    let mut truth = BTreeMap::new();
    let otherwise = match scene.witness.ask(|known| known.model.has_rewound()) {
        true => Invariant::APowerCutLeavesAPrefix,
        false => Invariant::NothingAcknowledgedIsLost,
    };
    for key in scene.setup.item_keys() {
        let seen = look_at(scene, key).await?;
        observe(scene, key, seen, otherwise);
        if scene.witness.has_objected() {
            return None;
        }
        if let Some(seen) = seen {
            truth.insert(key, seen);
        }
    }
    Some(truth)
}

fn check_unique(scene: &Scene, truth: &BTreeMap<Key, Seen>) {
    if !scene.setup.rules.has_unique_keys {
        return;
    }
    let mut holders: BTreeMap<(usize, u64), Key> = BTreeMap::new();
    for (key, seen) in truth {
        let other = holders.insert((key.pk, seen.unique), *key);
        let checked = require(other.is_none(), Invariant::UniqueKeysHold, || {
            format!("{key} and {other:?} both have the unique value {}", seen.unique)
        });
        scene.witness.judge(checked);
    }
}

/// Checks that ranges cover all keys, that an id always means the same range, and that removed ranges answer so.
async fn check_map(scene: &Scene, remembered: &mut Remembered) {
    let container = &scene.store.container;
    let mut ranges = container.ranges();
    if scene.setup.profile.sabotage == Some(Sabotage::ARangeIsMissing) {
        ranges.pop();
    }
    let plain: Vec<KeyRange> = ranges.iter().map(|range| range.range.clone()).collect();
    scene.witness.judge(check_ranges(&plain));
    for range in &ranges {
        let known = remembered.ranges.entry(range.id).or_insert_with(|| range.range.clone());
        let checked = require(*known == range.range, Invariant::RangesCoverEverything, || {
            format!("range {} was {known} and is {}", range.id, range.range)
        });
        scene.witness.judge(checked);
    }
    for id in remembered.ranges.keys() {
        if ranges.iter().any(|range| range.id == *id) {
            continue;
        }
        let request = FeedRequest::new(FeedStart::Beginning).of_range(*id);
        let answer = container.read_feed(&request).await;
        let gone = matches!(answer, Err(FeedError::RangeGone(other)) if other == *id);
        let checked = require(gone, Invariant::RangesCoverEverything, || {
            format!("range {id} is gone but answers")
        });
        scene.witness.judge(checked);
    }
}

/// Checks that a full scan and a partial scan agree with point reads.
async fn scan_all(scene: &Scene, truth: &BTreeMap<Key, Seen>, random: &mut Random) {
    let some_hashes = scene.setup.some_hashes(random);
    let pk = random.index(scene.setup.keys.len());
    let key_info = &scene.setup.keys[pk];
    let ranges = scene.store.container.ranges();
    let range = random.pick(&ranges);
    let scopes = [
        (ScanScope::Container, KeyRange::full()),
        (ScanScope::Hashes(some_hashes.clone()), some_hashes),
        (ScanScope::Key(key_info.key.clone()), KeyRange::point(&key_info.epk)),
        (ScanScope::Range(range.id), range.range.clone()),
    ];
    for (scope, about) in scopes {
        let mut found: Vec<(Key, Seen)> = Vec::new();
        let mut position = None;
        loop {
            let Some((items, next)) = reader::scan_page(scene, &scope, position, random).await
            else {
                return;
            };
            found.extend(items);
            position = next;
            if position.is_none() {
                break;
            }
        }
        if scene.setup.profile.sabotage == Some(Sabotage::ScansForget) {
            found.pop();
        }
        let inside = truth.iter().filter(|(key, _)| about.contains(scene.setup.epk(**key)));
        let mut expected: Vec<(Key, Seen)> = inside.map(|(key, seen)| (*key, *seen)).collect();
        expected.sort_by_key(|(key, _)| *key);
        found.sort_by_key(|(key, _)| *key);
        let checked = require(found == expected, Invariant::ViewsAgree, || {
            format!("{scope:?} showed {found:?}; point reads show {expected:?}")
        });
        scene.witness.judge(checked);
    }
}

/// Runs readers that start now, from the beginning and from a time.
async fn read_late(scene: &Scene, truth: &BTreeMap<Key, Seen>, random: &mut Random) {
    let key = Scope::Key(random.index(scene.setup.keys.len()));
    let hashes = Scope::Hashes(scene.setup.some_hashes(random));
    let mut readers = vec![
        Reader::late(Scope::Container, FeedStart::Beginning),
        Reader::late(Scope::Ranges, FeedStart::Beginning),
        Reader::late(key, FeedStart::Beginning),
        Reader::late(hashes, FeedStart::Beginning),
    ];
    let some = truth.values().nth(random.index(truth.len()));
    if let Some(seen) = some {
        let time = Timestamp::from_seconds(seen.written);
        readers.push(Reader::late(Scope::Container, FeedStart::Time(time)));
    }
    for reader in readers {
        let reader = Mutex::new(reader);
        reader::drain(scene, &reader, random).await;
        if scene.witness.has_objected() {
            return;
        }
        check_reader(scene, &reader, truth);
    }
}
