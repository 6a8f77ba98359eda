//! The promises about dependencies: who may depend on whom, what the core never reaches, under which licences.
//!
//! All of it is read from `cargo metadata`, the resolved graph, so a dependency of a dependency counts.
#![allow(clippy::expect_used, reason = "a test that cannot read the graph has failed")]

mod core_crates;
mod layers;
mod licences;
mod metadata;
mod spdx;
mod unified;
