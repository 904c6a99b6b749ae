//! Scripts at work on a container: stored procedures, triggers, user-defined functions.
//!
//! ```text
//! wait for a turn ─► run on an overlay ─► commit ─► answer
//!                        ▲                   │ someone else was quicker
//!                        └───────────────────┘
//! ```
//!
//! One call is one transaction on one partition key: one entry of the log, one LSN, or nothing. Calls for
//! the same key take turns, so that they do not undo each other's work; writers that are not scripts never
//! wait. Few scripts run at a time in all, each on a thread of its own.
//!
//! What a script is allowed to do is decided in `transaction`, what JavaScript means in the crate
//! `headwater-script`, and in which process a script runs in the options. Nothing here keeps or finds scripts: callers bring their sources.

mod functions;
mod items;
mod offenders;
mod turns;

pub(crate) use functions::UserScripts;
pub(crate) use offenders::Offenders;
pub(crate) use turns::Turns;

use crate::account::Shared;
use crate::container::Container;
use crate::error::{ItemReadError, WriteError};
use crate::item::{ItemWrite, WriteKind, Written};
use crate::prepare;
use crate::transaction::{Committed, Transaction, Trouble};
use headwater_model::{ContainerRid, Lsn, PartitionId, PartitionKey};
use headwater_script::{Call, Clock, Kind, Limits, Outcome, ScriptError, run};
use items::Items;
use std::sync::Arc;
use std::time::Duration;

pub use headwater_script::{
    Limits as ScriptLimits, Script, ScriptError as ScriptFailure, Workers as ScriptWorkers,
    serve_worker as serve_script_worker,
};

/// How often a script is run before its caller is told that others are quicker.
const ATTEMPTS_MAX: u32 = 20;

/// A call of a stored procedure.
#[derive(Clone, Debug)]
pub struct ProcedureCall {
    /// The procedure.
    pub script: Script,
    /// Its arguments, as a JSON array.
    pub arguments: String,
    /// User-defined functions its queries may call.
    pub functions: Vec<Script>,
}

/// Triggers around a write, each in the order they run.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// Before the write; they may change the item.
    pub before: Vec<Script>,
    /// After it, and still part of it; they may change the answer.
    pub after: Vec<Script>,
    /// User-defined functions their queries may call.
    pub functions: Vec<Script>,
}

/// What came of scripts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Executed {
    /// The response they set, as JSON.
    pub response: Option<String>,
    /// What they logged.
    pub log: String,
    /// Everything that was written, in order, by one transaction.
    pub written: Vec<Written>,
    /// Which of these is the write that triggers were around.
    pub main: Option<usize>,
    /// The partition of the key.
    pub partition: PartitionId,
    /// The newest change there of which the caller has certainly seen everything of its own.
    pub lsn: Lsn,
    /// How many items were read.
    pub items_read: usize,
    /// How many bytes they had.
    pub bytes_read: usize,
}

/// Why scripts did nothing. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// A script did not run to its end.
    #[error("script {name}: {error}")]
    Script {
        /// Which.
        name: String,
        /// Why.
        error: ScriptError,
    },
    /// The write that triggers were around was refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The script has taken more than it may several times in a row.
    #[error(
        "script {name} is blocked because it has exceeded its limits several times; change it to do less in \
         one call, or wait {} s", .wait.as_secs().max(1)
    )]
    Blocked {
        /// Which.
        name: String,
        /// For how long.
        wait: Duration,
    },
    /// Others kept changing what the script reads.
    #[error("others keep changing the items this script works on; try again")]
    Conflict,
    /// Too many scripts are waiting.
    #[error("too many scripts are running; try again in a moment")]
    Busy,
    /// Items cannot be read.
    #[error(transparent)]
    Read(#[from] ItemReadError),
}

/// How one attempt ended.
enum Ended {
    /// For a reason that has nothing to do with others.
    Failed(ExecuteError),
    /// Others have changed what it has read.
    Outdated,
}

/// What scripts leave when they have run, before anything is written.
#[derive(Default)]
struct Left {
    response: Option<String>,
    log: String,
    main: Option<usize>,
    items_read: usize,
    bytes_read: usize,
}

impl Container {
    /// Runs a stored procedure on the items of a partition key.
    ///
    /// # Errors
    /// When it fails or is refused; nothing was changed then.
    pub async fn execute(
        &self,
        partition_key: impl Into<PartitionKey>,
        procedure: &ProcedureCall,
    ) -> Result<Executed, ExecuteError> {
        let key = partition_key.into();
        let work = |transaction: Transaction| {
            let mut scripts = Scripts::new(self, transaction, &procedure.functions);
            let call = Call::procedure(&procedure.arguments);
            let result = scripts.run(&procedure.script, &call);
            let result = result.map(|outcome| Left {
                response: outcome.response,
                log: outcome.log,
                ..Left::default()
            });
            scripts.finish(result)
        };
        self.transact(&key, work).await
    }

    /// Creates, upserts, replaces or deletes an item with triggers around it.
    ///
    /// # Errors
    /// When the write or a trigger fails or is refused; nothing was changed then.
    pub async fn write_with_triggers(
        &self,
        write: ItemWrite,
        triggers: &Triggers,
    ) -> Result<Executed, ExecuteError> {
        let key = match &write.partition_key {
            Some(key) => key.clone(),
            None => {
                let operation = prepare::prepare_step(&self.settings(), write.clone())?;
                PartitionKey::decode(operation.key.encoded_key()).unwrap_or(PartitionKey::empty())
            }
        };
        let work = |transaction: Transaction| {
            let mut scripts = Scripts::new(self, transaction, &triggers.functions);
            let result = scripts.around(write.clone(), triggers);
            scripts.finish(result)
        };
        self.transact(&key, work).await
    }

    /// Runs work on a transaction and commits it; again and again while others are quicker.
    async fn transact(
        &self,
        key: &PartitionKey,
        work: impl Fn(Transaction) -> (Option<Transaction>, Result<Left, Ended>) + Send,
    ) -> Result<Executed, ExecuteError> {
        let shared = self.state().shared.clone();
        let (runtime, limits) = (&shared.runtime, &shared.options.scripts);
        let epk = self.settings().definition.partition_key().epk(key);
        let epk = epk.map_err(ItemReadError::from)?;
        let turn = shared.turns.wait(self.rid(), epk.as_bytes());
        let turn = runtime.timeout(limits.time, turn).await;
        let _turn = turn.ok_or(ExecuteError::Busy)?;
        let started = runtime.elapsed();
        for _ in 0..ATTEMPTS_MAX {
            let deadline = runtime.elapsed() + limits.time;
            let transaction = Transaction::begin(self, key.clone(), deadline)?;
            let (transaction, result) = runtime.blocking(|| work(transaction));
            let transaction = transaction.ok_or(ExecuteError::Conflict)?;
            let trouble = match result {
                Ok(left) => match transaction.commit().await {
                    Ok(committed) => return self.executed(key, left, committed),
                    Err(trouble) => trouble,
                },
                // What made it fail may be that it saw half of what others were doing.
                Err(Ended::Failed(error)) => match transaction.validate().await {
                    Err(Trouble::Outdated) => Trouble::Outdated,
                    _ => return Err(error),
                },
                Err(Ended::Outdated) => Trouble::Outdated,
            };
            match trouble {
                Trouble::Outdated => {}
                Trouble::Refused(error) => return Err(error.into()),
                Trouble::Failed(error) => return Err(error.into()),
                Trouble::Full | Trouble::Late => return Err(ExecuteError::Conflict),
            }
            if runtime.elapsed().saturating_sub(started) > limits.time {
                break;
            }
            if let Some(partition) = self.state().topology().partition_of(epk.as_bytes()).cloned() {
                partition.until_applied().await;
            }
        }
        Err(ExecuteError::Conflict)
    }

    fn executed(
        &self,
        key: &PartitionKey,
        left: Left,
        committed: Committed,
    ) -> Result<Executed, ExecuteError> {
        let newest = committed.written.last().map(|written| (written.partition, written.lsn));
        let (partition, lsn) = match newest {
            Some(newest) => newest,
            None => self.locate(key)?,
        };
        Ok(Executed {
            response: left.response.map(|text| committed.finalise(&text)),
            log: left.log,
            main: left.main,
            partition,
            lsn,
            items_read: left.items_read,
            bytes_read: left.bytes_read,
            written: committed.written,
        })
    }

    /// Links of the container: by resource ids and by names.
    fn links(&self) -> (String, String) {
        let rid = self.rid();
        let database = self.database_id().unwrap_or_default();
        (
            format!("dbs/{}/colls/{rid}/", rid.database()),
            format!("dbs/{database}/colls/{}", self.id()),
        )
    }
}

/// Scripts that share one transaction.
struct Scripts {
    limits: Limits,
    clock: Clock,
    shared: Arc<Shared>,
    container: ContainerRid,
    /// Out only while a script runs.
    items: Option<Items>,
}

impl Scripts {
    fn new(container: &Container, transaction: Transaction, functions: &[Script]) -> Self {
        let shared = container.state().shared.clone();
        let runtime = shared.runtime.clone();
        let clock: Clock = Arc::new(move || runtime.elapsed());
        let limits = shared.options.scripts;
        let user = (!functions.is_empty()).then(|| Arc::new(UserScripts::new(functions, &shared)));
        let items = Items::new(container, container.links(), transaction, user);
        Scripts { limits, clock, shared, container: container.rid(), items: Some(items) }
    }

    fn run(&mut self, script: &Script, call: &Call<'_>) -> Result<Outcome, Ended> {
        let (offenders, whose) =
            (&self.shared.offenders, offenders::name_of(self.container, script));
        if let Some(wait) = offenders.refused_for(whose, (self.clock)()) {
            let name = script.name.clone();
            return Err(Ended::Failed(ExecuteError::Blocked { name, wait }));
        }
        let Some(items) = self.items.take() else {
            return Err(Ended::Outdated);
        };
        let (limits, clock) = (&self.limits, &self.clock);
        let (items, result) = match &self.shared.options.script_workers {
            Some(workers) => workers.run(script, call, items, limits, clock),
            None => run(script, call, items, limits, clock),
        };
        self.items = items;
        match &result {
            Ok(_) => offenders.forgive(whose),
            Err(ScriptError::Time(_) | ScriptError::Memory(_) | ScriptError::Engine(_)) => {
                offenders.note(whose, (self.clock)());
            }
            Err(_) => {}
        }
        let trouble = self.items.as_mut().and_then(|items| items.trouble.take());
        result.map_err(|error| match (error, trouble) {
            (ScriptError::Stopped, Some(Trouble::Outdated)) => Ended::Outdated,
            (ScriptError::Stopped, Some(Trouble::Failed(error))) => Ended::Failed(error.into()),
            (ScriptError::Stopped, Some(Trouble::Refused(error))) => Ended::Failed(error.into()),
            (ScriptError::Stopped, _) => {
                let error = ScriptError::Time(self.limits.time);
                Ended::Failed(ExecuteError::Script { name: script.name.clone(), error })
            }
            (error, _) => Ended::Failed(ExecuteError::Script { name: script.name.clone(), error }),
        })
    }

    /// Triggers, the write, triggers.
    fn around(&mut self, write: ItemWrite, triggers: &Triggers) -> Result<Left, Ended> {
        let Some(items) = &mut self.items else {
            return Err(Ended::Outdated);
        };
        // Triggers look at items, and a patch shows none until it is applied.
        let mut write = items.transaction.patched(write).map_err(ended)?;
        let operation = operation_of(&write);
        let mut left = Left::default();
        for script in &triggers.before {
            let body = body_of(&write);
            let call = Call {
                kind: Kind::PreTrigger,
                arguments: "[]",
                operation,
                request_body: body.as_deref(),
                response_body: None,
            };
            let outcome = self.run(script, &call)?;
            left.log.push_str(&outcome.log);
            if let Some(body) = outcome.request {
                write = with_body(write, body);
            }
        }
        let request = body_of(&write);
        let Some(items) = &mut self.items else {
            return Err(Ended::Outdated);
        };
        left.main = Some(items.transaction.write_count());
        let seen = items.transaction.write(write).map_err(ended)?;
        let mut answer = seen.map(|seen| String::from_utf8_lossy(&seen.json).into_owned());
        for script in &triggers.after {
            let call = Call {
                kind: Kind::PostTrigger,
                arguments: "[]",
                operation,
                request_body: request.as_deref(),
                response_body: answer.as_deref(),
            };
            let outcome = self.run(script, &call)?;
            left.log.push_str(&outcome.log);
            if let Some(response) = outcome.response {
                answer = Some(response.clone());
                left.response = Some(response);
            }
        }
        Ok(left)
    }

    /// The transaction, with what has been read.
    fn finish(self, result: Result<Left, Ended>) -> (Option<Transaction>, Result<Left, Ended>) {
        let Some(items) = self.items else {
            return (None, result);
        };
        let transaction = items.transaction;
        let (items_read, bytes_read) = (transaction.items_read, transaction.bytes_read);
        (Some(transaction), result.map(|left| Left { items_read, bytes_read, ..left }))
    }
}

/// What becomes of a call whose own write is in trouble.
fn ended(trouble: Trouble) -> Ended {
    match trouble {
        Trouble::Refused(error) => Ended::Failed(error.into()),
        Trouble::Failed(error) => Ended::Failed(error.into()),
        Trouble::Outdated => Ended::Outdated,
        Trouble::Full | Trouble::Late => Ended::Failed(ExecuteError::Busy),
    }
}

fn operation_of(write: &ItemWrite) -> &'static str {
    match &write.kind {
        WriteKind::Create(_) => "Create",
        WriteKind::Upsert(_) => "Upsert",
        WriteKind::Replace(..) => "Replace",
        WriteKind::Delete(_) => "Delete",
        WriteKind::Patch(..) => "Patch",
        WriteKind::Read(_) => "Read",
    }
}

/// The body of a write, if it has one that is JSON as far as a script may know.
fn body_of(write: &ItemWrite) -> Option<String> {
    let body = match &write.kind {
        WriteKind::Create(body) | WriteKind::Upsert(body) | WriteKind::Replace(_, body) => body,
        _ => return None,
    };
    let text = std::str::from_utf8(body).ok()?;
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    is_json.then(|| text.to_owned())
}

fn with_body(mut write: ItemWrite, body: String) -> ItemWrite {
    match &mut write.kind {
        WriteKind::Create(old) | WriteKind::Upsert(old) | WriteKind::Replace(_, old) => {
            *old = body.into();
        }
        _ => {}
    }
    write
}
