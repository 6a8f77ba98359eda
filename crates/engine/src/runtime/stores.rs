//! New stores: what they are made of, and what those of one container share.

use std::sync::Arc;

use eris_platform::MemoryPool;
use eris_storage::{ContainerDictionaries, ContainerId, Schema, Store, StoreOptions};

use super::Runtime;
use crate::container::SYSTEM_CONTAINER;

impl Runtime {
    /// The memory of a container.
    fn memory_of(&self, container: ContainerId) -> &Arc<MemoryPool> {
        if container == SYSTEM_CONTAINER { &self.system_memory } else { &self.memory }
    }

    /// What the partitions of a new container share.
    pub fn dictionaries(&self, container: ContainerId) -> Arc<ContainerDictionaries> {
        ContainerDictionaries::new(self.memory_of(container))
    }

    /// What a new store of a container is made of.
    pub fn store_options(&self, schema: &Arc<Schema>, dictionaries: &Arc<ContainerDictionaries>) -> StoreOptions {
        StoreOptions { dictionaries: Some(Arc::clone(dictionaries)), ..self.own_options(schema) }
    }

    fn own_options(&self, schema: &Arc<Schema>) -> StoreOptions {
        // The store of the system container is refused nothing anyway.
        let system = schema.container == SYSTEM_CONTAINER;
        let memory = if system { Arc::clone(&self.system_memory) } else { self.memory.of_store() };
        let options = StoreOptions::new(Arc::clone(schema), memory);
        StoreOptions { updates_in_place: self.options.updates_in_place, ..options }
    }

    /// An empty store beside another of the same container.
    pub fn store_beside(&self, source: &Store) -> Store {
        let dictionaries = source.dictionaries().cloned();
        Store::new(StoreOptions { dictionaries, ..self.own_options(source.schema()) })
    }
}
