//! Ids of all documents of one unit in the lease container.
//!
//! ```text
//! {prefix}{host}_{database}_{container}      the namespace, NS
//! NS..{token}      a lease                   NS.info   marker: leases were created
//! NS.host.{name}   a member                  NS.lock   lock: a host is creating them
//! NS.ctl           the control document      NS.snap.{name}   a snapshot of positions
//! ```
//!
//! The .NET and Java libraries list `NS..` only, so they see leases and none of our other documents.

/// Replaces the endpoint's host name for a store in the same process.
pub(crate) const EMBEDDED: &str = "embedded";

/// The identity of a monitored container, as far as lease ids contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedIdentity {
    /// The host name of the account's endpoint.
    pub host: String,
    /// The resource id and the name of the database.
    pub database: Names,
    /// The resource id and the name of the container.
    pub container: Names,
    /// The paths of its partition key, such as `/customer`.
    pub partition_key: Vec<String>,
}

/// The resource id and the name of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The id the service assigned, such as `qYcAAA==`.
    pub rid: String,
    /// The name the user gave.
    pub id: String,
}

impl FeedIdentity {
    /// Creates the identity of a container.
    #[must_use]
    pub fn new(
        host: impl Into<String>,
        database: Names,
        container: Names,
        partition_key: Vec<String>,
    ) -> FeedIdentity {
        FeedIdentity { host: host.into(), database, container, partition_key }
    }
}

fn suffix(identity: &FeedIdentity, by_names: bool) -> String {
    let pick = |names: &Names| if by_names { names.id.clone() } else { names.rid.clone() };
    format!("_{}_{}", pick(&identity.database), pick(&identity.container))
}

/// The namespace of a unit: the prefix of all its document ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// Returns the namespace of a processor on a container. One of Java's formats uses names, all others use
    /// resource ids.
    #[must_use]
    pub fn new(prefix: &str, identity: &FeedIdentity, by_names: bool) -> Namespace {
        Namespace(format!("{prefix}{}{}", identity.host, suffix(identity, by_names)))
    }

    /// Whether this id is a marker of the same processor and container under another endpoint. Its leases would
    /// otherwise be ignored silently.
    pub(crate) fn is_elsewhere(
        &self,
        id: &str,
        prefix: &str,
        identity: &FeedIdentity,
        by_names: bool,
    ) -> bool {
        let marker = format!("{}.info", suffix(identity, by_names));
        id != self.marker() && id.starts_with(prefix) && id.ends_with(&marker)
    }

    /// Uses a namespace given by the user, for leases created under another endpoint.
    #[must_use]
    pub fn given(text: impl Into<String>) -> Namespace {
        Namespace(text.into())
    }

    /// Returns the namespace as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the prefix of every id of the unit.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{}.", self.0)
    }

    /// Returns the id of a lease.
    #[must_use]
    pub fn lease(&self, token: &str) -> String {
        format!("{}..{token}", self.0)
    }

    /// Returns the id of the marker.
    #[must_use]
    pub fn marker(&self) -> String {
        format!("{}.info", self.0)
    }

    /// Returns the id of the lock.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("{}.lock", self.0)
    }

    /// Returns the id of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> String {
        format!("{}.host.{name}", self.0)
    }

    /// Returns the id of the control document.
    #[must_use]
    pub fn control(&self) -> String {
        format!("{}.ctl", self.0)
    }

    /// Returns the id of a named snapshot.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> String {
        format!("{}.snap.{name}", self.0)
    }

    /// Returns what kind of document an id names.
    #[must_use]
    pub fn kind<'a>(&self, id: &'a str) -> Kind<'a> {
        let Some(rest) = id.strip_prefix(&self.0).and_then(|rest| rest.strip_prefix('.')) else {
            return Kind::Foreign;
        };
        match rest {
            "info" => Kind::Marker,
            "lock" => Kind::Lock,
            "ctl" => Kind::Control,
            _ => match (rest.strip_prefix('.'), rest.strip_prefix("host.")) {
                (Some(token), _) => Kind::Lease(token),
                (None, Some(name)) => Kind::Member(name),
                (None, None) => rest.strip_prefix("snap.").map_or(Kind::Foreign, Kind::Snapshot),
            },
        }
    }
}

/// The kind of a document in the lease container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A lease, with its token.
    Lease(&'a str),
    /// A member, with its name.
    Member(&'a str),
    /// The marker that leases were created.
    Marker,
    /// The lock for creating leases.
    Lock,
    /// The control document.
    Control,
    /// A snapshot of positions, with its name.
    Snapshot(&'a str),
    /// A document that does not belong to this unit.
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_originals_and_tell_what_they_are() {
        let names = |rid: &str, id: &str| Names { rid: rid.to_owned(), id: id.to_owned() };
        let (database, container) = (names("qYcAAA==", "shop"), names("qYcAAPEvJBQ=", "orders"));
        let identity = FeedIdentity::new("a.documents.azure.com", database, container, vec![]);
        let unit = Namespace::new("p", &identity, false);
        assert_eq!(unit.lease("0"), "pa.documents.azure.com_qYcAAA==_qYcAAPEvJBQ=..0");
        let java = Namespace::new("p", &identity, true);
        assert_eq!(java.marker(), "pa.documents.azure.com_shop_orders.info");
        for (id, kind) in [
            (unit.lease("-FF"), Kind::Lease("-FF")),
            (unit.member("a.b"), Kind::Member("a.b")),
            (unit.marker(), Kind::Marker),
            (unit.lock(), Kind::Lock),
            (unit.control(), Kind::Control),
            (unit.snapshot("a.b"), Kind::Snapshot("a.b")),
            (format!("{}.else", unit.as_str()), Kind::Foreign),
            (java.lease("0"), Kind::Foreign),
        ] {
            assert_eq!(unit.kind(&id), kind, "{id}");
        }
        let elsewhere = "pb.documents.azure.com_qYcAAA==_qYcAAPEvJBQ=.info";
        assert!(unit.is_elsewhere(elsewhere, "p", &identity, false));
        for id in [unit.marker(), java.marker(), elsewhere.replacen('p', "q", 1)] {
            assert!(!unit.is_elsewhere(&id, "p", &identity, false), "{id}");
        }
    }
}
