//! Versions of the catalog and their publication.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::claims::IndexClaims;
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
    changing: Mutex<()>,
    index_claims: IndexClaims,
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

    /// Makes the next version from the current one and publishes it, or publishes nothing.
    pub fn publish<T>(&self, change: impl FnOnce(&mut CatalogVersion) -> Result<T, SqlError>) -> Result<T, SqlError> {
        let _one_at_a_time: MutexGuard<'_, ()> = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = CatalogVersion::clone(&self.current());
        let result = change(&mut next)?;
        next.number += 1;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        Ok(result)
    }
}
