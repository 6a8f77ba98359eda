//! What became of a change that somebody asked for.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use eris_platform::NodeId;
use eris_storage::{ContainerId, PartitionId};
use thiserror::Error;

use crate::lock::{Lock, lock};

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
    /// Another node has to stay.
    #[error("the last node cannot be given up")]
    LastNode,
}

type Outcome = Result<(), PlacementError>;

/// The two ends of an order: the change resolves it, whoever asked waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<Lock<(Option<Outcome>, Option<Waker>)>>);

impl Ticket {
    /// The first outcome counts.
    pub fn resolve(&self, outcome: Outcome) {
        let waker = {
            let mut state = lock(&self.0);
            state.0.get_or_insert(outcome);
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub async fn outcome(&self) -> Outcome {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if let Some(outcome) = state.0 {
                return Poll::Ready(outcome);
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
