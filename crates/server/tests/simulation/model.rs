//! What a statement means: its answer, its errors and its writes, as a function of the rows it sees.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::statement::{Change, CopyEnd, Filter, Query, Row, Statement, Table};

pub const UNIQUE: &str = "23505";
pub const NOT_NULL: &str = "23502";
pub const DIVISION_BY_ZERO: &str = "22012";
pub const BAD_TEXT: &str = "22P02";
pub const CANCELED: &str = "57014";
pub const SERIALIZATION: &str = "40001";
pub const DEADLOCK: &str = "40P01";
pub const FAILED_BLOCK: &str = "25P02";
pub const READ_ONLY: &str = "25006";
pub const NO_TABLE: &str = "42P01";
pub const DUPLICATE_TABLE: &str = "42P07";
pub const OUT_OF_MEMORY: &str = "53200";
pub const DISK_FULL: &str = "53100";
pub const IO_ERROR: &str = "58030";

/// What tells two rows apart.
pub type Key = (Table, i64);

/// A row as the client reads it.
pub type TextRow = Vec<Option<String>>;

/// What a statement answers when it succeeds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// In ascending order.
    Rows(Vec<TextRow>),
    Changed(u64),
}

/// The committed versions of each row by commit timestamp, in rising order. `None` is a deletion.
#[derive(Default)]
pub struct Versions(BTreeMap<Key, Vec<(u64, Option<Row>)>>);

impl Versions {
    /// Takes all rows of a table, before what the transaction wrote itself is added.
    pub fn truncate(&self, table: Table, writes: &mut BTreeMap<Key, Option<Row>>) {
        let keys = (Bound::Included((table, i64::MIN)), Bound::Included((table, i64::MAX)));
        for (key, _) in self.0.range(keys).filter(|(_, versions)| row_at(versions, u64::MAX).is_some()) {
            writes.entry(*key).or_insert(None);
        }
    }

    /// Adds what a transaction wrote; in the order of commit timestamps.
    pub fn commit(&mut self, timestamp: u64, writes: &BTreeMap<Key, Option<Row>>) {
        for (key, row) in writes {
            let versions = self.0.entry(*key).or_default();
            assert!(versions.last().is_none_or(|(before, _)| *before < timestamp), "commits come in order");
            versions.push((timestamp, row.clone()));
        }
    }

    /// The row at a snapshot.
    pub fn at(&self, key: Key, snapshot: u64) -> Option<&Row> {
        row_at(self.0.get(&key)?, snapshot)
    }

    /// The versions of a row that were committed within `after + 1 .. before`.
    pub fn between(&self, key: Key, after: u64, before: u64) -> impl Iterator<Item = &(u64, Option<Row>)> {
        let versions = self.0.get(&key).map_or(&[][..], Vec::as_slice);
        versions.iter().filter(move |(timestamp, _)| *timestamp > after && *timestamp < before)
    }

    pub fn last(&self) -> Vec<(Table, Row)> {
        let live = |(key, versions): (&Key, &Vec<_>)| Some((key.0, row_at(versions, u64::MAX)?.clone()));
        self.0.iter().filter_map(live).collect()
    }
}

fn row_at(versions: &[(u64, Option<Row>)], snapshot: u64) -> Option<&Row> {
    let until = versions.partition_point(|(timestamp, _)| *timestamp <= snapshot);
    versions[..until].last()?.1.as_ref()
}

/// What a statement sees: a snapshot, and what its transaction wrote before.
pub struct View<'v> {
    pub versions: &'v Versions,
    pub snapshot: u64,
    pub own: BTreeMap<Key, Option<Row>>,
    /// Tables that its transaction truncated: of these it sees only what it wrote afterwards.
    pub truncated: BTreeSet<Table>,
}

impl View<'_> {
    pub fn truncate(&mut self, table: Table) {
        self.own.retain(|key, _| key.0 != table);
        self.truncated.insert(table);
    }

    pub fn get(&self, key: Key) -> Option<&Row> {
        match self.own.get(&key) {
            Some(own) => own.as_ref(),
            None if self.truncated.contains(&key.0) => None,
            None => self.versions.at(key, self.snapshot),
        }
    }

    fn range(&self, table: Table, low: i64, high: i64) -> Vec<&Row> {
        if low > high {
            return Vec::new();
        }
        let keys = (Bound::Included((table, low)), Bound::Included((table, high)));
        let is_seen = |key: &Key| !self.truncated.contains(&table) && !self.own.contains_key(key);
        let committed = self.versions.0.range(keys).filter(|(key, _)| is_seen(key));
        let mut rows: Vec<&Row> = committed.filter_map(|(_, versions)| row_at(versions, self.snapshot)).collect();
        rows.extend(self.own.range(keys).filter_map(|(_, row)| row.as_ref()));
        rows
    }

    fn rows(&self, table: Table, filter: &Filter) -> Vec<&Row> {
        match filter {
            Filter::Key(id) => self.get((table, *id)).into_iter().collect(),
            Filter::Range(low, high) => self.range(table, *low, *high),
            other => {
                let mut rows = self.range(table, i64::MIN, i64::MAX);
                rows.retain(|row| passes(row, other));
                rows
            }
        }
    }
}

fn passes(row: &Row, filter: &Filter) -> bool {
    match filter {
        Filter::All => true,
        Filter::Key(id) => row.id == *id,
        Filter::Keys(ids) => ids.contains(&row.id),
        Filter::Range(low, high) => (*low..=*high).contains(&row.id),
        Filter::Branch(branch) => row.branch == *branch,
        Filter::Above(amount) => row.amount > *amount,
        Filter::Remainder { divisor, remainder } => row.amount % divisor == *remainder,
        Filter::WithoutNote => row.note.is_none(),
        Filter::NoteStarts(start) => row.note.as_ref().is_some_and(|note| note.starts_with(start)),
        Filter::Both(one, other) => passes(row, one) && passes(row, other),
    }
}

/// What must come of a statement.
#[derive(Default)]
pub struct Expectation {
    /// The rows of a query: all that may be among the answer's.
    pub rows: Vec<TextRow>,
    /// How many rows the answer has, if it succeeds.
    pub count: u64,
    /// If there are any, one of these errors must come up.
    pub errors: Vec<&'static str>,
    /// An error that may come up all the same: it depends on the order in which rows are changed.
    pub tolerated: Vec<&'static str>,
    pub writes: Vec<(Key, Option<Row>)>,
    /// The table whose rows go first.
    pub truncates: Option<Table>,
    /// The keys that it locks or takes.
    pub touched: BTreeSet<Key>,
}

/// Evaluates a statement.
pub fn expect(statement: &Statement, view: &View<'_>) -> Expectation {
    let mut expected = Expectation::default();
    match statement {
        Statement::Select { table, filter, query } => expected.select(*table, filter, query, view),
        Statement::Insert { table, rows } => expected.insert(*table, rows.clone(), view),
        Statement::InsertNull { .. } => expected.errors.push(NOT_NULL),
        Statement::InsertSelect { table, from, filter, shift } => {
            let rows = view.rows(*from, filter).into_iter().map(|row| Row { id: row.id + shift, ..row.clone() });
            expected.insert(*table, rows.collect(), view);
        }
        Statement::Update { table, filter, change } => expected.update(*table, filter, change, view),
        Statement::Delete { table, filter } => {
            for row in view.rows(*table, filter) {
                expected.touched.insert((*table, row.id));
                expected.writes.push(((*table, row.id), None));
                expected.count += 1;
            }
        }
        Statement::Copy { table, rows, end } => {
            expected.insert(*table, rows.clone(), view);
            match end {
                CopyEnd::Done => {}
                CopyEnd::Fail => expected.errors.push(CANCELED),
                CopyEnd::BadLine => expected.errors.push(BAD_TEXT),
            }
        }
        Statement::Truncate { table } => expected.truncates = Some(*table),
        Statement::Lock { .. } => {}
        // Others make and drop it meanwhile.
        Statement::Side { .. } => {
            expected.tolerated = vec![SERIALIZATION, DEADLOCK, NO_TABLE, DUPLICATE_TABLE];
        }
        Statement::DivideByZero => expected.errors.push(DIVISION_BY_ZERO),
        Statement::Nowhere => expected.errors.push(NO_TABLE),
    }
    if !expected.errors.is_empty() {
        expected.writes.clear();
    }
    expected
}

fn number<N: ToString + Copy>(value: N) -> Option<String> {
    Some(value.to_string())
}

impl Expectation {
    fn select(&mut self, table: Table, filter: &Filter, query: &Query, view: &View<'_>) {
        let found = view.rows(table, filter);
        match query {
            Query::Rows | Query::Some(_) | Query::Sorted => {
                let text = |row: &&Row| vec![number(row.id), number(row.branch), number(row.amount), row.note.clone()];
                self.rows = found.iter().map(text).collect();
            }
            Query::Sums => {
                let amounts = || found.iter().map(|row| row.amount);
                let sum = (!found.is_empty()).then(|| amounts().map(i128::from).sum::<i128>().to_string());
                let notes = found.iter().filter(|row| row.note.is_some()).count();
                let (least, largest) = (amounts().min().and_then(number), amounts().max().and_then(number));
                self.rows = vec![vec![number(found.len()), sum, least, largest, number(notes)]];
            }
            Query::Groups => {
                let mut groups: BTreeMap<i64, (u64, i128)> = BTreeMap::new();
                for row in &found {
                    let group = groups.entry(row.branch).or_default();
                    group.0 += 1;
                    group.1 += i128::from(row.amount);
                }
                let text = |(branch, (count, sum))| vec![number(branch), number(count), number(sum)];
                self.rows = groups.into_iter().map(text).collect();
            }
            Query::Peers => {
                for row in &found {
                    if let Some(peer) = view.get((table, row.branch)) {
                        self.rows.push(vec![number(row.id), number(peer.id), number(peer.amount)]);
                    }
                }
            }
            Query::Quotients(amount) => {
                for row in &found {
                    match row.amount.checked_div(row.amount - amount) {
                        Some(quotient) => self.rows.push(vec![number(row.id), number(quotient)]),
                        None => self.errors = vec![DIVISION_BY_ZERO],
                    }
                }
            }
        }
        self.rows.sort();
        self.count = self.rows.len() as u64;
        if let Query::Some(limit) = query {
            self.count = self.count.min(*limit);
        }
    }

    fn insert(&mut self, table: Table, rows: Vec<Row>, view: &View<'_>) {
        self.count = rows.len() as u64;
        for row in rows {
            let key = (table, row.id);
            let twice = !self.touched.insert(key);
            if twice || view.get(key).is_some() {
                self.errors = vec![UNIQUE];
            }
            self.writes.push((key, Some(row)));
        }
    }

    fn update(&mut self, table: Table, filter: &Filter, change: &Change, view: &View<'_>) {
        let found = view.rows(table, filter);
        self.count = found.len() as u64;
        let old: BTreeSet<i64> = found.iter().map(|row| row.id).collect();
        let mut new = BTreeSet::new();
        for row in found {
            let mut row = row.clone();
            self.touched.insert((table, row.id));
            self.writes.push(((table, row.id), None));
            match change {
                Change::Amount(amount) => row.amount = *amount,
                Change::Add(amount) => row.amount += amount,
                Change::Note(note) => row.note.clone_from(note),
                Change::Branch(branch) => row.branch = *branch,
                Change::Id(id) => row.id = *id,
                Change::ShiftIds(shift) => row.id += shift,
                Change::Divide(amount) => match row.amount.checked_div(row.amount - amount) {
                    Some(quotient) => row.amount = quotient,
                    None => self.errors.push(DIVISION_BY_ZERO),
                },
                Change::Forget => self.errors.push(NOT_NULL),
            }
            let key = (table, row.id);
            self.touched.insert(key);
            let taken = !old.contains(&row.id) && view.get(key).is_some();
            if taken || !new.insert(row.id) {
                self.errors.push(UNIQUE);
            }
            if matches!(change, Change::ShiftIds(shift) if *shift != 0) && old.contains(&row.id) {
                // The key is free only once its old row is gone, and that may lie in another partition.
                self.tolerated = vec![UNIQUE];
            }
            self.writes.push((key, Some(row)));
        }
        // Every old version ends before the first new one begins.
        self.writes.sort_by_key(|(_, row)| row.is_some());
    }
}
