//! Orders from outside: split, merge, move. Each returns when it is done, or says why not.

use std::sync::Arc;
use std::time::Duration;

use eris_platform::NodeId;
use eris_storage::PartitionId;

use super::change::{Change, Kind, Part};
use super::error::{PlacementError, Ticket};
use super::groups::counterparts;
use super::outgrown::request_split;
use crate::assignments::Urgency;
use crate::container::Container;
use crate::counters::Event;
use crate::engine::Engine;
use crate::partition::{Partition, PartitionState};
use crate::runtime::Runtime;
use crate::timer::Sleep;

/// How a partition gets to another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveMethod {
    /// It stays where it is in memory and gets another home: at once, but its rows are read over the interconnect.
    Link,
    /// Its rows are copied by workers of the other node, into memory of theirs; the old partition forwards.
    Copy,
}

/// How long to wait for a latch that somebody has.
const LATCH_WAIT: Duration = Duration::from_micros(100);
/// How often.
const LATCH_TRIES: usize = 200;

impl Engine {
    /// Splits a partition in two of about equal size, with its counterparts in the group.
    pub async fn split_partition(&self, partition: PartitionId) -> Result<(), PlacementError> {
        let (container, partition) = find(self.runtime(), partition)?;
        self.order(&partition, |state, ticket| request_split(self.runtime(), &container, &partition, state, ticket))
            .await
    }

    /// Makes one of two partitions that are neighbours in their container's table: all rows of `source` move into
    /// `survivor`, in quanta; best if `source` is the smaller one. Their counterparts in the group merge with them.
    pub async fn merge_partitions(&self, source: PartitionId, survivor: PartitionId) -> Result<(), PlacementError> {
        let runtime = self.runtime();
        let (container, source) = find(runtime, source)?;
        let (other, survivor) = find(runtime, survivor)?;
        let not_neighbours = PlacementError::NotNeighbours(source.id, survivor.id);
        if other.id() != container.id() {
            return Err(not_neighbours);
        }
        if !container.partitioning().has_positions() {
            return Err(PlacementError::NoPositions(container.id()));
        }
        let table = container.table();
        let bounds = |partition: &Partition| table.bounds_of(partition.id);
        let joined = bounds(&source).zip(bounds(&survivor)).and_then(|(source, survivor)| survivor.joined(&source));
        if joined.is_none() {
            return Err(not_neighbours);
        }
        drop(table);
        self.order(&source, |state, ticket| {
            let busy = PlacementError::Busy(source.id);
            let table = container.table();
            let still_neighbours =
                table.bounds_of(survivor.id).is_some_and(|bounds| bounds.joined(&state.bounds).is_some());
            let pairs = counterparts(&container, &source).zip(counterparts(&container, &survivor));
            let Some((sources, survivors)) =
                pairs.filter(|(left, right)| still_neighbours && left.len() == right.len())
            else {
                ticket.resolve(Err(busy));
                return None;
            };
            let parts = sources.iter().zip(&survivors);
            let parts = parts.map(|((container, source), (_, survivor))| Part::new(container, source, Some(survivor)));
            // The rows come to the survivor's memory.
            source.set_carer(survivor.home());
            let change = Change::request(runtime, Kind::Merge, parts.collect(), ticket);
            if change.is_none() {
                source.set_carer(source.home());
            }
            change
        })
        .await
    }

    /// Moves a partition and its counterparts in the group to another node.
    pub async fn move_partition(
        &self,
        partition: PartitionId,
        node: NodeId,
        method: MoveMethod,
    ) -> Result<(), PlacementError> {
        let runtime = self.runtime();
        let (container, partition) = find(runtime, partition)?;
        if usize::from(node.0) >= runtime.nodes.len() || runtime.node(node).is_given_up() {
            return Err(PlacementError::NoSuchNode(node));
        }
        if partition.home() == node {
            return Ok(());
        }
        match method {
            MoveMethod::Link => link(runtime, &container, &partition, node),
            MoveMethod::Copy => {
                self.order(&partition, |_, ticket| {
                    let Some(parts) = counterparts(&container, &partition) else {
                        ticket.resolve(Err(PlacementError::Busy(partition.id)));
                        return None;
                    };
                    let parts = parts.iter().map(|(container, source)| Part::new(container, source, None)).collect();
                    Change::request(runtime, Kind::Copy { node }, parts, ticket)
                })
                .await
            }
        }
    }

    /// Has a partition drive a change, and waits for its end.
    async fn order(
        &self,
        driver: &Partition,
        request: impl Fn(&mut PartitionState, Ticket) -> Option<Box<Change>>,
    ) -> Result<(), PlacementError> {
        let runtime = self.runtime();
        let busy = Err(PlacementError::Busy(driver.id));
        let ticket = Ticket::new();
        let mut ordered = false;
        for _ in 0..LATCH_TRIES {
            if let Some(mut state) = driver.try_latch() {
                if state.is_changing() {
                    return busy;
                }
                if state.is_forwarder() {
                    return Err(PlacementError::NoSuchPartition(driver.id));
                }
                state.change = request(&mut state, ticket.clone());
                ordered = true;
                break;
            }
            Sleep::until(runtime, runtime.env.now() + LATCH_WAIT).await;
        }
        if !ordered {
            return busy;
        }
        runtime.queue_maintenance(driver);
        ticket.outcome().await
    }
}

fn find(runtime: &Runtime, id: PartitionId) -> Result<(Arc<Container>, Partition), PlacementError> {
    let partition = runtime.find_partition(id).ok_or(PlacementError::NoSuchPartition(id))?;
    let container =
        runtime.container(partition.container).map_err(|_| PlacementError::NoSuchContainer(partition.container))?;
    if container.table().place_of(id).is_none() {
        return Err(PlacementError::NoSuchPartition(id));
    }
    Ok((container, partition))
}

/// Gives a partition and its counterparts another home. Their rows and their inboxes stay in place: a message finds a
/// partition by its id and is put into the assignment queue of its home of the moment; a broadcast is divided by the
/// homes in its own table.
pub(super) fn link(
    runtime: &Arc<Runtime>,
    container: &Arc<Container>,
    partition: &Partition,
    node: NodeId,
) -> Result<(), PlacementError> {
    let group = container.group();
    let _held = group.as_ref().map(|group| group.hold());
    let partitions = counterparts(container, partition).ok_or(PlacementError::NoSuchPartition(partition.id))?;
    for (container, partition) in &partitions {
        let mut known = true;
        container.publish_table(|table| {
            known = table.place_of(partition.id).is_some();
            if known {
                // Under the lock of the table: two links of one partition leave home and entry equal.
                partition.set_home(node);
                table.with_home(partition, node)
            } else {
                // It gave everything away at this moment.
                table.with_same_entries()
            }
        });
        if !known {
            return Err(PlacementError::NoSuchPartition(partition.id));
        }
        runtime.counters.add(Event::Links, 1);
        if !partition.inbox_is_empty() {
            runtime.visit(partition, Urgency::Urgent);
        }
        if runtime.machine.arena(node).is_some() {
            // Also if nobody uses it: its sealed columns follow.
            runtime.queue_maintenance(partition);
        }
    }
    Ok(())
}
