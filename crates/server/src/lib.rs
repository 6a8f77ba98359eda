//! The server: sessions over the PostgreSQL wire protocol, polled by the workers.
//!
//! [`protocol`] is the protocol as a function of bytes; [`service`] gives it sockets; [`sql_sessions`] puts the
//! database behind it.

// What the fuzzer runs is compiled into the tests as well, and calls the crate by its name.
#[cfg(test)]
extern crate self as eris_server;

pub mod protocol;
pub mod service;
#[cfg(feature = "sql")]
pub mod sql_sessions;

pub use service::{ServeError, ServerHandle, Service, own_descriptors, stop_all};
#[cfg(feature = "sql")]
pub use sql_sessions::SqlHost;
