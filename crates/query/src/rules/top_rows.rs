//! A sort below a limit keeps no more rows than are needed.
//!
//! ```text
//!   Limit  skip 10, fetch 5            Limit  skip 10, fetch 5
//!     Sort   #3                 ->       Sort   #3, at most 15 rows
//! ```

use eris_storage::Value;

use crate::relation::Relation;
use crate::scalar::Scalar;

/// See the module's documentation.
pub fn top_rows(mut relation: Relation) -> Relation {
    if let Relation::Limit { input, skip, fetch: Some(fetch) } = &mut relation
        && let Relation::Sort { fetch: kept, .. } = input.as_mut()
        && let (Some(skipped), Some(wanted)) = (skip.as_ref().map_or(Some(0), count_of), count_of(fetch))
    {
        *kept = skipped.checked_add(wanted);
    }
    relation.map_inputs(&mut top_rows)
}

/// A number of rows that is known.
fn count_of(scalar: &Scalar) -> Option<usize> {
    match scalar.as_constant()? {
        Value::Int64(count) => usize::try_from(*count).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SqlType;

    fn limited(skip: Option<Value>, fetch: Value) -> Option<usize> {
        let count = |value| Scalar::constant(value, SqlType::BigInt);
        let sort = Relation::Sort { input: Box::new(Relation::OneRow), keys: Vec::new(), fetch: None };
        let limit = Relation::Limit { input: Box::new(sort), skip: skip.map(count), fetch: Some(count(fetch)) };
        let Relation::Limit { input, .. } = top_rows(limit) else { return None };
        let Relation::Sort { fetch, .. } = *input else { return None };
        fetch
    }

    #[test]
    fn as_many_are_kept_as_are_skipped_and_given() {
        assert_eq!(limited(Some(Value::Int64(10)), Value::Int64(5)), Some(15));
        assert_eq!(limited(None, Value::Int64(0)), Some(0));
    }

    #[test]
    fn all_are_kept_where_a_count_is_not_known_or_not_one() {
        assert_eq!(limited(None, Value::Null), None);
        assert_eq!(limited(Some(Value::Null), Value::Int64(5)), None);
        assert_eq!(limited(None, Value::Int64(-1)), None);
        assert_eq!(limited(Some(Value::Int64(i64::MAX)), Value::Int64(i64::MAX)).map(|_| ()), Some(()));
    }
}
