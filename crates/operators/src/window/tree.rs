//! Partial states of a fold over consecutive rows, so that the state of any range of rows is put together quickly.
//!
//! ```text
//!   level 2   |               0               | ...      each of FAN_OUT nodes
//!   level 1   |   0   |   1   |   2   |   3   | ...      each of FAN_OUT rows
//!   rows       0 1 2 3 4 5 6 7 8 9 ...
//!                    [-- - --- ----- ------ - )          rows, nodes, rows: from left to right
//! ```
//! Chunks of rows are built independently. A range of few rows looks at rows only.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Mutex;

use eris_platform::Reservation;
use eris_storage::{Column, ColumnBuilder, DataType};

use super::Runner;
use super::frame::Frames;
use crate::error::OperatorError;
use crate::pipeline::lock;

/// Rows of a node of the first level, and nodes of a node of the others.
const FAN_OUT: usize = 16;
/// Rows that are built at a time: whole nodes of level [`CHUNK_LEVELS`].
pub(super) const CHUNK_ROWS: usize = FAN_OUT.pow(CHUNK_LEVELS as u32);
const CHUNK_LEVELS: usize = 4;
/// Levels that rows with numbers of 32 bits have at most.
const LEVELS_MAX: usize = 8;
const _: () = assert!((FAN_OUT as u64).pow(LEVELS_MAX as u32) > u32::MAX as u64, "the top is one node");

/// What is put together of rows.
pub(super) trait Fold: Debug + Send + Sync {
    /// Of some rows; the default is of none.
    type State: Clone + Default + Debug + Send + Sync;

    /// Adds rows behind those of the state.
    fn add(&self, state: &mut Self::State, rows: Range<usize>);

    /// Adds the rows of another state, which follow those of this one.
    fn merge(&self, state: &mut Self::State, next: &Self::State);

    /// Takes the first rows away; false if that cannot be done exactly: then the state is of no use any more.
    fn remove(&self, state: &mut Self::State, rows: Range<usize>) -> bool;

    /// Appends the result of a state.
    fn push(&self, state: &Self::State, result: DataType, builder: &mut ColumnBuilder) -> Result<(), OperatorError>;

    /// The results of states that were pushed, if they are something else than what was pushed.
    fn finish(&self, column: Column) -> Column {
        column
    }

    /// The type of what is pushed.
    fn pushed_type(&self, result: DataType) -> DataType {
        result
    }
}

/// The nodes of consecutive chunks, or of all: by level, from the first.
type Levels<S> = Vec<Vec<S>>;

/// See the module.
#[derive(Debug)]
pub(super) struct Tree<F: Fold> {
    fold: F,
    rows: usize,
    levels: Levels<F::State>,
    /// With their numbers.
    chunks: Mutex<Vec<(usize, Levels<F::State>)>>,
}

/// A tree of whatever fold.
pub(super) trait Folding: Debug + Send + Sync {
    /// Builds the nodes of a chunk of rows.
    fn build(&self, chunk: usize, memory: &Reservation) -> Result<(), OperatorError>;

    /// Puts the chunks together.
    fn complete(&mut self, memory: &Reservation) -> Result<(), OperatorError>;

    /// Folds frames.
    fn runner<'a>(&'a self, frames: Frames<'a>, result: DataType) -> Box<dyn Runner + 'a>;
}

impl<F: Fold> Tree<F> {
    pub fn new(fold: F, rows: usize) -> Self {
        Self { fold, rows, levels: Vec::new(), chunks: Mutex::new(Vec::new()) }
    }

    /// The level above some nodes.
    fn above(&self, nodes: &[F::State]) -> Vec<F::State> {
        let node = |nodes: &[F::State]| {
            let mut state = F::State::default();
            for node in nodes {
                self.fold.merge(&mut state, node);
            }
            state
        };
        nodes.chunks(FAN_OUT).map(node).collect()
    }

    /// Adds rows to a state, by whole nodes where there are any.
    fn add(&self, state: &mut F::State, rows: Range<usize>) {
        let Range { start: mut low, end: mut high } = rows;
        // Ends on the right are added when everything before them was.
        let mut rights: [Range<usize>; LEVELS_MAX] = Default::default();
        let mut level = 0;
        while high - low > 2 * FAN_OUT && level < self.levels.len() {
            let (left, right) = (low.next_multiple_of(FAN_OUT), high / FAN_OUT * FAN_OUT);
            self.add_at(state, level, low..left);
            rights[level] = right..high;
            (low, high) = (left / FAN_OUT, right / FAN_OUT);
            level += 1;
        }
        self.add_at(state, level, low..high);
        for below in (0..level).rev() {
            self.add_at(state, below, rights[below].clone());
        }
    }

    fn add_at(&self, state: &mut F::State, level: usize, nodes: Range<usize>) {
        match level.checked_sub(1) {
            None => self.fold.add(state, nodes),
            Some(level) => self.levels[level][nodes].iter().for_each(|node| self.fold.merge(state, node)),
        }
    }
}

impl<F: Fold> Folding for Tree<F> {
    fn build(&self, chunk: usize, memory: &Reservation) -> Result<(), OperatorError> {
        let rows = chunk * CHUNK_ROWS..((chunk + 1) * CHUNK_ROWS).min(self.rows);
        // Less than an eighth more for all levels above the first.
        let nodes = rows.len().div_ceil(FAN_OUT) * 9 / 8 + CHUNK_LEVELS;
        memory.grow((nodes * size_of::<F::State>()) as u64)?;
        let leaf = |start: usize| {
            let mut state = F::State::default();
            self.fold.add(&mut state, start..(start + FAN_OUT).min(rows.end));
            state
        };
        let mut levels = vec![rows.clone().step_by(FAN_OUT).map(leaf).collect::<Vec<_>>()];
        for level in 1..CHUNK_LEVELS {
            levels.push(self.above(&levels[level - 1]));
        }
        lock(&self.chunks).push((chunk, levels));
        Ok(())
    }

    fn complete(&mut self, memory: &Reservation) -> Result<(), OperatorError> {
        let mut chunks = std::mem::take(&mut *lock(&self.chunks));
        chunks.sort_unstable_by_key(|(chunk, _)| *chunk);
        for level in 0..CHUNK_LEVELS {
            let nodes: usize = chunks.iter().map(|(_, levels)| levels[level].len()).sum();
            let copied = (nodes * size_of::<F::State>()) as u64;
            memory.grow(copied)?;
            let mut whole = Vec::with_capacity(nodes);
            for (_, levels) in &mut chunks {
                whole.append(&mut std::mem::take(&mut levels[level]));
            }
            self.levels.push(whole);
            memory.shrink(copied);
        }
        while let Some(last) = self.levels.last()
            && last.len() > 2 * FAN_OUT
        {
            memory.grow((last.len().div_ceil(FAN_OUT) * size_of::<F::State>()) as u64)?;
            let above = self.above(last);
            self.levels.push(above);
        }
        Ok(())
    }

    fn runner<'a>(&'a self, frames: Frames<'a>, result: DataType) -> Box<dyn Runner + 'a> {
        Box::new(Moving { tree: self, frames, result, frame: 0..0, state: F::State::default() })
    }
}

/// The state of a frame that moves with its row.
#[derive(Debug)]
struct Moving<'a, F: Fold> {
    tree: &'a Tree<F>,
    frames: Frames<'a>,
    result: DataType,
    /// What the state is of.
    frame: Range<usize>,
    state: F::State,
}

impl<F: Fold> Moving<'_, F> {
    fn move_to(&mut self, frame: Range<usize>) {
        let before = std::mem::replace(&mut self.frame, frame.clone());
        let keeps_end = frame.end >= before.end;
        if keeps_end && frame.start == before.start {
            return self.tree.add(&mut self.state, before.end..frame.end);
        }
        let forward = keeps_end && frame.start > before.start && frame.start < before.end;
        let moved = forward.then(|| frame.start - before.start + frame.end - before.end);
        if moved.is_some_and(|moved| moved < frame.len())
            && self.tree.fold.remove(&mut self.state, before.start..frame.start)
        {
            return self.tree.add(&mut self.state, before.end..frame.end);
        }
        self.state = F::State::default();
        self.tree.add(&mut self.state, frame);
    }
}

impl<F: Fold> Runner for Moving<'_, F> {
    fn column(&mut self, rows: Range<usize>) -> Result<Column, OperatorError> {
        let fold = &self.tree.fold;
        let mut builder = ColumnBuilder::with_capacity(fold.pushed_type(self.result), rows.len());
        for row in rows {
            let frame = self.frames.of(row);
            self.move_to(frame);
            fold.push(&self.state, self.result, &mut builder)?;
        }
        Ok(fold.finish(builder.finish()))
    }
}
