//! Attributes of rows by address, across segments.

use super::{Store, StoreIndex};
use crate::address::RowAddress;
use crate::batch::{Batch, Column, ColumnBuilder, PackedRows};
use crate::ids::AttributeId;

impl Store {
    /// Some attributes of rows, which all exist.
    pub(super) fn link_attributes(&self, attributes: &[AttributeId], addresses: &[RowAddress]) -> Vec<Column> {
        let types = attributes.iter().map(|id| self.schema.attributes[id.index()].data_type);
        let mut builders = ColumnBuilder::for_batch(types, addresses.len());
        let mut offsets = Vec::with_capacity(addresses.len());
        for run in addresses.chunk_by(|left, right| left.segment() == right.segment()) {
            let number = run[0].segment();
            let Some(segment) = self.segment(number) else {
                unreachable!("segment {number} of a row that is linked");
            };
            offsets.clear();
            offsets.extend(run.iter().map(|address| address.offset().0));
            for (id, builder) in attributes.iter().zip(&mut builders) {
                segment.path().link(*id, &offsets, builder);
            }
        }
        builders.into_iter().map(ColumnBuilder::finish).collect()
    }

    /// Appends all attributes of a row, which exists.
    pub(super) fn pack_all(&self, address: RowAddress, rows: &mut PackedRows) {
        let Some(segment) = self.segment(address.segment()) else {
            unreachable!("segment {} of a row that is packed", address.segment());
        };
        rows.push_row();
        segment.path().pack(&self.all_attributes, address.offset().0, rows);
    }

    /// All attributes of rows, which all exist.
    pub(super) fn link_all(&self, addresses: &[RowAddress]) -> Batch {
        Batch { columns: self.link_attributes(&self.all_attributes, addresses).into(), rows: addresses.len() }
    }

    /// How many indexes [`Store::index_at`] knows.
    pub(super) fn index_count(&self) -> usize {
        self.indexes.len() + self.building.len()
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
