//! Intervals: months, days and microseconds, kept apart as PostgreSQL does.
//!
//! ```text
//! bit 127        96 95          64 63                        0
//!     | months: 32 |   days: 32   |   microseconds: 64        |
//! ```
//! Storage has no interval type; a result that is one travels as this 128-bit picture.

use super::datetime::write_fraction;

/// Packs the three fields.
pub fn pack_interval(months: i32, days: i32, micros: i64) -> i128 {
    (i128::from(months) << 96) | (i128::from(days as u32) << 64) | i128::from(micros as u64)
}

/// Months, days, microseconds.
pub fn unpack_interval(packed: i128) -> (i32, i32, i64) {
    ((packed >> 96) as i32, (packed >> 64) as i32, packed as i64)
}

/// `1 year 2 mons 3 days 04:05:06.7`
pub fn write_interval(packed: i128, out: &mut Vec<u8>) {
    let (months, days, micros) = unpack_interval(packed);
    let mut parts = Vec::new();
    // Behind a negative part a positive one says so.
    let mut negative = false;
    let mut unit = |n: i64, name: &str| {
        if n != 0 {
            let plus = if negative && n > 0 { "+" } else { "" };
            parts.push(format!("{plus}{n} {name}{}", if n == 1 { "" } else { "s" }));
            negative = n < 0;
        }
    };
    unit(i64::from(months / 12), "year");
    unit(i64::from(months % 12), "mon");
    unit(i64::from(days), "day");
    let empty = parts.is_empty();
    out.extend_from_slice(parts.join(" ").as_bytes());
    if micros != 0 || empty {
        if !empty {
            out.push(b' ');
        }
        if micros < 0 {
            out.push(b'-');
        } else if negative {
            out.push(b'+');
        }
        let micros = micros.unsigned_abs();
        let seconds = micros / 1_000_000;
        let time = format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
        out.extend_from_slice(time.as_bytes());
        write_fraction((micros % 1_000_000) as i64, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_and_prints() {
        let cases = [
            ((0, 0, 0), "00:00:00"),
            ((14, 3, 0), "1 year 2 mons 3 days"),
            ((0, 90, 0), "90 days"),
            ((0, 1, 90_061_500_000), "1 day 25:01:01.5"),
            ((-1, 0, -1_000_000), "-1 mons -00:00:01"),
            ((-13, 3, 1_000_000), "-1 years -1 mons +3 days 00:00:01"),
            ((0, -1, 3_600_000_000), "-1 days +01:00:00"),
        ];
        for ((months, days, micros), expected) in cases {
            let packed = pack_interval(months, days, micros);
            assert_eq!(unpack_interval(packed), (months, days, micros));
            let mut out = Vec::new();
            write_interval(packed, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
