//! Storage module *column*: one array per attribute, in Arrow's layout.
//!
//! An open path grows typed vectors (capacity is decided here, because it must be reserved before it is allocated); a
//! frozen one holds shared buffers, so that a run of rows is handed out by counting references.

use super::filter::{compare_columns, mask_count, mask_retain, mask_to_offsets, test_column};
use super::{
    AccessPath, AccessPathFactory, AccessPathScanState, AddressingMode, COLUMN, Count, PathAttribute,
    PathConfiguration, PathFilter, PathInstance, Properties,
};
use crate::batch::{Batch, Column, ColumnBuilder, ColumnView, PackedRows, RowsOf, VIEW_INLINE_MAX, Values, view_len};
use crate::error::StorageError;
use crate::ids::AttributeId;
use crate::predicate::{Condition, Test};
use eris_platform::memory::{MemoryPool, Reservation};
use eris_platform::{Arena, NodeId};
use std::ops::Range;
use std::sync::Arc;

/// The factory.
pub(super) struct ColumnModule;

impl AccessPathFactory for ColumnModule {
    fn name(&self) -> &'static str {
        COLUMN
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
        PathInstance::Rows(Box::new(ColumnPath::new(configuration)))
    }
}

enum State {
    Growing { values: ColumnBuilder, data_capacity: usize, data_used: usize },
    Frozen(Column),
}

struct Held {
    attribute: PathAttribute,
    state: State,
}

/// Columns of one segment.
pub(crate) struct ColumnPath {
    columns: Box<[Held]>,
    /// Where an attribute is among the columns, by attribute id.
    positions: Box<[Option<u16>]>,
    rows: usize,
    rows_capacity: usize,
    rows_max: usize,
    memory: Reservation,
    /// Columns whose values an arena has; beyond all of them: it had no room.
    placed: usize,
    /// What the arena accounts for.
    placed_bytes: u64,
    /// The node of the arena that has all of them.
    home: Option<NodeId>,
}

/// A column that was taken out of a path.
pub(super) struct TakenColumn {
    pub attribute: PathAttribute,
    pub column: Column,
    /// Accounted for it.
    pub bytes: u64,
}

/// The consumer that holds columns, here and in the arenas of the nodes.
pub const COLUMN_SEGMENTS: &str = "column segments";

/// Rows for which room is made at first.
const ROWS_FIRST: usize = 64;

impl ColumnPath {
    pub(super) fn new(configuration: PathConfiguration<'_>) -> Self {
        let attributes = configuration.attributes;
        let columns = attributes.iter().map(|attribute| Held {
            attribute: *attribute,
            state: State::Growing {
                values: ColumnBuilder::with_capacity(attribute.data_type, 0),
                data_capacity: 0,
                data_used: 0,
            },
        });
        Self {
            columns: columns.collect(),
            positions: positions_of(attributes),
            rows: 0,
            rows_capacity: 0,
            rows_max: configuration.rows_max as usize,
            memory: configuration.memory.reserve(COLUMN_SEGMENTS),
            placed: 0,
            placed_bytes: 0,
            home: None,
        }
    }

    /// A frozen path of rows as they are, without a copy; none if they would keep data alive that is not theirs.
    pub(crate) fn sharing(
        attributes: &[PathAttribute],
        rows: &Batch,
        memory: &Arc<MemoryPool>,
    ) -> Result<Option<Self>, StorageError> {
        if !rows.columns.iter().all(is_compact) {
            return Ok(None);
        }
        let rows_max = rows.rows as u32;
        let mut path = Self::new(PathConfiguration { attributes, rows_max, memory, dictionaries: None });
        let mut bytes = 0;
        for held in &mut path.columns {
            let column = rows.columns[held.attribute.id.index()].clone().without_idle_validity();
            let validity = if column.validity.is_some() { rows.rows.div_ceil(8) } else { 0 };
            let long = long_bytes(&column, 0..rows.rows);
            bytes += rows.rows * held.attribute.data_type.physical().width() + long + validity;
            held.state = State::Frozen(Column { data_type: held.attribute.data_type, ..column });
        }
        path.memory.grow(bytes as u64)?;
        (path.rows, path.rows_capacity) = (rows.rows, rows.rows);
        Ok(Some(path))
    }

    /// Takes the columns out, frozen, each with the bytes that are accounted for it, and what accounts for them.
    /// Nothing is left behind.
    pub(super) fn take_frozen(&mut self) -> (Vec<TakenColumn>, Reservation) {
        self.give_back_room();
        let columns = std::mem::take(&mut self.columns).into_iter().map(|held| {
            let fixed = self.rows_capacity * held.attribute.data_type.physical().width();
            let (column, long) = match held.state {
                State::Growing { values, data_capacity, .. } => {
                    (values.finish().without_idle_validity(), data_capacity)
                }
                State::Frozen(_) => unreachable!("the columns of a frozen path are not taken"),
            };
            let validity = if column.validity.is_some() { self.rows.div_ceil(8) } else { 0 };
            TakenColumn { attribute: held.attribute, column, bytes: (fixed + long + validity) as u64 }
        });
        let columns = columns.collect();
        let nothing = self.memory.pool().reserve(COLUMN_SEGMENTS);
        (self.rows, self.rows_capacity) = (0, 0);
        (columns, std::mem::replace(&mut self.memory, nothing))
    }

    fn view(&self, attribute: AttributeId) -> ColumnView<'_> {
        match &self.columns[position(&self.positions, attribute)].state {
            State::Growing { values, .. } => values.view(),
            State::Frozen(column) => column.view(),
        }
    }

    /// No more rows come: gives back the room for them, if it is worth a copy.
    fn give_back_room(&mut self) {
        if !self.truncates() {
            return;
        }
        let of_column = |held: &Held| match &held.state {
            State::Growing { data_capacity, data_used, .. } => data_capacity - data_used,
            State::Frozen(_) => 0,
        };
        let room =
            (self.rows_capacity - self.rows) * self.row_bytes() + self.columns.iter().map(of_column).sum::<usize>();
        if room as u64 * ROOM_SHARE > self.memory.bytes() {
            self.truncate(self.rows as u32);
        }
    }

    fn row_bytes(&self) -> usize {
        self.columns.iter().map(|held| held.attribute.data_type.physical().width()).sum::<usize>()
            + self.columns.iter().filter(|held| held.attribute.nullable).count().div_ceil(8)
    }

    /// Makes room for `more` rows whose long values have the sizes given.
    fn grow(&mut self, more: usize, long_bytes: &[usize]) -> Result<(), StorageError> {
        if self.rows + more > self.rows_capacity {
            let doubled = (self.rows_capacity * 2).max(ROWS_FIRST).min(self.rows_max);
            let capacity = doubled.max(self.rows + more);
            self.memory.grow(((capacity - self.rows_capacity) * self.row_bytes()) as u64)?;
            self.rows_capacity = capacity;
            for held in &mut self.columns {
                if let State::Growing { values, .. } = &mut held.state {
                    values.reserve_exact(capacity, 0);
                }
            }
        }
        for (held, long) in self.columns.iter_mut().zip(long_bytes) {
            if let State::Growing { values, data_capacity, data_used } = &mut held.state
                && *data_used + long > *data_capacity
            {
                let capacity = (*data_capacity * 2).max(*data_used + long);
                self.memory.grow((capacity - *data_capacity) as u64)?;
                values.reserve_exact(0, capacity - *data_used);
                *data_capacity = capacity;
            }
        }
        Ok(())
    }

    fn test(&self, mask: &mut [u8], condition: &Condition, rows: &RowsOf<'_>) -> Result<(), StorageError> {
        let column = self.view(condition.attribute);
        if let Test::CompareAttribute(comparison, other) = &condition.test {
            compare_columns(mask, &column, &self.view(*other), rows, *comparison)
        } else {
            test_column(mask, &column, rows, &condition.test)
        }
    }

    /// Keeps those of the offsets from position `from` on that satisfy the conditions.
    fn retain_from<'a>(
        &self,
        mask: &mut Vec<u8>,
        conditions: impl Iterator<Item = &'a Condition>,
        offsets: &mut Vec<u32>,
        from: usize,
    ) -> Result<(), StorageError> {
        mask.clear();
        mask.resize(offsets.len() - from, 1);
        for condition in conditions {
            self.test(mask, condition, &RowsOf::List(&offsets[from..]))?;
        }
        mask_retain(mask, offsets, from);
        Ok(())
    }
}

/// When fewer than one row in this many still qualifies, further conditions are tested row by row.
const SPARSE_SHARE: usize = 8;

/// Room for rows that did not come is given back if it is more than one byte of so many.
const ROOM_SHARE: u64 = 8;

/// From this many rows on, long values are handed out by reference to the segment's data instead of copied. Fewer are
/// not worth keeping a segment's data alive.
const SHARED_ROWS_MIN: usize = 64;

/// Bytes of the values of `range` that do not fit in their views.
pub(super) fn long_bytes(column: &Column, range: Range<usize>) -> usize {
    match &column.values {
        Values::Bytes(views) => {
            views.views[range].iter().map(|view| view_len(*view)).filter(|len| *len > VIEW_INLINE_MAX).sum()
        }
        _ => 0,
    }
}

/// Whether the data that a column refers to is that of its values, and hardly anything else.
fn is_compact(column: &Column) -> bool {
    let Values::Bytes(views) = &column.values else { return true };
    let held: usize = views.data.iter().map(|data| data.len()).sum();
    let own = long_bytes(column, 0..column.len());
    held <= own + own / 8
}

/// Where each attribute is among `attributes`, by attribute id.
pub(super) fn positions_of(attributes: &[PathAttribute]) -> Box<[Option<u16>]> {
    let len = attributes.iter().map(|attribute| attribute.id.index() + 1).max().unwrap_or(0);
    let mut positions = vec![None; len];
    for (position, attribute) in attributes.iter().enumerate() {
        positions[attribute.id.index()] = Some(position as u16);
    }
    positions.into()
}

/// The position of an attribute that micro-QEP compilation found to be held here.
pub(super) fn position(positions: &[Option<u16>], attribute: AttributeId) -> usize {
    match positions.get(attribute.index()) {
        Some(Some(position)) => usize::from(*position),
        Some(None) | None => unreachable!("attribute {attribute} is not held by this access path"),
    }
}

impl AccessPath for ColumnPath {
    fn module(&self) -> &'static str {
        COLUMN
    }

    fn rows(&self) -> u32 {
        self.rows as u32
    }

    fn insert(&mut self, rows: &Batch, range: Range<usize>) -> Result<(), StorageError> {
        assert!(self.rows + range.len() <= self.rows_max, "{} rows on top of {}", range.len(), self.rows);
        let long: Vec<usize> = self
            .columns
            .iter()
            .map(|held| long_bytes(&rows.columns[held.attribute.id.index()], range.clone()))
            .collect();
        self.grow(range.len(), &long)?;
        for (held, long) in self.columns.iter_mut().zip(long) {
            let State::Growing { values, data_used, .. } = &mut held.state else {
                unreachable!("rows are inserted before the path is frozen");
            };
            values.extend(&rows.columns[held.attribute.id.index()], range.clone());
            *data_used += long;
        }
        self.rows += range.len();
        Ok(())
    }

    fn scan(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        window: Range<u32>,
        found: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if filter.is_empty() {
            found.extend(window);
            return Ok(());
        }
        state.mask.clear();
        state.mask.resize(window.len(), 1);
        let rows = RowsOf::Run(window.start as usize..window.end as usize);
        let mut conditions = filter.iter();
        while let Some(condition) = conditions.next() {
            self.test(&mut state.mask, condition, &rows)?;
            if conditions.len() > 0 && mask_count(&state.mask) * SPARSE_SHARE < window.len() {
                break;
            }
        }
        let from = found.len();
        mask_to_offsets(&state.mask, window.start, found);
        if conditions.len() > 0 {
            self.retain_from(&mut state.mask, conditions, found, from)?;
        }
        Ok(())
    }

    fn retain(
        &self,
        state: &mut AccessPathScanState,
        filter: PathFilter<'_>,
        offsets: &mut Vec<u32>,
    ) -> Result<(), StorageError> {
        if filter.is_empty() {
            return Ok(());
        }
        self.retain_from(&mut state.mask, filter.iter(), offsets, 0)
    }

    fn link(&self, attribute: AttributeId, offsets: &[u32], out: &mut ColumnBuilder) {
        out.extend_view(&self.view(attribute), &RowsOf::List(offsets));
    }

    fn shared(&self, attribute: AttributeId, run: Range<u32>) -> Option<Column> {
        match &self.columns[position(&self.positions, attribute)].state {
            State::Growing { .. } => None,
            State::Frozen(column) => Some(column.slice(run.start as usize, run.len())),
        }
    }

    fn gather(&self, attribute: AttributeId, offsets: &[u32]) -> Option<Column> {
        match &self.columns[position(&self.positions, attribute)].state {
            State::Frozen(column @ Column { values: Values::Bytes(_), .. }) if offsets.len() >= SHARED_ROWS_MIN => {
                Some(column.take(offsets))
            }
            State::Frozen(_) | State::Growing { .. } => None,
        }
    }

    fn pack(&self, attributes: &[AttributeId], offset: u32, rows: &mut PackedRows) {
        let mut row = rows.last_row();
        for (column, attribute) in attributes.iter().enumerate() {
            match &self.columns[position(&self.positions, *attribute)].state {
                State::Growing { values, .. } => row.write(column, &values.view(), offset as usize),
                State::Frozen(values) => row.write(column, &values.view(), offset as usize),
            }
        }
    }

    fn truncates(&self) -> bool {
        self.columns.iter().all(|held| matches!(held.state, State::Growing { .. }))
    }

    fn truncate(&mut self, rows: u32) {
        let rows = rows as usize;
        assert!(rows <= self.rows, "{rows} of {} rows stay", self.rows);
        let mut left = (self.rows_capacity - rows) * self.row_bytes();
        for held in &mut self.columns {
            if let State::Growing { values, data_capacity, data_used } = &mut held.state {
                *data_used -= values.truncate(rows);
                left += *data_capacity - *data_used;
                *data_capacity = *data_used;
            }
        }
        (self.rows, self.rows_capacity) = (rows, rows);
        self.memory.shrink(left as u64);
    }

    fn freeze(&mut self) {
        self.give_back_room();
        for held in &mut self.columns {
            if let State::Growing { values, .. } = &mut held.state {
                let empty = ColumnBuilder::with_capacity(held.attribute.data_type, 0);
                held.state = State::Frozen(std::mem::replace(values, empty).finish().without_idle_validity());
            }
        }
    }

    fn place(&mut self, arena: &Arena) -> bool {
        let Some(held) = self.columns.get_mut(self.placed) else { return false };
        let State::Frozen(column) = &held.state else {
            unreachable!("columns are placed when they are frozen");
        };
        // Without room they stay where they are, and so do those that follow.
        let Ok((column, taken)) = column.placed(arena) else {
            self.placed = usize::MAX;
            return false;
        };
        held.state = State::Frozen(column);
        self.placed += 1;
        self.placed_bytes += taken;
        if self.placed < self.columns.len() {
            return true;
        }
        // The arena accounts for everything now.
        self.memory.shrink(self.memory.bytes());
        self.home = Some(arena.node());
        false
    }

    fn home(&self) -> Option<NodeId> {
        self.home
    }

    fn share(&self) -> Option<Box<dyn AccessPath>> {
        let share = |held: &Held| match &held.state {
            State::Frozen(column) => Some(Held { attribute: held.attribute, state: State::Frozen(column.clone()) }),
            State::Growing { .. } => None,
        };
        let shared = ColumnPath {
            columns: self.columns.iter().map(share).collect::<Option<_>>()?,
            positions: self.positions.clone(),
            rows: self.rows,
            rows_capacity: self.rows,
            rows_max: self.rows_max,
            // The values are accounted for where they are.
            memory: self.memory.pool().reserve(COLUMN_SEGMENTS),
            placed: 0,
            placed_bytes: 0,
            home: None,
        };
        Some(Box::new(shared))
    }

    fn bytes(&self) -> u64 {
        self.memory.bytes() + self.placed_bytes
    }
}
