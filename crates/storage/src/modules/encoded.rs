//! Storage module *encoded*: one encoding per attribute, chosen by the size its values have in it.
//!
//! ```text
//! growing   columns, as the column module has them
//! freeze    l_quantity       frame of reference   base 100, 6 bits a row
//!           l_shipmode       shared dictionary    7 values in the container's dictionary, 3 bits a row
//!           l_part           dictionary           30,000 values in order, 15 bits a row
//!           l_comment        symbol table         255 pieces of words, a byte for each piece
//!           NULLs            one bit a row, where there are any
//! ```
//! A predicate's constant is translated to codes once per segment; scans then compare packed codes and decode only what
//! qualifies. A run of rows is decoded at once; a single value is one unaligned load away. How codes lie and are
//! compared: `encoded/kernels`; which encodings there are: `encoded/encoding.rs`.

mod attribute;
mod codes;
mod constant;
mod dictionary;
mod encoding;
mod kernels;
mod packed;
mod plain;
mod reference;
mod runs;
mod selection;
mod shared_dictionary;
mod source;
mod symbols;

use super::column::{COLUMN_SEGMENTS, ColumnPath, position, positions_of};
use super::filter::mask_retain;
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, Count, ENCODED, PathAttribute,
    PathConfiguration, PathFilter, PathInstance, Properties,
};
use crate::batch::{Batch, Column, ColumnBuilder, PackedRows};
use crate::dictionary::ContainerDictionaries;
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Comparison, Test};
use attribute::{EncodedColumn, Translations};
use codes::CodeTest;
use eris_platform::memory::Reservation;
use eris_platform::{Arena, MemoryExceeded, NodeId};
use selection::Selection;
use std::ops::Range;
use std::sync::Arc;

/// The factory.
pub(super) struct EncodedModule;

impl AccessPathFactory for EncodedModule {
    fn name(&self) -> &'static str {
        ENCODED
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Direct,
            attributes: Count::Any,
            keys: Count::None,
            key_order: false,
            nulls: true,
            undefined: false,
            variable_length: true,
            shares_frozen_columns: true,
            updates_in_place: false,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        let dictionaries = configuration.dictionaries.cloned();
        PathInstance::Rows(Box::new(EncodedPath {
            state: State::Growing(ColumnPath::new(configuration)),
            dictionaries,
        }))
    }
}

/// What scans keep between calls.
#[derive(Debug, Default)]
pub(super) struct EncodedScratch {
    translations: Translations,
    selection: Selection,
}

/// Attributes of one segment.
struct EncodedPath {
    state: State,
    /// Those of the container, for the segments of one that has some.
    dictionaries: Option<Arc<ContainerDictionaries>>,
}

enum State {
    Growing(ColumnPath),
    Frozen(Frozen),
}

struct Frozen {
    columns: Box<[EncodedColumn]>,
    positions: Box<[Option<u16>]>,
    rows: usize,
    memory: Reservation,
    /// Columns that were offered to the encodings.
    encoded: usize,
    /// Why a column stayed as it grew, if one did for want of memory: the first refusal.
    refused: Option<MemoryExceeded>,
    /// Columns whose values an arena has; beyond all of them: it had no room.
    placed: usize,
    /// What the arena accounts for.
    placed_bytes: u64,
    home: Option<NodeId>,
}

/// When fewer than one row in this many still qualifies, further conditions are tested row by row.
const SPARSE_SHARE: usize = 8;

/// The same where 64 codes are compared at once, and passed over if none of their rows is left.
const SPARSE_SHARE_OF_RANGES: usize = 64;

/// From this many rows on, long values are handed out by reference to the segment's data instead of copied. Fewer are
/// not worth keeping a segment's data alive.
const SHARED_ROWS_MIN: usize = 64;

impl Frozen {
    fn of(grown: &mut ColumnPath) -> Self {
        let rows = grown.rows() as usize;
        let (columns, memory) = grown.take_frozen();
        let attributes: Vec<PathAttribute> = columns.iter().map(|column| column.attribute).collect();
        let positions = positions_of(&attributes);
        let columns = columns.into_iter().map(EncodedColumn::plain).collect();
        Self { columns, positions, rows, memory, encoded: 0, refused: None, placed: 0, placed_bytes: 0, home: None }
    }

    fn column(&self, attribute: AttributeId) -> &EncodedColumn {
        &self.columns[position(&self.positions, attribute)]
    }

    /// Encodes the next column; true if there is another.
    fn encode_step(&mut self, dictionaries: Option<&Arc<ContainerDictionaries>>) -> bool {
        if let Some(column) = self.columns.get_mut(self.encoded) {
            let attribute = column.attribute;
            let shared = dictionaries.filter(|_| attribute.data_type.is_variable_length());
            let shared = shared.map(|dictionaries| dictionaries.of(attribute.id));
            if let Err(refused) = column.encode(self.rows, &self.memory, shared.as_deref()) {
                self.refused.get_or_insert(refused);
            }
            self.encoded += 1;
        }
        let done = self.encoded == self.columns.len();
        if done {
            // Room for rows that did not come, and for bitmaps that were not needed.
            let held: u64 = self.columns.iter().map(|column| column.bytes).sum();
            self.memory.shrink(self.memory.bytes().saturating_sub(held));
        }
        !done
    }

    /// Keeps those of the offsets from position `from` on that satisfy the conditions.
    fn retain_from(
        &self,
        scratch: &mut EncodedScratch,
        mask: &mut Vec<u8>,
        mut filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        while let Some((attribute, group, others)) = filter.split_group() {
            let rows = &offsets[from..];
            if rows.is_empty() {
                break;
            }
            mask.clear();
            mask.resize(rows.len(), 1);
            let column = self.column(attribute);
            match compared(group) {
                Some((comparison, other)) => column.compare_listed(self.column(other), comparison, rows, mask)?,
                None => column.select_listed(group, &mut scratch.translations, rows, mask)?,
            }
            mask_retain(mask, offsets, from);
            filter = others;
        }
        Ok(())
    }

    /// Selects the rows of a window that satisfy the first conditions, until few rows are left; gives the others.
    fn select<'f>(
        &self,
        scratch: &mut EncodedScratch,
        mask: &mut Vec<u8>,
        mut filter: PathFilter<'f>,
        window: Range<u32>,
    ) -> Result<PathFilter<'f>, StorageError> {
        let window = window.start as usize..window.end as usize;
        scratch.selection.begin(window.clone());
        let mut left = window.len();
        while let Some((attribute, group, others)) = filter.split_group() {
            let column = self.column(attribute);
            let compared = compared(group);
            let codes = match compared {
                Some(_) => None,
                None => column.translate(group, &mut scratch.translations)?,
            };
            let ranges = codes.is_some_and(|codes| codes.iter().all(CodeTest::is_of_ranges));
            if left * if ranges { SPARSE_SHARE_OF_RANGES } else { SPARSE_SHARE } < window.len() {
                break;
            }
            match compared {
                Some((comparison, other)) => {
                    mask.clear();
                    mask.resize(window.len(), 1);
                    column.compare(self.column(other), comparison, window.clone(), mask)?;
                    scratch.selection.keep_mask(mask);
                }
                None => column.select(group, codes, mask, &mut scratch.selection)?,
            }
            filter = others;
            if filter.is_empty() {
                break;
            }
            left = scratch.selection.count();
        }
        Ok(filter)
    }

    fn scan(
        &self,
        scratch: &mut EncodedScratch,
        mask: &mut Vec<u8>,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        let others = self.select(scratch, mask, filter, window)?;
        let from = found.len();
        scratch.selection.list(found);
        self.retain_from(scratch, mask, others, found, from)
    }

    fn count(
        &self,
        scratch: &mut EncodedScratch,
        mask: &mut Vec<u8>,
        filter: PathFilter<'_>,
        window: Range<u32>,
    ) -> Result<usize, StorageError> {
        let others = self.select(scratch, mask, filter, window)?;
        if others.is_empty() {
            return Ok(scratch.selection.count());
        }
        let mut found = Vec::new();
        scratch.selection.list(&mut found);
        self.retain_from(scratch, mask, others, &mut found, 0)?;
        Ok(found.len())
    }
}

/// The comparison with another attribute that a group of conditions consists of, if it does.
fn compared(group: PathFilter<'_>) -> Option<(Comparison, AttributeId)> {
    match group.iter().next()?.test {
        Test::CompareAttribute(comparison, other) => Some((comparison, other)),
        _ => None,
    }
}

impl EncodedPath {
    fn frozen(&self) -> Option<&Frozen> {
        match &self.state {
            State::Growing(_) => None,
            State::Frozen(frozen) => Some(frozen),
        }
    }

    fn growing(&mut self) -> &mut ColumnPath {
        match &mut self.state {
            State::Growing(columns) => columns,
            State::Frozen(_) => unreachable!("rows are inserted before the path is frozen"),
        }
    }
}

impl AccessPath for EncodedPath {
    fn truncates(&self) -> bool {
        matches!(&self.state, State::Growing(columns) if columns.truncates())
    }

    fn truncate(&mut self, rows: u32) {
        self.growing().truncate(rows);
    }

    fn module(&self) -> &'static str {
        ENCODED
    }

    fn rows(&self) -> u32 {
        match &self.state {
            State::Growing(columns) => columns.rows(),
            State::Frozen(frozen) => frozen.rows as u32,
        }
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        self.growing().insert(rows, range)
    }

    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        match &self.state {
            State::Growing(columns) => columns.scan(state, filter, window, found),
            State::Frozen(_) if filter.is_empty() => {
                found.extend(window);
                Ok(())
            }
            State::Frozen(frozen) => frozen.scan(&mut state.encoded, &mut state.mask, filter, window, found),
        }
    }

    fn count(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
    ) -> Result<usize, StorageError> {
        match &self.state {
            State::Growing(columns) => columns.count(state, filter, window),
            State::Frozen(frozen) => frozen.count(&mut state.encoded, &mut state.mask, filter, window),
        }
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        match &self.state {
            State::Growing(columns) => columns.retain(state, filter, offsets),
            State::Frozen(frozen) => frozen.retain_from(&mut state.encoded, &mut state.mask, filter, offsets, 0),
        }
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        match &self.state {
            State::Growing(columns) => columns.link(attribute, offsets, out),
            State::Frozen(frozen) => frozen.column(attribute).link(offsets, out),
        }
    }

    fn shared(&self, attribute: AttributeId, run: Range<u32>) -> Option<Column> {
        Some(self.frozen()?.column(attribute).run(run.start as usize..run.end as usize))
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        let frozen = self.frozen().filter(|_| offsets.len() >= SHARED_ROWS_MIN)?;
        frozen.column(attribute).gather(offsets)
    }

    fn pack(&self, attributes: &[AttributeId], offset: u32, rows: &mut PackedRows) {
        match &self.state {
            State::Growing(columns) => columns.pack(attributes, offset, rows),
            State::Frozen(frozen) => {
                let mut row = rows.last_row();
                for (column, attribute) in attributes.iter().enumerate() {
                    frozen.column(*attribute).pack(offset as usize, column, &mut row);
                }
            }
        }
    }

    fn freeze(&mut self) {
        while self.freeze_step() {}
    }

    fn freeze_step(&mut self) -> bool {
        if let State::Growing(columns) = &mut self.state {
            self.state = State::Frozen(Frozen::of(columns));
        }
        match &mut self.state {
            State::Frozen(frozen) => frozen.encode_step(self.dictionaries.as_ref()),
            State::Growing(_) => unreachable!("just frozen"),
        }
    }

    fn refused_encoding(&self) -> Option<&MemoryExceeded> {
        self.frozen()?.refused.as_ref()
    }

    fn encodings(&self, visit: &mut dyn FnMut(AttributeId, &'static str, u64)) {
        for column in self.frozen().iter().flat_map(|frozen| &frozen.columns) {
            visit(column.attribute.id, column.encoding(), column.bytes);
        }
    }

    fn place(&mut self, arena: &Arena) -> bool {
        let State::Frozen(frozen) = &mut self.state else {
            unreachable!("columns are placed when they are frozen");
        };
        let Some(column) = frozen.columns.get_mut(frozen.placed) else { return false };
        // Without room they stay where they are, and so do those that follow.
        let Ok((placed, taken)) = column.placed(arena) else {
            frozen.placed = usize::MAX;
            return false;
        };
        *column = placed;
        frozen.placed += 1;
        frozen.placed_bytes += taken;
        if frozen.placed < frozen.columns.len() {
            return true;
        }
        // The arena accounts for everything now.
        frozen.memory.shrink(frozen.memory.bytes());
        frozen.home = Some(arena.node());
        false
    }

    fn home(&self) -> Option<NodeId> {
        self.frozen()?.home
    }

    fn share(&self) -> Option<Box<dyn AccessPath>> {
        let frozen = self.frozen()?;
        let shared = Frozen {
            columns: frozen.columns.clone(),
            positions: frozen.positions.clone(),
            rows: frozen.rows,
            // The values are accounted for where they are.
            memory: frozen.memory.pool().reserve(COLUMN_SEGMENTS),
            encoded: frozen.columns.len(),
            refused: frozen.refused.clone(),
            placed: 0,
            placed_bytes: 0,
            home: None,
        };
        // Nothing will be encoded any more.
        Some(Box::new(Self { state: State::Frozen(shared), dictionaries: None }))
    }

    fn bytes(&self) -> u64 {
        match &self.state {
            State::Growing(columns) => columns.bytes(),
            State::Frozen(frozen) => frozen.memory.bytes() + frozen.placed_bytes,
        }
    }
}
