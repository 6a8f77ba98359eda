//! TATP, the telecom benchmark: four tables, seven short transactions, a closed loop.

mod check;
mod keys;
mod population;
mod schema;
pub mod sql;
mod sql_driver;
mod statistics;
pub mod task;
mod task_arrivals;
mod task_driver;
mod transactions;

pub use check::{Consistency, check};
pub use keys::KeyDistribution;
pub use population::{Population, PopulationOptions, SubscriberRows};
pub use schema::{CREATE_NUMBER_INDEX, ColumnDefinition, ColumnType, FOREIGN_KEYS, Table};
pub use sql_driver::{Phase, PhaseHook, run as run_over_sql};
pub use statistics::{ATTEMPTS_MAX, KindStatistics, RunOptions, RunResult, SUCCESS_RULE, Statistics, THROUGHPUT_RULE};
pub use task_arrivals::{ArrivalOptions, run_arrivals_beside};
pub use task_driver::{Until, drive as drive_task, run as run_over_tasks, run_clients as run_task_clients};
pub use transactions::{Completed, ForwardingChange, ForwardingKey, Inputs, Outcome, Transaction, TransactionKind};
