//! Messages of events, for logs and terminals.
//!
//! Each says what happened, to which lease, and what to do if an operator must act.

use crate::event::{Event, StallCause};
use crate::handler::CloseReason;
use crate::position::Position;
use std::fmt;

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Acquired { lease, epoch, from } => {
                write!(
                    f,
                    "lease {lease}: acquired with epoch {epoch}, from {}",
                    place(from.as_ref())
                )
            }
            Event::Closed { lease, reason } => write!(f, "lease {lease}: closed, {reason}"),
            Event::Read { lease, changes, charge } => {
                write!(f, "lease {lease}: read {changes} changes for {charge:.2} request units")
            }
            Event::Throttled { lease, wait } => {
                write!(
                    f,
                    "lease {lease}: throttled by the service, retries in {} ms",
                    wait.as_millis()
                )
            }
            Event::Handled { lease, changes, took } => {
                write!(f, "lease {lease}: handled {changes} changes in {} ms", took.as_millis())
            }
            Event::Behind { lease, lag } => match lag.transactions {
                Some(count) => write!(f, "lease {lease}: {count} transactions behind"),
                None => write!(f, "lease {lease}: the lag is unknown"),
            },
            Event::Checkpointed { lease, position } => {
                write!(f, "lease {lease}: checkpoint at {}", place(position.as_ref()))
            }
            Event::HandlerFailed { lease, attempt, error } => {
                write!(f, "lease {lease}: the handler failed in attempt {attempt}: {error}")
            }
            Event::DeadLettered { lease, error } => {
                write!(f, "lease {lease}: a change was moved to the dead letters: {error}")
            }
            Event::Skipped { lease, changes, error } => {
                write!(f, "lease {lease}: {changes} changes were skipped and are lost: {error}")
            }
            Event::FeedTrouble { lease, error, since } => {
                let seconds = since.as_secs();
                write!(f, "lease {lease}: the feed has been unreadable for {seconds} s: {error}")
            }
            Event::StoreTrouble { error } => {
                write!(f, "the lease container cannot be read or written: {error}")
            }
            Event::Split { lease, children } => {
                write!(f, "lease {lease}: split into {}", children.join(" and "))
            }
            Event::Halted { lease, why } => write!(
                f,
                "lease {lease}: halted for all hosts: {why}; fix the cause, then resume the lease"
            ),
            Event::Stalled { lease, since, cause } => {
                write!(f, "lease {lease}: no progress for {} s: {cause}", since.as_secs())
            }
            Event::HandlerBlocks { lease, since } => write!(
                f,
                "lease {lease}: the handler has blocked its thread for {} s; let it wait asynchronously",
                since.as_secs()
            ),
            Event::CoverageGap { range } => {
                write!(f, "the keys {range} had no lease; one was created")
            }
            Event::CoverageOverlap { one, other } => write!(
                f,
                "the leases {one} and {other} share keys; export them, reset, and start again"
            ),
            Event::DuplicateLease { document } => {
                write!(f, "the duplicate lease document {document} was removed")
            }
            Event::DuplicateHostName { name } => {
                write!(
                    f,
                    "another process uses the host name {name}; give every host a unique name"
                )
            }
            Event::UnknownMember { name, leases } => write!(
                f,
                "the host {name} runs another function on the same leases and owns {leases} of them; give \
                 each function its own lease prefix"
            ),
            Event::SuspiciousNamespace { found } => write!(
                f,
                "leases of this processor exist under {found}, created through another endpoint, and are not \
                 used; set that namespace to continue from them"
            ),
            Event::PlanRefused { why } => write!(f, "the balancer's plan was refused: {why}"),
            Event::FeedGone { why } => write!(f, "the monitored container is gone: {why}"),
            Event::LeaseStoreGone { why } => write!(f, "the lease container is gone: {why}"),
        }
    }
}

fn place(position: Option<&Position>) -> String {
    position.map_or_else(
        || "the start".to_owned(),
        |position| format!("position {}", position.as_str().trim_matches('"')),
    )
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StallCause::Blocked => f.write_str("the handler blocks its thread"),
            StallCause::Failing(error) => write!(f, "the handler fails: {error}"),
            StallCause::Unanswered => f.write_str("the handler has not acknowledged its changes"),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseReason::Shutdown => "the host stops",
            CloseReason::Handover => "it was handed over to another host",
            CloseReason::LeaseLost => "another host took it",
            CloseReason::LeaseExpired => "it could not be renewed in time",
            CloseReason::RangeGone => "its range was split or merged",
            CloseReason::FeedGone => "the monitored container is gone",
            CloseReason::FeedUnreachable => "the feed could not be read for too long",
            CloseReason::LeaseStoreGone => "the lease container is gone",
            CloseReason::HandlerError => "the handler failed",
            CloseReason::Halted => "it was halted",
            CloseReason::Reset => "an operator paused or moved it",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn events_are_sentences_and_not_debug_values() {
        let lease = || "-FF".to_owned();
        for (event, expected) in [
            (
                Event::Acquired { lease: lease(), epoch: 3, from: Position::new("\"7\"") },
                "lease -FF: acquired with epoch 3, from position 7",
            ),
            (
                Event::Closed { lease: lease(), reason: CloseReason::LeaseLost },
                "lease -FF: closed, another host took it",
            ),
            (
                Event::DeadLettered { lease: lease(), error: "no such address".to_owned() },
                "lease -FF: a change was moved to the dead letters: no such address",
            ),
            (
                Event::Stalled {
                    lease: lease(),
                    since: Duration::from_secs(9),
                    cause: StallCause::Unanswered,
                },
                "lease -FF: no progress for 9 s: the handler has not acknowledged its changes",
            ),
        ] {
            assert_eq!(event.to_string(), expected);
        }
    }
}
