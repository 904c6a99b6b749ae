//! Offers: the throughput of a database or container.
//!
//! Throughput is manual (fixed), or autoscale up to a maximum. An offer names its resource by the
//! resource's `_self` link, byte by byte, because clients search for that.

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
/// The request units per second that the service plans per partition of a new container.
const UNITS_PER_NEW_PARTITION: u32 = 6000;
/// The maximum request units per second of one partition; beyond it the service splits.
const UNITS_PER_PARTITION_MAX: u32 = 10_000;

/// A throughput in request units per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throughput {
    /// A fixed throughput.
    Manual(u32),
    /// A throughput that scales between a tenth of the maximum and the maximum.
    Autoscale {
        /// The maximum.
        max: u32,
        /// Percentage by which the maximum grows with the data; usually 0.
        increment_percent: u32,
    },
}

/// Why a requested throughput is refused. Each is a bad request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadThroughput {
    /// A manual throughput is out of range.
    #[error(
        "throughput is {0}; ask for {MANUAL_MIN} to {THROUGHPUT_MAX} in steps of {MANUAL_STEP}"
    )]
    Manual(u32),
    /// An autoscale maximum is below the minimum.
    #[error(
        "Requested throughput {0} is less than required minimum throughput {AUTOSCALE_MIN}; ask for \
         {AUTOSCALE_MIN} to {THROUGHPUT_MAX} in steps of {AUTOSCALE_STEP}"
    )]
    TooLittle(i64),
    /// An autoscale maximum is out of range.
    #[error(
        "maxThroughput is {0}; ask for {AUTOSCALE_MIN} to {THROUGHPUT_MAX} in steps of \
         {AUTOSCALE_STEP}"
    )]
    Autoscale(i64),
    /// Both manual and autoscale throughput are requested.
    #[error("{OFFER_THROUGHPUT} and {OFFER_AUTOPILOT_SETTINGS} exclude each other; send one")]
    Both,
    /// The value is neither a number nor the expected JSON.
    #[error("`{0}` is not a throughput; send a number, or {{\"maxThroughput\":4000}}")]
    Form(String),
}

impl BadThroughput {
    /// The status code of the response.
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
    /// The minimum throughput, for `x-ms-cosmos-min-throughput`.
    pub const MIN: u32 = MANUAL_MIN;

    /// Creates a manual throughput.
    ///
    /// # Errors
    /// When the value is out of range or not a multiple of the step.
    pub fn manual(throughput: u32) -> Result<Throughput, BadThroughput> {
        let allowed = (MANUAL_MIN..=THROUGHPUT_MAX).contains(&throughput)
            && throughput.is_multiple_of(MANUAL_STEP);
        if allowed {
            Ok(Throughput::Manual(throughput))
        } else {
            Err(BadThroughput::Manual(throughput))
        }
    }

    /// Creates an autoscale throughput with a maximum.
    ///
    /// # Errors
    /// When the maximum is out of range or not a multiple of the step.
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

    /// Parses the headers of a create request; `None` without either header.
    ///
    /// # Errors
    /// When the headers are malformed, out of range, or request both kinds.
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

    /// Parses the body of a replaced offer.
    ///
    /// # Errors
    /// When the body is malformed or out of range.
    pub fn from_offer(body: &[u8]) -> Result<Throughput, BadThroughput> {
        let form = || BadThroughput::form(&String::from_utf8_lossy(&body[..body.len().min(200)]));
        let offer: WireOffer = serde_json::from_slice(body).map_err(|_| form())?;
        match (offer.content.offer_autopilot_settings, offer.content.offer_throughput) {
            // An autoscale offer includes its current throughput, which clients cannot set.
            (Some(settings), _) => settings.throughput(),
            (None, Some(throughput)) => Throughput::manual(throughput),
            (None, None) => Err(form()),
        }
    }

    /// Converts to autoscale, with a maximum of at least the manual throughput.
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

    /// Converts to manual throughput, at the autoscale maximum.
    #[must_use]
    pub fn to_manual(self) -> Throughput {
        match self {
            Throughput::Autoscale { max, .. } => Throughput::Manual(max),
            manual @ Throughput::Manual(_) => manual,
        }
    }

    /// The highest throughput that it reaches.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Throughput::Manual(throughput) | Throughput::Autoscale { max: throughput, .. } => {
                throughput
            }
        }
    }

    /// The number of partitions that the service gives a new container with this throughput.
    #[must_use]
    pub fn partitions_of_new(self) -> u32 {
        self.most().div_ceil(UNITS_PER_NEW_PARTITION)
    }

    /// The fewest partitions that can serve this throughput; with fewer, the service splits.
    #[must_use]
    pub fn partitions_min(self) -> u32 {
        self.most().div_ceil(UNITS_PER_PARTITION_MAX)
    }

    /// The throughput without load.
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
    /// The offer's resource id, which is also its id.
    pub rid: OfferRid,
    /// The `_self` link of the offer's resource, byte by byte.
    pub resource: String,
    /// The resource id of the offer's resource.
    pub resource_rid: String,
    /// The throughput of the resource.
    pub throughput: Throughput,
    /// The etag, including its quotes.
    pub etag: String,
    /// Timestamp in seconds since 1970.
    pub ts: u64,
}

impl Offer {
    /// Builds the document of the offer.
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
