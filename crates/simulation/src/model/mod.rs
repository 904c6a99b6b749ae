//! The reference model: derives what must be true from all calls and answers so far.
//!
//! The model knows nothing of logs, segments or indexes. It has calls, which are answered, refused or
//! left in doubt by a crash; versions, each with a token in its body; and items, each with its possible
//! states. It checks every answer and every read against them.

mod clock;
mod item;
mod loss;
mod step;
mod versions;

use crate::invariants::{Checked, Invariant, broken, require};
use clock::Clock;
use headwater_model::{Etag, Lsn};
use item::{Around, Expected, ItemModel};
use loss::Loss;
use std::collections::BTreeMap;
use versions::Versions;

pub use clock::{Moment, Window};
pub use item::Rules;
pub use loss::{CutOutcome, LogEnds, Place};
pub use step::{Answer, Condition, Key, Put, Shape, State, Step, Token};
pub use versions::{Seen, Version};

/// Names a call.
pub type CallId = usize;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Done,
    Refused,
    InDoubt,
    /// It was in doubt until the audit after a crash.
    Settled,
    /// A power cut took it.
    Lost,
}

#[derive(Debug)]
struct Call {
    steps: Vec<(Key, Step)>,
    is_batch: bool,
    invoked: Moment,
    fate: Fate,
    /// The event at which it was answered.
    answered: Option<u64>,
    /// Its place in a log, if known.
    place: Option<Place>,
}

impl Call {
    fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.steps.iter().map(|(key, _)| *key).collect();
        keys.sort();
        keys.dedup();
        keys
    }
}

/// The answer that a caller received.
#[derive(Debug)]
pub enum Reply {
    /// Each step was done, with this answer and this version where there is one, at this place if it
    /// wrote anything.
    Done(Vec<(Answer, Option<Seen>)>, Option<Place>),
    /// One step was refused, and therefore all.
    Refused(usize, Answer),
    /// It was refused for a reason that has nothing to do with items: nothing was done.
    NoEffect,
    /// The items that the partition key had are deleted.
    KeyDeleted,
    /// It may have happened or not.
    InDoubt,
}

/// The reference model of a container.
#[derive(Debug)]
pub struct Model {
    rules: Rules,
    clock: Clock,
    versions: Versions,
    items: BTreeMap<Key, ItemModel>,
    calls: Vec<Call>,
    event: u64,
    next_token: Token,
    /// Versions that were not shown although no call deleted them, so they have expired.
    expired: BTreeMap<Token, u32>,
    /// How often the store was opened.
    incarnation: u32,
    loss: Loss,
    /// How often there were too many stories to follow.
    pub tracks_lost: u64,
}

impl Model {
    /// Creates the model of an empty container with these rules.
    #[must_use]
    pub fn new(rules: Rules, keys: impl Iterator<Item = Key>) -> Model {
        Model {
            rules,
            clock: Clock::default(),
            versions: Versions::default(),
            items: keys.map(|key| (key, ItemModel::default())).collect(),
            calls: Vec::new(),
            event: 0,
            next_token: 1,
            expired: BTreeMap::new(),
            incarnation: 0,
            loss: Loss::default(),
            tracks_lost: 0,
        }
    }

    /// Records the machine's clock; must be called before each event.
    pub fn clock_shows(&mut self, millis: u64) {
        self.clock.read(millis);
        self.event += 1;
    }

    /// Returns the current moment.
    #[must_use]
    pub fn moment(&self) -> Moment {
        self.clock.moment(self.event)
    }

    /// Returns the milliseconds since a moment, by the clock that shows the most.
    #[must_use]
    pub fn millis_since(&self, moment: &Moment) -> u64 {
        self.clock.millis_since(moment)
    }

    /// Returns an unused token.
    pub fn next_token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    /// Returns the version with this etag, if it was ever seen.
    #[must_use]
    pub fn token_of(&self, etag: Etag) -> Option<Token> {
        self.versions.token_of(etag)
    }

    /// Returns what is known of a version.
    #[must_use]
    pub fn version(&self, token: Token) -> Option<&Version> {
        self.versions.get(token)
    }

    /// Returns the keys of all possible items.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.items.keys().copied().collect()
    }

    /// Returns every version that was seen, so certainly existed.
    pub fn versions_seen(&self) -> impl Iterator<Item = (&Version, &Seen)> {
        self.versions.seen()
    }

    /// Records the start of a call.
    pub fn invoke(&mut self, steps: Vec<(Key, Step)>, is_batch: bool) -> CallId {
        let id = self.calls.len();
        let invoked = self.moment();
        for (key, step) in &steps {
            if let Some(token) = step.token() {
                self.versions.expect(token, *key, id, invoked);
            }
        }
        let call = Call { steps, is_batch, invoked, fate: Fate::Open, answered: None, place: None };
        for key in call.keys() {
            let own = call.steps.iter().filter(|(other, _)| *other == key);
            let steps = own.map(|(_, step)| *step).collect();
            self.items.entry(key).or_default().invoke(id, steps, invoked);
        }
        self.calls.push(call);
        id
    }

    /// Records the start of a call that deletes all items of a partition key.
    pub fn invoke_delete_key(&mut self, pk: usize) -> CallId {
        let asked = self.event;
        let keys = self.items.keys().filter(|key| key.pk == pk);
        let steps = keys.map(|key| (*key, Step::DeleteOld(asked))).collect();
        self.invoke(steps, false)
    }

    /// Records the answer of a call.
    pub fn respond(&mut self, id: CallId, reply: &Reply) -> Checked {
        let fate = match reply {
            Reply::Done(..) | Reply::KeyDeleted => Fate::Done,
            Reply::Refused(..) | Reply::NoEffect => Fate::Refused,
            Reply::InDoubt => Fate::InDoubt,
        };
        self.calls[id].fate = fate;
        self.calls[id].answered = (fate != Fate::InDoubt).then_some(self.event);
        match reply {
            Reply::Done(answers, place) => {
                self.calls[id].place = *place;
                self.done(id, answers)
            }
            Reply::Refused(index, answer) => self.refused(id, *index, *answer),
            Reply::NoEffect => self.end_all(id, &Expected::NoEffect),
            Reply::KeyDeleted => self.end_all(id, &Expected::Anything),
            Reply::InDoubt => {
                for key in self.calls[id].keys() {
                    self.item(key).doubt(id);
                }
                Ok(())
            }
        }
    }

    fn item(&mut self, key: Key) -> &mut ItemModel {
        self.items.entry(key).or_default()
    }

    fn done(&mut self, id: CallId, answers: &[(Answer, Option<Seen>)]) -> Checked {
        let steps = self.calls[id].steps.clone();
        let lsn = answers.iter().filter(|(answer, _)| !matches!(answer, Answer::Read(_)));
        let lsns: Vec<Lsn> = lsn.filter_map(|(_, seen)| Some(seen.as_ref()?.lsn)).collect();
        require(lsns.windows(2).all(|two| two[0] == two[1]), Invariant::AnswersAreTrue, || {
            format!("call {id} is one transaction but has LSNs {lsns:?}")
        })?;
        for ((key, step), (answer, seen)) in steps.iter().zip(answers) {
            let Some(seen) = seen else { continue };
            self.versions.meet(*key, seen, self.event)?;
            let made = step.token().is_none_or(|token| token == seen.token);
            require(made, Invariant::AnswersAreTrue, || {
                format!("{key}: call {id} wrote {step:?} and was told {answer:?} {seen:?}")
            })?;
            let before = self.item(*key).newest_before(id);
            let newer = matches!(answer, Answer::Read(_)) || seen.lsn > before;
            require(newer, Invariant::AnEtagNamesOneContent, || {
                format!("{key}: call {id} got LSN {}, but {before} was there before it", seen.lsn)
            })?;
        }
        for key in self.calls[id].keys() {
            let own = steps.iter().zip(answers).filter(|((other, _), _)| *other == key);
            let own: Vec<&(Answer, Option<Seen>)> = own.map(|(_, answer)| answer).collect();
            let expected = Expected::Answers(own.iter().map(|(answer, _)| *answer).collect());
            self.end(id, key, &expected)?;
            for (_, seen) in own {
                if let Some(seen) = seen {
                    self.item(key).note_newest(seen.lsn);
                }
            }
        }
        self.check_unique(id)
    }

    fn refused(&mut self, id: CallId, index: usize, answer: Answer) -> Checked {
        let steps = self.calls[id].steps.clone();
        let Some((failed, _)) = steps.get(index) else {
            return broken(Invariant::AnswersAreTrue, format!("call {id} has no step {index}"));
        };
        for key in self.calls[id].keys() {
            let expected = if key == *failed {
                self.refusal_of(key, &steps[..=index], answer)
            } else {
                Expected::NoEffect
            };
            self.end(id, key, &expected)?;
        }
        Ok(())
    }

    /// Returns the expected effect of a refusal. The answers of the steps before the refused one are unknown.
    fn refusal_of(&self, key: Key, steps: &[(Key, Step)], answer: Answer) -> Expected {
        let own = steps.iter().filter(|(other, _)| *other == key).count();
        if own == 1 { Expected::Answers(vec![answer]) } else { Expected::NoEffect }
    }

    fn end_all(&mut self, id: CallId, expected: &Expected) -> Checked {
        for key in self.calls[id].keys() {
            self.end(id, key, expected)?;
        }
        Ok(())
    }

    fn end(&mut self, id: CallId, key: Key, expected: &Expected) -> Checked {
        let before = self.items.get(&key).map(ItemModel::describe).unwrap_or_default();
        let around = Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
        let item = self.items.entry(key).or_default();
        let possible = item.end(id, expected, &around);
        require(possible, Invariant::AnswersAreTrue, || {
            let told = match expected {
                Expected::Answers(answers) => format!("{answers:?}"),
                Expected::Anything => "that it was done".to_owned(),
                Expected::NoEffect => "that nothing was done".to_owned(),
            };
            format!("{key}: call {id} was told {told}; before, {before}")
        })
    }

    /// Records a read of an item at this moment. `otherwise` is the invariant that is violated if the result is
    /// impossible.
    pub fn observe(&mut self, key: Key, seen: Option<&Seen>, otherwise: Invariant) -> Checked {
        if let Some(seen) = seen {
            self.meet(key, seen)?;
            let newest = self.items.get(&key).map_or(Lsn::ZERO, ItemModel::newest);
            require(seen.lsn >= newest, otherwise, || {
                format!(
                    "{key}: version {} at LSN {} was shown after LSN {newest}",
                    seen.token, seen.lsn
                )
            })?;
            self.check_not_expired(key, seen)?;
            self.item(key).note_newest(seen.lsn);
        }
        let before = self.items.get(&key).map(ItemModel::describe).unwrap_or_default();
        let window = self.clock.since(&self.moment());
        let around = Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
        let item = self.items.entry(key).or_default();
        let possible = item.observe(seen, &window, &around);
        if let (None, Some(State::Present(shape))) = (seen, item.certain()) {
            self.expired.entry(shape.token).or_insert(self.incarnation);
        }
        require(possible, otherwise, || {
            let what = seen.map_or("nothing".to_owned(), |seen| {
                format!("version {} {}", seen.token, seen.etag)
            });
            format!("{key} showed {what}; before, {before}")
        })
    }

    /// Records that a version was seen, not necessarily as the newest.
    pub fn meet(&mut self, key: Key, seen: &Seen) -> Checked {
        self.versions.meet(key, seen, self.event)?;
        let call = self.versions.get(seen.token).map(|version| version.call);
        let refused = call.is_some_and(|call| self.calls[call].fate == Fate::Refused);
        require(!refused, Invariant::NothingRefusedHappens, || {
            format!("{key}: version {} was refused and is there", seen.token)
        })
    }

    fn check_not_expired(&self, key: Key, seen: &Seen) -> Checked {
        let expired = Invariant::TheExpiredIsInvisible;
        let around = Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
        let (window, end) = (self.clock.since(&self.moment()), around.end_of(&seen.shape()));
        require(!window.is_over(end), expired, || {
            format!("{key}: version {} ended at {end:?}, now it is {window:?}", seen.token)
        })?;
        let gone = self.expired.get(&seen.token).is_some_and(|then| *then == self.incarnation);
        require(!gone, expired, || format!("{key}: version {} came back", seen.token))
    }

    /// Between which seconds a version is over, if ever.
    #[must_use]
    pub fn may_be_expired(&self, seen: &Seen) -> bool {
        let around = Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
        self.clock.since(&self.moment()).may_be_over(around.end_of(&seen.shape()))
    }

    /// Returns whether a version has expired by a second.
    #[must_use]
    pub fn has_ended_by(&self, seen: &Seen, second: u64) -> bool {
        let around = Around { rules: &self.rules, clock: &self.clock, versions: &self.versions };
        around.end_of(&seen.shape()).is_some_and(|(end, _)| end <= second)
    }

    /// Returns the version of an item, if only one is possible and it is not about to expire.
    #[must_use]
    pub fn certain(&self, key: Key) -> Option<Token> {
        let State::Present(shape) = self.items.get(&key)?.certain()? else {
            return None;
        };
        let seen = self.versions.get(shape.token)?.seen?;
        (!self.may_be_expired(&seen)).then_some(shape.token)
    }

    /// Checks that no other item certainly had the same unique value during the whole call.
    fn check_unique(&self, id: CallId) -> Checked {
        if !self.rules.has_unique_keys {
            return Ok(());
        }
        let call = &self.calls[id];
        for (key, step) in &call.steps {
            let Some(seen) = step.token().and_then(|token| self.versions.get(token)?.seen) else {
                continue;
            };
            for (other, _) in
                self.items.range(Key { pk: key.pk, id: 0 }..Key { pk: key.pk + 1, id: 0 })
            {
                let holder = self.certain(*other).and_then(|token| self.versions.get(token));
                let holds = holder.is_some_and(|version| {
                    version.known_at.is_some_and(|known| known < call.invoked.event)
                        && version.seen.is_some_and(|held| held.unique == seen.unique)
                });
                let replaced_by_us = call.steps.iter().any(|(own, _)| own == other);
                require(!holds || replaced_by_us, Invariant::UniqueKeysHold, || {
                    format!("{key} was given the unique value {} that {other} has", seen.unique)
                })?;
            }
        }
        Ok(())
    }

    /// Returns whether another item may ever have had a unique value.
    #[must_use]
    pub fn may_have_held(&self, other: Key, unique: u64) -> bool {
        let steps = self.calls.iter().flat_map(|call| &call.steps);
        let put = |step: &Step| match step {
            Step::Put(_, shape, _) => shape.unique == unique,
            Step::Patch { unique: set, .. } => *set == Some(unique),
            _ => false,
        };
        steps.into_iter().any(|(key, step)| *key == other && put(step))
    }

    /// Records a crash of the machine, which ends every caller.
    pub fn crash(&mut self) {
        for id in 0..self.calls.len() {
            if self.calls[id].fate == Fate::Open {
                self.calls[id].fate = Fate::InDoubt;
                for key in self.calls[id].keys() {
                    self.item(key).doubt(id);
                }
            }
        }
    }

    /// Records that the store is open again. Expired items may be visible again if the clock was set back.
    pub fn reopened(&mut self) {
        self.incarnation += 1;
    }

    /// Settles all calls in doubt, after every item was read with no call in progress. Each call took effect
    /// wholly or not at all.
    pub fn settle(&mut self, truth: &BTreeMap<Key, Seen>) -> Checked {
        let doubtful: Vec<CallId> =
            (0..self.calls.len()).filter(|id| self.calls[*id].fate == Fate::InDoubt).collect();
        for id in &doubtful {
            let call = &self.calls[*id];
            let keys = call.keys();
            let ways = keys.iter().filter_map(|key| Some(self.items.get(key)?.may_have(*id)));
            let (mut all, mut none) = (true, true);
            for (happened, not) in ways {
                all &= happened;
                none &= not;
            }
            require(!call.is_batch || all || none, Invariant::NothingHappensHalf, || {
                let states: Vec<String> = keys
                    .iter()
                    .map(|key| format!("{key} {:?}", truth.get(key).map(|seen| seen.token)))
                    .collect();
                format!("batch {id} {:?} left {}", call.steps, states.join(", "))
            })?;
        }
        for id in doubtful {
            self.calls[id].fate = Fate::Settled;
        }
        self.look_again(truth);
        Ok(())
    }

    fn look_again(&mut self, truth: &BTreeMap<Key, Seen>) {
        for (key, item) in &mut self.items {
            item.settle();
            self.tracks_lost += u64::from(item.find_again(truth.get(key)));
            item.keep();
        }
        self.loss.is_fresh = false;
    }
}
