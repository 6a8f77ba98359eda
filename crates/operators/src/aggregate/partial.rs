//! Partial groups of one slot, divided by the hash of their group columns, so that each part is merged by itself.

use std::ops::Range;

use eris_storage::Batch;

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
    pub fn new(grouped: &Grouped, content: Content, rows: Range<usize>, keys: usize, parts: usize) -> Self {
        let batch = content_of(grouped, content, rows);
        let part_of = |hash: u64| (((hash >> 32) * parts as u64) >> 32) as u32;
        let hashes = hash_rows(&batch.columns[..keys], batch.rows);
        let part_of_row: Vec<u32> = hashes.into_iter().map(part_of).collect();
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

/// Some groups, or some values of a DISTINCT call.
pub(super) fn content_of(grouped: &Grouped, content: Content, rows: Range<usize>) -> Batch {
    match content {
        Content::Groups => grouped.partial(&rows.into()),
        Content::Values(call) => values_of(grouped, call, rows),
    }
}

fn values_of(grouped: &Grouped, call: usize, pairs: Range<usize>) -> Batch {
    let CallState::Distinct(distinct) = &grouped.states[call] else { unreachable!("a call with DISTINCT") };
    let count = pairs.len();
    let (groups, values) = distinct.pairs(pairs);
    let keys = grouped.key_columns(&groups[..].into());
    Batch::new(keys.into_iter().chain([values]).collect::<Vec<_>>(), count)
}
