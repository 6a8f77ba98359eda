//! What partitions were told and what they learnt: layouts set by hand, and statistics of accesses. A checkpoint keeps
//! it, a recovery gives it back, so that whoever adapts partitions does not begin anew with every start.

use std::sync::Arc;

use eris_storage::{AccessHistory, ContainerId, Key, SegmentLayouts};

use crate::description::latch_patiently;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::partition::Partition;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq)]
pub struct PartitionHistory {
    /// Of which container.
    pub container: ContainerId,
    /// The partition's place in its table, ...
    pub place: usize,
    /// ... which does not count where partitions have bounds: then this one does, none for the first.
    pub lower: Option<Key>,
    /// Layouts set by hand, of the container or of the partition alone.
    pub layouts: Option<Arc<SegmentLayouts>>,
    /// What was done to it.
    pub accesses: AccessHistory,
}

impl Engine {
    /// What all partitions were told and learnt; without those that a worker is at all the time.
    pub fn partition_histories(&self) -> Vec<PartitionHistory> {
        let mut histories = Vec::new();
        for container in self.runtime().containers().iter().filter(|container| container.is_logged()) {
            for (place, entry) in container.table().entries().iter().enumerate() {
                let Some(state) = latch_patiently(&entry.partition) else { continue };
                histories.push(PartitionHistory {
                    container: container.id(),
                    place,
                    lower: entry.lower.clone(),
                    layouts: state.store.layouts().cloned(),
                    accesses: state.store.access_history(),
                });
            }
        }
        histories
    }

    /// Gives a partition back the layouts that it had, before its rows come; if it is there. Only while nobody else
    /// uses the engine.
    pub fn restore_layouts(&self, history: &PartitionHistory) -> Result<(), EngineError> {
        let Some(partition) = self.partition_of(history) else { return Ok(()) };
        let Some(mut state) = latch_patiently(&partition) else { return Ok(()) };
        Ok(state.store.set_layouts(history.layouts.clone())?)
    }

    /// Has a partition go on from what it had counted of accesses, when its rows are there; if it is there.
    pub fn restore_accesses(&self, history: &PartitionHistory) {
        let Some(partition) = self.partition_of(history) else { return };
        let Some(mut state) = latch_patiently(&partition) else { return };
        state.store.continue_history(&history.accesses);
    }

    fn partition_of(&self, history: &PartitionHistory) -> Option<Partition> {
        let table = self.container(history.container)?.table();
        let entry = if table.partitioning.has_positions() {
            table.entries().iter().find(|entry| entry.lower == history.lower)
        } else {
            table.entries().get(history.place)
        };
        entry.map(|entry| Arc::clone(&entry.partition))
    }
}
