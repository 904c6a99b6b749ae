//! Asks the parser and planner of the official Rust driver whether it understands every query of our corpus, and says
//! which it does not. It decides nothing: docs/query-referees.md says who is right and why.

use azure_data_cosmos_driver::query::__test_only_generate_query_plan_for_pk_paths as plan;
use std::error::Error;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crates/query/tests/corpus");
    let mut names: Vec<_> =
        std::fs::read_dir(&corpus)?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    let (mut understood, mut refused) = (0, 0);
    for name in names.iter().filter(|name| *name != "items.txt") {
        let text = std::fs::read_to_string(corpus.join(name))?;
        for (asked, _) in text.lines().filter_map(|line| line.split_once("  =>  ")) {
            let query = match name == "clauses.txt" {
                true => asked.to_owned(),
                false => format!("SELECT VALUE [{asked}] FROM c"),
            };
            match plan(&query, &["/g"], &[]) {
                Ok(_) => understood += 1,
                Err(error) => {
                    refused += 1;
                    let reason =
                        error.source().map_or_else(|| error.to_string(), ToString::to_string);
                    println!("{} | {asked} | {reason}", name.display());
                }
            }
        }
    }
    println!("all: {understood} understood, {refused} refused");
    Ok(())
}
