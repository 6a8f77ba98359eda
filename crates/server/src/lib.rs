//! The server: sessions over the PostgreSQL wire protocol, polled by the workers.
//!
//! [`protocol`] is the protocol as a function of bytes; [`service`] gives it sockets.

pub mod protocol;
pub mod service;

pub use service::{ServeError, ServerHandle, listen};
