//! What tells a row from others, for those who must find it again without its address.

use super::Store;
use crate::address::RowAddress;
use crate::batch::PackedRows;
use crate::ids::AttributeId;
use crate::mvcc::Snapshot;

impl Store {
    /// The attributes that tell rows apart ([`Schema::row_identity`](crate::Schema::row_identity)).
    pub fn identity(&self) -> &[AttributeId] {
        &self.identity
    }

    /// Appends these attributes of rows that a read of the same statement delivered. Asked for before the rows are
    /// changed, or removed, because what they were is told.
    pub fn pack_identities(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress], rows: &mut PackedRows) {
        for address in addresses {
            // What was rolled back may still stand in the row.
            self.restore_void(snapshot.outcomes, *address);
            rows.push_row();
            // A row that is gone by now will not be changed either.
            if let Some(segment) = self.segment(address.segment()).filter(|it| address.offset().0 < it.rows()) {
                segment.path().pack(&self.identity, address.offset().0, rows);
            }
        }
    }
}
