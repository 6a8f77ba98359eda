//! The lock-free pieces, without dependencies.
//!
//! | piece | what for |
//! |---|---|
//! | [`double_buffer`] | incoming messages: many writers, one owner that never waits |
//! | [`try_latch`] | a living partition is processed by at most one worker, and nobody waits for it |
//! | [`sleepers`] | who sleeps and must be woken; no wake-up is lost |
//! | [`counter`] | each worker counts without sharing, readers sum |
//! | [`watermark_ring`] | the timestamp below which everything is finished |
//! | [`number_blocks`] | unique numbers, given out by workers without sharing |
//! | [`oldest_in_use`] | the snapshot below which nothing is read any more |
//! | [`queued_flag`] | a partition with work is in the queue once; no work lies there unseen |
//! | [`task_state`] | a woken task is in the queue once; no wake-up is lost |
//! | [`outstanding`] | a dataflow is over when its last command is, and that is noticed once; so is a transaction |
//! | [`decision`] | a transaction is decided once; who sees it sees that statements of it were rolled back |
//!
//! Each is model-checked: `RUSTFLAGS="--cfg loom" cargo test -p eris-sync --release loom` explores the interleavings of
//! `tests/loom_*.rs`. An ordering that matters is a named constant that `ERIS_LOOM_WEAK=NAME` weakens, and then
//! the model must fail; each test file lists its names with the command:
//! `ERIS_LOOM_WEAK=NAME RUSTFLAGS='--cfg loom' cargo test -p eris-sync --release loom`.

pub mod counter;
pub mod decision;
pub mod double_buffer;
pub mod number_blocks;
pub mod oldest_in_use;
pub mod outstanding;
pub mod queued_flag;
pub mod sleepers;
pub mod task_state;
pub mod try_latch;
pub mod watermark_ring;

mod line;
mod primitives;
mod words;

pub use counter::Counter;
pub use decision::Decision;
pub use double_buffer::{Consumer, DoubleBuffer, Drain, Full, Producer};
pub use line::Line;
pub use number_blocks::NumberBlocks;
pub use oldest_in_use::OldestInUse;
pub use outstanding::Outstanding;
pub use queued_flag::QueuedFlag;
pub use sleepers::{Claimed, Sleepers};
pub use task_state::TaskState;
pub use try_latch::{Guard, RawTryLatch, TryLatch};
pub use watermark_ring::WatermarkRing;
