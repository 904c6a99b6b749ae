//! What one item may be at a moment, given every call on it and every answer so far.
//!
//! Calls overlap, and a call happens at one instant between its start and its answer. The model keeps
//! every story that is still possible: a state, and which of the calls under way have already happened
//! in it. An answer or a read strikes the stories it contradicts; when none is left, the store has
//! said something that cannot be true.
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

/// With more stories than this the model stops following an item until it is read in peace.
const STORIES_MAX: usize = 3_000;

/// What the container's policies say.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Seconds after which items expire; see `ContainerDefinition::default_ttl`.
    pub default_ttl: Option<i32>,
    /// Whether the unique value is unique.
    pub has_unique_keys: bool,
}

/// Everything outside an item that decides what may happen to it.
pub(super) struct Around<'a> {
    pub(super) rules: &'a Rules,
    pub(super) clock: &'a Clock,
    pub(super) versions: &'a Versions,
}

impl Around<'_> {
    /// Between which seconds an item of this shape is over.
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

    /// What an item in this state may look like to somebody during this time.
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

    /// Whether a state agrees with what is known of its version.
    fn agrees(&self, state: State) -> bool {
        let State::Present(shape) = state else {
            return true;
        };
        let seen = self.versions.get(shape.token).and_then(|version| version.seen);
        seen.is_none_or(|seen| seen.ttl == shape.ttl && seen.unique == shape.unique)
    }
}

/// A call on this item that was not answered yet, or never will be.
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
    /// Open calls that have happened in this story, with what they answer.
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

/// What an answered call must have done.
pub(super) enum Expected {
    /// Exactly this.
    Answers(Vec<Answer>),
    /// Something.
    Anything,
    /// Nothing.
    NoEffect,
}

/// See the head of this file.
#[derive(Debug)]
pub(super) struct ItemModel {
    stories: BTreeSet<Story>,
    open: Vec<Open>,
    lost_track: bool,
    /// The newest version anybody was told about.
    newest: Lsn,
}

impl Default for ItemModel {
    fn default() -> ItemModel {
        let nothing = Story { state: State::Absent, ran: Vec::new() };
        ItemModel {
            stories: BTreeSet::from([nothing]),
            open: Vec::new(),
            lost_track: false,
            newest: Lsn::ZERO,
        }
    }
}

impl ItemModel {
    pub(super) fn invoke(&mut self, call: usize, steps: Vec<Step>, invoked: Moment) {
        let newest_before = self.newest;
        self.open.push(Open { call, steps, invoked, in_doubt: false, newest_before });
    }

    /// Nobody will ever say what became of the call.
    pub(super) fn doubt(&mut self, call: usize) {
        for open in self.open.iter_mut().filter(|open| open.call == call) {
            open.in_doubt = true;
        }
        // That it was refused no longer matters to anybody.
        let told = std::mem::take(&mut self.stories).into_iter().map(|story| {
            let refused = story
                .answers_of(call)
                .is_some_and(|answers| answers.last().is_some_and(|last| last.is_refusal()));
            if refused { story.without(call) } else { story }
        });
        self.stories = told.collect();
    }

    /// The newest version anybody was told about.
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

    /// The call has ended. False when that cannot be.
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
        self.lost_track || !self.stories.is_empty()
    }

    /// Somebody has seen the item. False when that cannot be.
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

    /// Takes up the trail of an item again, from what it is when nothing is under way. True if it had
    /// been lost.
    pub(super) fn find_again(&mut self, seen: Option<&Seen>) -> bool {
        let lost = self.lost_track && self.open.is_empty();
        if lost {
            let state = seen.map_or(State::Absent, |seen| State::Present(seen.shape()));
            self.stories = BTreeSet::from([Story { state, ran: Vec::new() }]);
            self.lost_track = false;
        }
        lost
    }

    /// In which ways a call may have ended: happened, and not happened.
    pub(super) fn may_have(&self, call: usize) -> (bool, bool) {
        if self.lost_track {
            return (true, true);
        }
        let ran = |story: &Story| story.answers_of(call).is_some();
        (self.stories.iter().any(ran), !self.stories.iter().all(ran))
    }

    /// Calls in doubt have happened by now or never will.
    pub(super) fn settle(&mut self) {
        self.open.retain(|open| !open.in_doubt);
        let open: Vec<usize> = self.open.iter().map(|open| open.call).collect();
        let settled = std::mem::take(&mut self.stories).into_iter().map(|mut story| {
            story.ran.retain(|(call, _)| open.contains(call));
            story
        });
        self.stories = settled.collect();
    }

    /// The one thing it can be, if nothing is under way and there is only one.
    pub(super) fn certain(&self) -> Option<State> {
        let first = self.stories.first().filter(|_| self.open.is_empty() && !self.lost_track)?;
        self.stories.iter().all(|story| story.state == first.state).then_some(first.state)
    }

    /// States for a message.
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

/// What a call may do to an item, step by step; a refused one leaves it as it was.
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
