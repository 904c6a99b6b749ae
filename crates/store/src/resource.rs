//! Resources that an account keeps for its clients and does not act on by itself: throughput offers,
//! users and their permissions, client encryption keys, scripts.
//!
//! Each is a JSON document with an owner and a resource id. They live in the catalog, so they are as
//! durable as containers, and they go with their owner. What the documents mean is not decided here.

use crate::account::Account;
use crate::catalog::{Event, ResourceEntry, Resources};
use crate::error::CatalogError;
use headwater_model::{
    ClientEncryptionKeyRid, Etag, OfferRid, PermissionRid, ResourceId, ResourceKind, ResourceRid,
    Timestamp, UserRid,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest document: a stored procedure of some size.
const JSON_BYTES_MAX: usize = 2 << 20;
/// Resources of all owners together; beyond it somebody is using the wrong container.
const RESOURCES_MAX: usize = 100_000;
/// The documents of all of them together: they are kept in memory.
const ALL_BYTES_MAX: usize = 64 << 20;
/// Ids are as long as those of databases and containers.
const ID_CHARS_MAX: usize = 255;

const WRONG_OWNER: CatalogError =
    CatalogError::BadResource("a resource of this kind does not belong to such an owner");

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceType {
    /// The throughput of a database or container.
    Offer,
    /// A user of a database.
    User,
    /// What a user may do.
    Permission,
    /// A wrapped key with which clients of a database encrypt; it is never unwrapped here.
    ClientEncryptionKey,
    /// A stored procedure of a container.
    StoredProcedure,
    /// A trigger of a container.
    Trigger,
    /// A user-defined function of a container.
    UserDefinedFunction,
}

impl ResourceType {
    /// How errors call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ResourceType::Offer => "offer",
            ResourceType::User => "user",
            ResourceType::Permission => "permission",
            ResourceType::ClientEncryptionKey => "client encryption key",
            ResourceType::StoredProcedure => "stored procedure",
            ResourceType::Trigger => "trigger",
            ResourceType::UserDefinedFunction => "user-defined function",
        }
    }
}

/// A resource as it is now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Resource {
    /// What it is.
    pub kind: ResourceType,
    /// The database, container or user it belongs to, and goes with.
    pub owner: ResourceId,
    /// Its resource id.
    pub rid: ResourceId,
    /// Its id among its siblings.
    pub id: String,
    /// The document, as its client sent it.
    pub json: String,
    /// Changes with every change of it.
    pub etag: Etag,
    /// When it was last changed.
    pub timestamp: Timestamp,
}

impl Resource {
    fn of(entry: &Arc<ResourceEntry>) -> Resource {
        Resource {
            kind: entry.kind,
            owner: entry.owner,
            rid: entry.rid,
            id: entry.id.clone(),
            json: entry.json.clone(),
            etag: entry.stamp.etag(),
            timestamp: entry.stamp.timestamp,
        }
    }
}

impl Account {
    /// Creates a resource. `conflicts` finds siblings beside which it cannot be, in addition to one of
    /// the same id. An offer's id is its resource id.
    ///
    /// # Errors
    /// When its owner does not exist, or something is in its place.
    pub async fn create_resource(
        &self,
        kind: ResourceType,
        owner: ResourceId,
        id: &str,
        json: &str,
        conflicts: impl Fn(&Resource) -> bool + Send,
    ) -> Result<Resource, CatalogError> {
        check(id, json)?;
        let mut created = None;
        let event = self.0.catalog.change(|resources| {
            if !resources.has_owner(owner) {
                let (what, id) = ("owner", owner.to_string());
                return Err(CatalogError::NotFound { what, id });
            }
            check_room(resources, json.len(), None)?;
            let rid = next_rid(kind, owner, resources).ok_or(WRONG_OWNER)?;
            let offer = kind == ResourceType::Offer;
            let id = if offer { rid.to_string() } else { id.to_owned() };
            let mut siblings = resources
                .others
                .values()
                .filter(|other| other.kind == kind && other.owner == owner);
            if siblings.any(|other| other.id == id || conflicts(&Resource::of(other))) {
                return Err(CatalogError::AlreadyExists { what: kind.as_str(), id });
            }
            created = Some(rid);
            let (owner, rid) = (owner.to_string(), rid.to_string());
            Ok(Event::ResourcePut { kind, owner, rid, id, json: json.to_owned() })
        });
        event.await?;
        let found = created.and_then(|rid| self.resource_by_rid(rid));
        found.ok_or_else(|| not_found(kind, id))
    }

    /// Changes the document of a resource, and its id if `id` is another one.
    ///
    /// # Errors
    /// When it is gone, has another etag than `if_match`, or its new id is taken.
    pub async fn replace_resource(
        &self,
        rid: ResourceId,
        id: &str,
        json: &str,
        if_match: Option<&str>,
    ) -> Result<Resource, CatalogError> {
        check(id, json)?;
        let event = self.0.catalog.change(|resources| {
            let entry = matching(resources, rid, if_match)?;
            let mut siblings = resources
                .others
                .values()
                .filter(|other| other.kind == entry.kind && other.owner == entry.owner);
            if siblings.any(|other| other.id == id && other.rid != rid) {
                let what = entry.kind.as_str();
                return Err(CatalogError::AlreadyExists { what, id: id.to_owned() });
            }
            check_room(resources, json.len(), Some(entry.json.len()))?;
            Ok(Event::ResourcePut {
                kind: entry.kind,
                owner: entry.owner.to_string(),
                rid: rid.to_string(),
                id: id.to_owned(),
                json: json.to_owned(),
            })
        });
        event.await?;
        self.resource_by_rid(rid).ok_or_else(|| gone(rid))
    }

    /// Drops a resource, and those it owns.
    ///
    /// # Errors
    /// When it is gone already, or has another etag than `if_match`.
    pub async fn drop_resource(
        &self,
        rid: ResourceId,
        if_match: Option<&str>,
    ) -> Result<(), CatalogError> {
        let event = self.0.catalog.change(|resources| {
            matching(resources, rid, if_match)?;
            Ok(Event::ResourceDropped { rid: rid.to_string() })
        });
        event.await.map(|_| ())
    }

    /// The resource with this id, among those of its kind and owner.
    #[must_use]
    pub fn resource(&self, kind: ResourceType, owner: ResourceId, id: &str) -> Option<Resource> {
        let resources = self.0.catalog.resources();
        let is_it = |entry: &&Arc<ResourceEntry>| {
            entry.kind == kind && entry.owner == owner && entry.id == id
        };
        resources.others.values().find(is_it).map(Resource::of)
    }

    /// The resource with this resource id.
    #[must_use]
    pub fn resource_by_rid(&self, rid: ResourceId) -> Option<Resource> {
        self.0.catalog.resources().others.get(&rid).map(Resource::of)
    }

    /// The resource ids of a kind and an owner, each with the bytes of its document, in the order of their
    /// creation.
    #[must_use]
    pub fn resource_sizes(
        &self,
        kind: ResourceType,
        owner: ResourceId,
    ) -> Vec<(ResourceId, usize)> {
        let resources = self.0.catalog.resources();
        let all = resources.others.values();
        let wanted = all.filter(|entry| entry.kind == kind && entry.owner == owner);
        wanted.map(|entry| (entry.rid, entry.json.len())).collect()
    }

    /// All resources of a kind, or of one owner, in the order of their creation.
    #[must_use]
    pub fn resources(&self, kind: ResourceType, owner: Option<ResourceId>) -> Vec<Resource> {
        let resources = self.0.catalog.resources();
        let wanted = |entry: &&Arc<ResourceEntry>| {
            entry.kind == kind && owner.is_none_or(|owner| entry.owner == owner)
        };
        resources.others.values().filter(wanted).map(Resource::of).collect()
    }
}

fn check(id: &str, json: &str) -> Result<(), CatalogError> {
    let bad = id.is_empty()
        || id.chars().count() > ID_CHARS_MAX
        || id.contains(['/', '\\', '?', '#'])
        || id.ends_with([' ', '\n']);
    if bad {
        return Err(CatalogError::BadResource(
            "an id has 1 to 255 characters, none of / \\ ? #, and does not end in a space",
        ));
    }
    if json.len() > JSON_BYTES_MAX {
        return Err(CatalogError::BadResource("a resource has at most 2 MiB"));
    }
    Ok(())
}

/// Refuses a document that makes the resources too many or too large together, unless it replaces a larger one.
fn check_room(
    resources: &Resources,
    bytes: usize,
    replaced: Option<usize>,
) -> Result<(), CatalogError> {
    if replaced.is_none() && resources.others.len() >= RESOURCES_MAX {
        return Err(CatalogError::ResourcesFull { limit: "100,000" });
    }
    let kept: usize = resources.others.values().map(|entry| entry.json.len()).sum();
    let replaced = replaced.unwrap_or(0);
    if bytes > replaced && kept - replaced + bytes > ALL_BYTES_MAX {
        return Err(CatalogError::ResourcesFull { limit: "64 MiB" });
    }
    Ok(())
}

/// A resource id that is not in use. In a repaired catalog the next number may be.
fn next_rid(kind: ResourceType, owner: ResourceId, resources: &Resources) -> Option<ResourceId> {
    let first = resources.next_resource();
    (first..=first.saturating_add(u32::try_from(RESOURCES_MAX).unwrap_or(0)))
        .map_while(|number| rid_of(kind, owner, number))
        .find(|rid| !resources.others.contains_key(rid))
}

fn rid_of(kind: ResourceType, owner: ResourceId, number: u32) -> Option<ResourceId> {
    let script = |kind| match owner {
        ResourceId::Container(container) => {
            Some(ResourceId::Resource(ResourceRid::new(container, kind, u64::from(number))))
        }
        _ => None,
    };
    match (kind, owner) {
        (ResourceType::Offer, ResourceId::Database(_) | ResourceId::Container(_)) => {
            (number < 1 << 24).then(|| ResourceId::Offer(OfferRid::new(number)))
        }
        (ResourceType::User, ResourceId::Database(database)) => {
            (number < 1 << 31).then(|| ResourceId::User(UserRid::new(database.get(), number)))
        }
        (ResourceType::Permission, ResourceId::User(user)) => {
            Some(ResourceId::Permission(PermissionRid::new(user, u64::from(number))))
        }
        (ResourceType::ClientEncryptionKey, ResourceId::Database(database)) => {
            Some(ResourceId::ClientEncryptionKey(ClientEncryptionKeyRid::new(database, number)))
        }
        (ResourceType::StoredProcedure, _) => script(ResourceKind::Sproc),
        (ResourceType::Trigger, _) => script(ResourceKind::Trigger),
        (ResourceType::UserDefinedFunction, _) => script(ResourceKind::Udf),
        _ => None,
    }
}

fn matching<'a>(
    resources: &'a Resources,
    rid: ResourceId,
    if_match: Option<&str>,
) -> Result<&'a ResourceEntry, CatalogError> {
    let entry = resources.others.get(&rid).ok_or_else(|| gone(rid))?;
    let matches = |wanted: &str| wanted == "*" || entry.stamp.etag().matches(wanted);
    if if_match.is_some_and(|wanted| !matches(wanted)) {
        let (what, id) = (entry.kind.as_str(), entry.id.clone());
        return Err(CatalogError::EtagMismatch { what, id });
    }
    Ok(entry)
}

fn gone(rid: ResourceId) -> CatalogError {
    CatalogError::NotFound { what: "resource", id: rid.to_string() }
}

fn not_found(kind: ResourceType, id: &str) -> CatalogError {
    CatalogError::NotFound { what: kind.as_str(), id: id.to_owned() }
}
