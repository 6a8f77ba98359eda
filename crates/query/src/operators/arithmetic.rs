//! `+ - * / %` and unary minus of numbers.

use eris_operators::ArithmeticOperator;

use super::{Kernel, Signature};
use crate::types::TypeKind::{self, BigInt, Double, Integer, Numeric, Real, SmallInt};

/// Operands and result of the four basic operations.
static NUMBERS: [([TypeKind; 2], TypeKind); 14] = [
    ([SmallInt, SmallInt], SmallInt),
    ([SmallInt, Integer], Integer),
    ([SmallInt, BigInt], BigInt),
    ([Integer, SmallInt], Integer),
    ([Integer, Integer], Integer),
    ([Integer, BigInt], BigInt),
    ([BigInt, SmallInt], BigInt),
    ([BigInt, Integer], BigInt),
    ([BigInt, BigInt], BigInt),
    ([Real, Real], Real),
    ([Real, Double], Double),
    ([Double, Real], Double),
    ([Double, Double], Double),
    ([Numeric, Numeric], Numeric),
];

/// Those of remainders.
static EXACT: [([TypeKind; 2], TypeKind); 4] = [
    ([SmallInt, SmallInt], SmallInt),
    ([Integer, Integer], Integer),
    ([BigInt, BigInt], BigInt),
    ([Numeric, Numeric], Numeric),
];

static SINGLE: [[TypeKind; 1]; 6] = [[SmallInt], [Integer], [BigInt], [Real], [Double], [Numeric]];

const fn binary<const N: usize>(
    name: &'static str,
    operator: ArithmeticOperator,
    types: &'static [([TypeKind; 2], TypeKind); N],
) -> [Signature; N] {
    let kernel = Kernel::Arithmetic(operator);
    let mut signatures = [Signature { name, arguments: &types[0].0, result: types[0].1, kernel }; N];
    let mut at = 1;
    while at < N {
        signatures[at] = Signature { name, arguments: &types[at].0, result: types[at].1, kernel };
        at += 1;
    }
    signatures
}

const fn negations() -> [Signature; 6] {
    let mut signatures =
        [Signature { name: "-", arguments: &SINGLE[0], result: SINGLE[0][0], kernel: Kernel::Negate }; 6];
    let mut at = 1;
    while at < 6 {
        signatures[at] = Signature { name: "-", arguments: &SINGLE[at], result: SINGLE[at][0], kernel: Kernel::Negate };
        at += 1;
    }
    signatures
}

pub(super) static ADD: [Signature; 14] = binary("+", ArithmeticOperator::Add, &NUMBERS);
pub(super) static SUBTRACT: [Signature; 14] = binary("-", ArithmeticOperator::Subtract, &NUMBERS);
pub(super) static MULTIPLY: [Signature; 14] = binary("*", ArithmeticOperator::Multiply, &NUMBERS);
pub(super) static DIVIDE: [Signature; 14] = binary("/", ArithmeticOperator::Divide, &NUMBERS);
pub(super) static MODULO: [Signature; 4] = binary("%", ArithmeticOperator::Modulo, &EXACT);
pub(super) static NEGATE: [Signature; 6] = negations();
