//! A first-in, first-out queue of rows in a temporary file.

use std::collections::VecDeque;
use std::sync::Arc;

use eris_storage::Batch;

use super::lane::{Lane, LaneReader, LaneWriter, SpillFile};
use super::{Awaited, RowStream, Spill};
use crate::error::OperatorError;

/// Rows in a temporary file, first in first out.
#[derive(Debug)]
pub struct WaitingRows {
    spill: Spill,
    file: Option<Arc<SpillFile>>,
    lanes: VecDeque<Lane>,
    reader: Option<LaneReader>,
}

impl WaitingRows {
    /// None yet, and no file.
    pub fn new(spill: &Spill) -> Self {
        Self { spill: spill.clone(), file: None, lanes: VecDeque::new(), reader: None }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.file.is_none()
    }

    /// Appends all of these, or, if it fails, none.
    pub async fn append(&mut self, batches: &[Batch]) -> Result<(), OperatorError> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => SpillFile::new(&self.spill, 1)?,
        };
        let lane = write_lane(&self.spill, &file, &mut Copies(batches.iter())).await?;
        self.lanes.push_back(lane);
        self.file = Some(file);
        Ok(())
    }

    /// The first of them; `None` when there are no others. After an error there are none.
    pub async fn next(&mut self) -> Result<Option<Batch>, OperatorError> {
        loop {
            if let Some(reader) = &mut self.reader
                && let Some(batch) = reader.next_batch().await?
            {
                return Ok(Some(batch));
            }
            self.reader = self.lanes.pop_front().map(|lane| lane.reader());
            if self.reader.is_none() {
                // Everything was read: the disk has its place again.
                self.file = None;
                return Ok(None);
            }
        }
    }
}

/// Writes all rows of a stream, and waits until they are in the file.
pub(super) async fn write_lane(
    spill: &Spill,
    file: &Arc<SpillFile>,
    rows: &mut dyn RowStream,
) -> Result<Lane, OperatorError> {
    let (mut writer, mut turn) = (LaneWriter::new(file), spill.turn());
    while let Some(batch) = rows.next().await? {
        writer.push(&batch)?;
        file.written_below_limit().await?;
        turn.give_way().await?;
    }
    let lane = writer.finish()?;
    file.written().await?;
    Ok(lane)
}

/// Batches whose owner keeps them.
struct Copies<'b>(std::slice::Iter<'b, Batch>);

impl RowStream for Copies<'_> {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        let batch = self.0.next().cloned();
        Box::pin(async move { Ok(batch) })
    }
}

#[cfg(test)]
mod tests {
    use eris_platform::simulated::FileFault;
    use eris_platform::{MemoryPool, SeededRandom};
    use eris_storage::{DataType, Value};

    use super::*;
    use crate::pipeline::spilled::Disk;
    use crate::spill::SpillOptions;

    /// Ten batches of a thousand numbers each, from here on.
    fn numbers(from: i64) -> Vec<Batch> {
        let row = |number| vec![Value::Int64(number), Value::Text(format!("number {number}").into())];
        let batch = |at: i64| (0..1_000).map(|n| row(from + at * 1_000 + n)).collect::<Vec<_>>();
        (0..10).map(|at| Batch::from_rows(&[DataType::Int64, DataType::Text], &batch(at))).collect()
    }

    async fn take(rows: &mut WaitingRows, count: usize) -> Vec<i64> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(batch) = rows.next().await.unwrap()
        {
            taken.extend((0..batch.rows).map(|row| if let Value::Int64(n) = batch.value(row, 0) { n } else { -1 }));
        }
        taken
    }

    /// Some are read while others are written, and after the last the file is gone.
    #[test]
    fn rows_come_back_in_the_order_in_which_they_were_set_aside() {
        let (disk, pool) = (Disk::new(1), MemoryPool::unlimited());
        let mut rows = WaitingRows::new(&disk.spill(&pool, SpillOptions::default()));
        disk.block_on(async {
            assert!(rows.is_empty() && rows.next().await.unwrap().is_none());
            rows.append(&numbers(0)).await.unwrap();
            let mut taken = take(&mut rows, 2_500).await;
            rows.append(&numbers(10_000)).await.unwrap();
            assert!(!rows.is_empty() && disk.files.statistics().used_bytes > 0);
            taken.extend(take(&mut rows, usize::MAX).await);
            assert!(taken.into_iter().eq(0..20_000));
            rows.append(&numbers(20_000)).await.unwrap();
            assert!(take(&mut rows, usize::MAX).await.into_iter().eq(20_000..30_000));
        });
        disk.settle();
        assert!(rows.is_empty());
        assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
    }

    /// What the disk refuses is not there; what it took before is.
    #[test]
    fn rows_that_the_disk_refuses_are_left_to_their_owner() {
        let mut refused = 0;
        for operation in 0.. {
            let (disk, pool) = (Disk::new(operation), MemoryPool::unlimited());
            let mut rows = WaitingRows::new(&disk.spill(&pool, SpillOptions::default()));
            let fails = disk.block_on(async {
                rows.append(&numbers(0)).await.unwrap();
                disk.fail_at(operation, FileFault::NoSpace);
                let fails = rows.append(&numbers(10_000)).await.is_err();
                let until = if fails { 10_000 } else { 20_000 };
                assert!(take(&mut rows, usize::MAX).await.into_iter().eq(0..until), "{operation}");
                fails
            });
            drop(rows);
            disk.settle();
            assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
            if !fails {
                break;
            }
            refused += 1;
        }
        assert!(refused > 0, "no write was refused");
    }

    /// However wide they are.
    #[test]
    fn rows_that_are_read_are_charged() {
        let mut random = SeededRandom::new(1);
        let wide = |random: &mut SeededRandom| (0..1 << 19).map(|_| char::from(random.index(100) as u8)).collect();
        let row = |random: &mut SeededRandom| vec![Value::Text(String::into_boxed_str(wide(random)))];
        let batch = Batch::from_rows(&[DataType::Text], &[row(&mut random), row(&mut random)]);
        let (disk, pool) = (Disk::new(1), MemoryPool::unlimited());
        let mut rows = WaitingRows::new(&disk.spill(&pool, SpillOptions::default()));
        disk.block_on(async {
            rows.append(&[batch]).await.unwrap();
            assert_eq!(pool.used(), 0);
            let read = rows.next().await.unwrap().unwrap();
            // The row, and the piece of the file.
            assert!(pool.used() > read.bytes() as u64 + (1 << 18), "{} bytes for {}", pool.used(), read.bytes());
        });
    }
}
