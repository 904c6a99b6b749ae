//! Moves leases between containers and formats: export, import, conversion, reset.
//!
//! All of this requires that no host works on the unit. An import never overwrites a document and writes the marker
//! last, so an interrupted import is visible and can be reset. Positions never change, except where a conversion has
//! to look one up.

use crate::coverage;
use crate::lease::{Document, DocumentKey, Flavour, Lease, Start, token_of};
use crate::lease_store::{NewDocument, StoreError, Stored};
use crate::member::{Marker, Member};
use crate::namespace::{Kind, Namespace};
use crate::position::Position;
use crate::source::{FeedSource, ReadRequest, SourceError};
use crate::unit::{Unit, UnitError};
use headwater_model::{FeedMode, Lsn, Timestamp};
use std::time::Duration;

/// Properties that the container adds to its documents.
const SYSTEM_PROPERTIES: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// The leases of one unit, outside their container.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The unit they belong to.
    pub namespace: Namespace,
    /// The leases.
    pub leases: Vec<Lease>,
    /// The start of ranges without a known position.
    pub start: Option<Start>,
}

/// Errors of exports and conversions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The text is not an export.
    #[error("this is not an export of leases: {0}")]
    NotOne(String),
    /// The target format cannot express a lease.
    #[error("{0}")]
    CannotSay(String),
    /// The monitored container cannot be read.
    #[error("the monitored container: {0}")]
    Source(#[from] SourceError),
}

impl Archive {
    /// Parses an export with one document per line.
    ///
    /// # Errors
    /// Fails if the text is not an export, or contains leases of several units.
    pub fn parse(text: &str) -> Result<Archive, ArchiveError> {
        let bad = |why: String| ArchiveError::NotOne(why);
        let (mut namespace, mut leases, mut start): (Option<String>, Vec<Lease>, _) =
            (None, Vec::new(), None);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let document = Document::parse(line.as_bytes()).map_err(|e| bad(e.to_string()))?;
            let id: String = document.get("id").ok_or_else(|| bad("no id".to_owned()))?;
            let of = match id.strip_suffix(".info") {
                Some(of) => {
                    start = Marker::parse(line.as_bytes()).start;
                    of
                }
                None => {
                    leases.push(Lease::parse(line.as_bytes()).map_err(|e| bad(e.to_string()))?);
                    id.split_once("..").ok_or_else(|| bad(format!("{id} is no lease")))?.0
                }
            };
            if namespace.get_or_insert_with(|| of.to_owned()) != of {
                return Err(bad("leases of several processors".to_owned()));
            }
        }
        match namespace {
            Some(name) if !leases.is_empty() => {
                Ok(Archive { namespace: Namespace::given(name), leases, start })
            }
            _ => Err(bad("no lease in it".to_owned())),
        }
    }

    /// Serializes the leases, one document per line, with `now` as their timestamp.
    #[must_use]
    pub fn to_text(&self, now: Timestamp) -> String {
        let rid = self.namespace.as_str().rsplit('_').next().unwrap_or_default();
        let mut lines = String::new();
        for lease in &self.leases {
            let body = lease.to_bytes(now, rid);
            lines.push_str(&String::from_utf8_lossy(&body));
            lines.push('\n');
        }
        let key = DocumentKey { id: self.namespace.marker(), partition: None };
        let marker = Marker { start: self.start.clone(), ..Marker::default() };
        lines.push_str(&String::from_utf8_lossy(&marker.to_bytes(&key)));
        lines.push('\n');
        lines
    }

    /// Converts the leases to another library's format and namespace.
    ///
    /// `by_hashes` selects .NET v3 leases by hashes, which are also our own.
    ///
    /// # Errors
    /// Fails if the format cannot express a lease's range, or if the monitored container cannot be read.
    pub async fn converted(
        &self,
        flavour: Flavour,
        by_hashes: bool,
        processor_name: &str,
        source: &dyn FeedSource,
    ) -> Result<Archive, ArchiveError> {
        let identity = source.identity().await?;
        let namespace = Namespace::new(processor_name, &identity, flavour.uses_names());
        let ranges = source.ranges(true).await?;
        let mut leases = Vec::new();
        for lease in &self.leases {
            let by_id = || coverage::keys_of(lease.token.parse().ok()?, &ranges);
            let range = lease.range.clone().or_else(by_id).ok_or(SourceError::RangeGone)?;
            let token = match by_hashes || flavour == Flavour::JavaEpk {
                true => token_of(&range),
                false => {
                    let whole = ranges.iter().find(|physical| physical.keys == range);
                    let whole = whole.ok_or_else(|| {
                        let token = &lease.token;
                        ArchiveError::CannotSay(format!(
                            "the lease {token} covers a part of a range, which {flavour} leases cannot \
                             express; use a format by hashes"
                        ))
                    })?;
                    whole.id.to_string()
                }
            };
            let key = crate::lease::DocumentKey { id: namespace.lease(&token), partition: None };
            let mode = lease.mode.unwrap_or(FeedMode::LatestVersion);
            let mut next = Lease::new(flavour, key, token, range, mode);
            next.extra.start.clone_from(&lease.extra.start);
            next.position = match (&lease.position, &lease.extra.start) {
                (Some(position), _) => Some(position.clone()),
                // Only our own leases store where to begin.
                (None, Some(start)) if !by_hashes => Some(position_of(source, lease, start).await?),
                (None, _) => None,
            };
            leases.push(next);
        }
        Ok(Archive { namespace, leases, start: self.start.clone() })
    }
}

/// Looks up the position that corresponds to a start, for libraries that store positions only.
///
/// # Errors
/// Fails if the feed cannot be read, or if the lease's keys lie in several ranges now.
pub async fn position_of(
    source: &dyn FeedSource,
    lease: &Lease,
    start: &Start,
) -> Result<Position, SourceError> {
    let ranges = source.ranges(true).await?;
    let by_id = || coverage::keys_of(lease.token.parse().ok()?, &ranges);
    let range = lease.range.clone().or_else(by_id).ok_or(SourceError::RangeGone)?;
    let from = match start {
        Start::Beginning => return Ok(Position::after(Lsn::ZERO)),
        Start::Position(position) => return Ok(position.clone()),
        other => other.clone(),
    };
    let mode = lease.mode.unwrap_or(FeedMode::LatestVersion);
    let (items_max, wait) = (Some(1), Duration::ZERO);
    let page =
        source.read(ReadRequest { container: None, range, from, mode, items_max, wait }).await?;
    let first = page.changes.first().and_then(crate::source::Change::lsn);
    // Directly before the first change to deliver.
    let before = first.and_then(|lsn| lsn.get().checked_sub(1));
    Ok(before.map_or(page.position, |lsn| Position::after(Lsn::new(lsn))))
}

impl Unit {
    /// Exports the leases of the unit with their positions, without owners.
    ///
    /// # Errors
    /// Fails if the container cannot be read.
    pub async fn export(&self) -> Result<Archive, StoreError> {
        let listing = self.store().list(&self.namespace().prefix()).await?;
        let mut archive =
            Archive { namespace: self.namespace().clone(), leases: Vec::new(), start: None };
        for stored in &listing.documents {
            let Ok(mut document) = Document::parse(&stored.body) else { continue };
            match self.namespace().kind(&stored.key.id) {
                Kind::Marker => archive.start = Marker::parse(&stored.body).start,
                Kind::Lease(_) => {
                    SYSTEM_PROPERTIES.iter().for_each(|name| document.remove(name));
                    archive.leases.extend(Lease::parse(&document.to_bytes()));
                }
                _ => {}
            }
        }
        archive.leases.retain(|lease| !lease.is_retired());
        archive.leases.extend(self.parse_listing(listing).promised().cloned());
        archive.leases.iter_mut().for_each(clear_owner);
        archive.leases.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(archive)
    }

    /// Creates the leases of an archive, without owners. Returns their number.
    ///
    /// # Errors
    /// Fails if the unit already has leases, or if the container cannot be written.
    pub async fn import(&self, archive: &Archive) -> Result<usize, UnitError> {
        let listing = self.store().list(&self.namespace().prefix()).await?;
        let is_lease = |id: &str| matches!(self.namespace().kind(id), Kind::Lease(_));
        if listing.documents.iter().any(|stored| is_lease(&stored.key.id)) {
            return Err(UnitError::NotEmpty);
        }
        let name = self.namespace().as_str();
        for lease in &archive.leases {
            let mut lease = lease.clone();
            let id = self.namespace().lease(&lease.token);
            // Our own leases share a partition; leases of other libraries get one each.
            let native = lease.flavour() == Flavour::DotNetV3 && lease.token.contains('-');
            lease.key = self.store().layout().key(name, id, !native);
            clear_owner(&mut lease);
            self.store().create(self.document(&lease)).await?;
        }
        let native = archive.leases.iter().all(|lease| lease.token.contains('-'));
        let key = self.store().layout().key(name, self.namespace().marker(), !native);
        let marker = Marker { start: archive.start.clone(), ..Marker::default() };
        let body = marker.to_bytes(&key).into();
        match self.store().create(NewDocument { key, body }).await {
            Ok(_) | Err(StoreError::Conflict) => Ok(archive.leases.len()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes all documents of the unit except named snapshots. Returns how many leases there were.
    ///
    /// Waits for `silence` first and refuses if anything was written meanwhile. The next host starts as if for
    /// the first time.
    ///
    /// # Errors
    /// Fails if a host is working, or if the container cannot be written; undeleted documents remain.
    pub async fn reset(&self, silence: Duration) -> Result<usize, UnitError> {
        let before = self.store().list(&self.namespace().prefix()).await?;
        self.runtime().sleep(silence).await;
        let listing = self.store().list(&self.namespace().prefix()).await?;
        for stored in &listing.documents {
            let known = before.documents.iter().find(|one| one.key == stored.key);
            if known.is_none_or(|known| known.etag != stored.etag) {
                let owner = Lease::parse(&stored.body).ok().and_then(|lease| lease.owner);
                let member = Member::parse(&stored.body).map(|member| member.host.name);
                let who = owner.or(member).unwrap_or_else(|| "another host".to_owned());
                return Err(UnitError::StillWorking(who));
            }
        }
        let mut leases = 0;
        // If this is interrupted, the remaining marker shows that leases are missing, and they are created again.
        let order = |id: &str| match self.namespace().kind(id) {
            Kind::Lease(_) => 0,
            Kind::Member(_) | Kind::Lock => 1,
            Kind::Control => 2,
            Kind::Marker => 3,
            // Snapshots survive a reset, so that an operator can return to them.
            Kind::Snapshot(_) | Kind::Foreign => 4,
        };
        let is_lease = |stored: &Stored| {
            let lease = Lease::parse(&stored.body).ok().filter(|_| order(&stored.key.id) == 0);
            lease.is_some_and(|lease| !lease.is_retired())
        };
        let mut documents = listing.documents;
        documents.retain(|stored| order(&stored.key.id) < 4);
        documents.sort_by_key(|stored| order(&stored.key.id));
        for stored in &documents {
            match self.store().delete(&stored.key, &stored.etag).await {
                Ok(()) => leases += usize::from(is_lease(stored)),
                Err(StoreError::NotFound) => {}
                Err(StoreError::PreconditionFailed) => return Err(UnitError::Busy),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(leases)
    }
}

/// Clears the owner, the reservation and the generation.
fn clear_owner(lease: &mut Lease) {
    lease.owner = None;
    lease.extra.session = None;
    lease.extra.reserved_for = None;
    lease.extra.generation = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease_store::{Layout, LeaseStore, MemoryLeases};
    use crate::source::MemoryFeed;
    use headwater_model::KeyRange;
    use headwater_runtime::{Runtime, Simulation};
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::from_millis(0);

    struct Stage {
        runtime: Runtime,
        feed: MemoryFeed,
    }

    impl Stage {
        fn unit(&self, layout: Layout, name: &Namespace) -> Unit {
            let store: Arc<dyn LeaseStore> =
                Arc::new(MemoryLeases::with_layout(self.runtime.clone(), layout));
            Unit::new(store, name.clone(), self.runtime.clone())
        }

        async fn archive(&self) -> Archive {
            let identity = self.feed.identity().await.unwrap();
            let namespace = Namespace::new("p", &identity, false);
            let ranges = self.feed.ranges(true).await.unwrap();
            let lease = |(number, keys): (u64, KeyRange)| {
                let token = token_of(&keys);
                let id = namespace.lease(&token);
                let key = crate::lease::DocumentKey { id, partition: None };
                let mut lease =
                    Lease::new(Flavour::DotNetV3, key, token, keys, FeedMode::LatestVersion);
                lease.position = Some(Position::after(Lsn::new(40 + number)));
                lease.owner = Some("a".to_owned());
                lease
            };
            let leases = (0..).zip(ranges.into_iter().map(|range| range.keys)).map(lease).collect();
            Archive { namespace, leases, start: Some(Start::Beginning) }
        }
    }

    fn play(script: impl FnOnce(Stage) -> headwater_runtime::BoxFuture<()>) {
        let simulation = Simulation::new(3);
        let runtime = simulation.node().runtime();
        let feed = MemoryFeed::new(runtime.clone(), 3);
        simulation.run(script(Stage { runtime, feed }));
    }

    fn positions(archive: &Archive) -> Vec<Option<Position>> {
        archive.leases.iter().map(|lease| lease.position.clone()).collect()
    }

    #[test]
    fn what_was_exported_can_be_imported_elsewhere_and_is_the_same() {
        play(|stage| {
            Box::pin(async move {
                let archive = stage.archive().await;
                for layout in [Layout::PartitionKey, Layout::Id] {
                    let unit = stage.unit(layout, &archive.namespace);
                    assert_eq!(unit.import(&archive).await.unwrap(), 3);
                    assert_eq!(unit.import(&archive).await, Err(UnitError::NotEmpty));
                    let exported = unit.export().await.unwrap();
                    let again = Archive::parse(&exported.to_text(NOW)).unwrap();
                    assert_eq!(again.namespace, archive.namespace);
                    assert_eq!(again.start, Some(Start::Beginning));
                    assert_eq!(positions(&again), positions(&archive));
                    assert!(again.leases.iter().all(|lease| lease.owner.is_none()));
                }
            })
        });
    }

    #[test]
    fn every_form_can_be_made_of_every_other_and_back() {
        play(|stage| {
            Box::pin(async move {
                let ours = stage.archive().await;
                let forms = [
                    (Flavour::DotNetV2, false),
                    (Flavour::DotNetV3, false),
                    (Flavour::JavaPk, false),
                    (Flavour::JavaEpk, false),
                    (Flavour::DotNetV3, true),
                ];
                for (flavour, by_hashes) in forms {
                    let theirs = ours.converted(flavour, by_hashes, "p", &stage.feed).await;
                    let theirs = Archive::parse(&theirs.unwrap().to_text(NOW)).unwrap();
                    assert!(theirs.leases.iter().all(|lease| lease.flavour() == flavour));
                    assert_eq!(positions(&theirs), positions(&ours), "{flavour}");
                    let back = theirs.converted(Flavour::DotNetV3, true, "p", &stage.feed).await;
                    let back = back.unwrap();
                    assert_eq!(positions(&back), positions(&ours), "{flavour}");
                    let ids = |archive: &Archive| {
                        let ids = archive.leases.iter().map(|lease| lease.key.id.clone());
                        ids.collect::<Vec<_>>()
                    };
                    assert_eq!(ids(&back), ids(&ours), "{flavour}");
                }
            })
        });
    }

    #[test]
    fn a_part_of_a_range_cannot_be_said_by_forms_that_name_ranges() {
        play(|stage| {
            Box::pin(async move {
                let mut archive = stage.archive().await;
                let part = coverage::parts(archive.leases[0].range.as_ref().unwrap(), 2).remove(0);
                archive.leases[0].range = Some(part);
                let said = archive.converted(Flavour::JavaPk, false, "p", &stage.feed).await;
                assert!(matches!(said, Err(ArchiveError::CannotSay(_))), "{said:?}");
            })
        });
    }

    #[test]
    fn a_reset_is_refused_while_somebody_writes_and_leaves_nothing_otherwise() {
        play(|stage| {
            Box::pin(async move {
                let archive = stage.archive().await;
                let unit = stage.unit(Layout::PartitionKey, &archive.namespace);
                unit.import(&archive).await.unwrap();
                let (store, runtime) = (unit.store().clone(), stage.runtime.clone());
                stage.runtime.spawn("writer", async move {
                    runtime.sleep(Duration::from_secs(3)).await;
                    let mut listing = store.list("").await.unwrap();
                    let stored = listing.documents.remove(0);
                    let document = NewDocument { key: stored.key, body: stored.body };
                    store.replace(document, &stored.etag).await.unwrap();
                });
                let refused = unit.reset(Duration::from_secs(20)).await;
                assert!(matches!(refused, Err(UnitError::StillWorking(_))), "{refused:?}");
                assert_eq!(unit.look().await.unwrap().leases.len(), 3);
                assert_eq!(unit.reset(Duration::from_secs(20)).await, Ok(3));
                assert!(unit.store().list("").await.unwrap().documents.is_empty());
            })
        });
    }

    #[test]
    fn text_that_is_not_an_export_is_refused() {
        for text in ["", "{}", "[]", "{\"id\":\"x\"}", "{\"id\":\"a.info\"}"] {
            assert!(matches!(Archive::parse(text), Err(ArchiveError::NotOne(_))), "{text}");
        }
        let lease = r#"{"id":"a..0","LeaseToken":"0","Owner":null,"ContinuationToken":"\"7\""}"#;
        assert_eq!(Archive::parse(lease).unwrap().leases.len(), 1);
        let two = format!("{lease}\n{}", lease.replace("a..0", "b..0"));
        assert!(Archive::parse(&two).is_err());
    }
}
