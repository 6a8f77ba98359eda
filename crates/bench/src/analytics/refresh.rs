//! Rows that come, go and change beside the queries, so that the 22 answers are checked while rows move.
//!
//! Each transaction is about a block of orders and does one of four things, by turns. No query may ever see any of it.
//!
//! - *Come and go*: copies of the orders get keys that no row has, as by TPC-H's refresh function RF1, one of them
//!   changes, and they go again, as by RF2.
//! - *Roll back*: so do copies, and rows that the queries do see are changed and deleted, but nothing of it is kept.
//! - *Replace*: the orders themselves are deleted and inserted again from their copies. What the queries read is the
//!   same as before, in other versions at other addresses.
//! - *Update*: orders, a part and its suppliers' stock get new values in columns that no query reads, and a customer
//!   those that it has.
//!
//! Four times as many order keys exist as orders (TPC-H specification, 4.2.3), also in JCC-H, so the free ones lie
//! between the used ones and new rows go to every partition.

use super::statements::{copy, delete, update, within};
use crate::error::BenchError;
use crate::instance::{EmbeddedConnection, Instance};
use eris_platform::SeededRandom;
use eris_workloads::connection::{SqlConnection, SqlFailure};
use eris_workloads::tpch::Table;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Orders with neighbouring keys, and the distance to the free keys after them.
pub(super) const BLOCK: i64 = 8;
/// Keys from one block to the next. Those of the last quarter are left to `churn`.
pub(super) const BLOCK_STRIDE: i64 = 32;
const ORDERS_AT_SCALE_1: f64 = 1_500_000.0;
/// What has the key of an order.
const WITH_ORDER_KEY: [(Table, &str); 2] = [(Table::Orders, "o_orderkey"), (Table::LineItem, "l_orderkey")];
/// Columns that no query reads: the key by which rows are chosen and the column, which holds 15 characters at least.
const UNREAD_OF_ORDERS: [(Table, &str, &str); 2] =
    [(Table::Orders, "o_orderkey", "o_clerk"), (Table::LineItem, "l_orderkey", "l_comment")];
const UNREAD_OF_PARTS: [(Table, &str, &str); 2] =
    [(Table::Part, "p_partkey", "p_comment"), (Table::PartSupp, "ps_partkey", "ps_comment")];

/// What a transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ComeAndGo,
    RollBack,
    Replace,
    Update,
}

impl Kind {
    const ALL: [Self; 4] = [Self::ComeAndGo, Self::RollBack, Self::Replace, Self::Update];
}

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
    let mut transactions = 0u64;
    while !stop.load(Ordering::Relaxed) && !blocks.is_empty() {
        let block = blocks[random.index(blocks.len())];
        let text = format!("{:015x}", random.below(1 << 60));
        let kind = Kind::ALL[transactions as usize % Kind::ALL.len()];
        match run(connection, &transaction(block, kind, &text)) {
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

fn run(connection: &mut EmbeddedConnection, statements: &[String]) -> Result<(), SqlFailure> {
    statements.iter().try_for_each(|statement| connection.execute(statement, &[]).map(drop))
}

/// The statements of one transaction on a block; `text` is what unread columns get.
fn transaction(block: i64, kind: Kind, text: &str) -> Vec<String> {
    let first = block * BLOCK_STRIDE + 1;
    let (originals, copies) = (first..first + BLOCK, first + BLOCK..first + 2 * BLOCK);
    let cheap_copy = || update(Table::Orders, "o_totalprice = 0", &format!("o_orderkey = {}", copies.start));
    let mut statements = vec!["BEGIN".to_owned()];
    match kind {
        Kind::ComeAndGo => {
            statements.extend(copies_of(&originals, BLOCK));
            statements.push(cheap_copy());
            statements.extend(deletes(&copies));
        }
        Kind::RollBack => {
            statements.extend(copies_of(&originals, BLOCK));
            statements.push(cheap_copy());
            statements.push(update(Table::LineItem, "l_quantity = 0", &within("l_orderkey", &originals)));
            statements.extend(deletes(&originals));
        }
        Kind::Replace => {
            statements.extend(copies_of(&originals, BLOCK));
            statements.extend(deletes(&originals));
            statements.extend(copies_of(&copies, -BLOCK));
            statements.extend(deletes(&copies));
        }
        Kind::Update => {
            // There are at least as many parts as blocks; of customers there are fewer.
            let number = block + 1..block + 2;
            let unread = |columns: [(Table, &str, &str); 2], keys: &Range<i64>| {
                columns.map(|(table, key, column)| update(table, &format!("{column} = '{text}'"), &within(key, keys)))
            };
            statements.extend(unread(UNREAD_OF_ORDERS, &originals));
            statements.extend(unread(UNREAD_OF_PARTS, &number));
            let same = "c_acctbal = c_acctbal, c_comment = c_comment";
            statements.push(update(Table::Customer, same, &within("c_custkey", &number)));
        }
    }
    statements.push(if kind == Kind::RollBack { "ROLLBACK" } else { "COMMIT" }.to_owned());
    statements
}

/// Copies orders and their lines to other keys.
fn copies_of(keys: &Range<i64>, distance: i64) -> [String; 2] {
    WITH_ORDER_KEY.map(|(table, key)| copy(table, &[(key, format!("{key} + {distance}"))], &within(key, keys)))
}

fn deletes(keys: &Range<i64>) -> [String; 2] {
    WITH_ORDER_KEY.map(|(table, key)| delete(table, &within(key, keys)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::{AnalyticsOptions, Suite, load};
    use eris_workloads::jcch::ParameterSet;

    /// What the queries can see of the tables that change, roughly.
    fn seen(instance: &Instance) -> Vec<String> {
        let sums = [
            "count(*), sum(o_totalprice), sum(o_orderkey), max(o_comment) FROM orders",
            "count(*), sum(l_extendedprice), sum(l_orderkey * l_linenumber), sum(l_quantity) FROM lineitem",
            "count(*), sum(ps_supplycost), sum(ps_partkey), sum(ps_availqty) FROM partsupp",
            "count(*), sum(p_size), sum(p_partkey), max(p_name) FROM part",
            "count(*), sum(c_acctbal), sum(c_custkey), max(c_comment) FROM customer",
        ];
        let ask = |sums| instance.connect().execute(&format!("SELECT {sums}"), &[]).unwrap().rows;
        sums.map(|sums| format!("{:?}", ask(sums))).into()
    }

    fn updated(instance: &Instance) -> i64 {
        let sql = "SELECT count(*) FROM orders WHERE o_clerk NOT LIKE 'Clerk#%'";
        instance.connect().execute(sql, &[]).unwrap().rows[0][0].as_int().unwrap()
    }

    #[test]
    fn the_queries_see_nothing() {
        let options = AnalyticsOptions {
            scale_factor: 0.01,
            nodes: 2,
            split_rows: Some(5_000),
            memory_limit_bytes: 1 << 30,
            ..AnalyticsOptions::default()
        };
        let instance = Instance::start(&options.instance_options()).unwrap();
        load(&instance, &options).unwrap();
        let before = seen(&instance);
        let mut connection = instance.connect();
        for (number, block) in [0, 1, 0, 2].into_iter().enumerate() {
            for kind in Kind::ALL {
                run(&mut connection, &transaction(block, kind, &number.to_string())).unwrap();
            }
        }
        // Seven orders have keys from 1 to 8, and so on.
        assert_eq!((seen(&instance), updated(&instance)), (before.clone(), 3 * 7));
        let committed = instance.counters()["transactions_committed"];
        let refresh = Refresh::start(&instance, 2, 0.01).unwrap();
        while instance.counters()["transactions_committed"] < committed + 20 {
            std::thread::yield_now();
        }
        assert!(refresh.end().unwrap() > 0);
        assert_eq!(seen(&instance), before);
        assert!(instance.counters()["splits"] > 0);
        instance.shutdown();
    }

    #[test]
    fn what_changes_is_read_by_no_query() {
        let jcch = ParameterSet::ALL.map(|parameters| Suite::Jcch { parameters, workload: false });
        for query in [Suite::Tpch].into_iter().chain(jcch).flat_map(|suite| suite.queries(0.01)) {
            for (_, _, column) in UNREAD_OF_ORDERS.into_iter().chain(UNREAD_OF_PARTS) {
                assert!(!query.sql.contains(column), "{} reads {column}", query.name);
            }
        }
    }
}
