//! Partitions from the outside: random histories against a slow reference, the conformance suite of the storage
//! modules, and single rules.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod before_images;
mod conformance;
mod handover;
mod hash;
mod histories;
mod history;
mod index_accesses;
mod inverted;
mod layouts;
mod scans;
mod store;
mod usage;
mod widen;
mod without_room;
