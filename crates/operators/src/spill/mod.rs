//! Going on in temporary files where memory is refused.
//!
//! ```text
//!   sink ── a batch that it cannot take ──> emit ──> task     has the sink write what it holds, by jobs on workers,
//!                                                             waits for the disk, and gives the batch again
//!   task ── all input was given ──> sink                      writes the rest; its rows are read as they are asked for
//! ```
//! A sink that can do so is a [`SpillingSink`]; what its rows are read from is a [`RowStream`]. Rows lie in lanes
//! ([`Lane`]) as compressed frames with a checksum ([`frame`]). Files are written and read beside the workers, and
//! whatever a task does here gives way after a fraction of a millisecond and hears when the statement is cancelled.

mod frame;
mod lane;
mod waiting;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use eris_engine::{CancelHandle, yield_to_tasks};
use eris_platform::{IoTask, MemoryPool, Nanos, Reservation, TempBudget, TempFileError, TempFiles};
use eris_storage::Batch;

use crate::error::OperatorError;
pub(crate) use lane::{Lane, LaneReader, LaneWriter, SpillFile};
pub use waiting::WaitingRows;

/// What the pool calls what is on its way to files and back.
const CONSUMER: &str = "temporary files";
/// More than this need not be on its way to files and back.
const IN_FLIGHT_BYTES_MAX: u64 = 32 << 20;
/// How long a task goes on before others have a turn: as long as in a partition.
const TURN: Duration = Duration::from_micros(200);
/// The same in pieces, for clocks that stand still.
const TURN_PIECES_MAX: u32 = 1_000;

/// What a statement may do with temporary files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpillOptions {
    /// An operator that holds more than this goes on in files; `None`: when memory is refused.
    pub held_bytes_max: Option<u64>,
    /// All files of the statement together; `None`: what the disk has.
    pub file_bytes_max: Option<u64>,
}

/// The temporary files of one statement. Clones are the same.
#[derive(Clone)]
pub struct Spill {
    inner: Arc<Inner>,
}

struct Inner {
    files: Arc<TempFiles>,
    budget: Arc<TempBudget>,
    memory: Arc<MemoryPool>,
    /// Counts what is on its way to files and back, and refuses nothing: it is little, and gives back much.
    counted: Arc<MemoryPool>,
    cancel: CancelHandle,
    options: SpillOptions,
}

impl Spill {
    /// None yet.
    pub fn new(files: &Arc<TempFiles>, memory: &Arc<MemoryPool>, cancel: &CancelHandle, options: SpillOptions) -> Self {
        let inner = Inner {
            files: Arc::clone(files),
            budget: TempBudget::new(options.file_bytes_max),
            memory: Arc::clone(memory),
            counted: memory.counted(),
            cancel: cancel.clone(),
            options,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Bytes that were written so far.
    pub fn written_bytes(&self) -> u64 {
        self.inner.budget.written()
    }

    /// The memory of the statement.
    pub(crate) fn memory(&self) -> &Arc<MemoryPool> {
        &self.inner.memory
    }

    /// Whether an operator that holds so much is to go on in files, however much memory there is.
    pub fn is_enough(&self, held_bytes: u64) -> bool {
        self.inner.options.held_bytes_max.is_some_and(|max| held_bytes > max)
    }

    /// For what is taken whatever memory there is, because it is written next.
    pub(crate) fn reserve_counted(&self) -> Reservation {
        self.inner.counted.reserve(CONSUMER)
    }

    /// The pool in which that is counted.
    pub(crate) fn counted(&self) -> &Arc<MemoryPool> {
        &self.inner.counted
    }

    /// What may be on its way to files and back at once: half of what is free, because spilling consumers leave room
    /// for it, and what the statement reserved for that before it started at least.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        (self.inner.memory.free() / 2).clamp(self.inner.memory.floor_of_statement(), IN_FLIGHT_BYTES_MAX)
    }

    /// For rows of files that go through a stage: how many bytes at once, and what counts them.
    pub fn chunk(&self) -> (u64, Reservation) {
        (self.in_flight_bytes() / 4, self.reserve_counted())
    }

    /// What may be taken to read many places of files at once.
    pub(crate) fn spare_bytes(&self) -> u64 {
        let free = (self.inner.memory.free() / 2).max(self.inner.memory.floor_of_statement() / 2);
        self.inner.options.held_bytes_max.map_or(free, |max| free.min(max))
    }

    /// Whether this reservation would be given now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        !self.is_enough(bytes) && self.memory_has(bytes)
    }

    /// The same, whatever an operator is told to hold at most.
    pub(crate) fn memory_has(&self, bytes: u64) -> bool {
        self.inner.memory.reserve_spillable(CONSUMER).grow(bytes).is_ok()
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), OperatorError> {
        if self.inner.cancel.is_cancelled() { Err(OperatorError::Cancelled) } else { Ok(()) }
    }

    /// Awaits the disk, or that the statement is cancelled.
    pub(crate) async fn wait<T>(
        &self,
        mut task: IoTask<Result<T, TempFileError>>,
        lost: impl Fn(&std::io::Error) -> TempFileError,
    ) -> Result<T, OperatorError> {
        poll_fn(|context| {
            self.inner.cancel.register(context.waker());
            if let Poll::Ready(done) = Pin::new(&mut task).poll(context) {
                return Poll::Ready(match done {
                    Ok(result) => result.map_err(OperatorError::TempFile),
                    Err(error) => Err(OperatorError::TempFile(lost(&error))),
                });
            }
            if self.inner.cancel.is_cancelled() { Poll::Ready(Err(OperatorError::Cancelled)) } else { Poll::Pending }
        })
        .await
    }

    /// A turn that begins with the first piece of work.
    pub(crate) fn turn(&self) -> Turn {
        Turn { spill: self.clone(), until: None, pieces: 0 }
    }
}

impl fmt::Debug for Spill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spill").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

/// Has a task give way between pieces of work.
#[derive(Debug)]
pub(crate) struct Turn {
    spill: Spill,
    until: Option<Nanos>,
    pieces: u32,
}

impl Turn {
    /// To be awaited between pieces of some microseconds: lets others go first when the turn is over.
    pub async fn give_way(&mut self) -> Result<(), OperatorError> {
        let env = self.spill.inner.files.env();
        let now = env.now();
        self.pieces += 1;
        if now < *self.until.get_or_insert(now + TURN) && self.pieces < TURN_PIECES_MAX {
            return Ok(());
        }
        self.spill.check_cancelled()?;
        yield_to_tasks().await;
        (self.until, self.pieces) = (None, 0);
        Ok(())
    }
}

/// What an asynchronous method of a trait gives.
pub type Awaited<'a, T> = Pin<Box<dyn Future<Output = Result<T, OperatorError>> + Send + 'a>>;

/// Rows that are read from files, or made of them, as they are asked for.
pub trait RowStream: Send + Sync {
    /// The next rows; `None` after the last. After an error there are no others.
    fn next(&mut self) -> Awaited<'_, Option<Batch>>;
}

/// A sink that goes on in files when memory is refused. What it cannot take it hands to `emit`.
pub trait SpillingSink: Send + Sync {
    /// The number of jobs of a round that writes a part of what the sink holds; 0: everything is written. To be asked
    /// again after each round. Batches may be consumed meanwhile.
    fn spill_jobs(&self) -> Result<usize, OperatorError>;

    /// A piece of a job of the round, on any worker; `Pending`: the job goes on with the next call, and has one caller
    /// at a time.
    fn spill_job(&self, job: usize) -> Result<Poll<()>, OperatorError>;

    /// Returns when what the jobs of a round have handed on is in the files.
    fn written(&self) -> Awaited<'_, ()>;

    /// Takes a batch whatever memory there is. The next round has to write it.
    fn consume_anyway(&self, batch: Batch) -> Result<(), OperatorError>;

    /// Asked when all input was consumed: whether the rows will come from files, because some are there already, or
    /// because there is no memory to finish otherwise. Then [rounds](Self::spill_jobs) follow instead of
    /// [those](crate::Sink::finish_jobs) of a sink in memory.
    fn ends_in_files(&self) -> bool;

    /// The rows, when everything is written. Once.
    fn take_stream(&self) -> Result<Box<dyn RowStream>, OperatorError>;
}

/// Rows that are kept in a file, to be read several times.
#[derive(Clone, Debug)]
pub struct KeptRows(Lane);

impl KeptRows {
    /// Writes all rows of a stream.
    pub async fn write(spill: &Spill, stream: &mut dyn RowStream) -> Result<Self, OperatorError> {
        let lane = waiting::write_lane(spill, &SpillFile::new(spill, 1)?, stream).await?;
        Ok(Self(lane))
    }

    /// Reads them from the beginning.
    pub fn stream(&self) -> Box<dyn RowStream> {
        Box::new(self.0.reader())
    }
}

impl RowStream for LaneReader {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(self.next_batch())
    }
}

/// OFFSET and LIMIT of a stream.
pub struct LimitedRows {
    stream: Box<dyn RowStream>,
    skip: u64,
    left: u64,
}

impl LimitedRows {
    /// The rows behind the first `skip`, `fetch` at most.
    pub fn new(stream: Box<dyn RowStream>, skip: u64, fetch: Option<u64>) -> Self {
        Self { stream, skip, left: fetch.unwrap_or(u64::MAX) }
    }
}

impl RowStream for LimitedRows {
    fn next(&mut self) -> Awaited<'_, Option<Batch>> {
        Box::pin(async move {
            while self.left > 0 {
                let Some(batch) = self.stream.next().await? else { break };
                let skipped = self.skip.min(batch.rows as u64);
                self.skip -= skipped;
                let rows = (batch.rows as u64 - skipped).min(self.left);
                self.left -= rows;
                if rows > 0 {
                    return Ok(Some(batch.slice(skipped as usize, rows as usize)));
                }
            }
            Ok(None)
        })
    }
}
