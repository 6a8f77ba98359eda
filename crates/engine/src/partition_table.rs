//! Which partition holds which rows: an immutable table per version.
//!
//! A row has a *position*, a byte string: its encoded key under range partitioning, the big-endian hash of that key
//! under hash partitioning. Each entry owns the positions from its lower bound up to the next entry's, so one binary
//! search serves both methods and a split is one more bound in either. Tables without a key are partitioned by size:
//! their entries have no bounds, rows go to the partition that takes inserts, and reads visit all.
//!
//! ```text
//!  version 7:   [-inf ........ "f") [ "f" ............ "q") [ "q" ........ +inf)
//!                 LP 12               LP 31                   LP 15
//! ```
//!
//! A dataflow pins one version; its tables are the pins that are counted. What splits, moves or merges later passes
//! commands on (see [`crate::placement`]). An entry also says where its partition lived when the version was made: by
//! that a broadcast is divided among the nodes, so that a partition on its way is met once.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::Arc;

use eris_platform::{DeterministicState, NodeId};
use eris_storage::{
    AttributeId, Batch, Comparison, Key, KeyEncoder, KeyPart, PartitionId, Predicate, Schema, Test, Value, Values,
    key_of_values,
};

use crate::ids::TableVersion;
use crate::partition::{Bounds, LivingPartition};

/// How a container is cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Partitioning {
    /// By ranges of these attributes; starts with one partition.
    Range(Box<[AttributeId]>),
    /// By ranges of the hash of these attributes; starts with `partitions`.
    Hash {
        /// The attributes that are hashed.
        attributes: Box<[AttributeId]>,
        /// Partitions to start with.
        partitions: usize,
    },
    /// By size alone: for containers without a key.
    Size {
        /// Partitions to start with.
        partitions: usize,
    },
}

/// Rows of a batch whose positions are at its ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowEnds {
    pub lowest: usize,
    /// One with the lowest position but that, if there are two different ones.
    pub next: Option<usize>,
    pub highest: usize,
}

impl RowEnds {
    /// By numbers that are ordered as positions are.
    fn of(numbers: impl Iterator<Item = i64>) -> Option<Self> {
        let mut ends: Option<[(i64, usize); 2]> = None;
        let mut next: Option<(i64, usize)> = None;
        for at in numbers.enumerate().map(|(row, number)| (number, row)) {
            let [lowest, highest] = ends.get_or_insert([at; 2]);
            if at.0 < lowest.0 {
                next = Some(std::mem::replace(lowest, at));
            } else if at.0 > lowest.0 && next.is_none_or(|next| at.0 < next.0) {
                next = Some(at);
            }
            if at.0 > highest.0 {
                *highest = at;
            }
        }
        ends.map(|[lowest, highest]| Self { lowest: lowest.1, next: next.map(|next| next.1), highest: highest.1 })
    }
}

impl Partitioning {
    /// The attributes that decide a row's position; none when partitioned by size.
    pub fn attributes(&self) -> &[AttributeId] {
        match self {
            Self::Range(attributes) | Self::Hash { attributes, .. } => attributes,
            Self::Size { .. } => &[],
        }
    }

    /// Partitions to start with.
    pub fn initial_partitions(&self) -> usize {
        match self {
            Self::Range(_) => 1,
            Self::Hash { partitions, .. } | Self::Size { partitions } => (*partitions).max(1),
        }
    }

    /// Whether rows have positions, that is: whether a key names one partition.
    pub fn has_positions(&self) -> bool {
        !matches!(self, Self::Size { .. })
    }

    /// Position of a row whose columns are in schema order.
    pub fn position_of_row(&self, rows: &Batch, row: usize) -> Key {
        self.position_of_columns(rows, row, self.attributes().iter().map(|attribute| attribute.index()))
    }

    /// The ends of rows whose columns are in schema order, where numbers say it at once: under ranges of one integer.
    pub(crate) fn ends_of_rows(&self, rows: &Batch) -> Option<RowEnds> {
        let Self::Range(attributes) = self else { return None };
        let [attribute] = &**attributes else { return None };
        let column = &rows.columns[attribute.index()];
        if column.null_count() > 0 {
            return None;
        }
        match &column.values {
            Values::Int16(values) => RowEnds::of(values.iter().map(|value| i64::from(*value))),
            Values::Int32(values) => RowEnds::of(values.iter().map(|value| i64::from(*value))),
            Values::Int64(values) => RowEnds::of(values.iter().copied()),
            Values::Boolean(_) | Values::Int128(_) | Values::Float32(_) | Values::Float64(_) | Values::Bytes(_) => None,
        }
    }

    /// Position of a row of a batch that holds the partitioning attributes only, in their order.
    pub(crate) fn position_of_key_row(&self, keys: &Batch, row: usize) -> Key {
        self.position_of_key_columns(keys, row, 0)
    }

    /// Position of a row whose partitioning attributes begin at column `first`, in their order.
    pub(crate) fn position_of_key_columns(&self, rows: &Batch, row: usize, first: usize) -> Key {
        self.position_of_columns(rows, row, first..first + self.attributes().len())
    }

    fn position_of_columns(&self, rows: &Batch, row: usize, columns: impl Iterator<Item = usize>) -> Key {
        let mut encoder = KeyEncoder::new();
        for column in columns {
            let column = &rows.columns[column];
            encoder.push_row(column, row, KeyPart { data_type: column.data_type, tagged: true });
        }
        self.position_of_key(encoder.finish())
    }

    fn position_of_key(&self, key: Key) -> Key {
        match self {
            Self::Range(_) => key,
            Self::Hash { .. } => hash_position(key.as_bytes()),
            Self::Size { .. } => unreachable!("rows of a container partitioned by size have no position"),
        }
    }

    /// Lower bounds of the partitions a container starts with.
    pub(crate) fn initial_bounds(&self) -> Vec<Option<Key>> {
        let partitions = self.initial_partitions();
        match self {
            Self::Range(_) => vec![None],
            Self::Size { .. } => vec![None; partitions],
            Self::Hash { .. } => (0..partitions)
                .map(|index| {
                    let bound = ((index as u128) << 64) / partitions as u128;
                    (index > 0).then(|| Key::from_bytes(&(bound as u64).to_be_bytes()))
                })
                .collect(),
        }
    }

    /// Whether equalities on all partitioning attributes pin down one position.
    pub(crate) fn is_pinned_down_by(&self, predicate: &Predicate) -> bool {
        self.has_positions() && self.attributes().iter().all(|attribute| equal_to(predicate, *attribute).is_some())
    }

    /// The position that a predicate pins down by equalities on all partitioning attributes.
    pub(crate) fn position_of_predicate(&self, schema: &Schema, predicate: &Predicate) -> Option<Key> {
        if !self.has_positions() {
            return None;
        }
        let mut encoder = KeyEncoder::new();
        for attribute in self.attributes() {
            encoder.push(equal_to(predicate, *attribute)?, schema.attributes[attribute.index()].data_type);
        }
        Some(self.position_of_key(encoder.finish()))
    }

    /// The range of positions `[low, high]` that a predicate leaves, as prefixes of keys; only for ranges.
    fn range_of_predicate(&self, schema: &Schema, predicate: &Predicate) -> (Option<Key>, Option<Key>) {
        let Self::Range(attributes) = self else { return (None, None) };
        let mut low: Option<Key> = None;
        let mut high: Option<Key> = None;
        for condition in predicate.conditions.iter().filter(|condition| condition.attribute == attributes[0]) {
            let Test::Compare(comparison, value) = &condition.test else { continue };
            let key = key_of_values(&[(value, schema.attributes[attributes[0].index()].data_type)]);
            let (is_low, is_high) = match comparison {
                Comparison::Equal => (true, true),
                Comparison::Greater | Comparison::GreaterOrEqual => (true, false),
                Comparison::Less | Comparison::LessOrEqual => (false, true),
                Comparison::NotEqual => (false, false),
            };
            if is_low && low.as_ref().is_none_or(|current| *current < key) {
                low = Some(key.clone());
            }
            if is_high && high.as_ref().is_none_or(|current| *current > key) {
                high = Some(key);
            }
        }
        (low, high)
    }
}

/// The constant that an attribute has to equal.
fn equal_to(predicate: &Predicate, attribute: AttributeId) -> Option<&Value> {
    predicate.conditions.iter().find_map(|condition| match &condition.test {
        Test::Compare(Comparison::Equal, value) if condition.attribute == attribute => Some(value),
        _ => None,
    })
}

fn hash_position(key: &[u8]) -> Key {
    let mut hasher = DeterministicState::default().build_hasher();
    hasher.write(key);
    // The multiply-xor at the end spreads short keys over the whole range, which the bounds divide evenly.
    let mixed = (hasher.finish() ^ (hasher.finish() >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Key::from_bytes(&(mixed ^ (mixed >> 29)).to_be_bytes())
}

/// One partition and where its positions begin.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub lower: Option<Key>,
    pub home: NodeId,
    pub partition: Arc<LivingPartition>,
}

impl Entry {
    /// Of a partition where it lives now.
    pub fn new(lower: Option<Key>, partition: Arc<LivingPartition>) -> Self {
        Self { lower, home: partition.home(), partition }
    }
}

/// One version of a container's partition table.
#[derive(Debug)]
pub(crate) struct PartitionTable {
    pub version: TableVersion,
    pub partitioning: Arc<Partitioning>,
    entries: Vec<Entry>,
}

impl PartitionTable {
    pub fn new(version: TableVersion, partitioning: Arc<Partitioning>, entries: Vec<Entry>) -> Self {
        assert!(!entries.is_empty(), "a partition table covers its domain, so it has an entry");
        if partitioning.has_positions() {
            assert!(entries[0].lower.is_none(), "the first partition starts below every position");
            assert!(
                entries.windows(2).all(|pair| pair[0].lower < pair[1].lower),
                "partition bounds are disjoint and in order"
            );
        }
        for (index, entry) in entries.iter().enumerate() {
            let known = entries[..index].iter().any(|other| Arc::ptr_eq(&other.partition, &entry.partition));
            assert!(!known, "partition {} is in a table once", entry.partition.id.0);
        }
        Self { version, partitioning, entries }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn partitions(&self) -> impl Iterator<Item = &Arc<LivingPartition>> {
        self.entries.iter().map(|entry| &entry.partition)
    }

    /// The partition that owns a position.
    pub fn find(&self, position: &Key) -> &Arc<LivingPartition> {
        &self.entries[self.index_of(position)].partition
    }

    pub(crate) fn index_of(&self, position: &Key) -> usize {
        let after = self.entries.partition_point(|entry| entry.lower.as_ref().is_none_or(|lower| lower <= position));
        assert!(after > 0, "the first partition has no lower bound, so every position is covered");
        after - 1
    }

    /// The entries whose partitions may hold rows qualifying under the predicate, and the position that it pins down.
    pub fn prune(&self, schema: &Schema, predicate: &Predicate) -> (Range<usize>, Option<Key>) {
        if let Some(position) = self.partitioning.position_of_predicate(schema, predicate) {
            let index = self.index_of(&position);
            return (index..index + 1, Some(position));
        }
        let (low, high) = self.partitioning.range_of_predicate(schema, predicate);
        let first = low.map_or(0, |low| self.index_of(&low));
        // `high` is a prefix of the keys that still qualify, so entries that begin with it count as well.
        let last = high.map_or(self.entries.len(), |high| {
            self.entries.partition_point(|entry| {
                entry.lower.as_ref().is_none_or(|lower| *lower <= high || lower.as_bytes().starts_with(high.as_bytes()))
            })
        });
        (first.min(last)..last, None)
    }

    /// What a partition owns in this version; all there is without positions.
    pub fn bounds_of(&self, partition: PartitionId) -> Option<Bounds> {
        let index = self.entries.iter().position(|entry| entry.partition.id == partition)?;
        if !self.partitioning.has_positions() {
            return Some(Bounds::default());
        }
        let upper = self.entries.get(index + 1).and_then(|next| next.lower.clone());
        Some(Bounds::new(self.entries[index].lower.clone(), upper))
    }

    /// Place of a partition in this version.
    pub fn place_of(&self, partition: PartitionId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.partition.id == partition)
    }

    fn place(&self, partition: &LivingPartition) -> usize {
        self.place_of(partition.id).unwrap_or_else(|| unreachable!("only a partition of the current version changes"))
    }

    fn next(&self, entries: Vec<Entry>) -> Self {
        Self::new(TableVersion(self.version.0 + 1), Arc::clone(&self.partitioning), entries)
    }

    /// The next version, with nothing changed.
    pub fn with_same_entries(&self) -> Self {
        self.next(self.entries.clone())
    }

    /// The next version: `source` keeps what lies below `at`, `target` takes the rest up to the next bound.
    pub fn with_split(&self, source: &Arc<LivingPartition>, at: Option<Key>, target: Arc<LivingPartition>) -> Self {
        let mut entries = self.entries.clone();
        entries.insert(self.place(source) + 1, Entry::new(at, target));
        self.next(entries)
    }

    /// The next version: `new` takes the place of `old`.
    pub fn with_replaced(&self, old: &LivingPartition, new: Arc<LivingPartition>) -> Self {
        let mut entries = self.entries.clone();
        let entry = &mut entries[self.place(old)];
        *entry = Entry::new(entry.lower.clone(), new);
        self.next(entries)
    }

    /// The next version: `survivor`, the neighbour of `old`, owns the positions of both.
    pub fn with_merged(&self, old: &LivingPartition, survivor: &LivingPartition) -> Self {
        let (gone, stays) = (self.place(old), self.place(survivor));
        assert!(gone.abs_diff(stays) == 1, "neighbours merge");
        let mut entries = self.entries.clone();
        if gone < stays {
            let lower = entries[gone].lower.clone();
            entries[stays].lower = lower;
        }
        entries.remove(gone);
        self.next(entries)
    }

    /// The next version: a partition lives on another node.
    pub fn with_home(&self, partition: &LivingPartition, home: NodeId) -> Self {
        let mut entries = self.entries.clone();
        entries[self.place(partition)].home = home;
        self.next(entries)
    }
}

#[cfg(test)]
mod tests {
    use eris_platform::{MemoryPool, NodeId, SeededRandom};
    use eris_storage::{
        Attribute, Condition, ContainerId, DataType, Layout, PartitionId, SchemaVersion, Store, StoreOptions,
    };

    use super::*;

    fn schema() -> Schema {
        let attribute = |name: &str| Attribute { name: name.into(), data_type: DataType::Int64, nullable: false };
        Schema {
            container: ContainerId(1),
            version: SchemaVersion(1),
            attributes: Box::new([attribute("a"), attribute("b")]),
            indexes: Box::new([]),
            layout: Layout::Default,
            physical: None,
            segment_rows: 16,
        }
    }

    fn partition(id: u64) -> Arc<LivingPartition> {
        let store = Store::new(StoreOptions::new(Arc::new(schema()), MemoryPool::new(1 << 20)));
        Arc::new(LivingPartition::new(PartitionId(id), ContainerId(1), NodeId(0), store, Bounds::default()))
    }

    fn key(value: i64) -> Key {
        key_of_values(&[(&Value::Int64(value), DataType::Int64)])
    }

    #[test]
    fn the_ends_of_rows_are_those_of_their_positions() {
        let partitioning = Partitioning::Range(Box::new([AttributeId(0)]));
        let mut random = SeededRandom::new(5);
        for round in 0..600 {
            let data_type = [DataType::Int16, DataType::Date, DataType::Int64][round % 3];
            let value = |random: &mut SeededRandom| match (data_type, random.below(9) as i64 - 4) {
                (DataType::Int16, number) => Value::Int16(number as i16),
                (DataType::Date, number) => Value::Date(number as i32),
                (_, number) => Value::Int64(number * (i64::MAX / 4)),
            };
            let rows: Vec<Vec<Value>> = (0..=random.index(12)).map(|_| vec![value(&mut random)]).collect();
            let rows = Batch::from_rows(&[data_type], &rows);
            let position = |row| partitioning.position_of_row(&rows, row);
            let mut positions: Vec<Key> = (0..rows.rows).map(position).collect();
            positions.sort();
            positions.dedup();
            let ends = partitioning.ends_of_rows(&rows).expect("integers without NULLs");
            assert_eq!(position(ends.lowest), positions[0]);
            assert_eq!(ends.next.map(position), positions.get(1).cloned());
            assert_eq!(Some(position(ends.highest)), positions.last().cloned());
        }
        let nothing = Batch::from_rows(&[DataType::Int64], &[]);
        assert_eq!(partitioning.ends_of_rows(&nothing), None);
        let with_null = Batch::from_rows(&[DataType::Int64], &[vec![Value::Null], vec![Value::Int64(1)]]);
        assert_eq!(partitioning.ends_of_rows(&with_null), None);
    }

    fn condition(comparison: Comparison, value: i64) -> Condition {
        Condition { attribute: AttributeId(0), test: Test::Compare(comparison, Value::Int64(value)) }
    }

    /// A table over 0..100 cut at random places, with the cuts.
    fn random_table(random: &mut SeededRandom) -> (PartitionTable, Vec<i64>) {
        let partitioning = Arc::new(Partitioning::Range(Box::new([AttributeId(0)])));
        let mut cuts: Vec<i64> = Vec::new();
        let first = Entry::new(None, partition(0));
        let mut table = PartitionTable::new(TableVersion(1), partitioning, vec![first]);
        for id in 1..=random.below(8) {
            let cut = random.below(100) as i64;
            if cuts.contains(&cut) {
                continue;
            }
            let source = Arc::clone(table.find(&key(cut)));
            table = table.with_split(&source, Some(key(cut)), partition(id));
            cuts.push(cut);
            cuts.sort_unstable();
        }
        (table, cuts)
    }

    #[test]
    fn every_position_has_one_owner_and_splits_keep_the_order() {
        let mut random = SeededRandom::new(3);
        for _ in 0..200 {
            let (table, cuts) = random_table(&mut random);
            for value in -5..105 {
                let owner = cuts.iter().filter(|cut| **cut <= value).count();
                assert!(Arc::ptr_eq(table.find(&key(value)), &table.entries()[owner].partition));
            }
        }
    }

    #[test]
    fn pruning_keeps_every_partition_that_may_have_a_qualifying_row() {
        let mut random = SeededRandom::new(5);
        let comparisons = [
            Comparison::Equal,
            Comparison::NotEqual,
            Comparison::Less,
            Comparison::LessOrEqual,
            Comparison::Greater,
            Comparison::GreaterOrEqual,
        ];
        let mut pruned_somewhere = false;
        for _ in 0..500 {
            let (table, _) = random_table(&mut random);
            let chosen: Vec<(Comparison, i64)> =
                (0..=random.below(2)).map(|_| (comparisons[random.index(6)], random.below(100) as i64)).collect();
            let conditions = chosen.iter().map(|(comparison, value)| condition(*comparison, *value)).collect();
            let (left, position) = table.prune(&schema(), &Predicate { conditions });
            let holds = |value: i64| {
                chosen.iter().all(|(comparison, bound)| match comparison {
                    Comparison::Equal => value == *bound,
                    Comparison::NotEqual => value != *bound,
                    Comparison::Less => value < *bound,
                    Comparison::LessOrEqual => value <= *bound,
                    Comparison::Greater => value > *bound,
                    Comparison::GreaterOrEqual => value >= *bound,
                })
            };
            let left = &table.entries()[left];
            assert!(position.is_none_or(|position| Arc::ptr_eq(table.find(&position), &left[0].partition)));
            pruned_somewhere |= left.len() < table.entries().len();
            for value in (-5..105).filter(|value| holds(*value)) {
                let owner = table.find(&key(value));
                assert!(left.iter().any(|entry| Arc::ptr_eq(&entry.partition, owner)), "{value} is lost: {chosen:?}");
            }
        }
        assert!(pruned_somewhere);
    }

    #[test]
    fn hash_bounds_divide_keys_about_evenly() {
        let partitioning = Partitioning::Hash { attributes: Box::new([AttributeId(0)]), partitions: 7 };
        let bounds = partitioning.initial_bounds();
        assert_eq!(bounds.len(), 7);
        let mut counts = [0_usize; 7];
        for value in 0..70_000 {
            let position = partitioning.position_of_key(key(value));
            let owner = bounds.partition_point(|bound| bound.as_ref().is_none_or(|bound| *bound <= position)) - 1;
            counts[owner] += 1;
        }
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
    }
}
