//! Which group a row belongs to.
//!
//! The group columns of a row are packed into a word where they fit ([`Layout`]), else into bytes ([`EncodedRows`]).
//! An open-addressing table leads from the hash of that to the group; the rows of a batch are looked up together, so
//! that they wait for memory at the same time. When a batch does not fit the layout, the groups so far are packed anew.
//! What grows is reserved in the [`Room`] before. Texts that come with ids of a shared dictionary are found by these
//! ([`Coded`]).

use eris_platform::MemoryExceeded;
use eris_storage::{Column, DataType, Values};

use super::chosen::Chosen;
use super::coded::Coded;
use super::dense::{Dense, places_between};
use super::encoded::EncodedRows;
use super::layout::{Layout, Width, Word};
use super::room::Room;
use crate::hash::{hash_bytes, prefetch};

/// Of the table before the first group.
const ENTRIES_MIN: usize = 64;
/// Larger tables are not in the first cache: entries are asked for ahead.
const ENTRIES_CACHED_MAX: usize = 2_048;
/// Up to here the table grows fourfold, then twofold.
const ENTRIES_FOURFOLD_MAX: usize = 1 << 16;
/// A table that is refused memory to grow is filled further. This part of its entries (an eighth) stays free ...
const FREE_SHARE: usize = 8;
/// ... and it asks for memory again each time a sixteenth more is filled.
const RETRY_SHARE: usize = 16;
/// Fewer groups of integers are not worth an array.
const DENSE_GROUPS_MIN: usize = 2_048;
/// Rows that are looked up together.
const GROUP_ROWS: usize = 64;

/// The keys of all groups.
#[derive(Debug)]
enum Keys {
    Narrow(Vec<u64>),
    Wide(Vec<u128>),
    Rows(EncodedRows),
}

#[derive(Debug)]
pub(super) struct Groups {
    layout: Layout,
    keys: Keys,
    table: Table,
    dense: Dense,
    coded: Coded,
}

/// From hashes to groups.
#[derive(Debug, Default)]
struct Table {
    /// A hash's lower half, then the group plus one; 0 is free. The length is a power of two.
    entries: Vec<u64>,
    len: usize,
    /// The table grows before it gets more groups than this: half of its length, more after it was refused memory.
    groups_max: usize,
}

/// Keys of groups, and those of a batch.
trait Store {
    type Batch: ?Sized;
    fn hash(batch: &Self::Batch, row: usize) -> u64;
    fn hash_of(&self, group: usize) -> u64;
    fn is_equal(&self, group: usize, batch: &Self::Batch, row: usize) -> bool;
    fn push(&mut self, batch: &Self::Batch, row: usize);
    fn reserve(&mut self, groups: usize);
}

impl<W: Word> Store for Vec<W> {
    type Batch = [W];

    #[inline]
    fn hash(batch: &[W], row: usize) -> u64 {
        batch[row].hash()
    }

    fn hash_of(&self, group: usize) -> u64 {
        self[group].hash()
    }

    #[inline]
    fn is_equal(&self, group: usize, batch: &[W], row: usize) -> bool {
        self[group] == batch[row]
    }

    #[inline]
    fn push(&mut self, batch: &[W], row: usize) {
        self.push(batch[row]);
    }

    fn reserve(&mut self, groups: usize) {
        self.reserve_exact(groups - self.len());
    }
}

impl Store for EncodedRows {
    type Batch = Self;

    fn hash(batch: &Self, row: usize) -> u64 {
        hash_bytes(batch.row(row))
    }

    fn hash_of(&self, group: usize) -> u64 {
        hash_bytes(self.row(group))
    }

    fn is_equal(&self, group: usize, batch: &Self, row: usize) -> bool {
        self.row(group) == batch.row(row)
    }

    fn push(&mut self, batch: &Self, row: usize) {
        self.push(batch.row(row));
    }

    fn reserve(&mut self, groups: usize) {
        self.reserve_rows(groups);
    }
}

impl Groups {
    pub fn new(types: Vec<DataType>) -> Self {
        let layout = Layout::new(types);
        Self {
            keys: Keys::new(layout.width),
            layout,
            table: Table::default(),
            dense: Dense::default(),
            coded: Coded::default(),
        }
    }

    /// Bytes of a group's key, without those of texts.
    pub fn group_bytes(&self) -> usize {
        bytes_of(self.layout.width)
    }

    /// Bytes of texts, and of keys that are kept as bytes.
    pub fn text_bytes(&self) -> u64 {
        match &self.keys {
            Keys::Narrow(_) | Keys::Wide(_) => 0,
            Keys::Rows(rows) => rows.text_bytes(),
        }
    }

    pub fn len(&self) -> usize {
        self.table.len
    }

    /// Between which integers all groups lie, if they are of one integer that is nowhere NULL.
    pub fn integer_bounds(&self) -> Option<(i64, i64)> {
        self.layout.integer_shift().and_then(|_| self.dense.bounds())
    }

    /// How many places an array for all groups would have, if there is none yet.
    pub fn places_to_make(&self) -> u64 {
        match self.integer_bounds() {
            Some((low, high)) if !self.dense.is_used() => places_between(low, high),
            _ => 0,
        }
    }

    /// Gives up the array for good: groups are not looked for any more.
    pub fn leave_dense(&mut self, room: &mut Room) {
        self.dense.leave(room);
    }

    /// Behind the last row: makes the array that finds all groups, however empty; false if there is no memory for it.
    pub fn make_dense(&mut self, room: &mut Room) -> bool {
        let (Keys::Narrow(own), Some(shift)) = (&self.keys, self.layout.integer_shift()) else { return false };
        if !self.dense.is_used() {
            if !self.dense.fit(room) {
                return false;
            }
            self.table.forget(room);
            self.dense.enter(own.iter().map(|word| integer_of(*word, shift)));
        }
        true
    }

    /// The array that finds all groups, if there is one.
    pub fn dense(&self) -> Option<&Dense> {
        self.dense.is_used().then_some(&self.dense)
    }

    /// The group columns of some groups.
    pub fn columns(&self, groups: &Chosen<'_>) -> Vec<Column> {
        match &self.keys {
            Keys::Narrow(_) if self.layout.types().is_empty() => Vec::new(),
            Keys::Narrow(words) => self.layout.columns(&groups.of(words)),
            Keys::Wide(words) => self.layout.columns(&groups.of(words)),
            Keys::Rows(rows) => rows.columns(self.layout.types(), groups),
        }
    }

    /// The group of each row; new groups are added in the order in which they are met.
    pub fn assign(&mut self, keys: &[Column], rows: usize, room: &mut Room) -> Result<Vec<u32>, MemoryExceeded> {
        if keys.is_empty() {
            if rows > 0 && self.table.len == 0 {
                room.grow()?;
                self.table.len = 1;
            }
            return Ok(vec![0; rows]);
        }
        // It is out while it asks for groups.
        let mut coded = std::mem::take(&mut self.coded);
        let found = coded.find_or_add(keys, rows, room, |rows, room| {
            let keys: Vec<Column> = keys.iter().map(|key| key.take(rows)).collect();
            self.assign_by_values(&keys, rows.len(), room)
        });
        self.coded = coded;
        found.unwrap_or_else(|| self.assign_by_values(keys, rows, room))
    }

    fn assign_by_values(&mut self, keys: &[Column], rows: usize, room: &mut Room) -> Result<Vec<u32>, MemoryExceeded> {
        self.layout.follow(keys);
        if let Some(wider) = self.layout.widened_for(keys) {
            self.pack_anew(wider, room)?;
        }
        self.find_or_add(keys, rows, room)
    }

    fn find_or_add(&mut self, keys: &[Column], rows: usize, room: &mut Room) -> Result<Vec<u32>, MemoryExceeded> {
        let Self { layout, keys: own, table, dense, .. } = self;
        match (own, layout.integer_shift()) {
            (Keys::Narrow(own), Some(shift)) => {
                let values = integers_of(&keys[0]);
                dense.note(&values);
                if !dense.is_used() && table.len >= DENSE_GROUPS_MIN && dense.widen(room) {
                    table.forget(room);
                    dense.enter(own.iter().map(|word| integer_of(*word, shift)));
                } else if dense.is_used() && !dense.is_wide_enough() && !dense.widen(room) {
                    dense.leave(room);
                    table.recall(own, room)?;
                }
                if dense.is_used() {
                    let word = |value: i64| (value as u64) << shift >> shift;
                    return dense.find_or_add(&values, |row| table.push(own, &[word(values[row])], 0, room));
                }
                table.find_or_add(own, &layout.words(keys, rows), rows, room)
            }
            (Keys::Narrow(own), None) => table.find_or_add(own, &layout.words(keys, rows), rows, room),
            (Keys::Wide(own), _) => table.find_or_add(own, &layout.words(keys, rows), rows, room),
            (Keys::Rows(own), _) => table.find_or_add(own, &EncodedRows::of(keys, rows), rows, room),
        }
    }

    /// Goes over to another layout.
    fn pack_anew(&mut self, layout: Layout, room: &mut Room) -> Result<(), MemoryExceeded> {
        let len = self.table.len;
        if self.dense.is_used() {
            self.dense.leave(room);
            self.table.make_entries(room)?;
        }
        // Before anything changes: when it is refused, the groups are what they were.
        room.widen_groups(self.group_bytes(), bytes_of(layout.width))?;
        let old = std::mem::replace(&mut self.keys, Keys::new(layout.width));
        let columns = match &old {
            Keys::Narrow(words) => self.layout.columns(words),
            Keys::Wide(words) => self.layout.columns(words),
            Keys::Rows(rows) => rows.columns(layout.types(), &(0..len).into()),
        };
        self.layout = layout;
        let groups = room.groups().max(len);
        match &mut self.keys {
            Keys::Narrow(own) => {
                own.reserve_exact(groups);
                own.extend(self.layout.words::<u64>(&columns, len));
                self.table.enter_anew(own);
            }
            Keys::Wide(own) => {
                own.reserve_exact(groups);
                own.extend(self.layout.words::<u128>(&columns, len));
                self.table.enter_anew(own);
            }
            Keys::Rows(own) => {
                *own = EncodedRows::of(&columns, len);
                own.reserve_rows(groups);
                room.texts(own.text_bytes())?;
                self.table.enter_anew(own);
            }
        }
        Ok(())
    }

    /// Whether there are groups that ids lead to.
    #[cfg(test)]
    pub fn are_found_by_ids(&self) -> bool {
        self.coded.is_used()
    }

    /// Bytes that are allocated for anything but texts.
    #[cfg(test)]
    pub fn allocated_bytes(&self) -> usize {
        let keys = match &self.keys {
            Keys::Narrow(words) => words.capacity() * size_of::<u64>(),
            Keys::Wide(words) => words.capacity() * size_of::<u128>(),
            Keys::Rows(rows) => rows.allocated_bytes(),
        };
        keys + self.table.entries.capacity() * size_of::<u64>() + self.dense.bytes() + self.coded.bytes()
    }
}

impl Keys {
    fn new(width: Width) -> Self {
        match width {
            Width::Narrow => Self::Narrow(Vec::new()),
            Width::Wide => Self::Wide(Vec::new()),
            Width::Rows => Self::Rows(EncodedRows::default()),
        }
    }
}

/// Bytes of a key, without those of texts.
fn bytes_of(width: Width) -> usize {
    match width {
        Width::Narrow => size_of::<u64>(),
        Width::Wide => size_of::<u128>(),
        Width::Rows => EncodedRows::ROW_BYTES,
    }
}

/// The integer of a word that leaves so many bits free.
fn integer_of(word: u64, shift: u32) -> i64 {
    ((word << shift) as i64) >> shift
}

/// What a column of integers has.
fn integers_of(column: &Column) -> Vec<i64> {
    match &column.values {
        Values::Int16(values) => values.iter().map(|value| i64::from(*value)).collect(),
        Values::Int32(values) => values.iter().map(|value| i64::from(*value)).collect(),
        Values::Int64(values) => values.to_vec(),
        other => unreachable!("groups of integers have integers, not {other:?}"),
    }
}

#[inline]
fn slot_of(hash: u64, entries: usize) -> usize {
    (hash >> 32) as usize & (entries - 1)
}

impl Table {
    fn find_or_add<S: Store>(
        &mut self,
        store: &mut S,
        batch: &S::Batch,
        rows: usize,
        room: &mut Room,
    ) -> Result<Vec<u32>, MemoryExceeded> {
        if self.entries.is_empty() {
            room.add(ENTRIES_MIN * size_of::<u64>())?;
            self.entries_anew(ENTRIES_MIN);
        }
        let mut groups = vec![0; rows];
        let mut hashes = [0_u64; GROUP_ROWS];
        for start in (0..rows).step_by(GROUP_ROWS) {
            let hashes = &mut hashes[..GROUP_ROWS.min(rows - start)];
            for (at, hash) in hashes.iter_mut().enumerate() {
                *hash = S::hash(batch, start + at);
            }
            if self.entries.len() > ENTRIES_CACHED_MAX {
                for hash in hashes.iter() {
                    prefetch(&self.entries, slot_of(*hash, self.entries.len()));
                }
            }
            for (at, (hash, group)) in hashes.iter().zip(&mut groups[start..]).enumerate() {
                *group = self.find_or_add_one(store, batch, start + at, *hash, room)?;
            }
        }
        Ok(groups)
    }

    #[inline]
    fn find_or_add_one<S: Store>(
        &mut self,
        store: &mut S,
        batch: &S::Batch,
        row: usize,
        hash: u64,
        room: &mut Room,
    ) -> Result<u32, MemoryExceeded> {
        let mask = self.entries.len() - 1;
        let mut slot = slot_of(hash, self.entries.len());
        loop {
            let entry = self.entries[slot];
            if entry == 0 {
                return self.add(store, batch, row, slot, hash, room);
            }
            let group = entry as u32 - 1;
            if entry >> 32 == u64::from(hash as u32) && store.is_equal(group as usize, batch, row) {
                return Ok(group);
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    #[inline(never)]
    fn add<S: Store>(
        &mut self,
        store: &mut S,
        batch: &S::Batch,
        row: usize,
        slot: usize,
        hash: u64,
        room: &mut Room,
    ) -> Result<u32, MemoryExceeded> {
        // Before the group is added: calls that are refused must not fill the table.
        if self.len >= self.groups_max {
            self.grow(store, room)?;
            return self.find_or_add_one(store, batch, row, hash, room);
        }
        let group = self.push(store, batch, row, room)?;
        self.entries[slot] = (hash << 32) | (u64::from(group) + 1);
        Ok(group)
    }

    /// Makes the table longer; without memory for it that waits, as long as enough entries are free.
    fn grow<S: Store>(&mut self, store: &S, room: &mut Room) -> Result<(), MemoryExceeded> {
        let entries = self.entries.len();
        let mut grow = |factor: usize| {
            let size = entries * factor;
            room.add((size - entries) * size_of::<u64>()).map(|()| size)
        };
        let fourfold = if entries <= ENTRIES_FOURFOLD_MAX { grow(4).ok() } else { None };
        match fourfold.map_or_else(|| grow(2), Ok) {
            Ok(size) => {
                self.entries_anew(size);
                self.enter_anew(store);
            }
            Err(_) if self.len < entries - entries / FREE_SHARE => {
                self.groups_max = (self.len + entries / RETRY_SHARE).min(entries - entries / FREE_SHARE);
            }
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    /// Replaces the table by an empty one of this size. The old one is freed first, because only one is reserved.
    fn entries_anew(&mut self, entries: usize) {
        self.entries = Vec::new();
        self.entries = vec![0; entries];
        self.groups_max = entries / 2;
    }

    /// Adds a group without an entry.
    fn push<S: Store>(
        &mut self,
        store: &mut S,
        batch: &S::Batch,
        row: usize,
        room: &mut Room,
    ) -> Result<u32, MemoryExceeded> {
        if self.len == room.groups() {
            room.grow()?;
            store.reserve(room.groups());
        }
        let group = self.len as u32;
        store.push(batch, row);
        self.len += 1;
        Ok(group)
    }

    /// Gives the entries up: groups are found otherwise.
    fn forget(&mut self, room: &mut Room) {
        room.give_back(self.entries.len() * size_of::<u64>());
        self.entries = Vec::new();
    }

    /// Room for entries of all groups, and as many more.
    fn make_entries(&mut self, room: &mut Room) -> Result<(), MemoryExceeded> {
        let size = (self.len * 4).next_power_of_two().max(ENTRIES_MIN);
        room.add(size * size_of::<u64>())?;
        self.entries_anew(size);
        Ok(())
    }

    /// Makes entries for all groups anew.
    fn recall<S: Store>(&mut self, store: &S, room: &mut Room) -> Result<(), MemoryExceeded> {
        self.make_entries(room)?;
        self.enter_anew(store);
        Ok(())
    }

    /// Enters all groups into the table, which has room.
    fn enter_anew<S: Store>(&mut self, store: &S) {
        self.entries.fill(0);
        let size = self.entries.len();
        for group in 0..self.len {
            let hash = store.hash_of(group);
            let mut slot = slot_of(hash, size);
            while self.entries[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            self.entries[slot] = (hash << 32) | (group as u64 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coded_batches::{coded, coded_columns};
    use eris_platform::{DeterministicMap, MemoryPool, SeededRandom};
    use eris_storage::{Batch, ContainerDictionaries, Value};

    /// Integers that move about, grow denser and sparser: array and hash table take turns.
    #[test]
    fn groups_of_integers_survive_changes_of_their_table() {
        let mut used = [0; 2];
        for seed in 0..40 {
            let mut random = SeededRandom::new(seed);
            let pool = MemoryPool::unlimited();
            let (mut groups, mut known) = (Groups::new(vec![DataType::Int32]), DeterministicMap::<i32, u32>::default());
            let mut room = Room::new(&pool, groups.group_bytes());
            let mut middle = 0;
            for step in 0..30 {
                let spread = [10, 3_000, 200_000][random.index(3)];
                middle += random.between(-40_000, 40_000) as i32;
                let values: Vec<Value> = (0..1_500)
                    .map(|at| match (step, at, seed % 4) {
                        (20, 7, 0) => Value::Int32(i32::MIN),
                        (21, 8, 0) => Value::Int32(i32::MAX),
                        (25, 9, 1) => Value::Null,
                        _ => Value::Int32(middle + random.below(spread) as i32),
                    })
                    .collect();
                let rows: Vec<Vec<Value>> = values.iter().map(|value| vec![value.clone()]).collect();
                let batch = Batch::from_rows(&[DataType::Int32], &rows);
                let found = groups.assign(&batch.columns, batch.rows, &mut room).unwrap();
                for (value, group) in values.iter().zip(found) {
                    let Value::Int32(value) = value else { continue };
                    assert_eq!(*known.entry(*value).or_insert(group), group, "seed {seed}, step {step}: {value}");
                }
                used[usize::from(groups.dense.is_used())] += 1;
                assert!(room.bytes() >= groups.allocated_bytes() as u64);
            }
            let columns = groups.columns(&(0..groups.len()).into());
            for (value, group) in &known {
                assert_eq!(columns[0].value(*group as usize), Value::Int32(*value));
            }
            let numbers: std::collections::BTreeSet<u32> = known.values().copied().collect();
            assert_eq!(numbers.len(), known.len(), "each value has a group of its own");
        }
        assert!(used.iter().all(|times| *times > 100), "{used:?}");
    }

    #[test]
    fn texts_are_ids_as_long_as_all_come_from_one_dictionary() {
        let types = [DataType::Text, DataType::Int32];
        let batch = |texts: std::ops::Range<i32>, nulls: bool, short: bool| {
            let text = |n: i32| if short { format!("t{n}") } else { format!("a long text, number {n}") };
            let row = |n: i32| match n % 7 {
                0 if nulls => vec![Value::Null, Value::Int32(n % 3)],
                _ => vec![Value::Text(text(texts.start + n % texts.len() as i32).into()), Value::Int32(n % 3)],
            };
            Batch::from_rows(&types, &(0..600).map(row).collect::<Vec<_>>())
        };
        for short in [false, true] {
            let pool = MemoryPool::unlimited();
            let dictionaries = ContainerDictionaries::new(&pool);
            let mut groups = Groups::new(types.to_vec());
            let mut room = Room::new(&pool, groups.group_bytes());
            let mut known = std::collections::BTreeMap::<Vec<Value>, u32>::new();
            // The dictionary grows, NULLs come, then texts without ids.
            for (texts, nulls, has_ids) in
                [(0..10, false, true), (5..30, false, true), (0..30, true, true), (20..40, true, false)]
            {
                let plain = batch(texts, nulls, short);
                let batch = if has_ids { coded(&plain, &dictionaries) } else { plain };
                assert_eq!(coded_columns(&batch), usize::from(has_ids));
                for (row, group) in
                    groups.assign(&batch.columns, batch.rows, &mut room).unwrap().into_iter().enumerate()
                {
                    let next = known.len() as u32;
                    assert_eq!(*known.entry(batch.row(row)).or_insert(next), group, "{:?}", batch.row(row));
                }
                match (&groups.keys, has_ids, short) {
                    (Keys::Narrow(_), true, _) | (Keys::Rows(_), false, false) | (Keys::Wide(_), false, true) => {}
                    _ => panic!("ids {has_ids}, short {short}: {:?}", groups.layout),
                }
                let columns = Batch::new(groups.columns(&(0..groups.len()).into()), groups.len());
                assert_eq!(coded_columns(&columns), usize::from(has_ids));
                assert!(known.iter().all(|(row, group)| columns.row(*group as usize) == *row));
            }
        }
    }
}
