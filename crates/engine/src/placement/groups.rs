//! Partition groups: containers partitioned alike (parent and child by the same key) have the same bounds and homes,
//! so that rows that belong together are neighbours. A split, merge or move of one is a change of all: their copies are
//! made side by side and they switch together, under all latches, while the group's lock is held.

use std::sync::{Arc, MutexGuard, Weak};

use eris_storage::{AttributeId, Schema, Store};

use super::error::PlacementError;
use crate::container::Container;
use crate::definition::Definition;
use crate::engine::Engine;
use crate::ids::TableVersion;
use crate::lock::{Lock, lock};
use crate::partition::{Bounds, LivingPartition, Partition};
use crate::partition_table::{Entry, PartitionTable, Partitioning};

/// Containers partitioned alike.
#[derive(Debug, Default)]
pub(crate) struct Group {
    members: Lock<Vec<Weak<Container>>>,
    /// Held while tables of members are published: who holds it sees all at the same bounds.
    publishing: Lock<()>,
}

impl Group {
    pub fn of(first: &Arc<Container>) -> Arc<Self> {
        Arc::new(Self { members: Lock::new(vec![Arc::downgrade(first)]), publishing: Lock::default() })
    }

    pub fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.publishing)
    }

    /// The members that still exist.
    pub fn members(&self) -> Vec<Arc<Container>> {
        let mut members = lock(&self.members);
        members.retain(|member| member.upgrade().is_some_and(|container| !container.is_dropped()));
        members.iter().filter_map(Weak::upgrade).collect()
    }

    fn join(&self, container: &Arc<Container>) {
        lock(&self.members).push(Arc::downgrade(container));
    }
}

/// The containers that change with this one, itself first.
pub(super) fn members_with(container: &Arc<Container>) -> Vec<Arc<Container>> {
    let mut members = vec![Arc::clone(container)];
    if let Some(group) = container.group() {
        members.extend(group.members().into_iter().filter(|member| member.id() != container.id()));
    }
    members
}

/// The partitions of all members at the place of this one, itself first; none if the bounds differ at this moment.
pub(super) fn counterparts(
    container: &Arc<Container>,
    partition: &Partition,
) -> Option<Vec<(Arc<Container>, Partition)>> {
    let place = container.table().place_of(partition.id)?;
    let bounds = container.table().bounds_of(partition.id)?;
    let mut found = vec![(Arc::clone(container), Arc::clone(partition))];
    for member in members_with(container).into_iter().skip(1) {
        let table = member.table();
        let counterpart = Arc::clone(&table.entries().get(place)?.partition);
        if table.bounds_of(counterpart.id)? != bounds {
            return None;
        }
        found.push((member, counterpart));
    }
    Some(found)
}

impl Engine {
    /// Creates an empty container that is partitioned like `like` by `attributes`, and stays so: splits, merges and
    /// moves act on all members of the group, and their partitions at the same place have the same home. The attributes
    /// must have the types of `like`'s partitioning attributes, in the same order.
    pub fn create_container_alike(
        &self,
        schema: Arc<Schema>,
        attributes: &[AttributeId],
        like: &Arc<Container>,
    ) -> Result<Arc<Container>, PlacementError> {
        let runtime = self.runtime();
        let model = like.partitioning();
        let partitioning = match &*model {
            Partitioning::Range(_) => Partitioning::Range(attributes.into()),
            Partitioning::Hash { partitions, .. } => {
                Partitioning::Hash { attributes: attributes.into(), partitions: *partitions }
            }
            Partitioning::Size { .. } => return Err(PlacementError::NoPositions(like.id())),
        };
        let types = |schema: &Schema, attributes: &[AttributeId]| {
            let types = attributes.iter().map(|id| schema.attribute(*id).map(|attribute| attribute.data_type));
            types.collect::<Vec<_>>()
        };
        if types(&schema, attributes) != types(&like.schema(), model.attributes()) {
            return Err(PlacementError::NotAlike);
        }
        let group = like.group_or_new();
        let _held = group.hold();
        let table = like.table();
        let dictionaries = runtime.dictionaries(schema.container);
        let mut entries = Vec::new();
        for entry in table.entries() {
            let bounds = table.bounds_of(entry.partition.id).unwrap_or_default();
            let store = Store::new(runtime.store_options(&schema, &dictionaries));
            let id = runtime.next_partition_id();
            let home = entry.partition.home();
            let partition = Arc::new(LivingPartition::new(id, schema.container, home, store, bounds));
            runtime.add_partition(&partition);
            entries.push(Entry::new(entry.lower.clone(), partition));
        }
        let table = PartitionTable::new(TableVersion(1), Arc::new(partitioning), entries);
        let container = Arc::new(Container::new(schema, table, dictionaries, true, runtime.options.workers));
        let definitions = self.begin_definition();
        let noted = definitions.note(|| Definition::of_container(&container, Some(like.id())));
        noted.map_err(|_| PlacementError::NotLogged)?;
        container.set_group(Arc::clone(&group));
        group.join(&container);
        runtime.add_container(Arc::clone(&container));
        drop(definitions);
        Ok(container)
    }

    /// Whether two containers have the same bounds and homes, as members of a group have.
    pub fn are_partitioned_alike(&self, left: &Arc<Container>, right: &Arc<Container>) -> bool {
        let group = left.group();
        let _held = group.as_ref().map(|group| group.hold());
        let shape = |container: &Container| -> Vec<(Option<Bounds>, eris_platform::NodeId)> {
            let table = container.table();
            let entries = table.entries().iter();
            entries.map(|entry| (table.bounds_of(entry.partition.id), entry.partition.home())).collect()
        };
        shape(left) == shape(right)
    }
}
