//! Parses `--from`: a word, a time, an age or a position. Turns it into the pieces to read.

use super::reader::Piece;
use anyhow::{Context, Result, bail, ensure};
use headwater_client::{Container, FeedFrom};
use headwater_model::{ContainerRid, Continuation, FeedMode, KeyRange, PartitionId, Timestamp};
use std::str::FromStr;

/// A starting point in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Beginning,
    Now,
    Time(Timestamp),
    /// An age in milliseconds.
    Age(u64),
    Position(Continuation),
}

impl FromStr for Start {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Start> {
        match text.trim() {
            "beginning" => return Ok(Start::Beginning),
            "now" => return Ok(Start::Now),
            _ => {}
        }
        if let Some(age) = age(text) {
            return Ok(Start::Age(age));
        }
        if let Some(time) = time(text) {
            return Ok(Start::Time(time));
        }
        match text.parse() {
            Ok(position) => Ok(Start::Position(position)),
            Err(_) => bail!(
                "not beginning, now, a time like 2026-01-31T08:00:00Z, an age like 10m, or a \
                 position that tail printed"
            ),
        }
    }
}

impl Start {
    /// Refuses a position of another container, also of an earlier one with the same name.
    pub(crate) fn check(&self, container: ContainerRid) -> Result<()> {
        let of = match self {
            Start::Position(position) => position.container(),
            _ => None,
        };
        ensure!(
            of.is_none_or(|of| of == container),
            "the position is of another container, perhaps of one that was deleted and made anew; \
             start from the beginning, from now or from a time"
        );
        Ok(())
    }

    /// Returns the pieces to read: one per range, or several where a position has several LSNs within a
    /// merged range. `otherwise` applies to ranges that the position does not cover.
    pub(crate) async fn pieces(
        &self,
        otherwise: Option<&Start>,
        container: &Container,
        only: &[u32],
        moment: Moment,
    ) -> Result<Vec<Piece>> {
        let ranges = container.refresh_ranges().await?;
        for id in only {
            let known = ranges.iter().any(|range| range.id == PartitionId::new(*id));
            ensure!(known, "there is no range {id}; see `headwater partitions list`");
        }
        let wanted =
            ranges.iter().filter(|range| only.is_empty() || only.contains(&range.id.get()));
        let mut pieces = Vec::new();
        for range in wanted {
            if let Some(divided) = self.divided(&range.keys) {
                pieces.extend(divided);
                continue;
            }
            let from = match self.of(&range.keys, moment)? {
                Some(from) => Some(from),
                None => otherwise.map(|start| start.of(&range.keys, moment)).transpose()?.flatten(),
            };
            let from = from.with_context(|| {
                format!("the position does not cover range {}; give --ranges", range.id)
            })?;
            pieces.push(Piece { keys: range.keys.clone(), from });
        }
        Ok(pieces)
    }

    /// Returns a piece for each part of these keys, where a position has several LSNs within them. Starting the whole
    /// range at the lowest LSN could read changes that other parts have already passed.
    fn divided(&self, keys: &KeyRange) -> Option<Vec<Piece>> {
        let Start::Position(position) = self else { return None };
        let Continuation::Composite { positions, .. } = position else { return None };
        position.position_for(keys)?;
        let inside = positions.iter().filter_map(|part| {
            let from = FeedFrom::After(Continuation::Single(part.after).to_string());
            Some(Piece { keys: part.range.intersect(keys)?, from })
        });
        let pieces: Vec<Piece> = inside.collect();
        let is_divided = pieces.windows(2).any(|pair| pair[0].from != pair[1].from);
        is_divided.then_some(pieces)
    }

    /// Returns the starting point for these keys, if this one covers them.
    fn of(&self, keys: &KeyRange, moment: Moment) -> Result<Option<FeedFrom>> {
        let all = moment.mode == FeedMode::AllVersionsAndDeletes;
        ensure!(
            !all || !matches!(self, Start::Time(_) | Start::Age(_)),
            "all versions are read from the beginning, from now or from a position, not from a time"
        );
        Ok(Some(match self {
            Start::Beginning => FeedFrom::Beginning,
            Start::Now => FeedFrom::Now,
            Start::Time(time) => FeedFrom::Time(*time),
            Start::Age(age) => {
                FeedFrom::Time(Timestamp::from_millis(moment.now_millis.saturating_sub(*age)))
            }
            Start::Position(position) => match position.position_for(keys) {
                Some(after) => FeedFrom::After(Continuation::Single(after).to_string()),
                None => return Ok(None),
            },
        }))
    }
}

/// The current time and the feed mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) mode: FeedMode,
    pub(crate) now_millis: u64,
}

/// Parses an age such as `90s`, `10m`, `2h` or `1d` into milliseconds.
pub(crate) fn age(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds)?.checked_mul(1000)
}

/// Parses a date or a UTC time in the form of RFC 3339, or an HTTP date.
fn time(text: &str) -> Option<Timestamp> {
    if let Ok(time) = Timestamp::from_rfc1123(text) {
        return Some(time);
    }
    let (day, clock) = match text.split_once(['T', 't', ' ']) {
        Some((day, clock)) => (day, clock.strip_suffix(['Z', 'z']).unwrap_or(clock)),
        None => (text, "00:00:00"),
    };
    let clock = clock.split_once('.').map_or(clock, |(clock, _)| clock);
    let [year, month, day] = three(day, '-')?;
    let [hour, minute, second] = three(clock, ':')?;
    if !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_1970(year, month, day)?;
    Some(Timestamp::from_seconds(((days * 24 + hour) * 60 + minute) * 60 + second))
}

fn three(text: &str, between: char) -> Option<[u64; 3]> {
    let mut parts = text.split(between).map(|part| {
        let plain = !part.is_empty() && part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
        part.parse::<u64>().ok().filter(|_| plain)
    });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let divides = |by: u64, year: u64| year.is_multiple_of(by);
    let leap = |year| divides(4, year) && (!divides(100, year) || divides(400, year));
    let february = if leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if day == 0 || day > length {
        return None;
    }
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    let months: u64 = lengths.iter().take(usize::try_from(month).ok()? - 1).sum();
    Some(years + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_words_moments_ages_and_positions() {
        for (text, expected) in [
            ("beginning", Start::Beginning),
            ("now", Start::Now),
            ("10m", Start::Age(600_000)),
            ("1d", Start::Age(86_400_000)),
            ("2023-11-14T22:13:20Z", Start::Time(Timestamp::from_seconds(1_700_000_000))),
            ("2023-11-14 22:13:20.5", Start::Time(Timestamp::from_seconds(1_700_000_000))),
            ("Tue, 14 Nov 2023 22:13:20 GMT", Start::Time(Timestamp::from_seconds(1_700_000_000))),
            ("2024-02-29", Start::Time(Timestamp::from_seconds(1_709_164_800))),
            ("42", Start::Position(Continuation::Single(headwater_model::Lsn::new(42)))),
        ] {
            assert_eq!(text.parse::<Start>().unwrap(), expected, "{text}");
        }
        for text in ["", "m", "-1h", "2023-02-29", "2023-13-01", "1960-01-01", "yesterday", "1:2:3"]
        {
            assert!(text.parse::<Start>().is_err(), "{text}");
        }
    }

    /// Checks the parser against the dates that the model writes.
    #[test]
    fn every_date_is_read_as_the_model_writes_it() {
        for seconds in (0..4_000_000_000u64).step_by(8_640_011) {
            let written = Timestamp::from_seconds(seconds);
            assert_eq!(time(&written.to_string()), Some(written));
        }
    }
}
