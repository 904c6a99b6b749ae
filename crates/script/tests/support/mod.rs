//! A collection in memory, and short functions to run a script on it.

#![allow(dead_code)] // every test program uses another part

use headwater_script::{
    Call, Clock, Collection, Limits, OperationError, Outcome, Page, PageRequest, Reason, Script,
    ScriptError, Stored, Target, run,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Items by id. Ignores queries: every page returns all items.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) items: BTreeMap<String, Value>,
    pub(crate) version: u64,
    /// The number of further operations accepted; `None` for no limit.
    pub(crate) accepted: Option<u32>,
    /// Reading this item stops the script.
    pub(crate) stop_at: Option<&'static str>,
}

impl Memory {
    pub(crate) fn with(items: &[Value]) -> Memory {
        let named = |item: &Value| (item["id"].as_str().unwrap().to_owned(), item.clone());
        Memory { items: items.iter().map(named).collect(), ..Memory::default() }
    }

    fn spend(&mut self) -> Result<(), OperationError> {
        match &mut self.accepted {
            Some(0) => Err(OperationError::NotAccepted),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn put(&mut self, body: &str, id: Option<&str>) -> Result<Stored, OperationError> {
        let mut item: Value = serde_json::from_str(body)
            .map_err(|error| OperationError::bad_request(error.to_string()))?;
        self.version += 1;
        let generated = format!("generated-{}", self.version);
        let id = id.or(item["id"].as_str()).unwrap_or(&generated).to_owned();
        item["id"] = json!(id);
        item["_etag"] = json!(format!("\"{}\"", self.version));
        item["_self"] = json!(format!("dbs/D/colls/C/docs/{id}/"));
        let stored = stored(&item);
        self.items.insert(id, item);
        Ok(stored)
    }

    fn found(&self, target: &Target) -> Result<&Value, OperationError> {
        let (Target::Id(id) | Target::Rid(id)) = target;
        self.items.get(id).ok_or_else(|| refused(Reason::NotFound, "Resource Not Found"))
    }
}

fn refused(reason: Reason, message: &str) -> OperationError {
    OperationError::Refused { reason, message: message.to_owned() }
}

fn stored(item: &Value) -> Stored {
    let etag = item["_etag"].as_str().unwrap_or_default().to_owned();
    Stored { json: item.to_string(), etag }
}

impl Collection for Memory {
    fn links(&self) -> (String, String) {
        ("dbs/D/colls/C/".to_owned(), "dbs/shop/colls/orders".to_owned())
    }

    fn create(&mut self, body: &str, _: bool) -> Result<Stored, OperationError> {
        self.spend()?;
        let item: Value = serde_json::from_str(body).unwrap_or_default();
        if item["id"].as_str().is_some_and(|id| self.items.contains_key(id)) {
            return Err(refused(Reason::Conflict, "it exists"));
        }
        self.put(body, None)
    }

    fn upsert(&mut self, body: &str, _: bool, _: Option<&str>) -> Result<Stored, OperationError> {
        self.spend()?;
        self.put(body, None)
    }

    fn replace(
        &mut self,
        target: &Target,
        body: &str,
        etag: Option<&str>,
    ) -> Result<Stored, OperationError> {
        self.spend()?;
        let found = self.found(target)?.clone();
        if etag.is_some_and(|etag| found["_etag"] != etag) {
            return Err(refused(Reason::PreconditionFailed, "another etag"));
        }
        self.put(body, found["id"].as_str())
    }

    fn delete(&mut self, target: &Target, _: Option<&str>) -> Result<(), OperationError> {
        self.spend()?;
        let id = self.found(target)?["id"].as_str().unwrap().to_owned();
        self.items.remove(&id);
        Ok(())
    }

    fn read(&mut self, target: &Target) -> Result<Stored, OperationError> {
        self.spend()?;
        let (Target::Id(id) | Target::Rid(id)) = target;
        if self.stop_at == Some(id.as_str()) {
            return Err(OperationError::Stop);
        }
        self.found(target).map(stored)
    }

    fn query(&mut self, request: &PageRequest<'_>) -> Result<Page, OperationError> {
        self.spend()?;
        let after = request.continuation.unwrap_or_default().to_owned();
        let mut rest = self.items.iter().filter(|(id, _)| **id > after).peekable();
        let mut rows = Vec::new();
        let mut last = None;
        while rows.len() < request.page_size as usize
            && let Some((id, item)) = rest.next()
        {
            last = Some(id.clone());
            rows.push(item.clone());
        }
        let continuation = last.filter(|_| rest.peek().is_some());
        Ok(Page { rows: Value::from(rows).to_string(), continuation })
    }
}

#[allow(clippy::disallowed_methods)] // a pure crate is given the time, here as everywhere
pub(crate) fn clock() -> Clock {
    let started = Instant::now(); // tidy: allow a deadline of a sandbox is real time
    Arc::new(move || started.elapsed())
}

/// Limits short enough for tests.
pub(crate) fn short() -> Limits {
    Limits {
        time: Duration::from_millis(300),
        accepting: Duration::from_millis(250),
        memory_bytes: 16 << 20,
        ..Limits::default()
    }
}

pub(crate) fn script(source: &str) -> Script {
    Script { name: "tested".to_owned(), source: source.to_owned() }
}

/// Runs a stored procedure.
pub(crate) fn procedure(
    source: &str,
    arguments: &str,
    memory: Memory,
) -> (Memory, Result<Outcome, ScriptError>) {
    let call = Call::procedure(arguments);
    let (memory, outcome) = run(&script(source), &call, memory, &Limits::default(), &clock());
    (memory.expect("the collection comes back"), outcome)
}

/// The response of a stored procedure that must succeed.
pub(crate) fn response(source: &str, arguments: &str, memory: Memory) -> Value {
    let (_, outcome) = procedure(source, arguments, memory);
    let text = outcome.unwrap_or_else(|error| panic!("{source}: {error}")).response;
    text.map_or(Value::Null, |text| serde_json::from_str(&text).unwrap())
}
