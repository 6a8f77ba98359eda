//! Names: which tables there are, what their columns are called, typed and defaulted.
//!
//! The engine knows containers by id; this catalog knows them by name. A [`CatalogVersion`] is immutable. Statements
//! plan against the version they find, DDL publishes the next one in one step, and plans carry the version's number so
//! that they are made again when it moved.

mod changes;
mod claims;
mod create;
mod names;
mod table;
mod version;

pub use changes::{CatalogChange, Overlay};
pub use claims::{IndexClaim, IndexClaims};
pub use create::{NewTable, index_of_columns, new_table};
pub use names::suggestions;
pub use table::{ColumnDefault, Table, TableColumn};
pub use version::{Catalog, CatalogVersion};
