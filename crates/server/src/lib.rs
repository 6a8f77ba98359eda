//! The server: sessions over the PostgreSQL wire protocol, polled by the workers.

pub mod protocol;
