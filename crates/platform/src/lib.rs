//! What the machine offers, behind traits: time, randomness, files, byte streams, threads, topology, node-local memory.
//!
//! Everything that can make two runs differ is reached through [`Env`]: [`RealEnv`] is Linux, [`SimulatedEnv`] is a
//! seeded machine on one thread. The remaining modules describe the machine ([`topology`], [`limits`], [`placement`]),
//! account for its memory and place it ([`memory`], [`memory_controller`], [`arena`]), and declare settings once
//! ([`settings!`]).

pub mod allocator;
pub mod appended;
pub mod arena;
pub mod env;
pub mod files;
pub mod hash;
pub mod ids;
pub mod interleave;
pub mod io_queue;
pub mod limits;
pub mod memory;
pub mod memory_controller;
pub mod memory_faults;
pub mod messages;
pub mod origin;
pub mod placement;
pub mod random;
pub mod reactor;
pub mod real;
pub mod settings;
pub mod simulated;
pub mod streams;
pub mod temp_files;
pub mod test_load;
pub mod threads;
pub mod time;
pub mod topology;

mod code_pages;
mod cpu_list;

pub use allocator::CountingAllocator;
pub use appended::AppendedFile;
pub use arena::{Arena, ArenaOptions, Block, Location};
pub use env::Env;
pub use files::{File, FileIdentity, FileKind, FileLock, Files, NotRegular, OpenMode, PositionedFile};
pub use hash::{DeterministicMap, DeterministicSet, DeterministicState};
pub use ids::{CpuId, NodeId, WorkerId};
pub use io_queue::{IoJob, IoQueue, IoTask};
pub use limits::ResourceDefaults;
pub use memory::{MemoryExceeded, MemoryPool, Reservation};
pub use memory_controller::{MemoryController, MemoryReport};
pub use memory_faults::MemoryFaults;
pub use origin::Origin;
pub use placement::{Pinning, PlacementError, WorkerPlacement, WorkerPlan};
pub use random::SeededRandom;
pub use reactor::{Reactor, ReactorHandle};
pub use real::RealEnv;
pub use settings::{Scope, Setting, SettingDeclaration, SettingError, SettingValue, SettingValues};
pub use simulated::SimulatedEnv;
pub use streams::{ByteStream, Listener};
pub use temp_files::{Extent, TempBudget, TempDirectory, TempFile, TempFileError, TempFiles, TempStatistics};
pub use test_load::test_load;
pub use threads::{ThreadHandle, ThreadPanicked};
pub use time::Nanos;
pub use topology::Topology;
