//! Checked arithmetic of floating point: results that leave the range on either end are errors, NaN is one value.

use eris_storage::Buffer;

use super::{ArithmeticOperator, Side};
use crate::error::OperatorError;

/// A floating point type.
pub(super) trait Float: Copy + Default + PartialEq + Send + Sync + 'static {
    const TYPE_NAME: &'static str;
    const NAN: Self;
    fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Self;
    fn is_infinite(self) -> bool;
    fn is_nan(self) -> bool;
}

macro_rules! float {
    ($($native:ty, $name:literal;)*) => {$(
        impl Float for $native {
            const TYPE_NAME: &'static str = $name;
            const NAN: Self = <$native>::NAN;
            #[inline]
            fn apply(operator: ArithmeticOperator, a: Self, b: Self) -> Self {
                match operator {
                    ArithmeticOperator::Add => a + b,
                    ArithmeticOperator::Subtract => a - b,
                    ArithmeticOperator::Multiply => a * b,
                    ArithmeticOperator::Divide => a / b,
                    ArithmeticOperator::Modulo => a % b,
                }
            }
            #[inline]
            fn is_infinite(self) -> bool {
                self.is_infinite()
            }
            #[inline]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    )*};
}

float! {
    f32, "real";
    f64, "double precision";
}

/// One result per row; NULL rows are not `valid`.
pub(super) fn floats<T: Float>(
    operator: ArithmeticOperator,
    left: &Side<'_, T>,
    right: &Side<'_, T>,
    rows: usize,
    valid: impl Fn(usize) -> bool,
) -> Result<Buffer<T>, OperatorError> {
    let divides = matches!(operator, ArithmeticOperator::Divide | ArithmeticOperator::Modulo);
    let zero = T::default();
    let underflows = |operator, a: T, b: T| match operator {
        ArithmeticOperator::Multiply => a != zero && b != zero,
        ArithmeticOperator::Divide => a != zero && !b.is_infinite(),
        ArithmeticOperator::Add | ArithmeticOperator::Subtract | ArithmeticOperator::Modulo => false,
    };
    let mut out = Vec::with_capacity(rows);
    for row in 0..rows {
        if !valid(row) {
            out.push(zero);
            continue;
        }
        let (a, b) = (left.get(row), right.get(row));
        if divides && b == zero {
            return Err(OperatorError::DivisionByZero);
        }
        let value = T::apply(operator, a, b);
        let overflows = value.is_infinite() && !a.is_infinite() && !b.is_infinite();
        if overflows || (value == zero && underflows(operator, a, b)) {
            return Err(OperatorError::Overflow { type_name: T::TYPE_NAME });
        }
        // One NaN: processors give one with a sign.
        out.push(if value.is_nan() { T::NAN } else { value });
    }
    Ok(out.into())
}
