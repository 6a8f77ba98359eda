//! From a plan and constants to the key ranges to visit.

use super::compile::{Access, IndexUse, MicroPlan};
use crate::error::StorageError;
use crate::key::{Key, KeyEncoder, KeyPart};
use crate::predicate::{Comparison, Condition, ReadRequest, Test};
use crate::schema::Schema;
use crate::types::{DataType, Physical};
use crate::value::Value;

/// A range of keys: from (inclusive), to (exclusive; none: to the end).
pub(crate) type KeyRange = (Key, Option<Key>);

/// A plan with constants.
#[derive(Debug)]
pub(crate) enum Bound {
    /// No row can qualify.
    Nothing,
    Scan,
    /// Key ranges in the order in which they are to be visited; nearly always one.
    Ranges {
        first: KeyRange,
        rest: Vec<KeyRange>,
    },
}

fn fits(value: &Value, data_type: DataType) -> bool {
    match (value, data_type) {
        (Value::Null, _) => true,
        (Value::Decimal { scale, .. }, DataType::Decimal { scale: wanted, .. }) => *scale == wanted,
        (Value::Decimal { .. }, _) => false,
        (value, data_type) => matches!(
            (value, data_type.physical()),
            (Value::Boolean(_), Physical::Boolean)
                | (Value::Int16(_), Physical::Int16)
                | (Value::Int32(_) | Value::Date(_), Physical::Int32)
                | (Value::Int64(_) | Value::Timestamp(_), Physical::Int64)
                | (Value::Float32(_), Physical::Float32)
                | (Value::Float64(_), Physical::Float64)
                | (Value::Text(_) | Value::Bytes(_), Physical::Bytes)
        ),
    }
}

fn check_constants(schema: &Schema, conditions: &[Condition]) -> Result<(), StorageError> {
    for condition in conditions {
        let data_type = schema.attributes[condition.attribute.index()].data_type;
        let fit = match &condition.test {
            Test::Compare(_, value) => fits(value, data_type),
            Test::In(list) => list.iter().all(|value| fits(value, data_type)),
            Test::IsNull | Test::IsNotNull | Test::CompareAttribute(..) | Test::StartsWith(_) => true,
        };
        if !fit {
            let reason = format!("a constant is not of type {data_type}: {}", condition.describe(schema));
            return Err(StorageError::InvalidRequest { reason });
        }
    }
    Ok(())
}

/// Binds the constants of `request`; `parts` are the key parts of the plan's index.
pub(crate) fn bind(
    schema: &Schema,
    request: &ReadRequest,
    plan: &MicroPlan,
    parts: &[KeyPart],
) -> Result<Bound, StorageError> {
    let conditions = &request.predicate.conditions;
    check_constants(schema, conditions)?;
    match &plan.access {
        Access::Scan => Ok(Bound::Scan),
        Access::Index(found) => Ok(bind_index(found, conditions, parts)),
    }
}

fn bind_index(found: &IndexUse, conditions: &[Condition], parts: &[KeyPart]) -> Bound {
    let range = |from_list: Option<&Value>| bind_range(found, conditions, parts, from_list);
    let Some(Test::In(list)) = found.list.map(|position| &conditions[usize::from(position)].test) else {
        return range(None).map_or(Bound::Nothing, |first| Bound::Ranges { first, rest: Vec::new() });
    };
    let mut list: Vec<&Value> = list.iter().filter(|value| !value.is_null()).collect();
    list.sort_unstable();
    list.dedup();
    if found.descending {
        list.reverse();
    }
    let mut ranges = list.into_iter().filter_map(|value| range(Some(value)));
    let Some(first) = ranges.next() else { return Bound::Nothing };
    Bound::Ranges { first, rest: ranges.collect() }
}

/// The range of keys for one value of the list, if there is one; none if no row can have a key in it.
fn bind_range(
    found: &IndexUse,
    conditions: &[Condition],
    parts: &[KeyPart],
    from_list: Option<&Value>,
) -> Option<KeyRange> {
    let mut encoder = KeyEncoder::new();
    for (position, part) in found.equal.iter().zip(parts) {
        let value = match (&conditions[usize::from(*position)].test, from_list) {
            (Test::Compare(_, value), _) | (Test::In(_), Some(value)) => value,
            (other, _) => unreachable!("{other:?} fixes no attribute"),
        };
        if value.is_null() {
            return None;
        }
        encoder.push_part(value, *part);
    }
    range_behind(found, conditions, parts, &mut encoder)
}

/// The range of keys below the prefix in `encoder`; none if it is empty or a bound is NULL.
fn range_behind(
    found: &IndexUse,
    conditions: &[Condition],
    parts: &[KeyPart],
    encoder: &mut KeyEncoder,
) -> Option<KeyRange> {
    let prefix = encoder.finish();
    let Some(part) = parts.get(found.equal.len()).copied() else {
        let upper = prefix.successor_of_prefix();
        return Some((prefix, upper));
    };
    let mut with = |push: &dyn Fn(&mut KeyEncoder)| {
        encoder.clear();
        encoder.push_raw(prefix.as_bytes());
        push(encoder);
        encoder.finish()
    };
    if let Some(position) = found.prefix
        && let Test::StartsWith(text) = &conditions[usize::from(position)].test
    {
        let lower = with(&|encoder| encoder.push_text_prefix(text.as_bytes(), part));
        let upper = lower.successor_of_prefix();
        return Some((lower, upper));
    }
    let constant = |position: u16| match &conditions[usize::from(position)].test {
        Test::Compare(_, Value::Null) => None,
        Test::Compare(comparison, value) => Some((*comparison, value)),
        other => unreachable!("{other:?} is no bound"),
    };
    let lower = match found.lower {
        None => prefix.clone(),
        Some(position) => {
            let (comparison, value) = constant(position)?;
            let key = with(&|encoder| encoder.push_part(value, part));
            if comparison == Comparison::Greater { key.successor_of_prefix()? } else { key }
        }
    };
    let upper = match found.upper {
        // Rows with NULL in the bounded attribute qualify only if it is not bounded at all.
        None if found.lower.is_some() => with(&|encoder| encoder.push_tag(part)).successor_of_prefix(),
        None => prefix.successor_of_prefix(),
        Some(position) => {
            let (comparison, value) = constant(position)?;
            let key = with(&|encoder| encoder.push_part(value, part));
            if comparison == Comparison::LessOrEqual { key.successor_of_prefix() } else { Some(key) }
        }
    };
    upper.as_ref().is_none_or(|upper| lower < *upper).then_some((lower, upper))
}
