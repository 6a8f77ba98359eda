//! Which operator is meant: PostgreSQL's rules for operators (its documentation, section 10.2) and for the type that
//! the results of CASE and the like have in common (10.5).
//!
//! ```text
//!   operators of the name
//!     -> the one whose operands have exactly these types; a literal without a type has that of the other operand
//!     -> those that the operands can be cast to implicitly
//!     -> of these those with the most operands of exactly that type
//!     -> of these those that cast the most operands to a preferred type
//!     -> for literals: the category that all that are left agree on, text if one of them takes it
//!     -> for literals: the type of the operands that have one
//! ```

use crate::Unplanned;
use crate::casts::is_implicit;
use crate::numeric;
use crate::operators::{Signature, operators_named};
use crate::scalar::{Scalar, ScalarKind};
use crate::types::{Category, SqlType, TypeKind};

/// Why no operator was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// None takes these operands.
    #[error("operator does not exist")]
    NoSuchOperator,
    /// Several do, and none better than the others.
    #[error("operator is not unique")]
    Ambiguous,
}

/// The operator of a name that takes operands of these kinds.
pub fn resolve(name: &str, kinds: &[TypeKind]) -> Result<&'static Signature, ResolveError> {
    let all = operators_named(name, kinds.len());
    if let Some(exact) = exact(all, kinds) {
        return Ok(exact);
    }
    let takes =
        |signature: &&Signature| signature.arguments.iter().zip(kinds).all(|(to, from)| is_implicit(*from, *to));
    let mut left: Vec<&'static Signature> = all.iter().filter(takes).collect();
    if left.is_empty() {
        return Err(ResolveError::NoSuchOperator);
    }
    keep_best(&mut left, |signature| count(signature, kinds, |to, from| to == from));
    keep_best(&mut left, |signature| count(signature, kinds, |to, from| to == from || to.is_preferred()));
    if left.len() > 1 && kinds.contains(&TypeKind::Unknown) {
        by_category(&mut left, kinds);
    }
    if left.len() > 1
        && let Some(known) = only_known(kinds)
    {
        let same: Vec<TypeKind> = vec![known; kinds.len()];
        left.retain(|signature| signature.arguments.iter().zip(&same).all(|(to, from)| is_implicit(*from, *to)));
    }
    match left.as_slice() {
        [one] => Ok(one),
        _ => Err(ResolveError::Ambiguous),
    }
}

/// The signature with exactly these operands; a literal without a type counts as one of the other operand's.
fn exact(all: &'static [Signature], kinds: &[TypeKind]) -> Option<&'static Signature> {
    let assumed = only_known(kinds);
    let own = |kind: &TypeKind| if *kind == TypeKind::Unknown { assumed.unwrap_or(*kind) } else { *kind };
    all.iter().find(|signature| signature.arguments.iter().zip(kinds).all(|(to, from)| *to == own(from)))
}

/// The kind of all operands that have one, if it is one.
fn only_known(kinds: &[TypeKind]) -> Option<TypeKind> {
    let mut known = kinds.iter().copied().filter(|kind| *kind != TypeKind::Unknown);
    let first = known.next()?;
    known.all(|other| other == first).then_some(first)
}

fn count(signature: &Signature, kinds: &[TypeKind], counts: impl Fn(TypeKind, TypeKind) -> bool) -> usize {
    signature.arguments.iter().zip(kinds).filter(|(to, from)| counts(**to, **from)).count()
}

fn keep_best(left: &mut Vec<&'static Signature>, score: impl Fn(&Signature) -> usize) {
    let best = left.iter().map(|signature| score(signature)).max().unwrap_or(0);
    left.retain(|signature| score(signature) == best);
}

/// Of the signatures those whose category at each literal is the one that is agreed on there.
fn by_category(left: &mut Vec<&'static Signature>, kinds: &[TypeKind]) {
    let before = left.clone();
    for (at, _) in kinds.iter().enumerate().filter(|(_, kind)| **kind == TypeKind::Unknown) {
        let categories: Vec<Category> = before.iter().map(|signature| signature.arguments[at].category()).collect();
        let agreed = if categories.contains(&Category::String) {
            Category::String
        } else if categories.iter().all(|category| *category == categories[0]) {
            categories[0]
        } else {
            return;
        };
        left.retain(|signature| signature.arguments[at].category() == agreed);
        if left.iter().any(|signature| signature.arguments[at].is_preferred()) {
            left.retain(|signature| signature.arguments[at].is_preferred());
        }
    }
}

/// Gives a literal or parameter without a type the one that is found for it.
pub trait Typing {
    /// The scalar as a value of the type.
    fn typed(&mut self, scalar: Scalar, sql_type: SqlType) -> Result<Scalar, Unplanned>;
}

/// An operator on operands, which are cast to what it takes.
pub fn call(name: &str, operands: Vec<Scalar>, typing: &mut dyn Typing) -> Result<Scalar, Unplanned> {
    let kinds: Vec<TypeKind> = operands.iter().map(|operand| operand.sql_type.kind()).collect();
    let operator = resolve(name, &kinds).map_err(|error| Unplanned(format!("{error}: {name} of {kinds:?}")))?;
    if kinds.iter().all(|kind| *kind == TypeKind::Unknown) && operator.result != TypeKind::Boolean {
        // There are sums of other types that are not planned here.
        return Err(Unplanned(format!("{}: {name} of {kinds:?}", ResolveError::Ambiguous)));
    }
    let known: Option<SqlType> =
        operands.iter().map(|operand| operand.sql_type).find(|known| *known != SqlType::Unknown);
    let mut taken = Vec::with_capacity(operands.len());
    for (operand, to) in operands.into_iter().zip(operator.arguments) {
        taken.push(if operand.sql_type == SqlType::Unknown {
            // With the digits of the other operand, if it is of this kind.
            let sql_type = known.filter(|known| known.kind() == *to).unwrap_or(to.plain());
            typing.typed(operand, sql_type)?
        } else {
            operand.cast_to_kind(*to)
        });
    }
    let types: Vec<SqlType> = taken.iter().map(|operand| operand.sql_type).collect();
    let too_many = || Unplanned(format!("{name} with more digits than a numeric has"));
    let sql_type = operator.result_type(&types).ok_or_else(too_many)?;
    Ok(Scalar { kind: ScalarKind::Call { operator, operands: taken }, sql_type })
}

/// The type that several values are brought to, as the results of a CASE; `None` if they have none in common that is
/// planned here. All of them without a type are text.
pub fn common_type(types: &[SqlType]) -> Option<SqlType> {
    let mut common: Option<SqlType> = None;
    for own in types.iter().copied().filter(|own| *own != SqlType::Unknown) {
        common = Some(match common {
            None => own,
            Some(known) if known == own => known,
            Some(known) if known.kind() == TypeKind::Numeric || own.kind() == TypeKind::Numeric => {
                match (known.kind(), own.kind()) {
                    (TypeKind::Real | TypeKind::Double, _) => known,
                    (_, TypeKind::Real | TypeKind::Double) => own,
                    _ => numeric::common(known, own)?,
                }
            }
            Some(known) if known.kind() == own.kind() => known.kind().plain(),
            Some(known) if known.kind().category() != own.kind().category() => return None,
            Some(known) if is_implicit(own.kind(), known.kind()) => known,
            Some(known) if is_implicit(known.kind(), own.kind()) => own,
            Some(_) => return None,
        });
    }
    Some(common.unwrap_or(SqlType::Text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TypeKind::{Boolean, Date, Integer, SmallInt, Text};

    fn found(name: &str, kinds: &[TypeKind]) -> Result<Vec<TypeKind>, ResolveError> {
        resolve(name, kinds).map(|signature| signature.arguments.to_vec())
    }

    #[test]
    fn an_operator_of_one_operand_takes_what_it_is_for() {
        assert_eq!(found("-", &[SmallInt]), Ok(vec![SmallInt]));
        assert_eq!(found("-", &[Text]), Err(ResolveError::NoSuchOperator));
    }

    #[test]
    fn operands_without_an_operator_are_refused() {
        for (name, kinds) in
            [("=", [Integer, Text]), ("=", [Boolean, Integer]), ("+", [Text, Text]), ("+", [Date, Date])]
        {
            assert_eq!(found(name, &kinds), Err(ResolveError::NoSuchOperator), "{kinds:?} {name}");
        }
    }

    struct Untyped;

    impl Typing for Untyped {
        fn typed(&mut self, scalar: Scalar, sql_type: SqlType) -> Result<Scalar, Unplanned> {
            Ok(Scalar { sql_type, ..scalar })
        }
    }

    #[test]
    fn operands_are_cast_to_what_the_operator_takes() {
        let column = |sql_type| Scalar::column(crate::ColumnId(0), sql_type);
        let price = SqlType::Numeric { precision: 12, scale: 2 };
        let sum = call("+", vec![column(price), column(SqlType::Integer)], &mut Untyped).unwrap();
        assert_eq!(sum.sql_type, SqlType::Numeric { precision: 13, scale: 2 });
        let parameter = Scalar::parameter(0, SqlType::Unknown);
        let equal = call("=", vec![column(price), parameter.clone()], &mut Untyped).unwrap();
        assert_eq!(equal.operands()[1].sql_type, price, "a parameter has the type of the other operand");
        let difference = call("-", vec![parameter.clone(), parameter], &mut Untyped);
        assert!(difference.is_err(), "PostgreSQL: operator is not unique");
    }

    #[test]
    fn results_have_the_widest_type_of_their_category() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        for (types, expected) in [
            (vec![SqlType::Integer, SqlType::BigInt], Some(SqlType::BigInt)),
            (vec![SqlType::Unknown, SqlType::SmallInt], Some(SqlType::SmallInt)),
            (vec![SqlType::Integer, numeric(5, 2)], Some(numeric(12, 2))),
            (vec![numeric(5, 2), SqlType::Real], Some(SqlType::Real)),
            (vec![SqlType::Real, SqlType::Double], Some(SqlType::Double)),
            (vec![SqlType::Date, SqlType::Timestamp], Some(SqlType::Timestamp)),
            (vec![SqlType::Varchar(Some(3)), SqlType::Varchar(Some(4))], Some(SqlType::Varchar(None))),
            (vec![SqlType::Unknown], Some(SqlType::Text)),
            (vec![SqlType::Integer, SqlType::Text], None),
        ] {
            assert_eq!(common_type(&types), expected, "{types:?}");
        }
    }
}
