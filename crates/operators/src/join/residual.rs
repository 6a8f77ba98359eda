//! What a join demands besides equal keys, tested on pairs of rows.

use eris_storage::{Batch, Column, DataType, Value};

use super::Probe;
use super::kept::Kept;
use super::pairs::Pairs;
use crate::error::OperatorError;
use crate::expression::Expression;
use crate::filter_project::select;

/// Which of the pairs satisfy the residual: their positions; `None` if there is no residual.
pub(super) fn passing(
    probe: &Probe,
    kept: &Kept,
    batch: &Batch,
    pairs: &Pairs,
    parameters: &[Value],
) -> Result<Option<Vec<u32>>, OperatorError> {
    let Some(residual) = &probe.residual else { return Ok(None) };
    let mut used = Some(vec![false; batch.columns.len() + kept.columns.len()]);
    note_columns(residual, &mut used);
    // Columns that are not looked at are there, for the positions.
    let unused = Column::constant(DataType::Boolean, &Value::Boolean(false), pairs.len());
    let is_used = |at: usize| used.as_ref().is_none_or(|used| used[at]);
    let whole = pairs.is_whole(batch.rows);
    let ours = batch.columns.iter().enumerate().map(|(at, column)| match is_used(at) {
        true if whole => column.clone(),
        true => column.take(&pairs.probe),
        false => unused.clone(),
    });
    let theirs =
        kept.columns.iter().enumerate().map(|(at, column)| {
            if is_used(batch.columns.len() + at) { column.take(&pairs.build) } else { unused.clone() }
        });
    let joined = Batch::new(ours.chain(theirs).collect::<Vec<_>>(), pairs.len());
    select(residual, &joined, parameters).map(Some)
}

/// Notes which columns an expression refers to; `None`: any.
fn note_columns(expression: &Expression, used: &mut Option<Vec<bool>>) {
    match expression {
        Expression::Column { index, .. } => {
            if let Some(used) = used
                && let Some(used) = used.get_mut(*index)
            {
                *used = true;
            }
        }
        Expression::Foreign(_) => *used = None,
        other => other.operands().into_iter().for_each(|operand| note_columns(operand, used)),
    }
}
