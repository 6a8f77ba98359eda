//! Orders that come and go beside the queries, so that the 22 answers are checked while rows move.
//!
//! TPC-H's refresh functions RF1 (new orders) and RF2 (old orders go) on keys that no row has, both in one transaction:
//! no query may ever see any of it. Every second transaction also changes and deletes rows that the queries do see, and
//! rolls back. Four times as many order keys exist as orders (TPC-H specification, 4.2.3), so the free ones lie between
//! the used ones and new rows go to every partition.

use crate::error::BenchError;
use crate::instance::{EmbeddedConnection, Instance};
use eris_platform::SeededRandom;
use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::tpch::Table;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Orders with neighbouring keys, and the distance to the free keys after them.
const BLOCK: i64 = 8;
/// Keys from one block to the next.
const BLOCK_STRIDE: i64 = 32;
const ORDERS_AT_SCALE_1: f64 = 1_500_000.0;

/// Clients that refresh until told to stop.
pub(super) struct Refresh {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Result<u64, SqlFailure>>>,
}

impl Refresh {
    pub fn start(instance: &Instance, clients: usize, scale_factor: f64) -> Result<Self, BenchError> {
        let stop = Arc::new(AtomicBool::new(false));
        let blocks = (ORDERS_AT_SCALE_1 * scale_factor) as i64 / BLOCK;
        let mut started = Self { stop: Arc::clone(&stop), clients: Vec::new() };
        for number in 0..clients {
            let (mut connection, stop) = (instance.connect(), Arc::clone(&stop));
            // Each has its own share of the blocks: clients meet queries, not each other.
            let (first, step) = (number as i64, clients as i64);
            let own: Vec<i64> = (first..blocks).step_by(step as usize).collect();
            let run = move || client(&mut connection, &own, &stop);
            started.clients.push(std::thread::Builder::new().name(format!("refresh-{number}")).spawn(run)?);
        }
        Ok(started)
    }

    /// Ends the clients; how many transactions they ran.
    pub fn end(mut self) -> Result<u64, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        let mut transactions = 0;
        for client in self.clients.drain(..) {
            let ended = client.join().map_err(|_| BenchError::Options("a refresh client panicked".to_owned()))?;
            transactions += ended?;
        }
        Ok(transactions)
    }
}

impl Drop for Refresh {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn client(connection: &mut EmbeddedConnection, blocks: &[i64], stop: &AtomicBool) -> Result<u64, SqlFailure> {
    let mut random = SeededRandom::new(blocks.len() as u64);
    let mut transactions = 0;
    while !stop.load(Ordering::Relaxed) && !blocks.is_empty() {
        let first = blocks[random.index(blocks.len())] * BLOCK_STRIDE + 1;
        let commits = transactions % 2 == 0;
        match transaction(connection, first, commits) {
            Ok(()) => transactions += 1,
            Err(failure) => {
                connection.execute("ROLLBACK", &[])?;
                if !failure.is_retryable() {
                    return Err(failure);
                }
            }
        }
    }
    Ok(transactions)
}

/// Copies the orders of a block to free keys and takes them away again; or copies them, hurts the originals and gives
/// up.
fn transaction(connection: &mut EmbeddedConnection, first: i64, commits: bool) -> Result<(), SqlFailure> {
    let copies = (first + BLOCK)..(first + 2 * BLOCK);
    let originals = first..copies.start;
    let within = |key: &str, keys: &std::ops::Range<i64>| format!("{key} >= {} AND {key} < {}", keys.start, keys.end);
    let mut statements = vec!["BEGIN".to_owned()];
    for table in [Table::Orders, Table::LineItem] {
        let names: Vec<&str> = table.columns().iter().map(|column| column.name).collect();
        let (key, others) = (names[0], names[1..].join(", "));
        let (name, from) = (table.name(), within(key, &originals));
        statements.push(format!("INSERT INTO {name} SELECT {key} + {BLOCK}, {others} FROM {name} WHERE {from}"));
    }
    statements.push(format!("UPDATE orders SET o_totalprice = 0 WHERE o_orderkey = {}", copies.start));
    let taken = if commits { &copies } else { &originals };
    if !commits {
        statements.push(format!("UPDATE lineitem SET l_quantity = 0 WHERE {}", within("l_orderkey", taken)));
    }
    statements.push(format!("DELETE FROM lineitem WHERE {}", within("l_orderkey", taken)));
    statements.push(format!("DELETE FROM orders WHERE {}", within("o_orderkey", taken)));
    statements.push(if commits { "COMMIT" } else { "ROLLBACK" }.to_owned());
    statements.iter().try_for_each(|statement| connection.execute(statement, &[]).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::{AnalyticsOptions, load};
    use crate::instance::InstanceOptions;

    fn count(instance: &Instance, table: &str) -> String {
        format!("{:?}", instance.connect().execute(&format!("SELECT count(*) FROM {table}"), &[]).unwrap().rows)
    }

    #[test]
    fn transactions_leave_nothing_behind() {
        let options = AnalyticsOptions { scale_factor: 0.01, split_rows: Some(5_000), ..AnalyticsOptions::default() };
        let instance = Instance::start(&InstanceOptions {
            workers: 2,
            nodes: 2,
            memory_limit_bytes: 1 << 30,
            in_place: true,
            split_rows: options.split_rows,
        })
        .unwrap();
        load(&instance, &options).unwrap();
        let before = [count(&instance, "orders"), count(&instance, "lineitem")];
        let mut connection = instance.connect();
        for (number, first) in [1, 33, 1, 65].into_iter().enumerate() {
            transaction(&mut connection, first, number % 2 == 0).unwrap();
        }
        assert_eq!([count(&instance, "orders"), count(&instance, "lineitem")], before);
        let refresh = Refresh::start(&instance, 2, 0.01).unwrap();
        while instance.counters()["transactions_committed"] < 40 {
            std::thread::yield_now();
        }
        assert!(refresh.end().unwrap() > 0);
        assert_eq!([count(&instance, "orders"), count(&instance, "lineitem")], before);
        assert!(instance.counters()["splits"] > 0);
        instance.shutdown();
    }
}
