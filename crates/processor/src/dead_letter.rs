//! Changes that could not be handled, put away with everything needed to try them again.

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
    /// Which lease.
    pub lease: String,
    /// Under which epoch.
    pub epoch: u64,
    /// Which transaction, if it is known.
    pub lsn: Option<u64>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was put away, in milliseconds since 1970.
    pub time: u64,
    /// What the handler said.
    pub error: String,
    /// The change, exactly as it came; as a text if it is no JSON.
    pub change: Box<RawValue>,
}

impl DeadLetter {
    pub(crate) fn raw(change: &Change) -> Box<RawValue> {
        let text = String::from_utf8_lossy(change.body()).into_owned();
        let as_text = || serde_json::value::to_raw_value(&text).unwrap_or_default();
        // A line break would make two lines of one letter.
        let one_line = text.replace(['\n', '\r'], " ");
        RawValue::from_string(one_line).unwrap_or_else(|_| as_text())
    }

    /// The change as a handler gets it.
    #[must_use]
    pub fn body(&self) -> Bytes {
        Bytes::from(self.change.get().to_owned())
    }
}

/// Where such changes go. A stored position does not pass a change before this has succeeded.
pub trait DeadLetters: Send + Sync + 'static {
    /// Keeps one. Called again until it succeeds, so it may get one twice.
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>>;
}

/// A closure will do.
impl<F> DeadLetters for F
where
    F: Fn(DeadLetter) -> BoxFuture<Result<(), String>> + Send + Sync + 'static,
{
    fn put(&self, letter: DeadLetter) -> BoxFuture<Result<(), String>> {
        self(letter)
    }
}

/// A file with one letter a line, synced after every letter.
#[derive(Clone, Debug)]
pub struct DeadLetterFile {
    path: PathBuf,
    writing: Arc<Mutex<()>>,
}

impl DeadLetterFile {
    /// A file that is made when the first letter comes.
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

/// A container partitioned by `/id`, with one item for every letter. A letter that comes twice is there once.
/// What `headwater export` makes of it, `headwater replay` takes.
#[derive(Clone, Debug)]
pub struct DeadLetterContainer(Container);

impl DeadLetterContainer {
    /// Keeps letters in this container.
    #[must_use]
    pub fn new(container: Container) -> DeadLetterContainer {
        DeadLetterContainer(container)
    }

    /// The same change of the same processor has the same id, whoever puts it away and how often.
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
            // The letter is an object; its id goes in front, and the change stays as it came.
            let body = format!(r#"{{"id":"{id}",{}"#, text.get(1..).unwrap_or_default());
            let key = PartitionKey::from(id.as_str());
            let kept = container.upsert(&key, body, &Precondition::None).await;
            kept.map(drop).map_err(|error| error.to_string())
        })
    }
}
