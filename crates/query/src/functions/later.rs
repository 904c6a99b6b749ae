//! Known functions that are not supported: calls parse and report that.

use super::{ANY, Body, Function};

macro_rules! later {
    ($($name:literal, $arguments:literal, $meaning:literal;)+) => {
        &[$(Function {
            name: $name,
            arguments: $arguments,
            meaning: $meaning,
            count: (1, ANY),
            body: Body::NotYet,
            examples: &[],
        }),+]
    };
}

pub(super) const TABLE: &[Function] = later! {
    "VectorDistance", "(vector, vector [, brute_force [, options]])", "How far two vectors are apart";
    "FullTextContains", "(path, phrase)", "Whether a text contains a phrase";
    "FullTextContainsAll", "(path, phrase [, …])", "Whether a text contains every phrase";
    "FullTextContainsAny", "(path, phrase [, …])", "Whether a text contains one of the phrases";
    "FullTextScore", "(path, phrase [, …])", "How well a text fits phrases (BM25)";
    "RRF", "(score, score [, …])", "Several rankings in one";
};
