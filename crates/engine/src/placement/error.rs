//! Why a change of partitions did not happen.

use eris_platform::NodeId;
use eris_storage::{ContainerId, PartitionId};
use thiserror::Error;

/// Why a partition was not split, merged or moved. Its rows are where they were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PlacementError {
    /// No container has this partition (any more).
    #[error("partition {} does not exist", .0.0)]
    NoSuchPartition(PartitionId),
    /// The container was dropped, or never existed.
    #[error("container {} does not exist", .0.0)]
    NoSuchContainer(ContainerId),
    /// There is no such node, or it was given up.
    #[error("node {} does not exist or was given up", .0.0)]
    NoSuchNode(NodeId),
    /// The partitions are not neighbours in their container's table.
    #[error("partitions {} and {} are not neighbours", .0.0, .1.0)]
    NotNeighbours(PartitionId, PartitionId),
    /// Rows of a container that is partitioned by size have no positions: it cannot be merged or grouped.
    #[error("container {} is partitioned by size", .0.0)]
    NoPositions(ContainerId),
    /// The partitioning attributes of the two containers differ in number, type or method.
    #[error("the containers cannot be partitioned alike")]
    NotAlike,
    /// All rows have the same position.
    #[error("partition {} cannot be cut", .0.0)]
    NotDivisible(PartitionId),
    /// Readers, index builds or another change stood in the way; try again later.
    #[error("partition {} is busy", .0.0)]
    Busy(PartitionId),
    /// There is no memory for the copies.
    #[error("there is no memory to move rows of partition {}", .0.0)]
    OutOfMemory(PartitionId),
    /// The container was dropped meanwhile.
    #[error("the container was dropped")]
    Gone,
    /// The log takes no definitions any more.
    #[error("the log could not be written")]
    NotLogged,
    /// Another node has to stay.
    #[error("the last node cannot be given up")]
    LastNode,
}

/// A change of partitions that somebody waits for.
pub(super) type Ticket = crate::ticket::Ticket<Result<(), PlacementError>>;
