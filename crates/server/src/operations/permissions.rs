//! Users and their permissions, and the resource tokens that stand for them.

use super::Outcome;
use super::documents::Kind;
use crate::failure::Failure;
use crate::gateway::Gateway;
use crate::request::Call;
use headwater_model::{PartitionKey, PermissionRid, ResourceId};
use headwater_protocol::auth::{self, Grant, GrantMode};
use headwater_protocol::error::Code;
use headwater_protocol::headers;
use headwater_protocol::operation::Action;
use headwater_protocol::resource::{self, System};
use headwater_protocol::route::{self, Route};
use headwater_store::{Resource, ResourceType};
use serde_json::{Map, Value};

/// How long a token is good when nobody says.
const TOKEN_SECONDS: u32 = 3600;

/// `/dbs/{db}/users`
pub(super) async fn users(gateway: &Gateway, call: &Call, action: Action, db: &str) -> Outcome {
    kind_of_users(gateway, db)?.collection(gateway, call, action).await
}

/// `/dbs/{db}/users/{user}`
pub(super) async fn user(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
    user: &str,
) -> Outcome {
    kind_of_users(gateway, db)?.one(gateway, call, action, user).await
}

/// `/dbs/{db}/users/{user}/permissions`
pub(super) async fn collection(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
    user: &str,
) -> Outcome {
    let show = shower(gateway, call)?;
    kind_of_permissions(gateway, db, user, &show)?.collection(gateway, call, action).await
}

/// `/dbs/{db}/users/{user}/permissions/{id}`
pub(super) async fn one(
    gateway: &Gateway,
    call: &Call,
    action: Action,
    db: &str,
    user: &str,
    id: &str,
) -> Outcome {
    let show = shower(gateway, call)?;
    kind_of_permissions(gateway, db, user, &show)?.one(gateway, call, action, id).await
}

fn kind_of_users(gateway: &Gateway, db: &str) -> Result<Kind<'static>, Failure> {
    let owner = ResourceId::Database(gateway.database(db)?.rid());
    let (kind, key) = (ResourceType::User, "Users");
    Ok(Kind { kind, owner, key, check: &|_| Ok(()), conflicts: &|_, _| false, show: &show_user })
}

fn kind_of_permissions<'a>(
    gateway: &Gateway,
    db: &str,
    user: &str,
    show: &'a (dyn Fn(&Resource) -> Result<Vec<u8>, Failure> + Sync),
) -> Result<Kind<'a>, Failure> {
    let users = kind_of_users(gateway, db)?;
    let owner = users.find(gateway, user);
    let owner = owner.map_err(|_| Failure::owner_not_found("user", user))?.rid;
    let (kind, key) = (ResourceType::Permission, "Permissions");
    Ok(Kind { kind, owner, key, check: &check, conflicts: &same_resource, show })
}

fn show_user(resource: &Resource) -> Result<Vec<u8>, Failure> {
    let ResourceId::User(rid) = resource.rid else {
        return Err(Failure::not_found("user", &resource.id));
    };
    let (etag, ts) = (resource.etag.to_string(), resource.timestamp.as_seconds());
    Ok(resource::user(&resource.json, &System::user(rid, &etag, ts))?)
}

fn check(json: &mut Map<String, Value>) -> Result<(), Failure> {
    if mode_of(json.get("permissionMode")).is_none() {
        return Err(Failure::bad_request("permissionMode is neither All nor Read"));
    }
    match json.get("resource").and_then(Value::as_str) {
        // Every other link ends with the name of one resource, or names the items of a container.
        Some(link) if link.trim_matches('/').split('/').count() >= 2 => {}
        Some(link) if !link.trim_matches('/').is_empty() => {
            let message = format!(
                "a permission is for a database or for something in one; {link} names more than that"
            );
            return Err(Failure::bad_request(message));
        }
        _ => return Err(Failure::bad_request("a permission needs the link of a resource")),
    }
    if let Some(key) = json.get("resourcePartitionKey").filter(|key| !key.is_null()) {
        PartitionKey::parse(&key.to_string())?;
    }
    Ok(())
}

fn mode_of(value: Option<&Value>) -> Option<GrantMode> {
    let text = value?.as_str()?;
    if text.eq_ignore_ascii_case("all") {
        return Some(GrantMode::All);
    }
    text.eq_ignore_ascii_case("read").then_some(GrantMode::Read)
}

/// One user has one permission for a resource.
fn same_resource(json: &Value, other: &Resource) -> bool {
    let other: Value = serde_json::from_str(&other.json).unwrap_or_default();
    let fields = ["resource", "resourcePartitionKey"];
    fields.iter().all(|field| json.get(field) == other.get(field))
}

/// Shows a permission with a token minted for this answer.
fn shower<'a>(
    gateway: &'a Gateway,
    call: &Call,
) -> Result<impl Fn(&Resource) -> Result<Vec<u8>, Failure> + Sync + use<'a>, Failure> {
    let seconds = match call.header(headers::EXPIRY_SECONDS) {
        Some(text) => headers::expiry_seconds(text)?,
        None => TOKEN_SECONDS,
    };
    Ok(move |resource: &Resource| {
        let ResourceId::Permission(rid) = resource.rid else {
            return Err(Failure::not_found("permission", &resource.id));
        };
        let token = token_of(gateway, rid, resource, seconds)?;
        let (etag, ts) = (resource.etag.to_string(), resource.timestamp.as_seconds());
        Ok(resource::permission(&resource.json, &token, &System::permission(rid, &etag, ts))?)
    })
}

fn token_of(
    gateway: &Gateway,
    rid: PermissionRid,
    resource: &Resource,
    seconds: u32,
) -> Result<String, Failure> {
    let expires = gateway.runtime.unix_millis() / 1000 + u64::from(seconds);
    let grant = grant_of(gateway, rid, &resource.json, expires)?;
    Ok(auth::mint(&gateway.config.keys.primary, &grant))
}

/// Refuses a token whose permission was deleted, or grants less now than the token says.
pub(crate) fn check_living(gateway: &Gateway, grant: &Grant) -> Result<(), Failure> {
    let rid = grant.permission;
    let living = gateway.account.resource_by_rid(ResourceId::Permission(rid));
    let living = living.and_then(|living| grant_of(gateway, rid, &living.json, 0).ok());
    if living.is_some_and(|living| living.includes(grant)) {
        return Ok(());
    }
    let message = "the permission of this resource token was deleted or grants less now; read the \
                   permission again to get a new token";
    Err(Failure::new(Code::Forbidden, message))
}

/// Refuses a token that was accepted before and has ended since: for requests that wait.
pub(super) fn check_again(gateway: &Gateway, grant: &Grant) -> Result<(), Failure> {
    grant.check_expiry(gateway.runtime.unix_millis() / 1000)?;
    check_living(gateway, grant)
}

/// What a permission grants.
fn grant_of(
    gateway: &Gateway,
    permission: PermissionRid,
    json: &str,
    expires: u64,
) -> Result<Grant, Failure> {
    let json: Value = serde_json::from_str(json).unwrap_or_default();
    let link = json.get("resource").and_then(Value::as_str).unwrap_or_default();
    let key = json.get("resourcePartitionKey").filter(|key| !key.is_null());
    Ok(Grant {
        permission,
        // A link to what does not exist yet grants nothing, but may be kept.
        resource: canonical(gateway, link).unwrap_or_else(|| link.to_owned()),
        mode: mode_of(json.get("permissionMode")).unwrap_or(GrantMode::Read),
        partition_key: key.map(|key| PartitionKey::parse(&key.to_string())).transpose()?,
        expires,
    })
}

/// A link by names or resource ids, by resource ids as far as there are any.
fn canonical(gateway: &Gateway, link: &str) -> Option<String> {
    let route = route::parse(&format!("/{}", link.trim_matches('/'))).ok()?;
    match &route {
        Route::Database { db } => Some(format!("dbs/{}", gateway.database(db).ok()?.rid())),
        _ => super::permit::link_of(gateway, &route).ok(),
    }
}
