//! DDL inside a transaction: changes are kept with the session and published when it commits.
//!
//! The session plans against an [`Overlay`]: the published version with its own changes applied. At commit the changes
//! are applied to what is published by then (see [`super::commit`]); a name that was taken meanwhile fails the commit.
//! Containers of created tables exist from the start, because rows may be inserted; they are dropped if the transaction
//! rolls back. Containers of dropped tables are dropped after the commit.

use std::sync::Arc;

use eris_storage::ContainerId;

use super::table::Table;
use super::version::{Catalog, CatalogVersion};
use crate::errors::{SqlError, SqlState};

/// One change of names.
#[derive(Clone, Debug)]
pub enum CatalogChange {
    /// A new table.
    Create(Arc<Table>),
    /// A table goes.
    Drop(Arc<Table>),
    /// A table has a new version (an index more or less).
    Replace {
        /// Before.
        old: Arc<Table>,
        /// After.
        new: Arc<Table>,
    },
}

impl CatalogChange {
    /// The tables that it names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Self::Create(table) | Self::Drop(table) => (table, None),
            Self::Replace { old, new } => (old, Some(new)),
        };
        [Some(first), second].into_iter().flatten().map(|table| table.name.as_str())
    }

    /// The container that was made for it, and that nobody needs if the transaction rolls back.
    pub fn made(&self) -> Option<ContainerId> {
        match self {
            Self::Create(table) => Some(table.container()),
            Self::Drop(_) => None,
            Self::Replace { old, new } => (old.container() != new.container()).then(|| new.container()),
        }
    }

    /// Whether what it makes takes the place of another container: snapshots older than that cannot be served.
    pub(super) fn takes_place(&self, current: &CatalogVersion) -> bool {
        match self {
            Self::Create(table) => current.find(&table.name).is_some(),
            Self::Drop(_) => false,
            Self::Replace { .. } => self.made().is_some(),
        }
    }

    /// The container that nobody needs once the transaction has committed.
    pub fn replaced(&self) -> Option<ContainerId> {
        match self {
            Self::Create(_) => None,
            Self::Drop(table) => Some(table.container()),
            Self::Replace { old, new } => (old.container() != new.container()).then(|| old.container()),
        }
    }

    pub(super) fn apply(&self, version: &mut CatalogVersion) -> Result<(), SqlError> {
        match self {
            Self::Create(table) => add(version, table),
            Self::Drop(table) => remove(version, table),
            Self::Replace { old, new } => {
                remove(version, old)?;
                add(version, new)
            }
        }
    }
}

/// Enters a table and its indexes, if their names are free.
pub(super) fn add(version: &mut CatalogVersion, table: &Arc<Table>) -> Result<(), SqlError> {
    if version.is_taken(&table.name) {
        return Err(already_exists(&table.name));
    }
    for index in &table.schema.indexes {
        if version.is_taken(&index.name) {
            return Err(already_exists(&index.name));
        }
        version.indexes.insert(index.name.to_string(), table.name.clone());
    }
    version.tables.insert(table.name.clone(), Arc::clone(table));
    Ok(())
}

fn remove(version: &mut CatalogVersion, table: &Arc<Table>) -> Result<(), SqlError> {
    match version.tables.get(&table.name) {
        Some(found) if Arc::ptr_eq(found, table) => {}
        _ => return Err(SqlError::serialization().detail(format!("Table \"{}\" was changed meanwhile.", table.name))),
    }
    version.tables.remove(&table.name);
    version.indexes.retain(|_, owner| *owner != table.name);
    Ok(())
}

/// 42P07.
pub(super) fn already_exists(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists"))
}

/// The changes of an open transaction, and the version they give.
#[derive(Clone, Debug, Default)]
pub struct Overlay {
    changes: Vec<CatalogChange>,
    base: u64,
    version: Option<Arc<CatalogVersion>>,
}

impl Overlay {
    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// What the session sees: the published version with its own changes. If others have published what contradicts
    /// them, it goes on seeing what it saw: its COMMIT will fail.
    pub fn version(&mut self, catalog: &Catalog) -> Result<Arc<CatalogVersion>, SqlError> {
        let current = catalog.current();
        if self.changes.is_empty() {
            return Ok(current);
        }
        match &self.version {
            Some(version) if self.base == current.number => Ok(Arc::clone(version)),
            seen => match self.changed(&current) {
                Ok(version) => Ok(self.keep(version, current.number)),
                Err(error) => seen.clone().ok_or(error),
            },
        }
    }

    /// A published version with the changes applied.
    fn changed(&self, current: &CatalogVersion) -> Result<CatalogVersion, SqlError> {
        let mut version = current.clone();
        self.changes.iter().try_for_each(|change| change.apply(&mut version))?;
        // Plans made against an overlay must not be found by others: its number is its own.
        version.number = u64::MAX;
        Ok(version)
    }

    fn keep(&mut self, version: CatalogVersion, base: u64) -> Arc<CatalogVersion> {
        let version = Arc::new(version);
        self.base = base;
        self.version = Some(Arc::clone(&version));
        version
    }

    /// Adds a change, if it applies.
    pub fn add(&mut self, catalog: &Catalog, change: CatalogChange) -> Result<(), SqlError> {
        let current = catalog.current();
        self.changes.push(change);
        match self.changed(&current) {
            Ok(version) => {
                self.keep(version, current.number);
                Ok(())
            }
            Err(error) => {
                self.changes.pop();
                Err(error)
            }
        }
    }

    /// Hands all changes over, to be committed or taken back.
    pub fn take(&mut self) -> Vec<CatalogChange> {
        self.version = None;
        std::mem::take(&mut self.changes)
    }
}
