//! The rules of the benchmark and the acceptance checks of its data, on generated rows.
//!
//! Rules are written down once more here, from the hashes of keys; keys and hashes themselves are checked beside
//! `KeyHash`. Where a rule says nothing, the row must be that of TPC-H.

mod full_size;
mod lineitem;
mod orders;
mod parameters;
mod parents;
mod partsupp;
mod sharing;

use super::{Population, generate};
use crate::tpch::{Chunk, Column, Table, TablePart};

/// The smallest scale factor, one whose regions cannot be cut evenly, and one that shows all nations.
const SCALE_FACTORS: [f64; 3] = [0.0025, 0.0035, 0.05];

/// The large nation of each region, and its small ones in the order of their hashes.
const LARGE: [&str; 5] = ["MOROCCO", "UNITED STATES", "CHINA", "GERMANY", "EGYPT"];
const SMALL: [[&str; 4]; 5] = [
    ["ALGERIA", "ETHIOPIA", "KENYA", "MOZAMBIQUE"],
    ["ARGENTINA", "BRAZIL", "CANADA", "PERU"],
    ["INDONESIA", "JAPAN", "VIETNAM", "INDIA"],
    ["FRANCE", "RUSSIA", "ROMANIA", "UNITED KINGDOM"],
    ["IRAN", "IRAQ", "JORDAN", "SAUDI ARABIA"],
];

fn population(scale_factor: f64) -> Population {
    Population::new(scale_factor).unwrap()
}

/// Some rows of a table, whose columns are found by name.
struct Rows {
    table: Table,
    chunk: Chunk,
}

impl Rows {
    fn len(&self) -> usize {
        self.chunk.rows()
    }

    fn column(&self, name: &str) -> &Column {
        let position = self.table.columns().iter().position(|column| column.name == name);
        &self.chunk.columns[position.unwrap_or_else(|| panic!("{} has no {name}", self.table.name()))]
    }

    /// Integers, hundredths of decimals, days of dates.
    fn numbers(&self, name: &str) -> Vec<i64> {
        match self.column(name) {
            Column::Int32(values) | Column::Date(values) => values.iter().copied().map(i64::from).collect(),
            Column::Int64(values) | Column::Decimal(values) => values.clone(),
            Column::Text(_) => panic!("{name} is text"),
        }
    }

    fn texts(&self, name: &str) -> Vec<&str> {
        match self.column(name) {
            Column::Text(values) => values.iter().collect(),
            _ => panic!("{name} is no text"),
        }
    }

    fn keys(&self, name: &str) -> Vec<u64> {
        self.numbers(name).into_iter().map(|key| key as u64).collect()
    }
}

/// Chunk by chunk, for tables that are large.
fn chunks_of(table: Table, population: &Population) -> impl Iterator<Item = Rows> {
    generate(table, population, TablePart::WHOLE).map(move |chunk| Rows { table, chunk })
}

/// A whole table.
fn rows_of(table: Table, population: &Population) -> Rows {
    collect(table, generate(table, population, TablePart::WHOLE))
}

/// The same table of TPC-H.
fn tpch_rows_of(table: Table, scale_factor: f64) -> Rows {
    collect(table, crate::tpch::generate(table, scale_factor * (1.0 + 1e-12), TablePart::WHOLE))
}

fn collect(table: Table, chunks: impl Iterator<Item = Chunk>) -> Rows {
    let mut all: Vec<Column> = table.columns().iter().map(|column| Column::new(column.column_type)).collect();
    for chunk in chunks {
        for (all, some) in all.iter_mut().zip(chunk.columns) {
            match (all, some) {
                (Column::Int32(all), Column::Int32(some)) | (Column::Date(all), Column::Date(some)) => all.extend(some),
                (Column::Int64(all), Column::Int64(some)) | (Column::Decimal(all), Column::Decimal(some)) => {
                    all.extend(some);
                }
                (Column::Text(all), Column::Text(some)) => some.iter().for_each(|text| all.push(text)),
                _ => panic!("{} has a column of another type", table.name()),
            }
        }
    }
    Rows { table, chunk: Chunk { columns: all } }
}

/// Columns that no rule speaks of are those of TPC-H.
fn assert_same(ours: &Rows, theirs: &Rows, columns: &[&str]) {
    for column in columns {
        assert_eq!(ours.column(column), theirs.column(column), "{column}");
    }
}
