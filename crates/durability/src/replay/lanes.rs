//! Lanes: tasks that do changes again side by side, each in the order in which it gets them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use eris_engine::{Engine, EngineError, RedoChange};

use super::Unusable;
use super::apply::{Applier, Step};
use crate::room::Pieces;

/// Chunks queued for a lane before the log reader waits.
const CHUNKS_MAX: usize = 4;
/// Share of the memory limit that the chunks of all lanes may use before the log reader waits.
const CHUNKS_SHARE: u64 = 64;
/// Steps of a chunk in one transaction where memory is short.
const FEW_STEPS: usize = 64;
/// Rows of so many bytes are a chunk, however few they are.
const CHUNK_BYTES: usize = 2 << 20;
/// The minimum under small limits: rows inserted in small batches take more memory.
const CHUNK_BYTES_MIN: usize = 512 << 10;
/// A row that is deleted counts as one in so many: it takes little, and each transaction that deletes rows of a segment
/// leaves a word of its own there.
const DELETED_SHARE: usize = 8;
/// What a step takes beside its rows: itself, its change, and what the allocator needs for both.
const STEP_BYTES: usize = size_of::<Step>() + size_of::<RedoChange>() + 64;

/// Steps that are done in one transaction.
#[derive(Default)]
struct Chunk {
    steps: Vec<Step>,
    rows: usize,
    bytes: usize,
}

/// See the [module](self). Dropping ends them.
pub(super) struct Lanes {
    queues: Vec<(Arc<Queue>, Chunk)>,
    /// Rows that are committed together, ...
    chunk_rows: usize,
    /// ... or those of so many bytes.
    chunk_bytes: usize,
    /// Upper bound of the bytes of a lane's chunks; a single chunk may exceed it.
    bytes_max: usize,
}

impl Lanes {
    /// As many as there are workers.
    pub fn start(engine: &Engine, chunk_rows: usize) -> Self {
        let pieces = Arc::new(Pieces::default());
        let lane = |_| {
            let queue = Arc::new(Queue::default());
            engine.spawn(run(engine.clone(), Consumer(Arc::clone(&queue)), Arc::clone(&pieces)));
            (queue, Chunk::default())
        };
        let queues: Vec<_> = (0..engine.worker_count()).map(lane).collect();
        let bytes = engine.memory().database_limit() / CHUNKS_SHARE / queues.len() as u64;
        let bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX);
        Self { queues, chunk_rows, chunk_bytes: (bytes_max / 2).clamp(CHUNK_BYTES_MIN, CHUNK_BYTES), bytes_max }
    }

    pub fn count(&self) -> usize {
        self.queues.len()
    }

    /// Gives a lane a step, which has so many rows of about so many bytes.
    pub async fn push(&mut self, lane: usize, step: Step, (rows, bytes): (usize, usize)) -> Result<(), Unusable> {
        let (queue, chunk) = &mut self.queues[lane];
        chunk.rows += match &*step.change {
            RedoChange::Delete { .. } => rows.div_ceil(DELETED_SHARE),
            _ => rows,
        };
        chunk.steps.push(step);
        chunk.bytes += STEP_BYTES + bytes;
        if chunk.rows < self.chunk_rows && chunk.bytes < self.chunk_bytes {
            return Ok(());
        }
        queue.push(std::mem::take(chunk), self.bytes_max).await
    }

    /// Waits until everything that lanes were given is done.
    pub async fn drain(&mut self) -> Result<(), Unusable> {
        for (queue, chunk) in &mut self.queues {
            if !chunk.steps.is_empty() {
                queue.push(std::mem::take(chunk), self.bytes_max).await?;
            }
        }
        for (queue, _) in &self.queues {
            queue.drained().await?;
        }
        Ok(())
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        for (queue, _) in &self.queues {
            queue.end();
        }
    }
}

async fn run(engine: Engine, consumer: Consumer, pieces: Arc<Pieces>) {
    while let Some(chunk) = consumer.0.next().await {
        if let Err(unusable) = apply_with_room(&engine, chunk, &pieces).await {
            return consumer.0.fail(unusable);
        }
    }
}

/// Does a chunk; where memory is too short for that, a few steps at a time, when there is room for their rows.
async fn apply_with_room(engine: &Engine, chunk: Chunk, pieces: &Pieces) -> Result<(), Unusable> {
    let is_short = |unusable: &Unusable| matches!(unusable, Unusable::Engine(error) if error.is_out_of_memory());
    match apply(engine, chunk.steps.clone()).await {
        Err(unusable) if is_short(&unusable) => {}
        done => {
            pieces.note_done();
            return done;
        }
    }
    for few in chunk.steps.chunks(FEW_STEPS) {
        let _turn = pieces.turn(engine).await;
        let mut tries = pieces.tries(engine);
        while let Err(unusable) = apply(engine, few.to_vec()).await {
            if !is_short(&unusable) || !tries.again().await {
                return Err(unusable);
            }
        }
        pieces.note_done();
    }
    Ok(())
}

async fn apply(engine: &Engine, mut steps: Vec<Step>) -> Result<(), Unusable> {
    // Containers are independent of each other. A stable sort, so that the steps of each keep their order.
    steps.sort_by_key(|step| step.schema.container);
    let mut transaction = engine.begin_internal();
    let mut steps = steps.into_iter().peekable();
    while let Some(container) = steps.peek().map(|step| step.schema.container) {
        let mut applier = Applier::new(&mut transaction);
        while let Some(step) = steps.next_if(|step| step.schema.container == container) {
            applier.apply(step).await?;
        }
        applier.finish().await?;
    }
    transaction.commit().await?;
    Ok(())
}

/// What is between whoever reads the log and a lane.
#[derive(Default)]
struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    chunks: VecDeque<Chunk>,
    /// Of these, and of the one that the lane is at.
    bytes: usize,
    /// What of it the lane is at, if it is at one.
    busy: Option<usize>,
    is_over: bool,
    failure: Option<Unusable>,
    /// Waits for room, or for all to be done.
    producer: Option<Waker>,
    consumer: Option<Waker>,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `is_reached` says so, or the lane has failed.
    async fn wait(&self, is_reached: impl Fn(&State) -> bool) -> Result<(), Unusable> {
        poll_fn(|context| {
            let mut state = self.state();
            if let Some(failure) = state.failure.take() {
                return Poll::Ready(Err(failure));
            }
            if is_reached(&state) {
                return Poll::Ready(Ok(()));
            }
            state.producer = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits until the lane has so few chunks and bytes that it may be given another one.
    async fn push(&self, chunk: Chunk, bytes_max: usize) -> Result<(), Unusable> {
        let fits = |state: &State| state.bytes == 0 || state.bytes + chunk.bytes <= bytes_max;
        self.wait(|state| state.chunks.len() < CHUNKS_MAX && fits(state)).await?;
        let consumer = {
            let mut state = self.state();
            state.bytes += chunk.bytes;
            state.chunks.push_back(chunk);
            state.consumer.take()
        };
        consumer.into_iter().for_each(Waker::wake);
        Ok(())
    }

    async fn drained(&self) -> Result<(), Unusable> {
        self.wait(|state| state.chunks.is_empty() && state.busy.is_none()).await
    }

    /// What the lane does next; what it did before is done.
    async fn next(&self) -> Option<Chunk> {
        poll_fn(|context| {
            let mut state = self.state();
            state.bytes -= state.busy.take().unwrap_or(0);
            let producer = state.producer.take();
            let next = if state.is_over { None } else { state.chunks.pop_front() };
            state.busy = next.as_ref().map(|chunk| chunk.bytes);
            let is_over = state.is_over;
            if next.is_none() {
                state.consumer = Some(context.waker().clone());
            }
            drop(state);
            producer.into_iter().for_each(Waker::wake);
            if next.is_some() || is_over { Poll::Ready(next) } else { Poll::Pending }
        })
        .await
    }

    fn fail(&self, unusable: Unusable) {
        self.state().failure.get_or_insert(unusable);
    }

    fn end(&self) {
        let consumer = {
            let mut state = self.state();
            state.is_over = true;
            state.consumer.take()
        };
        consumer.into_iter().for_each(Waker::wake);
    }
}

/// The lane's end of a queue: whoever waits for it hears when it goes.
struct Consumer(Arc<Queue>);

impl Drop for Consumer {
    fn drop(&mut self) {
        let producer = {
            let mut state = self.0.state();
            state.failure.get_or_insert(Unusable::Engine(EngineError::Cancelled));
            state.producer.take()
        };
        producer.into_iter().for_each(Waker::wake);
    }
}
