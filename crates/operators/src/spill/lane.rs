//! Rows in a temporary file, one after the other; several lanes share a file.
//!
//! ```text
//!   file    | lane 0 | lane 2 | lane 0 | lane 1 | ...      pieces of some hundred kilobytes, each of whole frames
//! ```
//! A lane knows where its pieces are; they are written as they come and read in their order. Small batches are buffered
//! until they fill a frame.

use std::collections::VecDeque;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex};

use eris_platform::{Extent, IoTask, Reservation, TempFile, TempFileError};
use eris_storage::{BATCH_ROWS, Batch, Column, ColumnBuilder, DataType, Values};

use super::Spill;
use super::frame::{put_frame, take_frame};
use crate::error::OperatorError;
use crate::pipeline::lock;

/// Plain bytes of a frame, roughly: what is made and read in a fraction of a turn.
const FRAME_BYTES: usize = 64 << 10;
/// Bytes of a piece of a lane, roughly: enough for a disk, few enough to have one of each of many lanes in memory.
const PIECE_BYTES_MAX: u64 = 128 << 10;
/// The same of many lanes where memory is short.
const PIECE_BYTES_MIN: u64 = 8 << 10;
/// A writer that has more on its way waits for the disk.
const WRITING_BYTES_MAX: u64 = 8 << 20;

/// What is on its way to the disk, with its bytes.
type Writing = VecDeque<(u64, IoTask<Result<(), TempFileError>>)>;

/// A temporary file of lanes.
#[derive(Debug)]
pub(crate) struct SpillFile {
    spill: Spill,
    file: TempFile,
    piece_bytes: usize,
    writing: Mutex<WritingQueue>,
    /// What writers have gathered and what is on its way to the disk.
    held: Reservation,
}

#[derive(Default)]
struct WritingQueue(Writing);

impl std::fmt::Debug for WritingQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} writes", self.0.len())
    }
}

impl SpillFile {
    /// For so many lanes that are written at the same time.
    pub fn new(spill: &Spill, lanes: usize) -> Result<Arc<Self>, OperatorError> {
        let file = spill.inner.files.create(&spill.inner.budget).map_err(OperatorError::TempFile)?;
        let held = spill.reserve_counted();
        let share = spill.in_flight_bytes() / 2 / lanes.max(1) as u64;
        let piece_bytes = share.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) as usize;
        Ok(Arc::new(Self { spill: spill.clone(), file, piece_bytes, writing: Mutex::default(), held }))
    }

    /// Returns when everything that was handed on is in the file.
    pub async fn written(&self) -> Result<(), OperatorError> {
        self.written_below(0).await
    }

    /// Returns when little is on its way.
    pub async fn written_below_limit(&self) -> Result<(), OperatorError> {
        self.written_below(WRITING_BYTES_MAX.min(self.spill.in_flight_bytes() / 2)).await
    }

    async fn written_below(&self, bytes: u64) -> Result<(), OperatorError> {
        loop {
            let (bytes, task) = {
                let writing = &mut lock(&self.writing).0;
                if writing.iter().map(|(bytes, _)| bytes).sum::<u64>() <= bytes {
                    return Ok(());
                }
                let Some(first) = writing.pop_front() else { return Ok(()) };
                first
            };
            let written = self.spill.wait(task, |error| self.file.lost(error)).await;
            self.held.shrink(bytes);
            written?;
        }
    }

    fn append(&self, bytes: Vec<u8>) -> Result<Extent, OperatorError> {
        let length = bytes.len() as u64;
        let (extent, task) = self.file.append(bytes).map_err(OperatorError::TempFile)?;
        lock(&self.writing).0.push_back((length, task));
        Ok(extent)
    }
}

/// Fills a lane.
#[derive(Debug)]
pub(crate) struct LaneWriter {
    file: Arc<SpillFile>,
    /// Of the first batch; all have the same.
    types: Option<Arc<[DataType]>>,
    few: Few,
    gathered: Vec<u8>,
    extents: Vec<Extent>,
    rows: u64,
    bytes: u64,
    /// The largest frame when it is read, or what is usual.
    frame_bytes: usize,
}

impl LaneWriter {
    pub fn new(file: &Arc<SpillFile>) -> Self {
        Self {
            file: Arc::clone(file),
            types: None,
            few: Few::default(),
            gathered: Vec::new(),
            extents: Vec::new(),
            rows: 0,
            bytes: 0,
            frame_bytes: FRAME_BYTES,
        }
    }

    /// Rows of a frame, for batches like this one.
    pub fn frame_rows(batch: &Batch) -> usize {
        (FRAME_BYTES * batch.rows.max(1) / batch.bytes().max(1)).clamp(1, BATCH_ROWS)
    }

    /// Appends a batch.
    pub fn push(&mut self, batch: &Batch) -> Result<(), OperatorError> {
        if batch.rows == 0 {
            return Ok(());
        }
        let types = self.types.get_or_insert_with(|| batch.data_types().into());
        if !batch.columns.iter().map(|column| column.data_type).eq(types.iter().copied()) {
            return Err(OperatorError::Internal("rows of other types in a temporary file".to_string()));
        }
        self.rows += batch.rows as u64;
        self.bytes += batch.bytes() as u64;
        // Dividing a batch yields a few dozen rows for each lane, and a frame costs more than so few rows: buffer them.
        let (frame_rows, bytes) = (Self::frame_rows(batch), batch.bytes() as u64);
        let few_bytes_max = FRAME_BYTES.min(self.file.piece_bytes / 2) as u64;
        if !self.few.lie_as(batch) || self.few.rows + batch.rows > BATCH_ROWS || self.few.bytes + bytes > few_bytes_max
        {
            self.put_few()?;
        }
        if batch.rows * 2 <= frame_rows && bytes * 2 <= few_bytes_max {
            self.file.held.grow(bytes)?;
            self.few.push(batch, bytes);
            return Ok(());
        }
        self.put_few()?;
        for start in (0..batch.rows).step_by(frame_rows) {
            let rows = frame_rows.min(batch.rows - start);
            if rows == batch.rows {
                self.put(batch)?;
            } else {
                self.put(&batch.slice(start, rows))?;
            }
        }
        Ok(())
    }

    /// Writes the buffered rows as a frame.
    fn put_few(&mut self) -> Result<(), OperatorError> {
        if self.few.rows == 0 {
            return Ok(());
        }
        let few = std::mem::take(&mut self.few);
        self.file.held.shrink(few.bytes);
        let rows = few.finish();
        self.put(&rows)
    }

    /// Writes a batch as one frame, and hands the piece on when it is full.
    fn put(&mut self, batch: &Batch) -> Result<(), OperatorError> {
        let before = self.gathered.len();
        let plain_bytes = put_frame(batch, &mut self.gathered);
        self.frame_bytes = self.frame_bytes.max(plain_bytes);
        if let Err(refused) = self.file.held.grow((self.gathered.len() - before) as u64) {
            // What is gathered is what is reserved.
            self.gathered.truncate(before);
            return Err(refused.into());
        }
        if self.gathered.len() >= self.file.piece_bytes { self.hand_on() } else { Ok(()) }
    }

    fn hand_on(&mut self) -> Result<(), OperatorError> {
        let gathered = std::mem::take(&mut self.gathered);
        let length = gathered.len() as u64;
        match self.file.append(gathered) {
            Ok(extent) => self.extents.push(extent),
            Err(error) => {
                self.file.held.shrink(length);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The lane, which can be read when the file is [written](SpillFile::written).
    pub fn finish(mut self) -> Result<Lane, OperatorError> {
        self.put_few()?;
        if !self.gathered.is_empty() {
            self.hand_on()?;
        }
        let lane = Written {
            file: Arc::clone(&self.file),
            types: self.types.take().unwrap_or_default(),
            extents: std::mem::take(&mut self.extents),
            rows: self.rows,
            bytes: self.bytes,
            frame_bytes: self.frame_bytes as u64,
        };
        Ok(Lane(Arc::new(lane)))
    }
}

/// Buffers rows until there are enough for a frame.
#[derive(Default)]
struct Few {
    columns: Vec<FewOfColumn>,
    rows: usize,
    /// Reserved for them in `held` of the file.
    bytes: u64,
}

struct FewOfColumn {
    data_type: DataType,
    /// Small decimals have 64 bits in memory, or 128.
    values: Discriminant<Values>,
    builder: ColumnBuilder,
}

impl Few {
    /// Whether the columns of a batch have the physical types of the buffered ones.
    fn lie_as(&self, batch: &Batch) -> bool {
        let mut pairs = self.columns.iter().zip(&batch.columns);
        pairs.all(|(own, column)| own.values == discriminant(&column.values))
    }

    fn push(&mut self, batch: &Batch, bytes: u64) {
        if self.rows == 0 {
            self.columns = batch.columns.iter().map(FewOfColumn::of).collect();
        }
        for (own, column) in self.columns.iter_mut().zip(&batch.columns) {
            own.builder.extend(column, 0..batch.rows);
        }
        (self.rows, self.bytes) = (self.rows + batch.rows, self.bytes + bytes);
    }

    fn finish(self) -> Batch {
        let columns = self.columns.into_iter();
        let columns = columns.map(|own| Column { data_type: own.data_type, ..own.builder.finish() });
        Batch::new(columns.collect::<Vec<_>>(), self.rows)
    }
}

impl FewOfColumn {
    /// For columns like this one.
    fn of(column: &Column) -> Self {
        // A builder goes by the type, which says 128 bits for a wide decimal.
        let built = if let Values::Int64(_) = column.values { DataType::Int64 } else { column.data_type };
        let builder = ColumnBuilder::with_capacity(built, 0);
        Self { data_type: column.data_type, values: discriminant(&column.values), builder }
    }
}

impl std::fmt::Debug for Few {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rows", self.rows)
    }
}

impl Drop for LaneWriter {
    fn drop(&mut self) {
        self.file.held.shrink(self.gathered.len() as u64 + self.few.bytes);
    }
}

#[derive(Debug)]
struct Written {
    file: Arc<SpillFile>,
    types: Arc<[DataType]>,
    extents: Vec<Extent>,
    rows: u64,
    bytes: u64,
    frame_bytes: u64,
}

/// Rows in a file. Clones are the same rows.
#[derive(Clone, Debug)]
pub(crate) struct Lane(Arc<Written>);

impl Lane {
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// What the rows took in memory.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// What a reader of it holds.
    pub fn reader_bytes(&self) -> u64 {
        let largest = self.0.extents.iter().map(|extent| u64::from(extent.bytes)).max();
        largest.unwrap_or(0).max(self.0.file.piece_bytes as u64) + self.0.frame_bytes
    }

    pub fn types(&self) -> &Arc<[DataType]> {
        &self.0.types
    }

    /// Reads it from the beginning.
    pub fn reader(&self) -> LaneReader {
        let held = self.0.file.spill.reserve_counted();
        LaneReader { lane: self.clone(), next: 0, piece: Vec::new(), at: 0, held }
    }
}

/// Reads a lane.
#[derive(Debug)]
pub(crate) struct LaneReader {
    lane: Lane,
    next: usize,
    piece: Vec<u8>,
    /// Where in the piece the next frame begins.
    at: usize,
    held: Reservation,
}

impl LaneReader {
    /// The next batch; `None` after the last.
    pub async fn next_batch(&mut self) -> Result<Option<Batch>, OperatorError> {
        let written = Arc::clone(&self.lane.0);
        if self.at == self.piece.len() {
            // Both at once: a reader that is asked again after its end has nothing to take a frame from.
            (self.piece, self.at) = (Vec::new(), 0);
            let Some(extent) = written.extents.get(self.next) else {
                self.held.resize(0)?;
                return Ok(None);
            };
            self.next += 1;
            // The piece, and a batch of it.
            self.held.resize(u64::from(extent.bytes) + written.frame_bytes)?;
            let file = &written.file;
            self.piece = file.spill.wait(file.file.read(*extent), |error| file.file.lost(error)).await?;
        }
        let (batch, taken) = take_frame(&self.piece[self.at..], &written.types)
            .map_err(|error| OperatorError::TempFile(written.file.file.damaged(error.to_string())))?;
        self.at += taken;
        if cfg!(feature = "bug_spill_read_short") && self.at == self.piece.len() {
            return Ok(None);
        }
        Ok(Some(batch))
    }
}

#[cfg(feature = "bug_reservation_not_returned")]
impl Drop for LaneReader {
    fn drop(&mut self) {
        let nothing = self.lane.0.file.spill.reserve_counted();
        std::mem::forget(std::mem::replace(&mut self.held, nothing));
    }
}

#[cfg(test)]
mod tests {
    use eris_platform::{MemoryPool, SeededRandom};
    use eris_storage::Value;

    use super::*;
    use crate::pipeline::spilled::Disk;
    use crate::spill::SpillOptions;

    const TYPES: [DataType; 3] = [DataType::Int64, DataType::Text, DataType::Decimal { precision: 30, scale: 2 }];

    /// Rows numbered from `first` on; their decimals have 64 bits or 128.
    fn numbered(first: usize, rows: usize, text_bytes: usize, is_narrow: bool) -> Batch {
        let row = |number: usize| {
            let text = if number.is_multiple_of(7) { Value::Null } else { Value::Text("x".repeat(text_bytes).into()) };
            vec![Value::Int64(number as i64), text, Value::Decimal { unscaled: number as i128 * 3, scale: 2 }]
        };
        let mut batch = Batch::from_rows(&TYPES, &(first..first + rows).map(row).collect::<Vec<_>>());
        if is_narrow {
            let values = (first..first + rows).map(|number| number as i64 * 3).collect::<Vec<_>>();
            batch.columns[2].values = Values::Int64(values.into());
        }
        batch
    }

    /// What comes back of batches, in their order, and how many frames it took. Everything reserved is given back.
    fn through_a_lane(batches: &[Batch]) -> (Vec<Batch>, usize) {
        let (disk, pool) = (Disk::new(1), MemoryPool::unlimited());
        let read = disk.block_on(async {
            let spill = disk.spill(&pool, SpillOptions::default());
            let file = SpillFile::new(&spill, 32).unwrap();
            let mut writer = LaneWriter::new(&file);
            for batch in batches {
                writer.push(batch).unwrap();
            }
            let rows: usize = batches.iter().map(|batch| batch.rows).sum();
            let lane = writer.finish().unwrap();
            file.written().await.unwrap();
            assert_eq!(lane.rows(), rows as u64);
            let (mut reader, mut read) = (lane.reader(), Vec::new());
            while let Some(batch) = reader.next_batch().await.unwrap() {
                read.push(batch);
            }
            read
        });
        disk.settle();
        assert_eq!((pool.used(), disk.files.statistics().used_bytes), (0, 0));
        let frames = read.len();
        (read, frames)
    }

    fn rows_of(batches: &[Batch]) -> Vec<Vec<Value>> {
        let values = |batch: &Batch, row| (0..TYPES.len()).map(|column| batch.value(row, column)).collect();
        batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| values(batch, row))).collect()
    }

    #[test]
    fn few_rows_wait_for_others_and_share_a_frame() {
        let batches: Vec<Batch> = (0..64).map(|at| numbered(at * 64, 64, 5, at >= 32)).collect();
        let (read, frames) = through_a_lane(&batches);
        assert_eq!(rows_of(&read), rows_of(&batches));
        assert!(frames <= 8, "{frames} frames of 4,096 rows that came 64 at a time");
        let narrow = |batch: &Batch| matches!(batch.columns[2].values, Values::Int64(_));
        assert_eq!(read.iter().filter(|batch| narrow(batch)).map(|batch| batch.rows).sum::<usize>(), 2_048);
    }

    /// Whatever the batches are, their rows come back in their order, in frames of a bounded size.
    #[test]
    fn rows_of_few_and_of_many_come_back_in_their_order() {
        for seed in 0..40 {
            let mut random = SeededRandom::new(seed);
            let mut first = 0;
            let batches: Vec<Batch> = (0..30)
                .map(|_| {
                    let rows = [0, 1, 3, 60, 700, 2_048, 5_000][random.index(7)];
                    let text_bytes = [0, 8, 100, 3_000][random.index(if rows < 1_000 { 4 } else { 2 })];
                    first += rows;
                    numbered(first - rows, rows, text_bytes, random.index(2) == 0)
                })
                .collect();
            let (read, _) = through_a_lane(&batches);
            assert!(rows_of(&read) == rows_of(&batches), "seed {seed}");
            assert!(read.iter().all(|batch| batch.rows <= BATCH_ROWS), "seed {seed}");
            let largest = read.iter().filter(|batch| batch.rows > 1).map(Batch::bytes).max().unwrap();
            assert!(largest <= 2 * FRAME_BYTES, "seed {seed}: {largest} bytes");
        }
    }
}
