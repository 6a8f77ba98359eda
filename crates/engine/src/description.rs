//! What the engine tells about itself: the data behind the introspection views.

use eris_platform::{MemoryReport, NodeId};
use eris_storage::{
    ContainerId, MicroPlanDescription, PartitionId, SegmentDescription, StoreCounters, StoreStatistics, TransactionId,
};
use eris_sync::Guard;

use crate::counters::{EVENTS, Event};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::message::{PRIMITIVES, Primitive};
use crate::partition::{LivingPartition, PartitionState};
use crate::traffic::NodeTraffic;
use crate::transaction::Read;
use crate::transactions::WaitReason;

/// One living partition, as of now if its latch was free.
#[derive(Clone, Debug)]
pub struct PartitionDescription {
    pub id: PartitionId,
    pub container: ContainerId,
    pub home: NodeId,
    pub rows: u64,
    pub bytes: u64,
    /// `None` while a worker is at it.
    pub store: Option<StoreStatistics>,
    /// Empty while a worker is at it.
    pub segments: Vec<SegmentDescription>,
}

/// Sums over the whole engine.
#[derive(Clone, Debug)]
pub struct EngineStatistics {
    /// Every [`Event`] with its count.
    pub events: Vec<(Event, u64)>,
    /// Messages that reached a partition, by what they want.
    pub messages: Vec<(Primitive, u64)>,
    /// What the partitions' stores counted.
    pub store: StoreCounters,
    pub snapshots: u64,
    pub committed: u64,
    pub aborted: u64,
    /// Transactions that a lock word may still name.
    pub known_transactions: u64,
    /// SERIALIZABLE transactions whose reads and writes are known.
    pub tracked_transactions: u64,
    /// Partitions that gave everything away and still pass older messages on.
    pub forwarders: u64,
    /// The oldest snapshot in use: nothing younger is garbage-collected.
    pub oldest_snapshot: u64,
    /// The newest snapshot that a transaction may have: what lies between the two is kept for the oldest.
    pub newest_snapshot: u64,
    /// Transactions that wait for others.
    pub waiting_transactions: u64,
    pub memory_used_bytes: u64,
    pub memory_peak_bytes: u64,
    pub memory_by_consumer: Vec<(&'static str, u64)>,
    /// The last look at the process's memory, if somebody watches it.
    pub memory_report: Option<MemoryReport>,
}

impl EngineStatistics {
    /// The count of one event.
    pub fn event(&self, event: Event) -> u64 {
        self.events.iter().find(|(known, _)| *known == event).map_or(0, |(_, count)| *count)
    }
}

/// How often a busy partition is tried before its description goes without details.
const DESCRIBE_TRIES: usize = 1_000;

impl Engine {
    /// Counters and sums.
    pub fn statistics(&self) -> EngineStatistics {
        let runtime = self.runtime();
        let (snapshots, committed, aborted, known_transactions) = runtime.transactions.statistics();
        let mut store = StoreCounters::default();
        for partition in self.partitions() {
            if let Some(statistics) = &partition.store {
                store.add(&statistics.counters);
            }
        }
        EngineStatistics {
            events: EVENTS.iter().map(|event| (*event, runtime.counters.sum(*event))).collect(),
            messages: PRIMITIVES.iter().map(|kind| (*kind, runtime.counters.messages(*kind))).collect(),
            store,
            snapshots,
            committed,
            aborted,
            known_transactions,
            tracked_transactions: runtime.transactions.serializable.count(),
            forwarders: runtime.containers().iter().map(|container| container.forwarders().len() as u64).sum(),
            oldest_snapshot: runtime.transactions.oldest_snapshot().0,
            newest_snapshot: runtime.transactions.visible().0,
            waiting_transactions: runtime.transactions.waiting(),
            memory_used_bytes: runtime.memory.used(),
            memory_peak_bytes: runtime.memory.peak(),
            memory_by_consumer: runtime.memory.by_consumer(),
            memory_report: runtime.machine.last_report(),
        }
    }

    /// What a transaction waits for, if it waits.
    pub fn waits_for(&self, transaction: TransactionId) -> Option<WaitReason> {
        self.runtime().transactions.waits_for(transaction)
    }

    /// What crossed between nodes so far.
    pub fn traffic(&self) -> Vec<NodeTraffic> {
        self.runtime().traffic.read()
    }

    /// The micro-QEP with which one partition, the first that may have qualifying rows, would answer a read now.
    /// Another one may answer differently if its layout differs. `None` while a worker is at it.
    pub fn explain(&self, read: &Read) -> Result<Option<(PartitionId, MicroPlanDescription)>, EngineError> {
        let container = self.runtime().container(read.container)?;
        let table = container.table();
        let (left, _) = table.prune(&container.schema(), &read.request.predicate);
        let Some(partition) = table.entries()[left].first().map(|entry| &entry.partition) else { return Ok(None) };
        let Some(state) = latch_patiently(partition) else { return Ok(None) };
        let description = state.store.explain(&read.request)?;
        Ok(Some((partition.id, description)))
    }

    /// The partitions of a container, in the order of its table; none if there is no such container. Takes no latch.
    pub fn partition_ids(&self, container: ContainerId) -> Vec<PartitionId> {
        let container = self.runtime().container(container);
        container.map_or(Vec::new(), |container| container.table().partitions().map(|partition| partition.id).collect())
    }

    /// All partitions of all containers.
    pub fn partitions(&self) -> Vec<PartitionDescription> {
        let mut descriptions = Vec::new();
        for container in self.runtime().containers() {
            for partition in container.table().partitions() {
                let latched = latch_patiently(partition);
                let (store, segments) = latched
                    .map_or((None, Vec::new()), |state| (Some(state.store.statistics()), state.store.segments()));
                // What the partition published may lie behind what it holds.
                descriptions.push(PartitionDescription {
                    id: partition.id,
                    container: container.id(),
                    home: partition.home(),
                    rows: store.as_ref().map_or_else(|| partition.rows(), |store| store.rows_live_estimate),
                    bytes: store.as_ref().map_or_else(|| partition.bytes(), |store| store.bytes),
                    store,
                    segments,
                });
            }
        }
        descriptions
    }
}

/// The latch, unless a worker is at the partition all the time.
pub(crate) fn latch_patiently(partition: &LivingPartition) -> Option<Guard<'_, PartitionState>> {
    (0..DESCRIBE_TRIES).find_map(|_| {
        // Whoever is at it may have lost its processor to this very thread.
        std::thread::yield_now();
        partition.try_latch()
    })
}
