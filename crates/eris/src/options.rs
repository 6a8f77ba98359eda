//! How a database is opened. The defaults fit the machine, or the container, that the process runs in.

use std::path::Path;

use eris_engine::EngineOptions;
use eris_platform::limits::{self, ResourceDefaults};
use eris_platform::{Pinning, WorkerPlan};

use crate::database::OpenError;

/// The smallest memory limit with which a database is of use: some small tables, a join of two. A table begins with
/// pages of 64 kB, and the fallback lane with batches of some thousand rows.
pub const MEMORY_LIMIT_MIN: u64 = 8 << 20;

// What takes address space was read from /proc/PID/maps of servers with 2 and 4 workers, with and without a directory,
// at a memory limit of 256 MB, after they had used the fallback lane and files and then had eight clients that sort and
// join: 560 to 770 MiB with 2 workers, 740 with 4. A thread that allocates has a segment of 32 MiB in the allocator.

/// Address space of a process but for its workers and what is accounted: 135 MiB of code, and segments of its first
/// thread, those that wait for signals and the log, and those of temporary files and checkpoints, with their stacks.
const ADDRESS_SPACE_FIXED: u64 = 384 << 20;
/// Address space of a worker, a stack of 16 MiB and a segment, and of the thread of the fallback lane beside it, 2 MiB
/// and a segment.
const ADDRESS_SPACE_OF_WORKER: u64 = 84 << 20;
/// The smallest address space in which a process can open a database.
pub const ADDRESS_SPACE_MIN: u64 = 768 << 20;
/// From this limit on the controller keeps the whole process within it (docs/memory.md, section 3). With 172 MB, 350
/// were resident.
const MEMORY_LIMIT_OF_PROCESS_MIN: u64 = 256 << 20;
/// The least that is left for data: two segments.
const ADDRESS_SPACE_OF_DATA_MIN: u64 = 64 << 20;

const _: () = assert!(
    ADDRESS_SPACE_FIXED + 2 * ADDRESS_SPACE_OF_WORKER + ADDRESS_SPACE_OF_DATA_MIN <= ADDRESS_SPACE_MIN,
    "two workers fit into the least address space"
);

/// The largest memory limit for so many workers, where the address space is limited (`ulimit -v`, `-d`). An allocation
/// that finds none ends the process, so the limit on memory has to refuse first. A fifth is left for holes between
/// allocations; half where the limit bounds what is reserved only, not the process.
fn memory_in_address_space(workers: usize) -> Option<u64> {
    limits::address_space().map(|bytes| memory_within(bytes, workers))
}

fn memory_within(address_space: u64, workers: usize) -> u64 {
    let taken = (workers as u64).saturating_mul(ADDRESS_SPACE_OF_WORKER).saturating_add(ADDRESS_SPACE_FIXED);
    let left = address_space.saturating_sub(taken);
    let bounds_process = left / 5 * 4;
    if left < ADDRESS_SPACE_OF_DATA_MIN {
        0
    } else if bounds_process >= MEMORY_LIMIT_OF_PROCESS_MIN {
        bounds_process
    } else {
        left / 2
    }
}

/// The memory limit if none is given: four fifths of the memory this process may use, or less, if its address space is
/// limited and has no room for that beside so many workers.
pub fn memory_limit_default(workers: usize) -> u64 {
    let machine = ResourceDefaults::detect(Path::new("/"));
    machine.memory_bytes.min(memory_in_address_space(workers).unwrap_or(u64::MAX))
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
            memory_limit_bytes: memory_limit_default(machine.workers),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_the_address_space_is_less_with_each_worker() {
        const MIB: u64 = 1 << 20;
        assert_eq!(memory_within(ADDRESS_SPACE_MIN, 2), (768 - 384 - 168) / 2 * MIB);
        assert!(memory_within(880 * MIB, 2) > 256 * MIB && memory_within(880 * MIB, 3) < 256 * MIB);
        assert_eq!(memory_within(ADDRESS_SPACE_MIN, 4), 0, "it is less than anything is done with");
        assert_eq!((memory_within(0, 1), memory_within(u64::MAX / 2, usize::MAX)), (0, 0));
    }
}
