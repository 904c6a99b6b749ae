//! Properties of the whole module against an independent reading of the same bytes.
//!
//! `serde_json` is the referee: it has its own grammar, its own strings and its own numbers. Where
//! we are stricter (duplicate keys, non-objects, ids) a visitor of our own says what it saw.

mod generate;
mod items;
mod model;
mod patches;
mod referee;
