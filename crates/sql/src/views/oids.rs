//! Object ids: PostgreSQL's clients identify everything by one number.
//!
//! ```text
//!   table:  16384 + container * 4096        index, constraint:  table + 1 + index id
//! ```
//! Below 16384 PostgreSQL keeps its own objects, above are those of users.

use eris_storage::{ContainerId, IndexId};

use crate::catalog::Table;

/// The first id of users' objects.
pub(crate) const FIRST_USER_OID: i64 = 16_384;
/// Indexes of a table at most, as far as ids are concerned.
const OIDS_OF_TABLE: i64 = 4_096;

fn oid(container: ContainerId) -> i64 {
    FIRST_USER_OID + i64::from(container.0) * OIDS_OF_TABLE
}

/// A table's id.
pub(super) fn table_oid(table: &Table) -> i64 {
    oid(table.container())
}

/// An index' id, also that of the constraint which it stands for.
pub(crate) fn index_oid(table: &Table, index: IndexId) -> i64 {
    oid(table.container()) + 1 + i64::from(index.0) % (OIDS_OF_TABLE - 1)
}
