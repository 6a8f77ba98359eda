//! Storage module *inverted index*: a local index over one partition for keys that many rows share.
//!
//! ```text
//! keys (a tree, in order)     slots by code        posting lists
//!   'AIR'   -> 2                0  list ─────────> [ packed addresses ] [ packed ] open
//!   'MAIL'  -> 0                1  address
//!   'RAIL'  -> 1                2  list ─────────> ...
//! ```
//! A key is held once and has a code; under the code lie the addresses of its rows, packed (`list.rs`, `block.rs`). So
//! a row of a frequent key costs one or two bytes, where a tree of (key, address) pairs takes thirty. Keys keep their
//! order, so ranges and rows in key order come from it as from an ordered index, and the number of entries of a key is
//! known without counting them.

mod block;
mod list;
mod postings;

use super::btree::{Position, SEEKS_MAX, Tree};
use super::ordered_index::TreeKey;
use super::{
    AccessPathFactory, AddressingMode, Count, INVERTED_INDEX, IndexPath, IndexScanState, Inserted, PathConfiguration,
    PathInstance, Properties,
};
use crate::address::RowAddress;
use crate::batch::Column;
use crate::error::StorageError;
use crate::key::{Key, KeyPart};
use eris_platform::memory::MemoryPool;
use postings::{Code, Postings, Removed};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The factory.
pub(super) struct InvertedIndexModule;

impl AccessPathFactory for InvertedIndexModule {
    fn name(&self) -> &'static str {
        INVERTED_INDEX
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
        let memory = configuration.memory;
        let width = parts.iter().map(|part| part.bytes_max()).sum::<Option<usize>>();
        PathInstance::Index(match width {
            Some(..=8) => Box::new(InvertedIndex::<u64>::new(parts, memory)),
            Some(..=16) => Box::new(InvertedIndex::<u128>::new(parts, memory)),
            Some(_) | None => Box::new(InvertedIndex::<Key>::new(parts, memory)),
        })
    }
}

/// Keys whose entries are counted for a share; what lies behind them is estimated.
const COUNTED_KEYS_MAX: usize = 4_096;

struct InvertedIndex<K> {
    parts: Vec<KeyPart>,
    /// Each key with its code for a handle.
    keys: Tree<K>,
    postings: Postings,
    entries: u64,
    /// The key of the last insert: the next row often has the same.
    last: Option<(K, Code)>,
    pool: Arc<MemoryPool>,
}

impl<K: TreeKey> InvertedIndex<K> {
    fn new(parts: Vec<KeyPart>, memory: &Arc<MemoryPool>) -> Self {
        let (keys, postings) = (Tree::new(memory.reserve("indexes")), Postings::new(memory.reserve("indexes")));
        Self { parts, keys, postings, entries: 0, last: None, pool: Arc::clone(memory) }
    }

    fn code(&self, key: &K) -> Option<Code> {
        let mut position = self.keys.seek(key, 0)?;
        let (found, code) = self.keys.next(&mut position)?;
        (*found == *key).then(|| Code::of_handle(code))
    }

    /// Enters a new key with its first row.
    fn add(&mut self, key: &K, address: u64) -> Result<Code, StorageError> {
        let code = self.postings.add(address)?;
        let heap = key.heap_bytes() as u64;
        let entered = self
            .keys
            .memory()
            .grow(heap)
            .and_then(|()| self.keys.insert(key, code.handle()).inspect_err(|_| self.keys.memory().shrink(heap)));
        match entered {
            Ok(placed) => assert!(placed.new && !placed.key_shared, "a key is in the tree once"),
            Err(exceeded) => {
                self.postings.release(code);
                return Err(exceeded.into());
            }
        }
        Ok(code)
    }

    /// Takes out a key without rows.
    fn take(&mut self, key: &K, code: Code) {
        assert!(self.keys.remove(key, code.handle()), "a key with rows is in the tree");
        self.keys.memory().shrink(key.heap_bytes() as u64);
        self.last = None;
        if self.entries == 0 {
            self.postings.clear();
            // The tree keeps what it has reserved for its next nodes.
            self.keys = Tree::new(self.pool.reserve("indexes"));
        }
    }

    /// The next key of a scan with its code, if it is within the bounds.
    fn step(&self, position: &mut Position, bounds: &Bounds<K>, descending: bool) -> Option<(Cow<'_, K>, Code)> {
        let next = if descending { self.keys.previous(position) } else { self.keys.next(position) };
        next.filter(|(key, _)| bounds.hold(key)).map(|(key, code)| (key, Code::of_handle(code)))
    }

    /// Entries of at most so many keys from `lower` on; and where the counting stopped, if before the end.
    fn count_keys(&self, lower: &K, upper: Option<&K>, keys_max: usize, limit: u64) -> (u64, Option<Cow<'_, K>>) {
        let Some(mut position) = self.keys.seek(lower, 0) else { return (0, None) };
        let (mut entries, mut keys) = (0, 0);
        while let Some((key, code)) = self.keys.next(&mut position)
            && upper.is_none_or(|upper| *key < *upper)
        {
            if keys == keys_max || entries >= limit {
                return (entries, Some(key));
            }
            entries += self.postings.len(Code::of_handle(code));
            keys += 1;
        }
        (entries, None)
    }
}

/// The keys of a scan.
struct Bounds<K> {
    lower: K,
    upper: Option<K>,
}

impl<K: TreeKey> Bounds<K> {
    fn new(lower: &Key, upper: Option<&Key>) -> Self {
        let of_bytes = |key: &Key| K::of_bytes(key.as_bytes());
        Self { lower: of_bytes(lower), upper: upper.map(of_bytes) }
    }

    fn hold(&self, key: &K) -> bool {
        *key >= self.lower && self.upper.as_ref().is_none_or(|upper| key < upper)
    }
}

impl<K: TreeKey> IndexPath for InvertedIndex<K> {
    fn module(&self) -> &'static str {
        INVERTED_INDEX
    }

    fn insert(&mut self, columns: &[Column], row: usize, address: RowAddress) -> Result<Inserted, StorageError> {
        let key = K::of_row(&self.parts, columns, row);
        let known = match &self.last {
            Some((last, code)) if *last == key => Some(*code),
            Some(_) | None => self.code(&key),
        };
        let (code, new) = match known {
            Some(code) => (code, self.postings.insert(code, address.to_bits())?),
            None => (self.add(&key, address.to_bits())?, true),
        };
        self.entries += u64::from(new);
        self.last = Some((key, code));
        Ok(Inserted { key_shared: known.is_some() })
    }

    fn remove(&mut self, columns: &[Column], row: usize, address: RowAddress) -> bool {
        let key = K::of_row(&self.parts, columns, row);
        let Some(code) = self.code(&key) else { return false };
        let removed = self.postings.remove(code, address.to_bits());
        if removed == Removed::Absent {
            return false;
        }
        self.entries -= 1;
        if removed == Removed::Last {
            self.take(&key, code);
        }
        true
    }

    fn scan(&self, state: &mut IndexScanState, rows_max: usize, found: &mut Vec<RowAddress>) -> bool {
        let descending = state.descending;
        let bounds = Bounds::<K>::new(&state.lower, state.upper.as_ref());
        let after = state.after.as_ref().map(|(key, address)| (K::of_bytes(key.as_bytes()), *address));
        let position = match (&after, &bounds.upper) {
            // Behind the key that was left, which may have more rows, in the direction of the scan.
            (Some((key, _)), _) => self.keys.seek(key, if descending { u64::MAX } else { 0 }),
            (None, Some(upper)) if descending => self.keys.seek(upper, 0),
            (None, None) if descending => self.keys.end(),
            (None, _) => self.keys.seek(&bounds.lower, 0),
        };
        let Some(mut position) = position else { return false };
        let mut left = rows_max;
        let mut last = None;
        while let Some((key, code)) = self.step(&mut position, &bounds, descending) {
            let from = after.as_ref().filter(|(after, _)| *after == *key).map(|(_, address)| *address);
            let mut latest = None;
            let whole = self.postings.visit_some(code, from, descending, |address| {
                if left > 0 {
                    found.push(RowAddress::from_bits(address));
                    latest = Some(address);
                    left -= 1;
                    return true;
                }
                false
            });
            if let Some(address) = latest {
                last = Some((key, address));
            }
            if !whole {
                state.after = last.map(|(key, address)| (key.to_key(), address)).or(state.after.take());
                return true;
            }
        }
        false
    }

    fn equal(&self, columns: &[Column], row: usize, visit: &mut dyn FnMut(RowAddress)) {
        let Some(code) = self.code(&K::of_row(&self.parts, columns, row)) else { return };
        self.postings.visit(code, |address| visit(RowAddress::from_bits(address)));
    }

    fn count_up_to(&self, lower: &Key, upper: Option<&Key>, limit: usize) -> usize {
        let Bounds { lower, upper } = Bounds::<K>::new(lower, upper);
        let (entries, _) = self.count_keys(&lower, upper.as_ref(), usize::MAX, limit as u64);
        entries.min(limit as u64) as usize
    }

    /// A group of keys goes through the tree together; then their slots are asked for, and then their lists.
    fn equal_many(&self, columns: &[Column], rows: Range<usize>, visit: &mut dyn FnMut(usize, RowAddress)) {
        let mut keys: [K; SEEKS_MAX] = std::array::from_fn(|_| K::default());
        let mut codes = [None; SEEKS_MAX];
        let mut start = rows.start;
        while start < rows.end {
            let count = SEEKS_MAX.min(rows.end - start);
            for (row, key) in (start..start + count).zip(&mut keys) {
                *key = K::of_row(&self.parts, columns, row);
            }
            let Some(positions) = self.keys.seek_many(&keys[..count]) else { return };
            for (mut position, (key, code)) in positions.zip(keys.iter().zip(&mut codes)) {
                let found = self.keys.next(&mut position).filter(|(found, _)| **found == *key);
                *code = found.map(|(_, code)| Code::of_handle(code));
                if let Some(code) = code {
                    self.postings.prefetch(*code);
                }
            }
            codes[..count].iter().flatten().for_each(|code| self.postings.prefetch_list(*code));
            for (row, code) in (start..).zip(&codes[..count]) {
                let Some(code) = code else { continue };
                self.postings.visit(*code, |address| visit(row, RowAddress::from_bits(address)));
            }
            start += count;
        }
    }

    /// Exact up to some thousand keys; those behind them are taken to have as many rows as the average of the others.
    fn share(&self, lower: &Key, upper: Option<&Key>) -> f64 {
        let Bounds { lower, upper } = Bounds::<K>::new(lower, upper);
        let (counted, rest) = self.count_keys(&lower, upper.as_ref(), COUNTED_KEYS_MAX, u64::MAX);
        let estimated = rest.map_or(0.0, |rest| {
            let keys = (upper.as_ref().map_or(1.0, |upper| self.keys.rank(upper)) - self.keys.rank(&rest)).max(0.0);
            let others = 1.0 - COUNTED_KEYS_MAX as f64 / self.keys.len() as f64;
            (self.entries - counted) as f64 * (keys / others).min(1.0)
        });
        (counted as f64 + estimated) / self.entries.max(1) as f64
    }

    fn may_reach(&self, lower: &Key) -> bool {
        let position = self.keys.seek(&K::of_bytes(lower.as_bytes()), 0);
        position.is_some_and(|mut position| self.keys.next(&mut position).is_some())
    }

    fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Each key that holds an entry whose number is a multiple of the distance.
    fn sample(&self, count: usize) -> Vec<Key> {
        let step = self.entries.div_ceil(count.max(1) as u64).max(1);
        let Some(mut position) = self.keys.seek(&K::default(), 0) else { return Vec::new() };
        let (mut sample, mut before) = (Vec::new(), 0);
        while let Some((key, code)) = self.keys.next(&mut position) {
            let until = before + self.postings.len(Code::of_handle(code));
            if u64::div_ceil(before, step) < u64::div_ceil(until, step) {
                sample.push(key.to_key());
            }
            before = until;
        }
        sample
    }

    fn entries(&self) -> u64 {
        self.entries
    }

    fn bytes(&self) -> u64 {
        self.keys.memory().bytes() + self.postings.memory().bytes()
    }
}

#[cfg(test)]
mod tests;
