//! Serves databases: create, read, delete, list, query.

use super::{Outcome, list, offers, query, unknown_action};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use bytes::Bytes;
use headwater_model::ResourceId;
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{self, System, Throughput};
use headwater_store::Database;
use hyper::StatusCode;
use serde::Deserialize;

#[derive(Deserialize)]
struct Definition {
    id: String,
}

/// Handles `/dbs`.
pub(super) async fn collection(gateway: &Gateway, call: &Call, action: Action) -> Outcome {
    match action {
        Action::Query => {
            let all = documents(gateway);
            query::documents(gateway, call, "Databases", "", &all)
        }
        Action::Create => create(gateway, call).await,
        Action::List => list::documents(call, "Databases", "", &documents(gateway)),
        other => Err(unknown_action(other)),
    }
}

async fn create(gateway: &Gateway, call: &Call) -> Outcome {
    let definition: Definition = serde_json::from_slice(&call.body).map_err(|error| {
        Failure::bad_request(format!("the body is not a database, {{\"id\":…}}: {error}"))
    })?;
    let throughput = throughput_of(call)?;
    let database = gateway.account.create_database(&definition.id).await?;
    if let Some(throughput) = throughput {
        offers::create(gateway, ResourceId::Database(database.rid()), throughput).await?;
    }
    Ok(answer(&database, StatusCode::CREATED).charged(Charge::METADATA_WRITE))
}

/// Parses the throughput that a create requests.
pub(super) fn throughput_of(call: &Call) -> Result<Option<Throughput>, Failure> {
    let given = Throughput::from_headers(
        call.header(headers::OFFER_THROUGHPUT),
        call.header(headers::OFFER_AUTOPILOT_SETTINGS),
    );
    Ok(given?)
}

/// Handles `/dbs/{db}`.
pub(super) async fn one(gateway: &Gateway, action: Action, db: &str) -> Outcome {
    let found = gateway.account.find_database(db);
    let database = found.ok_or_else(|| Failure::not_found("database", db))?;
    match action {
        Action::Read => Ok(answer(&database, StatusCode::OK)),
        Action::Delete => {
            gateway.account.drop_database(database.id().as_str()).await?;
            gateway.forget_dropped();
            Ok(Answer::empty(StatusCode::NO_CONTENT).charged(Charge::METADATA_WRITE))
        }
        other => Err(unknown_action(other)),
    }
}

fn answer(database: &Database, status: StatusCode) -> Answer {
    let answer = Answer::json(status, document(database)).charged(Charge::METADATA_READ);
    match database.etag() {
        Some(etag) => answer.etag(etag),
        None => answer,
    }
}

fn documents(gateway: &Gateway) -> Vec<Bytes> {
    gateway.account.databases().iter().map(|database| document(database).into()).collect()
}

fn document(database: &Database) -> Vec<u8> {
    let etag = database.etag().map(|etag| etag.to_string()).unwrap_or_default();
    let ts = database.timestamp().map_or(0, |time| time.as_seconds());
    resource::database(database.id(), &System::database(database.rid(), &etag, ts))
}
