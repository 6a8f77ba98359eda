//! Functions that are known from where a row is in its partition.
//!
//! How many buckets `ntile` has is said by the first row of the partition that says it; it deals out the rows from
//! there on, as if none were missing (as PostgreSQL's does).

use std::ops::Range;

use eris_storage::{Column, ColumnBuilder, DataType, Physical, Values};

use super::Runner;
use super::edges::{Edges, Place};
use crate::error::OperatorError;

/// Which number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number<'a> {
    Row,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(&'a Column),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Numbers<'a> {
    number: Number<'a>,
    edges: &'a Edges,
    place: Option<Place>,
    /// Where a partition begins, and its first row that says how many buckets there are.
    first: Option<(usize, usize)>,
    result: DataType,
}

/// An integer of a column of any width.
pub(super) fn integer(column: &Column, row: usize) -> Result<Option<i64>, OperatorError> {
    if column.is_null(row) {
        return Ok(None);
    }
    match &column.values {
        Values::Int16(values) => Ok(Some(values[row].into())),
        Values::Int32(values) => Ok(Some(values[row].into())),
        Values::Int64(values) => Ok(Some(values[row])),
        _ => Err(OperatorError::Internal(format!("a number of rows of type {}", column.data_type))),
    }
}

/// The bucket of a row of so many, from 0: the first buckets have one row more if they do not come out even.
fn bucket(row: i64, rows: i64, buckets: i64) -> i64 {
    let (size, larger) = (rows / buckets, rows % buckets);
    let in_larger = larger * (size + 1);
    if row < in_larger { row / (size + 1) } else { larger + (row - in_larger) / size }
}

impl<'a> Numbers<'a> {
    pub fn new(number: Number<'a>, edges: &'a Edges, result: DataType) -> Self {
        Self { number, edges, place: None, first: None, result }
    }

    /// The first row of a partition with a number of buckets; its end if there is none.
    fn first_with_buckets(&mut self, buckets: &Column, place: &Place) -> usize {
        let Range { start, end } = place.partition;
        match self.first {
            Some((partition, first)) if partition == start => first,
            _ => {
                let first = (start..end).find(|row| !buckets.is_null(*row)).unwrap_or(end);
                self.first = Some((start, first));
                first
            }
        }
    }

    fn push(&mut self, place: &Place, row: usize, builder: &mut ColumnBuilder) -> Result<(), OperatorError> {
        let start = place.partition.start;
        let rows = place.partition.len();
        let integer = match self.number {
            Number::Row => row - start + 1,
            Number::Rank => place.peers.start - start + 1,
            Number::DenseRank => place.group - place.groups.start + 1,
            Number::PercentRank => {
                let before = place.peers.start - start;
                builder.push_f64(if rows > 1 { before as f64 / (rows - 1) as f64 } else { 0.0 });
                return Ok(());
            }
            Number::CumeDist => {
                builder.push_f64((place.peers.end - start) as f64 / rows as f64);
                return Ok(());
            }
            Number::Ntile(buckets) => {
                let first = self.first_with_buckets(buckets, place);
                match integer(buckets, first.min(row))? {
                    // Rows before it are in none.
                    None => {
                        builder.push_null();
                        return Ok(());
                    }
                    Some(_) if row < first => unreachable!("rows before the first say nothing"),
                    Some(buckets) if buckets <= 0 => return Err(OperatorError::NotPositive { function: "ntile" }),
                    Some(buckets) => bucket((row - first) as i64, rows as i64, buckets) as usize + 1,
                }
            }
        };
        match self.result.physical() {
            Physical::Int32 => builder.push_i32(integer as i32),
            Physical::Int64 => builder.push_i64(integer as i64),
            _ => return Err(OperatorError::Internal(format!("a number of rows as {}", self.result))),
        }
        Ok(())
    }
}

impl Runner for Numbers<'_> {
    fn column(&mut self, rows: Range<usize>) -> Result<Column, OperatorError> {
        let mut builder = ColumnBuilder::with_capacity(self.result, rows.len());
        let mut place = match self.place.take() {
            Some(place) => place,
            None => self.edges.place(rows.start),
        };
        for row in rows {
            self.edges.advance(&mut place, row);
            self.push(&place, row, &mut builder)?;
        }
        self.place = Some(place);
        Ok(builder.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::bucket;

    #[test]
    fn buckets_are_as_equal_as_possible() {
        for rows in 1..40 {
            for buckets in 1..45 {
                let numbers: Vec<i64> = (0..rows).map(|row| bucket(row, rows, buckets)).collect();
                assert!(numbers.is_sorted() && numbers[0] == 0 && numbers.iter().all(|number| *number < buckets));
                let size = |bucket| numbers.iter().filter(|number| **number == bucket).count() as i64;
                let sizes: Vec<i64> = (0..buckets.min(rows)).map(size).collect();
                assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] - sizes[sizes.len() - 1] <= 1, "{sizes:?}");
            }
        }
    }
}
