//! Days since 1970-01-01 from and to `YYYY-MM-DD`, by the civil-calendar arithmetic with years that begin in March.

/// Days of a valid date, `None` for anything else.
pub fn parse(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| -> Option<i32> {
        bytes[range].iter().try_fold(0, |sum, &byte| byte.is_ascii_digit().then(|| sum * 10 + i32::from(byte - b'0')))
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    if !(1..=12).contains(&month) || day < 1 {
        return None;
    }
    let days = days_from_civil(year, month, day);
    // A day past the end of its month lands in the next one and does not print as it was written.
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

pub fn format(days: i32) -> String {
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn days_from_civil(year: i32, month: i32, day: i32) -> i32 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i32) -> (i32, i32, i32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i32::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_round_trips() {
        assert_eq!(parse("1970-01-01"), Some(0));
        assert_eq!(parse("1992-01-02"), Some(8036));
        let mut previous = parse("1899-12-31").unwrap();
        for days in previous + 1..60_000 {
            let text = format(days);
            assert_eq!(parse(&text), Some(days), "{text}");
            assert_eq!(days, previous + 1);
            previous = days;
        }
    }

    #[test]
    fn impossible_dates_are_refused() {
        for text in ["1995-02-29", "1900-02-29", "1995-13-01", "1995-00-01", "1995-01-00", "1995-1-1", "x995-01-01"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert!(parse("2000-02-29").is_some());
    }
}
