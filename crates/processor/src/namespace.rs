//! The ids of all documents one deployment unit keeps in the lease container.
//!
//! ```text
//! {prefix}{host}_{database}_{container}      the namespace, NS
//! NS..{token}      a lease                   NS.info   everything was set up once
//! NS.host.{name}   a member                  NS.lock   somebody is setting it up
//! NS.ctl           what an operator wants    NS.snap.{name}   positions kept under a name
//! ```
//!
//! The originals look for `NS..` only, so they see leases and nothing else of ours.

/// What stands for an endpoint where there is none.
pub(crate) const EMBEDDED: &str = "embedded";

/// What a monitored container is, as far as leases name it.
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

/// A resource, by both of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// What the service calls it, such as `qYcAAA==`.
    pub rid: String,
    /// What its user calls it.
    pub id: String,
}

impl FeedIdentity {
    /// The identity of a container.
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

/// The prefix of every id of one unit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// The namespace of a processor on a container. One flavour of Java uses names, all others
    /// resource ids.
    #[must_use]
    pub fn new(prefix: &str, identity: &FeedIdentity, by_names: bool) -> Namespace {
        Namespace(format!("{prefix}{}{}", identity.host, suffix(identity, by_names)))
    }

    /// Whether this id is that of a marker of the same processor on the same container, made through another
    /// endpoint: its leases are as good as lost to whoever does not know that.
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

    /// A namespace the user names, for leases made under another endpoint.
    #[must_use]
    pub fn given(text: impl Into<String>) -> Namespace {
        Namespace(text.into())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What every id of the unit starts with.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("{}.", self.0)
    }

    /// The id of a lease.
    #[must_use]
    pub fn lease(&self, token: &str) -> String {
        format!("{}..{token}", self.0)
    }

    /// The id of the marker that leases were made once.
    #[must_use]
    pub fn marker(&self) -> String {
        format!("{}.info", self.0)
    }

    /// The id of the lock of whoever makes them.
    #[must_use]
    pub fn lock(&self) -> String {
        format!("{}.lock", self.0)
    }

    /// The id of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> String {
        format!("{}.host.{name}", self.0)
    }

    /// The id of the control document.
    #[must_use]
    pub fn control(&self) -> String {
        format!("{}.ctl", self.0)
    }

    /// The id of positions that are kept under a name.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> String {
        format!("{}.snap.{name}", self.0)
    }

    /// What a document is, by its id.
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

/// What a document of the lease container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A lease, with its token.
    Lease(&'a str),
    /// A member, with its name.
    Member(&'a str),
    /// The marker that leases were made once.
    Marker,
    /// The lock of whoever makes them.
    Lock,
    /// What an operator wants.
    Control,
    /// Positions that are kept, under this name.
    Snapshot(&'a str),
    /// Nothing of this unit.
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
