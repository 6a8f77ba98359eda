//! Quotients of decimals, rounded half away from zero at the scale of the result.
//!
//! The dividend is scaled up first. Where that leaves 128 bits, it is computed in 256, by long division.

use super::scale::{divide_rounded_checked, overflow, power};
use crate::error::OperatorError;

/// What the dividend is multiplied with: 10 to this power.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    exponent: u8,
    /// The factor, if 128 bits hold it.
    factor: Option<i128>,
}

impl Shift {
    /// For a quotient of scale `scale`.
    pub fn new(left_scale: u8, right_scale: u8, scale: u8) -> Result<Self, OperatorError> {
        let exponent = (i16::from(scale) + i16::from(right_scale) - i16::from(left_scale)).try_into();
        let exponent: u8 =
            exponent.map_err(|_| OperatorError::Internal("a quotient of a smaller scale than its dividend".into()))?;
        Ok(Self { exponent, factor: power(exponent) })
    }
}

/// `dividend / divisor`.
pub(super) fn quotient(dividend: i128, divisor: i128, shift: Shift) -> Result<i128, OperatorError> {
    if divisor == 0 {
        return Err(OperatorError::DivisionByZero);
    }
    if let Some(scaled) = shift.factor.and_then(|factor| dividend.checked_mul(factor)) {
        return divide_rounded_checked(scaled, divisor).ok_or_else(overflow);
    }
    let mut wide = Wide { high: 0, low: dividend.unsigned_abs() };
    for _ in 0..shift.exponent {
        wide = wide.times_ten().ok_or_else(overflow)?;
    }
    let rounded = wide.divided(divisor.unsigned_abs()).ok_or_else(overflow)?;
    let rounded = i128::try_from(rounded).map_err(|_| overflow())?;
    Ok(if (dividend < 0) == (divisor < 0) { rounded } else { -rounded })
}

/// 256 bits without a sign, of which the topmost stays free.
#[derive(Clone, Copy, Debug)]
struct Wide {
    high: u128,
    low: u128,
}

impl Wide {
    fn shifted(self) -> Self {
        Self { high: self.high << 1 | self.low >> 127, low: self.low << 1 }
    }

    fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        Self { high: self.high + other.high + u128::from(carry), low }
    }

    fn times_ten(self) -> Option<Self> {
        if self.high >> 123 != 0 {
            return None;
        }
        let twice = self.shifted();
        let ten = twice.shifted().shifted().plus(twice);
        (ten.high >> 127 == 0).then_some(ten)
    }

    /// The quotient rounded half up; `None`: 128 bits do not hold it.
    fn divided(self, divisor: u128) -> Option<u128> {
        if self.high >= divisor {
            return None;
        }
        let (mut remainder, mut quotient) = (self.high, 0_u128);
        for bit in (0..128).rev() {
            let carry = remainder >> 127 != 0;
            remainder = remainder << 1 | self.low >> bit & 1;
            // With a carry the remainder is above every divisor; the difference fits again.
            if carry || remainder >= divisor {
                remainder = remainder.wrapping_sub(divisor);
                quotient |= 1 << bit;
            }
        }
        if remainder >= divisor - remainder { quotient.checked_add(1) } else { Some(quotient) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dividend: i128, divisor: i128, exponent: u8) -> Option<i128> {
        quotient(dividend, divisor, Shift::new(0, 0, exponent).unwrap()).ok()
    }

    #[test]
    fn quotients_beyond_128_bits_agree_with_schoolbook_division() {
        // 10^38 - 1 scaled by 10^20 leaves 128 bits; divided by numbers of which the quotient is known.
        let nines = 10_i128.pow(38) - 1;
        assert_eq!(of(nines, 10_i128.pow(30), 20), Some(10_i128.pow(28)));
        assert_eq!(of(-nines, 10_i128.pow(30), 20), Some(-10_i128.pow(28)));
        assert_eq!(of(nines, nines, 30), Some(10_i128.pow(30)));
        assert_eq!(of(nines, -3, 0), Some(-(nines / 3)));
        assert_eq!(of(2 * 10_i128.pow(37), 3 * 10_i128.pow(37), 30), Some(666_666_666_666_666_666_666_666_666_667));
        assert_eq!(of(10_i128.pow(37), 2 * 10_i128.pow(37), 1), Some(5));
        assert_eq!(of(i128::MAX, 1, 1), None);
        assert_eq!(of(i128::MAX, i128::MAX, 38), Some(10_i128.pow(38)));
        assert_eq!(of(nines, 1, 60), None);
        assert!(matches!(quotient(1, 0, Shift::new(0, 0, 3).unwrap()), Err(OperatorError::DivisionByZero)));
    }

    #[test]
    fn long_division_agrees_with_division_where_both_can() {
        let mut state = 0x1234_5678_9ABC_DEF0_u128;
        for _ in 0..2_000 {
            state = state.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645).wrapping_add(99);
            let dividend = state >> (state % 120);
            let divisor = (state.rotate_left(61) >> (state % 97)).max(1);
            let (exact, rest) = (dividend / divisor, dividend % divisor);
            let expected = if rest >= divisor - rest { exact + 1 } else { exact };
            assert_eq!(Wide { high: 0, low: dividend }.divided(divisor), Some(expected), "{dividend} / {divisor}");
        }
    }
}
