//! User-defined functions for the query engine.

use headwater_query::{UserFunctions, Value};
use headwater_runtime::Runtime;
use headwater_script::{Clock, Functions, Limits, Script};
use std::sync::Arc;

/// The user-defined functions of one query.
pub(crate) struct UserScripts {
    functions: Functions,
    runtime: Runtime,
}

impl UserScripts {
    pub(crate) fn new(scripts: &[Script], limits: &Limits, runtime: &Runtime) -> UserScripts {
        let clock: Clock = {
            let runtime = runtime.clone();
            Arc::new(move || runtime.elapsed())
        };
        let functions = Functions::new(scripts.iter().cloned(), limits, &clock);
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
        // It may take as long as it is allowed to, and others want the thread.
        let result = self.runtime.blocking(call).map_err(|error| error.to_string())?;
        match result {
            None => Ok(Value::Undefined),
            Some(text) => Value::from_json(text.as_bytes()).map_err(|error| error.to_string()),
        }
    }
}
