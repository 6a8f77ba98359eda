//! Implicit casts: what a value may become without being asked to (`pg_cast` with castcontext `i`).

use crate::types::TypeKind;
use crate::types::TypeKind::{BigInt, Char, Date, Double, Integer, Numeric, Real, SmallInt, Text, Timestamp, Varchar};

/// For each type those that it is cast to implicitly.
const IMPLICIT: [(TypeKind, &[TypeKind]); 9] = [
    (SmallInt, &[Integer, BigInt, Numeric, Real, Double]),
    (Integer, &[BigInt, Numeric, Real, Double]),
    (BigInt, &[Numeric, Real, Double]),
    (Numeric, &[Real, Double]),
    (Real, &[Double]),
    (Date, &[Timestamp]),
    (Text, &[Varchar, Char]),
    (Varchar, &[Text, Char]),
    (Char, &[Text, Varchar]),
];

/// Whether a value of one type becomes one of the other by itself. What has no type yet becomes anything.
pub fn is_implicit(from: TypeKind, to: TypeKind) -> bool {
    from == to
        || from == TypeKind::Unknown
        || IMPLICIT.iter().any(|(known, targets)| *known == from && targets.contains(&to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_widened_and_never_narrowed() {
        let widening = [SmallInt, Integer, BigInt, Numeric, Real, Double];
        for (at, from) in widening.iter().enumerate() {
            for (to_at, to) in widening.iter().enumerate() {
                assert_eq!(is_implicit(*from, *to), at <= to_at, "{from:?} to {to:?}");
            }
        }
        assert!(!is_implicit(Integer, Text) && !is_implicit(Text, Integer) && !is_implicit(Timestamp, Date));
        assert!(is_implicit(TypeKind::Unknown, TypeKind::Bytea));
    }
}
