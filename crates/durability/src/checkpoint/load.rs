//! Making an empty engine what a checkpoint says, several blocks at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use eris_engine::{Definition, Engine};
use eris_platform::{Files, IoQueue, allocator, io_queue};
use eris_storage::{Batch, ContainerId, DataType, SegmentIdentity};

use super::block::{BlockKind, DataReader, damaged};
use super::manifest::{BlockEntry, Manifest};
use super::take::WrittenSegments;
use crate::directory::{DatabaseId, Directory};
use crate::error::DurabilityError;
use crate::room::Pieces;

/// Rows of a block that are loaded at a time where memory is short.
const FEW_ROWS: usize = 1 << 12;

/// Blocks in flight may use this share of the memory limit; a single block may exceed it.
const BLOCKS_SHARE: u64 = 16;
/// Extra bytes of a value in a column over a block, at most: the view of a text.
const VIEW_BYTES: u64 = 16;

/// Tells how far loading is: bytes that are loaded.
type Tell<'t> = &'t mut (dyn FnMut(u64) + Send);

/// A segment that holds a block, and how many columns it has.
type WholeSegment = (Arc<SegmentIdentity>, usize);

/// What the loaders share.
struct Work {
    engine: Engine,
    directory: PathBuf,
    id: DatabaseId,
    left: Mutex<Left>,
    pieces: Pieces,
    done: Mutex<Done>,
}

/// A block, and what it takes while it is read and loaded.
struct Block {
    entry: BlockEntry,
    cost: u64,
}

/// What is not loaded yet.
struct Left {
    blocks: VecDeque<Block>,
    /// Estimated bytes of the blocks that loaders hold.
    in_flight: u64,
    /// Upper bound of `in_flight`; a single block may exceed it.
    in_flight_max: u64,
    /// Wakers of loaders that wait for room.
    waiting: Vec<Waker>,
}

#[derive(Default)]
struct Done {
    bytes: u64,
    running: usize,
    written: WrittenSegments,
    failure: Option<DurabilityError>,
    waker: Option<Waker>,
}

impl Work {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next block, once there is room for it.
    async fn next(&self) -> Option<Block> {
        poll_fn(|context| self.poll_next(Some(context.waker()))).await
    }

    /// The next block, if there is room for it beside the others.
    fn next_if_room(&self) -> Option<Block> {
        match self.poll_next(None) {
            Poll::Ready(block) => block,
            Poll::Pending => None,
        }
    }

    fn poll_next(&self, waker: Option<&Waker>) -> Poll<Option<Block>> {
        let has_failed = self.done().failure.is_some();
        let mut left = self.left();
        let Some(next) = left.blocks.front().filter(|_| !has_failed) else { return Poll::Ready(None) };
        let in_flight = left.in_flight + next.cost;
        if left.in_flight > 0 && in_flight > left.in_flight_max {
            left.waiting.extend(waker.cloned());
            return Poll::Pending;
        }
        left.in_flight = in_flight;
        Poll::Ready(left.blocks.pop_front())
    }

    /// What became of a block.
    fn note(&self, entry: &BlockEntry, loaded: Result<Option<WholeSegment>, DurabilityError>) {
        let mut done = self.done();
        match loaded {
            Ok(segment) => {
                done.bytes += entry.place.length;
                if let Some((segment, columns)) = segment {
                    done.written.add(&segment, columns, entry);
                }
            }
            Err(error) => {
                done.failure.get_or_insert(error);
            }
        }
        if let Some(waker) = &done.waker {
            waker.wake_by_ref();
        }
    }

    /// A block is loaded, or will not be.
    fn release(&self, cost: u64) {
        let waiting = {
            let mut left = self.left();
            left.in_flight -= cost;
            std::mem::take(&mut left.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// What a block takes while it is read and loaded: what was read, and columns, twice if some of its rows are gone.
fn cost_of(engine: &Engine, entry: &BlockEntry) -> u64 {
    let attributes = engine.container(ContainerId(entry.container)).map_or(0, |it| it.schema().attributes.len() as u64);
    let columns = entry.place.length + u64::from(entry.rows) * attributes * VIEW_BYTES;
    entry.place.length + columns * if entry.live.is_some() { 2 } else { 1 }
}

/// What was loaded, and what is left to the caller.
pub(crate) struct Loaded {
    /// Definitions of what is made of rows: global indexes, foreign keys.
    pub left: Vec<Definition>,
    /// Segments that are as a block has them.
    pub written: WrittenSegments,
}

/// Makes the containers of a checkpoint with their rows.
pub(crate) async fn load(
    engine: &Engine,
    directory: &Directory,
    manifest: &mut Manifest,
    tell: Tell<'_>,
) -> Result<Loaded, DurabilityError> {
    let broken = |reason| DurabilityError::Damaged {
        file: directory.checkpoint().join(super::manifest::MANIFEST),
        offset: None,
        reason,
        help: crate::error::RESTORE,
    };
    let mut left = Vec::new();
    for stored in std::mem::take(&mut manifest.definitions) {
        let definition = stored.definition().map_err(broken)?;
        match definition {
            Definition::GlobalIndex(..) | Definition::ForeignKey(_) => left.push(definition),
            definition => engine.make(&definition).await?,
        }
    }
    let mut histories = Vec::new();
    for stored in std::mem::take(&mut manifest.histories) {
        let history = stored.history().map_err(broken)?;
        engine.restore_layouts(&history)?;
        histories.push(history);
    }
    let loaders = engine.worker_count().min(manifest.blocks.len());
    let block = |entry: &BlockEntry| Block { entry: entry.clone(), cost: cost_of(engine, entry) };
    let work = Arc::new(Work {
        engine: engine.clone(),
        directory: directory.checkpoint(),
        id: directory.id(),
        left: Mutex::new(Left {
            blocks: manifest.blocks.iter().map(block).collect(),
            in_flight: 0,
            in_flight_max: engine.memory().database_limit() / BLOCKS_SHARE,
            waiting: Vec::new(),
        }),
        pieces: Pieces::default(),
        done: Mutex::default(),
    });
    work.done().running = loaders;
    for number in 0..loaders {
        let env = Arc::clone(engine.env());
        let path = directory.checkpoint();
        let queue = env.io_queue(&format!("eris-load-{number}"));
        let queue = queue.map_err(DurabilityError::io("start the thread that reads", &path))?;
        let loader = Loader { work: Arc::clone(&work), queue };
        engine.spawn(loader.run());
    }
    poll_fn(|context| {
        let mut done = work.done();
        tell(done.bytes);
        if done.running == 0 {
            return Poll::Ready(());
        }
        done.waker = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
    for history in &histories {
        engine.restore_accesses(history);
    }
    let mut done = work.done();
    let written = std::mem::take(&mut done.written);
    done.failure.take().map_or(Ok(Loaded { left, written }), Err)
}

/// A block that is being read.
struct Reading {
    block: Block,
    rows: io_queue::IoTask<Result<Batch, DurabilityError>>,
}

struct Loader {
    work: Arc<Work>,
    queue: Arc<dyn IoQueue>,
}

/// Counts a loader out, however it ends.
struct Running(Arc<Work>);

impl Drop for Running {
    fn drop(&mut self) {
        let waker = {
            let mut done = self.0.done();
            done.running -= 1;
            done.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Loader {
    async fn run(self) {
        let running = Running(Arc::clone(&self.work));
        let mut ahead: Option<Reading> = None;
        loop {
            let Reading { block, rows } = match ahead.take() {
                Some(reading) => reading,
                None => match self.work.next().await {
                    Some(block) => self.read(block),
                    None => break,
                },
            };
            // The next block is read while this one is loaded.
            ahead = self.work.next_if_room().map(|block| self.read(block));
            let entry = &block.entry;
            let loaded = match rows.await {
                Ok(Ok(rows)) => self.load(entry, rows).await,
                Ok(Err(error)) => Err(error),
                Err(error) => Err(DurabilityError::io("read", &self.work.directory)(error)),
            };
            self.work.note(entry, loaded);
            self.give_back().await;
            self.work.release(block.cost);
        }
        drop(running);
    }

    fn read(&self, block: Block) -> Reading {
        let entry = block.entry.clone();
        let types = self.work.engine.container(ContainerId(entry.container)).map(|it| it.schema().data_types());
        let (directory, id) = (self.work.directory.clone(), self.work.id);
        let rows = io_queue::run(&self.queue, move |files| {
            let types = types.unwrap_or_default();
            read(files, &directory, id, &entry, &types)
        });
        Reading { block, rows }
    }

    /// Above half of the memory limit, the reading thread returns the freed memory of the block it read: freed memory
    /// belongs to the thread that allocated it, and no other thread can return it.
    async fn give_back(&self) {
        let memory = self.work.engine.memory();
        if memory.used() > memory.limit() / 2 {
            // Best effort: an error means that the thread has ended.
            let _ = io_queue::run(&self.queue, |_| allocator::give_back()).await;
        }
    }

    /// Loads the rows of a block; where memory is too short for that, a few at a time, when there is room for them.
    async fn load(&self, entry: &BlockEntry, rows: Batch) -> Result<Option<WholeSegment>, DurabilityError> {
        let mut tries = self.work.pieces.tries(&self.work.engine);
        let mut turn = None;
        for _ in 0..2 {
            match self.try_load(entry, rows.clone()).await {
                Err(error) if error.is_out_of_memory() => {}
                loaded => return loaded,
            }
            if turn.is_none() {
                turn = Some(self.work.pieces.turn(&self.work.engine).await);
            }
            tries.again().await;
        }
        for from in (0..rows.rows).step_by(FEW_ROWS) {
            let few = rows.slice(from, FEW_ROWS.min(rows.rows - from));
            let mut tries = self.work.pieces.tries(&self.work.engine);
            while let Err(error) = self.try_load(entry, few.clone()).await {
                if !error.is_out_of_memory() || !tries.again().await {
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Loads the rows of a block; gives the segment that holds all of them, and nothing else, if there is one, and its
    /// columns.
    async fn try_load(&self, entry: &BlockEntry, rows: Batch) -> Result<Option<WholeSegment>, DurabilityError> {
        let container = ContainerId(entry.container);
        let (columns, is_whole) = (rows.columns.len(), rows.rows == entry.rows as usize);
        let mut transaction = self.work.engine.begin_internal();
        let mut load = transaction.bulk(container)?.encode_later();
        load.append(rows).await?;
        let (_, segments) = load.finish_segments().await?;
        transaction.commit().await?;
        self.work.pieces.note_done();
        let only = (segments.len() == 1 && is_whole).then(|| segments[0].upgrade()).flatten();
        Ok(only.filter(|segment| segment.rows() == entry.rows).map(|segment| (segment, columns)))
    }
}

/// The rows of a block that are there.
fn read(
    files: &dyn Files,
    directory: &std::path::Path,
    id: DatabaseId,
    entry: &BlockEntry,
    types: &[DataType],
) -> Result<Batch, DurabilityError> {
    let reader = DataReader::open(files, directory, id, entry.place.file)?;
    let bytes = reader.read(entry.place, BlockKind::Rows)?;
    let broken = |reason: &str| damaged(reader.path(), entry.place.offset, reason);
    let rows = Batch::load(types, &bytes).map_err(|error| broken(error.reason))?;
    if rows.rows != entry.rows as usize || rows.columns.len() != types.len() {
        return Err(broken("the block has other rows than the manifest says"));
    }
    let Some(place) = entry.live else { return Ok(rows) };
    let reader = DataReader::open(files, directory, id, place.file)?;
    let live = reader.read(place, BlockKind::LiveRows)?;
    if live.len() != rows.rows.div_ceil(8) {
        return Err(damaged(reader.path(), place.offset, "there is not one bit for each row"));
    }
    let is_live = |row: &u32| live[*row as usize / 8] >> (row % 8) & 1 != 0;
    Ok(rows.take(&(0..rows.rows as u32).filter(is_live).collect::<Vec<_>>()))
}
