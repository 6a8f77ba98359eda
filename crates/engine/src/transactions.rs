//! Transactions below SQL: time stamps, snapshots, outcomes.
//!
//! A commit is one atomic write: the commit timestamp goes into the [`object`] of the transaction, and every lock word
//! that names the transaction resolves to it from then on. Stamping the words is left to the partitions
//! (`maintenance`), which give up their hold on the object once none of its words is left there. `docs/transactions.md`
//! tells the rest: waiting, deadlocks, rolling back a part, isolation levels, row locks.

mod manager;
mod object;
mod snapshots;
mod visibility;
mod waits;

pub(crate) use manager::TransactionManager;
pub(crate) use object::{StreamGuard, TransactionHold, TransactionObject};
pub use snapshots::SnapshotHandle;
pub use waits::WaitReason;
pub(crate) use waits::{TableLockWait, Wait};
