//! Living partitions at run time: workers, nodes, messages, dataflows, tasks, transactions.
//!
//! - From outside: [`Engine`], [`Transaction`], [`Results`], [`MicroOperator`]; under a seed: [`Simulation`].
//! - A [`container`](Container) is cut into partitions ([`partition`]) by a versioned table ([`partition_table`]).
//! - Workers ([`worker`]) poll tasks ([`task`]), process partitions and coordinate their [`node`].
//! - A [`message`] names a [`dataflow`], whose counter says when it is done.
//! - [`admission`] limits what runs at once; [`scatter`] moves messages in groups; [`traffic`] counts between nodes.
//! - [`transactions`] hands out snapshots and timestamps; [`serializable`] says which of them may not commit together,
//!   [`table_locks`] which of them may use a container at the same time.
//!   What they wrote ([`redo`]) goes into a [`commit_log`], and so does every [`definition`]. [`maintenance`] and
//!   [`placement`] keep partitions in shape; [`integrity`] says whether they are.

mod admission;
mod assignments;
mod cancel;
mod commit_log;
mod container;
mod counters;
mod dataflow;
mod definition;
mod description;
mod engine;
mod error;
mod foreign_key;
mod global_index;
mod history;
mod ids;
mod integrity;
mod keepers;
mod layout;
mod lock;
mod lookup;
mod maintenance;
mod memory;
pub mod message;
mod near;
mod node;
mod old_versions;
mod operator;
mod options;
mod partition;
mod partition_table;
mod placement;
mod ready;
mod redo;
mod results;
mod runtime;
mod scatter;
mod schema_change;
mod seats;
mod sequence;
mod serializable;
mod simulator;
mod spinning;
mod table_locks;
mod task;
mod ticket;
mod timer;
mod traffic;
mod transaction;
mod transactions;
mod visit;
mod waking;
mod worker;
mod write_rules;

pub use admission::{AdmissionError, AdmissionOptions, Admit, ClassLimit, Permit, STATEMENT_CLASSES, StatementClass};
pub use cancel::CancelHandle;
pub use commit_log::{Commit, CommitLog, Durability, LogError, PendingCommit};
pub use container::{Container, ContainerSpec, SYSTEM_CONTAINER};
pub use counters::{EVENTS, Event};
pub use definition::{Definition, Whole};
pub use description::{EngineStatistics, PartitionDescription};
pub use engine::{Engine, Opening};
pub use error::EngineError;
pub use foreign_key::{ForeignKeyError, ForeignKeySpec, ForeignKeyViolation, KeySide, ReferentialAction};
pub use global_index::GlobalIndexSpec;
pub use history::PartitionHistory;
pub use ids::{DataflowId, OperatorIndex, TableVersion};
pub use lookup::{Coalescing, Lookup};
pub use memory::{LocalMemory, NodeMemory};
pub use old_versions::SnapshotDescription;
pub use operator::{Change, Collect, MicroOperator, OperatorState, Output, RowChange, RowFilter};
pub use options::EngineOptions;
pub use partition_table::Partitioning;
pub use placement::{MoveMethod, PlacementError};
pub use redo::{NotRedo, RedoChange, RedoFormats, RedoHeader, RedoOperation, redo_operations};
pub use results::Results;
pub use sequence::{Sequence, SequenceError, SequenceId, SequenceSpec, SequenceState};
pub use simulator::{FAULTS, Fault, FaultOptions, Simulation, SimulationError};
pub use table_locks::{TableLockDescription, TableLockMode};
pub use task::{yield_now, yield_to_tasks};
pub use traffic::NodeTraffic;
pub use transaction::{
    BulkLoad, IsolationLevel, KeptTableLocks, LockWait, MemoryUse, PinStream, PinnedScan, ProbeReport, Probes, Read,
    Savepoint, Transaction,
};
pub use transactions::{SnapshotHandle, WaitReason};
