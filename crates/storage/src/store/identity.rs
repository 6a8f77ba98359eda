//! What tells a row from others, for those who must find it again without its address.

use super::Store;
use crate::address::RowAddress;
use crate::batch::{Batch, PackedRows};
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
        self.restore_all(snapshot, addresses);
        self.pack_as_they_are(&self.identity, addresses, rows);
    }

    /// The same for all attributes.
    pub fn rows_to_change(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) -> Batch {
        self.restore_all(snapshot, addresses);
        let mut rows = PackedRows::default();
        rows.clear(&self.row_format);
        self.pack_as_they_are(&self.all_attributes, addresses, &mut rows);
        rows.to_batch()
    }

    /// What was rolled back may still stand in the rows.
    fn restore_all(&mut self, snapshot: &Snapshot<'_>, addresses: &[RowAddress]) {
        for address in addresses {
            self.restore_void(snapshot.outcomes, *address);
        }
    }

    fn pack_as_they_are(&self, attributes: &[AttributeId], addresses: &[RowAddress], rows: &mut PackedRows) {
        for address in addresses {
            rows.push_row();
            // A row that is gone by now will not be changed either.
            if let Some(segment) = self.segment(address.segment()).filter(|it| address.offset().0 < it.rows()) {
                segment.path().pack(attributes, address.offset().0, rows);
            }
        }
    }
}
