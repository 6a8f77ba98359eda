//! Values from text.

use std::borrow::Cow;
use std::time::Duration;

use super::declaration::{SettingDeclaration, SettingError, SettingKind};
use super::types::{ByteSize, SettingValue, Timeout, duration_text};

impl SettingDeclaration {
    /// The value that `text` means for this setting. Units and words are read without regard to case.
    pub fn parse(&self, text: &str) -> Result<SettingValue, SettingError> {
        let text = text.trim();
        match self.kind {
            SettingKind::Bool => {
                parse_bool(text).map(SettingValue::Bool).ok_or_else(|| self.malformed(text, "on or off"))
            }
            SettingKind::Integer { min, max } => {
                if !is_integer(text) {
                    return Err(self.malformed(text, "a whole number"));
                }
                // A number beyond 64 bits is a matter of bounds.
                let value = text.parse().map_err(|_| self.out_of_bounds(text, &min, &max))?;
                self.bounded(text, value, min, max, |bound| bound.to_string()).map(SettingValue::Integer)
            }
            SettingKind::Duration { min, max } => {
                let value = parse_duration(text)
                    .ok_or_else(|| self.malformed(text, "a time with a unit (ns, us, ms, s, min, h)"))?;
                self.bounded(text, value, min, max, duration_text).map(SettingValue::Duration)
            }
            SettingKind::Timeout => {
                let value = parse_milliseconds(text)
                    .ok_or_else(|| self.malformed(text, "a time, with or without a unit (us, ms, s, min, h, d)"))?;
                if (0.0..=f64::from(Timeout::MAX.0)).contains(&value) {
                    return Ok(SettingValue::Timeout(Timeout(value as u32)));
                }
                Err(self.out_of_bounds(text, &"0 ms", &format!("{} ms", Timeout::MAX.0)))
            }
            SettingKind::Bytes { min, max } => {
                let value = parse_bytes(text).ok_or_else(|| {
                    self.malformed(text, "a number of bytes, with or without a unit (B, kB, MB, GB, TB)")
                })?;
                self.bounded(text, value, min, max, |bound| bound.to_string()).map(SettingValue::Bytes)
            }
            SettingKind::Choice { choices } => {
                let choice = choices.iter().find(|choice| choice.eq_ignore_ascii_case(text));
                let expected = || format!("one of {}", choices.join(", "));
                choice.map(|choice| SettingValue::Choice(choice)).ok_or_else(|| self.malformed(text, &expected()))
            }
            SettingKind::Text => Ok(SettingValue::Text(Cow::Owned(text.to_owned()))),
        }
    }

    fn bounded<T: PartialOrd + Copy>(
        &self,
        text: &str,
        value: T,
        min: T,
        max: T,
        show: impl Fn(T) -> String,
    ) -> Result<T, SettingError> {
        if min <= value && value <= max {
            return Ok(value);
        }
        Err(self.out_of_bounds(text, &show(min), &show(max)))
    }

    fn out_of_bounds(&self, text: &str, min: &dyn ToString, max: &dyn ToString) -> SettingError {
        SettingError::OutOfBounds {
            setting: self.name,
            value: text.to_owned(),
            min: min.to_string(),
            max: max.to_string(),
        }
    }

    fn malformed(&self, text: &str, expected: &str) -> SettingError {
        SettingError::Malformed { setting: self.name, value: text.to_owned(), expected: expected.to_owned() }
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A number (with up to nine decimals) and its unit, `1.5 ms`: the number in billionths, and the unit in lower case.
fn split_unit(text: &str) -> Option<(u128, String)> {
    let unit_start = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_start);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || decimals.len() > 9 || decimals.contains('.') {
        return None;
    }
    let billionths: u128 = format!("{whole}{decimals:0<9}").parse().ok()?;
    Some((billionths, unit.trim().to_ascii_lowercase()))
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (billionths, unit) = split_unit(text)?;
    let nanoseconds_per_unit: u128 = match unit.as_str() {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        // Zero needs no unit.
        "" if billionths == 0 => 1,
        _ => return None,
    };
    let nanoseconds = billionths.checked_mul(nanoseconds_per_unit)? / 1_000_000_000;
    u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
}

/// As PostgreSQL reads it: a number that may have a sign, a fraction and an exponent, then a unit; rounded to whole
/// milliseconds.
fn parse_milliseconds(text: &str) -> Option<f64> {
    let unit_start = text
        .char_indices()
        .find(|(at, character)| {
            let exponent = matches!(character, 'e' | 'E')
                && text[at + 1..].starts_with(|next: char| next.is_ascii_digit() || next == '-' || next == '+');
            !(character.is_ascii_digit() || matches!(character, '.' | '-' | '+') || exponent)
        })
        .map_or(text.len(), |(at, _)| at);
    let (number, unit) = text.split_at(unit_start);
    // Words for infinity and the like are no numbers here: they begin with a letter.
    let number: f64 = number.parse().ok()?;
    let milliseconds = match unit.trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    Some((number * milliseconds).round_ties_even())
}

fn parse_bytes(text: &str) -> Option<ByteSize> {
    let (billionths, unit) = split_unit(text)?;
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let bytes = billionths.checked_mul(1 << shift)? / 1_000_000_000;
    u64::try_from(bytes).ok().map(ByteSize)
}
