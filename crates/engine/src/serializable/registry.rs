//! What tracked transactions read and wrote in one container.
//!
//! ```text
//!   key sets    {id}         7 -> reads of 1, 4 | writes of 2       found by the key
//!               {owner}     "x" -> reads of 4   | writes of 2
//!   entries     1: keys ..., predicates [amount > 5], writes [...]  tried one after another
//!               3: reads all                                        met by every write
//! ```
//! A predicate that fixes attributes by equality is entered under their values (in a *key set*, one for each choice of
//! attributes, as far as there is room for sets), others in a list. Rows that were written are in every key set. So
//! reads of keys and writes of rows find each other without looking at all the rest, however many there are.
//!
//! Entries of a transaction that are too many, or for which there is no memory, become *coarse*: it has read the whole
//! container, or written some row of it. That costs nothing more, whatever comes.
//!
//! Who is in here may have ended: whether it counts is the graph's to say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eris_platform::Reservation;
use eris_storage::{AttributeId, Comparison, DataType, Key, KeyEncoder, Predicate, Schema, Test, TransactionId, Value};

use super::access::{RowWrite, bytes_of_key, bytes_of_predicate};
use super::key_set::{KeySet, KeyedRead, is_of_type, key_of};
use crate::lock::{Lock, lock};

/// Choices of attributes whose values reads are found by. Each costs every write a key.
const KEY_SETS_MAX: usize = 8;
/// One in so many of a transaction's entries may be a predicate that every write has to try.
const PREDICATES_SHARE: usize = 32;

/// How much a transaction may enter into one container.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    /// Keys read, and rows written; fewer predicates.
    pub entries_max: usize,
    pub memory: &'a Reservation,
}

/// What entering something found out.
#[derive(Debug, Default)]
pub(crate) struct Met {
    /// Whose writes a read does not see, or who read what a write changes: as far as they are concurrent.
    pub others: BTreeSet<TransactionId>,
    /// Entries of the transaction became coarse.
    pub coarsened: bool,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct AccessRegistry {
    inner: Lock<Accesses>,
}

#[derive(Debug, Default)]
struct Accesses {
    /// Their places do not change while there are entries.
    sets: Vec<KeySet>,
    entries: BTreeMap<TransactionId, Entries>,
}

/// Where a predicate is entered.
struct Place {
    set: usize,
    key: Key,
    rest: Option<Predicate>,
}

/// What one transaction has in here.
#[derive(Debug, Default)]
struct Entries {
    keys: Vec<(usize, Key)>,
    predicates: Vec<Predicate>,
    reads_all: bool,
    writes: Vec<Arc<RowWrite>>,
    writes_any: bool,
    /// What is reserved for the reads, and for the writes.
    read_bytes: u64,
    write_bytes: u64,
}

impl AccessRegistry {
    /// Enters a read, which may look at rows from now on.
    pub fn read(&self, reader: TransactionId, predicate: &Predicate, schema: &Schema, bounds: Bounds<'_>) -> Met {
        let accesses = &mut *lock(&self.inner);
        let place = accesses.place_of(predicate, schema);
        let others = accesses.writers_met(reader, predicate, place.as_ref());
        Met { others, coarsened: accesses.enter_read(reader, predicate, place, bounds) }
    }

    /// Enters rows that were written, before anybody else gets at them.
    pub fn write(&self, writer: TransactionId, writes: Vec<RowWrite>, bounds: Bounds<'_>) -> Met {
        let accesses = &mut *lock(&self.inner);
        let mut met = Met::default();
        for write in &writes {
            accesses.add_readers_met(write, &mut met.others);
        }
        met.coarsened = accesses.enter_writes(writer, writes, bounds);
        met
    }

    /// The same for rows that nobody looks at one by one.
    pub fn write_some(&self, writer: TransactionId, bounds: Bounds<'_>) -> Met {
        let accesses = &mut *lock(&self.inner);
        let others = accesses.others(writer).filter(|(_, entries)| entries.has_reads()).map(|(id, _)| id).collect();
        Met { others, coarsened: accesses.coarsen_writes(writer, bounds) }
    }

    /// Whether one of these transactions made a row with one of these keys come or go, or might have.
    pub fn moved_a_key(
        &self,
        writers: &BTreeSet<TransactionId>,
        attributes: &[AttributeId],
        types: &[DataType],
        keys: &BTreeSet<Key>,
    ) -> bool {
        let accesses = &*lock(&self.inner);
        let key = |row: &Option<Box<[Value]>>| row.as_ref().map(|row| key_of(row, attributes, types));
        let moved = |write: &Arc<RowWrite>| {
            if !write.has_all(attributes) {
                return true;
            }
            let (old, new) = (key(&write.old), key(&write.new));
            old != new && [old, new].iter().flatten().any(|key| keys.contains(key))
        };
        let mut entries = writers.iter().filter_map(|writer| accesses.entries.get(writer));
        entries.any(|entries| entries.writes_any || entries.writes.iter().any(moved))
    }

    /// Whether one of these transactions wrote some row.
    pub fn has_writes_of(&self, writers: &BTreeSet<TransactionId>) -> bool {
        let accesses = &*lock(&self.inner);
        let mut entries = writers.iter().filter_map(|writer| accesses.entries.get(writer));
        entries.any(|entries| entries.writes_any || !entries.writes.is_empty())
    }

    /// Takes out what a transaction read. Planted: it matters after the commit.
    #[cfg(feature = "bug_ssi_forgets_committed_reader")]
    pub fn forget_reads(&self, transaction: TransactionId) {
        let accesses = &mut *lock(&self.inner);
        let Some(mut entries) = accesses.entries.remove(&transaction) else { return };
        accesses.take_out_reads(transaction, &mut entries);
        entries.reads_all = false;
        accesses.entries.insert(transaction, entries);
    }

    /// Takes out what a transaction entered.
    pub fn forget(&self, transaction: TransactionId) {
        let accesses = &mut *lock(&self.inner);
        let Some(mut entries) = accesses.entries.remove(&transaction) else { return };
        accesses.take_out_reads(transaction, &mut entries);
        accesses.take_out_writes(&mut entries);
        if accesses.entries.is_empty() {
            debug_assert!(accesses.sets.iter().all(|set| set.reads.is_empty() && set.writes.is_empty()));
            // What comes next may ask for other attributes.
            accesses.sets = Vec::new();
        }
    }

    /// Whether nobody has anything in here.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let accesses = &*lock(&self.inner);
        accesses.entries.is_empty() && accesses.sets.is_empty()
    }
}

impl Accesses {
    fn others(&self, own: TransactionId) -> impl Iterator<Item = (TransactionId, &Entries)> {
        self.entries.iter().filter(move |(id, _)| **id != own).map(|(id, entries)| (*id, entries))
    }

    /// The key set of a predicate, made if there is room; none if it fixes nothing.
    fn place_of(&mut self, predicate: &Predicate, schema: &Schema) -> Option<Place> {
        let mut fixed: Vec<(AttributeId, &Value)> = Vec::new();
        for condition in predicate.conditions.iter() {
            if let Test::Compare(Comparison::Equal, value) = &condition.test
                && schema.attribute(condition.attribute).is_some_and(|it| is_of_type(value, it.data_type))
                && !fixed.iter().any(|(known, _)| *known == condition.attribute)
            {
                fixed.push((condition.attribute, value));
            }
        }
        if let Some(primary) = schema.primary_key() {
            let is_key = |id: &AttributeId| primary.attributes.contains(id);
            if primary.attributes.iter().all(|id| fixed.iter().any(|(known, _)| known == id)) {
                fixed.retain(|(id, _)| is_key(id));
            }
        }
        if fixed.is_empty() {
            return None;
        }
        fixed.sort_unstable_by_key(|(id, _)| *id);
        let set = self.set_of(&fixed, schema)?;
        let mut encoder = KeyEncoder::new();
        for ((_, value), data_type) in fixed.iter().zip(&self.sets[set].types) {
            encoder.push(value, *data_type);
        }
        let rest = (predicate.conditions.len() > fixed.len()).then(|| predicate.clone());
        Some(Place { set, key: encoder.finish(), rest })
    }

    fn set_of(&mut self, fixed: &[(AttributeId, &Value)], schema: &Schema) -> Option<usize> {
        let ids = || fixed.iter().map(|(id, _)| *id);
        if let Some(known) = self.sets.iter().position(|set| set.attributes.iter().copied().eq(ids())) {
            return Some(known);
        }
        let attributes: Box<[AttributeId]> = ids().collect();
        let mut writes = self.entries.values().flat_map(|entries| &entries.writes);
        if self.sets.len() == KEY_SETS_MAX || !writes.all(|write| write.has_all(&attributes)) {
            return None;
        }
        let types = ids().map(|id| schema.attributes[id.index()].data_type).collect();
        let mut set = KeySet::new(attributes, types);
        self.entries.values().flat_map(|entries| &entries.writes).for_each(|write| set.add_write(write));
        self.sets.push(set);
        Some(self.sets.len() - 1)
    }

    fn writers_met(
        &self,
        reader: TransactionId,
        predicate: &Predicate,
        place: Option<&Place>,
    ) -> BTreeSet<TransactionId> {
        let some = self.others(reader).filter(|(_, entries)| entries.writes_any).map(|(id, _)| id);
        let mut writers: BTreeSet<TransactionId> = some.collect();
        match place {
            Some(Place { set, key, rest }) => {
                for write in self.sets[*set].writes.get(key).into_iter().flatten() {
                    if write.transaction != reader && rest.as_ref().is_none_or(|rest| write.concerns(rest)) {
                        writers.insert(write.transaction);
                    }
                }
            }
            None => {
                for (writer, entries) in self.others(reader) {
                    if entries.writes.iter().any(|write| write.concerns(predicate)) {
                        writers.insert(writer);
                    }
                }
            }
        }
        writers
    }

    /// Enters a read, or makes all of the transaction's reads coarse; true if it did the latter.
    fn enter_read(
        &mut self,
        reader: TransactionId,
        predicate: &Predicate,
        place: Option<Place>,
        bounds: Bounds<'_>,
    ) -> bool {
        let entries = self.entries.entry(reader).or_default();
        if entries.reads_all {
            return false;
        }
        if predicate.conditions.is_empty() {
            // There is nothing finer to say.
            self.coarsen_reads(reader, bounds);
            return false;
        }
        let (known, has_room, bytes) = if let Some(Place { set, key, rest }) = &place {
            let same = |read: &KeyedRead| read.transaction == reader && read.rest == *rest;
            let known = self.sets[*set].reads.get(key).is_some_and(|reads| reads.iter().any(same));
            let rest = rest.as_ref().map_or(0, bytes_of_predicate);
            (known, entries.keys.len() < bounds.entries_max, bytes_of_key(key.as_bytes()) + rest)
        } else {
            let predicates_max = bounds.entries_max.div_ceil(PREDICATES_SHARE);
            let known = entries.predicates.contains(predicate);
            (known, entries.predicates.len() < predicates_max, bytes_of_predicate(predicate))
        };
        if known {
            return false;
        }
        if !has_room || bounds.memory.grow(bytes as u64).is_err() {
            self.coarsen_reads(reader, bounds);
            return true;
        }
        entries.read_bytes += bytes as u64;
        match place {
            Some(Place { set, key, rest }) => {
                entries.keys.push((set, key.clone()));
                self.sets[set].reads.entry(key).or_default().push(KeyedRead { transaction: reader, rest });
            }
            None => entries.predicates.push(predicate.clone()),
        }
        false
    }

    fn coarsen_reads(&mut self, reader: TransactionId, bounds: Bounds<'_>) {
        let mut entries = self.entries.remove(&reader).unwrap_or_default();
        self.take_out_reads(reader, &mut entries);
        bounds.memory.shrink(std::mem::take(&mut entries.read_bytes));
        entries.reads_all = true;
        self.entries.insert(reader, entries);
    }

    fn add_readers_met(&self, write: &RowWrite, readers: &mut BTreeSet<TransactionId>) {
        self.sets.iter().for_each(|set| readers.extend(set.readers_of(write)));
        for (reader, entries) in self.others(write.transaction) {
            let concerned = entries.reads_all || entries.predicates.iter().any(|predicate| write.concerns(predicate));
            if concerned {
                readers.insert(reader);
            }
        }
        readers.remove(&write.transaction);
    }

    /// Enters writes, or makes all of the transaction's writes coarse; true if it did the latter.
    fn enter_writes(&mut self, writer: TransactionId, writes: Vec<RowWrite>, bounds: Bounds<'_>) -> bool {
        let entries = self.entries.entry(writer).or_default();
        if entries.writes_any {
            return false;
        }
        let bytes: usize = writes.iter().map(RowWrite::bytes).sum();
        let has_room = entries.writes.len() + writes.len() <= bounds.entries_max;
        let fits = |write: &RowWrite| self.sets.iter().all(|set| write.has_all(&set.attributes));
        if !has_room || !writes.iter().all(fits) || bounds.memory.grow(bytes as u64).is_err() {
            return self.coarsen_writes(writer, bounds);
        }
        entries.write_bytes += bytes as u64;
        for write in writes {
            let write = Arc::new(write);
            self.sets.iter_mut().for_each(|set| set.add_write(&write));
            entries.writes.push(write);
        }
        false
    }

    /// False if they were coarse before.
    fn coarsen_writes(&mut self, writer: TransactionId, bounds: Bounds<'_>) -> bool {
        let mut entries = self.entries.remove(&writer).unwrap_or_default();
        let first = !entries.writes_any;
        self.take_out_writes(&mut entries);
        bounds.memory.shrink(std::mem::take(&mut entries.write_bytes));
        entries.writes_any = true;
        self.entries.insert(writer, entries);
        first
    }

    fn take_out_reads(&mut self, reader: TransactionId, entries: &mut Entries) {
        entries.predicates = Vec::new();
        for (set, key) in std::mem::take(&mut entries.keys) {
            self.sets[set].take_out_reads(reader, &key);
        }
    }

    fn take_out_writes(&mut self, entries: &mut Entries) {
        for write in std::mem::take(&mut entries.writes) {
            self.sets.iter_mut().for_each(|set| set.take_out_writes(&write));
        }
    }
}

impl Entries {
    fn has_reads(&self) -> bool {
        self.reads_all || !self.keys.is_empty() || !self.predicates.is_empty()
    }
}
