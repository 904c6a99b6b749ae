//! Readers of the change feed, of every mode and scope, and scans.
//!
//! A reader's position survives a crash of the machine, and the reader continues from it with the reopened store.
//! Some readers read without a pause, some wait for changes, some do not read for a long time.

use super::checks::{self, Delivered};
use super::resume::resume;
use super::writer::observe;
use super::{Scene, SharedReader};
use crate::invariants::{Checked, Invariant, require};
use crate::model::{Key, Moment, Seen, Token};
use crate::sabotage::Kept;
use crate::setup::Setup;
use crate::witness::{Testimony, explain};
use headwater_model::{
    Continuation, Epk, FeedMode, FeedStart, KeyRange, Lsn, PageLimit, PartitionId, RangePosition,
    Timestamp,
};
use headwater_runtime::{Random, Runtime};
use headwater_store::{
    Change, Container, FeedError, FeedPage, FeedRequest, ScanPosition, ScanScope,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Number of pages after which a reader must have reached the end.
const PAGES_MAX: usize = 20_000;

/// The keys that a reader reads.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// The whole container at once.
    Container,
    /// The whole container, range by range, following splits and merges.
    Ranges,
    /// One partition key.
    Key(usize),
    /// Some hashes.
    Hashes(KeyRange),
}

/// A reader of the change feed, with its position and everything it received.
pub(crate) struct Reader {
    pub(super) name: String,
    pub(super) mode: FeedMode,
    pub(super) scope: Scope,
    start: FeedStart,
    /// Whether it was created by an audit, to check what a reader that starts now receives.
    is_late: bool,
    /// The continuation from the store; `None` before the first page.
    continuation: Option<Continuation>,
    /// The current positions.
    pub(super) positions: Vec<RangePosition>,
    /// Whether a power cut took its position.
    pub(super) is_ahead: bool,
    /// The ranges still to be read in this round, for a reader of single ranges.
    pub(super) ranges: Vec<(PartitionId, KeyRange)>,
    pub(super) delivered: Delivered,
    /// The ranges in which it last reached the end, each with a moment after which everything newer
    /// was written.
    caught_up: Vec<(KeyRange, Moment)>,
    kept: Kept,
}

/// A change, its item, and the version it shows; `None` for a delete.
type MetChange<'a> = (Key, &'a Change, Option<Seen>);

/// One request, and the keys that it covers.
pub(super) struct Request {
    pub(super) request: FeedRequest,
    pub(super) about: KeyRange,
    pub(super) before: Vec<RangePosition>,
    pub(super) start: Option<Lsn>,
}

impl Reader {
    pub(crate) fn new(name: &str, mode: FeedMode, scope: Scope, start: FeedStart) -> Reader {
        Reader {
            name: name.to_owned(),
            mode,
            scope,
            start,
            is_late: false,
            continuation: None,
            positions: Vec::new(),
            is_ahead: false,
            ranges: Vec::new(),
            delivered: Delivered::default(),
            caught_up: Vec::new(),
            kept: Kept::default(),
        }
    }

    /// Creates the readers that exist from the beginning.
    pub(crate) fn crew(setup: &Setup, random: &mut Random) -> Vec<SharedReader> {
        let mut readers = Vec::new();
        let latest = FeedMode::LatestVersion;
        let all = FeedMode::AllVersionsAndDeletes;
        let all_from = match setup.writers % 2 {
            0 => FeedStart::Beginning,
            _ => FeedStart::Now,
        };
        for (mode, start) in [(latest, FeedStart::Beginning), (all, all_from)] {
            let key = Scope::Key(random.index(setup.keys.len()));
            let hashes = Scope::Hashes(setup.some_hashes(random));
            for scope in [Scope::Container, Scope::Ranges, key, hashes] {
                let name = format!("{mode:?} of {scope:?}");
                let reader = Reader::new(&name, mode, scope, start.clone());
                readers.push(Arc::new(Mutex::new(reader)));
            }
        }
        readers
    }

    /// Creates a reader that starts now and reads the live items.
    pub(crate) fn late(scope: Scope, start: FeedStart) -> Reader {
        let name = format!("late reader of {scope:?}");
        Reader { is_late: true, ..Reader::new(&name, FeedMode::LatestVersion, scope, start) }
    }

    fn about(&self, setup: &Setup) -> KeyRange {
        match &self.scope {
            Scope::Container | Scope::Ranges => KeyRange::full(),
            Scope::Key(pk) => KeyRange::point(&setup.keys[*pk].epk),
            Scope::Hashes(range) => range.clone(),
        }
    }

    pub(super) fn request(&mut self, scene: &Scene, random: &mut Random) -> Option<Request> {
        let container = &scene.store.container;
        let about = self.about(&scene.setup);
        let start = match (&self.start, self.mode) {
            (FeedStart::Beginning, FeedMode::LatestVersion) => Some(Lsn::ZERO),
            // The position of the oldest kept versions is known only with the first page.
            _ => None,
        };
        if matches!(self.scope, Scope::Ranges) {
            return self.range_request(container, start, random);
        }
        let from = match &self.continuation {
            None => self.start.clone(),
            // As text, as it travels.
            Some(position) => FeedStart::After(through_text(position, &scene.runtime)),
        };
        let request = FeedRequest::new(from).mode(self.mode);
        let request = match &self.scope {
            Scope::Key(pk) => request.of_key(scene.setup.keys[*pk].key.clone()),
            Scope::Hashes(range) => request.of_hashes(range.clone()),
            Scope::Container | Scope::Ranges => request,
        };
        Some(Request { request, about, before: self.positions.clone(), start })
    }

    /// Returns the request for the next range of this round.
    fn range_request(
        &mut self,
        container: &Container,
        start: Option<Lsn>,
        random: &mut Random,
    ) -> Option<Request> {
        if self.ranges.is_empty() {
            self.ranges = ranges_of(container);
        }
        let (id, about) = self.ranges.swap_remove(random.index(self.ranges.len()));
        let mut before = overlap(&self.positions, &about);
        let current = container.ranges().into_iter().find(|range| range.id == id);
        if let Some(newest) = current.filter(|_| !before.is_empty()).map(|range| range.lsn) {
            // A range that it had not read yet was merged with one that it had: it begins there now.
            for gap in gaps(before.iter().map(|position| &position.range), &about) {
                let begins = RangePosition { range: gap, after: start.unwrap_or(newest) };
                self.delivered.begin(begins.clone());
                before.push(begins);
            }
            before.sort_by(|one, two| one.range.min().cmp(two.range.min()));
        }
        let from = match &before[..] {
            [] => self.start.clone(),
            [one] => FeedStart::After(Continuation::Single(one.after)),
            several => {
                let composite = Continuation::composite(container.rid(), several.to_vec()).ok()?;
                FeedStart::After(composite)
            }
        };
        let request = FeedRequest::new(from).mode(self.mode).of_range(id);
        Some(Request { request, about, before, start })
    }

    /// Checks and records a page. Returns true if there was nothing newer.
    fn take(
        &mut self,
        page: &FeedPage,
        request: &Request,
        setup: &Setup,
        known: &mut Testimony,
    ) -> Result<bool, crate::invariants::Violation> {
        let (before, about) = (&request.before, &request.about);
        self.delivered.take(page, self.mode, before, request.start, about)?;
        for (key, change, seen) in self.meet_changes(page, setup, known)? {
            if self.mode == FeedMode::AllVersionsAndDeletes {
                self.delivered.follow(key, change, seen, &known.model)?;
            }
        }
        let now = checks::positions(&page.continuation, about);
        let elsewhere = self.positions.iter().flat_map(|old| minus(old, about));
        self.positions = elsewhere.chain(now).collect();
        self.positions.sort_by(|one, two| one.range.min().cmp(two.range.min()));
        self.continuation = Some(page.continuation.clone());
        let empty = page.changes.is_empty();
        self.caught_up = outside(&self.caught_up, about);
        if empty {
            self.caught_up.push((about.clone(), known.quiet_since));
        }
        Ok(empty)
    }

    /// Reports every change of a page to the model.
    pub(super) fn meet_changes<'a>(
        &self,
        page: &'a FeedPage,
        setup: &Setup,
        known: &mut Testimony,
    ) -> Result<Vec<MetChange<'a>>, crate::invariants::Violation> {
        let mut met = Vec::with_capacity(page.changes.len());
        for change in &page.changes {
            let Some(key) = setup.key_of(&change.partition_key(), change.id()) else {
                let what = format!("{change:?} is of an item that was never written");
                return crate::invariants::broken(Invariant::AnEtagNamesOneContent, what);
            };
            let seen = Seen::of_change(change);
            match (self.mode, &seen) {
                (FeedMode::LatestVersion, seen) => {
                    let otherwise = Invariant::ReadsShowTheNewestVersion;
                    known.model.observe(key, seen.as_ref(), otherwise)?;
                }
                (FeedMode::AllVersionsAndDeletes, Some(seen)) => known.model.meet(key, seen)?,
                (FeedMode::AllVersionsAndDeletes, None) => {}
            }
            met.push((key, change, seen));
        }
        Ok(met)
    }

    /// Returns for how long it has not reached the end of a range; `None` if it never did.
    fn away_from(&self, about: &KeyRange, known: &Testimony) -> Option<u64> {
        let parts = self.caught_up.iter().filter(|(range, _)| range.intersect(about).is_some());
        let is_known = gaps(parts.clone().map(|(range, _)| range), about).is_empty();
        let longest = parts.map(|(_, moment)| known.model.millis_since(moment)).max();
        longest.filter(|_| is_known)
    }

    /// Restarts with the oldest kept versions, after those at its position were dropped.
    pub(super) fn begin_again(&mut self) {
        self.is_ahead = false;
        self.continuation = None;
        self.positions.clear();
        self.ranges.clear();
        self.delivered = Delivered::default();
        self.caught_up.clear();
        self.start = FeedStart::Beginning;
    }

    /// Checks at the end that it has received everything it should have.
    pub(crate) fn check_end(
        &self,
        truth: &BTreeMap<Key, Seen>,
        setup: &Setup,
        known: &Testimony,
    ) -> Checked {
        let named = |checked: Checked| {
            checked.map_err(|mut violation| {
                violation.what = format!("{}: {}", self.name, violation.what);
                violation
            })
        };
        if self.mode == FeedMode::AllVersionsAndDeletes {
            let all = self.delivered.check_all(truth, &self.positions, setup, &known.model);
            return named(all);
        }
        if !self.is_late {
            let latest = self.delivered.check_latest(truth, &self.positions, setup, &known.model);
            return named(latest);
        }
        match self.start {
            FeedStart::Time(time) => named(self.check_since(time, truth, setup)),
            _ => named(self.delivered.check_late(truth, &self.about(setup), setup)),
        }
    }

    /// Checks that it has received everything written at or after a time.
    fn check_since(&self, time: Timestamp, truth: &BTreeMap<Key, Seen>, setup: &Setup) -> Checked {
        let about = self.about(setup);
        for (key, seen) in truth {
            let asked = seen.written >= time.as_seconds() && about.contains(setup.epk(*key));
            let given = self.delivered.has(seen.etag);
            require(!asked || given, Invariant::ALateReaderSeesTheLiveSet, || {
                format!("{key} was written at {} and is missing since {time:?}", seen.written)
            })?;
        }
        Ok(())
    }
}

fn ranges_of(container: &Container) -> Vec<(PartitionId, KeyRange)> {
    container.ranges().into_iter().map(|range| (range.id, range.range)).collect()
}

fn overlap(positions: &[RangePosition], about: &KeyRange) -> Vec<RangePosition> {
    let inside = positions.iter().filter_map(|position| {
        let range = position.range.intersect(about)?;
        Some(RangePosition { range, after: position.after })
    });
    inside.collect()
}

/// Returns the parts of a position outside of a range.
fn minus(position: &RangePosition, about: &KeyRange) -> Vec<RangePosition> {
    let KeyRangeEnds { below, above } = KeyRangeEnds::around(&position.range, about);
    let at = |range| RangePosition { range, after: position.after };
    below.into_iter().chain(above).map(at).collect()
}

/// Returns the parts of noted ranges outside of a range.
fn outside(noted: &[(KeyRange, Moment)], about: &KeyRange) -> Vec<(KeyRange, Moment)> {
    let left = noted.iter().flat_map(|(range, moment)| {
        let KeyRangeEnds { below, above } = KeyRangeEnds::around(range, about);
        below.into_iter().chain(above).map(|range| (range, *moment))
    });
    left.collect()
}

/// Returns the parts of a range that none of the others covers.
fn gaps<'a>(others: impl Iterator<Item = &'a KeyRange>, about: &KeyRange) -> Vec<KeyRange> {
    let mut gaps = vec![about.clone()];
    for other in others {
        let left = gaps.iter().flat_map(|gap| {
            let KeyRangeEnds { below, above } = KeyRangeEnds::around(gap, other);
            below.into_iter().chain(above)
        });
        gaps = left.collect();
    }
    gaps
}

struct KeyRangeEnds {
    below: Option<KeyRange>,
    above: Option<KeyRange>,
}

impl KeyRangeEnds {
    fn around(range: &KeyRange, hole: &KeyRange) -> KeyRangeEnds {
        let (min, max) = (range.min().clone(), range.max().clone());
        let below_end = max.clone().min(hole.min().clone());
        let above_start = min.clone().max(hole.max().clone());
        KeyRangeEnds {
            below: KeyRange::new(min, below_end).ok(),
            above: KeyRange::new(above_start, max).ok(),
        }
    }
}

fn through_text(position: &Continuation, runtime: &Runtime) -> Continuation {
    if runtime.random().is_multiple_of(2) {
        return position.clone();
    }
    position.to_string().parse().unwrap_or_else(|_| position.clone())
}

/// Formats a position for people.
fn brief(continuation: &Continuation) -> String {
    let Continuation::Composite { positions, .. } = continuation else {
        return format!("@{continuation}");
    };
    let short = |epk: &Epk| epk.to_hex().chars().take(4).collect::<String>();
    let parts = positions.iter().map(|position| {
        let (min, max) = (short(position.range.min()), short(position.range.max()));
        format!("{min}..{max}:{}", position.after)
    });
    format!("@[{}]", parts.collect::<Vec<_>>().join(" "))
}

pub(super) fn draw_limit(setup: &Setup, random: &mut Random) -> PageLimit {
    if random.chance(setup.profile.tiny_pages) {
        let items = 1 + u32::try_from(random.below(3)).unwrap_or(0);
        let bytes = *random.pick(&[1, 300, 100_000]);
        return PageLimit::new(items, bytes).unwrap_or_default();
    }
    PageLimit::items(1 + u32::try_from(random.below(60)).unwrap_or(0)).unwrap_or_default()
}

/// The result of reading a page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// There may be more.
    More,
    /// There is nothing newer.
    End,
    /// The reader cannot continue.
    Broken,
}

/// Reads one page.
pub(crate) async fn turn(
    scene: &Scene,
    reader: &Mutex<Reader>,
    wait: Duration,
    random: &mut Random,
) -> Turn {
    let Some(request) = reader.lock().request(scene, random) else {
        return Turn::Broken;
    };
    let feed_request = request.request.clone().limit(draw_limit(&scene.setup, random)).wait(wait);
    let reading = scene.store.container.read_feed(&feed_request);
    let Some(result) = scene.call("a page", reading).await else {
        return Turn::Broken;
    };
    let mut reader = reader.lock();
    let mut page = match result {
        Ok(page) => page,
        Err(error) => return refused(scene, &mut reader, &request, &error),
    };
    if let Some(sabotage) = scene.setup.profile.sabotage {
        let (mode, is_late) = (reader.mode, reader.is_late);
        sabotage.mangle(&mut page, mode, is_late, &mut reader.kept, random);
    }
    let line = format!("{}: {:?} {}", reader.name, page.changes, brief(&page.continuation));
    let taken = scene
        .witness
        .tell(&scene.runtime, &line, |known| reader.take(&page, &request, &scene.setup, known));
    match taken {
        Ok(true) if reader.ranges.is_empty() => Turn::End,
        Ok(_) => Turn::More,
        Err(mut violation) => {
            violation.what = format!("{}: {}", reader.name, violation.what);
            scene.witness.judge(Err(violation));
            Turn::Broken
        }
    }
}

pub(super) fn refused(
    scene: &Scene,
    reader: &mut Reader,
    request: &Request,
    error: &FeedError,
) -> Turn {
    let line = format!("{}: refused: {}", reader.name, explain(error));
    let since =
        scene.witness.tell(&scene.runtime, &line, |known| reader.away_from(&request.about, known));
    let (invariant, excused) = match error {
        FeedError::RangeGone(id) => {
            let gone = scene.store.container.ranges().iter().all(|range| range.id != *id);
            reader.ranges.clear();
            (Invariant::PositionsStayValid, gone && matches!(reader.scope, Scope::Ranges))
        }
        FeedError::BeforeRetention { .. } => {
            let kept = u64::try_from(scene.setup.retention.as_millis()).unwrap_or(0);
            let stayed_away =
                scene.setup.is_history_bounded || since.is_none_or(|millis| millis >= kept);
            let all = reader.mode == FeedMode::AllVersionsAndDeletes;
            // The oldest kept version always exists.
            let has_position =
                !request.before.is_empty() || !matches!(reader.start, FeedStart::Beginning);
            reader.begin_again();
            (Invariant::AllVersionsAreKept, all && stayed_away && has_position)
        }
        FeedError::Storage(_) => (Invariant::NothingFailsWithoutAFault, false),
        _ => (Invariant::PositionsStayValid, false),
    };
    let checked = require(excused, invariant, || {
        format!("{} of {} at {:?}", line, request.about, request.before)
    });
    scene.witness.judge(checked);
    Turn::More
}

/// Reads a random number of pages.
pub(super) async fn read(scene: Scene, reader: SharedReader, mut random: Random) {
    // Some do not read in the whole phase.
    let pages = if random.chance(20) { 0 } else { random.below(40) };
    for _ in 0..pages {
        if scene.should_stop() {
            return;
        }
        let wait = match random.below(4) {
            0 => Duration::from_millis(1 + random.below(200)),
            _ => Duration::ZERO,
        };
        match turn(&scene, &reader, wait, &mut random).await {
            Turn::More => {}
            Turn::End => scene.rest(&mut random).await,
            Turn::Broken => return,
        }
        if random.chance(40) {
            scene.rest(&mut random).await;
        }
    }
}

/// Reads to the end, without time passing.
pub(crate) async fn drain(scene: &Scene, reader: &Mutex<Reader>, random: &mut Random) {
    if reader.lock().is_ahead {
        resume(scene, reader, random).await;
    }
    // A reader of single ranges must have reached the end of each.
    let mut ends = 0;
    for _ in 0..PAGES_MAX {
        let rounds = match reader.lock().scope {
            Scope::Ranges => 2,
            _ => 1,
        };
        if scene.witness.has_objected() {
            return;
        }
        match turn(scene, reader, Duration::ZERO, random).await {
            Turn::More => {}
            Turn::End => ends += 1,
            Turn::Broken => return,
        }
        if ends >= rounds && reader.lock().is_at_end(scene) {
            return;
        }
    }
    let name = reader.lock().name.clone();
    scene.witness.object(Invariant::EveryCallEnds, format!("{name} never came to the end"));
}

impl Reader {
    /// Returns whether its position is at the end of every range.
    fn is_at_end(&self, scene: &Scene) -> bool {
        let about = self.about(&scene.setup);
        scene.store.container.ranges().iter().all(|range| {
            let Some(wanted) = range.range.intersect(&about) else {
                return true;
            };
            let here = overlap(&self.positions, &wanted);
            !here.is_empty() && here.iter().all(|position| position.after >= range.lsn)
        })
    }
}

/// Scans the container page by page, while it changes.
pub(super) async fn scan(scene: Scene, mut random: Random) {
    for _ in 0..random.below(4) {
        scene.rest(&mut random).await;
        if scene.should_stop() || scan_once(&scene, &mut random).await.is_none() {
            return;
        }
    }
}

/// Checks that items that exist during a whole scan are seen exactly once.
async fn scan_once(scene: &Scene, random: &mut Random) -> Option<()> {
    let certain = |known: &mut Testimony| -> BTreeMap<Key, Token> {
        let keys = known.model.keys();
        keys.into_iter().filter_map(|key| Some((key, known.model.certain(key)?))).collect()
    };
    let before = scene.witness.tell(&scene.runtime, "scan begins", certain);
    let mut found: BTreeMap<Key, Vec<Token>> = BTreeMap::new();
    let mut position: Option<ScanPosition> = None;
    loop {
        let asked = scene.witness.ask(|known| known.model.moment());
        let (items, next) = scan_page(scene, &ScanScope::Container, position, random).await?;
        // A scan may wait for a writer in the middle of a page, while other tasks continue.
        let at_once = scene.witness.ask(|known| known.model.moment()) == asked;
        for (key, seen) in items {
            if at_once {
                observe(scene, key, Some(seen), Invariant::ReadsShowTheNewestVersion);
            }
            found.entry(key).or_default().push(seen.token);
        }
        position = next;
        if position.is_none() {
            break;
        }
        scene.rest(random).await;
    }
    let after = scene.witness.tell(&scene.runtime, "scan ends", certain);
    for (key, token) in before.iter().filter(|(key, token)| after.get(key) == Some(token)) {
        let seen = found.get(key).map(Vec::as_slice).unwrap_or_default();
        let checked = require(seen == [*token], Invariant::ViewsAgree, || {
            format!("{key} was version {token} during a whole scan, which saw {seen:?}")
        });
        scene.witness.judge(checked);
    }
    Some(())
}

/// Reads one page of a scan; `None` if it failed.
pub(crate) async fn scan_page(
    scene: &Scene,
    scope: &ScanScope,
    after: Option<ScanPosition>,
    random: &mut Random,
) -> Option<(Vec<(Key, Seen)>, Option<ScanPosition>)> {
    let limit = draw_limit(&scene.setup, random);
    // As text, as it travels.
    let after = after.map(|position| ScanPosition::from_text(&position.to_string()));
    let page = match scene.store.container.scan(scope, after.as_ref(), limit).await {
        Ok(page) => page,
        Err(error) => {
            scene.witness.object(Invariant::NothingFailsWithoutAFault, explain(&error));
            return None;
        }
    };
    let mut items = Vec::with_capacity(page.items.len());
    for item in &page.items {
        let seen = Seen::of(item);
        let key = scene.witness.ask(|known| known.model.version(seen.token).map(|found| found.key));
        let Some(key) = key else {
            let what = format!("a scan shows {item:?}, which nobody wrote");
            scene.witness.object(Invariant::AnEtagNamesOneContent, what);
            return None;
        };
        items.push((key, seen));
    }
    Some((items, page.next))
}
