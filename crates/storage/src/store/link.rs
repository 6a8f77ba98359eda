//! Attributes of rows by address, across segments.

use super::{Store, StoreIndex};
use crate::address::RowAddress;
use crate::batch::{Batch, Column, ColumnBuilder};
use crate::ids::AttributeId;

/// Calls `run` for every run of addresses of one segment, with the offsets.
pub(super) fn for_each_run<'a>(
    addresses: &'a [RowAddress],
    offsets: &mut Vec<u32>,
    mut run: impl FnMut(RowAddress, &'a [RowAddress], &mut Vec<u32>),
) {
    for same in addresses.chunk_by(|left, right| left.segment() == right.segment()) {
        offsets.clear();
        offsets.extend(same.iter().map(|address| address.offset().0));
        run(same[0], same, offsets);
    }
}

impl Store {
    /// An attribute's values of rows, which all exist.
    pub(super) fn link_rows(&self, attribute: AttributeId, addresses: &[RowAddress]) -> Column {
        let data_type = self.schema.attributes[attribute.index()].data_type;
        let mut out = ColumnBuilder::with_capacity(data_type, addresses.len());
        for_each_run(addresses, &mut Vec::new(), |first, _, offsets| {
            let Some(segment) = self.segment(first.segment()) else {
                unreachable!("segment {} of a row that is linked", first.segment());
            };
            segment.path().link(attribute, offsets, &mut out);
        });
        out.finish()
    }

    /// All attributes of rows, which all exist.
    pub(super) fn link_all(&self, addresses: &[RowAddress]) -> Batch {
        let columns = (0..self.schema.attributes.len() as u16).map(|id| self.link_rows(AttributeId(id), addresses));
        Batch { columns: columns.collect(), rows: addresses.len() }
    }

    /// The indexes in use, then those being built.
    pub(super) fn index_at(&self, position: usize) -> &StoreIndex {
        let used = self.indexes.len();
        if position < used { &self.indexes[position] } else { &self.building[position - used] }
    }

    /// As `index_at`.
    pub(super) fn index_at_mut(&mut self, position: usize) -> &mut StoreIndex {
        let used = self.indexes.len();
        if position < used { &mut self.indexes[position] } else { &mut self.building[position - used] }
    }
}
