//! An answer in canonical form, and the comparison of a result with it.

use super::stored::row_hash;
use super::values::{approximately_equal, canonical_decimal, compare_decimals, equal_as_printed};
use crate::connection::SqlValue;
use std::cmp::Ordering;

/// How the values of a column are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    Text,
    Exact,
    Approximate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderColumn {
    pub position: usize,
    pub descending: bool,
}

/// What is known of a query's answers before there is one: how columns are compared, and the order of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerShape {
    pub(super) kinds: Vec<CellKind>,
    pub(super) order: Vec<OrderColumn>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    Rows(Vec<Vec<String>>),
    Hash(u64),
}

/// The right answer of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(super) shape: AnswerShape,
    pub(super) row_count: usize,
    pub(super) body: Body,
}

/// The first difference between a result and the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerMismatch {
    #[error("{actual} rows where {expected} are right")]
    RowCount { expected: usize, actual: usize },
    #[error("{actual} columns where {expected} are right")]
    ColumnCount { expected: usize, actual: usize },
    #[error("row {row} and the next one are not in the query's order")]
    Order { row: usize },
    #[error("column {column}: {actual} where {expected} is right")]
    Value { column: usize, expected: String, actual: String },
    #[error("the rows' hash is {actual:016x}, right is {expected:016x}")]
    Hash { expected: u64, actual: u64 },
}

impl AnswerShape {
    pub fn kinds(&self) -> &[CellKind] {
        &self.kinds
    }

    /// The canonical form of a complete result, if it has these columns and is in this order.
    fn canonical(&self, rows: &[Vec<SqlValue>]) -> Result<Vec<Vec<String>>, AnswerMismatch> {
        if let Some(row) = rows.iter().find(|row| row.len() != self.kinds.len()) {
            return Err(AnswerMismatch::ColumnCount { expected: self.kinds.len(), actual: row.len() });
        }
        let rows: Vec<Vec<String>> = rows.iter().map(|row| self.canonical_row(row)).collect();
        match rows.windows(2).position(|pair| self.compare(&pair[0], &pair[1]) == Ordering::Greater) {
            Some(row) => Err(AnswerMismatch::Order { row }),
            None => Ok(rows),
        }
    }

    fn canonical_row(&self, row: &[SqlValue]) -> Vec<String> {
        row.iter()
            .zip(&self.kinds)
            .map(|(value, kind)| match kind {
                CellKind::Text => value.to_string().trim_end().to_owned(),
                CellKind::Exact => canonical_decimal(&value.to_string()),
                CellKind::Approximate => value.to_string(),
            })
            .collect()
    }

    /// Everything but the approximate columns: brings equal rows of two results to the same place.
    fn identity(&self, row: &[String]) -> Vec<String> {
        let cells = row.iter().zip(&self.kinds);
        cells.filter(|(_, kind)| **kind != CellKind::Approximate).map(|(cell, _)| cell.clone()).collect()
    }

    fn compare(&self, left: &[String], right: &[String]) -> Ordering {
        self.order.iter().fold(Ordering::Equal, |ordering, column| {
            ordering.then_with(|| {
                let (left, right) = (&left[column.position], &right[column.position]);
                let ordering = match self.kinds[column.position] {
                    CellKind::Text => left.cmp(right),
                    CellKind::Exact => compare_decimals(left, right),
                    CellKind::Approximate => {
                        left.parse::<f64>().unwrap_or(f64::NAN).total_cmp(&right.parse().unwrap_or(f64::NAN))
                    }
                };
                if column.descending { ordering.reverse() } else { ordering }
            })
        })
    }

    fn compare_rows(
        &self,
        expected: &[String],
        actual: &[String],
        approximately: fn(&str, &str) -> bool,
    ) -> Result<(), AnswerMismatch> {
        for (column, ((expected, actual), kind)) in expected.iter().zip(actual).zip(&self.kinds).enumerate() {
            let equal = match kind {
                CellKind::Text | CellKind::Exact => expected == actual,
                CellKind::Approximate => approximately(expected, actual),
            };
            if !equal {
                return Err(AnswerMismatch::Value { column, expected: expected.clone(), actual: actual.clone() });
            }
        }
        Ok(())
    }
}

impl Answer {
    /// What one system answered, for others to be compared with.
    ///
    /// # Errors
    /// If it cannot be right: the number of columns or the order of the rows is not the query's.
    pub fn of_result(shape: AnswerShape, rows: &[Vec<SqlValue>]) -> Result<Self, AnswerMismatch> {
        let rows = shape.canonical(rows)?;
        Ok(Self { shape, row_count: rows.len(), body: Body::Rows(rows) })
    }

    pub fn shape(&self) -> &AnswerShape {
        &self.shape
    }

    /// The canonical rows, unless only their hash is known.
    pub fn rows(&self) -> Option<&[Vec<String>]> {
        match &self.body {
            Body::Rows(rows) => Some(rows),
            Body::Hash(_) => None,
        }
    }

    /// Compares a complete result, in the order in which it arrived.
    pub fn check(&self, rows: &[Vec<SqlValue>]) -> Result<(), AnswerMismatch> {
        self.check_with(rows, approximately_equal)
    }

    /// Like [`Self::check`], for systems that print averages and quotients with few decimals: an approximate value may
    /// also differ by one unit of its last printed place.
    pub fn check_as_printed(&self, rows: &[Vec<SqlValue>]) -> Result<(), AnswerMismatch> {
        self.check_with(rows, equal_as_printed)
    }

    fn check_with(&self, rows: &[Vec<SqlValue>], approximately: fn(&str, &str) -> bool) -> Result<(), AnswerMismatch> {
        if rows.len() != self.row_count {
            return Err(AnswerMismatch::RowCount { expected: self.row_count, actual: rows.len() });
        }
        let mut actual = self.shape.canonical(rows)?;
        match &self.body {
            Body::Hash(expected) => {
                let actual = actual.iter().fold(0u64, |sum, row| sum.wrapping_add(row_hash(row)));
                if actual == *expected { Ok(()) } else { Err(AnswerMismatch::Hash { expected: *expected, actual }) }
            }
            Body::Rows(expected) => {
                let mut expected = expected.clone();
                expected.sort_by_cached_key(|row| self.shape.identity(row));
                actual.sort_by_cached_key(|row| self.shape.identity(row));
                let mut pairs = expected.iter().zip(&actual);
                pairs.try_for_each(|(expected, actual)| self.shape.compare_rows(expected, actual, approximately))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> SqlValue {
        SqlValue::Text(value.to_owned())
    }

    fn answer() -> Answer {
        Answer::parse("kinds,text,exact,approximate\norder,1d\nrows,3\n\"a,b\",30.5,0.25\nc,7,1\nd,7,2\n").unwrap()
    }

    fn rows() -> Vec<Vec<SqlValue>> {
        vec![
            vec![text("a,b"), text("30.500"), SqlValue::Float(0.25 + 1e-11)],
            vec![text("d"), SqlValue::Int(7), text("2.0000000000")],
            vec![text("c"), SqlValue::Int(7), SqlValue::Int(1)],
        ]
    }

    #[test]
    fn equal_results_pass_whatever_their_spelling_and_the_order_of_ties() {
        assert_eq!(answer().check(&rows()), Ok(()));
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let changed = |change: &dyn Fn(&mut Vec<Vec<SqlValue>>)| {
            let mut rows = rows();
            change(&mut rows);
            answer().check(&rows).unwrap_err()
        };
        let missing = changed(&|rows| drop(rows.pop()));
        assert_eq!(missing, AnswerMismatch::RowCount { expected: 3, actual: 2 });
        let narrow = changed(&|rows| drop(rows[1].pop()));
        assert_eq!(narrow, AnswerMismatch::ColumnCount { expected: 3, actual: 2 });
        assert_eq!(changed(&|rows| rows.swap(0, 1)), AnswerMismatch::Order { row: 0 });
        let inexact = changed(&|rows| rows[0][1] = text("30.5000000001"));
        assert!(matches!(inexact, AnswerMismatch::Value { column: 1, .. }), "{inexact}");
        let far = changed(&|rows| rows[0][2] = SqlValue::Float(0.25 + 1e-9));
        assert!(matches!(far, AnswerMismatch::Value { column: 2, .. }), "{far}");
        let null = changed(&|rows| rows[0][2] = SqlValue::Null);
        assert!(matches!(null, AnswerMismatch::Value { column: 2, .. }), "{null}");
        let renamed = changed(&|rows| rows[0][0] = text("ab"));
        assert!(matches!(renamed, AnswerMismatch::Value { column: 0, .. }), "{renamed}");
    }

    #[test]
    fn few_decimals_are_enough_only_if_one_says_so() {
        let mut rows = rows();
        rows[0][2] = text("0.26");
        assert!(answer().check(&rows).is_err());
        assert_eq!(answer().check_as_printed(&rows), Ok(()));
    }

    #[test]
    fn a_result_is_an_answer_to_another_system() {
        let shape = answer().shape;
        let other = Answer::of_result(shape.clone(), &rows()).unwrap();
        let mut rows = rows();
        assert_eq!(other.check(&rows), Ok(()));
        rows[2][1] = SqlValue::Int(6);
        assert_eq!(other.check(&rows), answer().check(&rows), "as the stored answer says");
        rows.rotate_left(1);
        assert_eq!(Answer::of_result(shape.clone(), &rows), Err(AnswerMismatch::Order { row: 1 }));
        rows[0].pop();
        let narrow = AnswerMismatch::ColumnCount { expected: 3, actual: 2 };
        assert_eq!(Answer::of_result(shape, &rows), Err(narrow));
    }
}
