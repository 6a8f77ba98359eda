//! What exists besides rows: containers, their schemas, and what relates them. A log keeps every change of it, a
//! checkpoint all of it, and a recovery makes it again.

mod make;

use std::sync::{Arc, MutexGuard};

use eris_storage::{ContainerId, Key, Schema, SegmentLayouts};

use crate::container::Container;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::foreign_key::{ForeignKeySpec, Side};
use crate::global_index::GlobalIndexSpec;
use crate::partition_table::Partitioning;
use crate::sequence::{SequenceId, SequenceSpec, SequenceState};
use crate::transaction::Transaction;

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
        let (schema, partitioning) = (container.defined_schema(), Partitioning::clone(&table.partitioning));
        Self::Container { schema, partitioning, cuts, like }
    }
}

/// The right to change definitions: nobody else changes or lists them until it is dropped.
pub(crate) struct Definitions<'e> {
    engine: &'e Engine,
    _held: MutexGuard<'e, ()>,
}

impl Definitions<'_> {
    /// Tells the log, if there is one, what takes effect before this is dropped.
    pub fn note(&self, definition: impl FnOnce() -> Definition) -> Result<(), EngineError> {
        match self.engine.runtime().log() {
            Some(log) => Ok(log.define(&definition())?),
            None => Ok(()),
        }
    }
}

/// Everything there is at one moment: rows, and what else exists.
pub struct Whole {
    /// Sees every row, also of containers that are dropped while it reads.
    pub snapshot: Transaction,
    /// In an order in which it can be made again. The rows of the snapshot obey all of it.
    pub definitions: Vec<Definition>,
    /// Kept, if they are dropped.
    containers: Vec<(Arc<Container>, Arc<Schema>)>,
}

impl Whole {
    /// The containers of this moment that have rows of their own, dropped since or not, and their schemas then.
    pub fn containers(&self) -> Vec<(Arc<Container>, Arc<Schema>)> {
        self.containers.clone()
    }
}

impl Engine {
    /// Before a change of definitions, which is short and waits for nothing.
    pub(crate) fn begin_definition(&self) -> Definitions<'_> {
        Definitions { engine: self, _held: self.runtime().hold_definitions() }
    }

    /// Everything there is at one moment, with every commit that is in the log by now.
    ///
    /// Definitions do not change while they are held, and a snapshot is taken meanwhile: so the two are of one moment.
    /// Whatever is enforced then holds for the rows of the snapshot, because it held for all rows that were there when
    /// it became a definition, and every later commit obeys it. Definitions that go leave first, and then cease to be
    /// enforced. A container that is dropped later is kept until the result is dropped.
    pub async fn begin_whole(&self) -> Whole {
        drop(self.begin_behind_log().await);
        let _held = self.runtime().hold_definitions();
        let logged = self.runtime().containers().into_iter().filter(|container| container.is_logged());
        let containers = logged.map(|container| (Arc::clone(&container), container.defined_schema())).collect();
        let mut snapshot = self.begin_internal();
        snapshot.pass_table_locks();
        // A checkpoint makes the log of a full database shorter; a batch is read at a time.
        snapshot.use_system_memory();
        Whole { snapshot, definitions: self.list_definitions(), containers }
    }

    /// Everything that exists, in an order in which it can be made again. Taken while definitions change, it has each
    /// of these changes or not.
    pub fn definitions(&self) -> Vec<Definition> {
        let _held = self.runtime().hold_definitions();
        self.list_definitions()
    }

    fn list_definitions(&self) -> Vec<Definition> {
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
            for key in container.foreign_keys(Side::Child).into_iter().filter(|key| key.is_established()) {
                definitions.push(Definition::ForeignKey(key.spec().clone()));
            }
        }
        definitions.extend(runtime.sequences.definitions());
        definitions
    }
}
