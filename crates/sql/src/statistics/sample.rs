//! Taking a sample of a table.

use std::sync::Arc;

use eris_engine::{CancelHandle, Engine, PinnedScan, SnapshotHandle};
use eris_platform::Reservation;
use eris_storage::{AttributeId, Batch, Predicate, ReadRequest, Value};

use super::TableStatistics;
use super::distinct::distinct_values;
use super::windows::sample_windows;
use crate::catalog::Table;
use crate::errors::SqlError;
use crate::plan::engine_error;

/// Rows of open segments that are looked at.
const OPEN_ROWS: usize = 2_048;
/// A sample is that large at most.
const SAMPLE_BYTES_MAX: usize = 512 << 10;

/// Looks at some rows of a table, in a transaction of its own: what a sample has read is nobody's business. `None`
/// without memory for it. `rows` are those of the table, about: its partitions count them at the end of a visit, and a
/// row may be read before.
pub(super) async fn take_sample(
    engine: &Engine,
    table: &Arc<Table>,
    rows: f64,
    reservation: Reservation,
    cancel: &CancelHandle,
) -> Result<Option<TableStatistics>, SqlError> {
    let request = ReadRequest { predicate: Predicate::all(), desired: table.attributes(), order: None };
    let mut transaction = engine.begin();
    transaction.set_cancel(cancel.clone());
    // The statement that asks has locked the table.
    transaction.pass_table_locks();
    let pinned = match transaction.pin(table.container(), &request).await {
        Ok(pinned) => pinned,
        Err(_) if !cancel.is_cancelled() => return Ok(None),
        Err(error) => return Err(engine_error(&error, Some(table))),
    };
    let (sample, seen) = rows_of(&pinned, &transaction.snapshot_handle(), &request, table);
    if reservation.grow(sample.bytes() as u64).is_err() {
        return Ok(None);
    }
    let rows = rows.max(seen as f64);
    let distinct = (0..table.columns.len())
        .map(|attribute| {
            let alone = [AttributeId(attribute as u16)];
            if table.schema.indexes.iter().any(|index| index.unique && *index.attributes == alone) {
                return rows.max(1.0);
            }
            let bounds = pinned.segments.iter().filter_map(|segment| segment.segment().bounds(alone[0]));
            distinct_values(&sample.columns[attribute], bounds, rows)
        })
        .collect();
    Ok(Some(TableStatistics { rows, sample, distinct, _reservation: reservation }))
}

/// Some rows, and how many there are at least.
fn rows_of(pinned: &PinnedScan, snapshot: &SnapshotHandle, request: &ReadRequest, table: &Table) -> (Batch, usize) {
    let mut parts = Vec::new();
    for (segment, window) in sample_windows(&pinned.segments) {
        // A window that cannot be read is left out: its error belongs to the query.
        if let Ok(found) = segment.scan_window(&snapshot.snapshot(), request, window) {
            parts.extend(found);
        }
    }
    let open: usize = pinned.open.iter().map(|batch| batch.rows).sum();
    let seen = parts.iter().map(|batch: &Batch| batch.rows).sum::<usize>() + open;
    let sealed: usize = pinned.segments.iter().map(|segment| segment.rows() as usize).sum();
    // Open rows have the share in the sample that they have in the table.
    let wanted = if sealed == 0 { OPEN_ROWS } else { (OPEN_ROWS * open).div_ceil(sealed + open) };
    let step = (open / wanted.max(1)).max(1);
    for batch in &pinned.open {
        let rows: Vec<u32> = (0..batch.rows as u32).step_by(step).collect();
        parts.push(batch.take(&rows));
    }
    if parts.is_empty() {
        let types: Vec<_> = table.columns.iter().map(|column| column.sql_type.data_type()).collect();
        return (Batch::empty(&types), 0);
    }
    let all = Batch::concat(&parts);
    // Of wide rows fewer are enough. They are copied, so that the sample keeps nothing of the table alive.
    let step = all.bytes().div_ceil(SAMPLE_BYTES_MAX).max(1);
    let rows: Vec<Vec<Value>> = (0..all.rows).step_by(step).map(|row| all.row(row)).collect();
    (Batch::from_rows(&all.data_types(), &rows), seen)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use eris_engine::EngineOptions;
    use eris_platform::RealEnv;

    use super::*;
    use crate::{Database, DatabaseOptions, Outcome, SessionOptions};

    #[test]
    fn a_table_has_the_rows_that_were_seen_in_it_even_if_they_are_not_counted_yet() {
        let engine = Engine::start(Arc::new(RealEnv::new()), EngineOptions { workers: 1, ..EngineOptions::default() });
        let database = Database::new(engine.unwrap(), DatabaseOptions::default()).unwrap();
        let sampled = database.clone();
        let sampling = async move {
            let mut session = sampled.session(SessionOptions::default());
            let long = "x".repeat(10_000);
            let rows: Vec<String> = (0..300).map(|id| format!("({id}, {}, '{long}')", id % 2)).collect();
            let insert = format!("INSERT INTO t VALUES {}", rows.join(", "));
            for sql in ["CREATE TABLE t (id int PRIMARY KEY, n int, long text)", &insert] {
                for statement in session.parse(sql, &[])? {
                    assert!(matches!(session.execute(&statement, &[]).await?, Outcome::Complete(_)));
                }
            }
            let catalog = sampled.catalog().current();
            let table = catalog.find("t").unwrap();
            let reservation = sampled.engine().memory().reserve("test");
            let cancel = CancelHandle::default();
            let known = take_sample(sampled.engine(), table, 0.0, reservation, &cancel).await?.unwrap();
            Ok::<_, Box<dyn Error + Send + Sync>>((known.sample.rows, known.rows, known.distinct[0]))
        };
        let (kept, rows, ids) = database.engine().block_on(sampling).unwrap().unwrap();
        database.engine().shutdown();
        assert!((20..100).contains(&kept), "of wide rows fewer are kept: {kept}");
        assert_eq!((rows, ids), (300.0, 300.0));
    }
}
