//! Batched lookups: the rows that have the key values of many keys, found together (004, section 3.4.6: "coalesced").
//!
//! ```text
//!   keys --> interleaved descents of an index --> (key, address) pairs
//!        --> grouped by segment --> visible ones --> linked, one column at a time
//! ```
//! The answer says for each of its rows which key it belongs to, so its order is free, and grouping by segment lets the
//! reads of one column's values overlap instead of going through the segment's interface row by row.
//!
//! Without an index over exactly the key attributes, one scan looks for all keys at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cursor::{Gateway, ReadCursor};
use super::{Scratch, Store, with_scratch};
use crate::address::RowAddress;
use crate::batch::{BATCH_ROWS, Batch, Column, ColumnBuilder};
use crate::error::StorageError;
use crate::ids::{AttributeId, SchemaVersion};
use crate::key::{Key, key_of_row};
use crate::mvcc::Snapshot;
use crate::predicate::{Comparison, Condition, Predicate, ReadRequest, Test};

/// Which attributes are looked up by, and which are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupRequest {
    /// The key attributes: one column of the keys each, in this order.
    pub attributes: Arc<[AttributeId]>,
    /// The attributes of the answer.
    pub desired: Arc<[AttributeId]>,
}

/// A lookup between two calls. While it exists, no row moves.
#[derive(Debug)]
pub struct LookupCursor {
    request: LookupRequest,
    schema: SchemaVersion,
    access: Access,
    with_addresses: bool,
    _hold: Arc<()>,
}

impl LookupCursor {
    /// Has the answers say where the rows are: for what locks them.
    #[must_use]
    pub fn with_addresses(mut self) -> Self {
        self.with_addresses = true;
        if let Access::Scan(scan) = &mut self.access {
            scan.cursor.with_addresses = true;
        }
        self
    }
}

#[derive(Debug)]
enum Access {
    Index {
        /// Position among the store's indexes.
        index: usize,
        /// The keys without NULLs, columns in the order of the index.
        columns: Box<[Column]>,
        /// Which keys they are; none: all.
        rows: Option<Vec<u32>>,
        /// How many of them are answered.
        done: usize,
    },
    Scan(Box<KeyScan>),
    Done,
}

/// One scan for all keys: the rows that pass its filter may still combine values of different keys.
#[derive(Debug)]
struct KeyScan {
    cursor: ReadCursor,
    keys: BTreeMap<Key, Vec<u32>>,
}

/// Rows that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// For each row of `batch` the key it has, as a row of the keys.
    pub keys: Vec<u32>,
    /// The desired attributes.
    pub batch: Batch,
    /// One per row, if the cursor was asked for them.
    pub addresses: Box<[RowAddress]>,
}

/// Memory that calls reuse.
#[derive(Default)]
pub(super) struct LookupScratch {
    pairs: Vec<(u32, RowAddress)>,
    grouped: Vec<(u32, RowAddress)>,
    /// Where the next pair of each segment goes.
    starts: Vec<u32>,
}

impl Store {
    /// Opens a lookup of `keys`, which has one column for each of the request's key attributes. NULL has no equal.
    pub fn open_lookup(&mut self, request: &LookupRequest, keys: &Batch) -> Result<LookupCursor, StorageError> {
        self.check_lookup(request, keys)?;
        let access = match self.index_over(&request.attributes) {
            _ if keys.rows == 0 => Access::Done,
            Some(index) => {
                let column_of = |id: &AttributeId| request.attributes.iter().position(|other| other == id);
                let order: Vec<usize> =
                    self.indexes[index].definition.attributes.iter().filter_map(column_of).collect();
                let rows = rows_without_null(keys);
                let keys = rows.as_ref().map_or_else(|| keys.project(&order), |rows| keys.take(rows).project(&order));
                Access::Index { index, columns: keys.columns, rows, done: 0 }
            }
            None => Access::Scan(Box::new(self.open_key_scan(request, keys)?)),
        };
        let request = request.clone();
        Ok(LookupCursor {
            request,
            schema: self.schema.version,
            access,
            with_addresses: false,
            _hold: Arc::clone(&self.cursors),
        })
    }

    fn check_lookup(&self, request: &LookupRequest, keys: &Batch) -> Result<(), StorageError> {
        let invalid = |reason: String| Err(StorageError::InvalidRequest { reason });
        if request.attributes.is_empty() || keys.columns.len() != request.attributes.len() {
            return invalid(format!("{} key columns for {} attributes", keys.columns.len(), request.attributes.len()));
        }
        if let Some(id) = request.desired.iter().find(|id| self.schema.attribute(**id).is_none()) {
            return invalid(format!("no attribute {id}"));
        }
        for (id, column) in request.attributes.iter().zip(&keys.columns) {
            let Some(attribute) = self.schema.attribute(*id) else { return invalid(format!("no attribute {id}")) };
            if attribute.data_type != column.data_type {
                return invalid(format!("keys of {} for an attribute of {}", column.data_type, attribute.data_type));
            }
        }
        Ok(())
    }

    /// The index over these attributes, in whatever order.
    fn index_over(&self, attributes: &[AttributeId]) -> Option<usize> {
        self.indexes.iter().position(|index| {
            let indexed = &index.definition.attributes;
            indexed.len() == attributes.len() && indexed.iter().all(|id| attributes.contains(id))
        })
    }

    fn open_key_scan(&mut self, request: &LookupRequest, keys: &Batch) -> Result<KeyScan, StorageError> {
        let all: Vec<usize> = (0..keys.columns.len()).collect();
        let mut rows_of: BTreeMap<Key, Vec<u32>> = BTreeMap::new();
        for row in rows_without_null(keys).unwrap_or_else(|| (0..keys.rows as u32).collect()) {
            rows_of.entry(key_of_row(keys, row as usize, &all)).or_default().push(row);
        }
        let firsts: Vec<u32> = rows_of.values().map(|rows| rows[0]).collect();
        let conditions = request.attributes.iter().zip(&keys.columns).map(|(attribute, column)| {
            let test = match firsts[..] {
                [row] => Test::Compare(Comparison::Equal, column.value(row as usize)),
                _ => Test::In(firsts.iter().map(|row| column.value(*row as usize)).collect()),
            };
            Condition { attribute: *attribute, test }
        });
        let predicate = Predicate::new(conditions.collect::<Vec<_>>());
        let desired = request.attributes.iter().chain(request.desired.iter()).copied().collect();
        let read = ReadRequest { predicate, desired, order: None };
        let cursor = self.open_cursor(&read)?.without_addresses();
        Ok(KeyScan { cursor, keys: rows_of })
    }

    /// The next rows of a lookup; none at its end. An answer may be empty before that. Work is bounded: a batch of
    /// keys through an index, or a few windows scanned.
    pub fn next_found(
        &mut self,
        snapshot: &Snapshot<'_>,
        cursor: &mut LookupCursor,
    ) -> Result<Option<Found>, StorageError> {
        if cursor.schema != self.schema.version {
            return Err(StorageError::SchemaMoved);
        }
        match &mut cursor.access {
            Access::Done => Ok(None),
            Access::Index { index, columns, rows, done } => {
                let count = columns[0].len();
                let start = *done;
                let end = count.min(start + BATCH_ROWS);
                *done = end;
                let found = with_scratch(|scratch| {
                    let pairs = &mut scratch.lookup.pairs;
                    pairs.clear();
                    self.indexes[*index].path.equal_many(columns, start..end, &mut |row, address| {
                        pairs.push((row as u32, address));
                    });
                    if let Some(rows) = rows {
                        for (row, _) in pairs.iter_mut() {
                            *row = rows[*row as usize];
                        }
                    }
                    self.link_pairs(snapshot, &cursor.request.desired, cursor.with_addresses, scratch)
                });
                if end == count {
                    cursor.access = Access::Done;
                }
                Ok(Some(found))
            }
            Access::Scan(scan) => {
                let Some(gateway) = self.next_batch(snapshot, &mut scan.cursor)? else {
                    cursor.access = Access::Done;
                    return Ok(None);
                };
                Ok(Some(matching(scan, &cursor.request, &gateway)))
            }
        }
    }

    /// The visible ones among the pairs in `scratch`, linked.
    fn link_pairs(
        &self,
        snapshot: &Snapshot<'_>,
        desired: &[AttributeId],
        with_addresses: bool,
        scratch: &mut Scratch,
    ) -> Found {
        let LookupScratch { pairs, grouped, starts } = &mut scratch.lookup;
        group_by_segment(pairs, grouped, starts, self.segments.len());
        let types = desired.iter().map(|id| self.schema.attributes[id.index()].data_type);
        let mut builders = ColumnBuilder::for_batch(types, grouped.len());
        let mut keys = Vec::with_capacity(grouped.len());
        let mut addresses = Vec::new();
        for run in grouped.chunk_by(|(_, left), (_, right)| left.segment() == right.segment()) {
            let Some(segment) = self.segment(run[0].1.segment()) else { continue };
            scratch.offsets.clear();
            let mut earlier = Vec::new();
            for (key, address) in run {
                if segment.is_visible(snapshot, address.offset().0) {
                    keys.push(*key);
                    scratch.offsets.push(address.offset().0);
                    if with_addresses {
                        addresses.push(*address);
                    }
                } else if let Some(before) = self.before(snapshot, *address) {
                    earlier.push((*key, *address, before));
                }
            }
            keys.extend(earlier.iter().map(|(key, ..)| *key));
            if with_addresses {
                addresses.extend(earlier.iter().map(|(_, address, _)| *address));
            }
            let path = segment.path();
            for (id, builder) in desired.iter().zip(&mut builders) {
                path.link(*id, &scratch.offsets, builder);
                for (_, address, before) in &earlier {
                    before.link(path, *id, address.offset().0, builder);
                }
            }
        }
        let columns = builders.into_iter().map(ColumnBuilder::finish).collect();
        Found { batch: Batch { columns, rows: keys.len() }, keys, addresses: addresses.into() }
    }
}

/// The rows that have no NULL; none if that is all of them.
fn rows_without_null(keys: &Batch) -> Option<Vec<u32>> {
    let nullable = keys.columns.iter().any(|column| column.validity.is_some());
    let full = |row: &u32| !keys.columns.iter().any(|column| column.is_null(*row as usize));
    nullable.then(|| (0..keys.rows as u32).filter(full).collect())
}

/// Puts pairs with addresses in one segment next to each other: by counting, unless there are far more segments.
fn group_by_segment(
    pairs: &mut [(u32, RowAddress)],
    grouped: &mut Vec<(u32, RowAddress)>,
    starts: &mut Vec<u32>,
    segments: usize,
) {
    grouped.clear();
    if segments > pairs.len() * 2 {
        pairs.sort_unstable_by_key(|(_, address)| *address);
        grouped.extend_from_slice(pairs);
        return;
    }
    starts.clear();
    starts.resize(segments + 1, 0);
    for (_, address) in &*pairs {
        starts[address.segment().0 as usize + 1] += 1;
    }
    for segment in 1..starts.len() {
        starts[segment] += starts[segment - 1];
    }
    if let Some(first) = pairs.first() {
        grouped.resize(pairs.len(), *first);
    }
    for pair in &*pairs {
        let place = &mut starts[pair.1.segment().0 as usize];
        grouped[*place as usize] = *pair;
        *place += 1;
    }
}

/// Scanned rows with the keys they have, once per key that was asked for.
fn matching(scan: &KeyScan, request: &LookupRequest, gateway: &Gateway) -> Found {
    let scanned = &gateway.batch;
    let key_columns: Vec<usize> = (0..request.attributes.len()).collect();
    let (mut keys, mut rows) = (Vec::new(), Vec::new());
    for row in 0..scanned.rows {
        for key in scan.keys.get(&key_of_row(scanned, row, &key_columns)).into_iter().flatten() {
            keys.push(*key);
            rows.push(row as u32);
        }
    }
    let desired = &scanned.columns[request.attributes.len()..];
    let columns = desired.iter().map(|column| column.take(&rows)).collect();
    let addresses = match &gateway.addresses[..] {
        [] => Box::default(),
        all => rows.iter().map(|row| all[*row as usize]).collect(),
    };
    Found { batch: Batch { columns, rows: rows.len() }, keys, addresses }
}
