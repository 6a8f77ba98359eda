//! How a database is opened. The defaults fit the machine, or the container, that the process runs in.

use std::path::Path;

use eris_engine::EngineOptions;
use eris_platform::limits::ResourceDefaults;
use eris_platform::{Pinning, WorkerPlan};

use crate::database::OpenError;

/// The smallest memory limit with which a database is of use: some small tables, a join of two. A table begins with
/// pages of 64 kB, and the fallback lane with batches of some thousand rows.
pub const MEMORY_LIMIT_MIN: u64 = 8 << 20;

/// Options of [`crate::Database::open`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Worker threads in total, over all nodes. Default: the processors this process may use.
    pub workers: usize,
    /// Nodes; more than the machine has become virtual ones. Each has at least one worker.
    pub nodes: usize,
    /// Bytes that data and queries together may reserve. Default: four fifths of the memory this process may use.
    pub memory_limit_bytes: u64,
    /// Bytes that the temporary files of one statement may have, unless its session says otherwise; `None`: what the
    /// disk has.
    pub temp_file_limit_bytes: Option<u64>,
    /// Whether workers are pinned to hardware threads.
    pub pinning: Pinning,
    /// Whether statements without a native plan may run on the fallback lane; otherwise they are refused.
    pub fallback: bool,
    /// Whether a task may run a command in place on an idle partition of its node.
    pub in_place: bool,
    /// A partition with more rows than this is split.
    pub split_rows: u64,
}

impl Default for Options {
    fn default() -> Self {
        let machine = ResourceDefaults::detect(Path::new("/"));
        Options {
            workers: machine.workers,
            nodes: 1,
            memory_limit_bytes: machine.memory_bytes,
            temp_file_limit_bytes: None,
            pinning: Pinning::Auto,
            fallback: true,
            in_place: true,
            split_rows: EngineOptions::default().split_rows,
        }
    }
}

impl Options {
    /// The engine's part, after a check of what a user may have got wrong.
    pub(crate) fn engine(&self) -> Result<EngineOptions, OpenError> {
        if self.memory_limit_bytes < MEMORY_LIMIT_MIN {
            return Err(OpenError::MemoryLimit { given: self.memory_limit_bytes });
        }
        WorkerPlan::unpinned(self.workers, self.nodes).map_err(OpenError::Placement)?;
        Ok(EngineOptions {
            workers: self.workers,
            nodes: self.nodes,
            pinning: self.pinning,
            memory_limit_bytes: self.memory_limit_bytes,
            in_place: self.in_place,
            split_rows: self.split_rows,
            ..EngineOptions::default()
        })
    }
}
