//! What users, permissions and scripts have in common: documents their clients wrote, kept by the
//! catalog, with create, upsert, read, replace, delete, list and query.

use super::{Outcome, list, query, unknown_action};
use crate::answer::Answer;
use crate::failure::Failure;
use crate::gateway::{Gateway, PAGE_BYTES};
use crate::request::Call;
use bytes::Bytes;
use headwater_model::ResourceId;
use headwater_protocol::charge::Charge;
use headwater_protocol::error::Code;
use headwater_protocol::operation::Action;
use headwater_store::{Resource, ResourceType};
use hyper::StatusCode;
use serde_json::{Map, Value};

/// Checks what a client sent.
pub(super) type Check = dyn Fn(&mut Map<String, Value>) -> Result<(), Failure> + Sync;

/// One kind of document, and how it looks.
pub(super) struct Kind<'a> {
    pub(super) kind: ResourceType,
    pub(super) owner: ResourceId,
    /// The name of the array in lists.
    pub(super) key: &'static str,
    /// Checks what a client sent, and takes out what the server fills in.
    pub(super) check: &'a Check,
    /// What cannot be beside it.
    pub(super) conflicts: &'a (dyn Fn(&Value, &Resource) -> bool + Sync),
    /// The document with its system properties.
    pub(super) show: &'a (dyn Fn(&Resource) -> Result<Vec<u8>, Failure> + Sync),
}

const SYSTEM: [&str; 6] = ["_rid", "_self", "_etag", "_ts", "_token", "_permissions"];

impl Kind<'_> {
    pub(super) async fn collection(
        &self,
        gateway: &Gateway,
        call: &Call,
        action: Action,
    ) -> Outcome {
        let rid = self.owner.to_string();
        match action {
            Action::Query => {
                let sizes = gateway.account.resource_sizes(self.kind, self.owner);
                let bytes: usize = sizes.iter().map(|(_, bytes)| bytes).sum();
                // A page of them has its memory already.
                let _memory = match bytes {
                    0..=PAGE_BYTES => None,
                    bytes => Some(gateway.hold_answer(&call.peer, bytes).await?),
                };
                query::documents(gateway, call, self.key, &rid, &self.all(gateway)?)
            }
            Action::Create => self.create(gateway, call, false).await,
            Action::Upsert => self.create(gateway, call, true).await,
            Action::List => {
                let all = gateway.account.resource_sizes(self.kind, self.owner);
                // One that was deleted meanwhile is not shown.
                let show = |index: usize| match gateway.account.resource_by_rid(all[index].0) {
                    Some(resource) => (self.show)(&resource).map(|text| Some(text.into())),
                    None => Ok(None),
                };
                list::page(call, self.key, &rid, all.len(), show)
            }
            other => Err(unknown_action(other)),
        }
    }

    pub(super) async fn one(
        &self,
        gateway: &Gateway,
        call: &Call,
        action: Action,
        name: &str,
    ) -> Outcome {
        let resource = self.find(gateway, name)?;
        match action {
            Action::Read => {
                let seen = |wanted: &str| resource.etag.matches(wanted);
                if call.if_none_match().is_some_and(seen) {
                    return Ok(Answer::empty(StatusCode::NOT_MODIFIED).etag(resource.etag));
                }
                self.answer(&resource, StatusCode::OK)
            }
            Action::Replace => {
                let (id, json) = self.body(call)?;
                self.replace(gateway, call, &resource, &id, &json).await
            }
            Action::Delete => {
                gateway.account.drop_resource(resource.rid, call.if_match()).await?;
                Ok(Answer::empty(StatusCode::NO_CONTENT).charged(Charge::METADATA_WRITE))
            }
            other => Err(unknown_action(other)),
        }
    }

    /// By its id, or else by its resource id.
    pub(super) fn find(&self, gateway: &Gateway, name: &str) -> Result<Resource, Failure> {
        let by_name = gateway.account.resource(self.kind, self.owner, name);
        let by_rid = || {
            let found = gateway.account.resource_by_rid(ResourceId::parse(name).ok()?)?;
            (found.kind == self.kind && found.owner == self.owner).then_some(found)
        };
        let found = by_name.or_else(by_rid);
        found.ok_or_else(|| Failure::not_found(self.kind.as_str(), name))
    }

    async fn create(&self, gateway: &Gateway, call: &Call, replaces: bool) -> Outcome {
        let (id, json) = self.body(call)?;
        let known = gateway.account.resource(self.kind, self.owner, &id);
        if let Some(known) = known.filter(|_| replaces) {
            return self.replace(gateway, call, &known, &id, &json).await;
        }
        let text = json.to_string();
        let conflicts = |other: &Resource| (self.conflicts)(&json, other);
        let account = &gateway.account;
        let created = account.create_resource(self.kind, self.owner, &id, &text, conflicts).await?;
        Ok(self.answer(&created, StatusCode::CREATED)?.charged(Charge::METADATA_WRITE))
    }

    async fn replace(
        &self,
        gateway: &Gateway,
        call: &Call,
        known: &Resource,
        id: &str,
        json: &Value,
    ) -> Outcome {
        let others = gateway.account.resource_sizes(self.kind, self.owner);
        let others = others.into_iter().filter(|(rid, _)| *rid != known.rid);
        let mut others = others.filter_map(|(rid, _)| gateway.account.resource_by_rid(rid));
        if others.any(|other| (self.conflicts)(json, &other)) {
            let message = format!("another {} is in its place", self.kind.as_str());
            return Err(Failure::new(Code::Conflict, message));
        }
        let account = &gateway.account;
        let replaced =
            account.replace_resource(known.rid, id, &json.to_string(), call.if_match()).await?;
        Ok(self.answer(&replaced, StatusCode::OK)?.charged(Charge::METADATA_WRITE))
    }

    fn body(&self, call: &Call) -> Result<(String, Value), Failure> {
        let parsed = serde_json::from_slice::<Map<String, Value>>(&call.body);
        let what = self.kind.as_str();
        let mut json = parsed
            .map_err(|error| Failure::bad_request(format!("the body is not a {what}: {error}")))?;
        for name in SYSTEM {
            json.remove(name);
        }
        (self.check)(&mut json)?;
        let id = json.get("id").and_then(Value::as_str).map(str::to_owned);
        let id = id.ok_or_else(|| Failure::bad_request(format!("a {what} needs an id")))?;
        Ok((id, Value::Object(json)))
    }

    fn answer(&self, resource: &Resource, status: StatusCode) -> Outcome {
        let body = (self.show)(resource)?;
        Ok(Answer::json(status, body).charged(Charge::METADATA_READ).etag(resource.etag))
    }

    fn all(&self, gateway: &Gateway) -> Result<Vec<Bytes>, Failure> {
        let all = gateway.account.resources(self.kind, Some(self.owner));
        all.iter().map(|resource| (self.show)(resource).map(Bytes::from)).collect()
    }
}
