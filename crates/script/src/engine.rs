//! One sandbox: an engine with caps on memory, stack and time, and the prelude loaded in it.
//!
//! The engine calls an interrupt handler now and then. After the deadline, or once the script was stopped, the
//! handler ends the script without running any further `try` or `finally`. `memory` shortens the steps between
//! two such calls.

use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use crate::memory::Memory;
use rquickjs::context::EvalOptions;
use rquickjs::{Context, Ctx, Error, Function, Object, Runtime, Value};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const GUARDS: &str = include_str!("guards.js");
const PRELUDE: &str = include_str!("prelude.js");

/// Bytes reserved for the error that ends a script: some objects and a stack trace, each in a new engine block.
const RESERVE_BYTES: usize = 1 << 20;

/// A sandbox. Dropping it frees everything in it.
pub(crate) struct Sandbox {
    context: Context,
    pub(crate) watch: Watch,
    pub(crate) limits: Limits,
    /// Whether a source in it contains `throw null`.
    throws_null: AtomicBool,
}

/// The state behind the interrupt handler: the clock, the limits and why the script must end.
#[derive(Clone)]
pub(crate) struct Watch {
    clock: Clock,
    started: Duration,
    limits: Limits,
    expired: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    /// Bytes the engine may still allocate to report the end of a script.
    reserve: Arc<AtomicUsize>,
}

impl Watch {
    pub(crate) fn new(limits: &Limits, clock: &Clock) -> Watch {
        Watch {
            started: clock(),
            clock: clock.clone(),
            limits: *limits,
            expired: Arc::default(),
            stopped: Arc::default(),
            reserve: Arc::default(),
        }
    }

    pub(crate) fn must_end(&self) -> bool {
        if self.elapsed() > self.limits.time {
            self.expired.store(true, Ordering::Relaxed);
        }
        self.expired.load(Ordering::Relaxed) || self.stopped.load(Ordering::Relaxed)
    }

    /// The interrupt handler. Before it ends the script it releases memory for the error: without any, the engine
    /// would throw an error that the script can catch, and the script would continue.
    fn interrupts(&self) -> bool {
        let must_end = self.must_end();
        if must_end {
            self.reserve.store(RESERVE_BYTES, Ordering::Relaxed);
        }
        must_end
    }

    /// Takes this many bytes from the reserve; false if it does not have them.
    pub(crate) fn takes_reserve(&self, bytes: usize) -> bool {
        let left = self.reserve.load(Ordering::Relaxed);
        let is_enough = left > 0 && left >= bytes;
        if is_enough {
            self.reserve.store(left - bytes, Ordering::Relaxed);
        }
        is_enough
    }

    fn elapsed(&self) -> Duration {
        (self.clock)().saturating_sub(self.started)
    }

    /// Whether there is time for another call to the collection.
    pub(crate) fn accepts(&self) -> bool {
        self.elapsed() <= self.limits.accepting
    }

    /// Ends the script at the next opportunity.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// The prelude's description of a thrown value.
#[derive(Deserialize)]
struct Explained {
    text: String,
    stack: String,
    number: i64,
}

impl Sandbox {
    pub(crate) fn new(limits: &Limits, clock: &Clock) -> Result<Sandbox, ScriptError> {
        let watch = Watch::new(limits, clock);
        let memory = Memory::new(watch.clone(), limits.memory_bytes);
        let runtime = Runtime::new_with_alloc(memory).map_err(engine)?;
        // The cycle collector is off while a script runs. When memory runs out in the middle of a change to an
        // object, the engine creates an error object, and collecting cycles at that moment follows invalid
        // pointers. A script that leaves cycles ends at its memory cap instead.
        runtime.set_gc_threshold(usize::MAX);
        runtime.set_max_stack_size(limits.stack_bytes);
        let asked = watch.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || asked.interrupts())));
        let context = Context::full(&runtime).map_err(engine)?;
        Ok(Sandbox { context, watch, limits: *limits, throws_null: AtomicBool::new(false) })
    }

    /// Works inside the sandbox. The sandbox is locked meanwhile, so `work` must not enter it again.
    pub(crate) fn enter<T>(
        &self,
        work: impl FnOnce(&Ctx<'_>) -> Result<T, ScriptError>,
    ) -> Result<T, ScriptError> {
        self.context.with(|ctx| work(&ctx))
    }

    /// Loads guards and prelude; `setting` describes the call to the prelude, as JSON.
    pub(crate) fn prelude<'js>(
        &self,
        ctx: &Ctx<'js>,
        host: Function<'js>,
        print: Function<'js>,
        setting: &str,
    ) -> Result<Object<'js>, ScriptError> {
        let prepared: Result<Object<'js>, Error> = (|| {
            ctx.eval_with_options::<(), _>(GUARDS, options("guards.js"))?;
            let make: Function<'js> = ctx.eval_with_options(PRELUDE, options("prelude.js"))?;
            make.call((host, print, ctx.json_parse(setting)?))
        })();
        prepared.map_err(|error| self.failed(ctx, None, &error))
    }

    /// Finds the entry function of a script: the whole source if it is one, or else the first one it declares.
    pub(crate) fn entry<'js>(
        &self,
        ctx: &Ctx<'js>,
        name: &str,
        source: &str,
    ) -> Result<Function<'js>, ScriptError> {
        self.throws_null.fetch_or(says_throw_null(source), Ordering::Relaxed);
        let file = format!("{name}.js");
        let whole = format!("({source}\n)");
        if let Ok(function) = ctx.eval_with_options::<Function<'js>, _>(whole, options(&file)) {
            return Ok(function);
        }
        ctx.catch();
        self.check()?;
        let before = names(ctx);
        if let Err(error) = ctx.eval_with_options::<Value<'js>, _>(source, options(&file)) {
            let failure = self.failed(ctx, None, &error);
            return Err(match failure {
                ScriptError::Thrown { text, .. } => ScriptError::Compile(text),
                other => other,
            });
        }
        let globals = ctx.globals();
        let mut declared = names(ctx).into_iter().filter(|name| !before.contains(name));
        declared.find_map(|name| globals.get(name).ok()).ok_or(ScriptError::NoFunction)
    }

    /// Fails if the script must end.
    pub(crate) fn check(&self) -> Result<(), ScriptError> {
        if self.watch.expired.load(Ordering::Relaxed) {
            return Err(ScriptError::Time(self.limits.time));
        }
        if self.watch.stopped.load(Ordering::Relaxed) {
            return Err(ScriptError::Stopped);
        }
        Ok(())
    }

    /// Converts an error of the engine. `prelude` describes what the script has thrown.
    pub(crate) fn failed<'js>(
        &self,
        ctx: &Ctx<'js>,
        prelude: Option<&Object<'js>>,
        error: &Error,
    ) -> ScriptError {
        if let Err(ended) = self.check() {
            ctx.catch();
            return ended;
        }
        match error {
            Error::Exception => {
                let thrown = ctx.catch();
                let explained = self.explain(ctx, prelude, &thrown);
                if let Err(ended) = self.check() {
                    return ended;
                }
                explained
            }
            Error::Allocation => ScriptError::Memory(self.limits.memory_bytes),
            other => ScriptError::Engine(other.to_string()),
        }
    }

    fn explain<'js>(
        &self,
        ctx: &Ctx<'js>,
        prelude: Option<&Object<'js>>,
        thrown: &Value<'js>,
    ) -> ScriptError {
        // The engine throws null when it has no memory even for an error. Nothing distinguishes its null from a
        // script's, so null counts as the script's only if a source contains `throw null`.
        if thrown.is_null() && !self.throws_null.load(Ordering::Relaxed) {
            return ScriptError::Memory(self.limits.memory_bytes);
        }
        let by_prelude = || -> Option<Explained> {
            let explain: Function<'js> = prelude?.get("explain").ok()?;
            let text: String = explain.call((thrown.clone(),)).ok()?;
            serde_json::from_str(&text).ok()
        };
        let explained = by_prelude().or_else(|| {
            ctx.catch();
            plainly(thrown)
        });
        let Some(explained) = explained else {
            ctx.catch();
            return ScriptError::Memory(self.limits.memory_bytes);
        };
        if explained.text.contains("out of memory") {
            return ScriptError::Memory(self.limits.memory_bytes);
        }
        ScriptError::Thrown {
            text: explained.text,
            stack: explained.stack,
            number: u32::try_from(explained.number).unwrap_or(0),
        }
    }
}

/// Describes an exception without the prelude.
fn plainly(thrown: &Value<'_>) -> Option<Explained> {
    let error = thrown.as_exception()?;
    Some(Explained {
        text: error.message().unwrap_or_default(),
        stack: error.stack().unwrap_or_default(),
        number: 0,
    })
}

/// Whether a source contains `throw null` or `reject(null)`.
fn says_throw_null(source: &str) -> bool {
    source.match_indices("null").any(|(at, _)| {
        let before = source[..at].trim_end_matches(|c: char| c.is_whitespace() || c == '(');
        before.ends_with("throw") || before.ends_with("reject")
    })
}

fn names(ctx: &Ctx<'_>) -> Vec<String> {
    ctx.globals().keys::<String>().flatten().collect()
}

/// Evaluation options: scripts expect sloppy mode.
fn options(file: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(file.to_owned());
    options
}

pub(crate) fn engine(error: Error) -> ScriptError {
    match error {
        Error::Allocation => ScriptError::Engine("no memory for a sandbox".to_owned()),
        other => ScriptError::Engine(other.to_string()),
    }
}
