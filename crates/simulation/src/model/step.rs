//! One operation on one item: its effects on the item and its possible answers.

/// Names one version of one item: every write puts a unique number into the body.
pub type Token = u64;

/// An item, by the numbers of its partition key and its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The number of the partition key.
    pub pk: usize,
    /// The number of the id within the partition key.
    pub id: usize,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "k{}/i{}", self.pk, self.id)
    }
}

/// The state of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The item does not exist.
    Absent,
    /// The item exists.
    Present(Shape),
}

/// The properties of a version that the model needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// The token of the version.
    pub token: Token,
    /// Its own time to live; 0 for none.
    pub ttl: i32,
    /// The value that must be unique.
    pub unique: u64,
}

/// The condition of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Unconditional.
    None,
    /// The item is at this version.
    Version(Token),
    /// The item does not exist.
    Absent,
}

/// The kind of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The item must not exist.
    Create,
    /// The item may exist.
    Upsert,
    /// The item must exist.
    Replace,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes a whole item.
    Put(Put, Shape, Condition),
    /// Changes some properties of an item.
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

/// The answer of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// The item did not exist and was created.
    Created,
    /// The item existed and was replaced.
    Replaced,
    /// The item was deleted.
    Deleted,
    /// The item was read at this version.
    Read(Token),
    /// The operation has no answer of its own.
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
    /// Returns whether the operation was refused.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        matches!(
            self,
            Answer::AlreadyExists | Answer::NotFound | Answer::Mismatch | Answer::UniqueKey
        )
    }
}

impl Step {
    /// Returns the version that this operation creates, if any.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match self {
            Step::Put(_, shape, _) => Some(shape.token),
            Step::Patch { token, .. } => Some(*token),
            _ => None,
        }
    }

    /// Returns all possible effects on an item in this state, with the answers.
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
                // Items written while the call ran may survive.
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
