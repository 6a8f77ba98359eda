//! Names: which tables there are, what their columns are called, typed and defaulted.
//!
//! The engine knows containers by id; this catalog knows them by name. A [`CatalogVersion`] is immutable. Statements
//! plan against the version they find, DDL publishes the next one in one step, and plans carry the version's number so
//! that they are made again when it moved.
//!
//! What is published is also kept, as [`rows`] of a container: written by the [`commit`] of the DDL, read when the
//! database is opened ([`open`]).

mod changes;
mod claims;
mod commit;
mod containers;
mod create;
mod definition_memory;
mod names;
mod open;
mod rows;
mod settle;
mod stored;
mod table;
mod version;

pub use changes::{CatalogChange, Overlay};
pub use claims::{IndexClaim, IndexClaims};
pub use commit::commit_names;
pub use containers::OwnContainers;
pub use create::{NewTable, index_of_columns, new_table};
pub use names::suggestions;
pub use open::open;
pub use rows::CATALOG_CONTAINER;
pub use settle::settle_indexes;
pub use table::{ColumnDefault, Table, TableColumn};
pub use version::{Catalog, CatalogVersion, Turn};
