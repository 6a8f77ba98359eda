//! The batches that leave a join.

use eris_platform::Reservation;
use eris_storage::{BATCH_ROWS, Batch, Bitmap, Column, DataType, Values};

use super::kept::{Kept, NULL_ROW};
use super::pairs::Pairs;
use super::{JoinBuild, Probe};
use crate::error::OperatorError;

/// Pairs with their columns.
pub(super) fn joined(probe: &Probe, kept: &Kept, batch: &Batch, pairs: &Pairs) -> Batch {
    let whole = pairs.is_whole(batch.rows);
    let nulls = pairs.build.contains(&NULL_ROW);
    let ours = probe.probe_columns.iter().map(|column| {
        let column = &batch.columns[*column];
        if whole { column.clone() } else { column.take(&pairs.probe) }
    });
    let types = &probe.build.spec.types;
    let theirs = probe.build_columns.iter().map(|column| kept.gather(*column, types[*column], &pairs.build, nulls));
    Batch::new(ours.chain(theirs).collect::<Vec<_>>(), pairs.len())
}

/// Probe rows by themselves.
pub(super) fn rows_only(probe: &Probe, batch: &Batch, rows: &[u32]) -> Batch {
    let batch = batch.project(&probe.probe_columns);
    if rows.len() == batch.rows { batch } else { batch.take(rows) }
}

/// All probe rows, with what is known of each.
pub(super) fn marked(probe: &Probe, batch: &Batch, marks: &[Option<bool>]) -> Batch {
    let values = Values::Boolean(marks.iter().map(|mark| u8::from(*mark == Some(true))).collect());
    let unknown = marks.contains(&None);
    let validity = unknown.then(|| marks.iter().map(Option::is_some).collect::<Bitmap>());
    let mark = Column { data_type: DataType::Boolean, validity, values };
    let columns: Vec<Column> = batch.project(&probe.probe_columns).columns.into_iter().chain([mark]).collect();
    Batch::new(columns, batch.rows)
}

/// The build rows that were met, or those that were not.
pub(super) fn rows_met(build: &JoinBuild, met: bool) -> Result<(Vec<Batch>, Option<Reservation>), OperatorError> {
    let kept = build.kept()?;
    if !build.spec.keep_unmatched {
        return Err(OperatorError::Internal("a join that did not note which rows were met".to_string()));
    }
    let reservation = build.reserve("join");
    reservation.grow((kept.rows * size_of::<u32>()) as u64)?;
    let rows: Vec<u32> = (0..kept.rows as u32).filter(|row| kept.is_met(*row) == met).collect();
    let row_bytes: usize = build.spec.types.iter().map(|data_type| data_type.physical().width() + 1).sum();
    reservation.grow((rows.len() * row_bytes) as u64)?;
    let batches: Vec<Batch> = rows
        .chunks(BATCH_ROWS)
        .map(|rows| Batch::new(kept.columns.iter().map(|column| column.take(rows)).collect::<Vec<_>>(), rows.len()))
        .collect();
    drop(rows);
    reservation.resize(batches.iter().map(|batch| batch.bytes() as u64).sum())?;
    Ok((batches, Some(reservation)))
}
