//! Queries over items and over definitions, and the plans of those a client runs itself.

use super::{Outcome, Target};
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use bytes::Bytes;
use headwater_store::{Condition, Patch};

/// `POST …/docs` with a query.
pub(super) async fn items(_: &Gateway, _: &Call, _: &Target) -> Outcome {
    Err(Failure::bad_request("queries are not supported yet"))
}

/// A query over documents that are all at hand.
pub(super) fn documents(
    _: &Gateway,
    _: &Call,
    _key: &str,
    _rid: &str,
    _all: &[Bytes],
) -> Outcome {
    Err(Failure::bad_request("queries are not supported yet"))
}

/// How a client runs a query over several ranges.
pub(super) fn plan(_: &Call, _: &Target) -> Outcome {
    Err(Failure::bad_request("queries are not supported yet"))
}

/// The condition of a patch, if it has one.
pub(super) fn condition_of(_: &Patch) -> Result<Option<Condition>, Failure> {
    Ok(None)
}
