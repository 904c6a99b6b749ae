//! Serves offers: the throughput of databases and containers.

use super::{Outcome, list, query, unknown_action};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use bytes::Bytes;
use headwater_model::{OfferRid, ResourceId};
use headwater_protocol::charge::Charge;
use headwater_protocol::headers;
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{Offer, Throughput};
use headwater_store::{Container, Resource, ResourceType};
use hyper::StatusCode;
use serde_json::json;

/// Handles `/offers`.
pub(super) fn collection(gateway: &Gateway, call: &Call, action: Action) -> Outcome {
    let all = documents(gateway)?;
    match action {
        Action::Query => query::documents(gateway, call, "Offers", "", &all),
        Action::List => list::documents(call, "Offers", "", &all),
        other => Err(unknown_action(other)),
    }
}

/// Handles `/offers/{rid}`.
pub(super) async fn one(gateway: &Gateway, call: &Call, action: Action, rid: &str) -> Outcome {
    let known = OfferRid::parse(rid).ok().map(ResourceId::Offer);
    let found = known.and_then(|rid| gateway.account.resource_by_rid(rid));
    let resource = found.ok_or_else(|| Failure::not_found("offer", rid))?;
    match action {
        Action::Read => answer(&resource),
        Action::Replace => {
            let before = Throughput::from_offer(resource.json.as_bytes())?;
            let throughput = if call.flag(headers::MIGRATE_OFFER_TO_AUTOPILOT) {
                before.to_autoscale()
            } else if call.flag(headers::MIGRATE_OFFER_TO_MANUAL) {
                before.to_manual()
            } else {
                Throughput::from_offer(&call.body)?
            };
            let (rid, id, json) = (resource.rid, &resource.id, content(throughput));
            let account = &gateway.account;
            let replaced = account.replace_resource(rid, id, &json, call.if_match()).await?;
            make_room(gateway, resource.owner, throughput).await?;
            Ok(answer(&replaced)?.charged(Charge::METADATA_WRITE))
        }
        other => Err(unknown_action(other)),
    }
}

/// Splits a container until its partitions can serve a throughput, as the service does. A split only links
/// files, so the response waits for it, and the client finds the new ranges.
async fn make_room(
    gateway: &Gateway,
    owner: ResourceId,
    throughput: Throughput,
) -> Result<(), Failure> {
    let ResourceId::Container(rid) = owner else { return Ok(()) };
    let wanted = throughput.partitions_min() as usize;
    let Some(container) = gateway.account.container_by_rid(rid) else { return Ok(()) };
    loop {
        let ranges = container.ranges();
        let missing = wanted.saturating_sub(ranges.len());
        if missing == 0 {
            return Ok(());
        }
        // Split each range once before any twice, so that they stay equal in size.
        for range in ranges.iter().take(missing) {
            container.split(range.id, None).await?;
        }
    }
}

/// Creates the offer of a database or container.
pub(super) async fn create(
    gateway: &Gateway,
    owner: ResourceId,
    throughput: Throughput,
) -> Result<(), Failure> {
    let (kind, json) = (ResourceType::Offer, content(throughput));
    gateway.account.create_resource(kind, owner, "offer", &json, |_| true).await?;
    Ok(())
}

/// The request units per second of each partition of a container; `None` without a limit.
pub(super) fn units_per_partition(gateway: &Gateway, container: &Container) -> Option<f64> {
    let rid = container.rid();
    let of = |owner| gateway.account.resources(ResourceType::Offer, Some(owner)).pop();
    let own = of(ResourceId::Container(rid));
    let offer = own.or_else(|| of(ResourceId::Database(rid.database())))?;
    let units = Throughput::from_offer(offer.json.as_bytes()).ok()?.most();
    Some(f64::from(units) / container.ranges().len().max(1) as f64)
}

fn content(throughput: Throughput) -> String {
    let content = match throughput {
        Throughput::Manual(units) => json!({ "offerThroughput": units }),
        Throughput::Autoscale { max, increment_percent } => {
            let policy = json!({ "throughputPolicy": { "incrementPercent": increment_percent } });
            let settings = json!({ "maxThroughput": max, "autoUpgradePolicy": policy });
            json!({ "offerAutopilotSettings": settings })
        }
    };
    json!({ "content": content }).to_string()
}

fn answer(resource: &Resource) -> Outcome {
    Ok(Answer::json(StatusCode::OK, document(resource)?)
        .charged(Charge::METADATA_READ)
        .etag(resource.etag)
        .header(headers::MIN_THROUGHPUT, Throughput::MIN)
        .header(headers::OFFER_REPLACE_PENDING, "false"))
}

fn documents(gateway: &Gateway) -> Result<Vec<Bytes>, Failure> {
    let all = gateway.account.resources(ResourceType::Offer, None);
    all.iter().map(|resource| document(resource).map(Bytes::from)).collect()
}

fn document(resource: &Resource) -> Result<Vec<u8>, Failure> {
    let ResourceId::Offer(rid) = resource.rid else {
        return Err(Failure::not_found("offer", &resource.id));
    };
    let link = match resource.owner {
        ResourceId::Container(owner) => format!("dbs/{}/colls/{owner}/", owner.database()),
        owner => format!("dbs/{owner}/"),
    };
    let offer = Offer {
        rid,
        resource: link,
        resource_rid: resource.owner.to_string(),
        throughput: Throughput::from_offer(resource.json.as_bytes())?,
        etag: resource.etag.to_string(),
        ts: resource.timestamp.as_seconds(),
    };
    Ok(offer.to_json())
}
