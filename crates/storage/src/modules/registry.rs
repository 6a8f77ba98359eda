//! The storage modules there are. One line each.

use super::column::ColumnModule;
use super::column_group::ColumnGroupModule;
use super::encoded::EncodedModule;
use super::hash_index::HashIndexModule;
use super::inverted_index::InvertedIndexModule;
use super::ordered_index::OrderedIndexModule;
use super::row_dynamic::RowDynamicModule;
use super::row_sparse::RowSparseModule;
use super::row_static::RowStaticModule;
use super::{AccessPath, AccessPathFactory, IndexPath, PathConfiguration, PathInstance};

/// Rows of fixed layout, long values out of line.
pub const ROW_STATIC: &str = "row static";
/// Records that say themselves which attributes they have.
pub const ROW_DYNAMIC: &str = "row dynamic";
/// Rows of which many hold nothing, addressed by handles.
pub const ROW_SPARSE: &str = "row sparse";
/// One array per attribute.
pub const COLUMN: &str = "column";
/// One array for some attributes of fixed width.
pub const COLUMN_GROUP: &str = "column group";
/// One encoding per attribute, chosen by size.
pub const ENCODED: &str = "encoded";
/// A tree of (key, address) pairs.
pub const ORDERED_INDEX: &str = "ordered index";
/// A hash table of (key, address) pairs.
pub const HASH_INDEX: &str = "hash index";
/// A tree of keys, and for each the addresses of its rows, packed.
pub const INVERTED_INDEX: &str = "inverted index";

static STANDARD: Registry = Registry::new(&[
    &RowStaticModule,
    &RowDynamicModule,
    &RowSparseModule,
    &ColumnModule,
    &ColumnGroupModule,
    &EncodedModule,
    &OrderedIndexModule,
    &HashIndexModule,
    &InvertedIndexModule,
]);

/// A set of storage modules.
pub struct Registry {
    factories: &'static [&'static dyn AccessPathFactory],
}

impl Registry {
    /// A set of one's own.
    pub const fn new(factories: &'static [&'static dyn AccessPathFactory]) -> Self {
        Self { factories }
    }

    /// All modules of this crate.
    pub fn standard() -> &'static Self {
        &STANDARD
    }

    /// The modules.
    pub fn iter(&self) -> impl Iterator<Item = &'static dyn AccessPathFactory> {
        self.factories.iter().copied()
    }

    /// The module of that name.
    pub fn module(&self, name: &str) -> Option<&'static dyn AccessPathFactory> {
        self.iter().find(|factory| factory.name() == name)
    }

    /// A new path for rows.
    ///
    /// # Panics
    /// If there is no such module or it makes indexes: names come from this file's constants.
    pub(crate) fn create_rows(&self, name: &str, configuration: PathConfiguration<'_>) -> Box<dyn AccessPath> {
        match self.module(name).map(|module| module.create(configuration)) {
            Some(PathInstance::Rows(path)) => path,
            Some(PathInstance::Index(_)) => unreachable!("{name} holds no rows"),
            None => unreachable!("no storage module is called {name}"),
        }
    }

    /// A new index.
    ///
    /// # Panics
    /// As `create_rows`.
    pub(crate) fn create_index(&self, name: &str, configuration: PathConfiguration<'_>) -> Box<dyn IndexPath> {
        match self.module(name).map(|module| module.create(configuration)) {
            Some(PathInstance::Index(path)) => path,
            Some(PathInstance::Rows(_)) => unreachable!("{name} is no index"),
            None => unreachable!("no storage module is called {name}"),
        }
    }
}
