//! The three queries of 001 (section III.B): each reads whole columns, and looks up more or less while it does.
//!
//! ```text
//!   column scan        a(x)        x: 1..values                      SELECT COUNT(*) FROM a WHERE a.x > ?
//!   aggregation        b(v, g)     v: 1..values, g: 1..groups        SELECT MAX(b.v), b.g FROM b GROUP BY b.g
//!   foreign-key join   r(p), s(f)  p: 1..keys, f: one of them each   SELECT COUNT(*) FROM r, s WHERE r.p = s.f
//! ```
//! Values are uniform and independent integers of 32 bits without NULLs. Rows are made in parts of a segment, each from
//! a seed of its own: in any order, by any number of tasks, and never all at once. What the queries have to find is
//! counted while the rows are made ([`Answers`]).

mod answers;
mod load;

use eris_platform::SeededRandom;
use eris_storage::{Batch, Buffer, Column, DataType, SEGMENT_ROWS_DEFAULT, Values};

pub use answers::{Answers, checksum};
pub use load::{Held, held, load};

/// Rows of a part: a whole segment, so that sealing copies nothing twice.
const PART_ROWS: u64 = SEGMENT_ROWS_DEFAULT as u64;

/// The seed of thresholds, beside that of the rows.
const THRESHOLDS: u64 = 0x7468_7265_7368;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTable {
    A,
    B,
    R,
    S,
}

impl CacheTable {
    pub fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::R => "r",
            Self::S => "s",
        }
    }

    /// The CREATE TABLE statement; a table without a key may begin with several partitions.
    pub fn create_statement(self, partitions: Option<usize>) -> String {
        let columns = match self {
            Self::A => "x int NOT NULL",
            Self::B => "v int NOT NULL, g int NOT NULL",
            Self::R => return "CREATE TABLE r (p int PRIMARY KEY)".to_owned(),
            Self::S => "f int NOT NULL",
        };
        let with = partitions.map_or(String::new(), |partitions| format!(" WITH (partitions = {partitions})"));
        format!("CREATE TABLE {} ({columns}){with}", self.name())
    }

    /// Its columns, of 4 bytes each.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::A => &["x"],
            Self::B => &["v", "g"],
            Self::R => &["p"],
            Self::S => &["f"],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheQuery {
    Scan,
    Aggregation,
    Join,
}

impl CacheQuery {
    pub const ALL: [Self; 3] = [Self::Scan, Self::Aggregation, Self::Join];

    pub fn name(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Aggregation => "aggregation",
            Self::Join => "join",
        }
    }

    /// What it reads, all columns of each.
    pub fn tables(self) -> &'static [CacheTable] {
        match self {
            Self::Scan => &[CacheTable::A],
            Self::Aggregation => &[CacheTable::B],
            Self::Join => &[CacheTable::R, CacheTable::S],
        }
    }

    /// The statement; only the scan has a threshold.
    pub fn sql(self, threshold: i32) -> String {
        match self {
            Self::Scan => format!("SELECT COUNT(*) FROM a WHERE a.x > {threshold}"),
            Self::Aggregation => "SELECT MAX(b.v), b.g FROM b GROUP BY b.g".to_owned(),
            Self::Join => "SELECT COUNT(*) FROM r, s WHERE r.p = s.f".to_owned(),
        }
    }
}

/// How many rows, and of how many different values. The defaults are those of 001 where it has one, else its smallest,
/// with fewer rows and with groups that fit a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheData {
    /// Of `a`, `b` and `s`.
    pub rows: u64,
    /// Of `a.x`.
    pub scanned_values: u32,
    /// Of `b.v`.
    pub aggregated_values: u32,
    /// Of `b.g`.
    pub groups: u32,
    /// Of `r.p`, and so the rows of `r`.
    pub keys: u32,
    pub seed: u64,
}

impl Default for CacheData {
    fn default() -> Self {
        Self {
            rows: 10_000_000,
            scanned_values: 1_000_000,
            aggregated_values: 1_000_000,
            groups: 10_000,
            keys: 1_000_000,
            seed: 1,
        }
    }
}

impl CacheData {
    pub fn rows_of(&self, table: CacheTable) -> u64 {
        if table == CacheTable::R { u64::from(self.keys) } else { self.rows }
    }

    pub fn parts(&self, table: CacheTable) -> u64 {
        self.rows_of(table).div_ceil(PART_ROWS)
    }

    /// A part's rows, column by column.
    fn part(&self, table: CacheTable, part: u64) -> Vec<Vec<i32>> {
        let first = part * PART_ROWS;
        let end = self.rows_of(table).min(first + PART_ROWS);
        let mut random = SeededRandom::new(self.seed.wrapping_add(part * 4 + table as u64));
        let mut uniform = |count: u32| (first..end).map(|_| one_of(&mut random, count)).collect::<Vec<i32>>();
        match table {
            CacheTable::A => vec![uniform(self.scanned_values)],
            CacheTable::B => vec![uniform(self.aggregated_values), uniform(self.groups)],
            CacheTable::R => vec![(first..end).map(|row| row as i32 + 1).collect()],
            CacheTable::S => vec![uniform(self.keys)],
        }
    }

    /// As many thresholds of scans as there are executions.
    pub fn thresholds(&self, executions: usize) -> Vec<i32> {
        let mut random = SeededRandom::new(self.seed ^ THRESHOLDS);
        (0..executions).map(|_| one_of(&mut random, self.scanned_values)).collect()
    }
}

/// Uniform in `1..=count`.
fn one_of(random: &mut SeededRandom, count: u32) -> i32 {
    random.below(u64::from(count)) as i32 + 1
}

fn batch(columns: Vec<Vec<i32>>) -> Batch {
    let rows = columns.first().map_or(0, Vec::len);
    let column = |values: Vec<i32>| Column {
        data_type: DataType::Int32,
        validity: None,
        values: Values::Int32(Buffer::from(values)),
    };
    Batch::new(columns.into_iter().map(column).collect::<Vec<Column>>(), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn parts_have_all_rows_and_values_within_their_domains() {
        let rows = PART_ROWS + 1_000;
        let data = CacheData { rows, scanned_values: 7, groups: 3, keys: 70_000, ..CacheData::default() };
        for table in [CacheTable::A, CacheTable::B, CacheTable::R, CacheTable::S] {
            let parts: Vec<Vec<Vec<i32>>> = (0..data.parts(table)).map(|part| data.part(table, part)).collect();
            let rows: usize = parts.iter().map(|columns| columns[0].len()).sum();
            assert_eq!((rows as u64, parts.len()), (data.rows_of(table), 2), "{}", table.name());
            assert!(parts.iter().all(|columns| columns.len() == table.columns().len()));
            assert_eq!(data.part(table, 1), parts[1], "a part is always the same");
            assert_ne!(parts[0][0][..1_000], parts[1][0][..1_000], "{}", table.name());
        }
        let distinct = |values: &[i32]| values.iter().copied().collect::<BTreeSet<i32>>();
        assert_eq!(distinct(&data.part(CacheTable::A, 0)[0]), (1..=7).collect::<BTreeSet<_>>());
        assert_eq!(distinct(&data.part(CacheTable::B, 1)[1]), (1..=3).collect::<BTreeSet<_>>());
        assert_eq!(data.part(CacheTable::R, 1)[0].last(), Some(&70_000));
        assert!(data.thresholds(100).iter().all(|threshold| (1..=7).contains(threshold)));
    }
}
