//! The possible states of one item, given every call on it and every answer so far.
//!
//! Calls overlap, and a call takes effect at one instant between its start and its answer. The model keeps
//! every story (possible linearization) that is left: a state, and the open calls that have taken effect
//! in it. An answer or a read removes the stories that it contradicts. When none is left, the answer
//! cannot be true.
//!
//! ```text
//! create 7 ─────────────► created           stories after "created":   {7}
//!      delete ───────────────────► …        and, with the delete done: {absent, delete ran}
//!            read: nothing                  only the second is left
//! ```

use super::clock::{Clock, Moment, Window};
use super::step::{Answer, Shape, State, Step};
use super::versions::{Seen, Versions};
use headwater_model::Lsn;
use std::collections::BTreeSet;

/// With more stories than this the model stops following an item until it is read with no call in progress.
const STORIES_MAX: usize = 3_000;

/// The policies of the container.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Seconds after which items expire; see `ContainerDefinition::default_ttl`.
    pub default_ttl: Option<i32>,
    /// Whether the unique value is unique.
    pub has_unique_keys: bool,
}

/// The context outside an item that determines its possible states.
pub(super) struct Around<'a> {
    pub(super) rules: &'a Rules,
    pub(super) clock: &'a Clock,
    pub(super) versions: &'a Versions,
}

impl Around<'_> {
    /// Returns the earliest and latest second at which an item of this shape expires.
    pub(super) fn end_of(&self, shape: &Shape) -> Option<(u64, u64)> {
        let default = self.rules.default_ttl?;
        let seconds = u64::try_from(if shape.ttl == 0 { default } else { shape.ttl }).ok()?;
        let version = self.versions.get(shape.token)?;
        let (earliest, latest) = match &version.seen {
            Some(seen) => (seen.written, seen.written),
            None => {
                let window = self.clock.since(&version.invoked);
                (window.low, window.high)
            }
        };
        Some((earliest + seconds, latest + seconds))
    }

    /// Returns how an item in this state may appear to a reader during this window.
    fn faces(&self, state: State, window: &Window) -> Vec<State> {
        let State::Present(shape) = state else {
            return vec![state];
        };
        let end = self.end_of(&shape);
        let mut faces = Vec::with_capacity(2);
        if !window.is_over(end) {
            faces.push(state);
        }
        if window.may_be_over(end) {
            faces.push(State::Absent);
        }
        faces
    }

    /// Returns whether a state agrees with what is known of its version.
    fn agrees(&self, state: State) -> bool {
        let State::Present(shape) = state else {
            return true;
        };
        let seen = self.versions.get(shape.token).and_then(|version| version.seen);
        seen.is_none_or(|seen| seen.ttl == shape.ttl && seen.unique == shape.unique)
    }
}

/// A call on this item without an answer so far, or ever.
#[derive(Clone, Debug)]
struct Open {
    call: usize,
    steps: Vec<Step>,
    invoked: Moment,
    in_doubt: bool,
    newest_before: Lsn,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Story {
    state: State,
    /// Open calls that have taken effect in this story, with their answers.
    ran: Vec<(usize, Vec<Answer>)>,
}

impl Story {
    fn answers_of(&self, call: usize) -> Option<&Vec<Answer>> {
        self.ran.iter().find(|(other, _)| *other == call).map(|(_, answers)| answers)
    }

    fn without(mut self, call: usize) -> Story {
        self.ran.retain(|(other, _)| *other != call);
        self
    }
}

/// The known effect of an answered call.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// It gave exactly these answers.
    Answers(Vec<Answer>),
    /// It took effect, with any answers.
    Anything,
    /// It had no effect.
    NoEffect,
}

/// The model of one item: its possible stories.
#[derive(Debug)]
pub(super) struct ItemModel {
    stories: BTreeSet<Story>,
    open: Vec<Open>,
    lost_track: bool,
    /// The LSN of the newest version that was acknowledged or read.
    newest: Lsn,
    /// The stories when it was last settled, with the newest version at that time.
    settled: (BTreeSet<Story>, Lsn),
    /// Calls since it was settled.
    since: Vec<PastCall>,
}

/// A call since an item was settled.
#[derive(Debug)]
struct PastCall {
    call: usize,
    steps: Vec<Step>,
    invoked: Moment,
    expected: Option<Expected>,
}

/// A call that a power cut left, or may have left.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayCall {
    pub(super) call: usize,
    /// The LSN of its entry, if that is known.
    pub(super) lsn: Option<Lsn>,
    /// The LSN of its entry is not above this, if that is known.
    pub(super) lsn_max: Option<Lsn>,
    /// The event at which it was invoked.
    pub(super) invoked: u64,
    /// The event at which it was answered, if it was.
    pub(super) answered: Option<u64>,
    /// Whether the power cut certainly left it.
    pub(super) is_certain: bool,
}

impl ReplayCall {
    /// Returns whether its entry certainly precedes that of another call.
    fn is_before(&self, other: &ReplayCall) -> bool {
        let below = self.lsn_max.zip(other.lsn).is_some_and(|(highest, lsn)| highest < lsn);
        below || self.answered.is_some_and(|answered| answered < other.invoked)
    }
}

impl Default for ItemModel {
    fn default() -> ItemModel {
        let nothing = Story { state: State::Absent, ran: Vec::new() };
        let stories = BTreeSet::from([nothing]);
        ItemModel {
            settled: (stories.clone(), Lsn::ZERO),
            stories,
            open: Vec::new(),
            lost_track: false,
            newest: Lsn::ZERO,
            since: Vec::new(),
        }
    }
}

impl ItemModel {
    pub(super) fn invoke(&mut self, call: usize, steps: Vec<Step>, invoked: Moment) {
        let newest_before = self.newest;
        self.since.push(PastCall { call, steps: steps.clone(), invoked, expected: None });
        self.open.push(Open { call, steps, invoked, in_doubt: false, newest_before });
    }

    /// Marks a call that will never be answered.
    pub(super) fn doubt(&mut self, call: usize) {
        for open in self.open.iter_mut().filter(|open| open.call == call) {
            open.in_doubt = true;
        }
        // Whether it was refused no longer matters.
        let told = std::mem::take(&mut self.stories).into_iter().map(|story| {
            let refused = story
                .answers_of(call)
                .is_some_and(|answers| answers.last().is_some_and(|last| last.is_refusal()));
            if refused { story.without(call) } else { story }
        });
        self.stories = told.collect();
    }

    /// Returns the LSN of the newest version that was acknowledged or read.
    pub(super) fn newest(&self) -> Lsn {
        self.newest
    }

    pub(super) fn newest_before(&self, call: usize) -> Lsn {
        let open = self.open.iter().find(|open| open.call == call);
        open.map_or(Lsn::ZERO, |open| open.newest_before)
    }

    pub(super) fn note_newest(&mut self, lsn: Lsn) {
        self.newest = self.newest.max(lsn);
    }

    /// Records the end of a call. Returns false if it contradicts every story.
    pub(super) fn end(&mut self, call: usize, expected: &Expected, around: &Around<'_>) -> bool {
        self.explore(around);
        let fits = |story: &Story| match (expected, story.answers_of(call)) {
            (Expected::Answers(answers), Some(ran)) => answers == ran,
            (Expected::Anything, ran) => ran.is_some(),
            (Expected::NoEffect, None) => true,
            (Expected::NoEffect, Some(ran)) => ran.last().is_some_and(|last| last.is_refusal()),
            (Expected::Answers(_), None) => false,
        };
        let stories = std::mem::take(&mut self.stories);
        self.stories = stories.into_iter().filter(fits).map(|story| story.without(call)).collect();
        self.open.retain(|open| open.call != call);
        if let Some(past) = self.since.iter_mut().find(|past| past.call == call) {
            past.expected = Some(expected.clone());
        }
        self.lost_track || !self.stories.is_empty()
    }

    /// Records a read of the item. Returns false if it contradicts every story.
    pub(super) fn observe(
        &mut self,
        seen: Option<&Seen>,
        window: &Window,
        around: &Around<'_>,
    ) -> bool {
        self.explore(around);
        let fits = |story: &Story| {
            around.faces(story.state, window).iter().any(|face| match (face, seen) {
                (State::Absent, None) => true,
                (State::Present(shape), Some(seen)) => shape.token == seen.token,
                _ => false,
            })
        };
        self.stories.retain(fits);
        self.lost_track || !self.stories.is_empty()
    }

    /// Resumes following an item from its state when no call is in progress. Returns true if the model had
    /// stopped following it.
    pub(super) fn find_again(&mut self, seen: Option<&Seen>) -> bool {
        let lost = self.lost_track && self.open.is_empty();
        if lost {
            let state = seen.map_or(State::Absent, |seen| State::Present(seen.shape()));
            self.stories = BTreeSet::from([Story { state, ran: Vec::new() }]);
            self.lost_track = false;
        }
        lost
    }

    /// Returns whether a call may have taken effect, and whether it may not have.
    pub(super) fn may_have(&self, call: usize) -> (bool, bool) {
        if self.lost_track {
            return (true, true);
        }
        let ran = |story: &Story| story.answers_of(call).is_some();
        (self.stories.iter().any(ran), !self.stories.iter().all(ran))
    }

    /// Settles calls in doubt: each has taken effect by now, or never will.
    pub(super) fn settle(&mut self) {
        self.open.retain(|open| !open.in_doubt);
        let open: Vec<usize> = self.open.iter().map(|open| open.call).collect();
        let settled = std::mem::take(&mut self.stories).into_iter().map(|mut story| {
            story.ran.retain(|(call, _)| open.contains(call));
            story
        });
        self.stories = settled.collect();
    }

    /// Marks the current state as durable: a power cut cannot undo it.
    pub(super) fn keep(&mut self) {
        self.settled = (self.stories.clone(), self.newest);
        self.since.clear();
    }

    /// Replays, after a power cut took the end of the log, the calls that are left from the settled state, in
    /// the order of their LSNs. Calls with an unknown LSN take effect wherever their answers allow.
    pub(super) fn replay(&mut self, kept: &[ReplayCall], around: &Around<'_>) {
        let past = std::mem::take(&mut self.since);
        (self.stories, self.newest) = self.settled.clone();
        self.open.clear();
        self.lost_track = false;
        let (mut placed, mut waiting): (Vec<&ReplayCall>, Vec<&ReplayCall>) =
            kept.iter().partition(|kept| kept.lsn.is_some());
        placed.sort_by_key(|kept| kept.lsn);
        let mut opened: Vec<&ReplayCall> = Vec::new();
        for index in 0..=placed.len() {
            let later = &placed[index..];
            let (ready, blocked): (Vec<&ReplayCall>, Vec<&ReplayCall>) = waiting
                .into_iter()
                .partition(|call| !later.iter().any(|placed| placed.is_before(call)));
            ready.iter().for_each(|call| self.reopen(call, &past));
            opened.extend(ready);
            waiting = blocked;
            let Some(next) = later.first() else { break };
            let (over, under_way): (Vec<&ReplayCall>, Vec<&ReplayCall>) =
                opened.into_iter().partition(|call| call.is_certain && call.is_before(next));
            over.iter().for_each(|call| self.end_again(call, &past, around));
            opened = under_way;
            self.reopen(next, &past);
            self.end_again(next, &past, around);
        }
        for call in opened {
            if call.is_certain {
                self.end_again(call, &past, around);
            } else {
                self.doubt(call.call);
            }
        }
    }

    fn reopen(&mut self, kept: &ReplayCall, past: &[PastCall]) {
        let Some(past) = past.iter().find(|past| past.call == kept.call) else { return };
        self.open.push(Open {
            call: past.call,
            steps: past.steps.clone(),
            invoked: past.invoked,
            in_doubt: past.expected.is_none(),
            newest_before: Lsn::ZERO,
        });
    }

    fn end_again(&mut self, kept: &ReplayCall, past: &[PastCall], around: &Around<'_>) {
        let Some(past) = past.iter().find(|past| past.call == kept.call) else { return };
        let expected = past.expected.clone().unwrap_or(Expected::Anything);
        // Without a possible story, the next read of the item reports the contradiction.
        self.end(past.call, &expected, around);
        let has_written = past.steps.iter().any(|step| *step != Step::Read);
        if let Some(lsn) = kept.lsn.filter(|_| has_written) {
            self.note_newest(lsn);
        }
    }

    /// Returns the state if it is the only possible one and no call is open.
    pub(super) fn certain(&self) -> Option<State> {
        let first = self.stories.first().filter(|_| self.open.is_empty() && !self.lost_track)?;
        self.stories.iter().all(|story| story.state == first.state).then_some(first.state)
    }

    /// Describes the states for a message.
    pub(super) fn describe(&self) -> String {
        let states: Vec<String> = self
            .stories
            .iter()
            .map(|story| match story.state {
                State::Absent => format!("nothing {:?}", story.ran),
                State::Present(shape) => format!("version {} {:?}", shape.token, story.ran),
            })
            .collect();
        let open: Vec<String> =
            self.open.iter().map(|open| format!("call {} {:?}", open.call, open.steps)).collect();
        format!("possible: [{}], under way: [{}]", states.join(", "), open.join(", "))
    }

    /// Adds every story in which some of the open calls happen next, in any order.
    fn explore(&mut self, around: &Around<'_>) {
        if self.open.is_empty() || self.lost_track {
            return;
        }
        let mut frontier: Vec<Story> = self.stories.iter().cloned().collect();
        while let Some(story) = frontier.pop() {
            for open in &self.open {
                if story.answers_of(open.call).is_some() {
                    continue;
                }
                for (state, answers) in runs(open, story.state, around) {
                    let mut ran = story.ran.clone();
                    ran.push((open.call, answers));
                    ran.sort();
                    let next = Story { state, ran };
                    if around.agrees(state) && self.stories.insert(next.clone()) {
                        frontier.push(next);
                    }
                }
            }
            if self.stories.len() > STORIES_MAX {
                self.lost_track = true;
                self.stories.clear();
                return;
            }
        }
    }
}

/// Returns the possible effects of a call on an item, step by step. A refused call leaves it unchanged.
fn runs(open: &Open, state: State, around: &Around<'_>) -> Vec<(State, Vec<Answer>)> {
    let window = around.clock.since(&open.invoked);
    let known_at = |token| around.versions.get(token).and_then(|version| version.known_at);
    let mut ended = Vec::new();
    for face in around.faces(state, &window) {
        let mut running = vec![(face, Vec::new())];
        for step in &open.steps {
            let mut next = Vec::new();
            for (state_now, answers) in running {
                for (after, answer) in
                    step.outcomes(state_now, around.rules.has_unique_keys, known_at)
                {
                    let mut answers: Vec<Answer> = answers.clone();
                    answers.push(answer);
                    if !answer.is_refusal() {
                        next.push((after, answers));
                    } else if !open.in_doubt {
                        ended.push((state, answers));
                    }
                }
            }
            running = next;
        }
        ended.extend(running);
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::super::step::{Condition, Put};
    use super::*;

    fn put(token: u64) -> Vec<Step> {
        let shape = Shape { token, ttl: 0, unique: 0 };
        vec![Step::Put(Put::Create, shape, Condition::None)]
    }

    fn around<R>(check: impl FnOnce(&Around<'_>, Window) -> R) -> R {
        let (rules, clock, versions) = Default::default();
        let window = Clock::since(&clock, &Moment::default());
        check(&Around { rules: &rules, clock: &clock, versions: &versions }, window)
    }

    #[test]
    fn an_answer_that_cannot_be_true_is_noticed() {
        around(|around, window| {
            let mut item = ItemModel::default();
            item.invoke(0, put(7), Moment::default());
            assert!(item.end(0, &Expected::Answers(vec![Answer::Created]), around));
            assert!(!item.observe(None, &window, around), "it was acknowledged and is gone");
        });
        around(|around, _| {
            let mut item = ItemModel::default();
            item.invoke(0, put(7), Moment::default());
            let refused = Expected::Answers(vec![Answer::AlreadyExists]);
            assert!(!item.end(0, &refused, around), "nothing was there");
        });
    }

    #[test]
    fn calls_that_overlap_may_happen_in_either_order() {
        around(|around, _| {
            let mut item = ItemModel::default();
            item.invoke(0, put(7), Moment::default());
            item.invoke(1, vec![Step::Delete(Condition::None)], Moment::default());
            assert!(item.end(1, &Expected::Answers(vec![Answer::NotFound]), around));
            assert!(item.end(0, &Expected::Answers(vec![Answer::Created]), around));
            let shape = Shape { token: 7, ttl: 0, unique: 0 };
            assert_eq!(item.certain(), Some(State::Present(shape)));
        });
    }

    fn replay_call(call: usize, lsn: Option<u64>, invoked: u64, answered: u64) -> ReplayCall {
        let lsn = lsn.map(Lsn::new);
        let answered = Some(answered);
        ReplayCall { call, lsn, lsn_max: lsn, invoked, answered, is_certain: lsn.is_some() }
    }

    /// Returns an item that was created, deleted and created again, with an answer each time.
    fn rewritten(around: &Around<'_>) -> ItemModel {
        let mut item = ItemModel::default();
        let delete = vec![Step::Delete(Condition::None)];
        for (call, steps, answer) in [
            (0, put(7), Answer::Created),
            (1, delete, Answer::Deleted),
            (2, put(8), Answer::Created),
        ] {
            item.invoke(call, steps, Moment::default());
            assert!(item.end(call, &Expected::Answers(vec![answer]), around));
        }
        item
    }

    #[test]
    fn a_replay_ends_with_the_last_call_that_is_left() {
        around(|around, window| {
            let mut item = rewritten(around);
            item.replay(&[replay_call(0, Some(3), 1, 2)], around);
            assert_eq!(item.certain(), Some(State::Present(Shape { token: 7, ttl: 0, unique: 0 })));
            assert_eq!(item.newest(), Lsn::new(3));
            assert!(!item.observe(None, &window, around), "the first call was left");

            let mut item = rewritten(around);
            item.replay(&[], around);
            assert_eq!(item.certain(), Some(State::Absent));
        });
    }

    #[test]
    fn a_replayed_call_without_an_lsn_happens_where_its_answer_allows() {
        let delete = replay_call(1, None, 3, 4);
        around(|around, window| {
            let mut item = rewritten(around);
            item.replay(&[replay_call(0, Some(3), 1, 2), delete], around);
            assert_eq!(item.may_have(1), (false, true), "not explored yet");
            assert!(item.observe(None, &window, around), "the delete may be left");
        });
        around(|around, window| {
            let mut item = rewritten(around);
            let delete = ReplayCall { is_certain: true, ..delete };
            item.replay(
                &[replay_call(0, Some(3), 1, 2), delete, replay_call(2, Some(5), 5, 6)],
                around,
            );
            assert_eq!(item.certain(), Some(State::Present(Shape { token: 8, ttl: 0, unique: 0 })));
            assert!(!item.observe(None, &window, around), "the second create was left");
        });
    }

    #[test]
    fn a_call_in_doubt_may_have_happened_or_not() {
        around(|around, window| {
            let mut item = ItemModel::default();
            item.invoke(0, put(7), Moment::default());
            item.doubt(0);
            assert!(item.observe(None, &window, around));
            assert_eq!(item.may_have(0), (false, true));
            item.settle();
            assert_eq!(item.certain(), Some(State::Absent));
        });
    }
}
