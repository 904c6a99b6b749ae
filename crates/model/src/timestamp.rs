//! A point in time in milliseconds since 1970, UTC, as stored in log entries.
//!
//! Two text forms: RFC 3339 for people and logs, RFC 1123 for HTTP. Both use one calendar conversion, small
//! enough to need no date library. Never reads the clock.

use std::fmt;

use serde::{Deserialize, Serialize};

const MILLIS_PER_SECOND: u64 = 1000;
const SECONDS_PER_DAY: u64 = 86_400;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

/// Why a text is not a valid date.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadTimestamp {
    /// Not in the form of RFC 1123.
    #[error("date is not of the form `Tue, 14 Nov 2023 22:13:20 GMT`; send an RFC 1123 date")]
    Form,
    /// Not in the form of RFC 3339 in UTC.
    #[error("date is not of the form `2023-11-14T22:13:20Z`; send an RFC 3339 date in UTC")]
    Rfc3339Form,
    /// A day or a time that does not exist.
    #[error("date does not exist; check its day, month and time")]
    NotInCalendar,
    /// The day of the week does not match the date.
    #[error("date is not on the weekday it names; check which of the two is meant")]
    Weekday,
    /// A date before 1970.
    #[error("date is before 1970; to read everything, leave it out")]
    BeforeEpoch,
}

impl Timestamp {
    /// This many milliseconds after 1970 began.
    pub const fn from_millis(millis: u64) -> Timestamp {
        Timestamp(millis)
    }

    /// This many seconds after 1970 began. Saturates at the largest timestamp.
    pub const fn from_seconds(seconds: u64) -> Timestamp {
        Timestamp(seconds.saturating_mul(MILLIS_PER_SECOND))
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since 1970, the form of `_ts`.
    pub const fn as_seconds(self) -> u64 {
        self.0 / MILLIS_PER_SECOND
    }

    /// Formats as an HTTP date: `Tue, 14 Nov 2023 22:13:20 GMT`. Drops the milliseconds.
    pub fn to_rfc1123(self) -> String {
        let Civil { year, month, day, hour, minute, second, weekday, .. } = Civil::of(self);
        let (weekday, month) = (WEEKDAYS[weekday], MONTHS[month - 1]);
        format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }

    /// Parses an HTTP date. Names may be in any case, the day may have one digit.
    pub fn from_rfc1123(text: &str) -> Result<Timestamp, BadTimestamp> {
        // Parsed as bytes at fixed positions, because every request has a date. Only the day varies in length.
        let text = text.as_bytes();
        let day_end = text.len().checked_sub(22).ok_or(BadTimestamp::Form)?;
        let part = |from, to| text.get(from..to).ok_or(BadTimestamp::Form);
        let rest = |from, to| part(day_end + from, day_end + to);
        let (weekday, day, month) = (part(0, 3)?, part(5, day_end)?, rest(1, 4)?);
        let (year, time) = (rest(5, 9)?, rest(10, 18)?);
        let between = [part(3, 5)?, rest(0, 1)?, rest(4, 5)?, rest(9, 10)?];
        let expected: [&[u8]; 4] = [b", ", b" ", b" ", b" "];
        if between != expected || !rest(18, 22)?.eq_ignore_ascii_case(b" GMT") {
            return Err(BadTimestamp::Form);
        }
        let weekday = position_of(weekday, &WEEKDAYS)?;
        let month = position_of(month, &MONTHS)? + 1;
        let day = number(day, 1..=2)?;
        let year = number(year, 4..=4)?;
        let [hour, minute, second] = clock(time)?;

        let (days, seconds) = moment([year, day, hour, minute, second], month)?;
        if weekday_of(days) != weekday {
            return Err(BadTimestamp::Weekday);
        }
        Ok(Timestamp::from_seconds(seconds))
    }

    /// Parses an RFC 3339 date in UTC with a `Z` at its end, the form of [`Display`](fmt::Display).
    ///
    /// Fractions of a second are optional and cut to milliseconds.
    pub fn from_rfc3339(text: &str) -> Result<Timestamp, BadTimestamp> {
        let form = BadTimestamp::Rfc3339Form;
        let bytes = text.strip_suffix(['Z', 'z']).ok_or(form)?.as_bytes();
        let part = |from, to| bytes.get(from..to).ok_or(form);
        let dashes = [part(4, 5)?, part(7, 8)?] == [b"-", b"-"];
        if !dashes || !part(10, 11)?.eq_ignore_ascii_case(b"T") {
            return Err(form);
        }
        let number = |text, digits| number(text, digits).map_err(|_| form);
        let (year, month) = (number(part(0, 4)?, 4..=4)?, number(part(5, 7)?, 2..=2)?);
        let day = number(part(8, 10)?, 2..=2)?;
        let [hour, minute, second] = clock(part(11, 19)?).map_err(|_| form)?;
        let millis = match bytes.get(19..).unwrap_or_default() {
            [] => 0,
            [b'.', digits @ ..] if digits.iter().all(u8::is_ascii_digit) && !digits.is_empty() => {
                let digit = |at: usize| u64::from(digits.get(at).map_or(0, |digit| digit - b'0'));
                digit(0) * 100 + digit(1) * 10 + digit(2)
            }
            _ => return Err(form),
        };
        let month = usize::try_from(month).ok().filter(|month| (1..=12).contains(month));
        let month = month.ok_or(BadTimestamp::NotInCalendar)?;
        let (_, seconds) = moment([year, day, hour, minute, second], month)?;
        Ok(Timestamp::from_millis(seconds * MILLIS_PER_SECOND + millis))
    }
}

/// RFC 3339 in UTC with milliseconds: `2023-11-14T22:13:20.123Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Civil { year, month, day, hour, minute, second, millis, .. } = Civil::of(*self);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Calendar date and time of day of a timestamp, in UTC.
struct Civil {
    year: u64,
    /// From 1.
    month: usize,
    /// From 1.
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millis: u64,
    /// An index into `WEEKDAYS`.
    weekday: usize,
}

impl Civil {
    /// Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last of
    /// its year, and are counted within eras of 400 years, which all have the same length.
    fn of(moment: Timestamp) -> Civil {
        let seconds = moment.as_seconds();
        let days = seconds / SECONDS_PER_DAY;
        let shifted = days + 719_468; // since 1 March of year 0
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        // At most 11, so nothing is lost.
        let month = ((month_from_march % 12) as usize + 2) % 12 + 1;
        let year = era * 400 + year_of_era + u64::from(month <= 2);

        let second_of_day = seconds % SECONDS_PER_DAY;
        Civil {
            year,
            month,
            day,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            millis: moment.0 % MILLIS_PER_SECOND,
            weekday: weekday_of(days),
        }
    }
}

/// Days from 1970 to a calendar date, the inverse of `Civil::of`; `None` for dates before 1970.
fn days_since_epoch(year: u64, month: usize, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let month_from_march = (month as u64 + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let days_before_year = year * 365 + year / 4 - year / 100 + year / 400;
    (days_before_year + day_of_year).checked_sub(719_468)
}

/// The days and the seconds since 1970 at a year, day, hour, minute and second of a month.
fn moment(parts: [u64; 5], month: usize) -> Result<(u64, u64), BadTimestamp> {
    let [year, day, hour, minute, second] = parts;
    // A leap second counts as the second after it, as in Unix time.
    if hour > 23 || minute > 59 || second > 60 || day == 0 || day > days_in(year, month) {
        return Err(BadTimestamp::NotInCalendar);
    }
    let days = days_since_epoch(year, month, day).ok_or(BadTimestamp::BeforeEpoch)?;
    Ok((days, days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: usize) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// An index into `WEEKDAYS`; 1 January 1970 was a Thursday.
fn weekday_of(days: u64) -> usize {
    (days % 7) as usize
}

fn position_of(name: &[u8], names: &[&str]) -> Result<usize, BadTimestamp> {
    let mut wanted = [0; 3];
    wanted[..].copy_from_slice(name.get(..3).ok_or(BadTimestamp::Form)?);
    wanted[1..].make_ascii_lowercase();
    wanted[0].make_ascii_uppercase();
    names.iter().position(|known| known.as_bytes() == wanted).ok_or(BadTimestamp::Form)
}

fn number(text: &[u8], digits: std::ops::RangeInclusive<usize>) -> Result<u64, BadTimestamp> {
    if !digits.contains(&text.len()) || !text.iter().all(u8::is_ascii_digit) {
        return Err(BadTimestamp::Form);
    }
    Ok(text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

fn clock(text: &[u8]) -> Result<[u64; 3], BadTimestamp> {
    match text {
        [hour @ .., b':', minute_1, minute_2, b':', second_1, second_2] => Ok([
            number(hour, 2..=2)?,
            number(&[*minute_1, *minute_2], 2..=2)?,
            number(&[*second_1, *second_2], 2..=2)?,
        ]),
        _ => Err(BadTimestamp::Form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with GNU date.
    const MOMENTS: [(u64, &str, &str); 12] = [
        (0, "1970-01-01T00:00:00", "Thu, 01 Jan 1970 00:00:00 GMT"),
        (1, "1970-01-01T00:00:01", "Thu, 01 Jan 1970 00:00:01 GMT"),
        (86_399, "1970-01-01T23:59:59", "Thu, 01 Jan 1970 23:59:59 GMT"),
        (68_169_600, "1972-02-29T00:00:00", "Tue, 29 Feb 1972 00:00:00 GMT"),
        (784_111_777, "1994-11-06T08:49:37", "Sun, 06 Nov 1994 08:49:37 GMT"),
        (951_782_400, "2000-02-29T00:00:00", "Tue, 29 Feb 2000 00:00:00 GMT"),
        (951_868_800, "2000-03-01T00:00:00", "Wed, 01 Mar 2000 00:00:00 GMT"),
        (978_307_199, "2000-12-31T23:59:59", "Sun, 31 Dec 2000 23:59:59 GMT"),
        (1_700_000_000, "2023-11-14T22:13:20", "Tue, 14 Nov 2023 22:13:20 GMT"),
        (4_107_542_399, "2100-02-28T23:59:59", "Sun, 28 Feb 2100 23:59:59 GMT"),
        (4_107_542_400, "2100-03-01T00:00:00", "Mon, 01 Mar 2100 00:00:00 GMT"),
        (253_402_300_799, "9999-12-31T23:59:59", "Fri, 31 Dec 9999 23:59:59 GMT"),
    ];

    #[test]
    fn moments() {
        for (seconds, rfc3339, rfc1123) in MOMENTS {
            let moment = Timestamp::from_seconds(seconds);
            assert_eq!(moment.to_string(), format!("{rfc3339}.000Z"));
            assert_eq!(moment.to_rfc1123(), rfc1123);
            assert_eq!(Timestamp::from_rfc1123(rfc1123), Ok(moment));
            assert_eq!(Timestamp::from_rfc3339(&format!("{rfc3339}Z")), Ok(moment));
            assert_eq!(Timestamp::from_rfc1123(&rfc1123.to_lowercase()), Ok(moment));
        }
    }

    #[test]
    fn milliseconds() {
        let moment = Timestamp::from_millis(1_700_000_000_123);
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp::from_rfc3339("2023-11-14t22:13:20.1234567z"), Ok(moment));
        assert_eq!(moment.as_seconds(), 1_700_000_000);
        assert_eq!(moment.as_millis(), 1_700_000_000_123);
        assert_eq!(moment.to_rfc1123(), "Tue, 14 Nov 2023 22:13:20 GMT");
        assert_eq!(Timestamp::from_seconds(u64::MAX), Timestamp::from_millis(u64::MAX));
        assert_eq!(Timestamp::from_millis(u64::MAX).to_string(), "584556019-04-03T14:25:51.615Z");
    }

    #[test]
    fn other_forms_of_rfc3339_are_refused() {
        use BadTimestamp::{BeforeEpoch, NotInCalendar, Rfc3339Form};
        for (text, why) in [
            ("", Rfc3339Form),
            ("Z", Rfc3339Form),
            ("2023-11-14T22:13:20", Rfc3339Form),
            ("2023-11-14T22:13:20+01:00", Rfc3339Form),
            ("2023-11-14 22:13:20Z", Rfc3339Form),
            ("2023-11-14T22:13:20.Z", Rfc3339Form),
            ("2023-11-14T22:13Z", Rfc3339Form),
            ("2023-1é-14T22:13:20Z", Rfc3339Form),
            ("2023-13-14T22:13:20Z", NotInCalendar),
            ("2023-00-14T22:13:20Z", NotInCalendar),
            ("2023-02-29T22:13:20Z", NotInCalendar),
            ("2023-11-14T24:13:20Z", NotInCalendar),
            ("1969-12-31T23:59:59Z", BeforeEpoch),
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), Err(why), "{text}");
        }
    }

    /// Every day of four centuries, so every kind of year and century.
    #[test]
    fn days_follow_one_another() {
        let mut expected = (1970, 1, 1);
        for days in 0..146_097 {
            let civil = Civil::of(Timestamp::from_seconds(days * SECONDS_PER_DAY));
            let (year, month, day) = expected;
            assert_eq!((civil.year, civil.month, civil.day), expected);
            assert_eq!(days_since_epoch(year, month, day), Some(days));
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == days_in(year, month) => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert_eq!(expected, (2370, 1, 1));
    }

    #[track_caller]
    fn check(text: &str, expected: Result<u64, BadTimestamp>) {
        assert_eq!(Timestamp::from_rfc1123(text), expected.map(Timestamp::from_seconds), "{text}");
    }

    #[test]
    fn unusual_dates() {
        check("Sun, 6 Nov 1994 08:49:37 GMT", Ok(784_111_777));
        check("Sat, 31 Dec 2016 23:59:60 GMT", Ok(1_483_228_800));
    }

    #[test]
    fn refused_dates() {
        use BadTimestamp::*;
        check("", Err(Form));
        check("Tue, 14 Nov 2023 22:13:20", Err(Form));
        check("Tue, 14 Nov 2023 22:13:20 PST", Err(Form));
        check("Tue, 14 Nov 2023 22:13:20 GMT ", Err(Form));
        check("Tue 14 Nov 2023 22:13:20 GMT", Err(Form));
        check("Xyz, 14 Nov 2023 22:13:20 GMT", Err(Form));
        check("Tue, 14 Xyz 2023 22:13:20 GMT", Err(Form));
        check("Tue, 014 Nov 2023 22:13:20 GMT", Err(Form));
        check("Tue, +4 Nov 2023 22:13:20 GMT", Err(Form));
        check("Tue, 14 Nov 23 22:13:20 GMT", Err(Form));
        check("Tue, 14 Nov 2023 22:13 GMT", Err(Form));
        check("Tue, 14 Nov 2023 22:13:20:00 GMT", Err(Form));
        check("Tue, 14 Nov 2023 2:13:20 GMT", Err(Form));
        check("2023-11-14T22:13:20Z", Err(Form));
        check("Tuesday, 14-Nov-23 22:13:20 GMT", Err(Form));
        check("Tue, 00 Nov 2023 22:13:20 GMT", Err(NotInCalendar));
        check("Tue, 31 Nov 2023 22:13:20 GMT", Err(NotInCalendar));
        check("Wed, 29 Feb 2023 00:00:00 GMT", Err(NotInCalendar));
        check("Mon, 29 Feb 2100 00:00:00 GMT", Err(NotInCalendar));
        check("Tue, 14 Nov 2023 24:00:00 GMT", Err(NotInCalendar));
        check("Tue, 14 Nov 2023 22:60:00 GMT", Err(NotInCalendar));
        check("Tue, 14 Nov 2023 22:13:61 GMT", Err(NotInCalendar));
        check("Wed, 14 Nov 2023 22:13:20 GMT", Err(Weekday));
        check("Wed, 31 Dec 1969 23:59:59 GMT", Err(BeforeEpoch));
        check("Mon, 01 Jan 0001 00:00:00 GMT", Err(BeforeEpoch));
        check("Sat, 01 Jan 0000 00:00:00 GMT", Err(BeforeEpoch));
    }
}
