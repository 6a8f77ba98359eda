//! Random statements.

use std::collections::BTreeSet;
use std::sync::Mutex;

use eris_platform::SeededRandom;

use crate::history::Outcome;
use crate::model::Answer;
use crate::statement::{Change, CopyEnd, Filter, Query, Row, Statement, Table};

/// What the rows of a run look like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Keys are chosen below this.
    pub keys: i64,
    pub branches: i64,
    pub note_bytes_max: usize,
    /// Rows that a COPY brings at most.
    pub copy_rows_max: u64,
}

/// Amounts are below this, so that a division by zero now and then meets its row.
const AMOUNTS: u64 = 1_000;
const NOTE_STARTS: [&str; 8] = ["", "a", "ab", "Grüße ", "it's ", "tab\tand\nline ", "\\back\\slash", "%_"];

const LOCK_MODES: [&str; 8] = [
    "ACCESS SHARE",
    "ROW SHARE",
    "ROW EXCLUSIVE",
    "SHARE UPDATE EXCLUSIVE",
    "SHARE",
    "SHARE ROW EXCLUSIVE",
    "EXCLUSIVE",
    "ACCESS EXCLUSIVE",
];

/// Keys that probably exist, so that not every INSERT fails. Nothing depends on its being right.
#[derive(Default)]
pub struct Live([Mutex<BTreeSet<i64>>; 2]);

impl Live {
    fn of(&self, table: Table) -> std::sync::MutexGuard<'_, BTreeSet<i64>> {
        self.0[table as usize].lock().expect("one thread")
    }

    /// Learns from a statement that was answered.
    pub fn learn(&self, statement: &Statement, outcome: &Outcome) {
        let Outcome::Answered(answer) = outcome else { return };
        match (statement, answer) {
            (Statement::Truncate { table }, _) => self.of(*table).clear(),
            (Statement::Insert { table, rows } | Statement::Copy { table, rows, .. }, _) => {
                self.of(*table).extend(rows.iter().map(|row| row.id));
            }
            (Statement::Delete { table, filter: Filter::Key(id) }, _) => {
                self.of(*table).remove(id);
            }
            (Statement::Delete { table, filter: Filter::Range(low, high) }, _) => {
                self.of(*table).retain(|id| id < low || id > high);
            }
            (
                Statement::Select { table, filter: Filter::All, query: Query::Rows | Query::Sorted },
                Answer::Rows(rows),
            ) => {
                let ids = rows.iter().filter_map(|row| row[0].as_ref()?.parse().ok());
                *self.of(*table) = ids.collect();
            }
            _ => {}
        }
    }
}

/// Makes the statements of one client.
pub struct Generator<'w> {
    pub shape: Shape,
    pub live: &'w Live,
}

impl Generator<'_> {
    fn key(&self, random: &mut SeededRandom) -> i64 {
        // Some keys are hot, so that clients meet.
        let keys = if random.below(4) == 0 { self.shape.keys.min(5) } else { self.shape.keys };
        random.below(keys as u64) as i64
    }

    /// A key without a row, probably.
    fn free_key(&self, table: Table, random: &mut SeededRandom) -> i64 {
        for _ in 0..8 {
            let key = random.below(self.shape.keys as u64 * 2) as i64;
            if !self.live.of(table).contains(&key) {
                return key;
            }
        }
        self.key(random)
    }

    fn note(&self, random: &mut SeededRandom) -> Option<String> {
        if random.below(4) == 0 {
            return None;
        }
        let mut note = NOTE_STARTS[random.index(NOTE_STARTS.len())].to_owned();
        for _ in 0..random.index(self.shape.note_bytes_max + 1) {
            note.push((b'a' + random.below(26) as u8) as char);
        }
        Some(note)
    }

    fn row(&self, id: i64, random: &mut SeededRandom) -> Row {
        Row {
            id,
            branch: random.below(self.shape.branches as u64) as i64,
            amount: random.below(AMOUNTS) as i64,
            note: self.note(random),
        }
    }

    /// Up to `count` rows with new keys; with a small probability one of them twice.
    fn new_rows(&self, table: Table, count: u64, random: &mut SeededRandom) -> Vec<Row> {
        let mut ids: BTreeSet<i64> = (0..count).map(|_| self.free_key(table, random)).collect();
        if random.below(10) > 0 {
            let live = self.live.of(table);
            ids.retain(|id| !live.contains(id));
        }
        let mut ids: Vec<i64> = ids.into_iter().collect();
        if ids.is_empty() || random.below(30) == 0 {
            ids.push(self.key(random));
        }
        if random.below(2) == 0 {
            random.shuffle(&mut ids);
        }
        ids.into_iter().map(|id| self.row(id, random)).collect()
    }

    fn range(&self, random: &mut SeededRandom) -> Filter {
        let low = random.below(self.shape.keys as u64 * 2) as i64;
        Filter::Range(low, low + random.below(self.shape.keys as u64 / 3 + 3) as i64 - 1)
    }

    fn small_filter(&self, random: &mut SeededRandom) -> Filter {
        match random.below(10) {
            0..=5 => Filter::Key(self.key(random)),
            6 => Filter::Keys((0..=random.below(4)).map(|_| self.key(random)).collect()),
            7 => {
                let low = self.key(random);
                Filter::Range(low, low + random.below(4) as i64)
            }
            8 => {
                let key = Box::new(Filter::Key(self.key(random)));
                Filter::Both(key, Box::new(Filter::Above(random.below(AMOUNTS) as i64)))
            }
            _ => {
                let branch = Box::new(Filter::Branch(random.below(self.shape.branches as u64) as i64));
                Filter::Both(branch, Box::new(self.range(random)))
            }
        }
    }

    fn filter(&self, random: &mut SeededRandom) -> Filter {
        let remainder = |random: &mut SeededRandom| {
            let divisor = 2 + random.below(5) as i64;
            Filter::Remainder { divisor, remainder: random.below(divisor as u64) as i64 }
        };
        match random.below(12) {
            0..=1 => self.small_filter(random),
            2..=3 => self.range(random),
            4..=6 => Filter::Branch(random.below(self.shape.branches as u64) as i64),
            7 => Filter::Above(random.below(AMOUNTS) as i64),
            8 => remainder(random),
            9 => Filter::WithoutNote,
            10 => Filter::NoteStarts(["a", "ab", "G"][random.index(3)].to_owned()),
            _ => Filter::Both(Box::new(remainder(random)), Box::new(self.range(random))),
        }
    }

    fn change(&self, table: Table, random: &mut SeededRandom) -> Change {
        match random.below(20) {
            0..=4 => Change::Amount(random.below(AMOUNTS) as i64),
            5..=9 => Change::Add(random.between(-50, 50)),
            10..=12 => Change::Note(self.note(random)),
            13..=15 => Change::Branch(random.below(self.shape.branches as u64) as i64),
            16..=17 => Change::Id(self.free_key(table, random)),
            18 => Change::Divide(random.below(AMOUNTS) as i64),
            _ if random.below(4) == 0 => Change::Forget,
            _ => Change::ShiftIds(random.between(-self.shape.keys, self.shape.keys)),
        }
    }

    /// Everything that a table holds.
    pub fn everything(table: Table) -> Statement {
        Statement::Select { table, filter: Filter::All, query: Query::Rows }
    }

    /// Rows to begin with.
    pub fn load(&self, table: Table, random: &mut SeededRandom) -> Statement {
        let rows = (0..self.shape.keys).filter(|_| random.below(2) == 0).collect::<Vec<_>>();
        let rows = rows.into_iter().map(|id| self.row(id, random)).collect();
        Statement::Copy { table, rows, end: CopyEnd::Done }
    }

    pub fn statement(&self, random: &mut SeededRandom) -> Statement {
        let table = if random.below(4) == 0 { Table::Ledger } else { Table::Accounts };
        let select = |filter, query| Statement::Select { table, filter, query };
        match random.below(100) {
            0..=13 => select(Filter::Key(self.key(random)), Query::Rows),
            14..=18 => select(self.range(random), Query::Rows),
            19..=25 => select(self.filter(random), Query::Rows),
            26..=31 => select(if random.below(2) == 0 { Filter::All } else { self.filter(random) }, Query::Sums),
            32..=34 => select(if random.below(2) == 0 { Filter::All } else { self.filter(random) }, Query::Groups),
            35..=36 => select(self.filter(random), Query::Some(random.below(6))),
            37..=39 => select(Filter::Key(self.key(random)), Query::Peers),
            40..=41 => select(self.filter(random), Query::Quotients(random.below(AMOUNTS) as i64)),
            42 => Self::everything(table),
            43 => select(Filter::All, Query::Sorted),
            44..=52 => Statement::Insert { table, rows: self.new_rows(table, 1, random) },
            53..=56 => {
                let count = 2 + random.below(6);
                Statement::Insert { table, rows: self.new_rows(table, count, random) }
            }
            57..=58 => Statement::InsertSelect {
                table,
                from: Table::ALL[random.index(2)],
                filter: self.small_filter(random),
                shift: random.between(-self.shape.keys, self.shape.keys),
            },
            59..=71 => {
                let filter = self.small_filter(random);
                Statement::Update { table, filter, change: self.change(table, random) }
            }
            72..=76 => {
                let change = match self.change(table, random) {
                    // One key for many rows is only an error.
                    Change::Id(amount) => Change::Amount(amount),
                    other => other,
                };
                Statement::Update { table, filter: self.filter(random), change }
            }
            77..=86 => Statement::Delete { table, filter: self.small_filter(random) },
            87..=88 => {
                let filter = match random.below(20) {
                    0 => Filter::All,
                    1..=9 => self.filter(random),
                    _ => self.range(random),
                };
                Statement::Delete { table, filter }
            }
            89..=93 => {
                let end = match random.below(10) {
                    0 => CopyEnd::Fail,
                    1 => CopyEnd::BadLine,
                    _ => CopyEnd::Done,
                };
                let count = random.below(self.shape.copy_rows_max);
                Statement::Copy { table, rows: self.new_rows(table, count, random), end }
            }
            94 => Statement::InsertNull { table, id: self.key(random) },
            95 => Statement::DivideByZero,
            96 => Statement::Nowhere,
            97 if random.below(3) == 0 => Statement::Truncate { table },
            97 => Statement::Side { drops: random.below(2) == 0 },
            98 => select(self.filter(random), Query::Sorted),
            _ => select(self.small_filter(random), Query::Rows),
        }
    }

    /// LOCK TABLE in any mode.
    pub fn lock(random: &mut SeededRandom) -> Statement {
        let mode = LOCK_MODES[random.index(LOCK_MODES.len())];
        Statement::Lock { table: Table::ALL[random.index(2)], mode }
    }
}
