//! Workloads: TPC-H, JCC-H, TATP, the key-value store of the sources, their queries that depend on caches, indexes of
//! rising size and columns to scan; their data, their drivers and their checks.
//!
//! A workload drives a system through one of two small interfaces: an SQL connection (ERIS embedded, ERIS or PostgreSQL
//! over the wire) or the task API of the bare engine.

pub mod answers;
mod beside;
pub mod cache_queries;
pub mod columns;
pub mod connection;
pub mod crowd;
pub mod histogram;
pub mod index_size;
pub mod jcch;
pub mod kv;
pub mod postgres;
mod set_constant;
pub mod tatp;
pub mod tpch;

pub use set_constant::set_constant;
