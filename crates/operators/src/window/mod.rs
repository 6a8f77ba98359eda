//! Window functions: a value for each row, computed from rows around it.
//!
//! Rows are sorted by the keys of the partition, then by those of its order. From there on a row is known by its
//! number, and a frame is a range of numbers:
//!
//! ```text
//!   row          0   1   2   3   4   5   6   7   8
//!   partition    |---------------|-------|-------|      [0, 4, 6]: where the key changes        (edges)
//!   group        |-------|---|---|---|---|-------|      [0, 2, 3, 4, 5, 6]: rows that are peers
//!   frame of 2   [-----------)                          0..3, UNBOUNDED PRECEDING to CURRENT ROW (frame)
//!
//!   numbers      row_number, rank, ...: from the bounds of partition and group        (numbers)
//!   picks        lag, first_value, ...: the value of another row                      (picks)
//!   folds        sum, min, ...: of the rows of a frame, by a tree of partial states   (fold, tree)
//! ```
//! Nothing depends on the row before, so that one large partition is as good as many small ones: all workers take
//! batches of it. What a frame shares with that of the row before is used again (`tree::Moving`).
//!
//! Trees of partial states are from Leis, Kundhikanjana, Kemper, Neumann, *Efficient Processing of Window Functions in
//! Analytical SQL Queries*, 2015.

mod edges;
mod external;
mod fold;
mod frame;
mod numbers;
mod picks;
mod sink;
#[cfg(test)]
mod spill_tests;
#[cfg(test)]
mod tests;
mod tree;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use eris_storage::{Column, DataType};

use crate::aggregate::AggregateFunction;
use crate::error::OperatorError;
use crate::sort::{SortKey, SortKeys};
pub use sink::WindowSink;

/// The windows of one stage: all over the same partitions in the same order.
#[derive(Clone, Debug)]
pub struct WindowSpec {
    /// The keys of the partition, then those of the order within it.
    pub keys: SortKeys,
    /// How many of the keys are the partition's.
    pub partition_keys: usize,
    /// Columns that go on, before the results.
    pub kept: Arc<[usize]>,
    /// What is computed: a column each.
    pub calls: Arc<[WindowCall]>,
}

impl WindowSpec {
    /// The columns that keys, functions and frames look at, each once.
    fn looked_at(&self) -> Vec<usize> {
        let calls = self.calls.iter().flat_map(|call| {
            let frame = call.function.has_frame().then(|| call.frame.columns());
            call.function.columns().into_iter().chain(frame.into_iter().flatten())
        });
        let mut columns: Vec<usize> = self.keys.0.iter().map(|key| key.column).chain(calls).collect();
        columns.sort_unstable();
        columns.dedup();
        columns
    }

    /// The same for rows of which only these columns are left, and none goes on.
    fn narrowed(&self, columns: &[usize]) -> Self {
        let place = |column: usize| columns.iter().position(|other| *other == column).unwrap_or(usize::MAX);
        let key = |key: &SortKey| SortKey { column: place(key.column), ..*key };
        let bound = |bound: FrameBound| match bound {
            FrameBound::Value { key: of, bound } => FrameBound::Value { key: key(&of), bound: place(bound) },
            other => other,
        };
        let call = |call: &WindowCall| WindowCall {
            function: call.function.moved(&place),
            frame: Frame { start: bound(call.frame.start), end: bound(call.frame.end), ..call.frame },
            result: call.result,
        };
        Self {
            keys: SortKeys(self.keys.0.iter().map(key).collect()),
            partition_keys: self.partition_keys,
            kept: Arc::new([]),
            calls: self.calls.iter().map(call).collect(),
        }
    }
}

/// One window function. Columns are those of the input, by position.
#[derive(Clone, Debug)]
pub struct WindowCall {
    /// What is computed.
    pub function: WindowFunction,
    /// The rows that it sees, if it looks at a frame.
    pub frame: Frame,
    /// The type of its result.
    pub result: DataType,
}

/// What a window function computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowFunction {
    /// The number of the row in its partition, from 1.
    RowNumber,
    /// The number of the first of its peers.
    Rank,
    /// The number of its group of peers.
    DenseRank,
    /// (rank - 1) / (rows - 1); 0 for the only row.
    PercentRank,
    /// The share of rows that come before it or are its peers.
    CumeDist,
    /// Which of so many buckets of rows as equal as possible; the first row of a partition that says it says how many.
    Ntile {
        /// An integer column.
        buckets: usize,
    },
    /// The value of a row some places before or behind.
    Shift {
        /// The value.
        value: usize,
        /// An integer column: how far. `None`: 1.
        offset: Option<usize>,
        /// The value of rows without such a row. `None`: NULL.
        default: Option<usize>,
        /// Behind (lead), not before (lag).
        ahead: bool,
    },
    /// The value of the frame's first row.
    FirstValue {
        /// The value.
        value: usize,
    },
    /// The value of the frame's last row.
    LastValue {
        /// The value.
        value: usize,
    },
    /// The value of one of the frame's rows.
    NthValue {
        /// The value.
        value: usize,
        /// An integer column: which, from 1.
        number: usize,
    },
    /// An aggregate of the frame's rows.
    Aggregate {
        /// Which.
        function: AggregateFunction,
        /// Its argument; `None` for count(*).
        input: Option<usize>,
    },
}

/// Which rows around a row a function sees. A frame whose end lies before its start is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What bounds count.
    pub unit: FrameUnit,
    /// The first row.
    pub start: FrameBound,
    /// The last row.
    pub end: FrameBound,
}

/// What the bounds of a frame count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameUnit {
    /// Rows: the current row is one.
    Rows,
    /// Groups of peers, or values: the current row is all of its peers.
    Groups,
}

/// One end of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameBound {
    /// The end of the partition on this side.
    Unbounded,
    /// The current row, or its peers.
    Current,
    /// So many rows or groups before.
    Preceding(u64),
    /// So many rows or groups behind.
    Following(u64),
    /// By value: a start is the first row whose key is at least the bound in the order of the rows, an end is the last
    /// row whose key is at most the bound. A row whose key is NULL sees those whose key is NULL.
    Value {
        /// The only key of the order.
        key: SortKey,
        /// The column of what keys are compared with, of their type.
        bound: usize,
    },
}

impl Frame {
    /// The whole partition.
    pub const PARTITION: Self =
        Self { unit: FrameUnit::Rows, start: FrameBound::Unbounded, end: FrameBound::Unbounded };

    /// The columns that its bounds look at.
    pub fn columns(&self) -> impl Iterator<Item = usize> + use<> {
        [self.start, self.end].into_iter().flat_map(|bound| match bound {
            FrameBound::Value { key, bound } => vec![key.column, bound],
            _ => Vec::new(),
        })
    }
}

impl WindowFunction {
    /// The columns that it looks at.
    pub fn columns(&self) -> Vec<usize> {
        match *self {
            Self::RowNumber | Self::Rank | Self::DenseRank | Self::PercentRank | Self::CumeDist => Vec::new(),
            Self::Ntile { buckets } => vec![buckets],
            Self::Shift { value, offset, default, .. } => {
                [Some(value), offset, default].into_iter().flatten().collect()
            }
            Self::FirstValue { value } | Self::LastValue { value } => vec![value],
            Self::NthValue { value, number } => vec![value, number],
            Self::Aggregate { input, .. } => input.into_iter().collect(),
        }
    }

    /// The same of columns in other places.
    fn moved(self, place: &impl Fn(usize) -> usize) -> Self {
        let may_be = |column: Option<usize>| column.map(place);
        match self {
            Self::RowNumber | Self::Rank | Self::DenseRank | Self::PercentRank | Self::CumeDist => self,
            Self::Ntile { buckets } => Self::Ntile { buckets: place(buckets) },
            Self::Shift { value, offset, default, ahead } => {
                Self::Shift { value: place(value), offset: may_be(offset), default: may_be(default), ahead }
            }
            Self::FirstValue { value } => Self::FirstValue { value: place(value) },
            Self::LastValue { value } => Self::LastValue { value: place(value) },
            Self::NthValue { value, number } => Self::NthValue { value: place(value), number: place(number) },
            Self::Aggregate { function, input } => Self::Aggregate { function, input: may_be(input) },
        }
    }

    /// Whether the frame matters to it.
    pub fn has_frame(&self) -> bool {
        match self {
            Self::RowNumber
            | Self::Rank
            | Self::DenseRank
            | Self::PercentRank
            | Self::CumeDist
            | Self::Ntile { .. }
            | Self::Shift { .. } => false,
            Self::FirstValue { .. } | Self::LastValue { .. } | Self::NthValue { .. } | Self::Aggregate { .. } => true,
        }
    }
}

/// Computes one call for consecutive rows, batch after batch.
trait Runner {
    /// The results of some rows, which follow those of the call before.
    fn column(&mut self, rows: Range<usize>) -> Result<Column, OperatorError>;
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_value = [self.start, self.end].iter().any(|bound| matches!(bound, FrameBound::Value { .. }));
        let unit = match self.unit {
            _ if by_value => "values",
            FrameUnit::Rows => "rows",
            FrameUnit::Groups => "groups",
        };
        let bound = |bound: FrameBound, end: &str| match bound {
            FrameBound::Unbounded => end.to_string(),
            FrameBound::Current => "current".to_string(),
            FrameBound::Preceding(count) => format!("{count} before"),
            FrameBound::Following(count) => format!("{count} behind"),
            FrameBound::Value { bound, .. } => format!("#{bound}"),
        };
        write!(f, "{unit} {} to {}", bound(self.start, "first"), bound(self.end, "last"))
    }
}
