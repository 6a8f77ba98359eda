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
/// Of tables with many columns fewer rows are looked at: so many values at a time are little memory.
const SAMPLE_VALUES_MAX: usize = 128 << 10;
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
    let open: usize = pinned.open.iter().map(|batch| batch.rows).sum();
    let (mut parts, mut seen) = (Vec::new(), open);
    let rows_max = (SAMPLE_VALUES_MAX / table.columns.len().max(1)).clamp(1, OPEN_ROWS);
    let one_in = OPEN_ROWS.div_ceil(rows_max);
    for (segment, window) in sample_windows(&pinned.segments) {
        // A window that cannot be read is left out: its error belongs to the query.
        let found = segment.scan_window(&snapshot.snapshot(), request, window).ok();
        for batch in found.into_iter().flatten() {
            seen += batch.rows;
            parts.push(if one_in == 1 { batch } else { thinned(&batch, one_in) });
        }
    }
    let sealed: usize = pinned.segments.iter().map(|segment| segment.rows() as usize).sum();
    // Open rows have the share in the sample that they have in the table.
    let wanted = if sealed == 0 { rows_max } else { (rows_max * open).div_ceil(sealed + open) };
    let step = (open / wanted.max(1)).max(1);
    parts.extend(pinned.open.iter().map(|batch| thinned(batch, step)));
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

/// One row in so many.
fn thinned(batch: &Batch, one_in: usize) -> Batch {
    let rows: Vec<u32> = (0..batch.rows as u32).step_by(one_in).collect();
    batch.take(&rows)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use eris_engine::EngineOptions;
    use eris_platform::RealEnv;

    use super::*;
    use crate::{Database, DatabaseOptions, Outcome, SessionOptions};

    /// Rows of the sample of a table `t`, its rows, and different values of its first column.
    fn sampled(create: &str, insert: &str) -> (usize, f64, f64) {
        let engine = Engine::start(Arc::new(RealEnv::new()), EngineOptions { workers: 1, ..EngineOptions::default() });
        let database = Database::new(engine.unwrap(), DatabaseOptions::default()).unwrap();
        let (of_task, texts) = (database.clone(), [create.to_owned(), insert.to_owned()]);
        let sampling = async move {
            let mut session = of_task.session(SessionOptions::default());
            for sql in texts {
                for statement in session.parse(&sql, &[])? {
                    assert!(matches!(session.execute(&statement, &[]).await?, Outcome::Complete(_)));
                }
            }
            let catalog = of_task.catalog().current();
            let table = catalog.find("t").unwrap();
            let reservation = of_task.engine().memory().reserve("test");
            let cancel = CancelHandle::default();
            let known = take_sample(of_task.engine(), table, 0.0, reservation, &cancel).await?.unwrap();
            Ok::<_, Box<dyn Error + Send + Sync>>((known.sample.rows, known.rows, known.distinct[0]))
        };
        let known = database.engine().block_on(sampling).unwrap().unwrap();
        database.engine().shutdown();
        known
    }

    #[test]
    fn a_table_has_the_rows_that_were_seen_in_it_even_if_they_are_not_counted_yet() {
        let long = "x".repeat(10_000);
        let rows: Vec<String> = (0..300).map(|id| format!("({id}, {}, '{long}')", id % 2)).collect();
        let insert = format!("INSERT INTO t VALUES {}", rows.join(", "));
        let (kept, rows, ids) = sampled("CREATE TABLE t (id int PRIMARY KEY, n int, long text)", &insert);
        assert!((20..100).contains(&kept), "of wide rows fewer are kept: {kept}");
        assert_eq!((rows, ids), (300.0, 300.0));
    }

    #[test]
    fn of_a_table_with_many_columns_few_rows_are_looked_at() {
        let columns: Vec<String> = (0..1_024).map(|column| format!("c{column} int")).collect();
        let rows: Vec<String> = (0..1_000).map(|id| format!("({id})")).collect();
        let insert = format!("INSERT INTO t (c0) VALUES {}", rows.join(", "));
        let (kept, rows, values) = sampled(&format!("CREATE TABLE t ({})", columns.join(", ")), &insert);
        assert!((60..=260).contains(&kept) && values > 900.0, "{kept} rows of 1,024 columns, {values} values");
        assert_eq!((rows, values > rows), (1_000.0, false));
    }
}
