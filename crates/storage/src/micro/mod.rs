//! Micro-QEPs: how one request is carried out inside one partition.
//!
//! The compiler follows the pattern of 004, section 5.2.5: look for an index on the target attributes, else scan; then
//! link what else is needed. A plan depends on the *shape* of a request (which attributes, which kinds of tests), not
//! on its constants, and is cached by shape; constants are bound when a cursor opens.

mod bind;
mod cache;
mod compile;
mod describe;
mod usage;

pub(crate) use bind::{Bound, KeyRange, bind};
pub(crate) use cache::PlanCache;
pub(crate) use compile::{Access, IndexUse, MicroPlan, compile};
pub use describe::MicroPlanDescription;
pub(crate) use describe::{UsedModules, describe};
pub use usage::AttributeTotals;
pub(crate) use usage::{AccessTotals, share_of_each};
