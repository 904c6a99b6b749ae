//! Parses and formats HTTP dates, and checks how far a request's date is from the server's time.
//!
//! A signature covers its date, so refusing old dates limits how long a recorded request can be
//! replayed. The time comes from the caller; nothing here reads a clock.

use super::AuthError;
use headwater_model::{BadTimestamp, Timestamp};
use std::time::Duration;

/// Refuses a request dated more than `skew` from `now_seconds`, in either direction.
///
/// # Errors
/// When the text is not an RFC 1123 date, or is too far from now.
pub fn check_date(now_seconds: u64, text: &str, skew: Duration) -> Result<(), AuthError> {
    let sent = parse_http_date(text)?;
    if sent.abs_diff(now_seconds) <= skew.as_secs() {
        return Ok(());
    }
    Err(AuthError::Skew { sent: format_http_date(sent), now: format_http_date(now_seconds) })
}

/// Formats seconds since 1970 as `Tue, 14 Nov 2023 22:13:20 GMT`.
#[must_use]
pub fn format_http_date(unix_seconds: u64) -> String {
    Timestamp::from_seconds(unix_seconds).to_rfc1123()
}

/// Parses an RFC 1123 date, in any case, into seconds since 1970.
///
/// # Errors
/// When the text has another form or names a day that does not exist.
pub fn parse_http_date(text: &str) -> Result<u64, BadTimestamp> {
    Timestamp::from_rfc1123(text).map(Timestamp::as_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000; // Tue, 14 Nov 2023 22:13:20 GMT
    const SKEW: Duration = Duration::from_secs(900);

    #[test]
    fn dates_up_to_the_skew_are_fresh() {
        for (offset, fresh) in
            [(0i64, true), (900, true), (-900, true), (901, false), (-901, false), (86_400, false)]
        {
            let text = format_http_date(NOW.checked_add_signed(offset).unwrap());
            let checked = check_date(NOW, &text, SKEW);
            assert_eq!(checked.is_ok(), fresh, "{text}");
            assert!(check_date(NOW, &text.to_lowercase(), SKEW).is_ok() == fresh);
            if let Err(error) = checked {
                assert_eq!(error.code().status(), 403);
                assert!(error.to_string().contains("not valid at the current time"), "{error}");
            }
        }
    }

    #[test]
    fn what_is_no_date_is_a_bad_request() {
        for text in [
            "",
            "now",
            "1700000000",
            "Tue, 14 Nov 2023 22:13:20",
            "Tue, 14 Nov 2023 22:13:20 UTC",
            "Wed, 14 Nov 2023 22:13:20 GMT",
            "Tue, 31 Nov 2023 22:13:20 GMT",
            "2023-11-14T22:13:20Z",
        ] {
            let refused = check_date(NOW, text, SKEW).unwrap_err();
            assert_eq!(refused.code().status(), 400, "{text}");
        }
    }
}
