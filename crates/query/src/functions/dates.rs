//! Table entries of the date and time functions; `calendar.rs` computes them.
//!
//! A date is a string such as `2026-08-01T12:30:45.1234567Z`, always in UTC. A timestamp counts
//! milliseconds and ticks count units of 100 ns, both from 1970-01-01. The current time is that of
//! the run and does not move while it lasts.

use super::calendar::{self, Moment, Part, TICKS_PER_MILLISECOND};
use super::{Body, Function, text, whole};
use crate::evaluate::Environment;
use crate::value::Value;

/// Defines a function of the current time alone.
macro_rules! current {
    ($name:literal, $meaning:literal, $function:expr, $example:literal, $expected:literal) => {
        Function {
            name: $name,
            arguments: "()",
            meaning: $meaning,
            count: (0, 0),
            body: Body::Careful(|_, environment| {
                let function: fn(&Environment) -> Value<'static> = $function;
                Ok(Some(function(environment)))
            }),
            examples: &[($example, $expected)],
        }
    };
}

/// Defines a function that returns one component of a date.
macro_rules! component {
    ($name:literal, $meaning:literal, $part:expr, $expected:literal) => {
        Function {
            name: $name,
            arguments: "(date)",
            meaning: $meaning,
            count: (1, 1),
            body: Body::Pure(|arguments| Some(ticks_value(date(arguments, 0)?.component($part)))),
            examples: &[(concat!($name, "(\"2026-08-01T12:30:45Z\")"), $expected)],
        }
    };
}

pub(super) const TABLE: &[Function] = &[
    Function {
        name: "Ago",
        arguments: "(part, number)",
        meaning: "The current time minus a number of years, months, days, hours …",
        count: (2, 2),
        body: Body::Careful(|arguments, environment| {
            Ok(moved_from_now(arguments, environment, -1))
        }),
        examples: &[
            ("Ago(\"yyyy\", 1)", "\"2025-08-01T12:30:45.1234567Z\""),
            ("Ago(\"yyyy\", -1)", "\"2027-08-01T12:30:45.1234567Z\""),
            ("Ago(\"ss\", 45)", "\"2026-08-01T12:30:00.1234567Z\""),
            ("Ago(\"ms\", 4)", "\"2026-08-01T12:30:45.1194567Z\""),
            ("Ago(\"mm\", 1.5)", "undefined"),
            ("Ago(1, 1)", "undefined"),
        ],
    },
    Function {
        name: "DateTimeAdd",
        arguments: "(part, number, date)",
        meaning: "The date plus a number of years, months, days, hours …",
        count: (3, 3),
        body: Body::Pure(|arguments| {
            let part = Part::parse(text(arguments, 0)?)?;
            let moved = date(arguments, 2)?.add(part, arguments[1].as_integer()?)?;
            Some(Value::from(moved.to_string()))
        }),
        examples: &[
            (
                "DateTimeAdd(\"yyyy\", 1, \"2020-07-03T00:00:00.0000000\")",
                "\"2021-07-03T00:00:00.0000000Z\"",
            ),
            ("DateTimeAdd(\"mm\", 1, \"2020-01-31\")", "\"2020-02-29T00:00:00.0000000Z\""),
            (
                "DateTimeAdd(\"hh\", -1, \"2020-07-03T00:00:00Z\")",
                "\"2020-07-02T23:00:00.0000000Z\"",
            ),
            (
                "DateTimeAdd(\"ns\", 250, \"2020-07-03T00:00:00Z\")",
                "\"2020-07-03T00:00:00.0000002Z\"",
            ),
            ("DateTimeAdd(\"xx\", 1, \"2020-07-03\")", "undefined"),
            ("DateTimeAdd(\"yyyy\", 9999, \"2020-07-03\")", "undefined"),
        ],
    },
    Function {
        name: "DateTimeBin",
        arguments: "(date, part [, size [, origin]])",
        meaning: "The start of the bin that contains the date; bins are a number of parts long",
        count: (2, 4),
        body: Body::Pure(bin),
        examples: &[
            (
                "DateTimeBin(\"2021-01-08T18:35:00.0000000\", \"dd\")",
                "\"2021-01-08T00:00:00.0000000Z\"",
            ),
            (
                "DateTimeBin(\"2021-01-08T18:35:00.0000000\", \"hh\", 5)",
                "\"2021-01-08T15:00:00.0000000Z\"",
            ),
            (
                "DateTimeBin(\"2021-01-08T18:35:00.0000000\", \"dd\", 7)",
                "\"2021-01-07T00:00:00.0000000Z\"",
            ),
            (
                "DateTimeBin(\"2021-01-08T18:35:00.0000000\", \"dd\", 7, \"1601-01-01T00:00:00.0000000\")",
                "\"2021-01-04T00:00:00.0000000Z\"",
            ),
            (
                "DateTimeBin(\"2021-11-08T18:35:00Z\", \"mm\", 3)",
                "\"2021-10-01T00:00:00.0000000Z\"",
            ),
            ("DateTimeBin(\"2021-01-08\", \"dd\", 0)", "undefined"),
        ],
    },
    Function {
        name: "DateTimeDiff",
        arguments: "(part, start, end)",
        meaning: "The number of boundaries of years, months, days … between the dates",
        count: (3, 3),
        body: Body::Pure(|arguments| {
            let part = Part::parse(text(arguments, 0)?)?;
            let (start, end) = (date(arguments, 1)?, date(arguments, 2)?);
            Some(ticks_value(end.units(part) - start.units(part)))
        }),
        examples: &[
            ("DateTimeDiff(\"yyyy\", \"2018-12-31T23:59:59Z\", \"2019-01-01T00:00:00Z\")", "1"),
            ("DateTimeDiff(\"mm\", \"2020-03-01\", \"2020-01-31\")", "-2"),
            (
                "DateTimeDiff(\"hh\", \"2020-01-01T01:02:03.1234527Z\", \"2020-01-03T01:02:03.1234567Z\")",
                "48",
            ),
            ("DateTimeDiff(\"ss\", \"2020-01-01\", \"nonsense\")", "undefined"),
        ],
    },
    Function {
        name: "DateTimeFormat",
        arguments: "(date, format)",
        meaning: "The date in a form of its own: yyyy MM dd HH hh mm ss fff tt and others, the rest \
                  as it stands",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            let (date, format) = (date(arguments, 0)?, text(arguments, 1)?);
            Some(Value::from(calendar::format(date, format)?))
        }),
        examples: &[
            ("DateTimeFormat(\"2024-10-10 14:40:20\", \"yyyyMMdd\")", "\"20241010\""),
            (
                "DateTimeFormat(\"2024-10-10 14:40:20\", \"yyyy-MM-dd [HH:mm:ss]\")",
                "\"2024-10-10 [14:40:20]\"",
            ),
            (
                "DateTimeFormat(\"2024-10-10 14:40:20\", \"To\\\\da\\\\y: h:mm tt .fff .FFF\")",
                "\"Today: 2:40 PM .000 .\"",
            ),
        ],
    },
    Function {
        name: "DateTimeFromParts",
        arguments: "(year, month, day [, hour [, minute [, second [, ticks]]]])",
        meaning: "The date with these parts",
        count: (3, 7),
        body: Body::Pure(|arguments| {
            let parts: Option<Vec<i64>> = arguments.iter().map(Value::as_integer).collect();
            Some(Value::from(Moment::from_parts(&parts?)?.to_string()))
        }),
        examples: &[
            ("DateTimeFromParts(2017, 4, 20)", "\"2017-04-20T00:00:00.0000000Z\""),
            (
                "DateTimeFromParts(2017, 4, 20, 13, 15, 20, 3456789)",
                "\"2017-04-20T13:15:20.3456789Z\"",
            ),
            ("DateTimeFromParts(2017, 13, 1)", "undefined"),
        ],
    },
    Function {
        name: "DateTimePart",
        arguments: "(part, date)",
        meaning: "The year, month, day, hour … of a date",
        count: (2, 2),
        body: Body::Pure(|arguments| {
            let part = Part::parse(text(arguments, 0)?)?;
            Some(ticks_value(date(arguments, 1)?.component(part)))
        }),
        examples: &[
            ("DateTimePart(\"yyyy\", \"2016-05-29T08:30:00.1301617\")", "2016"),
            ("DateTimePart(\"mcs\", \"2016-05-29T08:30:00.1301617\")", "130161"),
            ("DateTimePart(\"ns\", \"2016-05-29T08:30:00.1301617\")", "130161700"),
            ("DateTimePart(\"mi\", \"2016-05-29T08:30:00Z\")", "30"),
        ],
    },
    Function {
        name: "DateTimeToTicks",
        arguments: "(date)",
        meaning: "The date as ticks",
        count: (1, 1),
        body: Body::Pure(|arguments| Some(ticks_value(date(arguments, 0)?.ticks()))),
        examples: &[
            ("DateTimeToTicks(\"2020-01-02T03:04:05.6789123Z\")", "15779342456789124"),
            ("DateTimeToTicks(\"1970-01-01\")", "0"),
        ],
    },
    Function {
        name: "DateTimeToTimestamp",
        arguments: "(date)",
        meaning: "The date as a timestamp",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            Some(ticks_value(date(arguments, 0)?.ticks().div_euclid(TICKS_PER_MILLISECOND)))
        }),
        examples: &[
            ("DateTimeToTimestamp(\"2020-07-09T23:20:13.4575530Z\")", "1594336813457"),
            ("DateTimeToTimestamp(\"today\")", "undefined"),
        ],
    },
    current!(
        "GetCurrentDateTime",
        "The current time as a date",
        now_text,
        "GetCurrentDateTime()",
        "\"2026-08-01T12:30:45.1234567Z\""
    ),
    current!(
        "GetCurrentDateTimeStatic",
        "The current time as a date, the same for all items",
        now_text,
        "GetCurrentDateTimeStatic() = GetCurrentDateTime()",
        "true"
    ),
    current!(
        "GetCurrentTicks",
        "The current time as ticks",
        |environment| ticks_value(environment.now_ticks),
        "GetCurrentTicks()",
        "17855874451234568"
    ),
    current!(
        "GetCurrentTicksStatic",
        "The current time as ticks, the same for all items",
        |environment| ticks_value(environment.now_ticks),
        "GetCurrentTicksStatic()",
        "17855874451234568"
    ),
    current!(
        "GetCurrentTimestamp",
        "The current time as a timestamp",
        now_timestamp,
        "GetCurrentTimestamp()",
        "1785587445123"
    ),
    current!(
        "GetCurrentTimestampStatic",
        "The current time as a timestamp, the same for all items",
        now_timestamp,
        "GetCurrentTimestampStatic()",
        "1785587445123"
    ),
    Function {
        name: "Now",
        arguments: "([part, number])",
        meaning: "The current time as a date, or that plus a number of years, months, days, hours …",
        count: (0, 2),
        body: Body::Careful(|arguments, environment| {
            Ok(if arguments.is_empty() {
                Some(now_text(environment))
            } else {
                moved_from_now(arguments, environment, 1)
            })
        }),
        examples: &[
            ("Now() = GetCurrentDateTime()", "true"),
            ("Now(\"yyyy\", 1)", "\"2027-08-01T12:30:45.1234567Z\""),
            ("Now(\"ss\", -45)", "\"2026-08-01T12:30:00.1234567Z\""),
            ("Now(\"yyyy\")", "undefined"),
            ("Now(\"fortnight\", 1)", "undefined"),
        ],
    },
    Function {
        name: "TicksToDateTime",
        arguments: "(ticks)",
        meaning: "Ticks as a date",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            Some(Value::from(Moment::at(whole(arguments, 0)?)?.to_string()))
        }),
        examples: &[
            ("TicksToDateTime(15943368134575530)", "\"2020-07-09T23:20:13.4575530Z\""),
            ("TicksToDateTime(-1)", "\"1969-12-31T23:59:59.9999999Z\""),
        ],
    },
    Function {
        name: "TimestampToDateTime",
        arguments: "(timestamp)",
        meaning: "A timestamp as a date",
        count: (1, 1),
        body: Body::Pure(|arguments| {
            let ticks = whole(arguments, 0)?.checked_mul(TICKS_PER_MILLISECOND)?;
            Some(Value::from(Moment::at(ticks)?.to_string()))
        }),
        examples: &[
            ("TimestampToDateTime(1594227912345)", "\"2020-07-08T17:05:12.3450000Z\""),
            ("TimestampToDateTime(\"1\")", "undefined"),
        ],
    },
    component!("DAY", "The day of the month", Part::Day, "1"),
    component!("MONTH", "The month", Part::Month, "8"),
    component!("YEAR", "The year", Part::Year, "2026"),
];

/// The argument at this place as a date.
fn date(arguments: &[Value<'_>], place: usize) -> Option<Moment> {
    Moment::parse(text(arguments, place)?)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of the language are doubles")]
fn ticks_value<'a>(ticks: i64) -> Value<'a> {
    Value::number(ticks as f64)
}

fn now_text(environment: &Environment) -> Value<'static> {
    Moment::at(environment.now_ticks).map_or(Value::Undefined, |now| Value::from(now.to_string()))
}

/// The current time, moved by a number of parts in a direction.
fn moved_from_now(
    arguments: &[Value<'_>],
    environment: &Environment,
    direction: i64,
) -> Option<Value<'static>> {
    let part = Part::parse(text(arguments, 0)?)?;
    let count = arguments.get(1)?.as_integer()?.checked_mul(direction)?;
    let moved = Moment::at(environment.now_ticks)?.add(part, count)?;
    Some(Value::from(moved.to_string()))
}

fn now_timestamp(environment: &Environment) -> Value<'static> {
    ticks_value(environment.now_ticks.div_euclid(TICKS_PER_MILLISECOND))
}

fn bin<'a>(arguments: &[Value<'a>]) -> Option<Value<'a>> {
    let (moment, part) = (date(arguments, 0)?, Part::parse(text(arguments, 1)?)?);
    let size = if arguments.len() > 2 { whole(arguments, 2)? } else { 1 };
    let origin = if arguments.len() > 3 { date(arguments, 3)? } else { Moment::at(0)? };
    Some(Value::from(calendar::bin(moment, part, size, origin)?.to_string()))
}
