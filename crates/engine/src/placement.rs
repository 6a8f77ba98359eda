//! Where partitions live and how a container is cut: splits, merges, moves, groups, help. `docs/placement.md` draws and
//! argues them.
//!
//! - [`change`]: a change of bounds or home that copies rows, in quanta, driven by the partition that gives them away.
//! - [`publish`]: the switch of such a change: bounds, handovers, the next table version.
//! - [`outgrown`]: partitions that split for themselves; rising keys cut above instead.
//! - [`groups`]: containers partitioned alike change together.
//! - [`forwarders`]: what is left of a partition that gave everything away, and when it goes.
//! - [`orders`]: moves, merges and splits from outside.
//! - [`nodes`]: nodes that help others, nodes that are given up.

mod change;
mod error;
mod forwarders;
mod groups;
mod nodes;
mod orders;
mod outgrown;
mod publish;

pub(crate) use change::{Change, ChangeNext, Guest, continue_change};
pub use error::PlacementError;
pub(crate) use forwarders::look_after_forwarder;
pub(crate) use groups::Group;
pub(crate) use nodes::Helpers;
pub use orders::MoveMethod;
pub(crate) use outgrown::{cut_if_rising, split_above, wants_split};
