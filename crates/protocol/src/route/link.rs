//! The resource type and the links that a client may sign for a route.
//!
//! ```text
//! POST /dbs/a/colls/b/docs      docs, dbs/a/colls/b         a list signs its parent
//! GET  /dbs/a/colls/b/docs/x%20 docs, dbs/a/colls/b/docs/x  by name, decoded
//! GET  /dbs/AQAAAA==/colls/AQAAAIAAAAE=/pkranges
//!                               pkranges, aqaaaiaaaae=      by resource id: that alone, lower-cased
//! ```

use super::{Route, trimmed};
use headwater_model::ResourceId;
use smallvec::SmallVec;

/// The spellings of a link that a client may have signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The link by name, decoded.
    name: String,
    /// The resource id, lower-cased.
    rid: Option<String>,
    /// The link as the path spells it, if that differs from the decoded one.
    sent: Option<String>,
    /// Whether the resource id is the likeliest. It is for offers, which have no names.
    rid_first: bool,
}

impl Links {
    /// Returns the spellings, the likeliest first. There is at least one.
    #[must_use]
    pub fn candidates(&self) -> SmallVec<[&str; 3]> {
        let mut candidates = SmallVec::new();
        let rid = self.rid.as_deref();
        candidates.extend(rid.filter(|_| self.rid_first));
        candidates.push(self.name.as_str());
        candidates.extend(rid.filter(|_| !self.rid_first));
        candidates.extend(self.sent.as_deref());
        candidates
    }
}

impl Route {
    /// The signed resource type: the last one in the path, empty for the account.
    #[must_use]
    pub fn resource_type(&self) -> &'static str {
        match self {
            Route::Account | Route::Addresses => "",
            Route::Databases | Route::Database { .. } => "dbs",
            // Extensions about a container are signed as requests for the container.
            Route::Containers { .. }
            | Route::Container { .. }
            | Route::PartitionKeyDelete { .. }
            | Route::ChangeStream { .. }
            | Route::Partitions { .. }
            | Route::PartitionSplit { .. }
            | Route::PartitionMerge { .. } => "colls",
            Route::Items { .. } | Route::Item { .. } => "docs",
            Route::PkRanges { .. } | Route::PkRange { .. } => "pkranges",
            Route::StoredProcedures { .. } | Route::StoredProcedure { .. } => "sprocs",
            Route::Triggers { .. } | Route::Trigger { .. } => "triggers",
            Route::Udfs { .. } | Route::Udf { .. } => "udfs",
            Route::Conflicts { .. } | Route::Conflict { .. } => "conflicts",
            Route::Schemas { .. } | Route::Schema { .. } => "schemas",
            Route::Users { .. } | Route::User { .. } => "users",
            Route::Permissions { .. } | Route::Permission { .. } => "permissions",
            Route::ClientEncryptionKeys { .. } | Route::ClientEncryptionKey { .. } => {
                "clientencryptionkeys"
            }
            Route::Offers | Route::Offer { .. } => "offers",
            Route::Backups
            | Route::Backup { .. }
            | Route::BackupFile { .. }
            | Route::BackupPartition { .. } => "backups",
        }
    }

    /// An alternative resource type that some clients sign.
    #[must_use]
    pub fn other_resource_type(&self) -> Option<&'static str> {
        match self {
            Route::PartitionKeyDelete { .. } => Some("partitionkey"),
            // Clients in direct mode sign the type that they resolve, which here is an item.
            Route::Addresses => Some("docs"),
            _ => None,
        }
    }

    /// Whether the path ends in a type: it is a list, or the parent of a create.
    #[must_use]
    pub fn is_feed(&self) -> bool {
        let is_neither = matches!(
            self,
            Route::Account
                | Route::Addresses
                | Route::PartitionKeyDelete { .. }
                | Route::ChangeStream { .. }
                | Route::Partitions { .. }
                | Route::PartitionSplit { .. }
                | Route::PartitionMerge { .. }
        );
        !is_neither && self.own_name().is_none()
    }

    /// The links that a client may have signed, from the decoded names alone.
    #[must_use]
    pub fn links(&self) -> Links {
        let rid = match self {
            Route::Offer { rid } => Some(rid.to_ascii_lowercase()),
            _ => self.signed_name().filter(|name| is_rid(name)).map(str::to_ascii_lowercase),
        };
        let rid_first = matches!(self, Route::Offer { .. });
        Links { name: self.name_link(), rid, sent: None, rid_first }
    }

    /// The links that a client may have signed, including the undecoded one of this path.
    #[must_use]
    pub fn links_for(&self, path: &str) -> Links {
        let mut links = self.links();
        let sent = trimmed(path);
        if sent.contains('%') {
            let sent = match self {
                Route::PartitionKeyDelete { .. } => without_last(without_last(sent)),
                _ if self.is_feed() => without_last(sent),
                _ => sent,
            };
            links.sent = Some(sent.to_owned()).filter(|sent| *sent != links.name);
        }
        links
    }

    /// The database and the container of a resource inside a container.
    #[must_use]
    pub fn container(&self) -> Option<(&str, &str)> {
        match self.owner() {
            (Some(db), Some(("colls", coll))) => Some((db, coll)),
            _ => None,
        }
    }

    /// The name of the resource itself; `None` if the path ends in a type.
    fn own_name(&self) -> Option<&str> {
        match self {
            Route::Database { db } => Some(db),
            Route::Container { coll, .. } => Some(coll),
            Route::User { user, .. } => Some(user),
            Route::Offer { rid } => Some(rid),
            Route::Item { id, .. }
            | Route::PkRange { id, .. }
            | Route::StoredProcedure { id, .. }
            | Route::Trigger { id, .. }
            | Route::Udf { id, .. }
            | Route::Conflict { id, .. }
            | Route::Schema { id, .. }
            | Route::Permission { id, .. }
            | Route::ClientEncryptionKey { id, .. }
            | Route::Backup { id }
            | Route::BackupFile { id, .. }
            | Route::BackupPartition { id, .. } => Some(id),
            _ => None,
        }
    }

    /// The last name in the path: the resource's own, or its parent's for a list.
    fn signed_name(&self) -> Option<&str> {
        self.own_name().or_else(|| match self.owner() {
            (None, _) => None,
            (Some(db), None) => Some(db),
            (_, Some((_, name))) => Some(name),
        })
    }

    /// The database, and the container or user, in the path.
    fn owner(&self) -> (Option<&str>, Option<(&'static str, &str)>) {
        match self {
            Route::Account | Route::Addresses | Route::Databases | Route::Offers => (None, None),
            Route::Offer { .. }
            | Route::Backups
            | Route::Backup { .. }
            | Route::BackupFile { .. }
            | Route::BackupPartition { .. } => (None, None),
            Route::Database { db }
            | Route::Containers { db }
            | Route::Users { db }
            | Route::ClientEncryptionKeys { db }
            | Route::ClientEncryptionKey { db, .. } => (Some(db), None),
            Route::User { db, user }
            | Route::Permissions { db, user }
            | Route::Permission { db, user, .. } => (Some(db), Some(("users", user))),
            Route::Container { db, coll }
            | Route::Items { db, coll }
            | Route::Item { db, coll, .. }
            | Route::PkRanges { db, coll }
            | Route::PkRange { db, coll, .. }
            | Route::StoredProcedures { db, coll }
            | Route::StoredProcedure { db, coll, .. }
            | Route::Triggers { db, coll }
            | Route::Trigger { db, coll, .. }
            | Route::Udfs { db, coll }
            | Route::Udf { db, coll, .. }
            | Route::Conflicts { db, coll }
            | Route::Conflict { db, coll, .. }
            | Route::Schemas { db, coll }
            | Route::Schema { db, coll, .. }
            | Route::PartitionKeyDelete { db, coll }
            | Route::ChangeStream { db, coll }
            | Route::Partitions { db, coll }
            | Route::PartitionSplit { db, coll }
            | Route::PartitionMerge { db, coll } => (Some(db), Some(("colls", coll))),
        }
    }

    /// The link by names: the parent's for a list, the resource's otherwise.
    fn name_link(&self) -> String {
        let (db, below) = self.owner();
        let own = match self {
            // Their own name is part of the owner.
            Route::Database { .. } | Route::Container { .. } | Route::User { .. } => None,
            _ => self.own_name(),
        };
        let parts = [db.map(|db| ("dbs", db)), below, own.map(|name| (self.resource_type(), name))];
        let length = parts.iter().flatten().map(|(kind, name)| kind.len() + name.len() + 2).sum();
        let mut link = String::with_capacity(length);
        for (kind, name) in parts.into_iter().flatten() {
            if !link.is_empty() {
                link.push('/');
            }
            link.push_str(kind);
            link.push('/');
            link.push_str(name);
        }
        link
    }
}

fn without_last(link: &str) -> &str {
    link.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether a name could be a resource id. Length and ending rule out most names.
fn is_rid(name: &str) -> bool {
    name.len().is_multiple_of(4) && name.parse::<ResourceId>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[track_caller]
    fn check(path: &str, resource_type: &str, candidates: &[&str]) {
        let route = parse(path).unwrap();
        assert_eq!(route.resource_type(), resource_type, "{path}");
        assert_eq!(route.links_for(path).candidates().as_slice(), candidates, "{path}");
    }

    #[test]
    fn what_clients_sign() {
        check("/", "", &[""]);
        check("/dbs", "dbs", &[""]);
        check("/dbs/a", "dbs", &["dbs/a"]);
        check("/dbs/a/colls", "colls", &["dbs/a"]);
        check("/dbs/a/colls/b/", "colls", &["dbs/a/colls/b"]);
        check("/dbs/a/colls/b/docs/", "docs", &["dbs/a/colls/b"]);
        check("/dbs/a/colls/b/docs/c", "docs", &["dbs/a/colls/b/docs/c"]);
        check("/dbs/a/colls/b/sprocs/c", "sprocs", &["dbs/a/colls/b/sprocs/c"]);
        check("/dbs/a/colls/b/operations/partitionkeydelete", "colls", &["dbs/a/colls/b"]);
        check("/dbs/a/users", "users", &["dbs/a"]);
        check("/dbs/a/users/u", "users", &["dbs/a/users/u"]);
        check("/dbs/a/users/u/permissions", "permissions", &["dbs/a/users/u"]);
        check("/dbs/a/users/u/permissions/p", "permissions", &["dbs/a/users/u/permissions/p"]);
        check("/dbs/a/clientencryptionkeys", "clientencryptionkeys", &["dbs/a"]);
        check(
            "/dbs/a/clientencryptionkeys/k",
            "clientencryptionkeys",
            &["dbs/a/clientencryptionkeys/k"],
        );
        check("/offers", "offers", &[""]);
        check("/_headwater/changes/a/b", "colls", &["dbs/a/colls/b"]);
        check("/_headwater/partitions/a/b/split", "colls", &["dbs/a/colls/b"]);
        check("/_headwater/backups", "backups", &[""]);
        check("/_headwater/backups/ab", "backups", &["backups/ab"]);
        check("/_headwater/backups/ab/files/7", "backups", &["backups/ab"]);
        check("/offers/QH8O", "offers", &["qh8o", "offers/QH8O"]);
        check("/offers/o0/", "offers", &["o0", "offers/o0"]);
    }

    #[test]
    fn resource_ids_are_signed_alone_and_in_lower_case() {
        check(
            "/dbs/AQAAAA==/colls/AQAAAIAAAAE=/pkranges",
            "pkranges",
            &["dbs/AQAAAA==/colls/AQAAAIAAAAE=", "aqaaaiaaaae="],
        );
        check("/dbs/AQAAAA==", "dbs", &["dbs/AQAAAA==", "aqaaaa=="]);
        check("/dbs/AQAAAA==/colls", "colls", &["dbs/AQAAAA==", "aqaaaa=="]);
    }

    #[test]
    fn escapes_may_be_signed_as_sent() {
        check(
            "/dbs/a/colls/b/docs/x%20y/",
            "docs",
            &["dbs/a/colls/b/docs/x y", "dbs/a/colls/b/docs/x%20y"],
        );
        check("/dbs/a%20/colls/b/docs", "docs", &["dbs/a /colls/b", "dbs/a%20/colls/b"]);
    }
}
