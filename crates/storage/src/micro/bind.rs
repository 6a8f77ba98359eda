//! From a plan and constants to the key ranges to visit.

use super::compile::{Access, IndexUse, MicroPlan};
use crate::error::StorageError;
use crate::key::{Key, KeyEncoder, KeyPart};
use crate::modules::IndexScanState;
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
    /// Key ranges in the order in which they are to be visited.
    Ranges(Vec<KeyRange>),
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
    let list: Vec<&Value> = match found.list.map(|position| &conditions[usize::from(position)].test) {
        Some(Test::In(list)) => {
            let mut list: Vec<&Value> = list.iter().filter(|value| !value.is_null()).collect();
            list.sort_unstable();
            list.dedup();
            list
        }
        // One round in which no list is read.
        _ => vec![&Value::Null],
    };
    let mut ranges = Vec::with_capacity(list.len());
    let mut encoder = KeyEncoder::new();
    for from_list in list {
        encoder.clear();
        for (position, part) in found.equal.iter().zip(parts) {
            let value = match &conditions[usize::from(*position)].test {
                Test::Compare(_, value) => value,
                Test::In(_) => from_list,
                other => unreachable!("{other:?} fixes no attribute"),
            };
            if value.is_null() {
                return Bound::Nothing;
            }
            encoder.push_part(value, *part);
        }
        match range_behind(found, conditions, parts, &mut encoder) {
            Ok(range) => ranges.extend(range),
            Err(NoRow) => return Bound::Nothing,
        }
    }
    if found.descending {
        ranges.reverse();
    }
    Bound::Ranges(ranges)
}

/// A bound is NULL: no row qualifies.
struct NoRow;

/// The range of keys below the prefix in `encoder`; none if it is empty.
fn range_behind(
    found: &IndexUse,
    conditions: &[Condition],
    parts: &[KeyPart],
    encoder: &mut KeyEncoder,
) -> Result<Option<KeyRange>, NoRow> {
    let prefix = encoder.finish();
    let Some(part) = parts.get(found.equal.len()).copied() else {
        let upper = prefix.successor_of_prefix();
        return Ok(Some((prefix, upper)));
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
        return Ok(Some((lower, upper)));
    }
    let constant = |position: u16| match &conditions[usize::from(position)].test {
        Test::Compare(_, Value::Null) => Err(NoRow),
        Test::Compare(comparison, value) => Ok((*comparison, value)),
        other => unreachable!("{other:?} is no bound"),
    };
    let lower = match found.lower {
        None => prefix.clone(),
        Some(position) => {
            let (comparison, value) = constant(position)?;
            let key = with(&|encoder| encoder.push_part(value, part));
            if comparison == Comparison::Greater {
                match key.successor_of_prefix() {
                    Some(key) => key,
                    None => return Ok(None),
                }
            } else {
                key
            }
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
    Ok(upper.as_ref().is_none_or(|upper| lower < *upper).then_some((lower, upper)))
}

/// One scan per range.
pub(crate) fn scans(ranges: Vec<KeyRange>, descending: bool) -> Vec<IndexScanState> {
    ranges.into_iter().map(|(lower, upper)| IndexScanState::new(lower, upper, descending)).collect()
}
