//! Layouts set by hand: of a container, or of one living partition.
//!
//! A container's layouts are kept beside its schema, for partitions and bulk loads to come, and told to the partitions
//! there are by a control message. Each partition rebuilds its segments in its own maintenance, a few rows at a time.

use std::sync::Arc;

use eris_storage::{AccessStatistics, ContainerId, PartitionId, Registry, SegmentLayouts, StorageError};

use crate::definition::Definition;
use crate::description::latch_patiently;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::partition::Partition;

impl Engine {
    /// Sets the layouts of a container's segments, or of one partition's; none: as the schema's `layout` says. Returns
    /// when the partitions know; segments are rebuilt afterwards, while they are read and written
    /// ([`Event::MaintenanceCalls`](crate::Event::MaintenanceCalls)). A partition that splits passes its layouts on.
    ///
    /// # Errors
    /// [`StorageError::Layout`] if the layouts do not fit the container, or it has no such partition.
    pub async fn set_layout(
        &self,
        container: ContainerId,
        partition: Option<PartitionId>,
        layouts: Option<SegmentLayouts>,
    ) -> Result<(), EngineError> {
        let container = self.runtime().container(container)?;
        if let Some(layouts) = &layouts {
            layouts.check(&container.schema().attributes, Registry::standard())?;
        }
        let layouts = layouts.map(Arc::new);
        let table = container.table();
        let target = match partition {
            None => {
                let definitions = self.begin_definition();
                definitions.note(|| Definition::Layouts(container.id(), layouts.clone()))?;
                container.set_layouts(layouts.clone());
                None
            }
            Some(id) => {
                let found = table.partitions().find(|partition| partition.id == id);
                let reason = || format!("container {} has no partition {id}", container.id());
                Some(found.ok_or_else(|| StorageError::Layout { reason: reason() })?)
            }
        };
        let mut transaction = self.begin();
        transaction.set_layouts(&container, &table, target, layouts).await?;
        transaction.commit().await.map(drop)
    }

    /// What was done to each partition of a container and to its attributes since its horizon began; without those that
    /// a worker is at all the time.
    pub fn access_statistics(
        &self,
        container: ContainerId,
    ) -> Result<Vec<(PartitionId, AccessStatistics)>, EngineError> {
        let table = self.runtime().container(container)?.table();
        let of = |partition: &Partition| {
            let state = latch_patiently(partition)?;
            Some((partition.id, state.store.access_statistics()))
        };
        Ok(table.partitions().filter_map(of).collect())
    }
}
