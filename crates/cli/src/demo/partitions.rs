//! A table of the tables: how each is cut, and how its segments are stored.

use std::collections::BTreeMap;

use eris::Database;
use eris_sql::catalog::CATALOG_CONTAINER;
use eris_storage::ContainerId;
use eris_workloads::{tatp, tpch};

use crate::demo::screen::{count, megabytes};
use crate::demo::transactions::Tatp;

/// Sums over the partitions of one container.
#[derive(Default)]
struct Sums {
    partitions: u64,
    nodes: BTreeMap<u16, u64>,
    rows: u64,
    bytes: u64,
    open: u64,
    sealed: u64,
    row_layout: u64,
    column_layout: u64,
    largest: u64,
    smallest: Option<u64>,
}

pub fn print(database: &Database, tatp: &Tatp) {
    let mut containers: BTreeMap<ContainerId, Sums> = BTreeMap::new();
    for partition in database.engine().partitions() {
        if partition.container == CATALOG_CONTAINER {
            continue;
        }
        let sums = containers.entry(partition.container).or_default();
        sums.partitions += 1;
        *sums.nodes.entry(partition.home.0).or_default() += 1;
        sums.rows += partition.rows;
        sums.bytes += partition.bytes;
        sums.largest = sums.largest.max(partition.rows);
        sums.smallest = Some(sums.smallest.unwrap_or(u64::MAX).min(partition.rows));
        if let Some(store) = &partition.store {
            sums.open += store.open_segments;
            sums.sealed += store.sealed_segments;
            sums.row_layout += store.row_segments;
            sums.column_layout += store.column_segments;
        }
    }
    println!(
        "  table               rows     memory   partitions   rows in each              segments, open + sealed   \
         as rows + columns"
    );
    let catalog = database.sql().catalog().current();
    let tpch_tables =
        tpch::Table::ALL.map(|table| (table.name(), catalog.find(table.name()).map(|table| table.container())));
    let tatp_tables = tatp::Table::ALL.map(|table| (table.name(), Some(tatp.containers.of(table))));
    for (name, id) in tpch_tables.into_iter().chain(tatp_tables) {
        let Some(sums) = id.and_then(|id| containers.get(&id)) else { continue };
        let smallest = sums.smallest.unwrap_or(0);
        let each = if smallest == sums.largest {
            count(smallest)
        } else {
            format!("{} to {}", count(smallest), count(sums.largest))
        };
        println!(
            "  {name:<16} {:>9} {:>9}   {:>10}   {each:<22}   {:>9} + {:<12}   {:>7} + {}",
            count(sums.rows),
            megabytes(sums.bytes),
            sums.partitions,
            sums.open,
            sums.sealed,
            sums.row_layout,
            sums.column_layout,
        );
    }
    let mut homes: BTreeMap<u16, u64> = BTreeMap::new();
    for (node, partitions) in containers.values().flat_map(|sums| &sums.nodes) {
        *homes.entry(*node).or_default() += partitions;
    }
    let homes: Vec<_> = homes.iter().map(|(node, partitions)| format!("{partitions} on node {node}")).collect();
    println!("  homes of the partitions: {}", homes.join(", "));
}
