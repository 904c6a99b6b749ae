//! Tests of the binary codec: it reads every marker as the format defines it, is compatible with the official
//! client's codec, loses nothing in round trips, and never panics or produces unbounded output.

mod hostile;
mod markers;
mod round_trips;
mod sdk;
mod values;
