//! CASE: each condition is computed for the rows that no condition before was true for, each result for the rows of its
//! branch, and the results are put together. Nothing is computed for a row that does not need it, so that
//! `CASE WHEN x <> 0 THEN 1 / x END` never divides by zero.

use eris_storage::{Column, DataType, Physical, Value};

use super::Datum;
use super::Expression;
use super::bits;
use super::instructions::{Level, kernel};
use super::merge::{Fixed, Piece, merge, physical_of};
use super::rows::Rows;
use crate::error::OperatorError;
use crate::logic::truth_of;

kernel! {
    /// One of two values, by a byte of 0 or 1.
    fn choose[T: Copy + Default](chosen: &[u8], yes: T, no: T) -> Vec<T> {
        let mut out = vec![T::default(); chosen.len()];
        for (out, chosen) in out.iter_mut().zip(chosen) {
            *out = if *chosen != 0 { yes } else { no };
        }
        out
    }
}

/// The result of the first branch whose condition is true, else `otherwise`, else NULL.
pub(super) fn evaluate(
    branches: &[(Expression, Expression)],
    otherwise: Option<&Expression>,
    data_type: DataType,
    rows: &Rows<'_>,
) -> Result<Datum, OperatorError> {
    if let [(condition, then)] = branches
        && let (Expression::Constant { value: yes, .. }, Some(Expression::Constant { value: no, .. })) =
            (then, otherwise)
        && !yes.is_null()
        && !no.is_null()
        && data_type.physical() != Physical::Bytes
    {
        let chosen = truth_of(&condition.evaluate_on(rows)?, rows.len());
        return one_of_two(&chosen, yes, no, data_type).map(Datum::Column);
    }
    let all = rows.len();
    let mut pieces: Vec<Piece> = Vec::with_capacity(branches.len() + 1);
    // Rows without a result so far; `None`: all.
    let mut open: Option<Vec<u32>> = None;
    for (condition, then) in branches {
        let truth = match &open {
            None => truth_of(&condition.evaluate_on(rows)?, all),
            Some(open) => {
                let positions = rows.positions(open);
                truth_of(&condition.evaluate_on(&rows.at(&positions))?, open.len())
            }
        };
        let (chosen, left) = split(&truth, open.as_deref());
        if !chosen.is_empty() {
            let result = on(then, rows, &chosen)?;
            pieces.push(Piece { rows: chosen, result });
        }
        if left.is_empty() {
            open = Some(left);
            break;
        }
        open = Some(left);
    }
    let left = open.unwrap_or_else(|| (0..all as u32).collect());
    if let (Some(otherwise), false) = (otherwise, left.is_empty()) {
        let result = on(otherwise, rows, &left)?;
        pieces.push(Piece { rows: left, result });
    }
    match pieces.as_slice() {
        // One branch for all rows: as it is, but for constants, whose scale may be another.
        [Piece { rows, result: Datum::Column(_) }] if rows.len() == all => Ok(pieces.swap_remove(0).result),
        _ => merge(pieces, data_type, all).map(Datum::Column),
    }
}

/// Computes an expression for some of the rows.
fn on(expression: &Expression, rows: &Rows<'_>, chosen: &[u32]) -> Result<Datum, OperatorError> {
    if chosen.len() == rows.len() {
        return expression.evaluate_on(rows);
    }
    let positions = rows.positions(chosen);
    expression.evaluate_on(&rows.at(&positions))
}

/// The open rows for which the condition is true, and the others.
fn split(truth: &[u8], open: Option<&[u32]>) -> (Vec<u32>, Vec<u32>) {
    let yes = bits::positions_of(truth);
    let no = bits::positions_of(&truth.iter().map(|truth| truth ^ 1).collect::<Vec<_>>());
    match open {
        None => (yes, no),
        Some(open) => {
            let of = |places: Vec<u32>| places.into_iter().map(|place| open[place as usize]).collect();
            (of(yes), of(no))
        }
    }
}

fn one_of_two(chosen: &[u8], yes: &Value, no: &Value, data_type: DataType) -> Result<Column, OperatorError> {
    fn values<T: Fixed>(chosen: &[u8], yes: &Value, no: &Value, data_type: DataType) -> Option<eris_storage::Values> {
        let (yes, no) = (T::value(yes, data_type)?, T::value(no, data_type)?);
        Some(T::wrap(choose(Level::for_rows(chosen.len()), chosen, yes, no)))
    }
    let constants = [yes, no].map(|value| Piece { rows: Vec::new(), result: Datum::Constant(value.clone()) });
    let values = match physical_of(&constants, data_type) {
        Physical::Boolean => values::<u8>(chosen, yes, no, data_type),
        Physical::Int16 => values::<i16>(chosen, yes, no, data_type),
        Physical::Int32 => values::<i32>(chosen, yes, no, data_type),
        Physical::Int64 => values::<i64>(chosen, yes, no, data_type),
        Physical::Int128 => values::<i128>(chosen, yes, no, data_type),
        Physical::Float32 => values::<f32>(chosen, yes, no, data_type),
        Physical::Float64 => values::<f64>(chosen, yes, no, data_type),
        Physical::Bytes => None,
    };
    let values =
        values.ok_or_else(|| OperatorError::Internal(format!("{yes:?} and {no:?} are not both {data_type}")))?;
    Ok(Column { data_type, validity: None, values })
}
