//! Partial groups of one slot, divided by the hash of their group columns, so that each part is merged by itself.

use std::ops::Range;

use eris_storage::{Batch, Column, Values};

use super::grouped::{CallState, Grouped};
use crate::error::OperatorError;
use crate::hash::hash_rows;

/// What the parts are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Groups and their states.
    Groups,
    /// Group columns and the values of a DISTINCT call.
    Values(usize),
}

/// What tells parts apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Division {
    /// The hash of the group columns.
    Hash,
    /// The one group column, an integer between these: each part has values that lie together, so that an array finds
    /// its groups, too.
    Range(i64, i64),
}

impl Division {
    /// The part of each row.
    fn parts_of(self, keys: &[Column], rows: usize, parts: usize) -> Vec<u32> {
        let Self::Range(low, high) = self else {
            let part_of = |hash: u64| (((hash >> 32) * parts as u64) >> 32) as u32;
            return hash_rows(keys, rows).into_iter().map(part_of).collect();
        };
        let width = (high.wrapping_sub(low) as u64 / parts as u64) + 1;
        let part_of = |value: i64| (value.wrapping_sub(low) as u64 / width) as u32;
        match keys.first().map(|key| &key.values) {
            Some(Values::Int16(values)) => values.iter().map(|value| part_of(i64::from(*value))).collect(),
            Some(Values::Int32(values)) => values.iter().map(|value| part_of(i64::from(*value))).collect(),
            Some(Values::Int64(values)) => values.iter().map(|value| part_of(*value)).collect(),
            other => unreachable!("groups of integers have integers, not {other:?}"),
        }
    }
}

/// Rows by the part they belong to.
#[derive(Debug)]
pub(super) struct Divided {
    pub content: Content,
    batch: Batch,
    /// The rows of all parts, one part behind the other.
    order: Box<[u32]>,
    /// Where each part begins, and the end.
    bounds: Box<[u32]>,
}

impl Divided {
    /// Some groups, or some values of a DISTINCT call, in so many parts.
    pub fn new(
        grouped: &Grouped,
        content: Content,
        rows: Range<usize>,
        keys: usize,
        division: Division,
        parts: usize,
    ) -> Self {
        let batch = match content {
            Content::Groups => grouped.partial(rows),
            Content::Values(call) => values_of(grouped, call, rows),
        };
        let part_of_row = division.parts_of(&batch.columns[..keys], batch.rows, parts);
        let mut bounds = vec![0_u32; parts + 1];
        for part in &part_of_row {
            bounds[*part as usize + 1] += 1;
        }
        for part in 0..parts {
            bounds[part + 1] += bounds[part];
        }
        let mut next = bounds.clone();
        let mut order = vec![0; batch.rows];
        for (row, part) in part_of_row.iter().enumerate() {
            let place = &mut next[*part as usize];
            order[*place as usize] = row as u32;
            *place += 1;
        }
        Self { content, batch, order: order.into(), bounds: bounds.into() }
    }

    pub fn bytes(&self) -> u64 {
        (self.batch.bytes() + self.order.len() * size_of::<u32>() + self.bounds.len() * size_of::<u32>()) as u64
    }

    fn part(&self, part: usize) -> &[u32] {
        &self.order[self.bounds[part] as usize..self.bounds[part + 1] as usize]
    }

    /// Merges a part into other groups.
    pub fn merge_into(&self, grouped: &mut Grouped, part: usize, rows_max: usize) -> Result<(), OperatorError> {
        for rows in self.part(part).chunks(rows_max) {
            // Rows of a part ascend: as many as there are between the first and the last are all of them.
            let (first, last) = (rows[0] as usize, rows[rows.len() - 1] as usize);
            let batch = if last - first + 1 == rows.len() {
                self.batch.slice(first, rows.len())
            } else {
                self.batch.take(rows)
            };
            match self.content {
                Content::Groups => grouped.merge(&batch)?,
                Content::Values(call) => grouped.merge_distinct(call, &batch)?,
            }
        }
        Ok(())
    }
}

fn values_of(grouped: &Grouped, call: usize, pairs: Range<usize>) -> Batch {
    let CallState::Distinct(distinct) = &grouped.states[call] else { unreachable!("a call with DISTINCT") };
    let count = pairs.len();
    let (groups, values) = distinct.pairs(pairs);
    let keys = grouped.groups.columns_at(&groups);
    Batch::new(keys.into_iter().chain([values]).collect::<Vec<_>>(), count)
}
