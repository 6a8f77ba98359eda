//! Versions of the catalog and their publication.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{Mutex, MutexGuard};

use super::claims::IndexClaims;
use super::containers::OwnContainers;
use super::names::suggestions;
use super::table::Table;
use crate::errors::{SqlError, SqlState};
use crate::front::TableName;
use crate::views::{is_view, view_names};

/// All names at one time; immutable.
#[derive(Clone, Debug, Default)]
pub struct CatalogVersion {
    /// Grows by one with every publication.
    pub number: u64,
    pub(super) tables: BTreeMap<String, Arc<Table>>,
    /// Index name -> table name.
    pub(super) indexes: BTreeMap<String, String>,
}

impl CatalogVersion {
    /// The table of this name, or 42P01 with suggestions.
    pub fn table(&self, name: &TableName) -> Result<&Arc<Table>, SqlError> {
        if let Some(table) = self.tables.get(&name.name).filter(|_| name.is_public()) {
            return Ok(table);
        }
        if name.is_public() && self.indexes.contains_key(&name.name) {
            return Err(SqlError::new(SqlState::WRONG_OBJECT, format!("\"{}\" is an index", name.name))
                .hint("Use DROP INDEX to remove it, or name its table.")
                .about(&[&name.name]));
        }
        if is_view(name) {
            return Err(SqlError::new(SqlState::WRONG_OBJECT, format!("\"{name}\" is a view and can only be read"))
                .about(&[&name.name]));
        }
        let close = match name.schema.as_deref() {
            None | Some("public") => suggestions(&name.name, self.tables.keys().map(String::as_str)),
            Some(schema) => suggestions(&name.name, view_names(schema)),
        };
        let mut error = SqlError::no_such_table(&name.name, &close);
        error.message = format!("relation \"{name}\" does not exist");
        Err(error)
    }

    /// The table of this name, if there is one.
    pub fn find(&self, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(name)
    }

    /// The table that an index belongs to.
    pub fn table_of_index(&self, index: &str) -> Option<&Arc<Table>> {
        self.tables.get(self.indexes.get(index)?)
    }

    /// Whether a table or an index has this name: they share one name space.
    pub fn is_taken(&self, name: &str) -> bool {
        self.tables.contains_key(name) || self.indexes.contains_key(name)
    }

    /// All tables, by name.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.values()
    }

    /// The names of all indexes.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        self.indexes.keys().map(String::as_str)
    }
}

/// The current version, and the lock of those who make the next one.
#[derive(Debug, Default)]
pub struct Catalog {
    current: RwLock<Arc<CatalogVersion>>,
    /// Held from the look at the current version until the next one is published; in between rows are committed.
    turn: Mutex<()>,
    index_claims: IndexClaims,
    containers: OwnContainers,
}

/// The right to publish the next version.
#[derive(Debug)]
pub struct Turn<'c> {
    _lock: MutexGuard<'c, ()>,
}

impl Catalog {
    /// The version that statements plan against now.
    pub fn current(&self) -> Arc<CatalogVersion> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who changes indexes.
    pub fn index_claims(&self) -> &IndexClaims {
        &self.index_claims
    }

    /// The containers behind the names.
    pub fn containers(&self) -> &OwnContainers {
        &self.containers
    }

    /// Waits, in the order of arrival, for the right to publish.
    pub async fn turn(&self) -> Turn<'_> {
        Turn { _lock: self.turn.lock().await }
    }

    /// Publishes a version that was made from the current one in this turn.
    pub fn publish(&self, _turn: &Turn<'_>, mut next: CatalogVersion) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        assert!(next.number == current.number, "a version is made from the one before it");
        next.number += 1;
        *current = Arc::new(next);
    }
}
