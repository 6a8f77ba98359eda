//! `= <> < <= > >=`.

use eris_storage::Comparison;

use super::{Kernel, Signature};
use crate::types::TypeKind::{
    self, BigInt, Boolean, Bytea, Char, Date, Double, Integer, Numeric, Real, SmallInt, Text, Timestamp,
};

/// What is compared with what. Values of two types of one family are compared as those of the wider type.
static COMPARED: [[TypeKind; 2]; 22] = [
    [SmallInt, SmallInt],
    [SmallInt, Integer],
    [SmallInt, BigInt],
    [Integer, SmallInt],
    [Integer, Integer],
    [Integer, BigInt],
    [BigInt, SmallInt],
    [BigInt, Integer],
    [BigInt, BigInt],
    [Numeric, Numeric],
    [Real, Real],
    [Real, Double],
    [Double, Real],
    [Double, Double],
    [Boolean, Boolean],
    [Date, Date],
    [Date, Timestamp],
    [Timestamp, Date],
    [Timestamp, Timestamp],
    [Text, Text],
    [Char, Char],
    [Bytea, Bytea],
];

const fn compared(name: &'static str, comparison: Comparison) -> [Signature; 22] {
    let kernel = Kernel::Compare(comparison);
    let mut signatures = [Signature { name, arguments: &COMPARED[0], result: Boolean, kernel }; 22];
    let mut at = 1;
    while at < COMPARED.len() {
        signatures[at] = Signature { name, arguments: &COMPARED[at], result: Boolean, kernel };
        at += 1;
    }
    signatures
}

pub(super) static EQUAL: [Signature; 22] = compared("=", Comparison::Equal);
pub(super) static NOT_EQUAL: [Signature; 22] = compared("<>", Comparison::NotEqual);
pub(super) static LESS: [Signature; 22] = compared("<", Comparison::Less);
pub(super) static LESS_OR_EQUAL: [Signature; 22] = compared("<=", Comparison::LessOrEqual);
pub(super) static GREATER: [Signature; 22] = compared(">", Comparison::Greater);
pub(super) static GREATER_OR_EQUAL: [Signature; 22] = compared(">=", Comparison::GreaterOrEqual);
