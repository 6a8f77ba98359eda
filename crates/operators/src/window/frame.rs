//! From a row to the range of rows that is its frame.

use std::cmp::Ordering;
use std::ops::Range;

use eris_storage::Column;

use super::edges::{Edges, Place};
use super::{Frame, FrameBound, FrameUnit};
use crate::error::OperatorError;
use crate::sort::{SortKey, compare_between};

/// The frames of consecutive rows.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    edges: &'a Edges,
    unit: FrameUnit,
    start: Bound<'a>,
    end: Bound<'a>,
    place: Option<Place>,
}

#[derive(Debug)]
enum Bound<'a> {
    Plain(FrameBound),
    Value { key: SortKey, keys: &'a Column, bounds: &'a Column },
}

impl<'a> Frames<'a> {
    /// `column` finds the columns that bounds look at.
    pub fn new(
        frame: &Frame,
        edges: &'a Edges,
        column: impl Fn(usize) -> Result<&'a Column, OperatorError>,
    ) -> Result<Self, OperatorError> {
        let bound = |bound: FrameBound| {
            Ok::<_, OperatorError>(match bound {
                FrameBound::Value { key, bound } => {
                    Bound::Value { key, keys: column(key.column)?, bounds: column(bound)? }
                }
                plain => Bound::Plain(plain),
            })
        };
        Ok(Self { edges, unit: frame.unit, start: bound(frame.start)?, end: bound(frame.end)?, place: None })
    }

    /// Where a row is; rows are asked for in order.
    pub fn place(&mut self, row: usize) -> &Place {
        match &mut self.place {
            Some(place) => self.edges.advance(place, row),
            none => *none = Some(self.edges.place(row)),
        }
        self.place.as_ref().unwrap_or_else(|| unreachable!("every row is somewhere"))
    }

    /// The frame of a row; rows are asked for in order.
    pub fn of(&mut self, row: usize) -> Range<usize> {
        self.place(row);
        let Some(place) = &self.place else { unreachable!("every row is somewhere") };
        let start = match &self.start {
            Bound::Plain(bound) => self.plain_start(place, *bound, row),
            Bound::Value { key, keys, bounds } => {
                let within = |other: usize| compare_between(*key, keys, other, bounds, row) == Ordering::Less;
                first_not(place, *key, keys, row, within).start
            }
        };
        let end = match &self.end {
            Bound::Plain(bound) => self.plain_end(place, *bound, row),
            Bound::Value { key, keys, bounds } => {
                let within = |other: usize| compare_between(*key, keys, other, bounds, row) != Ordering::Greater;
                first_not(place, *key, keys, row, within).end
            }
        };
        start..end.max(start)
    }

    fn plain_start(&self, place: &Place, bound: FrameBound, row: usize) -> usize {
        let partition = &place.partition;
        match (self.unit, bound) {
            (_, FrameBound::Unbounded | FrameBound::Value { .. }) => partition.start,
            (FrameUnit::Rows, FrameBound::Current) => row,
            (FrameUnit::Rows, FrameBound::Preceding(count)) => back(row, count, partition),
            (FrameUnit::Rows, FrameBound::Following(count)) => ahead(row, count, partition),
            (FrameUnit::Groups, FrameBound::Current) => place.peers.start,
            (FrameUnit::Groups, FrameBound::Preceding(count)) => {
                self.edges.group(back(place.group, count, &place.groups)).start
            }
            (FrameUnit::Groups, FrameBound::Following(count)) => {
                let group = ahead(place.group, count, &place.groups);
                if group == place.groups.end { partition.end } else { self.edges.group(group).start }
            }
        }
    }

    /// Behind the last row.
    fn plain_end(&self, place: &Place, bound: FrameBound, row: usize) -> usize {
        let partition = &place.partition;
        match (self.unit, bound) {
            (_, FrameBound::Unbounded | FrameBound::Value { .. }) => partition.end,
            (FrameUnit::Rows, FrameBound::Current) => row + 1,
            (FrameUnit::Rows, FrameBound::Preceding(count)) => back(row + 1, count, partition),
            (FrameUnit::Rows, FrameBound::Following(count)) => ahead(row + 1, count, partition),
            (FrameUnit::Groups, FrameBound::Current) => place.peers.end,
            (FrameUnit::Groups, FrameBound::Preceding(count)) => {
                let group = back(place.group + 1, count, &place.groups);
                if group == place.groups.start { partition.start } else { self.edges.group(group - 1).end }
            }
            (FrameUnit::Groups, FrameBound::Following(count)) => {
                self.edges.group(ahead(place.group + 1, count, &place.groups) - 1).end
            }
        }
    }
}

fn back(from: usize, count: u64, within: &Range<usize>) -> usize {
    let least = within.start as u64;
    (from as u64).saturating_sub(count).max(least) as usize
}

fn ahead(from: usize, count: u64, within: &Range<usize>) -> usize {
    (from as u64).saturating_add(count).min(within.end as u64) as usize
}

/// The rows with a key behind which `within` is no longer true, as a start or an end; those without for a row without.
fn first_not(place: &Place, key: SortKey, keys: &Column, row: usize, within: impl Fn(usize) -> bool) -> Range<usize> {
    let mut values = place.partition.clone();
    if keys.validity.is_some() {
        let Range { start, end } = values;
        let change = start + partition_point(start..end, |other| keys.is_null(other) == key.nulls_first);
        let nulls;
        (nulls, values) = if key.nulls_first { (start..change, change..end) } else { (change..end, start..change) };
        if keys.is_null(row) {
            return nulls;
        }
    }
    let at = values.start + partition_point(values, within);
    at..at
}

/// How many rows from the first on satisfy a condition that no row behind them does.
fn partition_point(rows: Range<usize>, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (rows.start, rows.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - rows.start
}
