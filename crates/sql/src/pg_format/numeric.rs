//! Decimals: text to unscaled integer and back, and changes of scale, all exact or refused.
//!
//! A decimal is an integer and a scale: 12.50 is 1250 at scale 2. Rounding is half away from zero, as PostgreSQL's
//! `numeric` does it.

use crate::errors::{SqlError, SqlState};

/// Ten to the power of `exponent`, up to 38.
pub fn power_of_ten(exponent: u8) -> Option<i128> {
    10_i128.checked_pow(u32::from(exponent))
}

/// Writes an unscaled integer with its point.
pub fn write_decimal(unscaled: i128, scale: u8, out: &mut Vec<u8>) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let digits = unscaled.unsigned_abs().to_string();
    let scale = usize::from(scale);
    if scale == 0 {
        out.extend_from_slice(digits.as_bytes());
        return;
    }
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    out.extend_from_slice(whole.as_bytes());
    out.push(b'.');
    out.extend_from_slice(fraction.as_bytes());
}

/// A decimal as written: what the digits say, before it is fitted to a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimalText {
    /// The digits as an integer.
    pub unscaled: i128,
    /// How many of them stand after the point.
    pub scale: u8,
}

/// Reads `-12.50`, `.5`, `1e3`. `None` if it is no number or has more than 38 significant digits.
pub fn parse_decimal(text: &str) -> Option<DecimalText> {
    let text = text.trim();
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], body[at + 1..].parse::<i32>().ok()?),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut unscaled: i128 = 0;
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return None;
        }
        unscaled = unscaled.checked_mul(10)?.checked_add(i128::from(byte - b'0'))?;
    }
    let mut scale = i32::try_from(fraction.len()).ok()? - exponent.clamp(-1_000, 1_000);
    while scale < 0 {
        unscaled = unscaled.checked_mul(10)?;
        scale += 1;
    }
    while scale > 38 {
        if unscaled % 10 != 0 && scale > 76 {
            return None;
        }
        // Digits beyond the 38th after the point cannot be kept by any type here; rounding happens once, at the end,
        // so only exact zeros are dropped and the rest is rounded half away from zero.
        let (quotient, remainder) = (unscaled / 10, unscaled % 10);
        unscaled = quotient + i128::from(scale == 39 && remainder >= 5);
        scale -= 1;
    }
    Some(DecimalText { unscaled: if negative { -unscaled } else { unscaled }, scale: scale as u8 })
}

/// Brings a decimal to another scale and checks that it fits the precision.
pub fn rescale(unscaled: i128, from: u8, precision: u8, scale: u8) -> Result<i128, SqlError> {
    let overflow = || SqlError::numeric_overflow(precision, scale);
    let value = if scale >= from {
        let factor = power_of_ten(scale - from).ok_or_else(overflow)?;
        unscaled.checked_mul(factor).ok_or_else(overflow)?
    } else {
        match power_of_ten(from - scale) {
            Some(divisor) => divide_rounded(unscaled, divisor),
            None => 0,
        }
    };
    let limit = power_of_ten(precision)
        .ok_or_else(|| SqlError::new(SqlState::OUT_OF_RANGE, format!("numeric precision {precision} exceeds 38")))?;
    if value <= -limit || value >= limit { Err(overflow()) } else { Ok(value) }
}

/// Division rounded half away from zero.
pub fn divide_rounded(dividend: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (dividend / divisor, dividend % divisor);
    let twice = remainder.unsigned_abs().saturating_mul(2);
    if twice < divisor.unsigned_abs() {
        quotient
    } else if (dividend < 0) == (divisor < 0) {
        quotient + 1
    } else {
        quotient - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(unscaled: i128, scale: u8) -> String {
        let mut out = Vec::new();
        write_decimal(unscaled, scale, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prints_and_parses() {
        for (unscaled, scale, text) in [
            (1250, 2, "12.50"),
            (-5, 2, "-0.05"),
            (0, 0, "0"),
            (7, 0, "7"),
            (i128::MAX, 0, "170141183460469231731687303715884105727"),
        ] {
            assert_eq!(shown(unscaled, scale), text);
            assert_eq!(parse_decimal(text), Some(DecimalText { unscaled, scale }));
        }
        assert_eq!(parse_decimal("1.5e3"), Some(DecimalText { unscaled: 1500, scale: 0 }));
        assert_eq!(parse_decimal("15e-1"), Some(DecimalText { unscaled: 15, scale: 1 }));
        assert_eq!(parse_decimal(".5"), Some(DecimalText { unscaled: 5, scale: 1 }));
        for bad in ["", "-", ".", "1.2.3", "abc", "1e", "1 2", "--1", "9e99"] {
            assert_eq!(parse_decimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn rescaling_rounds_half_away_from_zero() {
        assert_eq!(rescale(125, 2, 10, 1), Ok(13));
        assert_eq!(rescale(-125, 2, 10, 1), Ok(-13));
        assert_eq!(rescale(124, 2, 10, 1), Ok(12));
        assert_eq!(rescale(1, 0, 5, 2), Ok(100));
        assert_eq!(rescale(1000, 0, 5, 2).unwrap_err().sqlstate, SqlState::OUT_OF_RANGE);
        assert_eq!(rescale(99_999, 2, 5, 2), Ok(99_999));
    }
}
