//! One operation on one item: what it does to the item, and what it may answer.

/// Names one version of one item: every write puts a number of its own into the body.
pub type Token = u64;

/// An item, by the numbers of its partition key and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Which partition key.
    pub pk: usize,
    /// Which id within it.
    pub id: usize,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "k{}/i{}", self.pk, self.id)
    }
}

/// What an item is at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// There is none.
    Absent,
    /// There is one.
    Present(Shape),
}

/// What the model must know of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Which version.
    pub token: Token,
    /// Its own time to live; 0 for none.
    pub ttl: i32,
    /// The value that must be unique.
    pub unique: u64,
}

/// What must be true of an item for an operation to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    None,
    /// It is at this version.
    Version(Token),
    /// It is not there.
    Absent,
}

/// How an item is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It must not exist.
    Create,
    /// It may exist.
    Upsert,
    /// It must exist.
    Replace,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes a whole item.
    Put(Put, Shape, Condition),
    /// Changes an item; what it does not name stays.
    Patch {
        /// The version it makes.
        token: Token,
        /// The unique value it sets, if it does.
        unique: Option<u64>,
    },
    /// Deletes an item.
    Delete(Condition),
    /// Reads an item within a batch.
    Read,
    /// Deletes an item with all others of its partition key, if it was there at this event.
    DeleteOld(u64),
}

/// What an operation answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// It was not there before.
    Created,
    /// It was.
    Replaced,
    /// It is gone.
    Deleted,
    /// It is at this version.
    Read(Token),
    /// Nobody is told.
    Silent,
    /// Refused: it exists.
    AlreadyExists,
    /// Refused: it does not exist.
    NotFound,
    /// Refused: it is at another version.
    Mismatch,
    /// Refused: another item has the unique value.
    UniqueKey,
}

impl Answer {
    /// Whether nothing was done.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Answer::AlreadyExists | Answer::NotFound | Answer::Mismatch | Answer::UniqueKey
        )
    }
}

impl Step {
    /// The version this operation makes, if it makes one.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Step::Put(_, shape, _) => Some(shape.token),
            Step::Patch { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// Everything it may do to an item in this state, with the answer.
    pub(super) fn outcomes(
        &self,
        state: State,
        has_unique_keys: bool,
        known_at: impl Fn(Token) -> Option<u64>,
    ) -> Vec<(State, Answer)> {
        let refused = |answer| vec![(state, answer)];
        let put = |shape: Shape, answer| {
            let mut outcomes = vec![(State::Present(shape), answer)];
            if has_unique_keys {
                outcomes.push((state, Answer::UniqueKey));
            }
            outcomes
        };
        match (*self, state) {
            (Step::Put(Put::Create, ..), State::Present(_)) => refused(Answer::AlreadyExists),
            (Step::Put(Put::Replace, ..), State::Absent) => refused(Answer::NotFound),
            (Step::Put(_, shape, _), State::Absent) => put(shape, Answer::Created),
            (Step::Put(_, shape, condition), State::Present(now)) => {
                if condition.holds_for(now.token) {
                    put(shape, Answer::Replaced)
                } else {
                    refused(Answer::Mismatch)
                }
            }
            (Step::Patch { .. } | Step::Delete(_) | Step::Read, State::Absent) => {
                refused(Answer::NotFound)
            }
            (Step::Patch { token, unique }, State::Present(now)) => {
                let unique = unique.unwrap_or(now.unique);
                put(Shape { token, unique, ..now }, Answer::Replaced)
            }
            (Step::Delete(condition), State::Present(now)) => {
                if condition.holds_for(now.token) {
                    vec![(State::Absent, Answer::Deleted)]
                } else {
                    refused(Answer::Mismatch)
                }
            }
            (Step::Read, State::Present(now)) => vec![(state, Answer::Read(now.token))],
            (Step::DeleteOld(_), State::Absent) => vec![(state, Answer::Silent)],
            (Step::DeleteOld(asked), State::Present(now)) => {
                // What was written while the call ran may be spared.
                let spared = known_at(now.token).is_none_or(|known| known >= asked);
                let mut outcomes = vec![(State::Absent, Answer::Silent)];
                if spared {
                    outcomes.push((state, Answer::Silent));
                }
                outcomes
            }
        }
    }
}

impl Condition {
    fn holds_for(self, token: Token) -> bool {
        match self {
            Condition::None => true,
            Condition::Version(wanted) => wanted == token,
            Condition::Absent => false,
        }
    }
}
