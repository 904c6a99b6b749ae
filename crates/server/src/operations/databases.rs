//! Databases: create, read, delete, list, query.

use super::{Outcome, list, no_such_verb, offers, query};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use bytes::Bytes;
use headwater_model::ResourceId;
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::resource::{self, System, Throughput};
use headwater_store::Database;
use hyper::{Method, StatusCode};
use serde::Deserialize;

#[derive(Deserialize)]
struct Definition {
    id: String,
}

/// `/dbs`
pub(super) async fn collection(gateway: &Gateway, call: &Call) -> Outcome {
    match call.verb {
        Method::POST if call.is_query() => {
            let all = documents(gateway);
            query::documents(gateway, call, "Databases", "", &all)
        }
        Method::POST => create(gateway, call).await,
        Method::GET => list::documents(call, "Databases", "", &documents(gateway)),
        _ => Err(no_such_verb(call)),
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

/// The throughput a create asks for.
pub(super) fn throughput_of(call: &Call) -> Result<Option<Throughput>, Failure> {
    let given = Throughput::from_headers(
        call.header(headers::OFFER_THROUGHPUT),
        call.header(headers::OFFER_AUTOPILOT_SETTINGS),
    );
    Ok(given?)
}

/// `/dbs/{db}`
pub(super) async fn one(gateway: &Gateway, call: &Call, db: &str) -> Outcome {
    let found = gateway.account.find_database(db);
    let database = found.ok_or_else(|| Failure::not_found("database", db))?;
    match call.verb {
        Method::GET => Ok(answer(&database, StatusCode::OK)),
        Method::DELETE => {
            gateway.account.drop_database(database.id().as_str()).await?;
            Ok(Answer::empty(StatusCode::NO_CONTENT).charged(Charge::METADATA_WRITE))
        }
        _ => Err(no_such_verb(call)),
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
