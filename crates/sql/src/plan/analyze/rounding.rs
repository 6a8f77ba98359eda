//! Rounding to whole numbers.
//!
//! | function                   | DataFusion              | here, as PostgreSQL            |
//! |----------------------------|-------------------------|--------------------------------|
//! | `ceil`, `floor`, `trunc` of numerics | keep the scale: `2.0` | no digits behind the point: `2` |
//! | `round` of floats          | half away from zero     | half to even                   |

use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::functions::Function;
use crate::pg_format;

/// Which whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rounding {
    /// The nearest: numerics half away from zero, floats half to even.
    Nearest,
    /// The next one above.
    Up,
    /// The next one below.
    Down,
    /// The next one towards zero.
    Cut,
}

impl Rounding {
    /// Of a decimal with this divisor.
    pub fn whole(self, unscaled: i128, divisor: i128) -> i128 {
        match self {
            Self::Nearest => pg_format::divide_rounded(unscaled, divisor),
            Self::Up => -(-unscaled).div_euclid(divisor),
            Self::Down => unscaled.div_euclid(divisor),
            Self::Cut => unscaled / divisor,
        }
    }
}

/// A call of DataFusion's function as one of ours.
pub(super) fn rewrite(function: &ScalarFunction, columns: &DFSchema) -> Option<Expr> {
    let [argument] = function.args.as_slice() else { return None };
    let rounding = match function.name() {
        "round" => Rounding::Nearest,
        "ceil" => Rounding::Up,
        "floor" => Rounding::Down,
        "trunc" => Rounding::Cut,
        _ => return None,
    };
    let ours = match argument.get_type(columns).ok()? {
        ArrowType::Decimal128(_, scale) => scale >= 0,
        ArrowType::Float32 | ArrowType::Float64 => rounding == Rounding::Nearest,
        _ => false,
    };
    ours.then(|| Function::Whole(rounding).call(argument.clone()))
}

#[cfg(test)]
mod tests {
    use super::Rounding::{Cut, Down, Nearest, Up};

    #[test]
    fn decimals_become_whole() {
        for (unscaled, nearest, up, down, cut) in
            [(25, 3, 3, 2, 2), (-25, -3, -2, -3, -2), (24, 2, 3, 2, 2), (-24, -2, -2, -3, -2), (30, 3, 3, 3, 3)]
        {
            let all = [Nearest, Up, Down, Cut].map(|rounding| rounding.whole(unscaled, 10));
            assert_eq!(all, [nearest, up, down, cut], "{unscaled}");
        }
    }
}
