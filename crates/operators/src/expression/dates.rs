//! Parts of dates and timestamps.
//!
//! Days become years, months and days with multiplications instead of divisions, counting from the first of March, so
//! that the day that some years have more is their last (Neri and Schneider, *Euclidean affine functions and their
//! application to calendar algorithms*, 2023). That works on 32 bits without a sign for all years from -32,800 to some
//! two million; dates outside take the way by 64 bits.

use std::fmt;

use eris_storage::{Column, DataType, Values};

use super::instructions::{Level, kernel};
use crate::error::OperatorError;

/// Which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatePart {
    /// The year; the one before year 1 is 0.
    Year,
    /// 1 to 12.
    Month,
    /// 1 to 31.
    Day,
}

impl fmt::Display for DatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Year => "year",
            Self::Month => "month",
            Self::Day => "day",
        })
    }
}

const MICROS_OF_DAY: i64 = 86_400_000_000;
const DAYS_OF_ERA: u32 = 146_097;
/// Eras of 400 years that are added so that no day is negative.
const ERAS: u32 = 82;
/// From 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: u32 = 719_468;
const SHIFT: u32 = DAYS_TO_EPOCH + DAYS_OF_ERA * ERAS;
/// Days that four times themselves and three fit 32 bits.
const DAYS_MAX: u32 = 1 << 30;

/// Year, month and day of a shifted day below [`DAYS_MAX`].
#[inline]
fn date_of(day: u32) -> (i32, i32, i32) {
    let quarters = 4 * day + 3;
    let century = quarters / DAYS_OF_ERA;
    let day_of_century = quarters % DAYS_OF_ERA / 4;
    let product = u64::from(2_939_745_u32) * u64::from(4 * day_of_century + 3);
    let year_of_century = (product >> 32) as u32;
    let day_of_year = product as u32 / 2_939_745 / 4;
    let months = 2_141 * day_of_year + 197_913;
    let (month, day) = (months >> 16, (months & 0xFFFF) / 2_141);
    // January and February belong to the next year.
    let next = u32::from(day_of_year >= 306);
    let year = (100 * century + year_of_century) as i32 - (400 * ERAS) as i32 + next as i32;
    (year, (month - 12 * next) as i32, day as i32 + 1)
}

/// Year, month and day of any day.
fn date_of_any(day: i64) -> (i32, i32, i32) {
    let day = day + i64::from(DAYS_TO_EPOCH);
    let era = day.div_euclid(i64::from(DAYS_OF_ERA));
    let (year, month, day) = date_of(day.rem_euclid(i64::from(DAYS_OF_ERA)) as u32 + DAYS_OF_ERA * ERAS);
    ((i64::from(year) + era * 400) as i32, month, day)
}

kernel! {
    /// A part of each day, and whether all of them were within the range.
    fn parts[F: Fn((i32, i32, i32)) -> i32](days: &[i32], part: F) -> (Vec<i32>, bool) {
        let mut out = vec![0; days.len()];
        let mut outside = false;
        for (out, day) in out.iter_mut().zip(days) {
            let shifted = (*day as u32).wrapping_add(SHIFT);
            outside |= shifted >= DAYS_MAX;
            *out = part(date_of(shifted & (DAYS_MAX - 1)));
        }
        (out, !outside)
    }
}

fn parts_of_days(part: DatePart, days: &[i32]) -> Vec<i32> {
    let level = Level::for_rows(days.len());
    let (out, within) = match part {
        DatePart::Year => parts(level, days, |(year, ..)| year),
        DatePart::Month => parts(level, days, |(_, month, _)| month),
        DatePart::Day => parts(level, days, |(.., day)| day),
    };
    if within { out } else { days.iter().map(|day| part_of(part, i64::from(*day))).collect() }
}

fn part_of(part: DatePart, day: i64) -> i32 {
    let (year, month, day) = date_of_any(day);
    match part {
        DatePart::Year => year,
        DatePart::Month => month,
        DatePart::Day => day,
    }
}

/// A part of each date or timestamp, as an integer.
pub(super) fn extract(part: DatePart, column: &Column) -> Result<Column, OperatorError> {
    let values = match &column.values {
        Values::Int32(days) => parts_of_days(part, days),
        Values::Int64(micros) => {
            let days: Vec<i32> = micros.iter().map(|micros| micros.div_euclid(MICROS_OF_DAY) as i32).collect();
            parts_of_days(part, &days)
        }
        _ => return Err(OperatorError::Internal(format!("{part} of {}", column.data_type))),
    };
    let validity = column.validity.clone();
    Ok(Column { data_type: DataType::Int32, validity, values: Values::Int32(values.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_calendar_that_is_turned_day_by_day() {
        let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1599, 12, 31);
        // 1599-12-31 is day -135,141.
        for days in -135_141..200_000 {
            assert_eq!(date_of((days as u32).wrapping_add(SHIFT)), (year, month, day), "day {days}");
            assert_eq!(date_of_any(i64::from(days)), (year, month, day), "day {days}");
            let length = match month {
                2 => 28 + i32::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (_, last) if last == length => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
        for days in [-12_699_423, -12_699_422, 0, 1_061_042_401, i32::MAX, i32::MIN] {
            for part in [DatePart::Year, DatePart::Month, DatePart::Day] {
                assert_eq!(parts_of_days(part, &[days]), [part_of(part, i64::from(days))], "{part} of {days}");
            }
        }
        // 4000-02-29, 5874897-12-31 (PostgreSQL's last date) and 4714-11-24 BC (its first).
        assert_eq!(date_of_any(741_501), (4000, 2, 29));
        assert_eq!(date_of_any(2_145_042_905), (5_874_897, 12, 31));
        assert_eq!(date_of_any(-2_440_588), (-4713, 11, 24));
    }

    #[test]
    fn every_version_gives_the_same() {
        let days: Vec<i32> = (0..500).map(|day: i32| day.wrapping_mul(7_919) - 1_000_000).collect();
        let expected: Vec<i32> = days.iter().map(|day| part_of(DatePart::Year, i64::from(*day))).collect();
        for level in Level::available() {
            assert_eq!(parts(*level, &days, |(year, ..)| year), (expected.clone(), true));
        }
    }
}
