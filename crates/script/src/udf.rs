//! User-defined functions, called by a query once per row.
//!
//! One sandbox serves one page of a query, because a fresh one per row would cost more than the row. Queries share
//! no sandbox. The time limit covers all calls of the page together.

use crate::engine::{Sandbox, engine};
use crate::error::ScriptError;
use crate::limits::{Clock, Limits};
use crate::run::Script;
use crate::worker::{RemoteFunctions, Workers};
use parking_lot::Mutex;
use rquickjs::{Function, Object};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The user-defined functions a query may call.
pub struct Functions {
    scripts: HashMap<String, Script>,
    limits: Limits,
    clock: Clock,
    /// The workers that run them; `None` for this process.
    workers: Option<Arc<Workers>>,
    /// The sandbox or worker, created by the first call.
    place: Mutex<Option<Place>>,
}

/// Where the functions are loaded.
enum Place {
    Here(Loaded),
    Worker(RemoteFunctions),
}

/// A sandbox with the prelude and some functions. They are globals under reserved names: a function that changes
/// them affects only its own query.
pub(crate) struct Loaded {
    sandbox: Sandbox,
    compiled: HashSet<String>,
}

/// The global that holds the prelude.
const PRELUDE: &str = "headwater prelude";

impl Functions {
    /// Functions by name, run by a worker or in this process. Each is compiled at its first call.
    pub fn new(
        scripts: impl IntoIterator<Item = Script>,
        limits: &Limits,
        clock: &Clock,
        workers: Option<Arc<Workers>>,
    ) -> Self {
        Functions {
            scripts: scripts.into_iter().map(|script| (script.name.clone(), script)).collect(),
            limits: *limits,
            clock: clock.clone(),
            workers,
            place: Mutex::new(None),
        }
    }

    /// Calls a function. Arguments and result are JSON; `None` is undefined.
    ///
    /// # Errors
    /// When the function does not exist or fails.
    pub fn call(
        &self,
        name: &str,
        arguments: &[Option<String>],
    ) -> Result<Option<String>, ScriptError> {
        let script = self.scripts.get(name).ok_or_else(|| ScriptError::Thrown {
            text: format!("there is no user-defined function {name}; create it first"),
            stack: String::new(),
            number: 404,
        })?;
        let mut place = self.place.lock();
        let place = match &mut *place {
            Some(place) => place,
            none => none.insert(self.load()?),
        };
        match place {
            Place::Here(loaded) => loaded.call(script, arguments),
            Place::Worker(remote) => remote.call(script, arguments),
        }
    }

    fn load(&self) -> Result<Place, ScriptError> {
        Ok(match &self.workers {
            Some(workers) => {
                Place::Worker(RemoteFunctions::new(workers, &self.limits, &self.clock)?)
            }
            None => Place::Here(Loaded::new(&self.limits, &self.clock)?),
        })
    }
}

impl Loaded {
    pub(crate) fn new(limits: &Limits, clock: &Clock) -> Result<Loaded, ScriptError> {
        let sandbox = Sandbox::new(limits, clock)?;
        sandbox.enter(|ctx| {
            let host = Function::new(ctx.clone(), || ".".to_owned()).map_err(engine)?;
            let print = Function::new(ctx.clone(), || ()).map_err(engine)?;
            let prelude = sandbox.prelude(ctx, host, print, r#"{"kind":"function"}"#)?;
            ctx.globals().set(PRELUDE, prelude).map_err(engine)
        })?;
        Ok(Loaded { sandbox, compiled: HashSet::new() })
    }

    pub(crate) fn call(
        &mut self,
        script: &Script,
        arguments: &[Option<String>],
    ) -> Result<Option<String>, ScriptError> {
        let Loaded { sandbox, compiled } = self;
        sandbox.check()?;
        sandbox.enter(|ctx| {
            let prelude: Object<'_> = ctx.globals().get(PRELUDE).map_err(engine)?;
            let place = format!("entry {}", script.name);
            let entry = if compiled.contains(&script.name) {
                prelude.get(place.as_str()).map_err(engine)?
            } else {
                let entry = sandbox.entry(ctx, &script.name, &script.source)?;
                prelude.set(place.as_str(), entry.clone()).map_err(engine)?;
                compiled.insert(script.name.clone());
                entry
            };
            let result = called(&prelude, entry, arguments);
            let text = result.map_err(|error| sandbox.failed(ctx, Some(&prelude), &error))?;
            sandbox.check()?;
            Ok(Some(text).filter(|text| !text.is_empty()))
        })
    }
}

fn called<'js>(
    prelude: &Object<'js>,
    entry: Function<'js>,
    arguments: &[Option<String>],
) -> Result<String, rquickjs::Error> {
    let call: Function<'js> = prelude.get("call")?;
    // Each argument is a list of its own; an empty list is undefined, which JSON cannot express.
    let listed: Vec<String> = arguments
        .iter()
        .map(|argument| format!("[{}]", argument.as_deref().unwrap_or_default()))
        .collect();
    call.call((entry, format!("[{}]", listed.join(","))))
}
