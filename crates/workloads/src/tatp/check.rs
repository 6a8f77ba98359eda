//! Consistency after a run: the four tables against the population and the clients' ledger of changes.
//!
//! The mix changes three columns and one table. Everything else must be exactly what was loaded. A call-forwarding row
//! exists if and only if it was loaded or added once more than removed; this holds for every key, so a lost, repeated
//! or half-undone write shows.

use super::population::{LOCATION_MAX, Population, START_TIMES};
use super::schema::{BIT_1, DATA_A, Table, VLR_LOCATION};
use super::transactions::{ForwardingChange, ForwardingKey};
use crate::connection::{Rows, SqlValue};
use std::collections::BTreeMap;
use std::ops::Range;

/// Subscribers read at a time, so that a check needs little memory.
const SUBSCRIBERS_PER_READ: u32 = 10_000;

/// Violations kept with their text; all are counted.
const EXAMPLES_MAX: usize = 10;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Consistency {
    pub rows: u64,
    pub violations: u64,
    /// The first few violations.
    pub examples: Vec<String>,
}

impl Consistency {
    pub fn is_consistent(&self) -> bool {
        self.violations == 0
    }

    fn violation(&mut self, text: impl FnOnce() -> String) {
        self.violations += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// Checks all tables. `read` returns all columns of the rows of a table whose `s_id` lies in a range, in any order.
pub fn check<E>(
    population: &Population,
    changes: &[(ForwardingKey, ForwardingChange)],
    mut read: impl FnMut(Table, Range<u32>) -> Result<Rows, E>,
) -> Result<Consistency, E> {
    let mut balance: BTreeMap<ForwardingKey, i64> = BTreeMap::new();
    for (key, change) in changes {
        *balance.entry(*key).or_default() += match change {
            ForwardingChange::Added => 1,
            ForwardingChange::Removed => -1,
        };
    }
    let mut found = Consistency::default();
    let end = population.subscribers() + 1;
    let mut start = 1;
    while start < end {
        let range = start..(start + SUBSCRIBERS_PER_READ).min(end);
        start = range.end;
        let mut expected: [Rows; 4] = Default::default();
        for s_id in range.clone() {
            let rows = population.rows_of(s_id);
            for (all, table) in expected.iter_mut().zip(Table::ALL) {
                all.extend_from_slice(rows.of(table));
            }
        }
        for (table, expected) in Table::ALL.into_iter().zip(expected) {
            let expected = keyed(table, expected, &mut found);
            let rows = read(table, range.clone())?;
            found.rows += rows.len() as u64;
            let actual = keyed(table, rows, &mut found);
            if table == Table::CallForwarding {
                compare_forwardings(&expected, &actual, &balance, &range, &mut found);
            } else {
                compare_fixed(table, &expected, &actual, &mut found);
            }
        }
    }
    // Rows of subscribers that do not exist.
    for table in Table::ALL {
        for strays in [0..1, end..i32::MAX as u32] {
            for row in read(table, strays)? {
                found.violation(|| format!("{} has a row of no subscriber: {row:?}", table.name()));
            }
        }
    }
    Ok(found)
}

type KeyedRows = BTreeMap<Vec<i64>, Vec<SqlValue>>;

fn keyed(table: Table, rows: Rows, found: &mut Consistency) -> KeyedRows {
    let mut keyed = BTreeMap::new();
    for row in rows {
        let key: Option<Vec<i64>> = row.iter().take(table.key_columns()).map(SqlValue::as_int).collect();
        match key {
            Some(key) if row.len() == table.columns().len() => {
                if let Some(other) = keyed.insert(key, row) {
                    found.violation(|| format!("{} has a key twice: {other:?}", table.name()));
                }
            }
            _ => found.violation(|| format!("{} has a malformed row: {row:?}", table.name())),
        }
    }
    keyed
}

/// Tables whose rows stay; only the values of the changed columns may differ, within their ranges.
fn compare_fixed(table: Table, expected: &KeyedRows, actual: &KeyedRows, found: &mut Consistency) {
    for key in actual.keys().filter(|key| !expected.contains_key(*key)) {
        found.violation(|| format!("{} has a row that was never loaded: {key:?}", table.name()));
    }
    for (key, expected) in expected {
        let Some(actual) = actual.get(key) else {
            found.violation(|| format!("{} has lost row {key:?}", table.name()));
            continue;
        };
        for (column, (expected, actual)) in expected.iter().zip(actual).enumerate() {
            let changed_within = match (table, column) {
                (Table::Subscriber, BIT_1) => Some(0..=1),
                (Table::Subscriber, VLR_LOCATION) => Some(1..=LOCATION_MAX),
                (Table::SpecialFacility, DATA_A) => Some(0..=255),
                _ => None,
            };
            let valid = match changed_within {
                Some(range) => actual.as_int().is_some_and(|value| range.contains(&value)),
                None => actual == expected,
            };
            if !valid {
                let name = table.columns()[column].name;
                found
                    .violation(|| format!("{} {key:?}: {name} is {actual}, it was loaded as {expected}", table.name()));
            }
        }
    }
}

fn compare_forwardings(
    loaded: &KeyedRows,
    actual: &KeyedRows,
    balance: &BTreeMap<ForwardingKey, i64>,
    range: &Range<u32>,
    found: &mut Consistency,
) {
    let first = |s_id: u32| ForwardingKey { s_id: i64::from(s_id), sf_type: i64::MIN, start_time: i64::MIN };
    let mut due: BTreeMap<Vec<i64>, i64> = loaded.keys().map(|key| (key.clone(), 1)).collect();
    for (key, change) in balance.range(first(range.start)..first(range.end)) {
        *due.entry(vec![key.s_id, key.sf_type, key.start_time]).or_default() += change;
    }
    for (key, due) in &due {
        match (due, actual.contains_key(key)) {
            (0, false) | (1, true) => {}
            (_, exists) => found.violation(|| {
                let is = if exists { "exists" } else { "does not exist" };
                format!("call_forwarding {key:?} {is}; it was added {due} times more than it was removed")
            }),
        }
    }
    for (key, row) in actual {
        let valid = due.contains_key(key)
            && (1..=4).contains(&key[1])
            && START_TIMES.contains(&key[2])
            && row[3].as_int().is_some_and(|end| (1..=24).contains(&end))
            && matches!(&row[4], SqlValue::Text(number) if number.len() == 15);
        if !valid {
            found.violation(|| format!("call_forwarding has a row that nobody wrote: {row:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::population::PopulationOptions;
    use super::*;

    /// The tables as loaded, as the check reads them.
    fn tables(population: &Population) -> [Rows; 4] {
        Table::ALL.map(|table| {
            (1..=population.subscribers()).flat_map(|s_id| population.rows_of(s_id).of(table).to_vec()).collect()
        })
    }

    fn run_check(
        population: &Population,
        changes: &[(ForwardingKey, ForwardingChange)],
        tables: &[Rows; 4],
    ) -> Consistency {
        check(population, changes, |table, range| {
            let within = |row: &&Vec<SqlValue>| range.contains(&(row[0].as_int().unwrap() as u32));
            Ok::<_, ()>(tables[table as usize].iter().filter(within).cloned().collect())
        })
        .unwrap()
    }

    fn key_of(row: &[SqlValue]) -> ForwardingKey {
        let int = |column: usize| row[column].as_int().unwrap();
        ForwardingKey { s_id: int(0), sf_type: int(1), start_time: int(2) }
    }

    #[test]
    fn loaded_data_and_foreseen_changes_are_consistent() {
        let population = Population::new(PopulationOptions::new(12_000));
        let mut tables = tables(&population);
        let rows: usize = tables.iter().map(Vec::len).sum();
        let found = run_check(&population, &[], &tables);
        assert_eq!((found.rows, found.violations), (rows as u64, 0), "{:?}", found.examples);
        tables[0][5][BIT_1] = SqlValue::Int(1);
        tables[0][6][VLR_LOCATION] = SqlValue::Int(77);
        tables[2][7][DATA_A] = SqlValue::Int(255);
        let removed = tables[3].swap_remove(100);
        let moved = tables[3][200].clone();
        tables[3][200][4] = SqlValue::from("000000000000001");
        let changes = [
            (key_of(&removed), ForwardingChange::Removed),
            (key_of(&moved), ForwardingChange::Removed),
            (key_of(&moved), ForwardingChange::Added),
        ];
        let found = run_check(&population, &changes, &tables);
        assert!(found.is_consistent(), "{:?}", found.examples);
    }

    #[test]
    fn every_kind_of_damage_is_found() {
        let population = Population::new(PopulationOptions::new(100));
        let damage = |damage: &dyn Fn(&mut [Rows; 4])| {
            let mut tables = tables(&population);
            damage(&mut tables);
            run_check(&population, &[], &tables)
        };
        let lost = damage(&|tables| drop(tables[1].pop()));
        assert!(lost.examples[0].contains("access_info has lost row"), "{:?}", lost.examples);
        let changed = damage(&|tables| tables[0][3][4] = SqlValue::Int(9));
        assert!(changed.examples[0].contains("bit_3 is 9"), "{:?}", changed.examples);
        let out_of_range = damage(&|tables| tables[0][3][BIT_1] = SqlValue::Int(2));
        assert!(out_of_range.examples[0].contains("bit_1 is 2"), "{:?}", out_of_range.examples);
        let twice = damage(&|tables| tables[2].push(tables[2][0].clone()));
        assert!(twice.examples[0].contains("special_facility has a key twice"), "{:?}", twice.examples);
        let unremoved = damage(&|tables| drop(tables[3].pop()));
        assert!(unremoved.examples[0].contains("does not exist"), "{:?}", unremoved.examples);
        let stray = damage(&|tables| {
            let mut row = tables[1][0].clone();
            row[0] = SqlValue::Int(101);
            tables[1].push(row);
        });
        assert!(stray.examples[0].contains("no subscriber"), "{:?}", stray.examples);
    }

    /// A change that was acknowledged and is not there, and one that is there and was undone.
    #[test]
    fn the_ledger_is_believed() {
        let population = Population::new(PopulationOptions::new(50));
        let tables = tables(&population);
        let removed = [(key_of(&tables[3][0]), ForwardingChange::Removed)];
        assert_eq!(run_check(&population, &removed, &tables).violations, 1);
        let absent = ForwardingKey { s_id: 1, sf_type: 9, start_time: 0 };
        assert_eq!(run_check(&population, &[(absent, ForwardingChange::Added)], &tables).violations, 1);
    }
}
