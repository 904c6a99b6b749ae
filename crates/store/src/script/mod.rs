//! Runs scripts on a container: stored procedures, triggers and user-defined functions.
//!
//! ```text
//! wait for a turn ─► run on an overlay ─► commit ─► answer
//!                        ▲                   │ another writer changed an item that was read
//!                        └───────────────────┘
//! ```
//!
//! One call is one transaction on one partition key: one entry of the log, one LSN, or nothing. Concurrency control
//! is optimistic. Calls for the same key take turns, so that they do not invalidate each other; other writers never
//! wait. A limited number of scripts runs at a time, each on its own thread.
//!
//! `transaction` decides which operations a script may perform. The crate `headwater-script` runs the JavaScript, and
//! the options decide in which process. This module neither stores nor finds scripts: callers pass their sources.

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
use crate::transaction::{CommittedTransaction, Transaction, Trouble};
use headwater_model::{ContainerRid, Lsn, PartitionId, PartitionKey};
use headwater_script::{Call, Clock, Kind, Limits, Outcome, ScriptError, run};
use items::Items;
use std::sync::Arc;
use std::time::Duration;

pub use headwater_script::{
    Limits as ScriptLimits, Script, ScriptError as ScriptFailure, Workers as ScriptWorkers,
    serve_worker as serve_script_worker,
};

/// Maximum number of attempts to run a script before its caller gets a conflict.
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

/// Triggers to run with a write, each list in order.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// Pre-triggers: run before the write and may change the item.
    pub before: Vec<Script>,
    /// Post-triggers: run after the write in the same transaction and may change the response.
    pub after: Vec<Script>,
    /// User-defined functions their queries may call.
    pub functions: Vec<Script>,
}

/// Result of running scripts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Executed {
    /// The response that the scripts set, as JSON.
    pub response: Option<String>,
    /// The text that the scripts logged.
    pub log: String,
    /// All writes of the transaction, in order.
    pub written: Vec<Written>,
    /// Index in `written` of the write that the triggers ran with.
    pub main: Option<usize>,
    /// The partition of the key.
    pub partition: PartitionId,
    /// LSN for session reads: it covers all writes of this call.
    pub lsn: Lsn,
    /// Number of items that were read.
    pub items_read: usize,
    /// Bytes of the items that were read.
    pub bytes_read: usize,
}

/// Why a call of scripts failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecuteError {
    /// A script failed or was stopped.
    #[error("script {name}: {error}")]
    Script {
        /// Name of the script.
        name: String,
        /// Why it failed.
        error: ScriptError,
    },
    /// The write that the triggers ran with was rejected.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The circuit breaker of the script is open: it exceeded its limits several times in a row.
    #[error(
        "script {name} is blocked because it has exceeded its limits several times; change it to do less in \
         one call, or wait {} s", .wait.as_secs().max(1)
    )]
    Blocked {
        /// Name of the script.
        name: String,
        /// Time until it may run again.
        wait: Duration,
    },
    /// Other writers kept changing the items that the script reads.
    #[error("other writers keep changing the items this script works on; try again")]
    Conflict,
    /// Too many scripts are waiting.
    #[error("too many scripts are running; try again in a moment")]
    Busy,
    /// Items cannot be read.
    #[error(transparent)]
    Read(#[from] ItemReadError),
}

/// Why an attempt failed.
enum AttemptError {
    /// For a reason other than concurrent writes.
    Failed(ExecuteError),
    /// Another writer changed an item that was read.
    Outdated,
}

/// Result of scripts before the transaction commits.
#[derive(Default)]
struct ScriptOutput {
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
    /// If the procedure fails or its transaction is rejected. Nothing was changed then.
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
            let result = result.map(|outcome| ScriptOutput {
                response: outcome.response,
                log: outcome.log,
                ..ScriptOutput::default()
            });
            scripts.finish(result)
        };
        self.transact(&key, work).await
    }

    /// Creates, upserts, replaces or deletes an item and runs triggers before and after it.
    ///
    /// # Errors
    /// If the write or a trigger fails or is rejected. Nothing was changed then.
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

    /// Runs `work` on a transaction and commits it. Retries while other writers change items that were read.
    async fn transact(
        &self,
        key: &PartitionKey,
        work: impl Fn(Transaction) -> (Option<Transaction>, Result<ScriptOutput, AttemptError>) + Send,
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
                // The script may have failed because it read an inconsistent state; then it is retried.
                Err(AttemptError::Failed(error)) => match transaction.validate().await {
                    Err(Trouble::Outdated) => Trouble::Outdated,
                    _ => return Err(error),
                },
                Err(AttemptError::Outdated) => Trouble::Outdated,
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
        left: ScriptOutput,
        committed: CommittedTransaction,
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

    /// Links of the container: one by resource ids, one by names.
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
    /// `None` while a script runs, or if a failed script did not return them.
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

    fn run(&mut self, script: &Script, call: &Call<'_>) -> Result<Outcome, AttemptError> {
        let (offenders, whose) =
            (&self.shared.offenders, offenders::name_of(self.container, script));
        if let Some(wait) = offenders.refused_for(whose, (self.clock)()) {
            let name = script.name.clone();
            return Err(AttemptError::Failed(ExecuteError::Blocked { name, wait }));
        }
        let Some(items) = self.items.take() else {
            return Err(AttemptError::Outdated);
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
            (ScriptError::Stopped, Some(Trouble::Outdated)) => AttemptError::Outdated,
            (ScriptError::Stopped, Some(Trouble::Failed(error))) => {
                AttemptError::Failed(error.into())
            }
            (ScriptError::Stopped, Some(Trouble::Refused(error))) => {
                AttemptError::Failed(error.into())
            }
            (ScriptError::Stopped, _) => {
                let error = ScriptError::Time(self.limits.time);
                AttemptError::Failed(ExecuteError::Script { name: script.name.clone(), error })
            }
            (error, _) => {
                AttemptError::Failed(ExecuteError::Script { name: script.name.clone(), error })
            }
        })
    }

    /// Runs the pre-triggers, the write and the post-triggers.
    fn around(
        &mut self,
        write: ItemWrite,
        triggers: &Triggers,
    ) -> Result<ScriptOutput, AttemptError> {
        let Some(items) = &mut self.items else {
            return Err(AttemptError::Outdated);
        };
        // Triggers read the new item, so a patch is applied first and written as a replace.
        let mut write = items.transaction.patched(write).map_err(attempt_error)?;
        let operation = operation_of(&write);
        let mut left = ScriptOutput::default();
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
            return Err(AttemptError::Outdated);
        };
        left.main = Some(items.transaction.write_count());
        let seen = items.transaction.write(write).map_err(attempt_error)?;
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

    /// Returns the transaction, and the result with the counts of items and bytes read.
    fn finish(
        self,
        result: Result<ScriptOutput, AttemptError>,
    ) -> (Option<Transaction>, Result<ScriptOutput, AttemptError>) {
        let Some(items) = self.items else {
            return (None, result);
        };
        let transaction = items.transaction;
        let (items_read, bytes_read) = (transaction.items_read, transaction.bytes_read);
        (Some(transaction), result.map(|left| ScriptOutput { items_read, bytes_read, ..left }))
    }
}

/// The end of a call whose own write failed.
fn attempt_error(trouble: Trouble) -> AttemptError {
    match trouble {
        Trouble::Refused(error) => AttemptError::Failed(error.into()),
        Trouble::Failed(error) => AttemptError::Failed(error.into()),
        Trouble::Outdated => AttemptError::Outdated,
        Trouble::Full | Trouble::Late => AttemptError::Failed(ExecuteError::Busy),
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

/// The body of a write, if it has one and it is JSON text.
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
