//! What exists besides rows: containers, their schemas, and what relates them. A log keeps every change of it, a
//! checkpoint all of it, and a recovery makes it again.

mod make;

use std::sync::Arc;

use eris_storage::{ContainerId, Key, Schema, SegmentLayouts};

use crate::container::Container;
use crate::engine::Engine;
use crate::foreign_key::{ForeignKeySpec, Side};
use crate::global_index::GlobalIndexSpec;
use crate::partition_table::Partitioning;
use crate::sequence::{SequenceId, SequenceSpec, SequenceState};

/// A change of what exists. Each says the whole of what it names, so that to make it again does nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Definition {
    /// A container, empty.
    Container {
        /// Its schema, with its id.
        schema: Arc<Schema>,
        /// How it is cut.
        partitioning: Partitioning,
        /// The lower bounds of all partitions but the first, for containers that are cut into ranges.
        cuts: Box<[Key]>,
        /// The container that it is partitioned like, and stays so.
        like: Option<ContainerId>,
    },
    /// A container goes, with its global indexes and its foreign keys.
    ContainerDropped(ContainerId),
    /// A container has another schema: indexes more or less, further attributes.
    Schema(Arc<Schema>),
    /// The layouts of a container that were set by hand.
    Layouts(ContainerId, Option<Arc<SegmentLayouts>>),
    /// A global index, with the hidden container that holds it.
    GlobalIndex(GlobalIndexSpec, ContainerId),
    /// A foreign key.
    ForeignKey(ForeignKeySpec),
    /// A foreign key of a child goes.
    ForeignKeyDropped(ContainerId, Box<str>),
    /// A sequence, and where it goes on: values up to there may have been given.
    Sequence(SequenceId, SequenceSpec, SequenceState),
    /// A sequence goes.
    SequenceDropped(SequenceId),
}

impl Definition {
    pub(crate) fn of_container(container: &Container, like: Option<ContainerId>) -> Self {
        let table = container.table();
        let cuts = match *table.partitioning {
            Partitioning::Range(_) => table.entries().iter().filter_map(|entry| entry.lower.clone()).collect(),
            Partitioning::Hash { .. } | Partitioning::Size { .. } => Box::default(),
        };
        let (schema, partitioning) = (container.schema(), Partitioning::clone(&table.partitioning));
        Self::Container { schema, partitioning, cuts, like }
    }
}

impl Engine {
    /// Everything that exists, in an order in which it can be made again. Taken while definitions change, it has each
    /// of these changes or not.
    pub fn definitions(&self) -> Vec<Definition> {
        let runtime = self.runtime();
        let containers = runtime.containers();
        let mut definitions = Vec::new();
        for container in containers.iter().filter(|container| container.is_logged()) {
            // Members of a group are like its first one.
            let first = container.group().and_then(|group| group.members().first().map(|first| first.id()));
            definitions.push(Definition::of_container(container, first.filter(|first| *first < container.id())));
        }
        for container in &containers {
            for index in container.global_indexes().iter().flat_map(|indexes| indexes.iter()) {
                definitions.push(Definition::GlobalIndex(index.spec(container.id()), index.container().id()));
            }
        }
        for container in &containers {
            for key in container.foreign_keys(Side::Child) {
                definitions.push(Definition::ForeignKey(key.spec().clone()));
            }
        }
        definitions.extend(runtime.sequences.definitions());
        definitions
    }
}
