//! Where partitions begin, and groups of peers within them.

use std::ops::Range;

use eris_storage::{Column, Values};

use crate::sort::same_float;

/// Rows at which something begins, in order.
#[derive(Debug, Default)]
pub(super) struct Starts {
    pub partitions: Vec<u32>,
    pub groups: Vec<u32>,
}

impl Starts {
    /// The starts among some rows. The keys are whole columns, those of the partition first.
    pub fn among(rows: Range<usize>, keys: &[&Column], partition_keys: usize) -> Self {
        let (partition, order) = keys.split_at(partition_keys);
        let mut changed = vec![false; rows.len()];
        if rows.start == 0 {
            changed[0] = true;
        }
        let starts = |changed: &[bool]| {
            let numbered = changed.iter().zip(rows.start as u32..);
            numbered.filter_map(|(changed, row)| changed.then_some(row)).collect::<Vec<u32>>()
        };
        for key in partition {
            mark_changes(key, &rows, &mut changed);
        }
        let partitions = starts(&changed);
        if order.is_empty() {
            return Self { groups: partitions.clone(), partitions };
        }
        for key in order {
            mark_changes(key, &rows, &mut changed);
        }
        Self { partitions, groups: starts(&changed) }
    }

    pub fn bytes(&self) -> u64 {
        ((self.partitions.len() + self.groups.len()) * size_of::<u32>()) as u64
    }
}

/// Marks rows whose value differs from that of the row before; NULLs are alike.
fn mark_changes(column: &Column, rows: &Range<usize>, changed: &mut [bool]) {
    let first = rows.start.max(1);
    let marks = &mut changed[first - rows.start..];
    macro_rules! mark {
        ($differ:expr) => {
            for (mark, row) in marks.iter_mut().zip(first..rows.end) {
                let differ = match (column.is_null(row - 1), column.is_null(row)) {
                    (false, false) => $differ(row - 1, row),
                    (before, now) => before != now,
                };
                *mark |= differ;
            }
        };
    }
    match &column.values {
        Values::Boolean(values) => mark!(|a: usize, b: usize| values[a] != values[b]),
        Values::Int16(values) => mark!(|a: usize, b: usize| values[a] != values[b]),
        Values::Int32(values) => mark!(|a: usize, b: usize| values[a] != values[b]),
        Values::Int64(values) => mark!(|a: usize, b: usize| values[a] != values[b]),
        Values::Int128(values) => mark!(|a: usize, b: usize| values[a] != values[b]),
        Values::Float32(values) => mark!(|a: usize, b: usize| !same_float(values[a].into(), values[b].into())),
        Values::Float64(values) => mark!(|a: usize, b: usize| !same_float(values[a], values[b])),
        Values::Bytes(views) => mark!(|a: usize, b: usize| views.get(a) != views.get(b)),
    }
}

/// All partitions and groups of so many rows.
#[derive(Debug)]
pub(super) struct Edges {
    /// Where each begins, and the end of the last.
    partitions: Box<[u32]>,
    groups: Box<[u32]>,
}

/// Where a row is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The rows of its partition.
    pub partition: Range<usize>,
    /// Its peers, and itself.
    pub peers: Range<usize>,
    /// The number of its group.
    pub group: usize,
    /// The groups of its partition.
    pub groups: Range<usize>,
}

/// The last of a sorted list that is not beyond.
fn last_up_to(starts: &[u32], row: usize) -> usize {
    starts.partition_point(|start| *start as usize <= row) - 1
}

impl Edges {
    /// Of so many rows, from the starts among consecutive ones of them.
    pub fn new(parts: Vec<Starts>, rows: usize) -> Self {
        let end = rows as u32;
        let partitions = parts.iter().flat_map(|part| part.partitions.iter().copied()).chain([end]).collect();
        let groups = parts.into_iter().flat_map(|part| part.groups).chain([end]).collect();
        Self { partitions, groups }
    }

    /// The rows of a group.
    pub fn group(&self, group: usize) -> Range<usize> {
        self.groups[group] as usize..self.groups[group + 1] as usize
    }

    /// Where a row is.
    pub fn place(&self, row: usize) -> Place {
        let partition = last_up_to(&self.partitions, row);
        let partition = self.partitions[partition] as usize..self.partitions[partition + 1] as usize;
        let group = last_up_to(&self.groups, row);
        let groups = last_up_to(&self.groups, partition.start)..last_up_to(&self.groups, partition.end - 1) + 1;
        Place { partition, peers: self.group(group), group, groups }
    }

    /// Moves on to the next row, or any of the next group.
    pub fn advance(&self, place: &mut Place, row: usize) {
        if row >= place.partition.end {
            *place = self.place(row);
        } else if row >= place.peers.end {
            place.group += 1;
            place.peers = self.group(place.group);
        }
    }
}
