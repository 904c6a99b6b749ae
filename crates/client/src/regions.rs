//! The account document, and the choice of a region for each request.
//!
//! Until the account is read, all requests go to the configured endpoint. Afterwards reads go to the first
//! preferred region of the account, and writes to the first writable one. A region that cannot be reached is
//! skipped until the next one fails too.

use crate::endpoint::Endpoint;
use parking_lot::Mutex;
use serde::Deserialize;

/// The account document: name, regions and consistency.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountInfo {
    /// The account's name.
    pub id: String,
    /// Regions that accept writes.
    pub writable: Vec<Region>,
    /// Regions that serve reads.
    pub readable: Vec<Region>,
    /// The default consistency.
    pub consistency: String,
}

/// A region of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its name, such as `West Europe`.
    pub name: String,
    /// The region's address.
    pub endpoint: Endpoint,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    id: String,
    #[serde(default)]
    writable_locations: Vec<Location>,
    #[serde(default)]
    readable_locations: Vec<Location>,
    #[serde(default)]
    user_consistency_policy: Policy,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    name: String,
    database_account_endpoint: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    #[serde(default)]
    default_consistency_level: String,
}

impl AccountInfo {
    pub(crate) fn parse(body: &[u8]) -> Result<AccountInfo, String> {
        let document: Document = serde_json::from_slice(body)
            .map_err(|error| format!("the account document is malformed ({error})"))?;
        let regions = |locations: Vec<Location>| {
            let parsed = locations.into_iter().map(|location| {
                let endpoint = location.database_account_endpoint.parse();
                let endpoint = endpoint.map_err(|error| format!("a region: {error}"))?;
                Ok(Region { name: location.name, endpoint })
            });
            parsed.collect::<Result<Vec<_>, String>>()
        };
        Ok(AccountInfo {
            id: document.id,
            writable: regions(document.writable_locations)?,
            readable: regions(document.readable_locations)?,
            consistency: document.user_consistency_policy.default_consistency_level,
        })
    }
}

/// Chooses the endpoint of each request.
#[derive(Debug)]
pub(crate) struct Routing {
    given: Endpoint,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_known: bool,
    /// In order of preference; the current one is `at % len`.
    reads: Vec<Endpoint>,
    writes: Vec<Endpoint>,
    reads_at: usize,
    writes_at: usize,
}

impl Routing {
    pub(crate) fn new(given: Endpoint) -> Routing {
        Routing { given, state: Mutex::default() }
    }

    pub(crate) fn given(&self) -> &Endpoint {
        &self.given
    }

    /// Whether the account document was read.
    pub(crate) fn is_known(&self) -> bool {
        self.state.lock().is_known
    }

    pub(crate) fn learn(&self, account: &AccountInfo, preferred: &[String]) {
        let rank = |region: &Region| {
            let at = preferred.iter().position(|name| name.eq_ignore_ascii_case(&region.name));
            at.unwrap_or(preferred.len())
        };
        let ordered = |regions: &[Region]| {
            let mut regions = regions.to_vec();
            regions.sort_by_key(rank);
            regions.into_iter().map(|region| region.endpoint).collect()
        };
        *self.state.lock() = State {
            is_known: true,
            reads: ordered(&account.readable),
            writes: ordered(&account.writable),
            reads_at: 0,
            writes_at: 0,
        };
    }

    pub(crate) fn endpoint(&self, reads: bool) -> Endpoint {
        let state = self.state.lock();
        let (known, at) = match reads {
            true => (&state.reads, state.reads_at),
            false => (&state.writes, state.writes_at),
        };
        known.get(at % known.len().max(1)).unwrap_or(&self.given).clone()
    }

    /// Skips a region that failed, unless a concurrent request already did.
    pub(crate) fn pass_over(&self, failed: &Endpoint, reads: bool) {
        if self.endpoint(reads) == *failed {
            let mut state = self.state.lock();
            let at = if reads { &mut state.reads_at } else { &mut state.writes_at };
            *at = at.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNT: &str = r#"{"id":"shop","writableLocations":[
        {"name":"West Europe","databaseAccountEndpoint":"https://shop-westeurope.example.org:443/"}],
        "readableLocations":[
        {"name":"West Europe","databaseAccountEndpoint":"https://shop-westeurope.example.org:443/"},
        {"name":"East US","databaseAccountEndpoint":"https://shop-eastus.example.org:443/"}],
        "userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}"#;

    fn host(routing: &Routing, reads: bool) -> String {
        routing.endpoint(reads).host().to_owned()
    }

    #[test]
    fn reads_go_to_the_preferred_region_and_move_on_when_it_fails() {
        let routing = Routing::new(Endpoint::https("shop.example.org", 443));
        assert_eq!(host(&routing, true), "shop.example.org");
        let account = AccountInfo::parse(ACCOUNT.as_bytes()).unwrap();
        routing.learn(&account, &["east us".to_owned()]);
        assert_eq!(host(&routing, true), "shop-eastus.example.org");
        assert_eq!(host(&routing, false), "shop-westeurope.example.org");
        let failed = routing.endpoint(true);
        routing.pass_over(&failed, true);
        routing.pass_over(&failed, true);
        assert_eq!(host(&routing, true), "shop-westeurope.example.org", "passed over once");
        routing.pass_over(&routing.endpoint(false), false);
        assert_eq!(host(&routing, false), "shop-westeurope.example.org", "there is no other");
    }

    #[test]
    fn what_is_no_account_is_said_to_be_none() {
        for body in ["", "[]", "{}", r#"{"id":1}"#, "<html>"] {
            assert!(AccountInfo::parse(body.as_bytes()).is_err(), "{body}");
        }
        let odd = ACCOUNT.replace("https://shop-eastus", "gopher://x");
        assert!(AccountInfo::parse(odd.as_bytes()).is_err());
    }
}
