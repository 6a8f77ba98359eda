//! The rows of the eight tables, in chunks as those of TPC-H.
//!
//! A part of a parent table is a range of keys. A part of lineitem or partsupp is a range of rows, because a few
//! parents have very many: parts are equally large, whichever parents they have.

use super::customers::SkewedCustomer;
use super::fanout::Fanout;
use super::orders::SkewedOrder;
use super::parts::SkewedPart;
use super::population::Population;
use super::suppliers::skewed_supplier;
use super::{lines, partsupp};
use crate::tpch::rows::{Chunks, chunks};
use crate::tpch::{Table, TablePart, generate_of};
use std::ops::Range;
use tpchgen::generators::{CustomerGenerator, OrderGenerator, PartGenerator, SupplierGenerator};
use tpchgen::text::TextPool;

/// Generates a part of a table. Region and nation are those of TPC-H.
pub fn generate(table: Table, population: &Population, part: TablePart) -> Chunks {
    assert!(part.index < part.count, "part {} of {} does not exist", part.index, part.count);
    let population = *population;
    let scale_factor = population.tpch_scale_factor();
    let pool = TextPool::get_or_init_default();
    // The generators of TPC-H count parts from one.
    let (number, count) = (part.index as i32 + 1, part.count as i32);
    match table {
        Table::Region | Table::Nation => generate_of(table, scale_factor, part, pool),
        Table::Supplier => {
            let rows = SupplierGenerator::new(scale_factor, number, count).iter();
            chunks(table, rows.map(move |row| skewed_supplier(&population, row)))
        }
        Table::Customer => {
            let rows = CustomerGenerator::new(scale_factor, number, count).iter();
            chunks(table, rows.map(move |row| SkewedCustomer::new(&population, row)))
        }
        Table::Part => {
            let rows = PartGenerator::new(scale_factor, number, count).iter();
            chunks(table, rows.map(move |row| SkewedPart::new(&population, row)))
        }
        Table::PartSupp => {
            let fanout = partsupp::fanout(&population);
            let rows = share(&fanout, part);
            chunks(table, fanout.iter(rows).map(move |child| partsupp::row(&population, pool, child)))
        }
        Table::Orders => {
            let fanout = lines::fanout(&population);
            let rows = OrderGenerator::new(scale_factor, number, count).iter();
            chunks(table, rows.map(move |row| SkewedOrder::new(&population, &fanout, row)))
        }
        Table::LineItem => {
            let rows = share(&lines::fanout(&population), part);
            chunks(table, lines::rows(population, pool, rows))
        }
    }
}

/// The number of rows of a table.
pub fn row_count(table: Table, population: &Population) -> u64 {
    match table {
        Table::Region => 5,
        Table::Nation => 25,
        Table::Supplier => population.suppliers.count(),
        Table::Customer => population.customers.count(),
        Table::Part => population.parts.count(),
        Table::PartSupp => partsupp::fanout(population).rows(),
        Table::Orders => population.orders.count(),
        Table::LineItem => lines::fanout(population).rows(),
    }
}

/// The rows of a part.
fn share(fanout: &Fanout, part: TablePart) -> Range<u64> {
    let bound = |index: u32| fanout.rows() * u64::from(index) / u64::from(part.count);
    bound(part.index)..bound(part.index + 1)
}
