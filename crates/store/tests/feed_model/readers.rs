//! Compares readers with the model: any scope, any page size, both modes, positions of any age.

use crate::World;
use crate::model::{Name, Version, position_of};
use crate::support::{Reader, Scope};
use bytes::Bytes;
use headwater_store::{
    Change, ChangeKind, Continuation, Epk, FeedError, FeedMode, FeedStart, Item, KeyRange, Lsn,
    PartitionId, PartitionKey, Timestamp,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longer than any history of this test.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl World {
    /// A random part of the container, and its range of hashes.
    pub(super) fn random_scope(&mut self) -> (Scope, KeyRange) {
        match self.random.below(5) {
            0 => (Scope::Container, KeyRange::full()),
            1 => {
                let ranges = self.container.ranges();
                let range = self.random.pick(&ranges);
                (Scope::Range(range.id), range.range.clone())
            }
            2 => {
                let key = self.random_key();
                let range = self.key_definition().prefix_range(&key).unwrap();
                (Scope::Key(key), range)
            }
            3 => {
                // For a hierarchical key, everything below its first level.
                let key = PartitionKey::from(format!("t{}", self.random.below(4)));
                let range = self.key_definition().prefix_range(&key).unwrap();
                (Scope::Key(key), range)
            }
            _ => {
                let mut bound = || {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&(self.random.number() >> 2).to_be_bytes());
                    Epk::from_bytes(&bytes)
                };
                let (one, two) = (bound(), bound());
                let range = KeyRange::new(one.clone().min(two.clone()), one.max(two)).unwrap();
                (Scope::Hashes(range.clone()), range)
            }
        }
    }

    /// The expected items of a latest-version reader of a scope.
    pub(super) fn expect_latest(
        &self,
        range: &KeyRange,
        after: impl Fn(&Version) -> bool,
    ) -> BTreeMap<Name, Bytes> {
        let now = self.now();
        let versions = self.model.live_versions();
        versions
            .filter(|version| range.contains(&version.epk) && !version.is_expired(now))
            .filter(|version| after(version))
            .map(|version| (version.name(), version.item.as_ref().unwrap().1.clone()))
            .collect()
    }

    /// Reads a scope in pages of two sizes, from the beginning or from some position.
    pub(super) async fn check_scope(&mut self) {
        let (scope, range) = self.random_scope();
        let start = match self.random.below(4) {
            0 => FeedStart::Now,
            1 => FeedStart::After(Continuation::Single(self.lowest_lsn(&range))),
            _ => FeedStart::Beginning,
        };
        let small = *self.random.pick(&[1, 2, 3]);
        let mut sequences = Vec::new();
        for page_size in [small, 100] {
            let reader = Reader::latest(scope.clone(), page_size);
            let (changes, end) = reader.drain(&self.container, start.clone()).await.unwrap();
            self.check_latest_changes(&range, &start, &changes);
            self.check_end(&reader, &range, &end).await;
            let single = matches!(end, Continuation::Single(_));
            sequences.push((single, sequence(&changes), end));
        }
        let (small, large) = (&sequences[0], &sequences[1]);
        assert_eq!(small.2, large.2, "{scope:?}: the same end, whatever the page size");
        if small.0 {
            assert_eq!(small.1, large.1, "{scope:?}: the same sequence, whatever the page size");
        }
        self.check_all_versions(&scope, &range).await;
    }

    /// A random position that every partition of the scope has passed.
    pub(super) fn lowest_lsn(&mut self, range: &KeyRange) -> Lsn {
        let ranges = self.container.ranges();
        let overlapping = ranges.iter().filter(|info| info.range.overlaps(range));
        let lowest = overlapping.map(|info| info.lsn.get()).min().unwrap();
        Lsn::new(self.random.below(lowest + 1))
    }

    pub(super) fn check_latest_changes(
        &self,
        range: &KeyRange,
        start: &FeedStart,
        changes: &[Change],
    ) {
        let expected = self.expect_latest(range, |version| match start {
            FeedStart::Beginning => true,
            FeedStart::Now => false,
            FeedStart::After(position) => {
                version.lsn() > position_of(position, &version.epk).unwrap()
            }
            FeedStart::Time(time) => version.second >= time.as_seconds(),
        });
        let seen: BTreeMap<Name, Bytes> =
            changes.iter().map(|change| (name_of(change), change.body())).collect();
        assert_eq!(seen.len(), changes.len(), "every item once: {changes:?}");
        assert_eq!(seen, expected, "{start:?} in {range}");
        check_order(changes);
        for change in changes {
            let index = self.model.live[&name_of(change)];
            assert_eq!(change.kind(), self.model.versions[index].kind(), "{change:?}");
        }
    }

    /// Asserts that nothing newer follows the end, and that reading there again does not move the position.
    pub(super) async fn check_end(&self, reader: &Reader, range: &KeyRange, end: &Continuation) {
        let again = reader.request(FeedStart::After(end.clone()));
        let page = self.container.read_feed(&again).await.unwrap();
        assert!(page.changes.is_empty());
        let unmoved = match (&page.continuation, end) {
            // Parts of one range at the same position are merged into one.
            (Continuation::Single(here), Continuation::Composite { positions, .. }) => {
                positions.iter().all(|position| position.after == *here)
            }
            (here, end) => here == end,
        };
        assert!(unmoved, "{end} became {}", page.continuation);
        for info in self.container.ranges() {
            if let Some(part) = info.range.intersect(range) {
                let position = position_of(end, part.min().as_bytes());
                assert_eq!(position, Some(info.lsn), "{reader:?}: the end is the newest change");
            }
        }
    }

    /// Asserts that a reader that starts at a time gets everything written at or after it.
    pub(super) async fn check_time(&mut self) {
        let (scope, range) = self.random_scope();
        let second = match self.model.versions.last() {
            Some(_) if self.random.chance(80) => {
                let version = self.random.index(self.model.versions.len());
                self.model.versions[version].second + self.random.below(2)
            }
            _ => self.now() + self.random.below(3),
        };
        let start = FeedStart::Time(Timestamp::from_seconds(second));
        let reader = Reader::latest(scope, *self.random.pick(&[1, 3, 100]));
        let (changes, end) = reader.drain(&self.container, start.clone()).await.unwrap();
        self.check_latest_changes(&range, &start, &changes);
        self.check_end(&reader, &range, &end).await;
    }

    /// Compares all versions of a scope after a position, with their previous images, with the model.
    pub(super) async fn check_all_versions(&mut self, scope: &Scope, range: &KeyRange) {
        let after = self.lowest_lsn(range);
        let reader = Reader::all_versions(scope.clone(), *self.random.pick(&[1, 2, 5, 100]));
        let start = |lsn| FeedStart::After(Continuation::Single(lsn));
        let (changes, complete) = match reader.drain(&self.container, start(after)).await {
            Ok((changes, end)) => {
                self.check_end(&reader, range, &end).await;
                (changes, Continuation::Single(after))
            }
            Err(FeedError::BeforeRetention { asked, oldest, position, missing }) => {
                assert!(oldest > asked && asked == after);
                assert!(missing >= oldest.get() - asked.get(), "{missing} between the two");
                self.check_may_be_gone(after, oldest, range);
                let resumed = reader.drain(&self.container, FeedStart::After((*position).clone()));
                let (changes, end) = resumed.await.expect("the position in the error is retained");
                self.check_end(&reader, range, &end).await;
                (changes, *position)
            }
            Err(error) => panic!("{reader:?}: {error}"),
        };
        self.check_oldest(&reader, range, &changes).await;
        let expected: BTreeMap<(PartitionId, Lsn, u16), &Version> = self
            .model
            .versions
            .iter()
            .filter(|version| range.contains(&version.epk))
            .filter(|version| version.lsn() > position_of(&complete, &version.epk).unwrap())
            .map(|version| (version.at, version))
            .collect();
        assert_eq!(changes.len(), expected.len(), "{changes:?} {:?}", expected.keys());
        let mut ordinals: BTreeMap<(PartitionId, Lsn), Vec<&Change>> = BTreeMap::new();
        for change in &changes {
            ordinals.entry((change.partition(), change.lsn())).or_default().push(change);
        }
        for ((origin, lsn), entry) in ordinals {
            let of_entry = (origin, lsn, 0)..=(origin, lsn, u16::MAX);
            let versions: Vec<&&Version> = expected.range(of_entry).map(|(_, one)| one).collect();
            assert_eq!(entry.len(), versions.len(), "{origin} {lsn}");
            for (change, version) in entry.iter().zip(versions) {
                let floor = position_of(&complete, &version.epk).unwrap();
                self.check_change(change, version, floor);
            }
        }
        check_order(&changes);
    }

    /// Reads all versions from the oldest retained one. Asserts that they include everything younger than the
    /// retention, and everything that a reader with a position got.
    async fn check_oldest(&self, reader: &Reader, range: &KeyRange, given: &[Change]) {
        let read = reader.drain(&self.container, FeedStart::Beginning).await;
        let (changes, end) = read.expect("all versions begin with the oldest retained one");
        self.check_end(reader, range, &end).await;
        check_order(&changes);
        let seen: BTreeSet<(PartitionId, Lsn, Name)> = sequence(&changes).into_iter().collect();
        for one in sequence(given) {
            assert!(seen.contains(&one), "{one:?} was given after a position only");
        }
        let young_from = self.now().saturating_sub(self.retention.as_secs()) + 1;
        let young = self.model.versions.iter().filter(|version| {
            !self.retention.is_zero()
                && version.second >= young_from
                && range.contains(&version.epk)
        });
        for version in young {
            let (origin, lsn, _) = version.at;
            let is_seen = seen.contains(&(origin, lsn, version.name()));
            assert!(is_seen, "{version:?} is not older than {:?}", self.retention);
        }
    }

    pub(super) fn check_change(&self, change: &Change, version: &Version, complete: Lsn) {
        assert_eq!(name_of(change), version.name());
        assert_eq!((change.kind(), change.is_expiry()), (version.kind(), version.expiry));
        assert_eq!(change.timestamp().as_seconds(), version.second, "{change:?}");
        assert_eq!(change.hashed_key(), version.epk);
        let (body, expected) = (change.body(), version.item.as_ref());
        assert_eq!(&body, expected.map_or(&Bytes::new(), |(_, bytes)| bytes));
        let Some(previous) = version.previous.map(|index| &self.model.versions[index]) else {
            assert!(change.previous().is_none() && change.previous_lsn().is_none());
            return;
        };
        assert_eq!(change.previous_lsn(), Some(previous.lsn()));
        let image = &previous.item.as_ref().unwrap().1;
        match change.previous() {
            Some(found) => assert_eq!(found.feed_bytes(), image, "the image before {change:?}"),
            None => assert!(previous.lsn() <= complete, "the image before {change:?} is kept"),
        }
    }

    /// Asserts that a position was rejected only because a version after it is beyond the retention.
    pub(super) fn check_may_be_gone(&self, after: Lsn, oldest: Lsn, range: &KeyRange) {
        let kept_from = self.now().saturating_sub(self.retention.as_secs());
        let dropped = |version: &Version| {
            let old = self.retention.is_zero() || version.second <= kept_from;
            let gone = version.item.is_none()
                || self
                    .model
                    .live
                    .get(&version.name())
                    .is_none_or(|index| self.model.versions[*index].at != version.at);
            old && gone && version.lsn() > after && version.lsn() <= oldest
        };
        // A partition is complete from a single position on, and passes it on when it is split or merged.
        let ranges = self.container.ranges();
        let in_partition = |version: &&Version| {
            let of_version = ranges.iter().find(|info| info.range.contains(&version.epk)).unwrap();
            self.reshaped || of_version.range.overlaps(range)
        };
        let any = self.model.versions.iter().filter(in_partition).any(dropped);
        assert!(any, "all versions between {after} and {oldest} in {range} must be retained");
    }

    /// Lets all followers read on from their positions and compares their copies with the model.
    pub(super) async fn follow(&mut self) {
        for number in 0..self.followers.len() {
            let page_size = *self.random.pick(&[1, 4, 100]);
            let (mode, position) =
                (self.followers[number].mode, self.followers[number].position.clone());
            let reader = Reader { scope: Scope::Container, mode, page_size };
            let read = reader.drain(&self.container, FeedStart::After(position.clone())).await;
            let mut copy = std::mem::take(&mut self.followers[number].copy);
            let end = match read {
                Ok((changes, end)) => {
                    if mode == FeedMode::LatestVersion {
                        self.check_latest_changes(
                            &KeyRange::full(),
                            &FeedStart::After(position),
                            &changes,
                        );
                    }
                    let started_over = self.followers[number].started_over;
                    for change in &changes {
                        take_over(&mut copy, change, started_over);
                    }
                    end
                }
                Err(FeedError::BeforeRetention { .. }) => {
                    assert!(
                        self.retention < DAY,
                        "{mode:?} after {position}: nothing is a day old"
                    );
                    // As the error advises: start over from latest versions and continue from there.
                    let latest = Reader::latest(Scope::Container, page_size);
                    let read = latest.drain(&self.container, FeedStart::Beginning).await;
                    let (changes, end) = read.unwrap();
                    copy = changes.iter().map(|one| (name_of(one), one.body())).collect();
                    self.followers[number].started_over = true;
                    end
                }
                Err(error) => panic!("{reader:?} after {position}: {error}"),
            };
            let expected = self.expect_latest(&KeyRange::full(), |_| true);
            for (name, bytes) in &expected {
                assert_eq!(copy.get(name), Some(bytes), "{mode:?}: a follower missed {name:?}");
            }
            if mode == FeedMode::AllVersionsAndDeletes {
                let kept = copy.keys().filter(|name| !self.model.live.contains_key(*name));
                assert_eq!(kept.count(), 0, "a follower of all versions knows every delete");
            }
            self.followers[number].copy = copy;
            self.followers[number].position = end;
        }
    }

    /// Asserts that point reads and scans match the feed.
    pub(super) async fn check_reads(&mut self) {
        for _ in 0..5 {
            let (key, id) = (self.random_key(), self.random_id());
            let found = self.container.read(key.clone(), &id).await.unwrap();
            let found = found.map(|item| item.feed_bytes().clone());
            let expected = self
                .expect_latest(&KeyRange::full(), |version| version.key == key && version.id == id);
            assert_eq!(found.as_ref(), expected.values().next());
        }
        let limit = headwater_store::PageLimit::items(10_000).unwrap();
        let scope = headwater_store::ScanScope::Container;
        let page = self.container.scan(&scope, None, limit).await.unwrap();
        let mut seen: Vec<Bytes> =
            page.items.iter().map(|item| item.feed_bytes().clone()).collect();
        let mut expected: Vec<Bytes> =
            self.expect_latest(&KeyRange::full(), |_| true).into_values().collect();
        seen.sort();
        expected.sort();
        assert_eq!(seen, expected);
    }
}

pub(super) fn name_of(change: &Change) -> Name {
    (change.partition_key().to_json(), change.id().to_owned())
}

pub(super) fn sequence(changes: &[Change]) -> Vec<(PartitionId, Lsn, Name)> {
    changes.iter().map(|one| (one.partition(), one.lsn(), name_of(one))).collect()
}

/// The item without its system properties.
pub(super) fn user_part(item: &Item) -> Value {
    let mut value: Value = item.parse().unwrap();
    let members = value.as_object_mut().unwrap();
    for system in ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"] {
        assert!(members.remove(system).is_some(), "{system} is missing");
    }
    value
}

/// Asserts that the changes of each partition key come in the order in which they were made.
pub(super) fn check_order(changes: &[Change]) {
    let mut last: BTreeMap<&[u8], Lsn> = BTreeMap::new();
    for change in changes {
        let before = last.insert(change.hashed_key(), change.lsn());
        assert!(before.is_none_or(|before| before <= change.lsn()), "{changes:?}");
    }
}

/// Applies one change to a copy. A copy that was started over from latest versions may lack items that were
/// expired then and not yet deleted.
pub(super) fn take_over(copy: &mut BTreeMap<Name, Bytes>, change: &Change, started_over: bool) {
    match change.kind() {
        ChangeKind::Delete => {
            let known = copy.remove(&name_of(change)).is_some();
            assert!(known || started_over, "the copy lacks the item of {change:?}");
        }
        _ => {
            copy.insert(name_of(change), change.body());
        }
    }
}
