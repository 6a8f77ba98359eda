//! What a transaction wrote, in a form that a log can keep and a recovery can do again.
//!
//! ```text
//!   write in a partition ──> operation ─┐
//!   write in a partition ──> operation ─┼─> buffer of the transaction ──> commit: without what was rolled back
//!   write in a partition ──> operation ─┘                            └──> long transactions: parts of it, ahead
//! ```
//! Operations say what became of rows, not where these lie: a row is named by its primary key, or by all of its values
//! where it has none ([`eris_storage::Schema::row_identity`]). So a log outlives splits, moves and layouts, and a
//! recovery may cut containers as it likes. Each is noted under the latch of the partition that did it. So the
//! operations on one key stand in the order in which they were done, whoever owned the key when.
//!
//! Global indexes are not noted: they follow from the rows.

mod buffer;
mod formats;
mod noting;
mod operation;

pub(crate) use buffer::{RedoBuffer, without};
pub use formats::RedoFormats;
pub(crate) use noting::Noting;
pub use operation::{NotRedo, RedoChange, RedoHeader, RedoOperation, redo_operations};
