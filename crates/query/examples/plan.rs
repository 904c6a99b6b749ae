//! Plans queries for programs that compare them: reads one JSON object per line from standard input, with a query,
//! the paths of a partition key and parameters, and prints one line for each, the plan or `{"error": …}`.
//!
//! ```text
//! echo '{"query":"SELECT TOP 1 * FROM c","paths":["/key"]}' | cargo run --example plan
//! ```

use headwater_model::PartitionKeyDefinition;
use headwater_query::{PlanDocument, Query, Value as QueryValue};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, stdin};

fn main() -> Result<(), Box<dyn Error>> {
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        match plan(&request) {
            Ok(plan) => println!("{}", serde_json::to_string(&plan)?),
            Err(error) => println!("{}", json!({ "error": error.to_string() })),
        }
    }
    Ok(())
}

fn plan(request: &Value) -> Result<PlanDocument, Box<dyn Error>> {
    let text = request["query"].as_str().ok_or("the query is not a string")?;
    let paths = request["paths"].as_array().ok_or("the paths are not an array")?;
    let paths: Vec<&str> = paths.iter().filter_map(Value::as_str).collect();
    let definition = match paths[..] {
        [path] => PartitionKeyDefinition::hash(path)?,
        _ => PartitionKeyDefinition::multi_hash(&paths)?,
    };
    let mut parameters = Vec::new();
    for parameter in request["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().ok_or("a parameter has no name")?;
        let value = QueryValue::from_json(parameter["value"].to_string().as_bytes())?.into_owned();
        parameters.push((name.to_owned(), value));
    }
    Ok(Query::parse(text, &parameters)?.plan(&definition)?)
}
