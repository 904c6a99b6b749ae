//! User-defined functions for the query engine.

use crate::account::Shared;
use headwater_query::{UserFunctions, Value};
use headwater_runtime::{Runtime, Waiter};
use headwater_script::{Clock, Functions, Script};
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes of JSON that one call may return; the same limit as for the response of a procedure.
const RESULT_BYTES_MAX: usize = 2 << 20;

/// The user-defined functions of one query.
pub(crate) struct UserScripts {
    functions: Functions,
    runtime: Runtime,
}

impl UserScripts {
    pub(crate) fn new(scripts: &[Script], shared: &Shared) -> UserScripts {
        let (runtime, options) = (&shared.runtime, &shared.options);
        let clock: Clock = {
            let (runtime, waiter) = (runtime.clone(), Waiter::current());
            // If the client is gone, the clock reports that the time is up, so the call ends.
            Arc::new(move || if waiter.is_gone() { Duration::MAX } else { runtime.elapsed() })
        };
        let (limits, workers) = (&options.scripts, options.script_workers.clone());
        let functions = Functions::new(scripts.iter().cloned(), limits, &clock, workers);
        UserScripts { functions, runtime: runtime.clone() }
    }
}

impl UserFunctions for UserScripts {
    fn call(&self, name: &str, arguments: &[Value<'_>]) -> Result<Value<'static>, String> {
        let arguments: Vec<Option<String>> = arguments
            .iter()
            .map(|value| match value {
                Value::Undefined => None,
                value => String::from_utf8(value.to_json()).ok(),
            })
            .collect();
        let call = || self.functions.call(name, &arguments);
        // A call may run until its time limit, so it must not block the thread of other tasks.
        let result = self.runtime.blocking(call).map_err(|error| error.to_string())?;
        match result {
            None => Ok(Value::Undefined),
            Some(text) if text.len() > RESULT_BYTES_MAX => Err(format!(
                "it returned {} bytes; the limit is {RESULT_BYTES_MAX}, so return less",
                text.len()
            )),
            Some(text) => Value::from_json(text.as_bytes()).map_err(|error| error.to_string()),
        }
    }
}
