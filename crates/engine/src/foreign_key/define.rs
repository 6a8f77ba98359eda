//! Making and dropping foreign keys.
//!
//! Definitions of one container (its indexes, its foreign keys, its end) do not run at the same time: whoever orders
//! them sees to that. Writes may.

use std::sync::Arc;

use eris_storage::{ContainerId, Predicate, ReadRequest, Schema};

use super::{ForeignKey, ForeignKeyError, ForeignKeySpec, Side, has_unique_key};
use crate::container::Container;
use crate::definition::Definition;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::runtime::Runtime;
use crate::transaction::{Read, distinct_keys, found_positions, until_visible};

/// Takes a constraint back unless it was found to hold.
struct Proposed<'e> {
    runtime: &'e Runtime,
    key: Arc<ForeignKey>,
    holds: bool,
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        if !self.holds {
            forget(self.runtime, &self.key);
        }
    }
}

fn forget(runtime: &Runtime, key: &Arc<ForeignKey>) {
    key.mark_dropped();
    for side in [&key.spec.child, &key.spec.parent] {
        if let Ok(container) = runtime.container(side.container) {
            container.remove_foreign_key(key);
        }
    }
}

impl Engine {
    /// Adds a foreign key and checks the rows that exist. Waits for transactions that have written to either container,
    /// so the caller has none of its own under way that did. Until it returns, the foreign key is enforced but may be
    /// taken back.
    ///
    /// # Errors
    /// [`EngineError::ForeignKey`] if it cannot be; [`EngineError::ForeignKeyViolation`] if a row has no parent.
    pub async fn create_foreign_key(&self, spec: &ForeignKeySpec) -> Result<(), EngineError> {
        let runtime = self.runtime();
        let key = Arc::new(ForeignKey::new(runtime, spec)?);
        let child = runtime.container(spec.child.container)?;
        let parent = runtime.container(spec.parent.container)?;
        child.add_foreign_key(&key)?;
        let mut proposed = Proposed { runtime, key: Arc::clone(&key), holds: false };
        if !key.is_own() {
            parent.add_foreign_key(&key)?;
        }
        self.wait_for_writers(&[child.id(), parent.id()]).await?;
        self.check_children(&key).await?;
        let definitions = self.begin_definition();
        definitions.note(|| Definition::ForeignKey(spec.clone()))?;
        key.mark_established();
        proposed.holds = true;
        Ok(())
    }

    /// Adds a foreign key that was checked before, to containers that nobody writes.
    pub(crate) fn restore_foreign_key(&self, spec: &ForeignKeySpec) -> Result<(), EngineError> {
        let runtime = self.runtime();
        let key = Arc::new(ForeignKey::new(runtime, spec)?);
        key.mark_established();
        runtime.container(spec.child.container)?.add_foreign_key(&key)?;
        if !key.is_own() {
            runtime.container(spec.parent.container)?.add_foreign_key(&key)?;
        }
        Ok(())
    }

    /// Drops a foreign key of a child.
    pub fn drop_foreign_key(&self, child: ContainerId, name: &str) -> Result<(), EngineError> {
        let container = self.runtime().container(child)?;
        let definitions = self.begin_definition();
        let keys = container.foreign_keys(Side::Child);
        let key = keys.iter().find(|key| *key.spec.name == *name);
        let key = key.ok_or_else(|| ForeignKeyError::NoSuchConstraint { name: name.into() })?;
        // In front of the first commit that it would have refused, and before anything is done that a full log does not
        // get.
        definitions.note(|| Definition::ForeignKeyDropped(child, name.into()))?;
        forget(self.runtime(), key);
        Ok(())
    }

    /// The foreign keys in which a container is the child, then those in which it is the parent of another one.
    pub fn foreign_keys(&self, container: ContainerId) -> Result<Vec<ForeignKeySpec>, EngineError> {
        let container = self.runtime().container(container)?;
        let parents = container.foreign_keys(Side::Parent).into_iter().filter(|key| !key.is_own());
        Ok(container.foreign_keys(Side::Child).into_iter().chain(parents).map(|key| key.spec.clone()).collect())
    }

    /// Refuses if others refer to the container.
    pub(crate) fn check_unreferenced(container: &Container) -> Result<(), EngineError> {
        let keys = container.foreign_keys(Side::Parent);
        keys.iter().find(|key| !key.is_own()).map_or(Ok(()), |key| Err(key.referenced()))
    }

    /// What the container refers to is told to forget it.
    pub(crate) fn release_references(&self, container: &Container) {
        for key in container.foreign_keys(Side::Child) {
            forget(self.runtime(), &key);
        }
    }

    /// Refuses a schema without the unique index that a foreign key relies on.
    pub(crate) fn check_keeps_keys(container: &Container, schema: &Schema) -> Result<(), EngineError> {
        let keys = container.foreign_keys(Side::Parent);
        let loses = |key: &&Arc<ForeignKey>| {
            key.target == container.id() && !has_unique_key(container, schema, &key.target_attributes)
        };
        keys.iter().find(loses).map_or(Ok(()), |key| Err(key.referenced()))
    }

    /// Waits for everybody who may have written to these containers without knowing what is known now.
    async fn wait_for_writers(&self, containers: &[ContainerId]) -> Result<(), EngineError> {
        let runtime = self.runtime();
        let mut waiter = self.begin();
        for (object, touched) in runtime.transactions.writing() {
            let concerned = touched.iter().any(|id| {
                // What a partition that is gone held is elsewhere by now.
                runtime.find_partition(*id).is_none_or(|partition| containers.contains(&partition.container))
            });
            if concerned {
                waiter.wait_until_decided(object).await?;
            }
        }
        until_visible(&runtime.transactions, runtime.transactions.last_taken()).await;
        Ok(())
    }

    /// Looks for children without a parent, all in one snapshot.
    pub(crate) async fn check_children(&self, key: &ForeignKey) -> Result<(), EngineError> {
        let mut transaction = self.begin();
        let child = &key.spec.child;
        let request =
            ReadRequest { predicate: Predicate::all(), desired: Arc::clone(&key.child_attributes), order: None };
        let mut children = transaction.scan(Read { container: child.container, request }, None)?;
        while let Some(batch) = children.next().await? {
            let Some(keys) = distinct_keys(batch) else { continue };
            let found = transaction.lookup_many(key.parent_lookup(), &keys, None)?.collect().await?;
            let found = found_positions(&found);
            if let Some(missing) = (0..keys.rows as u32).find(|row| !found.contains(row)) {
                return Err(key.violation(self.runtime(), Side::Child, &keys, missing));
            }
        }
        Ok(())
    }
}
