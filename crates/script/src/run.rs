//! Running a stored procedure or a trigger from its first line to its last callback.

use crate::collection::{Answerer, Collection, NOT_ACCEPTED, STOP, quoted};
use crate::engine::{Sandbox, engine};
use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use parking_lot::Mutex;
use rquickjs::{Ctx, Function, Object};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A script with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How stack traces call it.
    pub name: String,
    /// The source of a function.
    pub source: String,
}

/// What a script is run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stored procedure.
    Procedure,
    /// A trigger before an operation, which may change what is asked for.
    PreTrigger,
    /// A trigger after an operation, which may change the answer.
    PostTrigger,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Procedure, Kind::PreTrigger, Kind::PostTrigger];

    /// The name by which the prelude knows it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Kind::Procedure => "procedure",
            Kind::PreTrigger => "pre",
            Kind::PostTrigger => "post",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a script is called with.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// What it is run as.
    pub kind: Kind,
    /// Its arguments, as a JSON array.
    pub arguments: &'a str,
    /// The operation a trigger belongs to, such as `Create`.
    pub operation: &'a str,
    /// The body of the request a trigger belongs to, as JSON.
    pub request_body: Option<&'a str>,
    /// The body of the answer so far, as JSON.
    pub response_body: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// A call of a stored procedure with these arguments, a JSON array.
    #[must_use]
    pub fn procedure(arguments: &'a str) -> Call<'a> {
        Call {
            kind: Kind::Procedure,
            arguments,
            operation: "ExecuteJavaScript",
            request_body: None,
            response_body: None,
        }
    }
}

/// What a script that ran to its end has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The body of its response, as JSON, if it set one.
    pub response: Option<String>,
    /// The body of the request as it left it, as JSON.
    pub request: Option<String>,
    /// What it logged.
    pub log: String,
}

#[derive(Deserialize)]
struct Finished<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    response: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    request: Option<&'a RawValue>,
}

/// A `null` that is there is a body; only what is missing is none.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// What host functions share with the one who runs the script.
struct Shared<A> {
    /// Taken out when the script has ended, so that no callback can reach it any more.
    collection: Option<A>,
    log: String,
    /// What the script gave to `abort`.
    aborted: Option<ScriptError>,
}

/// Runs a script on a collection until its last callback has returned, and hands the collection back;
/// `None` instead of it would mean that the engine has kept it.
pub fn run<C: Collection>(
    script: &Script,
    call: &Call<'_>,
    collection: C,
    limits: &Limits,
    clock: &Clock,
) -> (Option<C>, Result<Outcome, ScriptError>) {
    let links = collection.links();
    match Sandbox::new(limits, clock) {
        Ok(sandbox) => execute(&sandbox, script, call, &links, collection),
        Err(error) => (Some(collection), Err(error)),
    }
}

/// Runs a script in a sandbox of its own.
pub(crate) fn execute<A: Answerer>(
    sandbox: &Sandbox,
    script: &Script,
    call: &Call<'_>,
    links: &(String, String),
    collection: A,
) -> (Option<A>, Result<Outcome, ScriptError>) {
    let shared = Shared { collection: Some(collection), log: String::new(), aborted: None };
    let shared = Arc::new(Mutex::new(shared));
    let outcome = drive(sandbox, script, call, links, &shared);
    let mut shared = shared.lock();
    let outcome = match shared.aborted.take() {
        Some(aborted) => Err(aborted),
        None => outcome.map(|outcome| Outcome { log: std::mem::take(&mut shared.log), ..outcome }),
    };
    (shared.collection.take(), outcome)
}

fn drive<A: Answerer>(
    sandbox: &Sandbox,
    script: &Script,
    call: &Call<'_>,
    links: &(String, String),
    shared: &Arc<Mutex<Shared<A>>>,
) -> Result<Outcome, ScriptError> {
    let limits = &sandbox.limits;
    sandbox.enter(|ctx| {
        let host = host(ctx, sandbox, shared)?;
        let print = print(ctx, shared, limits.log_bytes)?;
        let prelude = sandbox.prelude(ctx, host, print, &setting(call, links))?;
        let entry = sandbox.entry(ctx, &script.name, &script.source)?;
        let failed = |error| sandbox.failed(ctx, Some(&prelude), &error);
        let start: Function<'_> = prelude.get("start").map_err(engine)?;
        start.call::<_, ()>((entry, call.arguments)).map_err(failed)?;
        let next: Function<'_> = prelude.get("next").map_err(engine)?;
        loop {
            while ctx.execute_pending_job() {
                sandbox.check()?;
            }
            sandbox.check()?;
            let more: bool = next.call(()).map_err(failed)?;
            if !more && !ctx.execute_pending_job() {
                break;
            }
        }
        sandbox.check()?;
        finish(&prelude, limits).map_err(|error| match error {
            Ok(error) => failed(error),
            Err(error) => error,
        })
    })
}

/// What the script has left, taken out of the sandbox.
fn finish(
    prelude: &Object<'_>,
    limits: &Limits,
) -> Result<Outcome, Result<rquickjs::Error, ScriptError>> {
    let finish: Function<'_> = prelude.get("finish").map_err(Ok)?;
    let text: String = finish.call(()).map_err(Ok)?;
    let finished: Finished<'_> = serde_json::from_str(&text)
        .map_err(|error| Err(ScriptError::Engine(format!("the response: {error}"))))?;
    let owned = |raw: Option<&RawValue>| raw.map(|raw| raw.get().to_owned());
    let response = owned(finished.response);
    if response.as_ref().is_some_and(|response| response.len() > limits.response_bytes) {
        return Err(Err(ScriptError::Response(limits.response_bytes)));
    }
    Ok(Outcome { response, request: owned(finished.request), log: String::new() })
}

fn setting(call: &Call<'_>, (self_link, alt_link): &(String, String)) -> String {
    let kind = call.kind.name();
    let member = |name: &str, value: Option<&str>| {
        value.map_or_else(String::new, |value| format!(r#","{name}":{value}"#))
    };
    format!(
        r#"{{"kind":"{kind}","selfLink":{},"altLink":{},"operationType":{}{}{}}}"#,
        quoted(self_link),
        quoted(alt_link),
        quoted(call.operation),
        member("requestBody", call.request_body),
        member("responseBody", call.response_body),
    )
}

/// The function behind every call to the collection.
fn host<'js, A: Answerer>(
    ctx: &Ctx<'js>,
    sandbox: &Sandbox,
    shared: &Arc<Mutex<Shared<A>>>,
) -> Result<Function<'js>, ScriptError> {
    let (shared, watch) = (shared.clone(), sandbox.watch.clone());
    let host = move |operation: String, options: String, body: Option<String>| -> String {
        let mut shared = shared.lock();
        if operation == "abort" {
            shared.aborted = Some(aborted(&body.unwrap_or_default()));
            watch.stop();
            return STOP.to_owned();
        }
        if !watch.accepts() {
            return NOT_ACCEPTED.to_owned();
        }
        let Some(collection) = &mut shared.collection else {
            return STOP.to_owned();
        };
        let answer = collection.answer(&operation, &options, body.as_deref());
        if answer == STOP {
            watch.stop();
        }
        answer
    };
    Function::new(ctx.clone(), host).map_err(engine)
}

/// What a script that aborts itself has to say.
fn aborted(explained: &str) -> ScriptError {
    let explained: serde_json::Value = serde_json::from_str(explained).unwrap_or_default();
    let text = |name: &str| explained[name].as_str().unwrap_or_default().to_owned();
    let number = explained["number"].as_u64().and_then(|number| u32::try_from(number).ok());
    ScriptError::Thrown { text: text("text"), stack: text("stack"), number: number.unwrap_or(0) }
}

/// The function behind `console.log`.
fn print<'js, A: Answerer>(
    ctx: &Ctx<'js>,
    shared: &Arc<Mutex<Shared<A>>>,
    log_bytes: usize,
) -> Result<Function<'js>, ScriptError> {
    let shared = shared.clone();
    let print = move |text: String| {
        let log = &mut shared.lock().log;
        let room = log_bytes.saturating_sub(log.len());
        log.push_str(&text[..text.floor_char_boundary(room)]);
    };
    Function::new(ctx.clone(), print).map_err(engine)
}
