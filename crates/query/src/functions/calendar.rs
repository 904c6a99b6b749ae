//! The calendar behind the date functions: a moment in UTC and its parts.
//!
//! Years 1 to 9999, as the documented form of a date has four digits for them. Calendar rules come
//! from `jiff`; nothing here reads a clock or knows a time zone.

use std::fmt;

use jiff::civil::{Date, DateTime, Time};
use jiff::{SignedDuration, Span};

pub(super) const TICKS_PER_MILLISECOND: i64 = 10_000;
const TICKS_PER_SECOND: i64 = 10_000_000;
const TICKS_PER_DAY: i64 = 86_400 * TICKS_PER_SECOND;
const NANOSECONDS_PER_TICK: i64 = 100;

/// The longest text that is parsed as a date.
const TEXT_BYTES_MAX: usize = 40;

/// A point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(DateTime);

/// A part of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Nanosecond,
}

impl Part {
    pub(super) fn parse(text: &str) -> Option<Part> {
        Some(match text.to_ascii_lowercase().as_str() {
            "year" | "yyyy" | "yy" => Part::Year,
            "month" | "mm" | "m" => Part::Month,
            "day" | "dd" | "d" => Part::Day,
            "hour" | "hh" => Part::Hour,
            "minute" | "mi" | "n" => Part::Minute,
            "second" | "ss" | "s" => Part::Second,
            "millisecond" | "ms" => Part::Millisecond,
            "microsecond" | "mcs" => Part::Microsecond,
            "nanosecond" | "ns" => Part::Nanosecond,
            _ => return None,
        })
    }

    /// The number of ticks of one part; `None` for parts whose length depends on the date, and for the
    /// nanosecond, which is shorter than a tick.
    fn ticks(self) -> Option<i64> {
        Some(match self {
            Part::Day => TICKS_PER_DAY,
            Part::Hour => 3600 * TICKS_PER_SECOND,
            Part::Minute => 60 * TICKS_PER_SECOND,
            Part::Second => TICKS_PER_SECOND,
            Part::Millisecond => TICKS_PER_MILLISECOND,
            Part::Microsecond => 10,
            Part::Year | Part::Month | Part::Nanosecond => return None,
        })
    }
}

impl Moment {
    /// Parses `2026-08-01`, with or without a time, with or without `Z` or an offset.
    pub(super) fn parse(text: &str) -> Option<Moment> {
        let shape = text.as_bytes();
        if shape.len() < 10 || shape.len() > TEXT_BYTES_MAX || shape[4] != b'-' || shape[7] != b'-'
        {
            return None;
        }
        let local = text.strip_suffix(['Z', 'z']).unwrap_or(text);
        let parsed = match local.parse::<DateTime>() {
            Ok(parsed) if !local[10..].contains(['+', '-', '[']) => parsed,
            _ => {
                let instant = text.parse::<jiff::Timestamp>().ok()?;
                return Moment::at(i64::try_from(instant.as_nanosecond().div_euclid(100)).ok()?);
            }
        };
        Moment::new(parsed)
    }

    fn new(moment: DateTime) -> Option<Moment> {
        let nanosecond = moment.subsec_nanosecond() / 100 * 100;
        let moment = moment.with().subsec_nanosecond(nanosecond).build().ok()?;
        (moment.year() >= 1).then_some(Moment(moment))
    }

    /// The moment at a number of ticks since 1970.
    pub(super) fn at(ticks: i64) -> Option<Moment> {
        let seconds = ticks.div_euclid(TICKS_PER_SECOND);
        let rest = ticks.rem_euclid(TICKS_PER_SECOND) * NANOSECONDS_PER_TICK;
        let since = SignedDuration::new(seconds, i32::try_from(rest).ok()?);
        Moment::new(epoch().checked_add(since).ok()?)
    }

    pub(super) fn from_parts(parts: &[i64]) -> Option<Moment> {
        let part = |place: usize| parts.get(place).copied().unwrap_or(0);
        let small = |place: usize| i8::try_from(part(place)).ok();
        let date = Date::new(i16::try_from(part(0)).ok()?, small(1)?, small(2)?).ok()?;
        let nanoseconds = i32::try_from(part(6).checked_mul(NANOSECONDS_PER_TICK)?).ok()?;
        let time = Time::new(small(3)?, small(4)?, small(5)?, nanoseconds).ok()?;
        Moment::new(date.to_datetime(time))
    }

    pub(super) fn ticks(self) -> i64 {
        let since = self.0.duration_since(epoch());
        since.as_secs() * TICKS_PER_SECOND + i64::from(since.subsec_nanos()) / NANOSECONDS_PER_TICK
    }

    pub(super) fn add(self, part: Part, amount: i64) -> Option<Moment> {
        let span = match part {
            Part::Year => Span::new().try_years(amount).ok()?,
            Part::Month => Span::new().try_months(amount).ok()?,
            _ => {
                let ticks = match part.ticks() {
                    Some(ticks) => amount.checked_mul(ticks)?,
                    None => amount / NANOSECONDS_PER_TICK,
                };
                return Moment::at(self.ticks().checked_add(ticks)?);
            }
        };
        Moment::new(self.0.checked_add(span).ok()?)
    }

    /// The number of whole parts since a fixed point, so that differences count boundaries.
    pub(super) fn units(self, part: Part) -> i64 {
        match part {
            Part::Year => i64::from(self.0.year()),
            Part::Month => i64::from(self.0.year()) * 12 + i64::from(self.0.month()) - 1,
            Part::Nanosecond => self.ticks().saturating_mul(NANOSECONDS_PER_TICK),
            _ => self.ticks().div_euclid(part.ticks().unwrap_or(1)),
        }
    }

    pub(super) fn component(self, part: Part) -> i64 {
        let nanosecond = i64::from(self.0.subsec_nanosecond());
        match part {
            Part::Year => self.0.year().into(),
            Part::Month => self.0.month().into(),
            Part::Day => self.0.day().into(),
            Part::Hour => self.0.hour().into(),
            Part::Minute => self.0.minute().into(),
            Part::Second => self.0.second().into(),
            Part::Millisecond => nanosecond / 1_000_000,
            Part::Microsecond => nanosecond / 1_000,
            Part::Nanosecond => nanosecond,
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.0.date(), self.0.time());
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:07}Z",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond() / 100
        )
    }
}

fn epoch() -> DateTime {
    jiff::civil::datetime(1970, 1, 1, 0, 0, 0, 0)
}

/// The start of the bin that contains a moment.
pub(super) fn bin(moment: Moment, part: Part, size: i64, origin: Moment) -> Option<Moment> {
    if size <= 0 || origin.component(Part::Year) < 1601 {
        return None;
    }
    let unit = match part {
        Part::Year | Part::Month => {
            let months = if part == Part::Year { size.checked_mul(12)? } else { size };
            let since = moment.units(Part::Month) - origin.units(Part::Month);
            return origin.add(Part::Month, since.div_euclid(months) * months);
        }
        Part::Nanosecond => size / NANOSECONDS_PER_TICK,
        _ => size.checked_mul(part.ticks()?)?,
    };
    let unit = unit.max(1);
    let since = moment.ticks() - origin.ticks();
    Moment::at(origin.ticks() + since.div_euclid(unit) * unit)
}

/// Formats a date. A run of one letter is one part; a backslash takes the next
/// character literally. `None` for an unknown run.
pub(super) fn format(moment: Moment, format: &str) -> Option<String> {
    let mut out = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            out.extend(chars.next());
            continue;
        }
        let mut run = 1;
        if "yMdHhmsfFt".contains(c) {
            while chars.next_if_eq(&c).is_some() {
                run += 1;
            }
        }
        write_part(moment, c, run, &mut out)?;
    }
    Some(out)
}

fn write_part(moment: Moment, letter: char, run: usize, out: &mut String) -> Option<()> {
    let hour = moment.component(Part::Hour);
    let number = match letter {
        'y' if run <= 2 => moment.component(Part::Year) % 100,
        'y' => moment.component(Part::Year),
        'M' => moment.component(Part::Month),
        'd' => moment.component(Part::Day),
        'H' => hour,
        'h' => (hour + 11) % 12 + 1,
        'm' => moment.component(Part::Minute),
        's' => moment.component(Part::Second),
        't' => {
            let half = if hour < 12 { "AM" } else { "PM" };
            out.push_str(half.get(..run.min(2))?);
            return Some(());
        }
        'f' | 'F' if run <= 7 => {
            let fraction = format!("{:07}", moment.component(Part::Nanosecond) / 100);
            let fraction = &fraction[..run];
            out.push_str(if letter == 'F' { fraction.trim_end_matches('0') } else { fraction });
            return Some(());
        }
        'f' | 'F' => return None,
        other => {
            out.push(other);
            return Some(());
        }
    };
    let width = run.min(4);
    out.push_str(&format!("{number:0width$}"));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_their_usual_forms() {
        let cases = [
            ("2026-08-01", Some("2026-08-01T00:00:00.0000000Z")),
            ("2026-08-01T12:30:45Z", Some("2026-08-01T12:30:45.0000000Z")),
            ("2026-08-01 12:30:45.1", Some("2026-08-01T12:30:45.1000000Z")),
            ("2026-08-01T12:30:45.12345678Z", Some("2026-08-01T12:30:45.1234567Z")),
            ("2026-08-01T12:30:45+02:00", Some("2026-08-01T10:30:45.0000000Z")),
            ("2026-13-01", None),
            ("2026-02-30", None),
            ("20260801", None),
            ("yesterday at noon", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let read = Moment::parse(text).map(|moment| moment.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn ticks_and_moments_agree() {
        for ticks in [
            0,
            1,
            -1,
            17_855_874_451_234_567,
            -621_355_968_000_000_000,
            2_534_022_143_990_000_000 / 10,
        ] {
            assert_eq!(Moment::at(ticks).map(Moment::ticks), Some(ticks));
        }
        assert_eq!(Moment::at(i64::MAX), None);
        assert_eq!(Moment::at(i64::MIN), None);
    }
}
