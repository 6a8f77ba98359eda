//! What the queries have to find, counted by who makes the rows.

use super::{CacheData, CacheQuery, CacheTable};
use crate::connection::SqlValue;

/// The answers to all three queries, as far as rows were added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    keys: u32,
    thresholds: Vec<i32>,
    /// Rows above each threshold.
    above: Vec<u64>,
    /// By group; 0 where it has no rows.
    maxima: Vec<i32>,
    /// Rows whose key exists.
    matches: u64,
}

impl Answers {
    /// Those of empty tables.
    pub fn new(data: &CacheData, thresholds: Vec<i32>) -> Self {
        let (above, maxima) = (vec![0; thresholds.len()], vec![0; data.groups as usize + 1]);
        Self { keys: data.keys, thresholds, above, maxima, matches: 0 }
    }

    /// The threshold of an execution.
    pub fn threshold(&self, execution: usize) -> i32 {
        self.thresholds[execution]
    }

    pub(super) fn add(&mut self, table: CacheTable, columns: &[Vec<i32>]) {
        match (table, columns) {
            (CacheTable::A, [values]) => {
                for (above, threshold) in self.above.iter_mut().zip(&self.thresholds) {
                    *above += values.iter().filter(|value| *value > threshold).count() as u64;
                }
            }
            (CacheTable::B, [values, groups]) => {
                for (value, group) in values.iter().zip(groups) {
                    let maximum = &mut self.maxima[*group as usize];
                    *maximum = (*maximum).max(*value);
                }
            }
            (CacheTable::S, [references]) => {
                let exists = |key: &&i32| (1..=i64::from(self.keys)).contains(&i64::from(**key));
                self.matches += references.iter().filter(exists).count() as u64;
            }
            (CacheTable::R, _) => {}
            _ => unreachable!("{} columns of table {}", columns.len(), table.name()),
        }
    }

    /// Adds what another task counted.
    pub fn merge(&mut self, other: &Self) {
        assert!(self.thresholds == other.thresholds, "counts above other thresholds");
        for (above, more) in self.above.iter_mut().zip(&other.above) {
            *above += more;
        }
        for (maximum, other) in self.maxima.iter_mut().zip(&other.maxima) {
            *maximum = (*maximum).max(*other);
        }
        self.matches += other.matches;
    }

    /// Whether rows are the answer to an execution of a query; if not, what is wrong.
    pub fn check(&self, query: CacheQuery, execution: usize, rows: &[Vec<SqlValue>]) -> Result<(), String> {
        match query {
            CacheQuery::Scan => check_count(self.above[execution], rows),
            CacheQuery::Aggregation => self.check_maxima(rows),
            CacheQuery::Join => check_count(self.matches, rows),
        }
    }

    fn check_maxima(&self, rows: &[Vec<SqlValue>]) -> Result<(), String> {
        let mut missing = self.maxima.clone();
        for row in rows {
            let numbers: Option<Vec<i64>> = row.iter().map(SqlValue::as_int).collect();
            let Some([maximum, group]) = numbers.as_deref() else {
                return Err(format!("{row:?} is no maximum with a group"));
            };
            let expected = usize::try_from(*group).ok().and_then(|group| missing.get_mut(group));
            // Taken: a group that comes twice is wrong.
            let expected = expected.map_or(0, std::mem::take);
            if expected == 0 || i64::from(expected) != *maximum {
                return Err(format!("group {group} has the maximum {expected}, not {maximum}"));
            }
        }
        match missing.iter().filter(|maximum| **maximum > 0).count() {
            0 => Ok(()),
            count => Err(format!("{count} groups are missing")),
        }
    }
}

fn check_count(expected: u64, rows: &[Vec<SqlValue>]) -> Result<(), String> {
    match rows {
        [row] if row.len() == 1 && row[0].as_int() == Some(expected as i64) => Ok(()),
        _ => Err(format!("a count of {expected}, not {:?}", rows.first())),
    }
}

/// One number for all rows of an answer, in any order: the sum over their first column.
pub fn checksum(rows: &[Vec<SqlValue>]) -> i64 {
    rows.iter().filter_map(|row| row.first()?.as_int()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Rows;

    fn int_rows(rows: &[&[i64]]) -> Rows {
        rows.iter().map(|row| row.iter().map(|value| SqlValue::Int(*value)).collect()).collect()
    }

    #[test]
    fn right_answers_pass_and_wrong_ones_are_explained() {
        let data = CacheData { groups: 3, keys: 5, ..CacheData::default() };
        let mut answers = Answers::new(&data, vec![2, 9]);
        let mut others = answers.clone();
        answers.add(CacheTable::A, &[vec![1, 2, 3]]);
        answers.add(CacheTable::B, &[vec![7, 4], vec![1, 3]]);
        answers.add(CacheTable::S, &[vec![5, 6, 1]]);
        others.add(CacheTable::A, &[vec![10]]);
        others.add(CacheTable::B, &[vec![8], vec![3]]);
        answers.merge(&others);
        let check = |query, execution, rows: &[&[i64]]| answers.check(query, execution, &int_rows(rows));
        let right: [(CacheQuery, usize, &[&[i64]]); 4] = [
            (CacheQuery::Scan, 0, &[&[2]]),
            (CacheQuery::Scan, 1, &[&[1]]),
            (CacheQuery::Aggregation, 0, &[&[8, 3], &[7, 1]]),
            (CacheQuery::Join, 0, &[&[2]]),
        ];
        for (query, execution, rows) in right {
            assert_eq!(check(query, execution, rows), Ok(()));
        }
        let wrong: [(CacheQuery, &[&[i64]]); 7] = [
            (CacheQuery::Scan, &[&[3]]),
            (CacheQuery::Join, &[]),
            (CacheQuery::Aggregation, &[&[8, 3]]),
            (CacheQuery::Aggregation, &[&[8, 3], &[7, 1], &[7, 1]]),
            (CacheQuery::Aggregation, &[&[8, 3], &[6, 1]]),
            (CacheQuery::Aggregation, &[&[8, 3], &[7, 1], &[0, 2]]),
            (CacheQuery::Aggregation, &[&[8, 3], &[7, 1], &[1, 4]]),
        ];
        for (query, rows) in wrong {
            assert!(check(query, 0, rows).is_err(), "{rows:?}");
        }
        assert_eq!(checksum(&int_rows(&[&[8, 3], &[7, 1]])), 15);
    }
}
