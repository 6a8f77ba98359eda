//! Storage module *ordered index*: a local index over one partition, as a tree of (key, row address) pairs.
//!
//! Keys are order-preserving bytes. Fixed-size keys of at most 8 or 16 bytes are packed into an integer (padded with
//! zeros, which keeps order and uniqueness because no key is a prefix of another); others are [`Key`]s. The bounds of a
//! scan are byte strings for all three.

use super::btree::{NodeKey, Position, SEEKS_MAX, Tree};
use super::{
    AccessPathFactory, AddressingMode, Count, IndexPath, ORDERED_INDEX, PathAttribute, PathConfiguration, PathInstance,
    Properties,
};
use crate::address::RowAddress;
use crate::batch::{Column, Values};
use crate::error::StorageError;
use crate::key::{Key, KeyEncoder, KeyPart};
use crate::value::{order_f32, order_f64};
use std::ops::Range;

/// The factory.
pub(super) struct OrderedIndexModule;

impl AccessPathFactory for OrderedIndexModule {
    fn name(&self) -> &'static str {
        ORDERED_INDEX
    }

    fn properties(&self) -> Properties {
        Properties {
            addressing: AddressingMode::Value,
            attributes: Count::None,
            keys: Count::Any,
            key_order: true,
            nulls: true,
            undefined: false,
            variable_length: true,
            shares_frozen_columns: false,
            updates_in_place: false,
        }
    }

    fn create(&self, configuration: PathConfiguration<'_>) -> PathInstance {
        let parts: Vec<KeyPart> = configuration.attributes.iter().map(|attribute| attribute.key_part()).collect();
        let memory = configuration.memory.reserve("indexes");
        let width = parts.iter().map(|part| part.bytes_max()).sum::<Option<usize>>();
        PathInstance::Index(match width {
            Some(..=8) => Box::new(OrderedIndex::<u64>::new(parts, Tree::new(memory))),
            Some(..=16) => Box::new(OrderedIndex::<u128>::new(parts, Tree::new(memory))),
            Some(_) | None => Box::new(OrderedIndex::<Key>::new(parts, Tree::new(memory))),
        })
    }
}

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Whether other rows have the same key: only then a unique index has something to check.
    pub key_shared: bool,
}

/// A scan of an index between two keys; owned, continues wherever the index has grown or shrunk meanwhile.
#[derive(Clone, Debug)]
pub struct IndexScanState {
    pub(super) lower: Key,
    pub(super) upper: Option<Key>,
    pub(super) descending: bool,
    /// The last pair handed out.
    pub(super) after: Option<(Key, u64)>,
}

impl IndexScanState {
    /// Keys at or above `lower` and below `upper` (none: no bound).
    pub fn new(lower: Key, upper: Option<Key>, descending: bool) -> Self {
        Self { lower, upper, descending, after: None }
    }

    /// Continues in `index`; false at the end.
    pub(crate) fn advance(&mut self, index: &dyn IndexPath, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        index.scan(self, rows_max, found)
    }
}

/// A key as the tree stores it.
pub(super) trait TreeKey: NodeKey + Send + Sync + 'static {
    fn of_row(parts: &[KeyPart], columns: &[Column], row: usize) -> Self;
    /// The smallest stored key at or above these bytes.
    fn of_bytes(bytes: &[u8]) -> Self;
    fn to_key(&self) -> Key;
    /// Bytes outside the tree's nodes.
    fn heap_bytes(&self) -> usize;
}

/// Packs fixed-size values, most significant first, into the low bytes; gives the bytes used.
fn pack(parts: &[KeyPart], columns: &[Column], row: usize) -> (u128, u32) {
    let (mut packed, mut used) = (0_u128, 0);
    let mut push = |value: u128, bytes: u32| {
        packed = if bytes == 16 { value } else { packed << (bytes * 8) | value };
        used += bytes;
    };
    for (part, column) in parts.iter().zip(columns) {
        if part.tagged {
            if column.is_null(row) {
                push(0xFF, 1);
                continue;
            }
            push(0x01, 1);
        }
        match &column.values {
            Values::Boolean(buffer) => push(u128::from(buffer[row]), 1),
            Values::Int16(buffer) => push(u128::from(buffer[row] as u16 ^ 1 << 15), 2),
            Values::Int32(buffer) => push(u128::from(buffer[row] as u32 ^ 1 << 31), 4),
            Values::Int64(buffer) => push(u128::from(buffer[row] as u64 ^ 1 << 63), 8),
            Values::Int128(buffer) => push(buffer[row] as u128 ^ 1 << 127, 16),
            Values::Float32(buffer) => push(u128::from(order_f32(buffer[row]) as u32 ^ 1 << 31), 4),
            Values::Float64(buffer) => push(u128::from(order_f64(buffer[row]) as u64 ^ 1 << 63), 8),
            Values::Bytes(_) => unreachable!("keys of variable length are not packed"),
        }
    }
    (packed, used)
}

impl TreeKey for u64 {
    fn of_row(parts: &[KeyPart], columns: &[Column], row: usize) -> Self {
        let (packed, used) = pack(parts, columns, row);
        if used == 0 { 0 } else { (packed as Self) << (64 - used * 8) }
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let mut padded = [0; 8];
        let len = bytes.len().min(8);
        padded[..len].copy_from_slice(&bytes[..len]);
        Self::from_be_bytes(padded)
    }

    fn to_key(&self) -> Key {
        Key::from_bytes(&self.to_be_bytes())
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

impl TreeKey for u128 {
    fn of_row(parts: &[KeyPart], columns: &[Column], row: usize) -> Self {
        let (packed, used) = pack(parts, columns, row);
        if used == 0 { 0 } else { packed << (128 - used * 8) }
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let mut padded = [0; 16];
        let len = bytes.len().min(16);
        padded[..len].copy_from_slice(&bytes[..len]);
        Self::from_be_bytes(padded)
    }

    fn to_key(&self) -> Key {
        Key::from_bytes(&self.to_be_bytes())
    }

    fn heap_bytes(&self) -> usize {
        0
    }
}

impl NodeKey for Key {}

impl TreeKey for Key {
    fn of_row(parts: &[KeyPart], columns: &[Column], row: usize) -> Self {
        let mut encoder = KeyEncoder::new();
        for (part, column) in parts.iter().zip(columns) {
            encoder.push_row(column, row, *part);
        }
        encoder.finish()
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        Self::from_bytes(bytes)
    }

    fn to_key(&self) -> Key {
        self.clone()
    }

    fn heap_bytes(&self) -> usize {
        Self::heap_bytes(self)
    }
}

/// The rows of some columns in the order of their keys: what makes entering many rows at once fast.
pub(crate) fn sorted_order(attributes: &[PathAttribute], columns: &[Column], rows: usize) -> Box<[u32]> {
    fn sort<K: TreeKey>(parts: &[KeyPart], columns: &[Column], rows: usize) -> Box<[u32]> {
        let mut keys: Vec<(K, u32)> = (0..rows).map(|row| (K::of_row(parts, columns, row), row as u32)).collect();
        if !keys.is_sorted() {
            keys.sort_unstable();
        }
        keys.into_iter().map(|(_, row)| row).collect()
    }
    let parts: Vec<KeyPart> = attributes.iter().map(|attribute| attribute.key_part()).collect();
    match parts.iter().map(|part| part.bytes_max()).sum::<Option<usize>>() {
        Some(..=8) => sort::<u64>(&parts, columns, rows),
        Some(..=16) => sort::<u128>(&parts, columns, rows),
        Some(_) | None => sort::<Key>(&parts, columns, rows),
    }
}

struct OrderedIndex<K> {
    parts: Vec<KeyPart>,
    tree: Tree<K>,
}

impl<K: TreeKey> OrderedIndex<K> {
    fn new(parts: Vec<KeyPart>, tree: Tree<K>) -> Self {
        Self { parts, tree }
    }

    fn scan_ascending(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        let position = match &state.after {
            None => self.tree.seek(&K::of_bytes(state.lower.as_bytes()), 0),
            Some((key, handle)) => self.tree.seek(&K::of_bytes(key.as_bytes()), handle + 1),
        };
        let Some(mut position) = position else { return false };
        let upper = state.upper.as_ref().map(|upper| K::of_bytes(upper.as_bytes()));
        let mut last = None;
        for _ in 0..rows_max {
            match self.tree.next(&mut position) {
                Some((key, handle)) if upper.as_ref().is_none_or(|upper| *key < *upper) => {
                    found.push(RowAddress::from_bits(handle));
                    last = Some((key, handle));
                }
                Some(_) | None => return false,
            }
        }
        // Most scans end here: a look ahead saves saving the position and a second call.
        let more = match self.tree.next(&mut position) {
            Some((key, _)) => upper.as_ref().is_none_or(|upper| *key < *upper),
            None => false,
        };
        if more && let Some((key, handle)) = last {
            state.after = Some((key.to_key(), handle));
        }
        more
    }

    fn scan_descending(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        let position: Option<Position> = match (&state.after, &state.upper) {
            (Some((key, handle)), _) => self.tree.seek(&K::of_bytes(key.as_bytes()), *handle),
            (None, Some(upper)) => self.tree.seek(&K::of_bytes(upper.as_bytes()), 0),
            (None, None) => self.tree.end(),
        };
        let Some(mut position) = position else { return false };
        let lower = K::of_bytes(state.lower.as_bytes());
        let mut last = None;
        for _ in 0..rows_max {
            match self.tree.previous(&mut position) {
                Some((key, handle)) if *key >= lower => {
                    found.push(RowAddress::from_bits(handle));
                    last = Some((key, handle));
                }
                Some(_) | None => return false,
            }
        }
        if let Some((key, handle)) = last {
            state.after = Some((key.to_key(), handle));
        }
        true
    }
}

impl<K: TreeKey> IndexPath for OrderedIndex<K> {
    fn module(&self) -> &'static str {
        ORDERED_INDEX
    }

    fn insert(&mut self, columns: &[Column], row: usize, address: RowAddress) -> Result<Inserted, StorageError> {
        let key = K::of_row(&self.parts, columns, row);
        let heap = key.heap_bytes() as u64;
        if heap > 0 {
            self.tree.memory().grow(heap)?;
        }
        match self.tree.insert(&key, address.to_bits()) {
            Ok(placed) => {
                if !placed.new {
                    self.tree.memory().shrink(heap);
                }
                Ok(Inserted { key_shared: placed.key_shared })
            }
            Err(exceeded) => {
                self.tree.memory().shrink(heap);
                Err(exceeded.into())
            }
        }
    }

    fn remove(&mut self, columns: &[Column], row: usize, address: RowAddress) -> bool {
        let key = K::of_row(&self.parts, columns, row);
        let removed = self.tree.remove(&key, address.to_bits());
        if removed {
            self.tree.memory().shrink(key.heap_bytes() as u64);
        }
        removed
    }

    fn begin_moving(&mut self) {
        self.tree.begin_moving();
    }

    fn end_moving(&mut self) {
        self.tree.end_moving();
    }

    fn scan(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        if state.descending {
            self.scan_descending(state, rows_max, found)
        } else {
            self.scan_ascending(state, rows_max, found)
        }
    }

    fn equal(&self, columns: &[Column], row: usize, visit: &mut dyn FnMut(RowAddress)) {
        let key = K::of_row(&self.parts, columns, row);
        let Some(mut position) = self.tree.seek(&key, 0) else { return };
        while let Some((other, handle)) = self.tree.next(&mut position) {
            if *other != key {
                return;
            }
            visit(RowAddress::from_bits(handle));
        }
    }

    fn count_up_to(&self, lower: &Key, upper: Option<&Key>, limit: usize) -> usize {
        let Some(mut position) = self.tree.seek(&K::of_bytes(lower.as_bytes()), 0) else { return 0 };
        let upper = upper.map(|upper| K::of_bytes(upper.as_bytes()));
        let within = |key: &K| upper.as_ref().is_none_or(|upper| key < upper);
        (0..limit).take_while(|_| self.tree.next(&mut position).is_some_and(|(key, _)| within(&key))).count()
    }

    fn equal_many(&self, columns: &[Column], rows: Range<usize>, visit: &mut dyn FnMut(usize, RowAddress)) {
        let mut keys: [K; SEEKS_MAX] = std::array::from_fn(|_| K::default());
        let mut start = rows.start;
        while start < rows.end {
            let count = SEEKS_MAX.min(rows.end - start);
            for (row, key) in (start..start + count).zip(&mut keys) {
                *key = K::of_row(&self.parts, columns, row);
            }
            let Some(positions) = self.tree.seek_many(&keys[..count]) else { return };
            for (row, (key, position)) in (start..).zip(keys[..count].iter().zip(positions)) {
                let mut position = position;
                while let Some((other, handle)) = self.tree.next(&mut position) {
                    if *other != *key {
                        break;
                    }
                    visit(row, RowAddress::from_bits(handle));
                }
            }
            start += count;
        }
    }

    fn share(&self, lower: &Key, upper: Option<&Key>) -> f64 {
        let rank = |key: &Key| self.tree.rank(&K::of_bytes(key.as_bytes()));
        (upper.map_or(1.0, rank) - rank(lower)).max(0.0)
    }

    fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    fn sample(&self, count: usize) -> Vec<Key> {
        self.tree.sample(count).iter().map(TreeKey::to_key).collect()
    }

    fn entries(&self) -> u64 {
        self.tree.len()
    }

    fn bytes(&self) -> u64 {
        self.tree.memory().bytes()
    }
}
