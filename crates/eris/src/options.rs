//! How a database is opened. The defaults fit the machine, or the container, that the process runs in.

use std::path::Path;

use eris_engine::EngineOptions;
use eris_platform::limits::{self, ResourceDefaults};
use eris_platform::{Pinning, WorkerPlan};

use crate::database::OpenError;

/// The smallest memory limit with which a database is of use: some small tables, a join of two. A table begins with
/// pages of 64 kB, and the fallback lane with batches of some thousand rows.
pub const MEMORY_LIMIT_MIN: u64 = 8 << 20;

/// Address space that a process takes whose database is empty: its code, what the allocator keeps at hand.
const ADDRESS_SPACE_FIXED: u64 = 384 << 20;
/// Address space of a worker, and of the thread of the fallback lane beside it, for their stacks.
const ADDRESS_SPACE_OF_WORKER: u64 = 24 << 20;
/// The smallest address space in which a process can open a database.
pub const ADDRESS_SPACE_MIN: u64 = 768 << 20;
/// What must be left: the allocator takes 200 MB at once when the first statement comes, and dies if it cannot.
const ADDRESS_SPACE_OF_ALLOCATOR: u64 = 336 << 20;

/// The largest memory limit for so many workers, where the address space is limited (`ulimit -v`). An allocation that
/// finds none ends the process, so the limit on memory has to refuse first. A fifth is left for what is not reserved,
/// and for holes between allocations.
fn memory_in_address_space(workers: usize) -> Option<u64> {
    let taken = ADDRESS_SPACE_FIXED + ADDRESS_SPACE_OF_WORKER * workers as u64;
    let left = limits::address_space()?.saturating_sub(taken);
    Some(if left < ADDRESS_SPACE_OF_ALLOCATOR { 0 } else { left / 5 * 4 })
}

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
    /// Bytes that versions may have which only old snapshots see; beyond, the transaction with the oldest snapshot
    /// fails (72000). `None`: a quarter of the memory; 0: as much as there is.
    pub old_version_limit_bytes: Option<u64>,
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
            memory_limit_bytes: machine.memory_bytes.min(memory_in_address_space(machine.workers).unwrap_or(u64::MAX)),
            temp_file_limit_bytes: None,
            old_version_limit_bytes: None,
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
        let (given, fits) = (self.memory_limit_bytes, memory_in_address_space(self.workers));
        if let Some(fits) = fits.filter(|fits| *fits < given.max(MEMORY_LIMIT_MIN)) {
            return Err(OpenError::AddressSpace { given: given.max(MEMORY_LIMIT_MIN), fits });
        }
        if given < MEMORY_LIMIT_MIN {
            return Err(OpenError::MemoryLimit { given });
        }
        WorkerPlan::unpinned(self.workers, self.nodes).map_err(OpenError::Placement)?;
        Ok(EngineOptions {
            workers: self.workers,
            nodes: self.nodes,
            pinning: self.pinning,
            memory_limit_bytes: self.memory_limit_bytes,
            old_version_limit_bytes: self.old_version_limit_bytes,
            in_place: self.in_place,
            split_rows: self.split_rows,
            ..EngineOptions::default()
        })
    }
}
