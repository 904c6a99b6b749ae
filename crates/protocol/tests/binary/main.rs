//! Promises of the binary codec: every marker is read as the format defines it, the official client's
//! codec and ours understand each other, nothing is lost on the way there and back, and no bytes from
//! outside make it panic or unfold without end.

mod hostile;
mod markers;
mod round_trips;
mod sdk;
mod values;
