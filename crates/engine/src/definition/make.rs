//! Making what a log or a checkpoint says existed, in an engine that nobody else uses yet.

use std::sync::Arc;

use eris_storage::{ContainerId, Key, Schema, Timestamp};

use super::Definition;
use crate::cancel::CancelHandle;
use crate::container::ContainerSpec;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::global_index::{GlobalIndex, GlobalIndexSpec};
use crate::partition_table::Partitioning;

impl Engine {
    /// Makes a definition, or brings what it names to what it says. A foreign key is taken to hold; a global index is
    /// made of the rows that are there.
    pub async fn make(&self, definition: &Definition) -> Result<(), EngineError> {
        match definition {
            Definition::Container { schema, partitioning, cuts, like } => {
                self.make_container(schema, partitioning, cuts, *like)
            }
            Definition::ContainerDropped(id) => match self.container(*id) {
                Some(_) => self.drop_container(*id),
                None => Ok(()),
            },
            Definition::Schema(schema) => self.bring_to_schema(schema).await,
            Definition::Layouts(container, layouts) => match self.container(*container) {
                Some(_) => self.set_layout(*container, None, layouts.as_deref().cloned()).await,
                None => Ok(()),
            },
            Definition::GlobalIndex(spec, hidden) => self.make_global_index(spec, *hidden).await,
            Definition::ForeignKey(spec) => self.restore_foreign_key(spec),
            Definition::ForeignKeyDropped(child, name) => {
                let known = self.foreign_keys(*child).unwrap_or_default();
                let is_there = known.iter().any(|spec| spec.name == *name && spec.child.container == *child);
                if is_there { self.drop_foreign_key(*child, name) } else { Ok(()) }
            }
            Definition::Sequence(id, spec, state) => self.restore_sequence(*id, spec, *state).map(drop),
            Definition::SequenceDropped(id) => match self.sequence(*id) {
                Some(_) => Ok(self.drop_sequence(*id)?),
                None => Ok(()),
            },
        }
    }

    /// Commits from now on have later timestamps than this one. Only while there are no transactions.
    pub fn continue_behind(&self, timestamp: Timestamp) {
        self.runtime().transactions.continue_behind(timestamp);
    }

    fn make_container(
        &self,
        schema: &Arc<Schema>,
        partitioning: &Partitioning,
        cuts: &[Key],
        like: Option<ContainerId>,
    ) -> Result<(), EngineError> {
        if self.container(schema.container).is_some() {
            return Ok(());
        }
        self.runtime().keep_container_id(schema.container);
        if let Some(like) = like.and_then(|like| self.container(like)) {
            let made = self.create_container_alike(Arc::clone(schema), partitioning.attributes(), &like);
            return made.map(drop).map_err(EngineError::from_foreign);
        }
        let spec = ContainerSpec { schema: Arc::clone(schema), partitioning: partitioning.clone() };
        match partitioning {
            Partitioning::Range(_) => self.create_range_container(spec, cuts).map(drop),
            Partitioning::Hash { .. } | Partitioning::Size { .. } => self.create_container(spec).map(drop),
        }
    }

    /// One index more or less at a time, as they were made.
    async fn bring_to_schema(&self, schema: &Arc<Schema>) -> Result<(), EngineError> {
        let Some(container) = self.container(schema.container) else { return Ok(()) };
        let before = container.schema();
        if before.version >= schema.version {
            return Ok(());
        }
        let new = schema.indexes.iter().find(|index| !before.indexes.contains(index));
        match new {
            Some(definition) => self.add_index(definition.clone(), Arc::clone(schema), CancelHandle::default()).await,
            None => self.drop_index(Arc::clone(schema)).await,
        }
    }

    async fn make_global_index(&self, spec: &GlobalIndexSpec, hidden: ContainerId) -> Result<(), EngineError> {
        let Some(container) = self.container(spec.container).filter(|_| self.container(hidden).is_none()) else {
            return Ok(());
        };
        self.runtime().keep_container_id(hidden);
        let (schema, partitioning) = spec.hidden_container(&container, hidden)?;
        let made = self.create_hidden_container(ContainerSpec { schema: Arc::new(schema), partitioning })?;
        let index = Arc::new(GlobalIndex::new(&container, &spec.attributes, made));
        let mut transaction = self.begin();
        transaction.fill_global_index(&container, &index).await?;
        transaction.commit().await?;
        container.add_global_index(index);
        Ok(())
    }
}
