//! The operators: name, types of operands and result, and what computes them.
//!
//! The rows are those of `pg_operator` as far as there are types and kernels; [`crate::resolve`] finds the one that a
//! text means. An operator more is a row more.

mod arithmetic;
mod comparison;
mod pattern;

use eris_operators::ArithmeticOperator;
use eris_storage::Comparison;

use crate::numeric;
use crate::types::{SqlType, TypeKind};

/// What computes an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A comparison; operands of two types are brought to the wider one.
    Compare(Comparison),
    /// Checked arithmetic; operands of two types are brought to that of the result.
    Arithmetic(ArithmeticOperator),
    /// Unary minus.
    Negate,
    /// LIKE with a constant pattern.
    Like {
        /// NOT LIKE.
        negated: bool,
        /// ILIKE.
        case_insensitive: bool,
    },
}

/// One operator on operands of certain types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// As it is written.
    pub name: &'static str,
    /// The types of its operands; one for a prefix operator.
    pub arguments: &'static [TypeKind],
    /// The type of its result.
    pub result: TypeKind,
    /// What computes it.
    pub kernel: Kernel,
}

impl Signature {
    /// The type of the result with its modifiers; `None` if it would have too many digits.
    pub fn result_type(&self, arguments: &[SqlType]) -> Option<SqlType> {
        match (self.result, self.kernel, arguments) {
            (TypeKind::Numeric, Kernel::Arithmetic(operator), [left, right]) => {
                numeric::result_of(operator, *left, *right)
            }
            (TypeKind::Numeric, Kernel::Negate, [argument]) => Some(*argument),
            (kind, ..) => Some(kind.plain()),
        }
    }
}

/// All operators of a name and number of operands.
pub fn operators_named(name: &str, operands: usize) -> &'static [Signature] {
    match (name, operands) {
        ("=", 2) => &comparison::EQUAL,
        ("<>", 2) => &comparison::NOT_EQUAL,
        ("<", 2) => &comparison::LESS,
        ("<=", 2) => &comparison::LESS_OR_EQUAL,
        (">", 2) => &comparison::GREATER,
        (">=", 2) => &comparison::GREATER_OR_EQUAL,
        ("+", 2) => &arithmetic::ADD,
        ("-", 2) => &arithmetic::SUBTRACT,
        ("*", 2) => &arithmetic::MULTIPLY,
        ("/", 2) => &arithmetic::DIVIDE,
        ("%", 2) => &arithmetic::MODULO,
        ("-", 1) => &arithmetic::NEGATE,
        ("~~", 2) => &pattern::LIKE,
        ("!~~", 2) => &pattern::NOT_LIKE,
        ("~~*", 2) => &pattern::ILIKE,
        ("!~~*", 2) => &pattern::NOT_ILIKE,
        _ => &[],
    }
}
