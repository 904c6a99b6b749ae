//! The document formats ("flavours") of the different libraries.
//!
//! | flavour | detected by | token | position |
//! |---|---|---|---|
//! | .NET v2 | `PartitionId` and no `LeaseToken` | id of a range | plain |
//! | .NET v3 | `LeaseToken` with `version`, `FeedRange`, `Mode` or `properties` | id of a range, or `min-max` from version 1 | plain |
//! | Java, by range id | `LeaseToken` and nothing else of these | id of a range | plain |
//! | Java, by hashes | `feedRange` with a small f | `min-max` | inside a Base64 token |
//!
//! Our own leases use the .NET v3 format by hashes. Our additional values are stored in `properties` under names
//! that start with `hw.`. .NET preserves those; Java does not, so they are not written in its formats.

use super::document::{BadDocument, Document};
use super::{DocumentKey, Extra, Lease, LeaseState, Start, java};
use crate::position::Position;
use headwater_model::{Epk, FeedMode, KeyRange, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The document format of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// The change feed processor library for .NET, version 2.
    DotNetV2,
    /// The .NET SDK, version 3. With a `min-max` token this is also our own format.
    DotNetV3,
    /// Java, one lease per range id.
    JavaPk,
    /// Java, one lease per range of hashes.
    JavaEpk,
}

impl Flavour {
    /// Whether the format can store our additional properties.
    #[must_use]
    pub fn has_properties(self) -> bool {
        matches!(self, Flavour::DotNetV2 | Flavour::DotNetV3)
    }

    /// Whether a lease of this format can cover part of a physical range.
    #[must_use]
    pub fn has_hashes(self) -> bool {
        matches!(self, Flavour::DotNetV3 | Flavour::JavaEpk)
    }

    /// Whether lease ids contain names instead of resource ids, as Java's do.
    #[must_use]
    pub fn uses_names(self) -> bool {
        self == Flavour::JavaPk
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavour::DotNetV2 => "dotnet-v2",
            Flavour::DotNetV3 => "dotnet-v3",
            Flavour::JavaPk => "java-pk",
            Flavour::JavaEpk => "java-epk",
        })
    }
}

/// `{"Range":{"min":"","max":"FF"}}`: the one of three feed-range forms that names keys.
#[derive(Deserialize, Serialize)]
struct FeedRange {
    #[serde(rename = "Range")]
    range: Bounds,
}

#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Bounds {
    pub(super) min: String,
    pub(super) max: String,
}

impl Bounds {
    pub(super) fn of(range: &KeyRange) -> Bounds {
        Bounds { min: range.min().to_hex(), max: range.max().to_hex() }
    }

    pub(super) fn range(&self) -> Option<KeyRange> {
        let min = Epk::from_hex(&self.min).ok()?;
        KeyRange::new(min, Epk::from_hex(&self.max).ok()?).ok()
    }
}

/// Returns `min-max`, the token of leases by hashes.
pub(crate) fn token_of(range: &KeyRange) -> String {
    format!("{}-{}", range.min().to_hex(), range.max().to_hex())
}

fn range_of_token(token: &str) -> Option<KeyRange> {
    let (min, max) = token.split_once('-')?;
    Bounds { min: min.to_owned(), max: max.to_owned() }.range()
}

const INCREMENTAL: &str = "Incremental Feed";
const FULL_FIDELITY: &str = "Full-Fidelity Feed";

fn detect(document: &Document) -> Result<Flavour, BadDocument> {
    let has = |name| document.has(name);
    if has("feedRange") {
        Ok(Flavour::JavaEpk)
    } else if has("LeaseToken") {
        let of_dotnet = ["version", "FeedRange", "Mode", "properties"].iter().any(|name| has(name));
        Ok(if of_dotnet { Flavour::DotNetV3 } else { Flavour::JavaPk })
    } else if has("PartitionId") {
        Ok(Flavour::DotNetV2)
    } else if has("state") && has("sequenceNumber") {
        Err(BadDocument("a lease of the retired Java library; import it first".to_owned()))
    } else {
        Err(BadDocument("it has no LeaseToken and no PartitionId".to_owned()))
    }
}

impl Lease {
    /// Parses a lease of any format.
    ///
    /// # Errors
    /// Fails if the bytes are not a lease or its position cannot be decoded.
    pub fn parse(bytes: &[u8]) -> Result<Lease, BadDocument> {
        let document = Document::parse(bytes)?;
        let flavour = detect(&document)?;
        let text = |name: &str| document.get::<String>(name);
        let id = text("id").ok_or_else(|| BadDocument("it has no id".to_owned()))?;
        let token = text("LeaseToken").or_else(|| text("PartitionId"));
        let token = token.ok_or_else(|| BadDocument("its token is not a text".to_owned()))?;
        let range_name = if flavour == Flavour::JavaEpk { "feedRange" } else { "FeedRange" };
        let range = document.get::<FeedRange>(range_name).and_then(|range| range.range.range());
        let range = range.or_else(|| range_of_token(&token));
        let (position, java_mode) = match (flavour, text("ContinuationToken")) {
            (_, None) => (None, None),
            (Flavour::JavaEpk, Some(token)) => java::decode(&token)?,
            (_, Some(token)) => (Position::new(token), None),
        };
        let mode = java_mode.or_else(|| match text("Mode")?.to_ascii_lowercase().as_str() {
            "incremental feed" => Some(FeedMode::LatestVersion),
            "full-fidelity feed" => Some(FeedMode::AllVersionsAndDeletes),
            _ => None,
        });
        let owner = text("Owner").filter(|owner| !owner.trim().is_empty());
        let extra = document.get::<Document>("properties").map_or_else(Extra::default, extra_of);
        let key = DocumentKey { id, partition: text("partitionKey") };
        Ok(Lease { key, token, range, mode, owner, position, extra, flavour, document })
    }

    /// Creates a lease that is not stored yet. For formats without hashes, `token` is a range id.
    #[must_use]
    pub fn new(
        flavour: Flavour,
        key: DocumentKey,
        token: String,
        range: KeyRange,
        mode: FeedMode,
    ) -> Lease {
        Lease {
            key,
            token,
            range: Some(range),
            mode: Some(mode),
            owner: None,
            position: None,
            extra: Extra::default(),
            flavour,
            document: Document::default(),
        }
    }

    /// Serializes the lease in its format. `container` is the resource id of the monitored container, which one
    /// format repeats in every position.
    #[must_use]
    pub fn to_bytes(&self, now: Timestamp, container: &str) -> Vec<u8> {
        let mut document = self.document.clone();
        for name in ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"] {
            document.remove(name);
        }
        document.set("id", &self.key.id);
        if let Some(partition) = &self.key.partition {
            document.set("partitionKey", partition);
        }
        self.set_identity(&mut document);
        document.set("Owner", &self.owner);
        document.set("ContinuationToken", &self.stored_position(container));
        if self.flavour.has_properties() {
            let mut properties = document.get::<Document>("properties").unwrap_or_default();
            set_extra(&mut properties, &self.extra);
            document.set("properties", &properties);
        }
        document.set("timestamp", &self.stored_time(now));
        document.to_bytes()
    }

    fn set_identity(&self, document: &mut Document) {
        let has_hashes = self.range.as_ref().is_some_and(|range| token_of(range) == self.token);
        let bounds = self.range.as_ref().map(|range| FeedRange { range: Bounds::of(range) });
        match self.flavour {
            Flavour::DotNetV2 => document.set("PartitionId", &self.token),
            Flavour::JavaPk => document.set("LeaseToken", &self.token),
            Flavour::JavaEpk => {
                document.set("version", &1);
                document.set("LeaseToken", &self.token);
                if !document.has("feedRange") {
                    document.set("feedRange", &bounds);
                }
            }
            Flavour::DotNetV3 => {
                if !document.has("version") {
                    document.set("version", &u8::from(has_hashes));
                }
                document.set("LeaseToken", &self.token);
                if document.has("PartitionId") {
                    document.set("PartitionId", &self.token);
                }
                if let Some(bounds) = bounds.filter(|_| !document.has("FeedRange")) {
                    document.set("FeedRange", &bounds);
                }
                if let Some(mode) = self.mode.filter(|_| !document.has("Mode")) {
                    let all = mode == FeedMode::AllVersionsAndDeletes;
                    document.set("Mode", if all { &FULL_FIDELITY } else { &INCREMENTAL });
                }
            }
        }
    }

    fn stored_position(&self, container: &str) -> Option<String> {
        let position = self.position.as_ref()?;
        if self.flavour != Flavour::JavaEpk {
            return Some(position.as_str().to_owned());
        }
        let before = self.document.get::<String>("ContinuationToken");
        let range = self.range.clone().unwrap_or_else(KeyRange::full);
        let mode = self.mode.unwrap_or_default();
        Some(java::encode(before.as_deref(), position, container, &range, mode))
    }

    /// Formats the time: .NET writes seven digits after the second, Java three.
    fn stored_time(&self, now: Timestamp) -> String {
        let text = now.to_string();
        match self.flavour {
            Flavour::JavaPk | Flavour::JavaEpk => text,
            _ => text.replace('Z', "0000Z"),
        }
    }
}

fn extra_of(properties: Document) -> Extra {
    let text = |name: &str| properties.get::<String>(name);
    let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Extra {
        session: text("hw.sid"),
        epoch: number("hw.epoch"),
        sequence: number("hw.seq"),
        start: text("hw.start").and_then(|text| text.parse().ok()),
        parent: text("hw.parent"),
        reserved_for: text("hw.to"),
        attempts: u32::try_from(number("hw.try")).unwrap_or(u32::MAX),
        attempts_at: text("hw.trypos"),
        rate: number("hw.rate"),
        state: text("hw.state").map_or_else(LeaseState::default, |text| LeaseState::parse(&text)),
        cuts: text("hw.cuts").and_then(|text| keys_of(&text)).unwrap_or_default(),
        generation: number("hw.gen"),
    }
}

fn keys_of(text: &str) -> Option<Vec<Epk>> {
    text.split(',').map(|key| Epk::from_hex(key).ok()).collect()
}

fn set_extra(properties: &mut Document, extra: &Extra) {
    let mut put = |name: &str, value: Option<String>| match value {
        Some(value) => properties.set(name, &value),
        None => properties.remove(name),
    };
    let number = |number: u64| (number > 0).then(|| number.to_string());
    put("hw.sid", extra.session.clone());
    put("hw.epoch", number(extra.epoch));
    put("hw.seq", number(extra.sequence));
    put("hw.start", extra.start.as_ref().map(Start::to_string));
    put("hw.parent", extra.parent.clone());
    put("hw.to", extra.reserved_for.clone());
    put("hw.try", number(extra.attempts.into()));
    put("hw.trypos", extra.attempts_at.clone());
    put("hw.rate", number(extra.rate));
    let state = (extra.state != LeaseState::Running).then(|| extra.state.as_str().to_owned());
    put("hw.state", state);
    let cuts: Vec<String> = extra.cuts.iter().map(Epk::to_hex).collect();
    put("hw.cuts", (!cuts.is_empty()).then(|| cuts.join(",")));
    put("hw.gen", number(extra.generation));
}

#[cfg(test)]
mod tests;
