//! The server's side of a script that runs in a worker.

use super::channel::{Kind, Message, malformed};
use super::pool::{Deadline, Worker, Workers};
use crate::collection::{Answerer, Collection};
use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use crate::run::{Call, Outcome, Script};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::sync::Arc;

impl Workers {
    /// Runs a script on a collection as [`run`](crate::run) does, in a process of its own. A script that does
    /// not end within its time is killed.
    pub fn run<C: Collection>(
        &self,
        script: &Script,
        call: &Call<'_>,
        mut collection: C,
        limits: &Limits,
        clock: &Clock,
    ) -> (Option<C>, Result<Outcome, ScriptError>) {
        let outcome = self.outcome(script, call, &mut collection, limits, clock);
        (Some(collection), outcome)
    }

    fn outcome<C: Collection>(
        &self,
        script: &Script,
        call: &Call<'_>,
        collection: &mut C,
        limits: &Limits,
        clock: &Clock,
    ) -> Result<Outcome, ScriptError> {
        let mut worker = self.take()?;
        let deadline = Deadline::new(limits.time, clock);
        let (self_link, alt_link) = collection.links();
        let limits_text = limits_text(limits)?;
        let request = [
            Some(limits_text.as_str()),
            Some(script.name.as_str()),
            Some(script.source.as_str()),
            Some(self_link.as_str()),
            Some(alt_link.as_str()),
            Some(call.kind.name()),
            Some(call.arguments),
            Some(call.operation),
            call.request_body,
            call.response_body,
        ];
        let mut sent = worker.send(Kind::Run, &request);
        loop {
            let received = sent.and_then(|()| worker.receive(&deadline));
            let mut message = match received {
                Ok(message) => message,
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    return Err(ScriptError::Memory(limits.memory_bytes));
                }
                Err(error) => return Err(worker.failed(&error, &deadline)),
            };
            match message.kind {
                Kind::Ask => {
                    let (operation, options) = (message.text(), message.text());
                    let answer = collection.answer(
                        &operation.unwrap_or_default(),
                        &options.unwrap_or_default(),
                        message.text().as_deref(),
                    );
                    sent = worker.send(Kind::Answer, &[Some(&answer)]);
                }
                Kind::Done => {
                    self.give_back(worker);
                    return Ok(Outcome {
                        response: message.text(),
                        request: message.text(),
                        log: message.text().unwrap_or_default(),
                    });
                }
                Kind::Failed => {
                    self.give_back(worker);
                    return Err(error_of(message));
                }
                _ => return Err(worker.failed(&malformed("it is out of order"), &deadline)),
            }
        }
    }
}

/// User-defined functions loaded in a worker.
pub(crate) struct RemoteFunctions {
    workers: Arc<Workers>,
    /// An error once a function has exceeded its limits.
    worker: Result<Worker, ScriptError>,
    /// Functions whose source the worker already has.
    known: HashSet<String>,
    deadline: Deadline,
    memory_bytes: usize,
}

impl RemoteFunctions {
    pub(crate) fn new(
        workers: &Arc<Workers>,
        limits: &Limits,
        clock: &Clock,
    ) -> Result<RemoteFunctions, ScriptError> {
        let mut worker = workers.take()?;
        let deadline = Deadline::new(limits.time, clock);
        if let Err(error) = worker.send(Kind::Open, &[Some(&limits_text(limits)?)]) {
            return Err(worker.failed(&error, &deadline));
        }
        Ok(RemoteFunctions {
            workers: workers.clone(),
            worker: Ok(worker),
            known: HashSet::new(),
            deadline,
            memory_bytes: limits.memory_bytes,
        })
    }

    pub(crate) fn call(
        &mut self,
        script: &Script,
        arguments: &[Option<String>],
    ) -> Result<Option<String>, ScriptError> {
        let worker = self.worker.as_mut().map_err(|ended| ended.clone())?;
        let source = self.known.insert(script.name.clone()).then_some(script.source.as_str());
        let mut texts = vec![Some(script.name.as_str()), source];
        texts.extend(arguments.iter().map(Option::as_deref));
        let sent = worker.send(Kind::Call, &texts);
        let ended = match sent.and_then(|()| worker.receive(&self.deadline)) {
            Ok(mut message) if message.kind == Kind::Value => return Ok(message.text()),
            Ok(message) if message.kind == Kind::Failed => {
                let error = error_of(message);
                if !error.ends_worker() {
                    return Err(error);
                }
                Ok(error)
            }
            Ok(_) => Err(malformed("it is out of order")),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                return Err(ScriptError::Memory(self.memory_bytes));
            }
            Err(error) => Err(error),
        };
        // Later calls fail with the same error.
        let worker = std::mem::replace(&mut self.worker, Err(ScriptError::Stopped));
        let error = match (ended, worker) {
            (Ok(error), _) | (_, Err(error)) => error,
            (Err(error), Ok(worker)) => worker.failed(&error, &self.deadline),
        };
        self.worker = Err(error.clone());
        Err(error)
    }
}

impl Drop for RemoteFunctions {
    fn drop(&mut self) {
        let worker = std::mem::replace(&mut self.worker, Err(ScriptError::Stopped));
        if let Ok(mut worker) = worker
            && worker.send(Kind::Close, &[]).is_ok()
        {
            self.workers.give_back(worker);
        }
    }
}

fn limits_text(limits: &Limits) -> Result<String, ScriptError> {
    serde_json::to_string(limits).map_err(|error| ScriptError::Engine(error.to_string()))
}

fn error_of(mut message: Message) -> ScriptError {
    let text = message.text().unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_else(|error| ScriptError::Engine(error.to_string()))
}
