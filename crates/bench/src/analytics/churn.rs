//! Random changes that stay, and the answers of a fresh load of what they leave.
//!
//! A seeded generator draws one transaction after the other: new orders, customers and parts (copies with other keys
//! and values), deletes of some, updates of some; ranges of keys from one to a sixteenth of them all, whole or each
//! third or seventh key. Where a row goes, so do those that refer to it. Between two transactions a partition is split
//! or two are merged. When maintenance has come to rest, all rows are read by SELECT and loaded into a fresh instance
//! in this process, whose answers are the right ones from then on.
//!
//! No two orders may be alike: which of them Q3 and Q18 leave out would be open. So copies cost more than what they are
//! copies of, and amounts are only ever added to.

mod fresh;

pub(super) use fresh::answer_by_fresh_load;

use super::refresh::{BLOCK, BLOCK_STRIDE};
use super::statements::{copy, delete, update, within};
use crate::error::BenchError;
use crate::instance::{EmbeddedConnection, Instance};
use eris_platform::SeededRandom;
use eris_workloads::connection::{SqlConnection, SqlFailure, SqlValue};
use eris_workloads::tpch::Table;
use serde::Serialize;
use std::ops::Range;
use std::time::{Duration, Instant};

const SEED: u64 = 22;
/// Copies of orders have the last keys before the next block; `refresh` uses those after the block.
const COPY_DISTANCE: i64 = BLOCK_STRIDE - BLOCK;
/// Maintenance is at rest after so long without any: five times as long as a tail has to be quiet to be sealed.
const REST: Duration = Duration::from_millis(500);
/// Nobody waits longer than this for it.
const REST_WAIT_MAX: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What was done to the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Churned {
    pub transactions: u64,
    pub inserted_rows: u64,
    pub updated_rows: u64,
    pub deleted_rows: u64,
    /// Partitions that were split, and that were merged with a neighbour.
    pub splits: u64,
    pub merges: u64,
}

/// Runs that many random transactions, and waits for maintenance to come to rest.
pub(super) fn churn(instance: &Instance, transactions: u64) -> Result<Churned, BenchError> {
    let keys = Keys::of(instance)?;
    let mut random = SeededRandom::new(SEED);
    let mut connection = instance.connect();
    let mut churned = Churned::default();
    for _ in 0..transactions {
        churned.run(&mut connection, &keys.transaction(&mut random))?;
        churned.divide_anew(instance, &mut random)?;
    }
    wait_for_rest(instance);
    Ok(churned)
}

impl Churned {
    fn run(&mut self, connection: &mut EmbeddedConnection, changes: &[String]) -> Result<(), SqlFailure> {
        connection.begin()?;
        for change in changes {
            let rows = connection.execute(change, &[])?.rows_affected;
            match change.split(' ').next() {
                Some("INSERT") => self.inserted_rows += rows,
                Some("UPDATE") => self.updated_rows += rows,
                Some("DELETE") => self.deleted_rows += rows,
                other => unreachable!("{other:?} does not change rows"),
            }
        }
        connection.commit()?;
        self.transactions += 1;
        Ok(())
    }

    /// Splits a partition of a table, or merges it with the next one; either may be refused.
    fn divide_anew(&mut self, instance: &Instance, random: &mut SeededRandom) -> Result<(), BenchError> {
        let tables = [Table::LineItem, Table::Orders, Table::PartSupp, Table::Customer];
        let container = instance.container(tables[random.index(tables.len())].name())?;
        let engine = instance.engine().clone();
        let partitions = engine.partition_ids(container);
        let at = random.index(partitions.len());
        let partition = partitions[at];
        if let Some(next) = partitions.get(at + 1).copied().filter(|_| random.chance(0.5)) {
            let merge = async move { engine.merge_partitions(partition, next).await.is_ok() };
            self.merges += u64::from(instance.engine().block_on(merge)?);
        } else {
            let split = async move { engine.split_partition(partition).await.is_ok() };
            self.splits += u64::from(instance.engine().block_on(split)?);
        }
        Ok(())
    }
}

/// Returns when no segment was sealed, thawed or compacted for a while.
fn wait_for_rest(instance: &Instance) {
    let work = || {
        let counters = instance.counters();
        ["segments_sealed", "segments_thawed", "segments_compacted"].map(|name| counters[name])
    };
    let start = Instant::now();
    let (mut done, mut since) = (work(), start);
    while since.elapsed() < REST && start.elapsed() < REST_WAIT_MAX {
        std::thread::sleep(LOOK_EVERY);
        let now = work();
        if now != done {
            (done, since) = (now, Instant::now());
        }
    }
}

/// The largest keys before the first change.
#[derive(Debug)]
struct Keys {
    orders: i64,
    customers: i64,
    parts: i64,
}

/// The rows with a key in a range, or some of them.
#[derive(Debug)]
struct Selection {
    keys: Range<i64>,
    step: u64,
    remainder: u64,
}

impl Selection {
    fn draw(random: &mut SeededRandom, largest: i64) -> Self {
        let keys = range(random, largest);
        let step = [1, 1, 3, 7][random.index(4)];
        Self { keys, step, remainder: random.below(step) }
    }

    fn of(&self, column: &str) -> String {
        format!("{} AND {column} % {} = {}", within(column, &self.keys), self.step, self.remainder)
    }
}

/// Neighbouring keys: often few, seldom as many as a sixteenth of them all.
fn range(random: &mut SeededRandom, largest: i64) -> Range<i64> {
    let bits = (largest / 16).max(1).ilog2();
    let width = 1i64 << random.below(u64::from(bits) + 1);
    let first = random.between(1, largest);
    first..first + width
}

/// Up to ten, in hundredths, but not nothing.
fn amount(random: &mut SeededRandom) -> String {
    let hundredths = random.between(1, 1_000);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

impl Keys {
    fn of(instance: &Instance) -> Result<Self, BenchError> {
        let mut connection = instance.connect();
        let mut largest = |key: &str, table: Table| {
            let rows = connection.execute(&format!("SELECT max({key}) FROM {}", table.name()), &[])?.rows;
            let key = rows.iter().flatten().find_map(SqlValue::as_int);
            key.ok_or_else(|| BenchError::Options(format!("{} is empty: nothing can be changed", table.name())))
        };
        Ok(Self {
            orders: largest("o_orderkey", Table::Orders)?,
            customers: largest("c_custkey", Table::Customer)?,
            parts: largest("p_partkey", Table::Part)?,
        })
    }

    /// The statements of a random transaction.
    fn transaction(&self, random: &mut SeededRandom) -> Vec<String> {
        match random.below(10) {
            0 | 1 => self.new_orders(random),
            2 => self.new_customers(random),
            3 => self.new_parts(random),
            4 => self.deleted_orders(random),
            5 => self.deleted_customers(random),
            6 => self.deleted_parts(random),
            _ => vec![self.updated_rows(random)],
        }
    }

    /// Orders whose keys have been copied before replace their copies.
    fn new_orders(&self, random: &mut SeededRandom) -> Vec<String> {
        let keys = range(random, self.orders);
        let copies = keys.start + COPY_DISTANCE..keys.end + COPY_DISTANCE;
        let original = |key: &str| format!("{} AND {key} % {BLOCK_STRIDE} < {BLOCK}", within(key, &keys));
        let copied = |key: &str| format!("{} AND {key} % {BLOCK_STRIDE} >= {COPY_DISTANCE}", within(key, &copies));
        let more = amount(random);
        let changed = |key: &'static str, price: &'static str| {
            [(key, format!("{key} + {COPY_DISTANCE}")), (price, format!("{price} + {more}"))]
        };
        vec![
            delete(Table::LineItem, &copied("l_orderkey")),
            delete(Table::Orders, &copied("o_orderkey")),
            copy(Table::Orders, &changed("o_orderkey", "o_totalprice"), &original("o_orderkey")),
            copy(Table::LineItem, &changed("l_orderkey", "l_extendedprice"), &original("l_orderkey")),
        ]
    }

    /// Customers without orders. Those who have been copied before replace their copies.
    fn new_customers(&self, random: &mut SeededRandom) -> Vec<String> {
        let keys = range(random, self.customers);
        let copies = keys.start + self.customers..keys.end + self.customers;
        let changed = [
            ("c_custkey", format!("c_custkey + {}", self.customers)),
            ("c_acctbal", format!("c_acctbal + {}", amount(random))),
        ];
        vec![
            delete(Table::Customer, &within("c_custkey", &copies)),
            copy(Table::Customer, &changed, &within("c_custkey", &keys)),
        ]
    }

    /// Parts in stock, and every other of the lines. Those that have been copied before replace their copies.
    fn new_parts(&self, random: &mut SeededRandom) -> Vec<String> {
        let keys = range(random, self.parts);
        let copies = keys.start + self.parts..keys.end + self.parts;
        let other = |key: &str| format!("{key} + {}", self.parts);
        let stock =
            [("ps_partkey", other("ps_partkey")), ("ps_supplycost", format!("ps_supplycost + {}", amount(random)))];
        let some_lines = format!("{} AND l_linenumber % 2 = 0", within("l_partkey", &keys));
        vec![
            delete(Table::LineItem, &within("l_partkey", &copies)),
            delete(Table::PartSupp, &within("ps_partkey", &copies)),
            delete(Table::Part, &within("p_partkey", &copies)),
            copy(Table::Part, &[("p_partkey", other("p_partkey"))], &within("p_partkey", &keys)),
            copy(Table::PartSupp, &stock, &within("ps_partkey", &keys)),
            update(Table::LineItem, &format!("l_partkey = {}", other("l_partkey")), &some_lines),
        ]
    }

    fn deleted_orders(&self, random: &mut SeededRandom) -> Vec<String> {
        let some = Selection::draw(random, self.orders);
        vec![delete(Table::LineItem, &some.of("l_orderkey")), delete(Table::Orders, &some.of("o_orderkey"))]
    }

    fn deleted_customers(&self, random: &mut SeededRandom) -> Vec<String> {
        let some = Selection::draw(random, self.customers);
        let whose = some.of("o_custkey");
        let of_theirs = format!("l_orderkey IN (SELECT o_orderkey FROM orders WHERE {whose})");
        vec![
            delete(Table::LineItem, &of_theirs),
            delete(Table::Orders, &whose),
            delete(Table::Customer, &some.of("c_custkey")),
        ]
    }

    fn deleted_parts(&self, random: &mut SeededRandom) -> Vec<String> {
        let some = Selection::draw(random, self.parts);
        vec![
            delete(Table::LineItem, &some.of("l_partkey")),
            delete(Table::PartSupp, &some.of("ps_partkey")),
            delete(Table::Part, &some.of("p_partkey")),
        ]
    }

    fn updated_rows(&self, random: &mut SeededRandom) -> String {
        let more = amount(random);
        let (quantity, discount) = (random.between(1, 50), random.below(10));
        let (stock, nation) = (random.between(1, 9_999), random.below(25));
        let updates = [
            (Table::LineItem, "l_orderkey", format!("l_extendedprice = l_extendedprice + {more}")),
            (Table::LineItem, "l_orderkey", format!("l_quantity = {quantity}, l_discount = 0.0{discount}")),
            (Table::LineItem, "l_partkey", "l_shipdate = l_commitdate, l_shipmode = 'MAIL'".to_owned()),
            (Table::LineItem, "l_partkey", "l_receiptdate = l_commitdate, l_returnflag = 'R'".to_owned()),
            (Table::Orders, "o_orderkey", format!("o_totalprice = o_totalprice + {more}, o_orderstatus = 'F'")),
            (Table::Orders, "o_custkey", "o_orderpriority = '1-URGENT', o_comment = 'special requests'".to_owned()),
            (Table::PartSupp, "ps_partkey", format!("ps_availqty = {stock}, ps_supplycost = ps_supplycost + {more}")),
            (Table::Customer, "c_custkey", format!("c_acctbal = c_acctbal + {more}, c_nationkey = {nation}")),
        ];
        let (table, key, assignments) = &updates[random.index(updates.len())];
        let largest = match *key {
            "l_orderkey" | "o_orderkey" => self.orders,
            "o_custkey" | "c_custkey" => self.customers,
            _ => self.parts,
        };
        update(*table, assignments, &Selection::draw(random, largest).of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::{AnalyticsOptions, load};

    fn count(instance: &Instance, from: &str) -> i64 {
        let rows = instance.connect().execute(&format!("SELECT count(*) FROM {from}"), &[]).unwrap().rows;
        rows[0][0].as_int().unwrap()
    }

    #[test]
    fn rows_that_refer_to_others_find_them() {
        let options =
            AnalyticsOptions { scale_factor: 0.01, memory_limit_bytes: 2 << 30, ..AnalyticsOptions::default() };
        let instance = Instance::start(&options.instance_options()).unwrap();
        let loaded = load(&instance, &options).unwrap();
        let churned = churn(&instance, 60).unwrap();
        assert_eq!(churned.transactions, 60);
        assert!(churned.inserted_rows > 0 && churned.updated_rows > 0 && churned.deleted_rows > 0, "{churned:?}");
        assert!(churned.splits > 0 && churned.merges > 0, "{churned:?}");
        let rows: i64 = Table::ALL.map(|table| count(&instance, table.name())).iter().sum();
        assert_eq!(rows as u64, loaded.rows + churned.inserted_rows - churned.deleted_rows);
        for orphans in [
            "lineitem WHERE l_orderkey NOT IN (SELECT o_orderkey FROM orders)",
            "orders WHERE o_custkey NOT IN (SELECT c_custkey FROM customer)",
            "partsupp WHERE ps_partkey NOT IN (SELECT p_partkey FROM part)",
            "lineitem WHERE NOT EXISTS \
             (SELECT 1 FROM partsupp WHERE ps_partkey = l_partkey AND ps_suppkey = l_suppkey)",
        ] {
            assert_eq!(count(&instance, orphans), 0, "{orphans}");
        }
        instance.shutdown();
    }

    #[test]
    fn amounts_are_never_nothing() {
        let mut random = SeededRandom::new(1);
        for _ in 0..1_000 {
            let hundredths: i64 = amount(&mut random).replace('.', "").parse().unwrap();
            assert!((1..=1_000).contains(&hundredths));
        }
    }
}
