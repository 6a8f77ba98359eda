//! Dates and timestamps: the proleptic Gregorian calendar, ISO 8601 in PostgreSQL's spelling.
//!
//! Days are counted from 1970-01-01, timestamps in microseconds from its midnight. The two calendar functions are the
//! well-known ones over eras of 400 years (146,097 days), with the year starting in March so that the leap day is last.

use crate::errors::{SqlError, SqlState};

const DAYS_OF_ERA: i64 = 146_097;
const DAYS_TO_EPOCH: i64 = 719_468;
/// Microseconds of a day.
pub const MICROS_OF_DAY: i64 = 86_400_000_000;
/// The first day of PostgreSQL's dates and timestamps: 24 November 4714 BC.
const FIRST_DAY: i64 = -2_440_588;
/// The day after the last one of its dates: 31 December 5874897.
const END_DAY: i64 = 2_145_042_906;

/// (year, month, day) of a day number.
pub fn date_of(days: i64) -> (i64, u32, u32) {
    let z = days + DAYS_TO_EPOCH;
    let era = z.div_euclid(DAYS_OF_ERA);
    let day_of_era = z.rem_euclid(DAYS_OF_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The day number of a date; `None` if there is no such day.
pub fn days_of(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    let y = year - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let month_from_march = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * DAYS_OF_ERA + day_of_era - DAYS_TO_EPOCH)
}

/// The day number of a date whose day is cut to the last one of its month.
pub fn day_of_month_cut(year: i64, month: u32, day: u32) -> i64 {
    days_of(year, month, day.min(days_in_month(year, month))).unwrap_or_default()
}

/// A day number within the range of the type.
pub fn checked_date(days: i128) -> Result<i32, SqlError> {
    let within = (i128::from(FIRST_DAY)..i128::from(END_DAY)).contains(&days);
    if within { Ok(days as i32) } else { Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range")) }
}

/// Microseconds within the range of the type; PostgreSQL's ends 29 years later.
pub fn checked_timestamp(micros: i128) -> Result<i64, SqlError> {
    match i64::try_from(micros) {
        Ok(micros) if micros >= FIRST_DAY * MICROS_OF_DAY => Ok(micros),
        _ => Err(SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")),
    }
}

fn days_in_month(year: i64, month: u32) -> u32 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn two(out: &mut Vec<u8>, n: u32) {
    out.push(b'0' + (n / 10 % 10) as u8);
    out.push(b'0' + (n % 10) as u8);
}

fn write_year(out: &mut Vec<u8>, year: i64) {
    // Year 0 of the proleptic calendar is 1 BC.
    let shown = if year > 0 { year } else { 1 - year };
    if shown < 10_000 {
        two(out, (shown / 100) as u32);
        two(out, (shown % 100) as u32);
    } else {
        out.extend_from_slice(shown.to_string().as_bytes());
    }
}

/// `1998-12-01`
pub fn write_date(days: i32, out: &mut Vec<u8>) {
    let (year, month, day) = date_of(i64::from(days));
    write_ymd(out, year, month, day);
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

fn write_ymd(out: &mut Vec<u8>, year: i64, month: u32, day: u32) {
    write_year(out, year);
    out.push(b'-');
    two(out, month);
    out.push(b'-');
    two(out, day);
}

/// `1998-12-01 13:04:05.25`
pub fn write_timestamp(micros: i64, out: &mut Vec<u8>) {
    let (year, month, day) = date_of(micros.div_euclid(MICROS_OF_DAY));
    write_ymd(out, year, month, day);
    out.push(b' ');
    write_time(micros.rem_euclid(MICROS_OF_DAY), out);
    if year <= 0 {
        out.extend_from_slice(b" BC");
    }
}

/// `13:04:05.25`, for less than 100 hours.
pub(super) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros / 1_000_000;
    two(out, (seconds / 3_600) as u32);
    out.push(b':');
    two(out, (seconds / 60 % 60) as u32);
    out.push(b':');
    two(out, (seconds % 60) as u32);
    write_fraction(micros % 1_000_000, out);
}

/// `.25` for 250,000 microseconds, nothing for 0.
pub(super) fn write_fraction(micros: i64, out: &mut Vec<u8>) {
    if micros != 0 {
        let digits = format!(".{micros:06}");
        out.extend_from_slice(digits.trim_end_matches('0').as_bytes());
    }
}

/// Reads `Y-M-D`, `YYYYMMDD`, `Y/M/D`, optionally with ` BC`.
pub fn parse_date(text: &str) -> Option<i32> {
    let (body, before_christ) = strip_era(text.trim());
    let (year, month, day) = split_date(body)?;
    let year = if before_christ { 1 - year } else { year };
    checked_date(i128::from(days_of(year, month, day)?)).ok()
}

fn strip_era(text: &str) -> (&str, bool) {
    match text.strip_suffix(" BC").or_else(|| text.strip_suffix(" bc")) {
        Some(rest) => (rest.trim_end(), true),
        None => (text, false),
    }
}

fn split_date(text: &str) -> Option<(i64, u32, u32)> {
    if text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some((text[..4].parse().ok()?, text[4..6].parse().ok()?, text[6..].parse().ok()?));
    }
    let separator = if text.contains('/') { '/' } else { '-' };
    let mut parts = text.split(separator);
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |part: &str, max: usize| (1..=max).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    if parts.next().is_some() || !digits(year, 7) || !digits(month, 2) || !digits(day, 2) || year.len() < 3 {
        return None;
    }
    Some((year.parse().ok()?, month.parse().ok()?, day.parse().ok()?))
}

/// Reads a date, optionally followed by a time of day (`T` or a space between). An offset other than UTC is refused:
/// the type has no time zone.
pub fn parse_timestamp(text: &str) -> Option<i64> {
    let (body, before_christ) = strip_era(text.trim());
    let (date, time) = match body.find([' ', 'T', 't']) {
        Some(at) => (&body[..at], Some(body[at + 1..].trim())),
        None => (body, None),
    };
    let (year, month, day) = split_date(date)?;
    let days = days_of(if before_christ { 1 - year } else { year }, month, day)?;
    let micros = match time {
        None | Some("") => 0,
        Some(time) => parse_time(time)?,
    };
    checked_timestamp(i128::from(days) * i128::from(MICROS_OF_DAY) + i128::from(micros)).ok()
}

fn parse_time(text: &str) -> Option<i64> {
    let text = ["+00:00", "-00:00", "+00", "-00", "Z", "z"]
        .iter()
        .find_map(|suffix| text.strip_suffix(suffix))
        .map_or(text, str::trim_end);
    let mut parts = text.split(':');
    let hours = two_digits(parts.next()?)?;
    let minutes = two_digits(parts.next()?)?;
    let (seconds, micros) = match parts.next() {
        None => (0, 0),
        Some(text) => match text.split_once('.') {
            None => (two_digits(text)?, 0),
            Some((whole, fraction)) => (two_digits(whole)?, parse_fraction(fraction)?),
        },
    };
    let end_of_day = hours == 24 && minutes == 0 && seconds == 0 && micros == 0;
    if parts.next().is_some() || (hours > 23 && !end_of_day) || minutes > 59 || seconds > 60 {
        return None;
    }
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

fn two_digits(text: &str) -> Option<i64> {
    ((1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Microseconds of the digits after the point, rounded half up at the seventh.
fn parse_fraction(digits: &str) -> Option<i64> {
    if digits.is_empty() || digits.len() > 30 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut micros = 0;
    for at in 0..6 {
        micros = micros * 10 + i64::from(digits.as_bytes().get(at).map_or(0, |b| b - b'0'));
    }
    Some(micros + i64::from(digits.as_bytes().get(6).is_some_and(|&b| b >= b'5')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date_text(days: i32) -> String {
        let mut out = Vec::new();
        write_date(days, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn calendar_goes_both_ways_over_five_thousand_years() {
        let mut expected = (-2_000_i64, 1, 1);
        let first = days_of(-2_000, 1, 1).unwrap();
        for days in first..first + 1_826_212 {
            assert_eq!(date_of(days), expected);
            assert_eq!(days_of(expected.0, expected.1, expected.2), Some(days));
            let (year, month, day) = expected;
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == days_in_month(year, month) => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        assert_eq!(days_of(2023, 2, 29), None);
        assert_eq!(days_of(1970, 1, 1), Some(0));
    }

    #[test]
    fn dates_print_and_parse() {
        for days in (-800_000..800_000).step_by(37) {
            assert_eq!(parse_date(&date_text(days)), Some(days), "{}", date_text(days));
        }
        assert_eq!(date_text(10_561), "1998-12-01");
        assert_eq!(parse_date("19981201"), Some(10_561));
        for bad in ["", "1998", "1998-13-01", "1998-02-30", "1998-1-1-1", "x", "98-01-01", "1998--1-1"] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }

    #[test]
    fn timestamps_print_and_parse() {
        for micros in [0, 1, -1, 1_000_000, 912_517_445_250_000, -62_135_596_800_000_000, -99_999_999_999_999_999] {
            let mut out = Vec::new();
            write_timestamp(micros, &mut out);
            assert_eq!(parse_timestamp(std::str::from_utf8(&out).unwrap()), Some(micros));
        }
        assert_eq!(parse_timestamp("1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(parse_timestamp("1970-01-01 24:00"), Some(MICROS_OF_DAY));
        assert_eq!(parse_timestamp("1970-01-01 00:00:00.1234567"), Some(123_457));
        for bad in ["1970-01-01 25:00", "1970-01-01 00:61", "1970-01-01 0", "1970-01-01 00:00:00+02"] {
            assert_eq!(parse_timestamp(bad), None, "{bad}");
        }
    }
}
