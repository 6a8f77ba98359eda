//! Checkpoints: what the database was at one timestamp, so that the log in front of it can go.
//!
//! ```text
//!   log position P ─> all in front of it visible ─> snapshot ─> definitions, rows ─> log durable ─> manifest
//!                                                                                                     │
//!                                 log files in front of P, data files that nobody names: removed  <───┘
//! ```
//! The snapshot is an ordinary one: nobody waits for a checkpoint, and nothing is copied but the rows of open segments,
//! a batch at a time. Sealed segments are pinned, and written by the thread of the checkpoint; one that was written
//! before is named again. Commits behind the snapshot are in the log.
//!
//! The log is durable up to the snapshot before the manifest names it: a checkpoint never knows more than its log.

mod block;
mod control;
mod copy;
mod histories;
mod load;
mod manifest;
mod take;
mod verify;

pub(crate) use control::{Control, run};
pub(crate) use copy::{Copied, copy_blocks};
pub(crate) use load::load;
pub(crate) use manifest::{FileEntry, Manifest};
pub use take::CheckpointReport;
pub(crate) use take::{Checkpointer, WrittenSegments, remove_orphans};
pub(crate) use verify::{Checked, check_data};
