//! Offers: how much throughput a database or container has.
//!
//! Throughput is fixed, or scales by itself up to a maximum. An offer names what it belongs to by its
//! `_self` link, byte by byte, because that is what clients look for.

use crate::error::{Code, shortened};
use crate::headers::{OFFER_AUTOPILOT_SETTINGS, OFFER_THROUGHPUT};
use headwater_model::OfferRid;
use serde::Deserialize;
use serde_json::{Value, json};

const THROUGHPUT_MAX: u32 = 1_000_000;
const MANUAL_MIN: u32 = 400;
const MANUAL_STEP: u32 = 100;
const AUTOSCALE_MIN: u32 = 1000;
const AUTOSCALE_STEP: u32 = 1000;
/// What the service plans for one partition of a new container.
const UNITS_PER_NEW_PARTITION: u32 = 6000;
/// What one partition can give; beyond it the service splits.
const UNITS_PER_PARTITION_MAX: u32 = 10_000;

/// Request units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    /// Always so much.
    Manual(u32),
    /// Between a tenth of this and this.
    Autoscale {
        /// The most.
        max: u32,
        /// By how many percent the maximum grows with the data; usually 0.
        increment_percent: u32,
    },
}

/// Why there is no such throughput. Each is a bad request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadThroughput {
    /// Fixed, and out of range.
    #[error(
        "throughput is {0}; ask for {MANUAL_MIN} to {THROUGHPUT_MAX} in steps of {MANUAL_STEP}"
    )]
    Manual(u32),
    /// Scaling, and too little.
    #[error(
        "Requested throughput {0} is less than required minimum throughput {AUTOSCALE_MIN}; ask for \
         {AUTOSCALE_MIN} to {THROUGHPUT_MAX} in steps of {AUTOSCALE_STEP}"
    )]
    TooLittle(i64),
    /// Scaling, and out of range.
    #[error(
        "maxThroughput is {0}; ask for {AUTOSCALE_MIN} to {THROUGHPUT_MAX} in steps of \
         {AUTOSCALE_STEP}"
    )]
    Autoscale(i64),
    /// Fixed and scaling at once.
    #[error("{OFFER_THROUGHPUT} and {OFFER_AUTOPILOT_SETTINGS} exclude each other; send one")]
    Both,
    /// Not a number, or not the JSON we know.
    #[error("`{0}` is no throughput; send a number, or {{\"maxThroughput\":4000}}")]
    Form(String),
}

impl BadThroughput {
    /// The status it is answered with.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::BadRequest
    }

    fn form(text: &str) -> BadThroughput {
        BadThroughput::Form(shortened(text, 200).to_owned())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settings {
    max_throughput: i64,
    #[serde(default)]
    auto_upgrade_policy: Option<UpgradePolicy>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpgradePolicy {
    #[serde(default)]
    throughput_policy: Option<ThroughputPolicy>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThroughputPolicy {
    #[serde(default)]
    increment_percent: u32,
}

#[derive(Deserialize)]
struct WireOffer {
    content: WireContent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContent {
    #[serde(default)]
    offer_throughput: Option<u32>,
    #[serde(default)]
    offer_autopilot_settings: Option<Settings>,
}

impl Settings {
    fn throughput(self) -> Result<Throughput, BadThroughput> {
        let policy = self.auto_upgrade_policy.unwrap_or_default().throughput_policy;
        let increment_percent = policy.unwrap_or_default().increment_percent;
        Throughput::autoscale(self.max_throughput, increment_percent)
    }
}

impl Throughput {
    /// The least there can be, for `x-ms-cosmos-min-throughput`.
    pub const MIN: u32 = MANUAL_MIN;

    /// Always so much.
    ///
    /// # Errors
    /// When it is out of range.
    pub fn manual(throughput: u32) -> Result<Throughput, BadThroughput> {
        let allowed = (MANUAL_MIN..=THROUGHPUT_MAX).contains(&throughput)
            && throughput.is_multiple_of(MANUAL_STEP);
        if allowed {
            Ok(Throughput::Manual(throughput))
        } else {
            Err(BadThroughput::Manual(throughput))
        }
    }

    /// Up to so much.
    ///
    /// # Errors
    /// When it is out of range.
    pub fn autoscale(max: i64, increment_percent: u32) -> Result<Throughput, BadThroughput> {
        if max < i64::from(AUTOSCALE_MIN) {
            return Err(BadThroughput::TooLittle(max));
        }
        match u32::try_from(max) {
            Ok(max)
                if max <= THROUGHPUT_MAX
                    && max.is_multiple_of(AUTOSCALE_STEP)
                    && increment_percent <= 100 =>
            {
                Ok(Throughput::Autoscale { max, increment_percent })
            }
            _ => Err(BadThroughput::Autoscale(max)),
        }
    }

    /// What the headers of a create ask for; nothing when they are silent.
    ///
    /// # Errors
    /// When they are malformed, out of range, or ask for both kinds.
    pub fn from_headers(
        throughput: Option<&str>,
        autopilot: Option<&str>,
    ) -> Result<Option<Throughput>, BadThroughput> {
        match (throughput.map(str::trim), autopilot) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) => Err(BadThroughput::Both),
            (Some(text), None) => {
                let number = text.parse().map_err(|_| BadThroughput::form(text))?;
                Throughput::manual(number).map(Some)
            }
            (None, Some(text)) => {
                let settings: Settings =
                    serde_json::from_str(text).map_err(|_| BadThroughput::form(text))?;
                settings.throughput().map(Some)
            }
        }
    }

    /// What the body of a replaced offer asks for.
    ///
    /// # Errors
    /// When it is malformed or out of range.
    pub fn from_offer(body: &[u8]) -> Result<Throughput, BadThroughput> {
        let form = || BadThroughput::form(&String::from_utf8_lossy(&body[..body.len().min(200)]));
        let offer: WireOffer = serde_json::from_slice(body).map_err(|_| form())?;
        match (offer.content.offer_autopilot_settings, offer.content.offer_throughput) {
            // A scaling offer carries its current throughput too, which is not for clients to set.
            (Some(settings), _) => settings.throughput(),
            (None, Some(throughput)) => Throughput::manual(throughput),
            (None, None) => Err(form()),
        }
    }

    /// The same, scaling by itself up to at least what it was.
    #[must_use]
    pub fn to_autoscale(self) -> Throughput {
        match self {
            Throughput::Manual(throughput) => Throughput::Autoscale {
                max: throughput.next_multiple_of(AUTOSCALE_STEP).max(AUTOSCALE_MIN),
                increment_percent: 0,
            },
            autoscale @ Throughput::Autoscale { .. } => autoscale,
        }
    }

    /// The same, fixed at its maximum.
    #[must_use]
    pub fn to_manual(self) -> Throughput {
        match self {
            Throughput::Autoscale { max, .. } => Throughput::Manual(max),
            manual @ Throughput::Manual(_) => manual,
        }
    }

    /// The most there ever is.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Throughput::Manual(throughput) | Throughput::Autoscale { max: throughput, .. } => {
                throughput
            }
        }
    }

    /// How many partitions a new container with so much has in the service.
    #[must_use]
    pub fn partitions_of_new(self) -> u32 {
        self.most().div_ceil(UNITS_PER_NEW_PARTITION)
    }

    /// The fewest partitions that can give so much; with fewer, the service splits.
    #[must_use]
    pub fn partitions_min(self) -> u32 {
        self.most().div_ceil(UNITS_PER_PARTITION_MAX)
    }

    /// What is there when nothing is going on.
    #[must_use]
    pub fn current(self) -> u32 {
        match self {
            Throughput::Manual(throughput) => throughput,
            Throughput::Autoscale { max, .. } => max / 10,
        }
    }
}

/// The throughput of one database or container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The offer's own resource id, which is its id too.
    pub rid: OfferRid,
    /// The `_self` of what it belongs to, byte by byte.
    pub resource: String,
    /// The resource id of what it belongs to.
    pub resource_rid: String,
    /// How much.
    pub throughput: Throughput,
    /// With its quotes.
    pub etag: String,
    /// Seconds since 1970.
    pub ts: u64,
}

impl Offer {
    /// The offer as a document.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let rid = self.rid.to_string();
        let document = json!({
            "offerVersion": "V2",
            "offerType": "Invalid",
            "content": self.content(),
            "resource": self.resource,
            "offerResourceId": self.resource_rid,
            "id": rid,
            "_rid": rid,
            "_self": format!("offers/{rid}/"),
            "_etag": self.etag,
            "_ts": self.ts,
        });
        document.to_string().into_bytes()
    }

    fn content(&self) -> Value {
        let mut content = json!({
            "offerThroughput": self.throughput.current(),
            "offerIsRUPerMinuteThroughputEnabled": false,
        });
        if let Throughput::Autoscale { max, increment_percent } = self.throughput {
            content["offerAutopilotSettings"] = json!({
                "maxThroughput": max,
                "autoUpgradePolicy": {
                    "throughputPolicy": { "incrementPercent": increment_percent },
                },
            });
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn autoscale(max: u32) -> Throughput {
        Throughput::Autoscale { max, increment_percent: 0 }
    }

    #[test]
    fn throughput_of_a_create() {
        for (throughput, autopilot, expected) in [
            (None, None, Some(None)),
            (Some("400"), None, Some(Some(Throughput::Manual(400)))),
            (Some(" 1000000 "), None, Some(Some(Throughput::Manual(1_000_000)))),
            (None, Some(r#"{"maxThroughput":4000}"#), Some(Some(autoscale(4000)))),
            (
                None,
                Some(
                    r#"{"maxThroughput":4000,"autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":5}}}"#,
                ),
                Some(Some(Throughput::Autoscale { max: 4000, increment_percent: 5 })),
            ),
            (Some("400"), Some(r#"{"maxThroughput":4000}"#), None),
            (Some("399"), None, None),
            (Some("450"), None, None),
            (Some("1000100"), None, None),
            (Some("-400"), None, None),
            (Some("many"), None, None),
            (None, Some("4000"), None),
            (None, Some("{}"), None),
            (None, Some(r#"{"maxThroughput":500}"#), None),
            (None, Some(r#"{"maxThroughput":1500}"#), None),
        ] {
            let parsed = Throughput::from_headers(throughput, autopilot);
            assert_eq!(parsed.ok(), expected, "{throughput:?} {autopilot:?}");
        }
    }

    fn offer(throughput: Throughput) -> Offer {
        Offer {
            rid: OfferRid::new(7),
            resource: "dbs/AAAAAQ==/colls/AAAAAYAAAAE=/".to_owned(),
            resource_rid: "AAAAAYAAAAE=".to_owned(),
            throughput,
            etag: "\"e\"".to_owned(),
            ts: 7,
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for throughput in [Throughput::Manual(400), autoscale(4000)] {
            let json = offer(throughput).to_json();
            assert_eq!(Throughput::from_offer(&json), Ok(throughput));
            let document: Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(document["resource"], "dbs/AAAAAQ==/colls/AAAAAYAAAAE=/");
            assert_eq!(document["id"], document["_rid"]);
            assert_eq!(document["content"]["offerThroughput"], 400);
        }
        for body in [&b""[..], b"{}", b"{\"content\":{}}", b"\xff", b"[]"] {
            assert!(Throughput::from_offer(body).is_err());
        }
    }

    #[test]
    fn too_little_is_named_with_the_minimum() {
        let refused = Throughput::from_headers(None, Some(r#"{"maxThroughput":-200}"#));
        let message = refused.unwrap_err().to_string();
        let expected = "Requested throughput -200 is less than required minimum throughput 1000";
        assert!(message.starts_with(expected), "{message}");
    }

    #[test]
    fn partitions_follow_throughput() {
        for (units, new, least) in
            [(400, 1, 1), (6000, 1, 1), (10_000, 2, 1), (11_000, 2, 2), (30_000, 5, 3)]
        {
            let throughput = Throughput::Manual(units);
            assert_eq!((throughput.partitions_of_new(), throughput.partitions_min()), (new, least));
        }
    }

    #[test]
    fn migrations() {
        for (from, to) in [(400, 1000), (1000, 1000), (1100, 2000), (1_000_000, 1_000_000)] {
            assert_eq!(Throughput::Manual(from).to_autoscale(), autoscale(to));
        }
        assert_eq!(autoscale(4000).to_manual(), Throughput::Manual(4000));
        assert_eq!(autoscale(4000).to_autoscale(), autoscale(4000));
    }
}
