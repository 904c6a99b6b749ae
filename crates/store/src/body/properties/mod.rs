//! Property tests of the whole module against an independent parser.
//!
//! `serde_json` is the reference: it has its own grammar, strings and numbers. Where our rules are
//! stricter (duplicate keys, non-objects, ids), a visitor of our own collects the facts.

mod generate;
mod items;
mod model;
mod patches;
mod referee;
