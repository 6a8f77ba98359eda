//! Checked arithmetic of integers.
//!
//! Sums, differences and products are computed for all rows without a branch, collecting whether any overflowed. Only
//! if one did, or for divisions, rows are looked at one by one: what lies under a NULL may overflow.

use eris_storage::Buffer;

use super::{ArithmeticOperator, Side};
use crate::error::OperatorError;
use crate::expression::instructions::{Level, kernel};

/// An integer type.
pub(super) trait Integer: Copy + Default + PartialEq + Send + Sync + 'static {
    const TYPE_NAME: &'static str;
    fn checked(operator: ArithmeticOperator, a: Self, b: Self) -> Option<Self>;
    fn add(self, other: Self) -> (Self, bool);
    fn subtract(self, other: Self) -> (Self, bool);
    fn multiply(self, other: Self) -> (Self, bool);
}

macro_rules! integer {
    ($($native:ty, $name:literal;)*) => {$(
        impl Integer for $native {
            const TYPE_NAME: &'static str = $name;
            #[inline]
            fn checked(operator: ArithmeticOperator, a: Self, b: Self) -> Option<Self> {
                match operator {
                    ArithmeticOperator::Add => a.checked_add(b),
                    ArithmeticOperator::Subtract => a.checked_sub(b),
                    ArithmeticOperator::Multiply => a.checked_mul(b),
                    ArithmeticOperator::Divide => a.checked_div(b),
                    ArithmeticOperator::Modulo => Some(a.checked_rem(b).unwrap_or(0)),
                }
            }
            #[inline]
            fn add(self, other: Self) -> (Self, bool) {
                self.overflowing_add(other)
            }
            #[inline]
            fn subtract(self, other: Self) -> (Self, bool) {
                self.overflowing_sub(other)
            }
            #[inline]
            fn multiply(self, other: Self) -> (Self, bool) {
                self.overflowing_mul(other)
            }
        }
    )*};
}

integer! {
    i16, "smallint";
    i32, "integer";
    i64, "bigint";
}

kernel! {
    /// All results, and whether one of them overflowed.
    fn one_side[T: Integer, F: Fn(T) -> (T, bool)](values: &[T], apply: F) -> (Vec<T>, bool) {
        let mut out = vec![T::default(); values.len()];
        let mut failed = false;
        for (out, value) in out.iter_mut().zip(values) {
            let (result, over) = apply(*value);
            *out = result;
            failed |= over;
        }
        (out, failed)
    }
}

kernel! {
    /// All results, and whether one of them overflowed.
    fn two_sides[T: Integer, F: Fn(T, T) -> (T, bool)](left: &[T], right: &[T], apply: F) -> (Vec<T>, bool) {
        let mut out = vec![T::default(); left.len()];
        let mut failed = false;
        for ((out, a), b) in out.iter_mut().zip(left).zip(right) {
            let (result, over) = apply(*a, *b);
            *out = result;
            failed |= over;
        }
        (out, failed)
    }
}

fn all_rows<T: Integer>(
    level: Level,
    left: &Side<'_, T>,
    right: &Side<'_, T>,
    apply: impl Fn(T, T) -> (T, bool),
) -> Option<Vec<T>> {
    let (out, failed) = match (left, right) {
        (Side::Rows(left), Side::Rows(right)) => two_sides(level, left, right, apply),
        (Side::Rows(left), Side::All(right)) => one_side(level, left, |left| apply(left, *right)),
        (Side::All(left), Side::Rows(right)) => one_side(level, right, |right| apply(*left, right)),
        (Side::All(_), Side::All(_)) => return None,
    };
    (!failed).then_some(out)
}

/// One result per row; NULL rows are not `valid`.
pub(super) fn integers<T: Integer>(
    operator: ArithmeticOperator,
    left: &Side<'_, T>,
    right: &Side<'_, T>,
    rows: usize,
    valid: impl Fn(usize) -> bool,
) -> Result<Buffer<T>, OperatorError> {
    let level = Level::for_rows(rows);
    let fast = match operator {
        ArithmeticOperator::Add => all_rows(level, left, right, T::add),
        ArithmeticOperator::Subtract => all_rows(level, left, right, T::subtract),
        ArithmeticOperator::Multiply => all_rows(level, left, right, T::multiply),
        ArithmeticOperator::Divide | ArithmeticOperator::Modulo => None,
    };
    if let Some(out) = fast {
        return Ok(out.into());
    }
    let divides = matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Modulo);
    let mut out = Vec::with_capacity(rows);
    for row in 0..rows {
        if !valid(row) {
            out.push(T::default());
            continue;
        }
        let (a, b) = (left.get(row), right.get(row));
        if divides && b == T::default() {
            return Err(OperatorError::DivisionByZero);
        }
        out.push(T::checked(operator, a, b).ok_or(OperatorError::Overflow { type_name: T::TYPE_NAME })?);
    }
    Ok(out.into())
}
