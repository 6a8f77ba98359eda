//! The PostgreSQL wire protocol, version 3.0, as a function of bytes: nothing here knows of sockets or of SQL.

pub mod backend;
pub mod connection;
mod copy;
mod extended;
pub mod frames;
pub mod frontend;
mod names;
#[cfg(any(test, feature = "scripted"))]
pub mod pipe;
pub mod reply;
pub mod report;
mod rows;
#[cfg(any(test, feature = "scripted"))]
pub mod scripted;
pub mod signal;
mod simple;
pub mod startup;
#[cfg(test)]
pub(crate) mod tests;
pub mod wire;
