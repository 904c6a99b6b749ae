//! Runs a stored procedure or a trigger until its last callback has returned.

use crate::collection::{Answerer, Collection, NOT_ACCEPTED, STOP, quoted};
use crate::engine::{Sandbox, engine};
use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use parking_lot::Mutex;
use rquickjs::{Ctx, Function, Object};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::sync::Arc;

/// A script and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// The name in stack traces.
    pub name: String,
    /// The source of a function.
    pub source: String,
}

/// How a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stored procedure.
    Procedure,
    /// A trigger before an operation, which may change the request.
    PreTrigger,
    /// A trigger after an operation, which may change the response.
    PostTrigger,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Procedure, Kind::PreTrigger, Kind::PostTrigger];

    /// The name that the prelude uses for it.
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

/// The arguments and the request of one call.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// How the script is run.
    pub kind: Kind,
    /// The arguments, as a JSON array.
    pub arguments: &'a str,
    /// The operation that fires a trigger, such as `Create`.
    pub operation: &'a str,
    /// The request body of that operation, as JSON.
    pub request_body: Option<&'a str>,
    /// The response body so far, as JSON.
    pub response_body: Option<&'a str>,
}

impl<'a> Call<'a> {
    /// A call of a stored procedure with these arguments (a JSON array).
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

/// The result of a completed script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The response body, as JSON, if the script set one.
    pub response: Option<String>,
    /// The request body after the script, as JSON.
    pub request: Option<String>,
    /// The script's log output.
    pub log: String,
}

#[derive(Deserialize)]
struct Finished<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    response: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    request: Option<&'a RawValue>,
}

/// Keeps an explicit `null` as a body; only a missing field is `None`.
fn given<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(from).map(Some)
}

/// State shared between the host functions and the caller.
struct Shared<A> {
    /// Taken out when the script has ended, so that no callback can use it any more.
    collection: Option<A>,
    log: String,
    /// The error of a script that called `abort`.
    aborted: Option<ScriptError>,
}

/// Runs a script on a collection until its last callback has returned, and returns the collection. `None` in its
/// place means that the engine still holds it.
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

/// Runs a script in a sandbox.
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

/// Reads the outcome from the sandbox.
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

/// The host function behind every collection call.
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

/// The error of a script that aborts itself.
fn aborted(explained: &str) -> ScriptError {
    let explained: serde_json::Value = serde_json::from_str(explained).unwrap_or_default();
    let text = |name: &str| explained[name].as_str().unwrap_or_default().to_owned();
    let number = explained["number"].as_u64().and_then(|number| u32::try_from(number).ok());
    ScriptError::Thrown { text: text("text"), stack: text("stack"), number: number.unwrap_or(0) }
}

/// The host function behind `console.log`.
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
