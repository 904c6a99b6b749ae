//! Dead letters: changes that could not be handled, stored with everything needed to retry them.

use crate::source::Change;
use bytes::Bytes;
use headwater_client::{Container, Precondition};
use headwater_model::PartitionKey;
use headwater_runtime::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

/// A change that could not be handled.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeadLetter {
    /// The processor's name.
    pub processor: String,
    /// The token of the lease.
    pub lease: String,
    /// The epoch of the lease.
    pub epoch: u64,
    /// The LSN of the transaction, if known.
    pub lsn: Option<u64>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it became a dead letter, in milliseconds since 1970.
    pub time: u64,
    /// The handler's error message.
    pub error: String,
    /// The change as received; a JSON string if it is not valid JSON.
    pub change: Box<RawValue>,
}

impl DeadLetter {
    pub(crate) fn raw(change: &Change) -> Box<RawValue> {
        let text = String::from_utf8_lossy(change.body()).into_owned();
        let as_text = || serde_json::value::to_raw_value(&text).unwrap_or_default();
        // A line break would split the letter into two lines of a file.
        let one_line = text.replace(['\n', '\r'], " ");
        RawValue::from_string(one_line).unwrap_or_else(|_| as_text())
    }

    /// Returns the change as a handler receives it.
    #[must_use]
    pub fn body(&self) -> Bytes {
        Bytes::from(self.change.get().to_owned())
    }
}

/// A sink for dead letters. A stored position passes a change only after `put` has succeeded for it.
pub trait DeadLetters: Send + Sync + 'static {
    /// Stores a letter. Called until it succeeds, so it may receive a letter twice.
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>>;
}

/// Implements the sink for closures.
impl<F> DeadLetters for F
where
    F: Fn(DeadLetter) -> BoxFuture<Result<(), String>> + Send + Sync + 'static,
{
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>> {
        self(letter)
    }
}

/// A file with one letter per line, synced after every letter.
#[derive(Clone, Debug)]
pub struct DeadLetterFile {
    path: PathBuf,
    writing: Arc<Mutex<()>>,
}

impl DeadLetterFile {
    /// Uses this file, which is created with the first letter.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> DeadLetterFile {
        DeadLetterFile { path: path.into(), writing: Arc::default() }
    }

    fn append(&self, letter: &DeadLetter) -> Result<(), String> {
        let mut line = serde_json::to_vec(letter).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let _one_at_a_time = self.writing.lock();
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(|error| format!("cannot open {}: {error}", self.path.display()))?;
        let written = file.write_all(&line).and_then(|()| file.sync_all());
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }
}

impl DeadLetters for DeadLetterFile {
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>> {
        let file = self.clone();
        Box::pin(async move { file.append(&letter) })
    }
}

/// A container partitioned by `/id`, with one item per letter. Storing a letter twice is idempotent.
/// `headwater export` writes its items in the form that `headwater replay` reads.
#[derive(Clone, Debug)]
pub struct DeadLetterContainer(Container);

impl DeadLetterContainer {
    /// Stores letters in this container.
    #[must_use]
    pub fn new(container: Container) -> DeadLetterContainer {
        DeadLetterContainer(container)
    }

    /// Derives the id from processor, lease and change, so that repeated letters have the same id.
    fn id(letter: &DeadLetter) -> String {
        let DeadLetter { processor, lease, change, .. } = letter;
        let hash = xxh3_64(format!("{processor}\0{lease}\0{}", change.get()).as_bytes());
        format!("{:016x}-{hash:016x}", letter.lsn.unwrap_or(0))
    }
}

impl DeadLetters for DeadLetterContainer {
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>> {
        let container = self.0.clone();
        Box::pin(async move {
            let id = DeadLetterContainer::id(&letter);
            let text = serde_json::to_string(&letter).map_err(|error| error.to_string())?;
            // Insert the id at the front; the change keeps its bytes.
            let body = format!(r#"{{"id":"{id}",{}"#, text.get(1..).unwrap_or_default());
            let key = PartitionKey::from(id.as_str());
            let kept = container.upsert(&key, body, &Precondition::None).await;
            kept.map(drop).map_err(|error| error.to_string())
        })
    }
}
