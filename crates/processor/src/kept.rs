//! Named snapshots of the positions of a whole unit (`snapshot`).
//!
//! ```text
//! NS.snap.before-migration    the position of every lease when the snapshot was taken
//! ```
//!
//! Taking a snapshot needs no pause: each position was stored, so continuing from it is safe, although the positions
//! are from slightly different moments. Restoring is a seek, during which no host works. A lease that was split since
//! returns to its parent's position. If the snapshot does not cover a lease, nothing moves.

use crate::lease::{Lease, Start};
use crate::lease_store::{NewDocument, StoreError};
use crate::member::with_key;
use crate::namespace::Kind;
use crate::unit::{Unit, UnitError};
use headwater_model::{Epk, KeyRange, Timestamp};
use serde::{Deserialize, Serialize};

/// A named snapshot of positions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The name.
    pub name: String,
    /// When it was taken.
    pub at: Timestamp,
    places: Vec<Place>,
}

/// The position of one lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    lease: String,
    /// The first key and the first key after the range, if the lease stores its range.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<[String; 2]>,
    /// A [`Start`] as text.
    start: String,
}

impl Place {
    /// Returns `None` if the position is unknown: leases of other libraries have none before their first checkpoint.
    fn of(lease: &Lease) -> Option<Place> {
        let start = match (&lease.position, &lease.extra.start) {
            (Some(position), _) => Start::Position(position.clone()),
            (None, start) => start.clone()?,
        };
        let hex = |range: &KeyRange| [range.min().to_hex(), range.max().to_hex()];
        let keys = lease.range.as_ref().map(hex);
        Some(Place { lease: lease.token.clone(), keys, start: start.to_string() })
    }

    /// Whether this is the place of the lease or of one of its ancestors.
    fn is_of(&self, lease: &Lease) -> bool {
        let inside = |keys: &[String; 2], range: &KeyRange| {
            let ends = keys.each_ref().map(|key| Epk::from_hex(key));
            matches!(ends, [Ok(min), Ok(max)] if min <= *range.min() && *range.max() <= max)
        };
        match (&self.keys, &lease.range) {
            (Some(keys), Some(range)) => inside(keys, range),
            _ => self.lease == lease.token,
        }
    }
}

impl Kept {
    /// Returns the number of leases in the snapshot.
    #[must_use]
    pub fn leases(&self) -> usize {
        self.places.len()
    }

    /// Returns where a lease continues after a restore.
    pub(crate) fn start_of(&self, lease: &Lease) -> Result<Start, UnitError> {
        let place = self.places.iter().find(|place| place.is_of(lease));
        let start = place.and_then(|place| place.start.parse().ok());
        start.ok_or_else(|| UnitError::NotKept(lease.token.clone(), self.name.clone()))
    }

    fn parse(name: &str, body: &[u8]) -> Option<Kept> {
        #[derive(Deserialize)]
        struct Fields {
            at: u64,
            places: Vec<Place>,
        }
        let Fields { at, places } = serde_json::from_slice(body).ok()?;
        Some(Kept { name: name.to_owned(), at: Timestamp::from_millis(at), places })
    }
}

impl Unit {
    /// Takes a snapshot, which replaces an earlier one of the same name.
    ///
    /// # Errors
    /// Fails if a lease has no known position, if the name cannot be part of an id, or if the container cannot
    /// be written.
    pub async fn keep(&self, name: &str) -> Result<Kept, UnitError> {
        if name.is_empty() || name.contains(['/', '\\', '?', '#']) || name.len() > 100 {
            return Err(UnitError::BadName(name.to_owned()));
        }
        let snapshot = self.look().await?;
        let key = self.key_beside(&snapshot, self.namespace().snapshot(name));
        let leases = snapshot.leases.iter().map(|info| &info.lease).chain(snapshot.promised());
        let unknown = |lease: &Lease| UnitError::NoPosition(lease.token.clone());
        let places: Result<Vec<Place>, UnitError> =
            leases.map(|lease| Place::of(lease).ok_or_else(|| unknown(lease))).collect();
        let at = Timestamp::from_millis(self.runtime().unix_millis());
        let kept = Kept { name: name.to_owned(), at, places: places? };
        let mut document = with_key(&key);
        document.set("at", &at.as_millis());
        document.set("places", &kept.places);
        let document = NewDocument { key: key.clone(), body: document.to_bytes().into() };
        let written = match self.store().read(&key).await? {
            Some(known) => self.store().replace(document, &known.etag).await,
            None => self.store().create(document).await,
        };
        match written {
            Ok(_) => Ok(kept),
            Err(StoreError::Conflict | StoreError::PreconditionFailed) => Err(UnitError::Busy),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns all snapshots, sorted by name.
    ///
    /// # Errors
    /// Fails if the container cannot be read.
    pub async fn all_kept(&self) -> Result<Vec<Kept>, StoreError> {
        let listing = self.store().list(&self.namespace().prefix()).await?;
        let mut found: Vec<Kept> = Vec::new();
        for stored in &listing.documents {
            if let Kind::Snapshot(name) = self.namespace().kind(&stored.key.id) {
                found.extend(Kept::parse(name, &stored.body));
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    /// Returns the snapshot with this name.
    ///
    /// # Errors
    /// Fails if it does not exist, or if the container cannot be read.
    pub async fn kept(&self, name: &str) -> Result<Kept, UnitError> {
        let mut all = self.all_kept().await?.into_iter();
        all.find(|kept| kept.name == name).ok_or_else(|| UnitError::NothingKept(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Archive;
    use crate::lease::{DocumentKey, Flavour, token_of};
    use crate::lease_store::{Layout, LeaseStore, MemoryLeases};
    use crate::namespace::Namespace;
    use crate::position::Position;
    use headwater_model::{FeedMode, Lsn};
    use headwater_runtime::{BoxFuture, Runtime, Simulation};
    use std::sync::Arc;
    use std::time::Duration;

    const SILENCE: Duration = Duration::from_secs(5);

    fn keys(min: &str, max: &str) -> KeyRange {
        KeyRange::new(Epk::from_hex(min).unwrap(), Epk::from_hex(max).unwrap()).unwrap()
    }

    fn lease(range: KeyRange, lsn: Option<u64>) -> Lease {
        let token = token_of(&range);
        let key = DocumentKey { id: format!("NS..{token}"), partition: None };
        let mut lease = Lease::new(Flavour::DotNetV3, key, token, range, FeedMode::LatestVersion);
        lease.position = lsn.map(|lsn| Position::after(Lsn::new(lsn)));
        lease
    }

    async fn unit(runtime: Runtime, leases: Vec<Lease>) -> Unit {
        let store: Arc<dyn LeaseStore> =
            Arc::new(MemoryLeases::with_layout(runtime.clone(), Layout::PartitionKey));
        let namespace = Namespace::given("NS");
        let unit = Unit::new(store, namespace.clone(), runtime);
        unit.import(&Archive { namespace, leases, start: None }).await.unwrap();
        unit
    }

    async fn positions(unit: &Unit) -> Vec<Option<u64>> {
        let leases = unit.look().await.unwrap().leases.into_iter().map(|info| info.lease);
        leases.map(|lease| lease.position?.lsn().map(Lsn::get)).collect()
    }

    fn play(script: impl FnOnce(Runtime) -> BoxFuture<()>) {
        let simulation = Simulation::new(5);
        let runtime = simulation.node().runtime();
        simulation.run(script(runtime));
    }

    #[test]
    fn leases_go_back_to_where_they_were_when_their_positions_were_kept() {
        play(|runtime| {
            Box::pin(async move {
                let halves = [keys("", "7F"), keys("7F", "FF")];
                let leases = halves.iter().cloned().zip([Some(40), Some(50)]);
                let unit =
                    unit(runtime, leases.map(|(range, lsn)| lease(range, lsn)).collect()).await;
                assert_eq!(unit.keep("then").await.unwrap().leases(), 2);
                let start = Start::Position(Position::after(Lsn::new(99)));
                unit.seek(None, &start, None, SILENCE).await.unwrap();
                assert_eq!(positions(&unit).await, [Some(99), Some(99)]);
                let one = token_of(&halves[1]);
                assert_eq!(unit.seek_to_kept(Some(&one), "then", SILENCE).await.unwrap(), 1);
                assert_eq!(positions(&unit).await, [Some(99), Some(50)]);
                // A snapshot under the same name replaces the earlier one.
                unit.keep("then").await.unwrap();
                unit.keep("later").await.unwrap();
                unit.seek(None, &Start::Beginning, None, SILENCE).await.unwrap();
                assert_eq!(unit.seek_to_kept(None, "then", SILENCE).await.unwrap(), 2);
                assert_eq!(positions(&unit).await, [Some(99), Some(50)]);
                assert!(!unit.look().await.unwrap().control.paused, "the unit is resumed");
                unit.reset(SILENCE).await.unwrap();
                let names: Vec<String> =
                    unit.all_kept().await.unwrap().into_iter().map(|kept| kept.name).collect();
                assert_eq!(names, ["later", "then"], "snapshots outlive a reset");
            })
        });
    }

    #[test]
    fn what_was_not_kept_is_refused_before_anybody_is_disturbed() {
        play(|runtime| {
            Box::pin(async move {
                let unit = unit(runtime, vec![lease(keys("", "7F"), Some(40))]).await;
                unit.keep("then").await.unwrap();
                let refused = unit.seek_to_kept(None, "never", SILENCE).await.unwrap_err();
                assert_eq!(refused, UnitError::NothingKept("never".to_owned()));
                unit.reset(SILENCE).await.unwrap();
                let (namespace, whole) = (Namespace::given("NS"), lease(keys("", "FF"), Some(7)));
                let leases = vec![whole.clone()];
                unit.import(&Archive { namespace, leases, start: None }).await.unwrap();
                let refused = unit.seek_to_kept(None, "then", SILENCE).await.unwrap_err();
                let not_kept = UnitError::NotKept(whole.token.clone(), "then".to_owned());
                assert_eq!(refused, not_kept);
                assert_eq!(
                    unit.look().await.unwrap().control.generation,
                    0,
                    "no pause was requested"
                );
                assert_eq!(positions(&unit).await, [Some(7)]);
                for name in ["", "a/b", "a#"] {
                    assert_eq!(unit.keep(name).await, Err(UnitError::BadName(name.to_owned())));
                }
            })
        });
    }

    #[test]
    fn a_lease_without_a_position_is_not_kept() {
        play(|runtime| {
            Box::pin(async move {
                let unknown = lease(keys("", "FF"), None);
                let mut from_the_beginning = unknown.clone();
                from_the_beginning.extra.start = Some(Start::Beginning);
                assert_eq!(Place::of(&from_the_beginning).unwrap().start, "beginning");
                let token = unknown.token.clone();
                let unit = unit(runtime, vec![unknown]).await;
                assert_eq!(unit.keep("then").await, Err(UnitError::NoPosition(token)));
            })
        });
    }

    #[test]
    fn a_child_goes_back_to_where_its_parent_was_and_a_parent_nowhere() {
        let place = Place::of(&lease(keys("20", "60"), Some(40))).unwrap();
        for (min, max, expected) in [
            ("20", "60", true),
            ("20", "40", true),
            ("40", "60", true),
            ("30", "50", true),
            ("10", "60", false),
            ("20", "70", false),
            ("60", "70", false),
        ] {
            assert_eq!(place.is_of(&lease(keys(min, max), None)), expected, "{min} to {max}");
        }
    }
}
