//! JCC-H: the tables and queries of TPC-H, with values that are related and far from equally frequent (Boncz,
//! Anadiotis, Kläbe, TPCTC 2017).
//!
//! Five orders have a quarter of all lines, five customers a quarter of the orders, twenty parts a quarter of the
//! suppliers' stock and two fifths of the lines; half of the orders are of Black Fridays; who buys from whom depends on
//! the region; and yet the values of a single column look as in TPC-H. Which rows are populous is spread over the keys
//! by a bijection (`key_hash`), and the rules are written on its values.
//!
//! Keys, populations and relations are those of the benchmark's own generator (with its option for skew) wherever these
//! follow from rules, also where its publication says otherwise: Black Friday is the 28th of May, and also in 1995 and
//! 1996. Suppliers, customers, parts, orders and the dates that orders come from are TPC-H's at the same scale factor.
//! Random values of lineitem and partsupp are drawn by row from generators of our own, so that every row can be made
//! without those before it: they have the right distributions, not the digits of another program.

mod answers;
mod customers;
mod draws;
pub mod dump;
mod fanout;
mod generate;
mod key_hash;
mod lines;
mod nations;
mod orders;
mod parameters;
mod parts;
mod partsupp;
mod population;
mod suppliers;
#[cfg(test)]
mod tests;
mod workload;

pub use answers::stored_answer;
pub use generate::{generate, row_count};
pub use parameters::{Parameter, ParameterSet, draw_parameters};
pub use population::{Population, ScaleFactorError};
pub use workload::{DrawnQuery, WORKLOAD_QUERIES, WORKLOAD_SEED, each_query, workload};
