//! Session tokens: they tell the server which writes of the client a read must see.
//!
//! ```text
//! 0:-1#28535,5:1#100#1=20#2=5
//! ^ ^  ^     ^
//! | |  |     another partition, of an account with two more regions
//! | |  the LSN up to which the client has seen it
//! | version: partitions that merged restart their numbering under a higher one
//! partition
//! ```
//!
//! The server emits version -1 without regions: clients refuse to merge two tokens of one version that
//! name different regions. It parses the whole format, because clients may send tokens from elsewhere.
//!
//! Clients older than [`ApiVersion::V2018_06_18`](crate::headers::ApiVersion::V2018_06_18) parse the value
//! as one number and fail on anything else, so they get the LSN alone: `0:28535`.

use headwater_model::{Lsn, PartitionId};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;

/// The longest header accepted; each partition takes about twenty bytes.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of regions per partition. The service has fewer.
const REGIONS_MAX: usize = 256;

/// Why a text is not a session token, or two tokens cannot be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSessionToken {
    /// The text does not have the format of a session token.
    #[error(
        "session token is not of the form range:version#lsn#region=lsn; send back \
         x-ms-session-token unchanged, or leave it out"
    )]
    Form,
    /// The text is longer than any token the server returns.
    #[error("session token is too long; send only the parts of the partitions that are read")]
    TooLong,
    /// Two tokens have one version but name different regions.
    #[error("session tokens of one version name different regions; drop the older token")]
    Regions,
}

/// The progress of a session in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Increases with a merge of partitions; -1 before the first.
    pub version: i64,
    /// The session has seen all changes up to this LSN.
    pub global_lsn: u64,
    /// The LSN seen in each region, or -1 for none, in the order of the text.
    pub regions: SmallVec<[(u64, i64); 2]>,
}

impl Progress {
    /// Creates the progress that this server reports for a partition.
    #[must_use]
    pub fn local(lsn: Lsn) -> Progress {
        Progress { version: -1, global_lsn: lsn.get(), regions: SmallVec::new() }
    }

    /// Merges two: the newer version, with the higher LSN of each of its regions.
    ///
    /// # Errors
    /// When both have the same version but name different regions.
    pub fn merge(&self, other: &Progress) -> Result<Progress, BadSessionToken> {
        let (newer, older) =
            if self.version >= other.version { (self, other) } else { (other, self) };
        let same_version = newer.version == older.version;
        if same_version && newer.regions.len() != older.regions.len() {
            return Err(BadSessionToken::Regions);
        }
        let mut merged = newer.clone();
        for (region, lsn) in &mut merged.regions {
            match older.regions.iter().find(|(other, _)| other == region) {
                Some((_, seen)) => *lsn = (*lsn).max(*seen),
                None if same_version => return Err(BadSessionToken::Regions),
                None => {}
            }
        }
        if same_version {
            merged.global_lsn = newer.global_lsn.max(older.global_lsn);
        }
        Ok(merged)
    }
}

impl FromStr for Progress {
    type Err = BadSessionToken;

    fn from_str(text: &str) -> Result<Progress, BadSessionToken> {
        let mut parts = text.split('#');
        let version = parts.next().and_then(signed).ok_or(BadSessionToken::Form)?;
        let global_lsn = parts.next().and_then(unsigned).ok_or(BadSessionToken::Form)?;
        let mut regions: SmallVec<[(u64, i64); 2]> = SmallVec::new();
        for part in parts {
            let (region, lsn) = part.split_once('=').ok_or(BadSessionToken::Form)?;
            let region = unsigned(region).ok_or(BadSessionToken::Form)?;
            let lsn = signed(lsn).ok_or(BadSessionToken::Form)?;
            if regions.iter().any(|(known, _)| *known == region) {
                return Err(BadSessionToken::Form);
            }
            if regions.len() >= REGIONS_MAX {
                return Err(BadSessionToken::TooLong);
            }
            regions.push((region, lsn));
        }
        Ok(Progress { version, global_lsn, regions })
    }
}

/// Parses decimal digits, without sign or space.
fn unsigned(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Parses decimal digits, optionally after a minus.
fn signed(text: &str) -> Option<i64> {
    unsigned(text.strip_prefix('-').unwrap_or(text))?;
    text.parse().ok()
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.version, self.global_lsn)?;
        self.regions.iter().try_for_each(|(region, lsn)| write!(f, "#{region}={lsn}"))
    }
}

/// The value of `x-ms-session-token`: the progress of a session in each of some partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionToken {
    parts: SmallVec<[(PartitionId, Progress); 1]>,
}

impl SessionToken {
    /// Creates the token of a response by one partition.
    #[must_use]
    pub fn single(partition: PartitionId, lsn: Lsn) -> SessionToken {
        SessionToken { parts: [(partition, Progress::local(lsn))].into_iter().collect() }
    }

    /// Iterates over the partitions and their progress, in the order of the text.
    pub fn parts(&self) -> impl Iterator<Item = (PartitionId, &Progress)> {
        self.parts.iter().map(|(partition, progress)| (*partition, progress))
    }

    /// The LSN seen in this partition; `None` if the token does not mention it. The partition may then be a
    /// child of a mentioned one, and children contain everything their parents had.
    #[must_use]
    pub fn lsn_of(&self, partition: PartitionId) -> Option<Lsn> {
        let parts = self.parts.iter().filter(|(known, _)| *known == partition);
        parts.map(|(_, progress)| Lsn::new(progress.global_lsn)).max()
    }

    /// Formats the token for clients that do not know versions and regions.
    #[must_use]
    pub fn lsns_alone(&self) -> String {
        let parts = self.parts.iter();
        let parts =
            parts.map(|(partition, progress)| format!("{partition}:{}", progress.global_lsn));
        parts.collect::<Vec<_>>().join(",")
    }

    /// Merges the token of another response.
    ///
    /// # Errors
    /// When both have one partition in the same version but with different regions.
    pub fn merge(&mut self, other: &SessionToken) -> Result<(), BadSessionToken> {
        for (partition, progress) in &other.parts {
            match self.parts.iter_mut().find(|(known, _)| known == partition) {
                Some((_, known)) => *known = known.merge(progress)?,
                None => self.parts.push((*partition, progress.clone())),
            }
        }
        Ok(())
    }
}

/// Also accepts the old form of a part, `0:28535`, which is only an LSN, and a trailing comma, which users
/// leave when they join tokens.
impl FromStr for SessionToken {
    type Err = BadSessionToken;

    fn from_str(text: &str) -> Result<SessionToken, BadSessionToken> {
        if text.len() > HEADER_BYTES_MAX {
            return Err(BadSessionToken::TooLong);
        }
        let mut parts = SmallVec::new();
        for part in text.strip_suffix(',').unwrap_or(text).split(',') {
            let (partition, value) = part.trim().split_once(':').ok_or(BadSessionToken::Form)?;
            let partition = partition.parse().map_err(|_| BadSessionToken::Form)?;
            let progress = match unsigned(value) {
                Some(lsn) => Progress::local(Lsn::new(lsn)),
                None => value.parse()?,
            };
            parts.push((partition, progress));
        }
        Ok(SessionToken { parts })
    }
}

impl fmt::Display for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (partition, progress)) in self.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{}:{progress}", partition.get())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn our_own_token() {
        let token = SessionToken::single(PartitionId::new(0), Lsn::new(28535));
        assert_eq!(token.to_string(), "0:-1#28535");
        assert_eq!("0:-1#28535".parse(), Ok(token.clone()));
        assert_eq!("0:28535".parse(), Ok(token.clone())); // of ancient accounts
        assert_eq!("0:-1#28535,".parse(), Ok(token.clone()));
        assert_eq!(token.lsn_of(PartitionId::new(0)), Some(Lsn::new(28535)));
        assert_eq!(token.lsn_of(PartitionId::new(1)), None);
        assert_eq!(token.lsns_alone(), "0:28535");
    }

    #[test]
    fn refused_headers() {
        for text in [
            "",
            ",",
            "0",
            "0:",
            ":1#2",
            "x:1#2",
            "0:1",
            "0:1#",
            "0:1#-2",
            "0:+1#2",
            "0:1# 2",
            "0:1#2#",
            "0:1#2#1",
            "0:1#2#1=",
            "0:1#2#1=1#1=1",
            "0:1#2,,",
            "-1:1#2",
            "0:1#2#-1=1",
            "4294967296:1#2",
            "0:1#18446744073709551616",
        ] {
            let parsed = text.parse::<SessionToken>();
            // A single number is the old form.
            assert_eq!(parsed.is_ok(), text == "0:1", "{text}");
        }
        let long = "0:-1#1,".repeat(HEADER_BYTES_MAX / 7 + 1);
        assert_eq!(long.parse::<SessionToken>(), Err(BadSessionToken::TooLong));
    }

    #[test]
    fn tokens_of_several_partitions_merge() {
        let mut token: SessionToken = "0:-1#5,1:-1#9".parse().unwrap();
        token.merge(&"1:-1#7,2:-1#1,0:-1#6".parse().unwrap()).unwrap();
        assert_eq!(token.to_string(), "0:-1#6,1:-1#9,2:-1#1");
    }

    proptest! {
        #[test]
        fn no_header_makes_the_parser_panic(text in "[0-9:#=,\\- a]{0,40}") {
            if let Ok(token) = text.parse::<SessionToken>() {
                prop_assert_eq!(token.to_string().parse::<SessionToken>(), Ok(token));
            }
        }
    }
}
